//! Disks that nobody names: which of the machine's disks selectors choose.

use std::path::Path;

use control_api::{Code, Disk, DiskConfig, DiskSelect, Problem, Selector, choose};

use super::disk_table::Known;
use super::disk_table::file_disk;
use super::pools::{refuse_content, refuse_no_disk};
use super::{Node, missing};
use crate::backend::{DiskContent, PoolDisk};

impl Node {
    /// Which disks selectors choose; nothing is done with them. Where it is said what they are for, what that would refuse is refused here,
    /// by the same checks and in the same words.
    pub async fn disk_select(&self, mut request: DiskSelect) -> Result<Vec<Disk>, Problem> {
        drop(self.changes.lock().await);
        let _taking = self.taking.lock().await;
        if let Some(name) = &request.new_pool {
            self.refuse_new_pool(name, request.slab_bytes)?;
        }
        let mut others: Vec<String> = request.disks.iter().chain(&request.except).cloned().collect();
        if let Some(pool) = &request.pool {
            let (guid, _) = self.pool(pool)?;
            others.extend(self.disks_of(guid).into_iter().map(|known| known.found.id));
        }
        let for_pool = request.new_pool.is_some() || request.pool.is_some();
        if for_pool {
            refuse_no_disk(&request.disks, &request.select)?;
            for names in [&mut request.disks, &mut request.except] {
                self.for_all_nodes(names, &others, &request.select)?;
            }
        }
        let mut chosen: Vec<Disk> = Vec::new();
        let mut taken: Vec<String> = Vec::new();
        let mut found: Vec<(String, DiskContent)> = Vec::new();
        let named = request.disks.iter().map(|name| (name, true));
        for (name, is_chosen) in named.chain(request.except.iter().map(|name| (name, false))) {
            let known = self.known_for_a_look(name).await?;
            if is_chosen || for_pool {
                self.refuse_used(&known)?;
                if taken.contains(&known.found.id) {
                    return Err(Problem::new(Code::InvalidRequest, "A disk is named twice."));
                }
            }
            if is_chosen {
                chosen.push(self.describe(&known));
            }
            let id = known.found.id.clone();
            taken.push(id.clone());
            match known.content {
                Some(content) => found.push((id, content)),
                None if for_pool => {
                    let why = known.trouble.unwrap_or_else(|| "it cannot be looked at".to_owned());
                    return Err(Problem::new(Code::Unavailable, format!("disk {id}: {why}.")));
                }
                None => {}
            }
        }
        if for_pool {
            refuse_state(&request.select)?;
            refuse_content(&found, request.overwrite_foreign)?;
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
        refuse_state(selectors)?;
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
            if known.open.is_none() {
                // Others may have written to it since it was looked at.
                self.probe(&known.found.id).await;
            }
            return self.disks.find(name).ok_or_else(unknown);
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

/// Refuses selectors by a state, where disks are for a pool.
fn refuse_state(selectors: &[Selector]) -> Result<(), Problem> {
    match selectors.iter().find(|selector| selector.names_state()) {
        Some(selector) => Err(Problem::new(
            Code::InvalidRequest,
            format!("`{selector}`: a pool takes free disks only, so `state` is of no use here."),
        )
        .todo("Leave it out.")),
        None => Ok(()),
    }
}
