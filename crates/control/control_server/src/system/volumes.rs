//! Volumes of this machine: crate `volume` on a space of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control_api::{CheckFinding, Code, Problem, Severity};
use file_store::FileStore;
use pool::{Space, Surroundings};
use volume::{Environment, FormatOptions, Volume};
use volume_format::CLUSTER;

use super::shards::SystemShards;
use crate::backend::{VolumeHandle, Work};
use crate::files;

/// Shards are given out in turn, so that several volumes use several cores.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// An open volume.
pub(super) struct SystemVolume {
    volume: Arc<Volume>,
    name: String,
    shard: usize,
    shards: Arc<SystemShards>,
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
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = space.name();
        let options = FormatOptions { name };
        let (device, environment) = (space.clone(), environment(surroundings));
        let made = shards.run(shard, move || async move {
            Volume::format(device, options, environment).await.map_err(|error| files::problem(&error))
        });
        made.await?;
        Self::open_on(space, shard, shards, surroundings).await
    }

    /// Opens the volume on a space.
    pub(super) async fn open(
        space: Arc<Space>,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let shard = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::open_on(space, shard, shards, surroundings).await
    }

    async fn open_on(
        space: Arc<Space>,
        shard: usize,
        shards: Arc<SystemShards>,
        surroundings: &Surroundings,
    ) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let name = space.name();
        let environment = environment(surroundings);
        let volume = shards.run(shard, move || async move {
            Volume::open(space, environment).await.map_err(|error| files::problem(&error))
        });
        let volume = volume.await?;
        Ok(Arc::new(Self { volume, name, shard, shards }))
    }
}

/// A finding of a volume's check.
pub(super) fn finding(finding: volume::Finding, place: &str) -> CheckFinding {
    CheckFinding {
        severity: match finding.severity {
            volume::Severity::Critical => Severity::Critical,
            volume::Severity::Error => Severity::Error,
            volume::Severity::Warning => Severity::Warning,
        },
        structure: finding.structure.into(),
        place: place.into(),
        detail: finding.detail,
        action: None,
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

    fn check(&self, _deep: bool, repair: bool) -> Work<'_, Vec<CheckFinding>> {
        Box::pin(async move {
            if repair {
                return Err(Problem::new(Code::Unsupported, "A volume's structures are not repaired in this release.")
                    .todo("Leave --repair out to see what is wrong; copy the files that can be read to a new volume."));
            }
            let volume = self.volume.clone();
            let findings = self.shards.run(self.shard, move || async move {
                volume.check().await.map_err(|error| files::problem(&error))
            });
            let place = format!("volume {}", self.name);
            Ok(findings.await?.into_iter().map(|found| finding(found, &place)).collect())
        })
    }

    fn close(&self) -> Work<'_, ()> {
        let volume = self.volume.clone();
        Box::pin(self.shards.run(self.shard, move || async move {
            volume.close().await.map_err(|error| files::problem(&error))
        }))
    }
}
