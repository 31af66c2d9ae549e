//! Listeners, sessions, shares and opens: the part that the control plane talks to.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shard_runtime::{Clock, Entropy};
use smb_files::FileSystem;
use smb_protocol::fsctl::network::NetworkInterface;
use smb_protocol::security::sid::Sid;
use smb_protocol::{FileTime, Guid, NtStatus};
use tcp_service::{Arrived, Budget, Limits, Listeners, Serve, Spawner, Throttle};

use crate::config::{ConfigError, Directory, ServerConfig, ShareConfig};
use crate::endings::Endings;
use crate::limits::{MAX_CONNECTIONS, MAX_LOGINS, MAX_LOGINS_PER_ADDRESS, MAX_SESSIONS, SMB1_LOG};
use crate::listing::{OpenInfo, SessionInfo, ShareTraffic, Smb1Attempt};
use crate::open::Open;
use crate::opens::Opens;
use crate::peer::{Mail, Peer};
use crate::persistence::{self, Restored};
use crate::pipe::PipeService;
use crate::session::Session;
use crate::share::Shares;
use crate::tree::Tree;

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
    /// Where clients may connect to besides.
    pub interfaces: Arc<dyn Interfaces>,
    /// The server's identity; the same after a restart.
    pub guid: Guid,
    /// Memory for the requests of all clients, shared with the node's other services.
    pub budget: Budget,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) config: RwLock<Arc<ServerConfig>>,
    pub(crate) shares: Shares,
    pub(crate) opens: Opens,
    pub(crate) start: FileTime,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    /// Sessions that have ended with writes under way. Locked before `sessions`.
    ending: Mutex<BTreeMap<u64, Arc<Session>>>,
    pub(crate) endings: Endings,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    listeners: Listeners,
    /// For lines in the log that clients can cause at will.
    pub(crate) throttle: Throttle,
    next_peer: AtomicU64,
    smb1: Mutex<VecDeque<Smb1Attempt>>,
    smb1_count: AtomicU64,
}

/// Nanoseconds since 1970 as the protocol has them.
pub(crate) fn filetime(nanos: u64) -> FileTime {
    FileTime::from_unix_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
}

impl Shared {
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

    /// A number for a new session, which no other has.
    pub(crate) fn new_session_id(&self) -> u64 {
        let sessions = self.sessions.lock();
        loop {
            let id = self.parts.entropy.next_u64();
            if id != 0 && id != u64::MAX && !sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    /// A session, also one that has ended with writes under way.
    pub(crate) fn earlier(&self, id: u64) -> Option<Arc<Session>> {
        let ending = self.ending.lock();
        self.sessions.lock().get(&id).or_else(|| ending.get(&id)).cloned()
    }

    /// Puts a session in; `false` when there are too many.
    pub(crate) fn add_session(&self, session: &Arc<Session>) -> bool {
        let mut sessions = self.sessions.lock();
        if sessions.len() >= MAX_SESSIONS {
            return false;
        }
        sessions.insert(session.id, Arc::clone(session));
        true
    }

    /// Ends a session: its connections forget it, its opens close. With `keep` those that are durable stay, to be taken
    /// up again.
    pub(crate) fn end_session(&self, session: &Session, keep: bool, except: Option<&Peer>) {
        {
            // Never in neither, for who looks for it with `earlier`.
            let mut ending = self.ending.lock();
            ending.extend(self.sessions.lock().remove_entry(&session.id));
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
        if self.opens.clients().has_any(session) {
            let same = |other: &&Arc<Session>| crate::clients::are_one(session, other);
            for session in self.sessions().iter().filter(same) {
                session.channel_lost(peer.id);
            }
        }
    }

    /// Remembers who still speaks SMB 1.
    pub(crate) fn saw_smb1(&self, address: SocketAddr, detail: String) {
        let count = self.smb1_count.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(%address, count, %detail, "SMB 1 refused");
        let mut log = self.smb1.lock();
        if log.len() == SMB1_LOG {
            log.pop_front();
        }
        log.push_back(Smb1Attempt { address, at: self.parts.clock.wall(), detail });
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().cloned().collect()
    }
}

/// The SMB service of a node. Cheap to clone.
#[derive(Clone)]
pub struct SmbServer {
    pub(crate) shared: Arc<Shared>,
}

impl SmbServer {
    /// A server without listeners and shares.
    #[must_use]
    pub fn new(config: ServerConfig, parts: Parts) -> Self {
        let start = filetime(parts.clock.wall().0);
        let limits = Limits {
            connections: MAX_CONNECTIONS,
            logins: MAX_LOGINS,
            logins_per_address: MAX_LOGINS_PER_ADDRESS,
        };
        let listeners = Listeners::new(Arc::clone(&parts.spawner), limits);
        Self {
            shared: Arc::new(Shared {
                opens: Opens::new(Arc::clone(&parts.entropy), Arc::clone(&parts.spawner)),
                parts,
                config: RwLock::new(Arc::new(config)),
                shares: Shares::default(),
                start,
                sessions: Mutex::new(BTreeMap::new()),
                ending: Mutex::new(BTreeMap::new()),
                endings: Endings::default(),
                peers: Mutex::new(BTreeMap::new()),
                listeners,
                throttle: Throttle::default(),
                next_peer: AtomicU64::new(1),
                smb1: Mutex::new(VecDeque::new()),
                smb1_count: AtomicU64::new(0),
            }),
        }
    }

    /// Changes what new connections are measured by.
    pub fn reconfigure(&self, config: ServerConfig) {
        *self.shared.config.write() = Arc::new(config);
    }

    /// Starts to listen; the address says which port was taken.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn listen(&self, address: SocketAddr) -> Result<SocketAddr, ConfigError> {
        let shared = Arc::clone(&self.shared);
        let serve: Serve = Arc::new(move |arrived| Box::pin(serve(Arc::clone(&shared), arrived)));
        self.shared.listeners.listen(address, serve).map_err(|source| ConfigError::Listen { address, source })
    }

    /// Where the server listens.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.shared.listeners.addresses()
    }

    /// Stops listening there; open connections stay. `false` when there was no such listener.
    pub fn close_listener(&self, address: SocketAddr) -> bool {
        self.shared.listeners.close(address)
    }

    /// Shares a folder, at once: for volumes that nobody can have had anything open in, or that have been
    /// [restored](Self::restore).
    ///
    /// # Errors
    /// When the name is taken or cannot be one.
    pub fn add_share(&self, config: ShareConfig) -> Result<(), ConfigError> {
        let name = config.name.clone();
        self.prepare_share(config)?;
        self.publish_share(&name);
        Ok(())
    }

    /// Makes a share that what clients had open can come back to. Who connects to it waits until it is published, or taken
    /// away: a client that finds no share gives up, and so would what it had open.
    ///
    /// # Errors
    /// When the name is taken or cannot be one.
    pub fn prepare_share(&self, config: ShareConfig) -> Result<(), ConfigError> {
        self.shared.shares.prepare(config)
    }

    /// Lets clients connect to a share that was prepared; `false` when there is none of the name.
    pub fn publish_share(&self, name: &str) -> bool {
        self.shared.shares.publish(name)
    }

    /// Changes a share. What is connected already keeps the rights that it connected with; new connects have the new ones.
    ///
    /// # Errors
    /// When there is none of the name.
    pub fn update_share(&self, config: ShareConfig) -> Result<(), ConfigError> {
        self.shared.shares.update(config).map(drop)
    }

    /// Takes a share away, with the tree connects and opens over it; `false` when there was none.
    pub fn remove_share(&self, name: &str) -> bool {
        self.withdraw(name, |open| self.shared.opens.leave(open, false))
    }

    /// Stops to serve a share whose volume goes away: nothing is closed, persistent opens stay in the volume for who serves
    /// it next. `false` when there was none of the name.
    pub fn release_share(&self, name: &str) -> bool {
        self.withdraw(name, |open| self.shared.opens.release(open))
    }

    /// Takes a share and its tree connects away; `end` says what becomes of the opens, those that wait for their clients
    /// among them.
    fn withdraw(&self, name: &str, end: impl Fn(&Arc<Open>)) -> bool {
        let Some(share) = self.shared.shares.remove(name) else { return false };
        let is_of = |tree: &Tree| tree.share().is_some_and(|each| Arc::ptr_eq(each, &share));
        for session in self.shared.sessions() {
            for tree in session.trees().iter().filter(|tree| is_of(tree)) {
                session.remove_tree(tree.id).unwrap_or_default().iter().for_each(&end);
            }
        }
        self.shared.opens.all().iter().filter(|open| is_of(&open.tree)).for_each(end);
        true
    }

    /// The shares that clients can connect to.
    #[must_use]
    pub fn shares(&self) -> Vec<Arc<ShareConfig>> {
        self.shared.shares.published().iter().map(|share| share.config()).collect()
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.sessions().iter().map(|session| SessionInfo::of(session)).collect()
    }

    /// An authentication as that of a session, for protocols inside of pipes that have their own.
    #[must_use]
    pub fn acceptor(&self) -> smb_auth::Acceptor {
        crate::commands::session_setup::new_acceptor(&self.shared)
    }

    /// Ends a session and closes what it has open; `false` when there is none.
    pub fn close_session(&self, id: u64) -> bool {
        let Some(session) = self.shared.session(id) else { return false };
        self.shared.end_session(&session, false, None);
        true
    }

    /// Ends all sessions of a user, for instance when it is removed, and logins that were judged before. Returns how many
    /// sessions there were.
    pub fn close_sessions_of(&self, user: Sid) -> usize {
        self.shared.endings.note(user);
        let sessions = self.shared.sessions();
        let of_user = sessions.iter().filter(|session| session.user().token.user == user);
        of_user.map(|session| self.shared.end_session(session, false, None)).count()
    }

    /// Brings the persistent opens of a volume back. To be called when its shares have been prepared, and before they are
    /// published: who could connect to them earlier would find files free that others have open.
    ///
    /// # Errors
    /// When the volume's durable state cannot be read, or what is given up cannot be removed from it. Opens may have come
    /// back all the same: the shares have to be [released](Self::release_share) then.
    pub async fn restore(&self, files: &FileSystem) -> Result<Restored, NtStatus> {
        persistence::restore(&self.shared, files).await
    }

    /// All opens, those that wait for their clients among them.
    #[must_use]
    pub fn opens(&self) -> Vec<OpenInfo> {
        self.shared.opens.all().iter().map(|open| OpenInfo::of(open)).collect()
    }

    /// Closes an open, as [`OpenInfo::id`] names it; `false` when there is none.
    pub fn close_open(&self, id: u64) -> bool {
        let Some(open) = self.shared.opens.find(id) else { return false };
        open.forget();
        self.shared.opens.leave(&open, false);
        true
    }

    /// What has passed over a share; `None` when clients can connect to none of the name.
    #[must_use]
    pub fn share_traffic(&self, name: &str) -> Option<ShareTraffic> {
        self.shared.shares.find_published(name).map(|share| ShareTraffic::of(&share.counters))
    }

    /// The last clients that spoke SMB 1, oldest first, and how many there were in all.
    #[must_use]
    pub fn smb1_attempts(&self) -> (Vec<Smb1Attempt>, u64) {
        let list = self.shared.smb1.lock().iter().cloned().collect();
        (list, self.shared.smb1_count.load(Ordering::Relaxed))
    }

    /// Stops listening and closes all connections. Persistent opens stay in their volumes.
    pub async fn shutdown(&self) {
        self.shared.listeners.close_all();
        for peer in self.shared.peers.lock().values() {
            peer.tell(Mail::Close);
        }
        // They end within a turn of their shards; one that hangs is not waited for.
        for _ in 0..100 {
            if self.shared.peers.lock().is_empty() {
                return;
            }
            shard_runtime::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Keeps a connection in the list while it lives.
struct Listed<'a>(&'a Shared, &'a Peer);

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.peers.lock().remove(&self.1.id);
    }
}

async fn serve(shared: Arc<Shared>, arrived: Arrived) {
    let Arrived { stream, remote, local, shard, login } = arrived;
    let id = shared.next_peer.fetch_add(1, Ordering::Relaxed);
    let peer = Arc::new(Peer::new(id, remote, local, shard));
    shared.peers.lock().insert(id, Arc::clone(&peer));
    let _listed = Listed(&shared, &peer);
    crate::connection::serve(Arc::clone(&shared), stream, Arc::clone(&peer), login).await;
}
