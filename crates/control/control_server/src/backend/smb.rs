//! What the node needs of the SMB server.

use std::sync::Weak;

use control_api::{
    Config, Listener, Session, ShareCreate, ShareTraffic, ShareUpdate, Smb1Attempt, SmbInterface, SmbOpen,
};
use observe::IoTotals;
use smb_protocol::security::Sid;

use super::{OpenVolume, Work};

/// What has passed over a share since it was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareTotals {
    /// Reads and writes of files.
    pub io: IoTotals,
    /// All other requests.
    pub metadata: u64,
}

/// The SMB server now.
#[derive(Clone, Debug, Default)]
pub struct SmbInfo {
    /// The NetBIOS name in use.
    pub netbios_name: String,
    /// Its identity for clients.
    pub guid: String,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Addresses that clients are told of.
    pub offered: Vec<SmbInterface>,
    /// How often clients spoke SMB 1.
    pub smb1_count: u64,
    /// The last of them, newest first.
    pub smb1_attempts: Vec<Smb1Attempt>,
}

/// Who changes shares when a client with the right to asks for it over the network: the node, as if it was asked on its own
/// machine.
pub trait SmbAdministration: Send + Sync + 'static {
    /// Makes a share of a folder that is there.
    fn share_create(&self, request: ShareCreate) -> Work<'_, ()>;
    /// Changes a share.
    fn share_update(&self, name: String, update: ShareUpdate) -> Work<'_, ()>;
    /// Takes a share away; whoever asks has been asked whether it is sure.
    fn share_delete(&self, name: String) -> Work<'_, ()>;
}

/// SMB: listeners, shares, sessions, opens.
pub trait SmbBackend: Send + Sync + 'static {
    /// Makes what is served equal to the configuration: shares whose volume is not in `volumes` are not served. Nothing
    /// of a volume that is not there is held any more when this ends. `node` is the node's name. What goes on unchanged is
    /// not disturbed. Returns what could not be done, as ("share vmstore", "why").
    fn apply<'a>(
        &'a self,
        config: &'a Config,
        node: &'a str,
        volumes: Vec<OpenVolume>,
    ) -> Work<'a, Vec<(String, String)>>;
    /// The server now.
    fn info(&self) -> SmbInfo;
    /// What has passed over a share; none when it is not served.
    fn traffic(&self, share: &str) -> Option<ShareTraffic>;
    /// The same with errors and how long it took; none when it is not served.
    fn share_totals(&self, share: &str) -> Option<ShareTotals>;
    /// Sessions now.
    fn sessions(&self) -> Vec<Session>;
    /// Ends a session; says whether it was there.
    fn end_session(&self, id: u64) -> bool;
    /// Ends all sessions of a user; says how many there were.
    fn end_sessions_of(&self, user: Sid) -> usize;
    /// What clients have open.
    fn opens(&self) -> Vec<SmbOpen>;
    /// Closes an open; says whether it was there.
    fn close_open(&self, id: u64) -> bool;
    /// Has changes that clients ask for made by `node`.
    fn administered_by(&self, node: Weak<dyn SmbAdministration>);
    /// Looks at the machine's interfaces again, and at which sessions are idle.
    fn refresh(&self);
    /// Closes all connections; what outlives the server stays in its volumes.
    fn stop(&self) -> Work<'_, ()>;
}
