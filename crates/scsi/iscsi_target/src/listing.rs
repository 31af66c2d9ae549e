//! What is open, for people and metrics.

use std::net::SocketAddr;

use iscsi_protocol::{ConnectionParams, IscsiName, SessionParams};
use observe::IoTotals;

/// One session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The target.
    pub target: IscsiName,
    /// The initiator.
    pub initiator: IscsiName,
    /// What the initiator calls itself.
    pub initiator_alias: Option<String>,
    /// The CHAP user.
    pub user: Option<String>,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// Our part of it.
    pub tsih: u16,
    /// The portal group's tag.
    pub portal_group: u16,
    /// The nexus's number, as the SCSI side knows it.
    pub nexus: u64,
    /// What was negotiated.
    pub params: SessionParams,
    /// Commands on the medium of its units, with how long the device took for them.
    pub io: IoTotals,
    /// Its connections.
    pub connections: Vec<ConnectionInfo>,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Connection identifier.
    pub cid: u16,
    /// The initiator's address.
    pub remote: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// The shard it lives on.
    pub shard: usize,
    /// What was negotiated.
    pub params: ConnectionParams,
    /// SCSI commands received.
    pub commands: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes queued for sending.
    pub bytes_out: u64,
}
