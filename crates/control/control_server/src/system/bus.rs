//! The bus: disks of this node for the pools of other nodes, and the way to theirs.
//!
//! ```text
//!   the configuration's disks `NODE:/path` ─┬─ ours ──► LocalDisk ─► Gate ─┬─ "own": this node's pools, in the process
//!                                           │                              └─ a target of the bus, for the other members
//!                                           └─ another node's ──► its address (members) ─► block_iscsi
//! ```
//! The target is an instance of its own, on the cluster's address, with memory of its own: initiators of LUNs neither find it nor wait
//! for it. Both sides prove that they are of the cluster by secrets that are made of the cluster's key (`secrets`), and each
//! PDU has digests.
//!
//! Invariants:
//! * Everybody passes the gate of a lent disk, this node's own pools as well; nobody else in this process opens the disk.
//! * It is listened for other nodes only when all that is lent has its gate, and the members are known: who comes back after a restart finds
//!   what it had, and is never told that there is nothing.
//! * A node that has lost its permit, or its place in the cluster for a while, lends its disks all the same: their owner is another node.
//! * A node that is not a member any more has its sessions ended here, and its disks end there at once: nobody waits for time-outs.

mod lent;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{ClusterName, NodeId};
use control_api::{Code, DiskConfig, DiskLogin, NodeDisk, Problem};
use disk_bus::BusUnit;
use disk_gate::{FileRecords, Gate, Records};
use iscsi_protocol::IscsiName;
use iscsi_protocol::url::Url;
use iscsi_target::{
    Account, AuthConfig, DiscoveryAuth, InitiatorAccess, IscsiServer, PortalConfig, ServerConfig,
    TargetConfig,
};
use parking_lot::{Mutex, RwLock};
use scsi_core::ScsiDevice;
use shard_runtime::SystemEntropy;
use tcp_service::{Budget, ShardJob, Spawner};

use super::shards::SystemShards;
use crate::backend::{FoundDisk, NodeSeen};
use secrets::Secrets;

/// The folder of the data directory with what gates keep.
const GATES: &str = "gates";
/// The target portal group of the bus's only portal.
const GROUP: u16 = 1;
/// An address that is closing is tried again so often.
const LISTEN_ATTEMPTS: u32 = 25;
const LISTEN_PAUSE: Duration = Duration::from_millis(40);
/// What a gate keeps is a small file: a file system that does not take it by then may hang.
const MENDED_WITHIN: Duration = Duration::from_secs(5);

/// What a node is on the bus.
#[derive(Clone)]
pub(crate) struct BusPlace {
    /// The cluster.
    pub(crate) cluster: ClusterName,
    /// The node.
    pub(crate) node: NodeId,
    /// What it is called.
    pub(crate) name: String,
    /// What all nodes of the cluster know and nobody else.
    pub(crate) secret: Vec<u8>,
    /// Where it lends its disks; none when there is no such address.
    pub(crate) listen: Option<SocketAddr>,
}

/// A disk of this node that is lent.
struct Lent {
    gate: Arc<Gate>,
    /// The same one as long as it is lent: sessions of another one end.
    device: Arc<dyn ScsiDevice>,
    found: FoundDisk,
    target: IscsiName,
}

/// What is known of the members.
#[derive(Default)]
struct Members {
    /// By name: number, and where disks are lent.
    known: BTreeMap<String, (NodeId, Option<SocketAddr>)>,
    listening: bool,
}

/// This node on the bus.
pub(super) struct Bus {
    place: BusPlace,
    secrets: Secrets,
    shards: Arc<SystemShards>,
    records: Arc<dyn Records>,
    server: IscsiServer,
    lent: Mutex<BTreeMap<String, Result<Lent, Problem>>>,
    members: Arc<RwLock<Members>>,
}

/// What changed among the members.
pub(super) struct Met {
    /// Somebody came, or has another address.
    pub(super) came: bool,
    /// These are no members any more.
    pub(super) gone: BTreeSet<String>,
}

/// The node's shards, for connections of the bus. Those answer whether the node's permit holds or not: it says that nobody else owns the
/// node's pools, and whose pools these disks are is kept by their gates.
struct ShardsOfTheBus(Arc<SystemShards>);

impl Spawner for ShardsOfTheBus {
    fn shards(&self) -> usize {
        Spawner::shards(&*self.0)
    }

    fn spawn(&self, shard: usize, job: ShardJob) {
        Spawner::spawn(&*self.0, shard, job);
    }
}

/// A name that is one by construction.
fn iqn(text: &str) -> Result<IscsiName, Problem> {
    IscsiName::parse(text).map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

fn initiator_of(node: NodeId) -> String {
    format!("iqn.2026-01.io.holdfast:bus.node-{node}")
}

impl Bus {
    /// A node that lends nothing yet, and knows nobody. On the control plane's runtime; blocks on the disk.
    ///
    /// # Errors
    /// When what gates keep has no place.
    pub(super) fn new(place: BusPlace, data: &Path, shards: Arc<SystemShards>) -> Result<Arc<Self>, Problem> {
        let folder = data.join(GATES);
        let records = FileRecords::open(&folder)
            .map_err(|error| Problem::new(Code::Io, format!("{}: {error}", folder.display())))?;
        let server = IscsiServer::with_budget(
            // Nobody is told of disks without proof of who asks.
            ServerConfig { discovery: DiscoveryAuth::Chap, ..ServerConfig::default() },
            Arc::new(ShardsOfTheBus(shards.clone())),
            Arc::new(SystemEntropy),
            Budget::default(),
        )
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let secrets = Secrets::new(&place.cluster, &place.secret);
        Ok(Arc::new(Self {
            place,
            secrets,
            shards,
            records: Arc::new(records),
            server,
            lent: Mutex::default(),
            members: Arc::default(),
        }))
    }

    /// Whether a disk is this node's own.
    pub(super) fn is_ours(&self, disk: &NodeDisk<'_>) -> bool {
        disk.node == self.place.name
    }

    /// This node's name as an initiator of the bus.
    pub(super) fn initiator(&self) -> Result<IscsiName, Problem> {
        iqn(&initiator_of(self.place.node))
    }

    fn target(&self, id: &str) -> Result<IscsiName, Problem> {
        iqn(&format!("iqn.2026-01.io.holdfast:bus.{}", lent::hash_of(id)))
    }

    /// How another node's disk is reached, and who both are.
    ///
    /// # Errors
    /// When that node is no member, or lends nothing.
    pub(super) fn way_to(&self, id: &str, disk: &NodeDisk<'_>) -> Result<(Url, DiskLogin), Problem> {
        let (members, node) = (self.members.read(), disk.node);
        let away = |why: &str| {
            Problem::new(Code::Unavailable, format!("disk {id}: node {node} {why}."))
                .todo("`holdfast cluster status` says which nodes there are, and what is wrong with them.")
        };
        let (number, address) =
            members.known.get(node).ok_or_else(|| away("is away, or there is no such node"))?;
        let address = address.ok_or_else(|| away("lends no disks: it runs an earlier release"))?;
        let target = self.target(id)?;
        let text = format!("iscsi://{address}/{target}/0?header_digest=crc32c&data_digest=crc32c");
        let url = Url::parse(&text).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let (user, target_user) = (self.secrets.node(self.place.node, *number), self.secrets.target(*number));
        let login = DiskLogin {
            user: user.0,
            secret: user.1,
            target_user: Some(target_user.0),
            target_secret: Some(target_user.1),
        };
        Ok((url, login))
    }

    /// The gate of a disk of this node, and what is known of the disk.
    ///
    /// # Errors
    /// Why it is not lent.
    pub(super) fn own(&self, id: &str) -> Result<(Arc<Gate>, FoundDisk), Problem> {
        match self.lent.lock().get(id) {
            Some(Ok(lent)) => Ok((lent.gate.clone(), lent.found.clone())),
            Some(Err(problem)) => Err(problem.clone()),
            None => Err(Problem::new(Code::NotFound, format!("disk {id} is not in the configuration."))),
        }
    }

    /// Gates that are shut, as who may write cannot be kept.
    fn shut_gates(&self) -> Vec<(String, Arc<Gate>, String)> {
        let lent = self.lent.lock();
        let gates = lent.iter().filter_map(|(id, lent)| Some((id, &lent.as_ref().ok()?.gate)));
        gates.filter_map(|(id, gate)| Some((id.clone(), gate.clone(), gate.broken()?))).collect()
    }

    /// Disks to which nobody may write now, each with why.
    pub(super) fn shut(&self) -> Vec<(String, String)> {
        self.shut_gates().into_iter().map(|(id, _, why)| (id, why)).collect()
    }

    /// Tries again to keep who may write, where that has failed.
    async fn mend(&self) {
        for (id, gate, _) in self.shut_gates() {
            let mended = self.shards.run(0, move || async move { Ok(gate.mend().await) });
            if let Ok(Ok(true)) = tokio::time::timeout(MENDED_WITHIN, mended).await {
                tracing::info!(disk = id, "who may write to a lent disk can be kept again");
            }
        }
    }

    /// Lends what the configuration names of this node's disks, and nothing else. `found` is what discovery says. One call at a time.
    pub(super) async fn lend(&self, configured: &[DiskConfig], found: &[FoundDisk]) {
        self.mend().await;
        let ours: Vec<(&str, NodeDisk<'_>)> = configured
            .iter()
            .filter_map(|disk| Some((disk.id.as_str(), NodeDisk::parse(&disk.id)?)))
            .filter(|(_, disk)| self.is_ours(disk))
            .collect();
        let kept: BTreeSet<&str> =
            ours.iter().filter(|(_, disk)| Path::new(disk.path).exists()).map(|(id, _)| *id).collect();
        let taken: Vec<Lent> = {
            let mut lent = self.lent.lock();
            let gone = lent.extract_if(.., |id, _| !kept.contains(id.as_str()));
            gone.filter_map(|(_, lent)| lent.ok()).collect()
        };
        for Lent { gate, target, .. } in taken {
            tracing::info!(disk = gate.name(), "a disk is not lent any more");
            if let Err(error) = self.server.remove_target(&target, Duration::ZERO).await {
                tracing::debug!(%error, "a disk was not lent");
            }
        }
        for (id, disk) in ours {
            if matches!(self.lent.lock().get(id), Some(Ok(_))) {
                continue;
            }
            let said = self.lent.lock().get(id).and_then(|lent| lent.as_ref().err().cloned());
            let begun = self.lend_one(id, (disk.path, said.is_none()), found).await;
            if let Err(problem) = &begun {
                // Once, not at every look.
                if said.as_ref() != Some(problem) {
                    tracing::warn!(disk = id, %problem, "a disk of this node is not lent to the others");
                }
            }
            self.lent.lock().insert(id.to_owned(), begun);
        }
    }

    /// Lends a disk at this path; one that is busy is waited for when it is `new`.
    async fn lend_one(
        &self,
        id: &str,
        (path, new): (&str, bool),
        found: &[FoundDisk],
    ) -> Result<Lent, Problem> {
        let (gate, found, identity) =
            lent::open(&self.shards, self.records.clone(), (id, path, new), found).await?;
        let target = self.target(id)?;
        // Another unit each time that it is opened: whoever had it before looks at what is on it now, as at a disk that comes back. It may be an
        // older copy.
        let opening: String = crate::entropy::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let device: Arc<dyn ScsiDevice> =
            Arc::new(BusUnit::new(gate.clone(), &format!("{opening} {identity}")));
        let mut config = TargetConfig::new(target.clone(), device.clone());
        self.guard(&mut config);
        self.server.add_target(config).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        tracing::info!(disk = id, "a disk is lent to the nodes of the cluster");
        Ok(Lent { gate, device, found, target })
    }

    /// Who may log in to a target: the other members, each as itself.
    fn guard(&self, config: &mut TargetConfig) {
        let others: BTreeMap<String, NodeId> = {
            let members = self.members.read();
            let others =
                members.known.values().map(|(node, _)| *node).filter(|node| *node != self.place.node);
            others.map(|node| (initiator_of(node), node)).collect()
        };
        let users = others.iter().map(|(name, node)| {
            let (name, (user, secret)) = (name.clone(), self.secrets.node(*node, self.place.node));
            Account {
                user: secrets::chap(user, &secret),
                initiators: InitiatorAccess::Check(Arc::new(move |who: &IscsiName| who.to_string() == name)),
            }
        });
        let users: Vec<Account> = users.collect();
        let (target_user, target_secret) = self.secrets.target(self.place.node);
        config.access =
            InitiatorAccess::Check(Arc::new(move |who: &IscsiName| others.contains_key(&who.to_string())));
        if users.is_empty() {
            // Nobody may log in; a list of users must not be empty.
            return;
        }
        config.auth = AuthConfig::Chap { users, mutual: Some(secrets::chap(target_user, &target_secret)) };
    }

    /// These are the members now. On the control plane's runtime.
    pub(super) async fn meet(&self, seen: &[NodeSeen]) -> Met {
        let now: BTreeMap<String, (NodeId, Option<SocketAddr>)> =
            seen.iter().map(|seen| (seen.name.clone(), (seen.node, seen.bus.parse().ok()))).collect();
        let (came, gone) = {
            let mut members = self.members.write();
            let came = now.iter().any(|(name, place)| members.known.get(name) != Some(place));
            let gone: BTreeSet<String> =
                members.known.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
            members.known = now;
            (came, gone)
        };
        if came || !gone.is_empty() {
            self.guard_all();
        }
        self.listen().await;
        Met { came, gone }
    }

    /// Measures all targets' sessions by the members of now.
    fn guard_all(&self) {
        let configs: Vec<TargetConfig> = {
            let lent = self.lent.lock();
            let all = lent.values().flatten();
            all.map(|lent| TargetConfig::new(lent.target.clone(), lent.device.clone())).collect()
        };
        for mut config in configs {
            self.guard(&mut config);
            if let Err(error) = self.server.update_target(config) {
                tracing::error!(%error, "who may use a lent disk cannot be changed");
            }
        }
    }

    async fn listen(&self) {
        let Some(address) = self.place.listen.filter(|_| !self.members.read().listening) else { return };
        for _ in 0..LISTEN_ATTEMPTS {
            match self.server.add_portal(PortalConfig { address, group: GROUP }) {
                Ok(_) => {
                    self.members.write().listening = true;
                    return;
                }
                Err(_) => tokio::time::sleep(LISTEN_PAUSE).await,
            }
        }
        tracing::error!(%address, "this node's disks cannot be lent to other nodes: the address is in use");
    }

    /// Lends nothing any more; sessions end at once.
    pub(super) async fn stop(&self) {
        self.server.shutdown(Duration::ZERO).await;
        self.lent.lock().clear();
    }
}
