//! What the interfaces show and change: the seam to the node.
//!
//! What is asked is answered from memory. What changes the server may wait, so no pipe is to be used on a thread that must
//! not; it is asked for administrators only, and an implementation may refuse all the same.

pub mod accounts;
pub mod memory;

use smb_protocol::FileTime;
use smb_protocol::security::sid::Sid;

use crate::client::RpcClient;
use crate::error::Win32;
use accounts::{AliasView, Principal, UserView};

/// The server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its NetBIOS name.
    pub name: String,
    /// What it says of itself.
    pub comment: String,
    /// Its version as Windows counts: 10.0 makes clients use all that they have.
    pub version: (u32, u32),
    /// Its workgroup, or its domain's NetBIOS name.
    pub domain: String,
    /// Its domain in DNS; empty in a workgroup.
    pub dns_domain: String,
    /// Its domain's SID; none in a workgroup.
    pub domain_sid: Option<Sid>,
    /// How long it has been up.
    pub up_seconds: u64,
}

/// What a share is made of (MS-SRVS 2.2.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareKind {
    /// Files.
    #[default]
    Disk,
    /// Files, served by a cluster.
    ClusterDisk,
    /// Files, served by all nodes of a cluster at once.
    ScaleOutDisk,
    /// Pipes.
    Ipc,
}

/// Flags of a share (MS-SRVS 2.2.4.29).
pub mod share_flag {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const DFS: u32 = 0x0001;
    pub const DFS_ROOT: u32 = 0x0002;
    pub const CSC_MASK: u32 = 0x0030;
    pub const CSC_AUTO: u32 = 0x0010;
    pub const CSC_VDO: u32 = 0x0020;
    pub const CSC_NONE: u32 = 0x0030;
    pub const RESTRICT_EXCLUSIVE_OPENS: u32 = 0x0100;
    pub const FORCE_SHARED_DELETE: u32 = 0x0200;
    pub const ALLOW_NAMESPACE_CACHING: u32 = 0x0400;
    pub const ACCESS_BASED_ENUMERATION: u32 = 0x0800;
    pub const FORCE_LEVEL_II: u32 = 0x1000;
    pub const ENABLE_HASH: u32 = 0x2000;
    pub const CONTINUOUSLY_AVAILABLE: u32 = 0x4000;
    pub const ENCRYPT_DATA: u32 = 0x8000;
}

/// A share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Its name; hidden ones end with `$`.
    pub name: String,
    /// What it is made of.
    pub kind: ShareKind,
    /// Whether the server made it for itself: IPC$, ADMIN$.
    pub special: bool,
    /// Whether it is left out of the lists that people browse.
    pub hidden: bool,
    /// A remark for people.
    pub comment: String,
    /// The folder, in the way that clients show: `C:\volume\folder`.
    pub path: String,
    /// How many may use it at a time; none for no limit.
    pub max_uses: Option<u32>,
    /// How many do.
    pub current_uses: u32,
    /// Its [`share_flag`]s.
    pub flags: u32,
    /// Who may use it: a self-relative security descriptor, if it has one.
    pub security: Option<Vec<u8>>,
}

/// A share to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewShare {
    /// Its name.
    pub name: String,
    /// A remark.
    pub comment: String,
    /// The folder, as the client writes it.
    pub path: String,
    /// How many may use it at a time.
    pub max_uses: Option<u32>,
    /// Who may use it: a security descriptor that was decoded once, so it is one.
    pub security: Option<Vec<u8>>,
}

/// What is to change of a share; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareChange {
    /// The remark.
    pub comment: Option<String>,
    /// How many may use it.
    pub max_uses: Option<Option<u32>>,
    /// The [`share_flag`]s that a client may set.
    pub flags: Option<u32>,
    /// Who may use it.
    pub security: Option<Vec<u8>>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its number.
    pub id: u64,
    /// The client: its address, or its name.
    pub client: String,
    /// Who it is.
    pub user: String,
    /// Files that it has open.
    pub opens: u32,
    /// For how many seconds it has existed.
    pub seconds: u32,
    /// For how long it has done nothing.
    pub idle_seconds: u32,
    /// Whether nobody has said who it is.
    pub guest: bool,
}

/// An open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Its number, which [`ServerView::close_open`] takes.
    pub id: u32,
    /// Its file, as clients show it.
    pub path: String,
    /// Who opened it.
    pub user: String,
    /// Whether it may read, write and create (MS-SRVS 2.2.4.7: 1, 2, 4).
    pub permissions: u32,
    /// Locks on it.
    pub locks: u32,
}

/// A client's use of a share: a tree connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Its number.
    pub id: u32,
    /// What the share is made of.
    pub kind: ShareKind,
    /// The share's name.
    pub share: String,
    /// The client: its address, or its name.
    pub client: String,
    /// Who it is.
    pub user: String,
    /// Files that it has open through it.
    pub opens: u32,
    /// For how many seconds it has existed.
    pub seconds: u32,
}

/// A change that a client has asked for, and that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// The specification's name of the operation.
    pub operation: &'static str,
    /// What it was to change, as the client calls it; empty where that is not known.
    pub object: &'a str,
    /// What the client is told; [`Win32::NOT_SUPPORTED`] also where a fault says that there is no such operation.
    pub why: Win32,
}

/// The node, as the interfaces see it.
pub trait ServerView: Send + Sync {
    /// The server itself.
    fn server(&self) -> ServerInfo;

    /// What time it is.
    fn now(&self) -> FileTime;

    /// Random bytes from the operating system's entropy.
    fn random(&self) -> [u8; 16];

    /// Whether who did not say who it is may open pipes and look at shares and names.
    fn anonymous_may_look(&self) -> bool {
        false
    }

    /// Whether this client may read users and groups through samr. Windows lets administrators only, since 1607
    /// (RestrictRemoteSAM); names and SIDs are translated for everybody by lsarpc.
    fn may_read_accounts(&self, client: &RpcClient) -> bool {
        client.is_administrator
    }

    /// All shares, special ones included, which this client may know of.
    fn shares(&self, client: &RpcClient) -> Vec<Share>;

    /// Makes a share.
    ///
    /// # Errors
    /// The error that the client is told: [`Win32::DUPLICATE_SHARE`], [`Win32::UNKNOWN_DIRECTORY`], [`Win32::INVALID_NAME`],
    /// [`Win32::NOT_SUPPORTED`].
    fn add_share(&self, client: &RpcClient, share: &NewShare) -> Result<(), Win32>;

    /// Changes a share.
    ///
    /// # Errors
    /// Likewise, and [`Win32::NET_NAME_NOT_FOUND`].
    fn change_share(&self, client: &RpcClient, name: &str, change: &ShareChange) -> Result<(), Win32>;

    /// Removes a share; its files stay.
    ///
    /// # Errors
    /// Likewise.
    fn remove_share(&self, client: &RpcClient, name: &str) -> Result<(), Win32>;

    /// Somebody's request for a change was refused before it came to one of the functions that change something. `attempt` holds what the
    /// client said, which may be anything. For a record of what was tried; what it says in the end is told to the client by others.
    fn change_refused(&self, _: &RpcClient, _: &Attempt<'_>) {}

    /// All sessions.
    fn sessions(&self) -> Vec<Session>;

    /// Ends a session.
    ///
    /// # Errors
    /// [`Win32::CLIENT_NAME_NOT_FOUND`] when there is none of this number any more.
    fn close_session(&self, client: &RpcClient, id: u64) -> Result<(), Win32>;

    /// All open files.
    fn opens(&self) -> Vec<Open>;

    /// Closes a file.
    ///
    /// # Errors
    /// [`Win32::FILE_ID_NOT_FOUND`] when there is none of this number any more.
    fn close_open(&self, client: &RpcClient, id: u32) -> Result<(), Win32>;

    /// All connections to shares.
    fn connections(&self) -> Vec<Connection>;

    /// The SID of the machine, under which its users and groups have theirs.
    fn machine(&self) -> Sid;

    /// Whom a name means: `bob`, `BUILTIN\Users`, `server\bob`.
    fn find_name(&self, name: &str) -> Option<Principal>;

    /// Whom a SID means.
    fn find_sid(&self, sid: Sid) -> Option<Principal>;

    /// The machine's users, in the order of their numbers.
    fn users(&self) -> Vec<UserView>;

    /// The local groups: those under `domain`, which is the machine's SID or [`builtin`](accounts::builtin), in the order of
    /// their numbers.
    fn aliases(&self, domain: Sid) -> Vec<AliasView>;
}
