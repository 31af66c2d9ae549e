//! Targets, portals and what is open: the part that the control plane talks to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use iscsi_protocol::IscsiName;
use parking_lot::{Mutex, RwLock};
use shard_runtime::Entropy;
use tcp_service::{Budget, Limits, Listeners, Serve, Spawner, Throttle};

use crate::config::{ConfigError, PortalConfig, ServerConfig, TargetConfig, check_auth};
use crate::limits::{MAX_CONNECTIONS_PER_PORTAL, MAX_LOGINS, MAX_LOGINS_PER_ADDRESS};
use crate::listing::{ConnectionInfo, SessionInfo};
use crate::serve::serve;
use crate::session::{Message, Peer, Session};
use crate::share::{Kind, Places};
use crate::shared::{Portal, Shared, Target};

/// The iSCSI service of a node. Cheap to clone.
#[derive(Clone)]
pub struct IscsiServer {
    pub(crate) shared: Arc<Shared>,
}

impl IscsiServer {
    /// A server without portals and targets, with memory of its own for the commands of its initiators.
    ///
    /// # Errors
    /// None at present.
    pub fn new(
        config: ServerConfig,
        spawner: Arc<dyn Spawner>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, ConfigError> {
        Self::with_budget(config, spawner, entropy, Budget::default())
    }

    /// A server without portals and targets; the memory for the commands of its initiators comes out of `budget`, which the
    /// node's other services share.
    ///
    /// # Errors
    /// When the discovery authentication cannot work.
    pub fn with_budget(
        config: ServerConfig,
        spawner: Arc<dyn Spawner>,
        entropy: Arc<dyn Entropy>,
        budget: Budget,
    ) -> Result<Self, ConfigError> {
        let limits = Limits {
            connections: MAX_CONNECTIONS_PER_PORTAL,
            logins: MAX_LOGINS,
            logins_per_address: MAX_LOGINS_PER_ADDRESS,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                config: RwLock::new(Arc::new(config)),
                targets: RwLock::new(BTreeMap::new()),
                entropy,
                budget,
                places: Places::of(Kind::Node),
                throttle: Throttle::default(),
                next_nexus: AtomicU64::new(1),
                listeners: Listeners::new(spawner, limits),
                portals: Mutex::new(Vec::new()),
                remote_portals: Mutex::new(Vec::new()),
            }),
        })
    }

    /// What new logins are measured by.
    #[must_use]
    pub fn config(&self) -> ServerConfig {
        ServerConfig::clone(&self.shared.config.read())
    }

    /// Changes what new logins are measured by, and what discovery sessions are told from now on.
    pub fn reconfigure(&self, config: ServerConfig) {
        *self.shared.config.write() = Arc::new(config);
    }

    /// Starts to listen; the address says which port was taken.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the tag is 0.
    pub fn add_portal(&self, config: PortalConfig) -> Result<SocketAddr, ConfigError> {
        if config.group == 0 {
            return Err(ConfigError::GroupTag);
        }
        let (shared, portal) =
            (Arc::clone(&self.shared), Portal { group: config.group, places: Places::of(Kind::Portal) });
        let serve: Serve =
            Arc::new(move |arrived| Box::pin(serve(Arc::clone(&shared), arrived, portal.clone())));
        let address = self
            .shared
            .listeners
            .listen(config.address, serve)
            .map_err(|source| ConfigError::Listen { address: config.address, source })?;
        self.shared.portals.lock().push(PortalConfig { address, ..config });
        Ok(address)
    }

    /// Stops listening; open connections stay. `false` when there was no such portal.
    pub fn remove_portal(&self, address: SocketAddr) -> bool {
        self.shared.portals.lock().retain(|portal| portal.address != address);
        self.shared.listeners.close(address)
    }

    /// Where the server listens.
    #[must_use]
    pub fn portals(&self) -> Vec<PortalConfig> {
        self.shared.portals.lock().clone()
    }

    /// Discovery tells of these as well from now on, where a target is in their groups: another node serves the same targets there.
    pub fn set_remote_portals(&self, portals: Vec<PortalConfig>) {
        *self.shared.remote_portals.lock() = portals;
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
        targets.insert(
            name,
            Arc::new(Target { config, sessions, next_tsih, places: Places::of(Kind::Session) }),
        );
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
            let group = session.nexus.target_port;
            if !same || !config.admits(&session.initiator, session.user.as_ref(), group) {
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
        self.shared.portals.lock().clear();
        self.shared.listeners.close_all();
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
        let connection = |peer: Arc<Peer>| ConnectionInfo {
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
            user: session.user.as_ref().map(|user| user.name.clone()),
            isid: session.isid,
            tsih: session.tsih,
            portal_group: session.nexus.target_port,
            nexus: session.nexus.id,
            params: session.params.clone(),
            io: session.nexus.io.totals(),
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
