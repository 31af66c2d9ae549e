//! Disks that are reached over the network: units of iSCSI targets (those of other nodes among them) and images of Ceph. The
//! configuration names them, as no discovery finds them.
//!
//! One is there as long as its target answers. One that has gone is asked for at each look, and opened anew when it is back: what was open leads to
//! a session that has ended for good.

use control_api::{DiskConfig, Problem, is_unit};
use futures_util::future::join_all;

use super::disk_table::Known;
use super::{Node, missing};
use crate::backend::FoundDisk;

impl Node {
    /// Units of the configuration that are there.
    pub(super) async fn units_there(&self, configured: &[DiskConfig]) -> Vec<FoundDisk> {
        let units = configured.iter().filter(|disk| is_unit(&disk.id));
        join_all(units.map(|disk| self.unit_there(disk))).await.into_iter().flatten().collect()
    }

    async fn unit_there(&self, disk: &DiskConfig) -> Option<FoundDisk> {
        if let Some(Known { found, open, present: true, .. }) = self.disks.find(&disk.id) {
            // Gone at this look, and asked for at the next one: its pool has to hear of it between. What is not open is looked at anew.
            return (!open.is_some_and(|open| open.is_gone())).then_some(found);
        }
        match self.backends.disks.reach(disk).await {
            Ok(found) => {
                self.unusable.lock().remove(&disk.id);
                Some(found)
            }
            Err(problem) => {
                self.disks.change(&disk.id, |known| known.trouble = Some(problem.detail.clone()));
                // Once, not at every look.
                let said = self.unusable.lock().insert(disk.id.clone(), problem.detail.clone());
                if said.as_ref() != Some(&problem.detail) {
                    tracing::warn!(disk = disk.id, %problem, "a disk that is reached over the network is not there");
                }
                None
            }
        }
    }

    /// Looks at the units again that are not open: other nodes may have written to them, and their targets may have gone.
    pub(super) async fn look_at_units(&self) {
        let closed = |known: &Known| known.present && known.open.is_none() && is_unit(&known.found.id);
        let units: Vec<Known> = self.disks.all().into_iter().filter(closed).collect();
        join_all(units.iter().map(|unit| self.probe(&unit.found.id))).await;
        for unit in units {
            self.disks.change(&unit.found.id, |known| known.present = known.trouble.is_none());
        }
    }

    /// A unit that a person named: known, in the configuration too, when its target has answered.
    pub(super) async fn unit(&self, name: &str) -> Result<Known, Problem> {
        let configured = self.config.with(|config| config.disks.iter().find(|disk| disk.id == name).cloned());
        let found = self.backends.disks.reach(&configured.unwrap_or_else(|| DiskConfig::new(name))).await?;
        self.config.change(|config| {
            if !config.disks.iter().any(|disk| disk.id == found.id) {
                config.disks.push(DiskConfig::new(&*found.id));
            }
            Ok(())
        })?;
        self.look().await;
        self.disks.find(&found.id).ok_or_else(|| missing("disk", name, "holdfast disk list"))
    }
}
