//! Pools of this machine: crate `pool` behind the node's seam.
//!
//! A pool's tasks live on its *home* shard, where everything that changes the pool runs; its spaces serve all
//! shards. What a pool says of itself needs no shard.

mod describe;
mod handle;
mod room;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use block_device::Device;
use control_api::{Code, MediaType, NodeDisk, Problem};
use parking_lot::Mutex;
use pool::{
    CreateOptions, DiskDescription, Epoch, Guid, NewDisk, OpenOptions, Pool, PoolErrorKind, Surroundings,
};
use read_cache::ReadCache;
use shard_runtime::{Clock, SystemEntropy};
use uuid::Uuid;

use super::disks::SystemDisk;
use super::shards::SystemShards;
use super::witness::Ownership;
use crate::backend::{
    NewPool, OpenTold, Opened as PoolOpened, PoolBackend, PoolDisk, PoolHandle, Whose, Work,
};
pub(super) use describe::{finding, problem};
use handle::SystemPool;

/// Bytes in a slab unless told otherwise: small enough that a thin volume grows in fine steps, large enough
/// that the map of a full disk stays small.
const SLAB_BYTES: u64 = 64 << 20;

/// Pools on disks of this machine.
pub(super) struct SystemPools {
    shards: Arc<SystemShards>,
    surroundings: Surroundings,
    /// What all volumes share.
    cache: Arc<ReadCache>,
    /// Homes are given out in turn.
    next: AtomicUsize,
    opened: Opened,
}

/// Pools that were opened: the log of a volume may lie in another one than the volume.
type Opened = Arc<Mutex<Vec<Weak<SystemPool>>>>;

impl SystemPools {
    /// Pools that live on these shards.
    pub(super) fn new(
        shards: Arc<SystemShards>,
        clock: Arc<dyn Clock>,
        ownership: Ownership,
        cache: Arc<ReadCache>,
    ) -> Self {
        let surroundings =
            Surroundings { clock, entropy: Arc::new(SystemEntropy), witness: Arc::new(ownership) };
        Self { shards, surroundings, cache, next: AtomicUsize::new(0), opened: Opened::default() }
    }

    fn handle(&self, pool: Pool, home: usize) -> Arc<dyn PoolHandle> {
        let (shards, surroundings) = (self.shards.clone(), self.surroundings.clone());
        let pool = SystemPool::start(
            Arc::new(pool),
            home,
            shards,
            surroundings,
            self.cache.clone(),
            self.opened.clone(),
        );
        let mut opened = self.opened.lock();
        opened.retain(|pool| pool.strong_count() > 0);
        opened.push(Arc::downgrade(&pool));
        pool
    }
}

/// The device of a disk that this backend's disks gave out.
pub(super) fn device(disk: &PoolDisk) -> Result<Device, Problem> {
    match disk.disk.clone().as_any().downcast::<SystemDisk>() {
        Ok(disk) => Ok(disk.device()),
        Err(_) => Err(Problem::new(Code::Internal, format!("disk {} is not one of this machine", disk.id))),
    }
}

/// A disk as the pool wants to know it.
pub(super) fn new_disk(disk: &PoolDisk) -> Result<NewDisk, Problem> {
    let media = match disk.media {
        MediaType::Unspecified => 0,
        MediaType::Ssd => 1,
        MediaType::Hdd => 2,
    };
    Ok(NewDisk {
        device: device(disk)?,
        name: disk.id.clone(),
        description: DiskDescription {
            media,
            enclosure: disk.enclosure.clone().unwrap_or_default(),
            slot: disk.slot.clone().unwrap_or_default(),
            node: NodeDisk::parse(&disk.id).map(|disk| disk.node.to_owned()).unwrap_or_default(),
            model: String::new(),
            serial: String::new(),
        },
    })
}

impl PoolBackend for SystemPools {
    fn create(&self, new: NewPool, disks: Vec<PoolDisk>) -> Work<'_, Arc<dyn PoolHandle>> {
        let home = self.next.fetch_add(1, Ordering::Relaxed);
        let surroundings = self.surroundings.clone();
        Box::pin(async move {
            let mut active = Vec::new();
            let mut spares = Vec::new();
            for disk in &disks {
                if disk.spare { spares.push(new_disk(disk)?) } else { active.push(new_disk(disk)?) }
            }
            let options = CreateOptions {
                name: new.name,
                slab_size: new.slab_bytes.unwrap_or(SLAB_BYTES),
                overwrite_foreign: new.overwrite_foreign,
            };
            let pool = self.shards.run(home, move || async move {
                let pool =
                    Pool::create(active, options, surroundings).await.map_err(|error| problem(&error))?;
                for spare in spares {
                    let added = pool.add_disk(spare, true, new.overwrite_foreign).await;
                    added.map_err(|error| problem(&error))?;
                }
                Ok(pool)
            });
            Ok(self.handle(pool.await?, home))
        })
    }

    fn owner(&self, guid: Uuid, disks: Vec<PoolDisk>) -> Work<'_, Whose> {
        let node = self.surroundings.witness.node();
        Box::pin(async move {
            let devices: Vec<Device> = disks.iter().map(device).collect::<Result<_, _>>()?;
            let guid = Guid(guid.into_bytes());
            let found = self.shards.run(0, move || async move {
                pool::owner_of(guid, &devices).await.map_err(|error| problem(&error))
            });
            Ok(match found.await? {
                Some(owner) if Some(owner.node) == node.map(|node| node.id) => Whose::Own,
                Some(owner) if !owner.released => {
                    Whose::Another { identity: Uuid::from_bytes(owner.node.0), name: owner.name }
                }
                _ => Whose::Free,
            })
        })
    }

    fn open(&self, guid: Uuid, epoch: u64, disks: Vec<PoolDisk>, told: OpenTold) -> Work<'_, PoolOpened> {
        let home = self.next.fetch_add(1, Ordering::Relaxed);
        let surroundings = self.surroundings.clone();
        Box::pin(async move {
            let devices: Vec<Device> = disks.iter().map(device).collect::<Result<_, _>>()?;
            let OpenTold { accept_loss, take_over, .. } = told;
            let options = OpenOptions { read_only: false, accept_loss, take_over, epoch: Some(Epoch(epoch)) };
            let guid = Guid(guid.into_bytes());
            let opened = self.shards.run(home, move || async move {
                match Pool::open(guid, devices, options, surroundings).await {
                    Ok(pool) => Ok(Ok(pool)),
                    Err(error) => match error.kind() {
                        PoolErrorKind::OldEpoch(known) => Ok(Err(known)),
                        _ => Err(problem(&error)),
                    },
                }
            });
            Ok(match opened.await? {
                Ok(pool) => PoolOpened::Open(self.handle(pool, home)),
                Err(known) => PoolOpened::OldEpoch(known.0),
            })
        })
    }
}
