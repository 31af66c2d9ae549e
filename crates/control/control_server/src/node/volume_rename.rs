//! Another name for a volume. What is on it - LUNs, shares, how it is cached - is tied to the identity of its space, and goes on
//! without noticing; its snapshots and their schedules are in the volume itself.
//!
//! ```text
//!   the pool's metadata says the new name ──► the node calls it so ──► the configuration follows the identity
//! ```
//! The first step is the one that counts: where the node stops after it, the configuration follows when the pool is opened.

use std::sync::Arc;

use control_api::{Code, Problem, Volume, VolumeRename};

use super::ties::{OnVolume, all_on_volumes};
use super::{Node, to_its_end};

impl Node {
    /// Gives a volume another name. Goes on when the client goes away.
    ///
    /// # Errors
    /// When there is no such volume, the name is taken or none that a volume can have, or the volume has a log.
    pub async fn volume_rename(
        self: &Arc<Self>,
        name: &str,
        pool: Option<String>,
        request: VolumeRename,
    ) -> Result<Volume, Problem> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move { node.rename_volume(&name, pool.as_deref(), &request.name).await }).await
    }

    async fn rename_volume(&self, name: &str, pool: Option<&str>, new: &str) -> Result<Volume, Problem> {
        let turns = self
            .turns_of(|node| {
                let new = node.pools_of_volume(new);
                node.pools_of_volume(name).into_iter().chain(new).collect()
            })
            .await?;
        self.delete_leftovers().await;
        let (_, pool, space) = self.exact_space(name, pool)?;
        self.check_new_name(new)?;
        let slot = self.volumes.lock().get(name).filter(|slot| slot.space == space.guid).cloned();
        let has_log =
            slot.as_ref().and_then(|slot| slot.handle.as_ref()).is_some_and(|open| open.log().is_some());
        let log = space.log_name();
        let is_log = |there: &crate::backend::SpaceName| there.name == log;
        let log_is_somewhere = self.holders().iter().any(|holder| holder.spaces.iter().flatten().any(is_log));
        if has_log || log_is_somewhere || slot.as_ref().is_some_and(|slot| slot.lacks_log) {
            let detail = format!("volume {name} has a log, which is found by the volume's name.");
            return Err(Problem::new(Code::WrongState, detail).todo(format!(
                "`holdfast volume log remove {name}` takes the log away while the volume is in use; rename the volume then, and give it a log again with `holdfast volume log add {new}`."
            )));
        }
        self.refuse_untied(new)?;
        let guid = pool.info().guid;
        self.take_name(new, guid).await?;
        let renamed = pool.rename_space(name, new).await;
        self.settle_cluster_names(guid).await;
        renamed?;
        tracing::info!(volume = name, to = new, "a volume has another name");
        self.restarts.forget(pool.info().guid, name);
        self.full_restarts.forget(pool.info().guid, name);
        if slot.is_some() {
            let mut volumes = self.volumes.lock();
            if let Some(slot) = volumes.remove(name) {
                volumes.insert(new.to_owned(), slot);
            }
        }
        self.note_logs();
        // It, where one of its name was served instead; and one that was not, where it was served.
        for turn in &turns {
            self.open_volumes(turn.pool()).await;
            self.serve_pool(Some(turn.pool())).await;
        }
        self.volume_show(new, None).await
    }

    /// Refuses a name that something is on of which it is not known which volume is meant: it would come to be on this one.
    fn refuse_untied(&self, name: &str) -> Result<(), Problem> {
        let subjects = self.config.with(|config| {
            let untied = |item: &&dyn OnVolume| item.volume_guid().is_none() && item.volume() == name;
            all_on_volumes(config).filter(untied).map(|item| item.subject()).collect::<Vec<_>>()
        });
        if subjects.is_empty() {
            return Ok(());
        }
        let detail = format!(
            "The configuration has {} on a volume {name}, which is not there: it would be taken for that one.",
            subjects.join(", ")
        );
        Err(Problem::new(Code::InUse, detail)
            .todo("Choose another name, or take them out of the configuration first."))
    }
}
