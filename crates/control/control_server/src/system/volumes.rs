//! Volumes of this machine: crate `volume` on a space of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control_api::{CheckFinding, LogMode, Problem, ReadCacheCounters, Severity, VolumeConfig, VolumeLog};
use file_store::FileStore;
use pool::{Space, Surroundings};
use read_cache::{CacheCounters, CachedDevice, ReadAhead, ReadCache};
use volume::{CheckOptions, Environment, FormatOptions, Volume};
use volume_format::CLUSTER;

use super::shards::SystemShards;
use super::storage::{NoLog, OpenStorage, Storage};
use crate::backend::{Repair, VolumeHandle, Work};
use crate::files;
use crate::images::parentage::Parentage;

/// Shards are given out in turn, so that several volumes use several cores.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// An open volume.
pub(super) struct SystemVolume {
    volume: Arc<Volume>,
    parentage: Arc<Parentage>,
    shard: usize,
    shards: Arc<SystemShards>,
    cached: Arc<CachedDevice>,
    storage: OpenStorage,
    space: Arc<Space>,
}

pub(super) fn environment(surroundings: &Surroundings) -> Environment {
    Environment { clock: surroundings.clock.clone(), entropy: surroundings.entropy.clone() }
}

impl SystemVolume {
    /// Makes an empty volume on a space and opens it.
    pub(super) async fn format(
        space: Arc<Space>,
        storage: Storage,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<Self>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = storage.name();
        let (options, environment) = (FormatOptions { name: name.clone() }, environment(surroundings));
        let made = shards.run(shard, move || async move {
            storage.format().await?;
            let storage = storage.open().await?;
            let made = Volume::format(storage.device.clone(), options, environment).await;
            if made.is_err() {
                // The first problem is the one to tell; its space goes.
                let _ = storage.close().await;
            }
            made.map_err(|error| files::problem(&error))?;
            Ok(storage)
        });
        let storage = made.await?;
        Self::open_on((space, storage), name, shard, shards, surroundings, cache).await
    }

    /// Opens the volume on a space.
    pub(super) async fn open(
        space: Arc<Space>,
        storage: Storage,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<Self>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = storage.name();
        let storage = shards.run(shard, move || async move { storage.open().await }).await?;
        Self::open_on((space, storage), name, shard, shards, surroundings, cache).await
    }

    async fn open_on(
        (space, storage): (Arc<Space>, OpenStorage),
        name: String,
        shard: usize,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<Self>, Problem> {
        let environment = environment(surroundings);
        let cached = Arc::new(CachedDevice::new(cache, storage.device.clone(), &name));
        // Until somebody says otherwise.
        cached.set_on(false);
        let (device, opened) = (Arc::clone(&cached), storage.clone());
        let volume = shards.run(shard, move || async move {
            let volume = Volume::open(device, environment).await.map_err(|error| files::problem(&error))?;
            opened.settle(&volume).await;
            if let Err(error) = files::unfinished::remove_all(&*volume).await {
                tracing::warn!(%error, "what unfinished puts left in a volume stays until it is opened again");
            }
            // Before anybody uses the volume, who could remove a parent whose children nobody has open.
            let parentage = Parentage::new(volume.clone());
            if let Err(error) = parentage.look().await {
                tracing::warn!(%error, "which images of a volume are parents is looked at again later");
            }
            parentage.keep_looking();
            Ok((volume, parentage))
        });
        match volume.await {
            Ok((volume, parentage)) => {
                Ok(Arc::new(Self { volume, parentage, shard, shards, cached, storage, space }))
            }
            Err(problem) => {
                // The first problem is the one to tell.
                let _ = shards.run(shard, move || async move { storage.close().await }).await;
                Err(problem)
            }
        }
    }
}

impl SystemVolume {
    /// It has another name from now on.
    pub(super) fn renamed(&self, name: &str) {
        self.storage.renamed(name);
        self.cached.rename(name);
    }

    /// Whether it has a log, working or not.
    pub(super) fn has_log(&self) -> bool {
        self.storage.device.has_log()
    }

    /// Whether the space of a log that is there may be deleted: nobody asks for it, nor will after the next opening.
    pub(super) fn wants_no_log(&self) -> bool {
        !self.storage.device.has_log() && !self.storage.device.is_unsure()
    }

    /// Whether there was a log's space at the opening that nobody asks for.
    pub(super) fn has_leftover(&self) -> bool {
        self.storage.has_leftover
    }

    /// Puts a log before it, while it is in use.
    pub(super) async fn add_log(&self, log: Arc<Space>) -> Result<(), NoLog> {
        let (volume, storage) = (self.volume.clone(), self.storage.clone());
        let added = self.shards.run(self.shard, move || async move {
            // A problem of the shards themselves leaves open what became of the log.
            Ok(storage.add_log(&volume, log).await)
        });
        added.await.unwrap_or_else(|problem| Err(NoLog { problem, space_is_free: false }))
    }

    /// Takes its log away, while it is in use, with all that is in it on the volume.
    pub(super) async fn remove_log(&self) -> Result<(), Problem> {
        let (volume, storage) = (self.volume.clone(), self.storage.clone());
        self.shards.run(self.shard, move || async move { storage.remove_log(&volume).await }).await
    }
}

/// Verifies the volume on a space that nobody has open.
pub(super) async fn verify(
    storage: Storage,
    environment: Environment,
    deep: bool,
    repair: Repair,
) -> Result<Vec<CheckFinding>, Problem> {
    let repair = match repair {
        Repair::No => volume::Repair::No,
        Repair::Plan => volume::Repair::Plan,
        Repair::Apply => volume::Repair::Apply,
    };
    let name = storage.name();
    let storage = storage.open().await?;
    let found = volume::verify(storage.device.clone(), environment, CheckOptions { deep, repair }).await;
    storage.close().await?;
    let found = found.map_err(|error| files::problem(&error))?;
    Ok(found.into_iter().map(|found| finding(&name, found)).collect())
}

/// A finding of a volume's check.
fn finding(volume: &str, finding: volume::Finding) -> CheckFinding {
    CheckFinding {
        severity: match finding.severity {
            volume::Severity::Critical => Severity::Critical,
            volume::Severity::Error => Severity::Error,
            volume::Severity::Warning => Severity::Warning,
        },
        structure: finding.structure.into(),
        place: format!("volume {volume}, {}", finding.place),
        detail: finding.detail,
        action: finding.repair,
    }
}

/// Counters as the API shows them.
pub(crate) fn read_counters(counters: &CacheCounters) -> ReadCacheCounters {
    ReadCacheCounters {
        hits: counters.hits,
        misses: counters.misses,
        hit_bytes: counters.hit_bytes,
        miss_bytes: counters.miss_bytes,
        evicted_pages: counters.evicted_pages,
        resident_bytes: counters.resident_bytes,
        ahead_bytes: counters.ahead_bytes,
        ahead_used_bytes: counters.ahead_used_bytes,
        ahead_wasted_bytes: counters.ahead_wasted_bytes,
    }
}

impl VolumeHandle for SystemVolume {
    fn store(&self) -> Arc<dyn FileStore> {
        self.volume.clone()
    }

    fn shard(&self) -> usize {
        self.shard
    }

    fn parentage(&self) -> Option<Arc<Parentage>> {
        Some(self.parentage.clone())
    }

    fn guid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.volume.guid())
    }

    fn cluster(&self) -> u32 {
        CLUSTER as u32
    }

    fn check(&self, deep: bool) -> Work<'_, Vec<CheckFinding>> {
        Box::pin(async move {
            let volume = self.volume.clone();
            let findings = self.shards.run(self.shard, move || async move {
                let found = if deep { volume.check_deep().await } else { volume.check().await };
                found.map_err(|error| files::problem(&error))
            });
            let name = self.space.name();
            Ok(findings.await?.into_iter().map(|found| finding(&name, found)).collect())
        })
    }

    fn log(&self) -> Option<VolumeLog> {
        self.storage.log()
    }

    fn can_hold(&self) -> u64 {
        self.space.can_hold()
    }

    fn can_hold_behind(&self, from: u64) -> u64 {
        self.space.can_hold_behind(from)
    }

    fn why_stopped(&self) -> Option<String> {
        let log = || {
            let log = self.storage.log().filter(|log| log.mode == LogMode::Stopped)?;
            Some(format!("its log: {}", log.reason.unwrap_or_default()))
        };
        self.volume.why_stopped().or_else(log)
    }

    fn has_given_up(&self) -> bool {
        self.volume.has_given_up()
    }

    fn lacks_space(&self) -> bool {
        self.volume.lacks_space()
    }

    fn set_cache(&self, policy: &VolumeConfig) {
        let mode = match policy.read_ahead {
            control_api::ReadAhead::None => ReadAhead::None,
            control_api::ReadAhead::Adaptive => ReadAhead::Adaptive,
            control_api::ReadAhead::Fixed(bytes) => ReadAhead::Fixed(bytes),
        };
        // What stays as it is keeps its streams.
        if self.cached.read_ahead() != mode {
            self.cached.set_read_ahead(mode);
        }
        if self.cached.is_on() != policy.read_cache {
            self.cached.set_on(policy.read_cache);
        }
    }

    fn counters(&self) -> Option<observe::IoTotals> {
        Some(self.volume.totals())
    }

    fn cache(&self) -> Option<ReadCacheCounters> {
        Some(read_counters(&self.cached.stats().counters()))
    }

    fn close(&self) -> Work<'_, ()> {
        let (volume, storage) = (self.volume.clone(), self.storage.clone());
        let parentage = self.parentage.clone();
        Box::pin(self.shards.run(self.shard, move || async move {
            parentage.let_go();
            let closed = volume.close().await.map_err(|error| files::problem(&error));
            let emptied = storage.close().await;
            closed.and(emptied)
        }))
    }
}
