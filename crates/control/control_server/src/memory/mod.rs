//! Parts in memory, for tests of the node's logic and of the command line. Not in a production build.
//!
//! They keep promises about *who is told what and when*, not about data: a pool here is a list of members, a
//! volume a tree of byte vectors. What is on a [`Machine`] outlives the nodes that run on it, as disks do.

mod addresses;
mod fence;
mod iscsi;
mod owner;
mod pools;
mod smb;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control_api::{Code, DiskConfig, FaultKind, FaultRule, Problem};
use file_store::FileStore;
use observe::IoTotals;
use parking_lot::Mutex;
use tcp_service::{Budget, ShardJob, Spawner};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::backend::{Backends, DiskBackend, DiskContent, FoundDisk, OpenDisk, ShardBackend, Work};
pub use addresses::{INTERFACE, MemoryAddresses};
pub use iscsi::MemoryIscsi;
use pools::PoolState;
use shard_runtime::SystemClock;
pub use smb::MemorySmb;

/// A machine with disks, and what is on them.
#[derive(Default)]
pub struct Machine {
    /// Block devices that discovery finds.
    pub found: Mutex<Vec<FoundDisk>>,
    /// How many more times the disk with this id is in use by another process when it is opened.
    pub busy: Mutex<BTreeMap<String, u32>>,
    disks: Mutex<BTreeMap<String, Arc<MemoryDisk>>>,
    pools: Mutex<BTreeMap<Uuid, Arc<Mutex<PoolState>>>>,
    /// Its network.
    pub addresses: Arc<MemoryAddresses>,
    guids: Mutex<u128>,
    epochs: Mutex<BTreeMap<Uuid, u64>>,
    /// Who had a pool last, where that is none of the nodes here: by what pools know it, and its name.
    pub strangers: Mutex<BTreeMap<Uuid, (Uuid, String)>>,
    /// Disks, by their ids, that nodes cannot be kept from.
    pub unfenced: Mutex<BTreeSet<String>>,
    /// The node, by its data directory, that had a pool with such disks last, and whether it has let go of it.
    had: Mutex<BTreeMap<Uuid, (PathBuf, bool)>>,
    /// Disks that the node with this data directory does not reach, by their ids.
    hidden: Mutex<BTreeMap<PathBuf, BTreeSet<String>>>,
    /// Disks that the node with this data directory finds and cannot read, by their ids.
    unreadable: Mutex<BTreeMap<PathBuf, BTreeSet<String>>>,
    /// Nodes, by their data directories, that cannot open pools though they reach the disks.
    refusing: Mutex<BTreeSet<PathBuf>>,
    /// Disks that do not answer, by their ids: opening a pool with one does not end while it is here.
    hangs: watch::Sender<BTreeSet<String>>,
    /// Those that do not even say what is on them.
    mute: watch::Sender<BTreeSet<String>>,
}

impl Machine {
    /// The parts for a node on this machine. `data` is the node's data directory.
    pub fn backends(self: &Arc<Self>, data: &Path) -> Backends {
        Backends {
            shards: Arc::new(MemoryShards::start()),
            disks: Arc::new(Disks { machine: self.clone(), node: data.to_owned() }),
            pools: Arc::new(pools::Pools { machine: self.clone(), node: data.to_owned() }),
            owner: Arc::new(owner::Epochs(self.clone())),
            fence: Arc::new(fence::Fence(self.clone())),
            cache: read_cache::ReadCache::new(0),
            write_caches: write_cache::Budget::new(0),
            qos_exchange: Arc::default(),
            budget: Budget::default(),
            iscsi: Arc::new(MemoryIscsi::default()),
            smb: Arc::new(MemorySmb::default()),
            addresses: self.addresses.clone(),
            users: crate::system::users(data, Arc::new(SystemClock::new())),
        }
    }

    /// The disks of all pools know an owner of this epoch.
    pub fn set_epochs(&self, epoch: u64) {
        self.pools.lock().values().for_each(|pool| pool.lock().epoch = epoch);
    }

    /// These disks, and no others, are such that the node with this data directory does not reach them.
    pub fn hide(&self, data: &Path, ids: &[&str]) {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.hidden.lock().insert(data.to_owned(), ids);
    }

    /// The node with this data directory cannot read these disks, and no others, though it finds them.
    pub fn spoil(&self, data: &Path, ids: &[&str]) {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.unreadable.lock().insert(data.to_owned(), ids);
    }

    /// The node with this data directory cannot open pools for now, or can again.
    pub fn refuse(&self, data: &Path, refuses: bool) {
        let mut refusing = self.refusing.lock();
        if refuses {
            refusing.insert(data.to_owned())
        } else {
            refusing.remove(data)
        };
    }

    /// Puts something on a disk, as other software would.
    pub fn write_foreign(&self, id: &str, what: &str) {
        *self.disk(id, 0).content.lock() = DiskContent::Foreign(what.into());
    }

    /// Gives a file of a volume one more name, as a client of a share would.
    pub fn link(&self, volume: &str, from: &str, to: &str) -> Result<(), Problem> {
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        let store = pools.iter().find_map(|pool| pool.lock().store(volume));
        let Some(store) = store else { return Err(Problem::new(Code::NotFound, "no such volume")) };
        let linked = async move {
            let (file, _) = crate::files::resolve(&*store, from).await?;
            let to = crate::files::parent(&*store, to, false).await?;
            store.link(file, to, false).await.map_err(|error| crate::files::problem(&error))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.map_err(|error| Problem::new(Code::Internal, error.to_string()))?.block_on(linked)
    }

    /// Pools with these disks cannot be opened for now.
    pub fn hang(&self, ids: &[&str]) {
        self.hangs.send_replace(ids.iter().map(|id| (*id).to_owned()).collect());
    }

    /// The next so many openings of a volume fail, though its pool is open.
    pub fn refuse_openings(&self, volume: &str, times: u32) {
        for pool in self.pools.lock().values() {
            pool.lock().refusals.insert(volume.to_owned(), times);
        }
    }

    /// The file systems of all disks of pools become full, or have room again.
    pub fn set_full(&self, full: bool) {
        self.pools.lock().values().for_each(|pool| pool.lock().set_full(full));
    }

    /// Volumes of this name do not say how much of them is in use for now, or do again.
    pub fn silence(&self, volume: &str, silent: bool) {
        let pools: Vec<_> = self.pools.lock().values().cloned().collect();
        pools.iter().filter_map(|pool| pool.lock().store(volume)).for_each(|store| store.silence(silent));
    }

    /// These disks do not say what is on them for now, and requests wait for them.
    pub fn mute(&self, ids: &[&str]) {
        self.mute.send_replace(ids.iter().map(|id| (*id).to_owned()).collect());
    }

    /// Ends when none of these disks hangs.
    async fn answers(&self, ids: &[String]) {
        let answers = |hangs: &BTreeSet<String>| ids.iter().all(|id| !hangs.contains(id));
        // The sender lives as long as the machine.
        let _ = self.hangs.subscribe().wait_for(answers).await;
    }

    fn disk(&self, id: &str, size: u64) -> Arc<MemoryDisk> {
        let new = || {
            Arc::new(MemoryDisk {
                id: id.to_owned(),
                mute: self.mute.subscribe(),
                size: Mutex::new(size),
                content: Mutex::new(DiskContent::Empty),
                faults: Mutex::default(),
            })
        };
        let disk = self.disks.lock().entry(id.to_owned()).or_insert_with(new).clone();
        if size > 0 {
            *disk.size.lock() = size;
        }
        disk
    }

    fn guid(&self) -> Uuid {
        let mut last = self.guids.lock();
        *last += 1;
        Uuid::from_u128(*last)
    }
}

/// Work that is done at once.
pub(crate) fn now<'a, T: Send + 'a>(result: Result<T, Problem>) -> Work<'a, T> {
    Box::pin(std::future::ready(result))
}

struct Disks {
    machine: Arc<Machine>,
    node: PathBuf,
}

impl DiskBackend for Disks {
    fn discover(&self) -> Work<'_, Vec<FoundDisk>> {
        let mut found = self.machine.found.lock().clone();
        if let Some(hidden) = self.machine.hidden.lock().get(&self.node) {
            found.retain(|disk| !hidden.contains(&disk.id));
        }
        now(Ok(found))
    }

    fn reach<'a>(&'a self, disk: &'a DiskConfig) -> Work<'a, FoundDisk> {
        now(Err(Problem::new(Code::Unsupported, format!("disk {}: there is no network here.", disk.id))))
    }

    fn open<'a>(&'a self, FoundDisk { id, path, .. }: &'a FoundDisk) -> Work<'a, Arc<dyn OpenDisk>> {
        if let Some(left) = self.machine.busy.lock().get_mut(id).filter(|left| **left > 0) {
            *left -= 1;
            return now(Err(Problem::new(Code::InUse, format!("disk {id}: in use by another process."))));
        }
        if self.machine.unreadable.lock().get(&self.node).is_some_and(|ids| ids.contains(id)) {
            return now(Err(Problem::new(Code::Io, format!("disk {id}: input/output error."))));
        }
        let size = std::fs::metadata(path).map_or(1 << 30, |meta| meta.len());
        let disk: Arc<dyn OpenDisk> = self.machine.disk(id, size);
        now(Ok(disk))
    }
}

pub(crate) struct MemoryDisk {
    id: String,
    mute: watch::Receiver<BTreeSet<String>>,
    size: Mutex<u64>,
    pub(crate) content: Mutex<DiskContent>,
    faults: Mutex<Vec<FaultRule>>,
}

impl OpenDisk for MemoryDisk {
    fn size(&self) -> u64 {
        *self.size.lock()
    }

    fn counters(&self) -> Option<IoTotals> {
        let is_mute = self.mute.borrow().contains(&self.id);
        is_mute.then(|| IoTotals { in_flight: 1, ..IoTotals::default() })
    }

    fn set_faults(&self, rules: &[FaultRule]) -> Result<(), Problem> {
        *self.faults.lock() = rules.to_vec();
        Ok(())
    }

    fn probe(&self) -> Work<'_, DiskContent> {
        let mut mute = self.mute.clone();
        Box::pin(async move {
            // The machine outlives its disks.
            let _ = mute.wait_for(|mute| !mute.contains(&self.id)).await;
            if self.faults.lock().iter().any(|rule| rule.kind == FaultKind::Vanish) {
                return Err(Problem::new(Code::Io, "device is gone"));
            }
            Ok(self.content.lock().clone())
        })
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// One thread with a local task set.
struct MemoryShards(mpsc::UnboundedSender<ShardJob>);

impl MemoryShards {
    fn start() -> Self {
        let (send, mut receive) = mpsc::unbounded_channel::<ShardJob>();
        std::thread::spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                while let Some(task) = receive.recv().await {
                    tokio::task::spawn_local(task());
                }
            });
        });
        Self(send)
    }
}

impl Spawner for MemoryShards {
    fn shards(&self) -> usize {
        1
    }

    fn spawn(&self, _shard: usize, task: ShardJob) {
        let _ = self.0.send(task);
    }
}

impl ShardBackend for MemoryShards {
    fn engine(&self) -> String {
        "memory".into()
    }

    fn stop(&self) -> Work<'_, ()> {
        now(Ok(()))
    }
}

/// So that the compiler checks that what crosses threads may.
#[expect(dead_code, reason = "compile-time check only")]
fn futures_cross_threads(node: &crate::Node) {
    fn check(_: impl Future + Send) {}
    check(node.status());
}
