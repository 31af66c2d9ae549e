//! Volumes of this machine: crate `volume` on a space of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control_api::{CheckFinding, Problem, ReadCacheCounters, Severity, VolumeConfig};
use file_store::FileStore;
use pool::{Space, Surroundings};
use read_cache::{CacheCounters, CachedDevice, ReadAhead, ReadCache};
use volume::{CheckOptions, Environment, FormatOptions, Volume};
use volume_format::CLUSTER;

use super::shards::SystemShards;
use crate::backend::{Repair, VolumeHandle, Work};
use crate::files;

/// Shards are given out in turn, so that several volumes use several cores.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// An open volume.
pub(super) struct SystemVolume {
    volume: Arc<Volume>,
    name: String,
    shard: usize,
    shards: Arc<SystemShards>,
    cached: Arc<CachedDevice>,
}

pub(super) fn environment(surroundings: &Surroundings) -> Environment {
    Environment { clock: surroundings.clock.clone(), entropy: surroundings.entropy.clone() }
}

impl SystemVolume {
    /// Makes an empty volume on a space and opens it.
    pub(super) async fn format(
        space: Arc<Space>,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = space.name();
        let options = FormatOptions { name };
        let (device, environment) = (space.clone(), environment(surroundings));
        let made = shards.run(shard, move || async move {
            Volume::format(device, options, environment).await.map_err(|error| files::problem(&error))
        });
        made.await?;
        Self::open_on(space, shard, shards, surroundings, cache).await
    }

    /// Opens the volume on a space.
    pub(super) async fn open(
        space: Arc<Space>,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::open_on(space, shard, shards, surroundings, cache).await
    }

    async fn open_on(
        space: Arc<Space>,
        shard: usize,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
        cache: &Arc<ReadCache>,
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let (name, environment) = (space.name(), environment(surroundings));
        let cached = Arc::new(CachedDevice::new(cache, space, &name));
        // Until somebody says otherwise.
        cached.set_on(false);
        let device = Arc::clone(&cached);
        let volume = shards.run(shard, move || async move {
            Volume::open(device, environment).await.map_err(|error| files::problem(&error))
        });
        let volume = volume.await?;
        Ok(Arc::new(Self { volume, name, shard, shards, cached }))
    }
}

/// Verifies the volume on a space that nobody has open.
pub(super) async fn verify(
    space: Arc<Space>,
    environment: Environment,
    deep: bool,
    repair: Repair,
) -> Result<Vec<CheckFinding>, Problem> {
    let repair = match repair {
        Repair::No => volume::Repair::No,
        Repair::Plan => volume::Repair::Plan,
        Repair::Apply => volume::Repair::Apply,
    };
    let name = space.name();
    let found = volume::verify(space, environment, CheckOptions { deep, repair }).await;
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
            Ok(findings.await?.into_iter().map(|found| finding(&self.name, found)).collect())
        })
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

    fn cache(&self) -> Option<ReadCacheCounters> {
        Some(read_counters(&self.cached.stats().counters()))
    }

    fn close(&self) -> Work<'_, ()> {
        let volume = self.volume.clone();
        Box::pin(self.shards.run(self.shard, move || async move {
            volume.close().await.map_err(|error| files::problem(&error))
        }))
    }
}
