//! Volumes of this machine: crate `volume` on a space of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use control_api::{CheckFinding, Problem, Severity};
use file_store::FileStore;
use pool::{Space, Surroundings};
use volume::{CheckOptions, Environment, FormatOptions, Volume};

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
        let (name, environment) = (space.name(), environment(surroundings));
        let volume = shards.run(shard, move || async move {
            Volume::open(space, environment).await.map_err(|error| files::problem(&error))
        });
        let volume = volume.await?;
        Ok(Arc::new(Self { volume, name, shard, shards }))
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

impl VolumeHandle for SystemVolume {
    fn store(&self) -> Arc<dyn FileStore> {
        self.volume.clone()
    }

    fn shard(&self) -> usize {
        self.shard
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

    fn close(&self) -> Work<'_, ()> {
        let volume = self.volume.clone();
        Box::pin(self.shards.run(self.shard, move || async move {
            volume.close().await.map_err(|error| files::problem(&error))
        }))
    }
}
