//! iSCSI as the node's configuration wants it: portals, targets, who may log in.
//!
//! Putting a configuration into effect touches only what differs from the one before, so that a new LUN of one
//! target disturbs no session of another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use control_api::{
    AuthConfig, Code, Config, GroupConfig, LunReservations, LunWriteCacheNow, PortalConfig, PortalInfo,
    Problem, Protocol, Session, TargetConfig,
};
use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapUser, Secret};
use iscsi_target::{Account, ConfigError, DiscoveryAuth, InitiatorAccess, IscsiServer, ServerConfig};
use observe::IoTotals;
use parking_lot::Mutex;
use scsi_core::ScsiDevice;
use scsi_disk::{Forward, TargetDevice};
use shard_runtime::SystemEntropy;
use tcp_service::{Budget, Listeners};
use uuid::Uuid;

use crate::backend::{
    BeginForwarding, CacheRoom, Current, FlowOn, ImageNow, IscsiBackend, QueueOf, ServedLun, ShardBackend,
    Targets, Work,
};
use crate::node::{bound_to, operations};

/// How long initiators may take to log out when their target goes or the node stops. Linux and Windows answer
/// a logout request at once; who doesn't is cut off.
const GRACE: Duration = Duration::from_secs(2);
/// An address that is closing is free again within milliseconds; one second is for a busy machine.
const PORTAL_ATTEMPTS: u32 = 25;
const PORTAL_PAUSE: Duration = Duration::from_millis(40);

/// Logical units of all targets: the SCSI side.
pub trait UnitBackend: Send + Sync + 'static {
    /// Takes from what targets show whom what the configuration does not show any more, and makes queues equal to it, unless a newer one
    /// is known. What it shows beyond that is seen when initiators are let in by it.
    fn narrow(&self, config: &Current);
    /// Initiators are let in by this configuration from now on: targets show all that it shows.
    fn admit(&self, config: &Current);
    /// Makes the units of a pool equal to the configuration: see [`IscsiBackend::apply_pool`].
    fn apply_pool<'a>(
        &'a self,
        config: &'a Current,
        pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>>;
    /// The device behind a target; the same one as long as the target exists.
    fn device(&self, target: &str) -> Arc<dyn ScsiDevice>;
    /// The device behind a target, if there is one.
    fn target(&self, target: &str) -> Option<Arc<TargetDevice>>;
    /// Brings commands for units of other nodes there from now on.
    fn forward_by(&self, forward: Arc<dyn Forward>);
    /// Lets go of all files.
    fn close(&self) -> Work<'_, ()>;
    /// What initiators have read and written since each unit was made, by its LUN's name.
    fn counters(&self) -> Vec<(String, IoTotals)>;
    /// Whether each unit acknowledges writes before they are durable, by its LUN's name.
    fn write_caches(&self) -> Vec<(String, bool)>;
    /// What initiators have reserved of units, by the LUN's name.
    fn reservations(&self) -> Vec<(String, LunReservations)>;
    /// Whom of their initiators is still to be told that cached writes may be lost; see [`IscsiBackend::lost_writes`].
    fn lost_writes(&self) -> Vec<(String, Vec<String>)> {
        Vec::new()
    }
    /// Forgets some of them; see [`IscsiBackend::forget_lost_writes`].
    fn forget_lost_writes<'a>(&'a self, lun: &'a str, host: Option<String>) -> Work<'a, Vec<String>>;
    /// Ends that of one; see [`IscsiBackend::clear_reservations`].
    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations>;
    /// The images that units are made of, by the LUN's name.
    fn images(&self) -> Vec<(String, ImageNow)>;
    /// Write caches of units that keep writes from their files, by the LUN's name.
    fn caches(&self) -> Vec<(String, LunWriteCacheNow)> {
        Vec::new()
    }
    /// What memory there is for them; see [`IscsiBackend::cache_room`].
    fn cache_room(&self) -> Option<CacheRoom> {
        None
    }
    /// Gives the disk in a unit's image another size.
    fn resize_image<'a>(&'a self, lun: &'a str, size: u64) -> Work<'a, ()>;
    /// Holds the images of these LUNs as they are; see [`IscsiBackend::hold_images`].
    fn hold_images(&self, luns: Vec<String>) -> Work<'_, Vec<vhdx::Held>>;
    /// What initiators do with units now, with the volume of each.
    fn flows(&self) -> Vec<FlowOn>;
    /// What their volumes can do.
    fn queues(&self) -> Vec<QueueOf>;
    /// The live state, for diagnosis.
    fn inspect(&self) -> serde_json::Value;
}

/// What is in effect.
#[derive(Default)]
struct InEffect {
    /// By the configured address: where it listens, or why it doesn't.
    portals: BTreeMap<String, (PortalConfig, Result<SocketAddr, String>)>,
    targets: BTreeMap<String, (TargetConfig, Admitted)>,
}

/// Who may log in to a target: the members of all groups that see a LUN of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Admitted {
    any: bool,
    initiators: BTreeSet<String>,
    /// For each CHAP user of the target, which initiators it may be; `None` for any.
    users: Vec<Option<BTreeSet<String>>>,
}

/// The members of the groups with these names, in lower case.
fn members<'a>(groups: impl Iterator<Item = &'a GroupConfig>) -> BTreeSet<String> {
    groups.flat_map(|group| &group.initiators).map(|name| name.to_lowercase()).collect()
}

impl Admitted {
    fn of(config: &Config, target: &str) -> Self {
        let maps = config.luns.iter().flat_map(|lun| &lun.map).filter(|map| map.target == target);
        let groups: BTreeSet<&str> = maps.map(|map| map.group.as_str()).collect();
        let groups: Vec<&GroupConfig> =
            config.groups.iter().filter(|group| groups.contains(group.name.as_str())).collect();
        let itself = config.targets.iter().find(|there| there.name == target);
        Self {
            any: groups.iter().any(|group| group.any),
            initiators: members(groups.into_iter()),
            users: itself
                .into_iter()
                .flat_map(|target| &target.auth.chap)
                .map(|user| bound_to(config, user))
                .collect(),
        }
    }

    /// The same, of those alone who were admitted before.
    fn narrowed(self, before: &Self) -> Self {
        let (any, initiators) = match (before.any, self.any) {
            (true, any) => (any, self.initiators),
            (false, true) => (false, before.initiators.clone()),
            (false, false) => (false, &self.initiators & &before.initiators),
        };
        Self { any, initiators, ..self }
    }

    fn check(self) -> InitiatorAccess {
        if self.any {
            return InitiatorAccess::Any;
        }
        only(self.initiators)
    }
}

fn only(initiators: BTreeSet<String>) -> InitiatorAccess {
    InitiatorAccess::Check(Arc::new(move |name: &IscsiName| initiators.contains(&name.to_string())))
}

/// The iSCSI service of this node.
pub struct Iscsi {
    server: IscsiServer,
    units: Arc<dyn UnitBackend>,
    shards: Arc<dyn ShardBackend>,
    in_effect: Mutex<InEffect>,
    /// Where other nodes bring commands.
    from_nodes: Mutex<Option<Listeners>>,
}

impl Iscsi {
    /// A service without portals and targets.
    ///
    /// # Errors
    /// Those of the server.
    pub fn new(
        shards: Arc<dyn ShardBackend>,
        units: Arc<dyn UnitBackend>,
        budget: Budget,
    ) -> Result<Self, Problem> {
        let server = IscsiServer::with_budget(
            ServerConfig::default(),
            shards.clone(),
            Arc::new(SystemEntropy),
            budget,
        )
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        Ok(Self { server, units, shards, in_effect: Mutex::default(), from_nodes: Mutex::default() })
    }

    /// Puts portals in effect. An address that was given up a moment ago may still be closing: then it is tried
    /// again for a while, so that who applies a configuration finds it served.
    async fn apply_portals(&self, wanted: &[PortalConfig]) {
        for _ in 0..PORTAL_ATTEMPTS {
            if self.try_portals(wanted) {
                return;
            }
            tokio::time::sleep(PORTAL_PAUSE).await;
        }
    }

    /// Whether all portals listen.
    fn try_portals(&self, wanted: &[PortalConfig]) -> bool {
        let mut now = self.in_effect.lock();
        now.portals.retain(|_, (portal, listening)| {
            let keep = wanted.contains(portal);
            if !keep && let Ok(address) = listening {
                self.server.remove_portal(*address);
            }
            keep
        });
        for portal in wanted {
            if matches!(now.portals.get(&portal.address), Some((_, Ok(_)))) {
                continue;
            }
            let listening = match portal.address.parse() {
                Ok(address) => self
                    .server
                    .add_portal(iscsi_target::PortalConfig { address, group: portal.group })
                    .map_err(|error| match error {
                        ConfigError::Listen { source, .. } => format!("it can't be listened on: {source}"),
                        other => other.to_string(),
                    }),
                Err(_) => Err("it is not an address".to_owned()),
            };
            now.portals.insert(portal.address.clone(), (portal.clone(), listening));
        }
        now.portals.values().all(|(_, listening)| listening.is_ok())
    }

    /// Takes targets away that are gone, when their initiators have logged out.
    async fn remove_targets(&self, config: &Config) {
        let gone: Vec<String> = {
            let mut now = self.in_effect.lock();
            let wanted = |name: &str| config.targets.iter().any(|target| target.name == name);
            let gone: Vec<String> = now.targets.keys().filter(|name| !wanted(name)).cloned().collect();
            gone.iter().for_each(|name| drop(now.targets.remove(name)));
            gone
        };
        for name in gone {
            if let Ok(name) = IscsiName::parse(&name) {
                // It may never have come into being.
                let _ = self.server.remove_target(&name, GRACE).await;
            }
        }
    }

    /// Sends away who would not be let in any more, of targets that stay. Nobody is let in who was not before: there is nothing to see yet.
    fn narrow_targets(&self, config: &Config) {
        for target in &config.targets {
            let Some((_, before)) = self.in_effect.lock().targets.get(&target.name).cloned() else {
                continue;
            };
            let admitted = Admitted::of(config, &target.name).narrowed(&before);
            if let Err(why) = self.put_target(target, admitted) {
                tracing::warn!(target = target.name, why, "the target goes on as it was for now");
            }
        }
    }

    /// Makes a target what it is to be, unless it is that.
    fn put_target(&self, target: &TargetConfig, admitted: Admitted) -> Result<(), String> {
        let before = self.in_effect.lock().targets.get(&target.name).cloned();
        if before.as_ref() == Some(&(target.clone(), admitted.clone())) {
            return Ok(());
        }
        let name = IscsiName::parse(&target.name).map_err(|error| error.to_string())?;
        let mut config = iscsi_target::TargetConfig::new(name, self.units.device(&target.name));
        config.alias = (!target.alias.is_empty()).then(|| target.alias.clone());
        config.portal_groups.clone_from(&target.portal_groups);
        config.auth = auth(&target.auth, &admitted.users);
        config.access = admitted.clone().check();
        let put =
            if before.is_some() { self.server.update_target(config) } else { self.server.add_target(config) };
        put.map_err(|error| error.to_string())?;
        self.in_effect.lock().targets.insert(target.name.clone(), (target.clone(), admitted));
        Ok(())
    }

    /// Before the targets: where discovery asks for proof, a new target never shows without.
    fn discovery(&self, config: &Config) {
        let discovery = if config.iscsi.discovery_chap { DiscoveryAuth::Chap } else { DiscoveryAuth::Open };
        self.server.reconfigure(ServerConfig { discovery, ..self.server.config() });
    }
}

fn auth(config: &AuthConfig, bound: &[Option<BTreeSet<String>>]) -> iscsi_target::AuthConfig {
    let user = |user: &control_api::ChapUser| ChapUser {
        name: user.user.clone(),
        secret: Secret::new(user.secret.as_bytes()),
    };
    if config.asked_for().is_empty() {
        return iscsi_target::AuthConfig::None;
    }
    iscsi_target::AuthConfig::Chap {
        users: config
            .chap
            .iter()
            .zip(bound)
            .map(|(config, bound)| Account {
                user: user(config),
                initiators: bound.clone().map_or(InitiatorAccess::Any, only),
            })
            .collect(),
        mutual: config.mutual.as_ref().map(user),
    }
}

impl IscsiBackend for Iscsi {
    fn tighten(&self, config: &Current) {
        // Nobody sees anything new before those who are not to have it are gone: first what is shown becomes less, then who would not be
        // let in any more is sent away. Who is let in from then on finds no more than both configurations show.
        self.units.narrow(config);
        self.discovery(&config.config);
        self.narrow_targets(&config.config);
    }

    fn apply<'a>(&'a self, config: &'a Current) -> Work<'a, Vec<(String, String)>> {
        Box::pin(async move {
            self.tighten(config);
            self.remove_targets(&config.config).await;
            // Units first: who logs in sees them at once. Targets before portals, for the same reason.
            self.units.admit(config);
            let config = &*config.config;
            let mut trouble = Vec::new();
            for target in &config.targets {
                if let Err(why) = self.put_target(target, Admitted::of(config, &target.name)) {
                    trouble.push((format!("target {}", target.name), why));
                }
            }
            self.apply_portals(&config.portals).await;
            for (address, (_, listening)) in &self.in_effect.lock().portals {
                if let Err(why) = listening {
                    trouble.push((format!("portal {address}"), why.clone()));
                }
            }
            Ok(trouble)
        })
    }

    fn apply_pool<'a>(
        &'a self,
        config: &'a Current,
        pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>> {
        self.units.apply_pool(config, pool, luns)
    }

    fn join(&self, begin: BeginForwarding) {
        // The units have what brings their commands away: they must not be kept by it.
        let units = Arc::downgrade(&self.units);
        let targets: Targets = Arc::new(move |target| units.upgrade()?.target(target));
        let (forward, listeners) = begin(self.shards.clone(), targets);
        self.units.forward_by(forward);
        *self.from_nodes.lock() = Some(listeners);
    }

    fn set_remote_portals(&self, portals: Vec<(SocketAddr, u16)>) {
        let portal = |(address, group)| iscsi_target::PortalConfig { address, group };
        self.server.set_remote_portals(portals.into_iter().map(portal).collect());
    }

    fn portals(&self) -> Vec<PortalInfo> {
        let now = self.in_effect.lock();
        let info =
            |(address, (portal, listening)): (&String, &(PortalConfig, Result<SocketAddr, String>))| {
                PortalInfo {
                    address: address.clone(),
                    listening: listening.as_ref().ok().map(SocketAddr::to_string),
                    group: portal.group,
                    problem: listening.as_ref().err().cloned(),
                }
            };
        now.portals.iter().map(info).collect()
    }

    fn sessions(&self) -> Vec<Session> {
        let sessions = self.server.sessions();
        sessions
            .into_iter()
            .map(|session| {
                let connections = &session.connections;
                let mut digests = Vec::new();
                if connections.iter().any(|connection| connection.params.header_digest) {
                    digests.push("header".to_owned());
                }
                if connections.iter().any(|connection| connection.params.data_digest) {
                    digests.push("data".to_owned());
                }
                Session {
                    id: session.nexus,
                    protocol: Protocol::Iscsi,
                    initiator: session.initiator.to_string(),
                    chap_user: session.user,
                    address: connections.first().map(|c| c.remote.to_string()).unwrap_or_default(),
                    target: session.target.to_string(),
                    isid: session.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
                    tsih: session.tsih,
                    connections: connections.len() as u64,
                    commands: connections.iter().map(|c| c.commands).sum(),
                    read_bytes: connections.iter().map(|c| c.bytes_out).sum(),
                    written_bytes: connections.iter().map(|c| c.bytes_in).sum(),
                    read: operations(session.io.read),
                    write: operations(session.io.write),
                    digests,
                    smb: None,
                }
            })
            .collect()
    }

    fn lun_counters(&self) -> Vec<(String, IoTotals)> {
        self.units.counters()
    }

    fn write_caches(&self) -> Vec<(String, bool)> {
        self.units.write_caches()
    }

    fn images(&self) -> Vec<(String, ImageNow)> {
        self.units.images()
    }

    fn reservations(&self) -> Vec<(String, LunReservations)> {
        self.units.reservations()
    }

    fn caches(&self) -> Vec<(String, LunWriteCacheNow)> {
        self.units.caches()
    }

    fn cache_room(&self) -> Option<CacheRoom> {
        self.units.cache_room()
    }

    fn lost_writes(&self) -> Vec<(String, Vec<String>)> {
        self.units.lost_writes()
    }

    fn forget_lost_writes<'a>(&'a self, lun: &'a str, host: Option<String>) -> Work<'a, Vec<String>> {
        self.units.forget_lost_writes(lun, host)
    }

    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations> {
        self.units.clear_reservations(lun)
    }

    fn resize_image<'a>(&'a self, lun: &'a str, size: u64) -> Work<'a, ()> {
        self.units.resize_image(lun, size)
    }

    fn hold_images(&self, luns: Vec<String>) -> Work<'_, Vec<vhdx::Held>> {
        self.units.hold_images(luns)
    }

    fn flows(&self) -> Vec<FlowOn> {
        self.units.flows()
    }

    fn queues(&self) -> Vec<QueueOf> {
        self.units.queues()
    }

    fn end_session(&self, id: u64) -> Work<'_, bool> {
        let session = self.server.sessions().into_iter().find(|session| session.nexus == id);
        let ended = session.is_some_and(|session| self.server.kick_session(&session.target, session.tsih));
        Box::pin(std::future::ready(Ok(ended)))
    }

    fn stop(&self) -> Work<'_, ()> {
        Box::pin(async move {
            if let Some(listeners) = self.from_nodes.lock().take() {
                listeners.close_all();
            }
            self.server.shutdown(GRACE).await;
            *self.in_effect.lock() = InEffect::default();
            self.units.close().await
        })
    }

    fn inspect(&self) -> serde_json::Value {
        self.units.inspect()
    }
}

#[cfg(test)]
mod tests;
