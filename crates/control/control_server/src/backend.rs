//! What the node needs of the parts below it, as small traits: shards, disks, pools, volumes, iSCSI, SMB.
//!
//! The node's own logic (what is known of which disk, who may destroy what, when a spare takes over, what is
//! served under which name) is on this side; the parts that do the work are on the other. The tests of the
//! logic run on parts in memory. Futures here are `Send`: the implementations move the work to shards.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cluster_store::keys::NodeId;
use control_api::{
    Balance, CheckFinding, Code, DiskConfig, FaultRule, MediaType, PoolMember, PoolState, Problem,
    Provisioning, Resiliency, Scrub, SpaceState,
};
use observe::IoTotals;
use qos_exchange::Exchange;
use read_cache::ReadCache;
use smb_users::Users;
use tcp_service::{Budget, Spawner};
use uuid::Uuid;

mod addresses;
mod found_disk;
mod iscsi;
mod ownership;
mod smb;
mod space_name;
mod upkeep;
mod volume_handle;

pub use addresses::AddressBackend;
pub use addresses::MachineAddress;

pub(crate) use crate::config_store::Current;
pub(crate) use crate::open_told::OpenTold;
pub use found_disk::{DiskContent, FoundDisk};
pub use iscsi::{BeginForwarding, IscsiBackend, ServedBy, ServedLun, Targets};
pub(crate) use iscsi::{CacheRoom, FlowOn, HELD_ELSEWHERE, ImageNow, QueueOf};
pub use ownership::{DiskFence, Fenced, Held, NoFence, PoolOwner, Whose};
pub(crate) use ownership::{another_nodes, is_followed};
pub(crate) use smb::{Remote, ShareTotals, SmbAdministration};
pub use smb::{SmbBackend, SmbInfo, WantedShares};
pub(crate) use space_name::{LOG_SUFFIX, SpaceName, log_name, log_of};
pub(crate) use upkeep::{BalancePlan, Upkeep};
pub use volume_handle::VolumeHandle;

/// The future of work that is done elsewhere.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send + 'a>>;

/// The same of work that tells nobody how it went.
pub(crate) type Quiet<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The threads that serve.
pub trait ShardBackend: Spawner {
    /// How disk I/O is done ("ring", "blocking").
    fn engine(&self) -> String;
    /// Ends when all of them have ended.
    fn stop(&self) -> Work<'_, ()>;
}

/// Runs work on a shard and brings its result back.
pub(crate) async fn on_shard<T, F, R>(shards: &dyn ShardBackend, shard: usize, work: F) -> Result<T, Problem>
where
    T: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
    R: Future<Output = Result<T, Problem>> + 'static,
{
    let (send, receive) = tokio::sync::oneshot::channel();
    let task = move || -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            // Whoever asked may be gone; the work is done all the same.
            let _ = send.send(work().await);
        })
    };
    shards.spawn(shard, Box::new(task));
    receive.await.unwrap_or_else(|_| {
        Err(Problem::new(Code::Unavailable, "the node is stopping, or the work has failed")
            .todo("The log says which."))
    })
}

/// A disk that is open, with its wrappers.
pub trait OpenDisk: Send + Sync + 'static {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// What went through it, if that is counted.
    fn counters(&self) -> Option<IoTotals>;
    /// Replaces the faults that are switched on.
    fn set_faults(&self, rules: &[FaultRule]) -> Result<(), Problem>;
    /// What is on it.
    fn probe(&self) -> Work<'_, DiskContent>;
    /// Whether it is gone for good: what comes back in its place is to be opened anew.
    fn is_gone(&self) -> bool {
        false
    }
    /// Whether something else is at its path by now: another file was put in its place.
    fn is_replaced(&self) -> bool {
        false
    }
    /// Whether other machines reach it, too.
    fn is_shared(&self) -> bool {
        false
    }
    /// For the implementation of pools, which knows what it is.
    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync>;
}

/// The disks of the machine.
pub trait DiskBackend: Send + Sync + 'static {
    /// Looks which disks there are.
    fn discover(&self) -> Work<'_, Vec<FoundDisk>>;
    /// Opens a disk, for this process alone.
    fn open<'a>(&'a self, disk: &'a FoundDisk) -> Work<'a, Arc<dyn OpenDisk>>;
    /// Asks for a unit of an iSCSI target whether it is there, beside whoever has it open.
    fn reach<'a>(&'a self, disk: &'a DiskConfig) -> Work<'a, FoundDisk>;
    /// Lends those of this node's disks to the others of its cluster that the configuration names (`NODE:/path`), and no others. `found` is
    /// what discovery says. One call at a time.
    fn lend<'a>(&'a self, configured: &'a [DiskConfig], found: &'a [FoundDisk]) -> Work<'a, ()> {
        let _ = (configured, found);
        Box::pin(std::future::ready(Ok(())))
    }
    /// Disks of this node that are lent and to which nobody may write now, as who may cannot be kept; each with why. [`DiskBackend::lend`] tries
    /// again.
    fn shut(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// These are the members of the cluster now: disks of others end at once. Says whether disks may have come or gone by it.
    fn meet(&self, members: Vec<NodeSeen>) -> Work<'_, bool> {
        let _ = members;
        Box::pin(std::future::ready(Ok(false)))
    }
    /// Lends nothing any more: the node stops.
    fn stop_lending(&self) -> Work<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A member of the cluster, as far as disks are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its number.
    pub node: NodeId,
    /// What it is called.
    pub name: String,
    /// Where it lends its disks, `HOST:PORT`; empty when it does not.
    pub bus: String,
}

/// A disk for a pool, with where it is.
#[derive(Clone)]
pub struct PoolDisk {
    /// The disk.
    pub disk: Arc<dyn OpenDisk>,
    /// Its stable id.
    pub id: String,
    /// What it is made of.
    pub media: MediaType,
    /// Enclosure.
    pub enclosure: Option<String>,
    /// Slot.
    pub slot: Option<String>,
    /// Waits to replace another one.
    pub spare: bool,
}

/// How to make a pool.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Bytes in a slab; absent for the default.
    pub slab_bytes: Option<u64>,
    /// Destroy what others left on the disks.
    pub overwrite_foreign: bool,
}

/// How to make a space.
#[derive(Clone, Debug)]
pub struct NewSpace {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Copies.
    pub resiliency: Resiliency,
    /// When space is taken.
    pub provisioning: Provisioning,
    /// Columns; absent for as many as leave one disk out, where that is possible.
    pub columns: Option<u16>,
    /// Bytes on one column before the next; absent for the default.
    pub interleave_bytes: Option<u64>,
    /// Whether every block gets a checksum; absent for yes.
    pub integrity: Option<bool>,
    /// A log for the writes of its volume.
    pub log: Option<NewLog>,
}

/// How to make the space of a log.
#[derive(Clone, Copy, Debug)]
pub struct NewLog {
    /// Size in bytes.
    pub size_bytes: u64,
    /// The pool that it lies in.
    pub pool: Uuid,
}

/// A space as its pool sees it.
#[derive(Clone, Debug)]
pub struct SpaceInfo {
    /// Its identity.
    pub guid: Uuid,
    /// Promise and redundancy.
    pub state: SpaceState,
    /// The volume whose log it holds; then it holds no volume.
    pub log_of: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that it takes in the pool, all copies counted.
    pub allocated_bytes: u64,
    /// Whether it needs more of the pool for new data, and there is none.
    pub out_of_room: bool,
    /// When space is taken.
    pub provisioning: Provisioning,
    /// Columns.
    pub columns: u16,
    /// Bytes on one column before the next.
    pub interleave_bytes: u64,
    /// Whether every block has a checksum.
    pub integrity: bool,
}

impl SpaceInfo {
    /// By its name and identity.
    #[must_use]
    pub fn called(&self) -> SpaceName {
        SpaceName { name: self.state.name.clone(), guid: Some(self.guid) }
    }

    /// The name of the space of its log, in whichever pool, if it has one.
    pub(crate) fn log_name(&self) -> String {
        log_name(&self.state.name, &self.guid.to_string())
    }
}

/// A pool now.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub guid: Uuid,
    /// Whether it serves.
    pub state: PoolState,
    /// Why not, or not wholly.
    pub reason: Option<String>,
    /// Bytes in a slab.
    pub slab_bytes: u64,
    /// Ownership epoch.
    pub epoch: u64,
    /// Its disks; `disk` is left for the node to fill in.
    pub members: Vec<PoolMember>,
    /// Those of them that have a vote on its metadata.
    pub voters: Vec<Uuid>,
    /// How many of these open it, where the witness votes with them.
    pub voters_needed: u32,
    /// Those of them that are not here and were given up: what they held is restored elsewhere, and they leave then.
    pub given_up: Vec<Uuid>,
    /// Its spaces.
    pub spaces: Vec<SpaceInfo>,
    /// Bytes that are kept from new data, for repair.
    pub reserved_bytes: u64,
    /// Whether copies are being restored now.
    pub repairing: bool,
    /// Bytes copied since it was opened, to restore copies and to bring returned disks up to date.
    pub copied_bytes: u64,
    /// The part of those that was copied to make its disks equally full.
    pub balanced_bytes: u64,
    /// Bytes that scrubs have read since it was opened.
    pub scrubbed_bytes: u64,
    /// So many bytes are copied in a second, however long clients wait.
    pub copy_floor: u64,
    /// Its scrub.
    pub scrub: Scrub,
    /// How evenly its disks are used.
    pub balance: Balance,
}

/// An open pool.
pub trait PoolHandle: Send + Sync + 'static {
    /// What it is now. Waits for nothing.
    fn info(&self) -> PoolInfo;
    /// What this node calls it from now on, whatever name its disks have.
    fn called(&self, name: &str);
    /// Its spaces by name. Waits for nothing, and costs little.
    fn space_names(&self) -> Vec<SpaceName> {
        self.info().spaces.iter().map(SpaceInfo::called).collect()
    }
    /// Whether it does nothing more until it is abandoned and opened again. Asked often: costs nothing.
    fn has_stopped(&self) -> bool;
    /// Whether that is because it has another owner, of a higher epoch.
    fn is_superseded(&self) -> bool {
        false
    }
    /// All it counts and knows of itself, for diagnosis. Waits for nothing.
    fn inspect(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
    /// What its disks are called, by their identities, for what it says of them.
    fn name_disks(&self, names: BTreeMap<Uuid, String>) {
        let _ = names;
    }
    /// What went through each of its spaces since it was opened, by name. Waits for nothing.
    fn space_counters(&self) -> Vec<(String, IoTotals)> {
        Vec::new()
    }
    /// Whether it has this disk open as a member, and not another one that says the same of itself.
    fn uses(&self, guid: Uuid, disk: &Arc<dyn OpenDisk>) -> bool;
    /// A member is back.
    fn returned(&self, guid: Uuid, disk: PoolDisk) -> Work<'_, ()>;
    /// A member is gone.
    fn lost(&self, guid: Uuid) -> Work<'_, ()>;
    /// Adds a disk and returns its identity in the pool.
    fn add(&self, disk: PoolDisk, overwrite_foreign: bool) -> Work<'_, Uuid>;
    /// Moves everything off a member that is there, or restores elsewhere what one held that is not; ends when that has
    /// begun. Refuses what could never end.
    fn drain(&self, guid: Uuid) -> Work<'_, ()>;
    /// Takes back that a member is to leave.
    fn keep(&self, guid: Uuid) -> Work<'_, ()>;
    /// Says of which node of the cluster a member is.
    fn set_node(&self, guid: Uuid, node: String) -> Work<'_, ()>;
    /// Takes an empty or lost member out.
    fn remove(&self, guid: Uuid) -> Work<'_, ()>;
    /// Gives up what a member held that is lost, and restores it elsewhere as far as there is room; ends when that has begun.
    fn give_up(&self, guid: Uuid) -> Work<'_, ()>;
    /// Makes a spare a member like the others, to take what `for_member` holds: one of its enclosure if there is one.
    /// Says whether there was any.
    fn use_spare(&self, for_member: Uuid) -> Work<'_, bool>;
    /// How much repair and scrubs may take from clients, from now on.
    fn set_upkeep(&self, upkeep: Upkeep);
    /// Restores redundancy now.
    fn repair(&self) -> Work<'_, ()>;
    /// Begins a scrub, unless one is under way.
    fn scrub(&self) -> Work<'_, ()>;
    /// What would make its disks equally full. Begins with it unless `dry_run`.
    fn rebalance(&self, dry_run: bool) -> Work<'_, BalancePlan>;
    /// Verifies all structures.
    fn check(&self, deep: bool) -> Work<'_, Vec<CheckFinding>>;
    /// Makes a space, with an empty volume on it.
    fn create_volume(&self, space: NewSpace) -> Work<'_, Arc<dyn VolumeHandle>>;
    /// Opens the volume of a space.
    fn open_volume<'a>(&'a self, name: &'a str) -> Work<'a, Arc<dyn VolumeHandle>>;
    /// Verifies all structures of the volume of a space, which is closed, and does what is told with them.
    fn verify_volume<'a>(&'a self, name: &'a str, deep: bool, repair: Repair) -> Work<'a, Vec<CheckFinding>>;
    /// Puts a log before a volume that is open and has none; its clients wait for a moment.
    fn add_log<'a>(&'a self, name: &'a str, log: NewLog) -> Work<'a, ()>;
    /// Brings everything in the log of a volume that is open to the volume, and deletes the log.
    fn remove_log<'a>(&'a self, name: &'a str) -> Work<'a, ()>;
    /// Deletes the spaces of logs that no open volume of this pool asks for any more, wherever they are: their pools were away
    /// when the logs were removed.
    fn delete_leftovers(&self) -> Quiet<'_> {
        Box::pin(std::future::ready(()))
    }
    /// Gives up the log of a volume, which is closed because the log is not there, with what was only in it.
    fn give_up_log<'a>(&'a self, name: &'a str) -> Work<'a, ()>;
    /// Grows a space.
    fn grow<'a>(&'a self, name: &'a str, size_bytes: u64) -> Work<'a, ()>;
    /// Gives the space of a volume another name, durably, whether the volume is open or not. It has no log.
    fn rename_space<'a>(&'a self, name: &'a str, new: &'a str) -> Work<'a, ()>;
    /// Destroys a space. Its volume is closed.
    fn delete_space<'a>(&'a self, name: &'a str) -> Work<'a, ()>;
    /// Makes everything durable and says so on the disks.
    fn close(&self) -> Work<'_, ()>;
    /// The same, and says on the disks, as the last thing that is written there, that any node may have the pool. What cannot be closed
    /// cleanly stays whose it is.
    fn close_and_release(&self) -> Work<'_, ()>;
    /// Lets go of the disks of a pool that has stopped, as in a crash, so that it can be opened again. Its volumes are closed.
    /// Fails while requests to its disks are under way.
    fn abandon(&self) -> Work<'_, ()>;
    /// Destroys the pool, whose members that are there are `disks`: they are empty afterwards.
    fn destroy(&self, disks: Vec<PoolDisk>) -> Work<'_, ()>;
}

/// Pools on disks.
pub trait PoolBackend: Send + Sync + 'static {
    /// Makes a pool.
    fn create(&self, new: NewPool, disks: Vec<PoolDisk>) -> Work<'_, Arc<dyn PoolHandle>>;
    /// Whose the pool `guid` is, as its disks have it. Asks only.
    fn owner(&self, guid: Uuid, disks: Vec<PoolDisk>) -> Work<'_, Whose>;
    /// Opens the pool `guid` from those of `disks` that belong to it, in the epoch of its owner. They are fenced.
    fn open(&self, guid: Uuid, epoch: u64, disks: Vec<PoolDisk>, told: OpenTold) -> Work<'_, Opened>;
}

/// What came of opening a pool.
pub enum Opened {
    /// It is open.
    Open(Arc<dyn PoolHandle>),
    /// Its disks, or its witness, know an owner of this epoch, and that of whoever wanted to open it is none above. Nothing was changed.
    OldEpoch(u64),
}

/// What a look at a closed volume does with what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Only tells.
    No,
    /// Tells what a repair would do.
    Plan,
    /// Repairs.
    Apply,
}

/// A volume that is open.
#[derive(Clone)]
pub struct OpenVolume {
    /// Its name.
    pub name: String,
    /// The volume.
    pub volume: Arc<dyn VolumeHandle>,
    /// Shares that may be on it, or on another of its name: what is open in them must not be given up before that is said.
    pub undecided: Vec<String>,
}

/// All parts.
#[derive(Clone)]
pub struct Backends {
    /// Threads.
    pub shards: Arc<dyn ShardBackend>,
    /// Disks.
    pub disks: Arc<dyn DiskBackend>,
    /// Pools and volumes.
    pub pools: Arc<dyn PoolBackend>,
    /// In which epochs pools are this node's.
    pub owner: Arc<dyn PoolOwner>,
    /// What keeps former owners from disks.
    pub fence: Arc<dyn DiskFence>,
    /// The cache that volumes share.
    pub cache: Arc<ReadCache>,
    /// Memory that the write caches of LUNs share.
    pub write_caches: write_cache::Budget,
    /// What nodes tell each other of the demand for QoS policies that they share.
    pub qos_exchange: Arc<Exchange>,
    /// Memory for the requests of all clients that are under way.
    pub budget: Budget,
    /// iSCSI.
    pub iscsi: Arc<dyn IscsiBackend>,
    /// SMB.
    pub smb: Arc<dyn SmbBackend>,
    /// Addresses that move with pools.
    pub addresses: Arc<dyn AddressBackend>,
    /// Users and groups, or why they cannot be read. The node serves without: nobody can log in to shares then.
    pub users: Result<Arc<Users>, Problem>,
}
