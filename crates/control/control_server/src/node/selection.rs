//! Disks that nobody names: which of the machine's disks selectors choose.

use std::path::Path;

use control_api::{Code, Disk, DiskConfig, DiskSelect, Problem, Selector, choose};

use super::disk_table::Known;
use super::disk_table::file_disk;
use super::{Node, missing};
use crate::backend::{DiskContent, PoolDisk};

impl Node {
    /// Which disks selectors choose; nothing is done with them.
    pub async fn disk_select(&self, request: DiskSelect) -> Result<Vec<Disk>, Problem> {
        drop(self.changes.lock().await);
        let _taking = self.taking.lock().await;
        let mut chosen: Vec<Disk> = Vec::new();
        for name in &request.disks {
            let known = self.known_for_a_look(name).await?;
            self.refuse_used(&known)?;
            if chosen.iter().any(|disk| disk.id == known.found.id) {
                return Err(Problem::new(Code::InvalidRequest, "A disk is named twice."));
            }
            chosen.push(self.describe(&known));
        }
        let mut taken: Vec<String> = chosen.iter().map(|disk| disk.id.clone()).collect();
        for name in &request.except {
            taken.push(self.known_for_a_look(name).await?.found.id);
        }
        chosen.extend(self.select(&request.select, &taken).await?);
        Ok(chosen)
    }

    /// Takes the free disks that selectors choose beside those in `disks`, and adds them there.
    pub(super) async fn take_selected(
        &self,
        selectors: &[Selector],
        spare: bool,
        disks: &mut Vec<PoolDisk>,
    ) -> Result<(), Problem> {
        if let Some(selector) = selectors.iter().find(|selector| selector.names_state()) {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("`{selector}`: a pool takes free disks only, so `state` is of no use here."),
            )
            .todo("Leave it out."));
        }
        let taken: Vec<String> = disks.iter().map(|disk| disk.id.clone()).collect();
        for disk in self.select(selectors, &taken).await? {
            disks.push(self.take_disk(&disk.id, spare).await?);
        }
        Ok(())
    }

    async fn select(&self, selectors: &[Selector], taken: &[String]) -> Result<Vec<Disk>, Problem> {
        if selectors.is_empty() {
            return Ok(Vec::new());
        }
        self.look().await;
        // What is on disks that this node does not hold may have changed since they were looked at.
        for known in self.disks.all().into_iter().filter(|known| known.present && known.open.is_none()) {
            self.probe(&known.found.id).await;
        }
        choose(selectors, &self.disk_list().await?, taken)
    }

    /// A disk that a person named. A file that is not known is looked at and stays unknown.
    async fn known_for_a_look(&self, name: &str) -> Result<Known, Problem> {
        let unknown = || missing("disk", name, "holdfast disk list");
        if let Some(known) = self.disks.find(name).filter(|known| known.present) {
            return Ok(known);
        }
        let path = Path::new(name).canonicalize().map_err(|_| unknown())?;
        let id = path.to_string_lossy().into_owned();
        if let Some(known) = self.disks.find(&id).filter(|known| known.present) {
            return Ok(known);
        }
        let found = file_disk(&DiskConfig::new(&*id)).ok_or_else(unknown)?;
        let content: DiskContent = self.backends.disks.open(&found).await?.probe().await?;
        Ok(Known { content: Some(content), ..Known::new(found) })
    }
}
