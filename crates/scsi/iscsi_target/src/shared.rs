//! What all connections of a server share: its targets with their sessions, and what an initiator may know of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::discovery::TargetListing;
use parking_lot::{Mutex, RwLock};
use shard_runtime::Entropy;
use tcp_service::{Budget, Listeners, Throttle};

use crate::config::{AuthConfig, DiscoveryAuth, PortalConfig, ServerConfig, TargetConfig};
use crate::session::{Peer, Session};
use crate::share::Places;

pub(crate) struct Target {
    pub(crate) config: RwLock<Arc<TargetConfig>>,
    pub(crate) sessions: Mutex<BTreeMap<u16, Arc<Session>>>,
    pub(crate) next_tsih: AtomicUsize,
    /// Of its sessions.
    pub(crate) places: Arc<Places>,
}

/// Where a connection came in.
#[derive(Clone)]
pub(crate) struct Portal {
    /// The portal group's tag.
    pub(crate) group: u16,
    /// Of its connections that have logged in to a target.
    pub(crate) places: Arc<Places>,
}

pub(crate) struct Shared {
    pub(crate) config: RwLock<Arc<ServerConfig>>,
    pub(crate) targets: RwLock<BTreeMap<IscsiName, Arc<Target>>>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) budget: Budget,
    /// Of connections that have logged in to a target, of all portals: each takes memory by being there.
    pub(crate) places: Arc<Places>,
    /// For lines in the log that initiators can cause at will.
    pub(crate) throttle: Throttle,
    pub(crate) next_nexus: AtomicU64,
    pub(crate) listeners: Listeners,
    pub(crate) portals: Mutex<Vec<PortalConfig>>,
    /// Portals of other nodes that the same targets are reached through.
    pub(crate) remote_portals: Mutex<Vec<PortalConfig>>,
}

impl Shared {
    /// Who a discovery session of `initiator` may prove to be: a user of any target that lets it in.
    pub(crate) fn discovery_users(&self, initiator: &IscsiName) -> Vec<ChapUser> {
        let mut users = Vec::new();
        for target in self.targets.read().values() {
            let config = Arc::clone(&target.config.read());
            if config.access.allows(initiator) {
                users.extend(config.auth.users_for(initiator).cloned());
            }
        }
        users
    }

    /// How we prove ourselves to a discovery session of `initiator` that asks for it: as the targets do that it could prove
    /// itself to, where they all have the same name and secret. A secret that any user has as well is none to prove with.
    pub(crate) fn discovery_mutual(&self, initiator: &IscsiName) -> Option<ChapUser> {
        let (mut found, mut secrets) = (Vec::<ChapUser>::new(), Vec::new());
        for target in self.targets.read().values() {
            let config = Arc::clone(&target.config.read());
            let AuthConfig::Chap { users, mutual } = &config.auth else { continue };
            secrets.extend(users.iter().map(|account| account.user.secret.clone()));
            if config.access.allows(initiator) && config.auth.users_for(initiator).next().is_some() {
                found.extend(mutual.clone());
            }
        }
        let own = found.pop()?;
        let one = found.iter().all(|other| other.same_as(&own));
        (one && !secrets.iter().any(|secret| secret.same_as(&own.secret))).then_some(own)
    }

    /// Whether a discovery session that began so may be told anything now.
    pub(crate) fn may_discover(&self, initiator: &IscsiName, user: Option<&ChapUser>) -> bool {
        match self.config.read().discovery {
            DiscoveryAuth::Open => true,
            DiscoveryAuth::Chap => user
                .is_some_and(|user| self.discovery_users(initiator).iter().any(|known| known.same_as(user))),
        }
    }

    /// What `initiator` may know of, as seen over a connection to `local`. `proved` is the user it has proved to be;
    /// without, targets are told of by the initiator's name alone.
    pub(crate) fn listing(
        &self,
        initiator: &IscsiName,
        proved: Option<&ChapUser>,
        local: SocketAddr,
        only: Option<&IscsiName>,
    ) -> Vec<TargetListing> {
        let mut portals: Vec<PortalConfig> = self.portals.lock().clone();
        portals.extend_from_slice(&self.remote_portals.lock());
        let mut list = Vec::new();
        for (name, target) in self.targets.read().iter() {
            let config = Arc::clone(&target.config.read());
            let hidden = proved.is_some_and(|user| !config.auth.admits(initiator, Some(user)));
            if only.is_some_and(|only| only != name) || !config.access.allows(initiator) || hidden {
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

    /// Takes a connection out of its session, and the session out of its target with the last one.
    pub(crate) fn leave(&self, session: &Arc<Session>, peer: &Arc<Peer>) {
        if session.leave(peer) {
            self.end(session);
        }
    }

    /// A session whose last connection has left, or never came, is over and out of its target.
    pub(crate) fn end(&self, session: &Arc<Session>) {
        session.finish();
        // The target may have been removed from the table already; then there is nothing to clean.
        if let Some(target) = self.targets.read().get(&session.target) {
            let mut sessions = target.sessions.lock();
            if sessions.get(&session.tsih).is_some_and(|other| Arc::ptr_eq(other, session)) {
                sessions.remove(&session.tsih);
            }
        }
    }
}
