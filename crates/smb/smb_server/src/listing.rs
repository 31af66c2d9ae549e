//! What the administrator sees.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use observe::IoTotals;
use shard_runtime::WallTime;
use smb_auth::Identity;
use smb_files::Granted;
use smb_protocol::Dialect;
use smb_protocol::access::{AccessMask, OplockLevel};
use smb_protocol::create::lease::LeaseState;
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};
use smb_protocol::security::sid::Sid;

use crate::open::{Lasting, Open, Thing};
use crate::session::Session;
use crate::share::ShareCounters;

/// A client that spoke SMB 1.
#[derive(Clone, Debug)]
pub struct Smb1Attempt {
    /// The client's address.
    pub address: SocketAddr,
    /// When.
    pub at: WallTime,
    /// What it offered or wanted.
    pub detail: String,
}

/// A connection of a session.
#[derive(Clone, Debug)]
pub struct ChannelInfo {
    /// The client's address.
    pub remote: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// The thread that serves it.
    pub shard: usize,
    /// Requests so far.
    pub requests: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

/// A session's use of a share.
#[derive(Clone, Debug)]
pub struct TreeInfo {
    /// Its number, which other sessions have too.
    pub id: u32,
    /// The share; "IPC$" for pipes.
    pub share: String,
    /// When it began.
    pub since: WallTime,
    /// How many opens it has.
    pub opens: usize,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Its number.
    pub id: u64,
    /// The user, by the name that it had when the session began.
    pub user: String,
    /// Who the user is; `None` where nobody has said who it is.
    pub sid: Option<Sid>,
    /// What the client calls its machine; not proven.
    pub workstation: String,
    /// The version of the protocol.
    pub dialect: Dialect,
    /// The cipher, if it can encrypt.
    pub cipher: Option<Cipher>,
    /// How messages are signed.
    pub signing: SigningAlgorithm,
    /// Whether everything is encrypted.
    pub encrypted: bool,
    /// When it began.
    pub since: WallTime,
    /// How many opens it has.
    pub opens: usize,
    /// Whether nobody has said who it is.
    pub anonymous: bool,
    /// Reads and writes of files, with how long the server took for them.
    pub io: IoTotals,
    /// The shares that it is connected to.
    pub trees: Vec<TreeInfo>,
    /// Its connections.
    pub channels: Vec<ChannelInfo>,
}

impl SessionInfo {
    pub(crate) fn of(session: &Session) -> Self {
        let user = session.user();
        let channels = session.channels().into_iter().map(|peer| ChannelInfo {
            remote: peer.remote,
            local: peer.local,
            shard: peer.shard,
            requests: peer.counters.requests.load(Ordering::Relaxed),
            bytes_in: peer.counters.bytes_in.load(Ordering::Relaxed),
            bytes_out: peer.counters.bytes_out.load(Ordering::Relaxed),
        });
        let mut opens = session.opens_by_tree();
        let trees = session.trees();
        let trees = trees.iter().map(|tree| TreeInfo {
            id: tree.id,
            share: tree.share_name(),
            since: WallTime(tree.since),
            opens: opens.remove(&tree.id).unwrap_or(0),
        });
        Self {
            id: session.id,
            user: user.name(),
            sid: (!user.name().is_empty()).then_some(user.token.user),
            workstation: user.workstation.clone(),
            dialect: session.terms.dialect,
            cipher: session.terms.cipher,
            signing: session.terms.signing,
            encrypted: session.encrypt,
            since: WallTime(session.since),
            opens: session.open_count(),
            anonymous: user.identity == Identity::Anonymous,
            io: session.io.totals(),
            trees: trees.collect(),
            channels: channels.collect(),
        }
    }
}

/// An open.
#[derive(Clone, Debug)]
pub struct OpenInfo {
    /// Its number, which outlives connections.
    pub id: u64,
    /// The session; `None` while it waits for its client.
    pub session: Option<u64>,
    /// The user, also while it waits; by the SID, where it has no name any more.
    pub user: String,
    /// The client's address; `None` while it waits.
    pub remote: Option<SocketAddr>,
    /// The share; "IPC$" for pipes.
    pub share: String,
    /// The path below the share's folder, with the stream; empty for pipes.
    pub path: String,
    /// Rights.
    pub access: AccessMask,
    /// What caching it has.
    pub caching: String,
    /// How many byte ranges it has locked.
    pub locks: usize,
    /// How it outlives its connection.
    pub lasting: &'static str,
    /// Whether it is a directory.
    pub directory: bool,
}

impl OpenInfo {
    /// An open of this session, or one that waits for its client. `name` knows what users are called.
    pub(crate) fn of(open: &Open, session: Option<&Session>, name: &dyn Fn(Sid) -> Option<String>) -> Self {
        let user = session.map(|session| session.user().name());
        let user = user.or_else(|| name(open.user)).unwrap_or_else(|| open.user.to_string());
        let lasting = match open.state.lock().lasting {
            Lasting::No => "no",
            Lasting::V1 | Lasting::V2 { persistent: false } => "durable",
            Lasting::V2 { persistent: true } => "persistent",
            Lasting::Resilient => "resilient",
        };
        let mut info = Self {
            id: open.id.persistent,
            session: session.map(|session| session.id),
            user,
            remote: session.and_then(|session| session.channels().first().map(|peer| peer.remote)),
            share: open.tree.share_name(),
            path: String::new(),
            access: AccessMask::NONE,
            caching: "none".to_owned(),
            locks: 0,
            lasting,
            directory: false,
        };
        if let Thing::File(file) = &open.thing {
            info.path = file.path();
            info.locks = file.summary().locks;
            info.access = file.granted();
            info.directory = file.is_directory();
            info.caching = match file.caching() {
                Granted::Oplock(OplockLevel::NONE) => "none".to_owned(),
                Granted::Oplock(level) => format!("oplock {level:?}").to_lowercase(),
                Granted::Lease { state, .. } => {
                    let letters =
                        [(LeaseState::READ, 'R'), (LeaseState::WRITE, 'W'), (LeaseState::HANDLE, 'H')];
                    let held: String = letters
                        .iter()
                        .filter(|(bit, _)| state.contains(*bit))
                        .map(|(_, letter)| letter)
                        .collect();
                    format!("lease {}", if held.is_empty() { "-" } else { &held })
                }
            };
        }
        info
    }
}

/// What has passed over a share since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareTraffic {
    /// Reads and writes of files, with how long the server took for them.
    pub io: IoTotals,
    /// All other requests.
    pub metadata: u64,
    /// Opens that were refused.
    pub refused: u64,
    /// Changes of what is kept of persistent opens that could not be made durable: requests that were refused for that, and opens that
    /// come back after a restart although they were closed.
    pub unsaved: u64,
}

impl ShareTraffic {
    pub(crate) fn of(counters: &ShareCounters) -> Self {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            io: counters.io.totals(),
            metadata: get(&counters.metadata),
            refused: get(&counters.refused),
            unsaved: get(&counters.unsaved),
        }
    }
}
