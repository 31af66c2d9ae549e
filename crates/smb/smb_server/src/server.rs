//! Listeners, sessions, shares and opens: the part that the control plane talks to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smb_files::FileSystem;
use smb_protocol::NtStatus;
use smb_protocol::security::sid::Sid;
use tcp_service::{Arrived, Serve};

use crate::config::{ConfigError, ServerConfig, ShareConfig};
use crate::listing::{OpenInfo, SessionInfo, ShareTraffic, Smb1Attempt};
use crate::open::Open;
use crate::peer::{Mail, Peer};
use crate::restore::{Restored, restore};
use crate::shared::{Parts, Shared};
use crate::tree::Tree;

/// The SMB service of a node. Cheap to clone.
#[derive(Clone)]
pub struct SmbServer {
    pub(crate) shared: Arc<Shared>,
}

impl SmbServer {
    /// A server without listeners and shares.
    #[must_use]
    pub fn new(config: ServerConfig, parts: Parts) -> Self {
        Self { shared: Arc::new(Shared::new(config, parts)) }
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

    /// Says which shares are on their way, and that no others are: who connects to one of them waits for it, until it is published, it is not
    /// expected any more, or it takes too long.
    pub fn expect_shares(&self, names: &[String]) {
        self.shared.shares.expect(names);
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

    /// Users that have sessions. Who has not said who it is is not among them.
    #[must_use]
    pub fn session_users(&self) -> BTreeSet<Sid> {
        let sessions = self.shared.sessions();
        let named = sessions.iter().filter(|session| !session.user().name().is_empty());
        named.map(|session| session.user().token.user).collect()
    }

    /// Ends a session and closes what it has open; `false` when there is none.
    pub fn close_session(&self, id: u64) -> bool {
        let Some(session) = self.shared.session(id) else { return false };
        self.shared.end_session(&session, false, None);
        true
    }

    /// Ends all sessions of a user, for instance when it is removed, and logins that were judged before; what waits for clients of its
    /// is closed, too. Returns how many sessions there were.
    pub fn close_sessions_of(&self, user: Sid) -> usize {
        self.shared.endings.note(user);
        let sessions = self.shared.sessions();
        let of_user = sessions.iter().filter(|session| session.user().token.user == user);
        let ended = of_user.map(|session| self.shared.end_session(session, false, None)).count();
        // After the sessions, as the loss of a connection leaves opens of one that has ended. All of the user's, not only those that wait
        // already: what a session leaves behind at this moment is seen here, or finds that it is among the opens no more.
        let opens = self.shared.opens.all();
        opens.iter().filter(|open| open.user == user).for_each(|open| self.shared.opens.leave(open, false));
        ended
    }

    /// Closes what waits for clients of users who are gone or disabled, and will not come. Returns how many opens there were.
    pub fn close_opens_of_gone_users(&self) -> usize {
        let gone = self.shared.opens.of_gone_users(&*self.shared.parts.directory);
        gone.iter().for_each(|open| self.shared.opens.leave(open, false));
        gone.len()
    }

    /// Brings the persistent opens of a volume back. To be called when its shares have been prepared, and before they are
    /// published: who could connect to them earlier would find files free that others have open.
    ///
    /// # Errors
    /// When the volume's durable state cannot be read, or what is given up cannot be removed from it. Opens may have come
    /// back all the same: the shares have to be [released](Self::release_share) then.
    pub async fn restore(&self, files: &FileSystem) -> Result<Restored, NtStatus> {
        restore(&self.shared, files).await
    }

    /// All opens, those that wait for their clients among them.
    #[must_use]
    pub fn opens(&self) -> Vec<OpenInfo> {
        let session = |open: &Open| open.owner().and_then(|owner| self.shared.earlier(owner.id()));
        let name = |user| self.shared.parts.directory.name_of(user);
        self.shared
            .opens
            .all()
            .iter()
            .map(|open| OpenInfo::of(open, session(open).as_deref(), &name))
            .collect()
    }

    /// How many opens there are of each share by its name, those that wait for their clients among them; pipes are "IPC$". Costs a fraction of
    /// listing them, of which there may be a hundred thousand.
    #[must_use]
    pub fn open_counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for open in self.shared.opens.all() {
            *counts.entry(open.tree.share_name()).or_default() += 1;
        }
        counts
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

    /// The connections to an address of ours over which a user has logged in, the oldest first: our end and the client's.
    #[must_use]
    pub fn connections_to(&self, address: IpAddr) -> Vec<(SocketAddr, SocketAddr)> {
        let peers = self.shared.peers.lock();
        let to = peers.values().filter(|peer| peer.is_client() && peer.local.ip().to_canonical() == address);
        to.map(|peer| (peer.local, peer.remote)).collect()
    }

    /// Ends when a user has logged in over a new connection since it was called last: what strangers do costs nothing here. For one caller.
    pub async fn connected(&self) {
        self.shared.connected.notified().await;
    }

    /// Our ends of all connections.
    #[must_use]
    pub fn connected_addresses(&self) -> BTreeSet<IpAddr> {
        self.shared.peers.lock().values().map(|peer| peer.local.ip().to_canonical()).collect()
    }

    /// Ends the connections to addresses that are not this machine's any more; what is open over them waits for its clients.
    pub fn abandon_connections_to(&self, addresses: &BTreeSet<IpAddr>) {
        let peers = self.shared.peers.lock();
        for peer in peers.values().filter(|peer| addresses.contains(&peer.local.ip().to_canonical())) {
            peer.tell(Mail::Abandon);
        }
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
    let Arrived { stream, remote, local, shard, login, answers } = arrived;
    let id = shared.next_peer.fetch_add(1, Ordering::Relaxed);
    let peer = Arc::new(Peer::new(id, remote, local, shard));
    shared.peers.lock().insert(id, Arc::clone(&peer));
    let _listed = Listed(&shared, &peer);
    crate::connection::serve(Arc::clone(&shared), stream, Arc::clone(&peer), login, answers).await;
}
