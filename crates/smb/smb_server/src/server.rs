//! Listeners, sessions, shares and opens: the part that the control plane talks to.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shard_runtime::{Clock, Entropy, Shard};
use smb_files::FileSystem;
use smb_protocol::fsctl::network::NetworkInterface;
use smb_protocol::security::sid::Sid;
use smb_protocol::{FileTime, Guid, NtStatus};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::config::{ConfigError, Directory, ServerConfig, ShareConfig};
use crate::limits::{MAX_CONNECTIONS, MAX_SESSIONS, SMB1_LOG};
use crate::listing::{OpenInfo, SessionInfo, ShareTraffic, Smb1Attempt};
use crate::opens::Opens;
use crate::peer::{Mail, Peer};
use crate::persistence::{self, Restored};
use crate::pipe::PipeService;
use crate::session::Session;
use crate::share::Shares;

/// Work for a shard: makes the future there, which then stays.
pub type ShardJob = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Where connections run. The node implements it over its shards.
pub trait Spawner: Send + Sync + 'static {
    /// How many shards there are; at least one.
    fn shards(&self) -> usize;
    /// Starts `job` on shard `shard` (below [`Spawner::shards`]), inside its `LocalSet`.
    fn spawn(&self, shard: usize, job: ShardJob);
}

impl Spawner for Vec<Shard> {
    fn shards(&self) -> usize {
        self.len()
    }

    fn spawn(&self, shard: usize, job: ShardJob) {
        // A shard that is gone takes its connections with it: the node is stopping.
        if self.get(shard).is_none_or(|shard| shard.spawn(job).is_err()) {
            tracing::debug!(shard, "connection dropped: the shard has stopped");
        }
    }
}

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
}

struct Listener {
    address: SocketAddr,
    connections: AtomicUsize,
    close: watch::Sender<bool>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) parts: Parts,
    pub(crate) config: RwLock<Arc<ServerConfig>>,
    pub(crate) shares: Shares,
    pub(crate) opens: Opens,
    pub(crate) start: FileTime,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
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

    /// For an authentication.
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
        self.sessions.lock().remove(&session.id);
        let Some(opens) = session.end(except) else { return };
        for open in opens {
            self.opens.leave(&open, keep);
        }
    }

    /// A session has lost its last connection (MS-SMB2 3.3.7.1).
    pub(crate) fn lost(&self, session: &Session) {
        self.end_session(session, true, None);
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
        Self {
            shared: Arc::new(Shared {
                opens: Opens::new(Arc::clone(&parts.entropy), Arc::clone(&parts.spawner)),
                parts,
                config: RwLock::new(Arc::new(config)),
                shares: Shares::default(),
                start,
                sessions: Mutex::new(BTreeMap::new()),
                peers: Mutex::new(BTreeMap::new()),
                listeners: Mutex::new(Vec::new()),
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
        let failed = |source| ConfigError::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (connections, close) = (AtomicUsize::new(0), watch::Sender::new(false));
        let entry = Arc::new(Listener { address, connections, close });
        self.shared.listeners.lock().push(Arc::clone(&entry));
        let shared = Arc::clone(&self.shared);
        let job: ShardJob = Box::new(move || Box::pin(accept(shared, entry, listener)));
        self.shared.parts.spawner.spawn(0, job);
        Ok(address)
    }

    /// Where the server listens.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.shared.listeners.lock().iter().map(|listener| listener.address).collect()
    }

    /// Stops listening there; open connections stay. `false` when there was no such listener.
    pub fn close_listener(&self, address: SocketAddr) -> bool {
        let mut listeners = self.shared.listeners.lock();
        let Some(at) = listeners.iter().position(|listener| listener.address == address) else {
            return false;
        };
        listeners.remove(at).close.send_replace(true);
        true
    }

    /// Shares a folder.
    ///
    /// # Errors
    /// When the name is taken or cannot be one.
    pub fn add_share(&self, config: ShareConfig) -> Result<(), ConfigError> {
        self.shared.shares.add(config)
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
        let Some(share) = self.shared.shares.remove(name) else { return false };
        for session in self.shared.sessions() {
            for tree in session.trees() {
                if tree.share().is_some_and(|each| Arc::ptr_eq(each, &share)) {
                    for open in session.remove_tree(tree.id).unwrap_or_default() {
                        self.shared.opens.leave(&open, false);
                    }
                }
            }
        }
        true
    }

    /// The shares.
    #[must_use]
    pub fn shares(&self) -> Vec<Arc<ShareConfig>> {
        self.shared.shares.all().iter().map(|share| share.config()).collect()
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

    /// Ends all sessions of a user, for instance when it is removed. Returns how many.
    pub fn close_sessions_of(&self, user: Sid) -> usize {
        let sessions = self.shared.sessions();
        let of_user = sessions.iter().filter(|session| session.user().token.user == user);
        of_user.map(|session| self.shared.end_session(session, false, None)).count()
    }

    /// Brings the persistent opens of a volume back. To be called when its shares have been added, and before clients are
    /// served.
    ///
    /// # Errors
    /// When the volume's durable state cannot be read.
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

    /// What has passed over a share; `None` when there is none of the name.
    #[must_use]
    pub fn share_traffic(&self, name: &str) -> Option<ShareTraffic> {
        self.shared.shares.find(name).map(|share| ShareTraffic::of(&share.counters))
    }

    /// The last clients that spoke SMB 1, oldest first, and how many there were in all.
    #[must_use]
    pub fn smb1_attempts(&self) -> (Vec<Smb1Attempt>, u64) {
        let list = self.shared.smb1.lock().iter().cloned().collect();
        (list, self.shared.smb1_count.load(Ordering::Relaxed))
    }

    /// Stops listening and closes all connections. Persistent opens stay in their volumes.
    pub async fn shutdown(&self) {
        for listener in self.shared.listeners.lock().drain(..) {
            listener.close.send_replace(true);
        }
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

/// Counts a connection while it lives.
struct Seat {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    peer: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.peers.lock().remove(&self.peer);
        self.listener.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes connections and gives each to a shard, for good.
async fn accept(shared: Arc<Shared>, entry: Arc<Listener>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(address = %entry.address, %error, "cannot listen: the SMB listener is closed");
            return;
        }
    };
    let mut close = entry.close.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = close.wait_for(|close| *close) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: waiting lets others end.
                tracing::warn!(address = %entry.address, %error, "cannot accept");
                shard_runtime::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if entry.connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            continue;
        }
        let Ok(local) = stream.local_addr() else { continue };
        let Ok(stream) = stream.into_std() else { continue };
        let id = shared.next_peer.fetch_add(1, Ordering::Relaxed);
        let shard = usize::try_from(id).unwrap_or(0) % shared.parts.spawner.shards().max(1);
        let peer = Arc::new(Peer::new(id, remote, local, shard));
        entry.connections.fetch_add(1, Ordering::Relaxed);
        shared.peers.lock().insert(id, Arc::clone(&peer));
        let seat = Seat { shared: Arc::clone(&shared), listener: Arc::clone(&entry), peer: id };
        let server = Arc::clone(&shared);
        let job: ShardJob = Box::new(move || {
            Box::pin(async move {
                let _seat = seat;
                // Without Nagle: answers leave when they are ready. A failure costs speed only.
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = TcpStream::from_std(stream) {
                    crate::connection::serve(server, stream, peer).await;
                }
            })
        });
        shared.parts.spawner.spawn(shard, job);
    }
}
