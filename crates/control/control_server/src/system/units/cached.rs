//! Write caches of units: what is written lies in memory and in an overflow file, and never reaches what the unit is made of.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::Device;
use control_api::{Code, LunConfig, LunWriteCache, LunWriteCacheNow, Problem, WriteCachePlace, human_bytes};
use file_store::{FileStore, Share};
use scsi_disk::LogicalUnit;
use uuid::Uuid;
use write_cache::{Budget, Options, WriteCache};

use super::{SystemUnits, overflow_file, same_volume};
use crate::backend::{CacheRoom, VolumeHandle};

/// What is shared of the file of a unit whose writes do not reach it: nobody changes what they are laid over.
pub(super) const READ: Share = Share { read: true, write: false, delete: false };

/// How a unit's writes are kept.
#[derive(Clone)]
pub(super) struct Caching {
    wanted: LunWriteCache,
    lun: Option<Uuid>,
    budget: Budget,
}

/// A write cache that is in use.
pub(super) struct Cached {
    pub(super) cache: Arc<WriteCache>,
    /// The path of its overflow file.
    overflow: Option<String>,
}

impl Caching {
    pub(super) fn of(lun: &LunConfig, budget: &Budget) -> Option<Self> {
        let wanted = lun.write_cache_in.clone()?;
        Some(Self { wanted, lun: lun.guid, budget: budget.clone() })
    }

    /// Begins one over `base`, with an empty overflow file. On the shard of the volume.
    pub(super) async fn begin(&self, store: &Arc<dyn FileStore>, base: Device) -> Result<Cached, Problem> {
        let size = base.size();
        // What gathers writes to large ones is the same for all disks; the index, which stays in memory, is not.
        let of_index = match self.wanted.place {
            WriteCachePlace::OwnDisk => write_cache::index_bytes(size),
            _ => 0,
        };
        let memory = self.wanted.memory().saturating_add(of_index);
        let mut options = Options::ram(memory);
        let overflow = self.overflow_path();
        if let Some(path) = &overflow {
            let file = overflow_file::begin(&**store, path).await?;
            // A slab that is written anew has a new place before its former one is free.
            let bytes =
                self.wanted.overflow_bytes.unwrap_or_else(|| size.saturating_add(size / 4) + (64 << 20));
            options = Options::overflowing(memory, file, bytes);
        }
        let cache = WriteCache::new(base, &self.budget, options).map_err(|no_room| {
            let detail = format!(
                "its write cache needs {} of memory for itself, and {} of the {} for write caches are left",
                human_bytes(no_room.wanted),
                human_bytes(no_room.left),
                human_bytes(self.budget.total())
            );
            Problem::new(Code::NoSpace, detail).todo(
                "Give write caches more memory (`cache.write_bytes` of the configuration), or this one less.",
            )
        })?;
        Ok(Cached { cache: Arc::new(cache), overflow })
    }

    fn overflow_path(&self) -> Option<String> {
        Some(overflow_file::path_of(self.wanted.overflow.as_ref()?, self.lun.unwrap_or_default()))
    }
}

impl Cached {
    pub(super) fn now(&self) -> LunWriteCacheNow {
        let status = self.cache.status();
        LunWriteCacheNow {
            ram_bytes: status.ram_bytes,
            ram_high_bytes: status.ram_high_bytes,
            ram_limit_bytes: status.ram_limit_bytes,
            overflow_bytes: status.overflow_bytes,
            overflow_written_bytes: status.overflow_written_bytes,
            overflow_writes: status.overflow_writes,
            absorbed_writes: status.absorbed_writes,
            absorbed_bytes: status.absorbed_bytes,
            read_ram_bytes: status.read_ram_bytes,
            read_overflow_bytes: status.read_overflow_bytes,
            read_base_bytes: status.read_base_bytes,
            discarded_bytes: status.discarded_bytes,
            waited: status.waited,
            refused: status.refused,
            problem: status.problem,
            overflow_is_full: status.overflow_is_full,
            wrote: Vec::new(),
        }
    }

    /// Gives all of it up, and removes its overflow file: nobody uses it any more. Waits for what is under way to that file.
    pub(super) async fn end(self, store: &dyn FileStore) {
        let Self { cache, overflow } = self;
        cache.end().await;
        drop(cache);
        if let Some(path) = overflow {
            overflow_file::remove(store, &path).await;
        }
    }
}

impl SystemUnits {
    /// Turns the write cache of a unit on or off, on the shard of its file: what was cached is flushed.
    pub(super) async fn set_write_cache(
        &self,
        lun: &LunConfig,
        unit: Arc<LogicalUnit>,
    ) -> Result<(), Problem> {
        if lun.write_cache_in.is_some() {
            return Ok(());
        }
        let same = unit.write_cache_policy() == (lun.write_cache, lun.initiator_write_cache);
        if same && !unit.owes_its_mode() {
            return Ok(());
        }
        let shard = {
            let state = self.state.lock();
            let volume = state.units.get(&lun.name).and_then(|entry| entry.volume.as_ref());
            volume.map_or(0, |volume| volume.shard())
        };
        let (name, on, by_initiators) = (lun.name.clone(), lun.write_cache, lun.initiator_write_cache);
        let set = self.shards.run(shard, move || async move {
            if let Err(error) = unit.set_write_cache(on, by_initiators).await {
                tracing::warn!(lun = name, %error, "the write cache was changed, but not all of it is durable");
            }
            Ok(())
        });
        set.await
    }

    /// Write caches of units that keep writes from their files.
    pub(super) fn caches_now(&self) -> Vec<(String, LunWriteCacheNow)> {
        let state = self.state.lock();
        let now = state.units.iter().map(|(name, entry)| {
            let wrote = entry.unit.would_lose_writes();
            Some((name.clone(), LunWriteCacheNow { wrote, ..entry.disk.cache_now()? }))
        });
        now.flatten().collect()
    }

    /// What memory there is for write caches.
    pub(super) fn cache_room_now(&self) -> CacheRoom {
        CacheRoom { total_bytes: self.caches.total(), left_bytes: self.caches.left() }
    }

    /// The folder that is to be swept of overflow files before this LUN has its own there, and the LUNs that others in it may be of: with the
    /// first of the folder since the volume was opened.
    pub(super) fn to_be_swept(
        &self,
        lun: &LunConfig,
        volume: &Arc<dyn VolumeHandle>,
    ) -> Option<(String, BTreeSet<Uuid>)> {
        let folder = |cache: &Option<LunWriteCache>| cache.as_ref()?.overflow.clone();
        let wanted = folder(&lun.write_cache_in)?;
        let state = self.state.lock();
        let others = state.units.values().filter(|entry| same_volume(entry.volume.as_ref(), Some(volume)));
        if others.into_iter().any(|entry| folder(&entry.identity.write_cache_in).as_ref() == Some(&wanted)) {
            return None;
        }
        let known = state.config.as_ref()?.config.luns.iter().filter_map(|lun| lun.guid);
        Some((wanted, known.chain(lun.guid).collect()))
    }
}
