//! Targets, portals and what is open: the part that the control plane talks to.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::discovery::TargetListing;
use parking_lot::{Mutex, RwLock};
use shard_runtime::{Entropy, Shard};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::config::{ConfigError, PortalConfig, ServerConfig, TargetConfig, check_auth};
use crate::limits::{MAX_CONNECTIONS_PER_PORTAL, MAX_LOGINS, MAX_LOGINS_PER_ADDRESS};
use crate::listing::{ConnectionInfo, SessionInfo};
use crate::session::{Message, Session};

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

pub(crate) struct Target {
    pub(crate) config: RwLock<Arc<TargetConfig>>,
    pub(crate) sessions: Mutex<BTreeMap<u16, Arc<Session>>>,
    pub(crate) next_tsih: AtomicUsize,
}

struct Portal {
    config: PortalConfig,
    connections: AtomicUsize,
    close: watch::Sender<bool>,
}

pub(crate) struct Shared {
    pub(crate) config: RwLock<Arc<ServerConfig>>,
    pub(crate) targets: RwLock<BTreeMap<IscsiName, Arc<Target>>>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) next_nexus: AtomicU64,
    portals: Mutex<Vec<Arc<Portal>>>,
    logins: Mutex<BTreeMap<IpAddr, usize>>,
    spawner: Arc<dyn Spawner>,
    next_shard: AtomicUsize,
}

/// The iSCSI service of a node. Cheap to clone.
#[derive(Clone)]
pub struct IscsiServer {
    pub(crate) shared: Arc<Shared>,
}

impl IscsiServer {
    /// A server without portals and targets.
    ///
    /// # Errors
    /// When the discovery authentication cannot work.
    pub fn new(
        config: ServerConfig,
        spawner: Arc<dyn Spawner>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, ConfigError> {
        check_auth(&config.discovery_auth)?;
        Ok(Self {
            shared: Arc::new(Shared {
                config: RwLock::new(Arc::new(config)),
                targets: RwLock::new(BTreeMap::new()),
                entropy,
                next_nexus: AtomicU64::new(1),
                portals: Mutex::new(Vec::new()),
                logins: Mutex::new(BTreeMap::new()),
                spawner,
                next_shard: AtomicUsize::new(0),
            }),
        })
    }

    /// Changes what new logins are measured by.
    ///
    /// # Errors
    /// When the discovery authentication cannot work.
    pub fn reconfigure(&self, config: ServerConfig) -> Result<(), ConfigError> {
        check_auth(&config.discovery_auth)?;
        *self.shared.config.write() = Arc::new(config);
        Ok(())
    }

    /// Starts to listen; the address says which port was taken.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the tag is 0.
    pub fn add_portal(&self, config: PortalConfig) -> Result<SocketAddr, ConfigError> {
        if config.group == 0 {
            return Err(ConfigError::GroupTag);
        }
        let failed = |source| ConfigError::Listen { address: config.address, source };
        let listener = std::net::TcpListener::bind(config.address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let config = PortalConfig { address, ..config };
        let (connections, close) = (AtomicUsize::new(0), watch::Sender::new(false));
        let portal = Arc::new(Portal { config, connections, close });
        self.shared.portals.lock().push(Arc::clone(&portal));
        let shared = Arc::clone(&self.shared);
        let job: ShardJob = Box::new(move || Box::pin(accept(shared, portal, listener)));
        self.shared.spawner.spawn(0, job);
        Ok(address)
    }

    /// Stops listening; open connections stay. `false` when there was no such portal.
    pub fn remove_portal(&self, address: SocketAddr) -> bool {
        let mut portals = self.shared.portals.lock();
        let Some(at) = portals.iter().position(|portal| portal.config.address == address) else {
            return false;
        };
        portals.remove(at).close.send_replace(true);
        true
    }

    /// Where the server listens.
    #[must_use]
    pub fn portals(&self) -> Vec<PortalConfig> {
        self.shared.portals.lock().iter().map(|portal| portal.config).collect()
    }

    /// Puts a target in.
    ///
    /// # Errors
    /// When the name is taken or its authentication cannot work.
    pub fn add_target(&self, config: TargetConfig) -> Result<(), ConfigError> {
        check_auth(&config.auth)?;
        let mut targets = self.shared.targets.write();
        if targets.contains_key(&config.name) {
            return Err(ConfigError::Exists(config.name));
        }
        let (name, config) = (config.name.clone(), RwLock::new(Arc::new(config)));
        let (sessions, next_tsih) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(1));
        targets.insert(name, Arc::new(Target { config, sessions, next_tsih }));
        Ok(())
    }

    /// Changes a target. Sessions that the new configuration would not let in, or of another device, end.
    ///
    /// # Errors
    /// When there is no such target or its authentication cannot work.
    pub fn update_target(&self, config: TargetConfig) -> Result<(), ConfigError> {
        check_auth(&config.auth)?;
        let target = self.target(&config.name)?;
        let config = Arc::new(config);
        *target.config.write() = Arc::clone(&config);
        let sessions: Vec<_> = target.sessions.lock().values().cloned().collect();
        for session in sessions {
            let same = Arc::ptr_eq(&session.device, &config.device);
            let reachable = config.in_group(session.nexus.target_port);
            if !same || !reachable || !config.access.allows(&session.initiator) {
                session.close();
            }
        }
        Ok(())
    }

    /// Takes a target away: no new logins, initiators are asked to log out, and after `grace` cut off. Ends when
    /// no session is left, so that the device may be closed.
    ///
    /// # Errors
    /// When there is no such target.
    pub async fn remove_target(&self, name: &IscsiName, grace: Duration) -> Result<(), ConfigError> {
        let target = self.target(name)?;
        self.shared.targets.write().remove(name);
        drain(vec![target], grace).await;
        Ok(())
    }

    /// Stops listening, asks all initiators to log out, and after `grace` cuts them off.
    pub async fn shutdown(&self, grace: Duration) {
        for portal in self.shared.portals.lock().drain(..) {
            portal.close.send_replace(true);
        }
        let targets = std::mem::take(&mut *self.shared.targets.write());
        drain(targets.into_values().collect(), grace).await;
    }

    /// Ends a session at once; `false` when there is none.
    pub fn kick_session(&self, target: &IscsiName, tsih: u16) -> bool {
        let Ok(target) = self.target(target) else { return false };
        let session = target.sessions.lock().get(&tsih).cloned();
        session.inspect(|session| session.close()).is_some()
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let targets: Vec<_> = self.shared.targets.read().values().cloned().collect();
        let mut list = Vec::new();
        for target in targets {
            let sessions: Vec<_> = target.sessions.lock().values().cloned().collect();
            list.extend(sessions.iter().map(|session| SessionInfo::of(session)));
        }
        list
    }

    fn target(&self, name: &IscsiName) -> Result<Arc<Target>, ConfigError> {
        self.shared.targets.read().get(name).cloned().ok_or_else(|| ConfigError::Missing(name.clone()))
    }
}

impl SessionInfo {
    fn of(session: &Session) -> Self {
        let connection = |peer: Arc<crate::session::Peer>| ConnectionInfo {
            cid: peer.cid,
            remote: peer.remote,
            local: peer.local,
            shard: peer.shard,
            params: peer.params.clone(),
            commands: peer.counters.commands.load(Ordering::Relaxed),
            bytes_in: peer.counters.bytes_in.load(Ordering::Relaxed),
            bytes_out: peer.counters.bytes_out.load(Ordering::Relaxed),
        };
        Self {
            target: session.target.clone(),
            initiator: session.initiator.clone(),
            initiator_alias: session.alias.clone(),
            user: session.user.clone(),
            isid: session.isid,
            tsih: session.tsih,
            portal_group: session.nexus.target_port,
            nexus: session.nexus.id,
            params: session.params.clone(),
            connections: session.peers().into_iter().map(connection).collect(),
        }
    }
}

async fn drain(targets: Vec<Arc<Target>>, grace: Duration) {
    let mut sessions: Vec<Arc<Session>> = Vec::new();
    for target in targets {
        sessions.extend(target.sessions.lock().values().cloned());
    }
    let seconds = u16::try_from(grace.as_secs()).unwrap_or(u16::MAX);
    for peer in sessions.iter().flat_map(|session| session.peers()) {
        peer.tell(if grace.is_zero() { Message::Close } else { Message::AskLogout(seconds) });
    }
    let all = async {
        for session in &sessions {
            session.wait_ended().await;
        }
    };
    if shard_runtime::timeout(grace, all).await.is_none() {
        for session in &sessions {
            session.close();
        }
        for session in &sessions {
            session.wait_ended().await;
        }
    }
}

impl Shared {
    /// What `initiator` may know of, as seen over a connection to `local` in group `group`.
    pub(crate) fn listing(
        &self,
        initiator: &IscsiName,
        local: SocketAddr,
        only: Option<&IscsiName>,
    ) -> Vec<TargetListing> {
        let portals: Vec<PortalConfig> = self.portals.lock().iter().map(|portal| portal.config).collect();
        let mut list = Vec::new();
        for (name, target) in self.targets.read().iter() {
            let config = Arc::clone(&target.config.read());
            if only.is_some_and(|only| only != name) || !config.access.allows(initiator) {
                continue;
            }
            let addresses = portals
                .iter()
                .filter(|portal| config.in_group(portal.group))
                .map(|portal| {
                    // A wildcard is reached at least where this connection came in.
                    let ip =
                        if portal.address.ip().is_unspecified() { local.ip() } else { portal.address.ip() };
                    format!("{},{}", SocketAddr::new(ip.to_canonical(), portal.address.port()), portal.group)
                })
                .collect();
            list.push(TargetListing { name: name.clone(), addresses });
        }
        list
    }
}

/// Counts a connection against its portal while it lives.
struct PortalSeat(Arc<Portal>);

impl Drop for PortalSeat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a connection among those that have not logged in.
pub(crate) struct LoginSeat {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Drop for LoginSeat {
    fn drop(&mut self) {
        let mut logins = self.shared.logins.lock();
        if let Some(count) = logins.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                logins.remove(&self.address);
            }
        }
    }
}

fn login_seat(shared: &Arc<Shared>, address: IpAddr) -> Option<LoginSeat> {
    let mut logins = shared.logins.lock();
    if logins.values().sum::<usize>() >= MAX_LOGINS {
        return None;
    }
    let count = logins.entry(address).or_insert(0);
    if *count >= MAX_LOGINS_PER_ADDRESS {
        return None;
    }
    *count += 1;
    Some(LoginSeat { shared: Arc::clone(shared), address })
}

/// Takes connections and gives each to a shard, for good.
async fn accept(shared: Arc<Shared>, portal: Arc<Portal>, listener: std::net::TcpListener) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(address = %portal.config.address, %error, "cannot listen: the portal is closed");
            return;
        }
    };
    let mut close = portal.close.subscribe();
    loop {
        let accepted = tokio::select! {
            _ = close.wait_for(|close| *close) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, remote) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: waiting lets others end.
                tracing::warn!(address = %portal.config.address, %error, "cannot accept");
                shard_runtime::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if portal.connections.load(Ordering::Relaxed) >= MAX_CONNECTIONS_PER_PORTAL {
            continue;
        }
        let Some(login) = login_seat(&shared, remote.ip()) else { continue };
        portal.connections.fetch_add(1, Ordering::Relaxed);
        let seat = PortalSeat(Arc::clone(&portal));
        let Ok(stream) = stream.into_std() else { continue };
        let shard = shared.next_shard.fetch_add(1, Ordering::Relaxed) % shared.spawner.shards().max(1);
        let (server, group) = (Arc::clone(&shared), portal.config.group);
        let job: ShardJob = Box::new(move || {
            Box::pin(async move {
                let _seat = seat;
                // Without Nagle: answers leave when they are ready. A failure costs speed only.
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = TcpStream::from_std(stream) {
                    crate::login_phase::serve(server, stream, group, shard, login).await;
                }
            })
        });
        shared.spawner.spawn(shard, job);
    }
}
