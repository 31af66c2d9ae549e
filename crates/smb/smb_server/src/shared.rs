//! What all connections share: what the node gave the server, shares, sessions and opens.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use shard_runtime::{Clock, Entropy};
use smb_protocol::fsctl::network::NetworkInterface;
use smb_protocol::{FileTime, Guid};
use tcp_service::{Budget, Limits, Listeners, Spawner, Throttle};
use tokio::sync::Notify;

use crate::config::{Directory, ServerConfig};
use crate::disks::SharedDisks;
use crate::endings::Endings;
use crate::limits::{MAX_CONNECTIONS, MAX_LOGINS, MAX_LOGINS_PER_ADDRESS, SMB1_DETAIL, SMB1_LOG};
use crate::listing::Smb1Attempt;
use crate::logical_flows::LogicalFlows;
use crate::open::table::Opens;
use crate::peer::Peer;
use crate::pipe::PipeService;
use crate::places::{Place, Places, Tables};
use crate::queue::Queues;
use crate::record::Record;
use crate::session::{Session, User};
use crate::share::Shares;

/// The machine's network, as clients with several connections are told of it.
pub trait Interfaces: Send + Sync + 'static {
    /// The interfaces that the client at `remote`, which has come in at `local`, may use.
    fn interfaces(&self, local: SocketAddr, remote: SocketAddr) -> Vec<NetworkInterface>;
}

/// What the node gives the server.
pub struct Parts {
    /// Where connections run.
    pub spawner: Arc<dyn Spawner>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Who users are.
    pub directory: Arc<dyn Directory>,
    /// What answers behind the named pipes of IPC$.
    pub pipes: Arc<dyn PipeService>,
    /// Where reads and writes wait for their turn.
    pub queues: Arc<dyn Queues>,
    /// Who serves virtual disks that several have open.
    pub disks: Arc<dyn SharedDisks>,
    /// Where clients may connect to besides.
    pub interfaces: Arc<dyn Interfaces>,
    /// The server's identity; the same after a restart.
    pub guid: Guid,
    /// Where it is written down what clients administer.
    pub record: Arc<dyn Record>,
    /// Memory for the requests of all clients, shared with the node's other services.
    pub budget: Budget,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) config: RwLock<Arc<ServerConfig>>,
    pub(crate) shares: Shares,
    pub(crate) opens: Opens,
    pub(crate) logical_flows: LogicalFlows,
    pub(crate) start: FileTime,
    /// What users have of all that is counted for the server.
    pub(crate) tables: Tables,
    sessions: Mutex<BTreeMap<u64, (Arc<Session>, Place)>>,
    /// Sessions that have ended with writes under way. Locked before `sessions`.
    pub(crate) ending: Mutex<BTreeMap<u64, Arc<Session>>>,
    pub(crate) endings: Endings,
    pub(crate) peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    /// Told of each new one of them.
    pub(crate) connected: Notify,
    pub(crate) listeners: Listeners,
    /// For lines in the log that clients can cause at will.
    pub(crate) throttle: Throttle,
    pub(crate) next_peer: AtomicU64,
    pub(crate) smb1: Mutex<VecDeque<Smb1Attempt>>,
    pub(crate) smb1_count: AtomicU64,
}

/// Nanoseconds since 1970 as the protocol has them.
pub(crate) fn filetime(nanos: u64) -> FileTime {
    FileTime::from_unix_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

impl Shared {
    /// No listeners, shares, sessions and opens yet.
    pub(crate) fn new(config: ServerConfig, parts: Parts) -> Self {
        let start = filetime(parts.clock.wall().0);
        let limits = Limits {
            connections: MAX_CONNECTIONS,
            logins: MAX_LOGINS,
            logins_per_address: MAX_LOGINS_PER_ADDRESS,
        };
        let listeners = Listeners::new(Arc::clone(&parts.spawner), limits);
        Self {
            opens: Opens::new(Arc::clone(&parts.entropy), Arc::clone(&parts.spawner)),
            logical_flows: LogicalFlows::default(),
            parts,
            config: RwLock::new(Arc::new(config)),
            shares: Shares::default(),
            start,
            tables: Tables::default(),
            sessions: Mutex::new(BTreeMap::new()),
            ending: Mutex::new(BTreeMap::new()),
            endings: Endings::default(),
            peers: Mutex::new(BTreeMap::new()),
            connected: Notify::new(),
            listeners,
            throttle: Throttle::default(),
            next_peer: AtomicU64::new(1),
            smb1: Mutex::new(VecDeque::new()),
            smb1_count: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> FileTime {
        filetime(self.parts.clock.wall().0)
    }

    /// A random challenge for an authentication.
    pub(crate) fn challenge(&self) -> [u8; 8] {
        let mut challenge = [0; 8];
        self.parts.entropy.fill(&mut challenge);
        challenge
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    /// A number for a new session, which no other has. It has 53 bits: what reads JSON takes numbers for floating-point ones.
    pub(crate) fn new_session_id(&self) -> u64 {
        let sessions = self.sessions.lock();
        loop {
            let id = self.parts.entropy.next_u64() >> 11;
            if id != 0 && !sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).map(|(session, _)| Arc::clone(session))
    }

    /// A session, also one that has ended with writes under way.
    pub(crate) fn earlier(&self, id: u64) -> Option<Arc<Session>> {
        let ending = self.ending.lock();
        let sessions = self.sessions.lock();
        sessions.get(&id).map(|(session, _)| session).or_else(|| ending.get(&id)).cloned()
    }

    /// An entry of one of the tables for a user, who is at `remote`; `None` when it may have no more.
    pub(crate) fn place(&self, places: &Places, user: &User, remote: SocketAddr) -> Option<Place> {
        self.place_within(places, user, remote, (places.limit, false))
    }

    /// The same for a session. `replaces`: it stands for one of the same user that ends at once, so that a client whose connection was
    /// lost without a word comes back although its user has all that it may have.
    pub(crate) fn session_place(&self, user: &User, remote: SocketAddr, replaces: bool) -> Option<Place> {
        let places = &self.tables.sessions;
        self.place_within(places, user, remote, (places.limit, replaces))
    }

    /// The same for a connection: there are no more of them than the node has memory for.
    pub(crate) fn connection_place(&self, user: &User, remote: SocketAddr) -> Option<Place> {
        self.place_within(&self.tables.connections, user, remote, (self.connections_max(), false))
    }

    /// The same, where it is no refusal that there is none.
    pub(crate) fn free_connection_place(&self, user: &User) -> Option<Place> {
        self.tables.connections.take(user.token.user, self.connections_max(), false)
    }

    fn connections_max(&self) -> usize {
        self.tables.connections.limit.min(self.parts.budget.connections_max())
    }

    fn place_within(
        &self,
        places: &Places,
        user: &User,
        remote: SocketAddr,
        (limit, gives_up): (usize, bool),
    ) -> Option<Place> {
        let sid = user.token.user;
        let place = places.take(sid, limit, gives_up);
        if place.is_none()
            && let Some((held, taken)) = places.may_tell(sid, self.parts.clock.now())
        {
            let (table, user) = (places.what, user.name());
            tracing::warn!(%remote, user, table, held, taken, limit, "SMB request refused: the user holds all that it may have of what all users share");
        }
        place
    }

    /// Puts a session in.
    pub(crate) fn add_session(&self, session: &Arc<Session>, place: Place) {
        self.sessions.lock().insert(session.id, (Arc::clone(session), place));
    }

    /// Ends a session: its connections forget it, its opens close. With `keep` those that are durable stay, to be taken
    /// up again.
    pub(crate) fn end_session(&self, session: &Session, keep: bool, except: Option<&Peer>) {
        {
            // Never in neither, for who looks for it with `earlier`.
            let mut ending = self.ending.lock();
            let ended = self.sessions.lock().remove(&session.id);
            ending.extend(ended.map(|(session, _place)| (session.id, session)));
        }
        let Some(opens) = session.end(except) else { return };
        self.ending.lock().retain(|_, session| !session.has_ended() || session.is_writing());
        for open in opens {
            self.opens.leave(&open, keep);
        }
    }

    /// A session has lost its last connection (MS-SMB2 3.3.7.1).
    pub(crate) fn lost(&self, session: &Session) {
        self.end_session(session, true, None);
    }

    /// A connection that a session had is lost: what its client was to be told over it, others tell.
    pub(crate) fn channel_lost(&self, session: &Session, peer: &Peer) {
        if self.opens.clients().has_any(session.client()) {
            let client = session.client();
            let same = |other: &&Arc<Session>| other.client() == client;
            for session in self.sessions().iter().filter(same) {
                session.channel_lost(peer.id);
            }
        }
    }

    /// Remembers who still speaks SMB 1.
    pub(crate) fn saw_smb1(&self, address: SocketAddr, mut detail: String) {
        // What clients say is kept, and up to 64 KiB in one packet are theirs to choose.
        if let Some((end, _)) = detail.char_indices().nth(SMB1_DETAIL) {
            detail.truncate(end);
        }
        let count = self.smb1_count.fetch_add(1, Ordering::Relaxed) + 1;
        // Anybody can cause this line, and says what stands in it: as a string of its own, whose line breaks are no lines of the log.
        if self.throttle.admits("SMB 1", address.ip()) {
            tracing::warn!(%address, count, detail = detail.as_str(), "SMB 1 refused");
        }
        let mut log = self.smb1.lock();
        if log.len() == SMB1_LOG {
            log.pop_front();
        }
        log.push_back(Smb1Attempt { address, at: self.parts.clock.wall(), detail });
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().map(|(session, _)| Arc::clone(session)).collect()
    }
}
