//! The parts of this machine behind the node's seams.

mod addresses;
mod bus;
mod content;
mod disks;
mod earlier_witness;
mod fence;
mod gates;
mod iscsi;
mod offline;
mod pools;
mod shards;
mod smb;
mod storage;
#[cfg(test)]
mod test_volume;
mod units;
mod volumes;
mod witness;

use std::path::Path;
use std::sync::Arc;

use cluster_store::keys::ClusterName;
use cluster_store::{ClusterStore, LocalStore};
use control_api::{Code, Problem};
use iscsi_protocol::IscsiName;
use pool::QuorumWitness;
use pool_format::Guid;
use qos_exchange::Exchange;
use read_cache::ReadCache;
use shard_runtime::{Clock, SystemEntropy};
use tcp_service::{Answers, Budget};
use tokio::runtime::Handle;

use crate::backend::Backends;
use crate::cluster::Life;
use crate::images;
use bus::Bus;
pub(crate) use bus::BusPlace;
pub use disks::{SystemDisk, SystemDisks};
use earlier_witness::EarlierVotes;
use fence::SystemFence;
use gates::Gates;
pub use iscsi::{Iscsi, UnitBackend};
pub(crate) use offline::{offline_pool, offline_volume};
use pools::SystemPools;
pub use shards::SystemShards;
pub use smb::Smb;
use smb_users::{Files, Policy, Users};
use units::{SharedVirtualDisks, SystemUnits};
pub(crate) use volumes::read_counters;
pub(crate) use witness::{ALONE, Ownership};

/// The folder of the data directory that has what nodes of a cluster share.
pub(crate) const STORE: &str = "store";

/// The parts of this machine, on `count` shards. `data` is the node's data directory. Call on the control
/// plane's runtime.
///
/// # Errors
/// When the system doesn't give what a part needs.
pub(crate) fn backends(
    data: &Path,
    count: Option<usize>,
    clock: Arc<dyn Clock>,
    ownership: Ownership,
    answers: Answers,
    bus: Option<BusPlace>,
) -> Result<Backends, Problem> {
    let node = ownership.id();
    // Targets tell nodes apart by their names, disks by a number in the key of their registrations.
    let initiator = IscsiName::parse(&format!("iqn.2026-01.io.holdfast:node.{node}"))
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let fence = SystemFence::new(ownership.number(), ownership.is_of_a_cluster());
    let shards = SystemShards::answering(count, answers)?;
    // How large it may be, the configuration says.
    let cache = ReadCache::new(0);
    let budget = Budget::new(0);
    let write_caches = write_cache::Budget::new(0);
    let qos_exchange = Arc::<Exchange>::default();
    let gates = Arc::new(Gates::new(shards.clone(), clock.clone(), qos_exchange.clone()));
    let memory = images::memory(&budget);
    let disks = Arc::new(SharedVirtualDisks::new(shards.clone(), memory.clone()));
    let units = Arc::new(SystemUnits::new(
        shards.clone(),
        clock.clone(),
        gates.clone(),
        memory,
        write_caches.clone(),
    ));
    let bus = bus.map(|place| Bus::new(place, data, shards.clone())).transpose()?;
    let users = users(data, clock.clone());
    let known = users.as_ref().ok().cloned();
    let guid = smb::identity(data)?;
    let smb = Smb::new(shards.clone(), clock.clone(), known, guid, budget.for_service(), gates, disks);
    let smb = Arc::new(smb);
    Ok(Backends {
        disks: Arc::new(SystemDisks::new(shards.clone(), clock.clone(), initiator).on_bus(bus)),
        pools: Arc::new(SystemPools::new(shards.clone(), clock, ownership.clone(), cache.clone())),
        owner: Arc::new(ownership),
        fence: Arc::new(fence),
        cache,
        write_caches,
        qos_exchange,
        iscsi: Arc::new(Iscsi::new(shards.clone(), units, budget.for_service())?),
        budget,
        smb,
        addresses: Arc::new(addresses::MachineNetwork::default()),
        users,
        shards,
    })
}

/// What the node keeps of the epochs and votes of its pools: a store of its own in the data directory, with what earlier releases left
/// there taken over.
pub(crate) fn alone(data: &Path) -> Result<Ownership, Problem> {
    let store = LocalStore::open(&data.join(STORE)).map_err(|error| {
        Problem::new(Code::Damaged, error.to_string()).todo(
            "Without it the node does not know which of its disks are up to date, so it does not start.",
        )
    })?;
    ownership(data, Arc::new(store), None)
}

/// The same in a store that a cluster shares, as this node of it.
pub(crate) fn shared(
    data: &Path,
    store: Arc<dyn ClusterStore>,
    cluster: ClusterName,
    life: Life,
) -> Result<Ownership, Problem> {
    ownership(data, store, Some((cluster, life)))
}

fn ownership(
    data: &Path,
    store: Arc<dyn ClusterStore>,
    shared: Option<(ClusterName, Life)>,
) -> Result<Ownership, Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(Code::Io, format!("who owns the pools, in {}: {error}", data.display()))
    };
    let earlier = EarlierVotes::open(data.join("witness")).map_err(failed)?;
    Ownership::new(store, shared, earlier, Handle::current()).map_err(failed)
}

/// The store of a node on its own that has stopped, with all that earlier releases left.
///
/// # Errors
/// When it cannot be read, or something that an earlier release left cannot be taken over: a vote that is forgotten lets stale disks in.
pub(crate) async fn own_store(data: &Path) -> Result<LocalStore, Problem> {
    let damaged = |why: String| Problem::new(Code::Damaged, format!("{}: {why}.", data.display()));
    // Any question makes it take over what is there.
    let ownership = alone(data)?;
    QuorumWitness::load(&ownership, Guid([0; 16])).await.map_err(|error| damaged(error.to_string()))?;
    drop(ownership);
    let left = EarlierVotes::open(data.join("witness")).and_then(|earlier| earlier.pools());
    let left = left.map_err(|error| damaged(error.to_string()))?;
    if !left.is_empty() {
        return Err(damaged(format!("votes of an earlier release cannot be read for the pools {left:?}"))
            .todo("Restore the files witness/POOL of the data directory, or remove those of pools that are gone for good."));
    }
    LocalStore::open(&data.join(STORE)).map_err(|error| damaged(error.to_string()))
}

/// The users and groups of the node whose data directory this is.
///
/// # Errors
/// When they cannot be read. The node serves what needs no users all the same.
pub(crate) fn users(data: &Path, clock: Arc<dyn Clock>) -> Result<Arc<Users>, Problem> {
    let users = Users::open(Files::in_directory(data), Policy::default(), clock, Arc::new(SystemEntropy));
    users.map(Arc::new).map_err(|error| {
        tracing::error!(%error, "users cannot be read: nobody can log in to shares");
        Problem::new(Code::Unavailable, error.to_string())
            .todo("Put it right and start the node again; nobody can log in to shares meanwhile.")
    })
}
