//! What the node needs of the SMB server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Weak;

use control_api::{
    AuditEntry, Config, Listener, Session, ShareConfig, ShareCreate, ShareTraffic, ShareUpdate, Smb1Attempt,
    SmbInterface, SmbOpen,
};
use observe::IoTotals;
use smb_protocol::security::Sid;
use uuid::Uuid;

use super::{Current, OpenVolume, Work};

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
    fn share_create(&self, by: Remote, request: ShareCreate) -> Work<'_, ()>;
    /// Changes a share.
    fn share_update(&self, by: Remote, name: String, update: ShareUpdate) -> Work<'_, ()>;
    /// Takes a share away; whoever asks has been asked whether it is sure.
    fn share_delete(&self, by: Remote, name: String) -> Work<'_, ()>;
    /// An entry for the record of what somebody has changed otherwise, unless there are too many of its kind. Waits for no disk.
    fn admit(&self, entry: AuditEntry) -> Option<AuditEntry>;
    /// Writes an entry down that was admitted. Blocks on the data directory's disk.
    fn record(&self, entry: AuditEntry);
    /// One more change is not written down, as too many wait for the disk.
    fn miss(&self);
}

/// Who asks over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The user.
    pub user: String,
    /// Who that is.
    pub sid: Sid,
    /// From where, as the record has it.
    pub from: String,
}

/// What is to be served of a pool over SMB.
#[derive(Clone, Default)]
pub struct WantedShares {
    /// Its shares.
    pub shares: Vec<ShareConfig>,
    /// Its volumes that are open. What clients have open in them is brought back, before anybody is let in.
    pub volumes: Vec<OpenVolume>,
    /// Clients may come. Else shares that are not served yet wait for that.
    pub admit: bool,
}

/// SMB: listeners, shares, sessions, opens. Calls for several pools may be under way at once, for each pool one.
pub trait SmbBackend: Send + Sync + 'static {
    /// Makes the server itself equal to the configuration, unless a newer one is in effect. `node` is the node's name.
    fn configure(&self, config: &Current, node: &str);
    /// Makes listeners equal to the configuration. Waits for no volume. Returns what could not be done, as
    /// ("SMB address 0.0.0.0:445", "why").
    fn listen<'a>(&'a self, config: &'a Config) -> Work<'a, Vec<(String, String)>>;
    /// Makes what is served of a pool equal to what is wanted of it. Nothing of a volume of the pool that is not wanted is held any
    /// more when this ends. What goes on unchanged is not disturbed, nor is what is served of other pools. Returns what could not be done, as
    /// ("share vmstore", "why").
    fn apply_pool(&self, pool: Option<Uuid>, wanted: WantedShares) -> Work<'_, Vec<(String, String)>>;
    /// These shares are on their way, and no others: who connects to one of them waits for it.
    fn expect_shares(&self, names: &[String]);
    /// The server now.
    fn info(&self) -> SmbInfo;
    /// What has passed over a share; none when it is not served.
    fn traffic(&self, share: &str) -> Option<ShareTraffic>;
    /// The same with errors and how long it took; none when it is not served.
    fn share_totals(&self, share: &str) -> Option<ShareTotals>;
    /// Sessions now.
    fn sessions(&self) -> Vec<Session>;
    /// Users that have sessions; who is nobody in particular is not among them.
    fn session_users(&self) -> BTreeSet<Sid>;
    /// Ends a session; says whether it was there.
    fn end_session(&self, id: u64) -> bool;
    /// Ends all sessions of a user, and closes what waits for its clients; says how many sessions there were.
    fn end_sessions_of(&self, user: Sid) -> usize;
    /// Closes what waits for clients of users who are gone or disabled; says how many opens there were.
    fn close_opens_of_gone_users(&self) -> usize;
    /// What clients have open.
    fn opens(&self) -> Vec<SmbOpen>;
    /// How many opens each share has, by its name.
    fn open_counts(&self) -> BTreeMap<String, u64>;
    /// Closes an open; says whether it was there.
    fn close_open(&self, id: u64) -> bool;
    /// Has changes that clients ask for made by `node`.
    fn administered_by(&self, node: Weak<dyn SmbAdministration>);
    /// Looks at the machine's interfaces again, and at which sessions are idle.
    fn refresh(&self);
    /// Connections of users to an address of this machine, the oldest first: our end, and the client's.
    fn connections_to(&self, address: IpAddr) -> Vec<(SocketAddr, SocketAddr)>;
    /// Ends when a user has logged in over a new connection since it was called last.
    fn connected(&self) -> Work<'_, ()>;
    /// This machine's addresses that clients are connected to.
    fn connected_addresses(&self) -> BTreeSet<IpAddr>;
    /// Ends the connections to addresses that are not this machine's any more, without a word.
    fn abandon_connections_to(&self, addresses: &BTreeSet<IpAddr>);
    /// Closes all connections; what outlives the server stays in its volumes.
    fn stop(&self) -> Work<'_, ()>;
}
