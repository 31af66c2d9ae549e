//! Closing pools, and letting go of them.

use std::sync::Arc;
use std::time::Duration;

use pool_format::{Change, Owner};
use shard_runtime::finish_anyway;
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::disk::PoolDisk;
use crate::error::{PoolError, PoolErrorKind};
use crate::pool::Pool;
use crate::{clean, marks, upkeep};

impl Pool {
    /// Ends background work, flushes all disks, calls all regions clean and stops. Requests under way should have ended.
    /// Nothing comes to the disks after this has returned: somebody else may open them.
    ///
    /// # Errors
    /// When a disk fails, or acknowledged writes may be lost that no flush has told of; the pool is closed all the same, and the
    /// next opening does what is left.
    pub async fn close(&self) -> Result<(), PoolError> {
        self.close_as(Afterwards::Kept).await
    }

    /// The same, and lets go of the pool: any node may open it from now on. That is the last thing that is written, when all else is durable
    /// and nothing is under way to a disk any more; whoever reads it may open the pool without keeping this node from its disks.
    ///
    /// # Errors
    /// The same as those of [`Pool::close`], and when requests to a disk do not end. The pool stays its owner's then.
    pub async fn close_and_release(&self) -> Result<(), PoolError> {
        self.close_as(Afterwards::Released).await
    }

    async fn close_as(&self, afterwards: Afterwards) -> Result<(), PoolError> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        // Left half-way, a page of checksums would be on its way to a disk while nobody knows of it.
        finish_anyway(end(Arc::clone(&self.core), tasks, afterwards)).await
    }

    /// Stops using the disks as in a crash: nothing is called clean, and the next opening goes on from what is durable. For a
    /// pool that has stopped, when no request of its spaces is under way any more.
    ///
    /// # Errors
    /// When requests to disks have not ended in `patience`. What they write could overwrite what a next opening has
    /// written, so there must be none before this has succeeded.
    pub async fn abandon(&self, patience: Duration) -> Result<(), PoolError> {
        let core = &self.core;
        core.stop();
        core.meta.close();
        let disks = core.all_disks();
        disks.iter().for_each(|disk| disk.release_device());
        let ended = async {
            while disks.iter().any(|disk| disk.has_stragglers()) {
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
        };
        if shard_runtime::timeout(patience, ended).await.is_some() {
            return Ok(());
        }
        Err(still_written(core, |disk| disk.has_stragglers()))
    }
}

/// Whose a pool is that was closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    /// It stays its owner's.
    Kept,
    /// It is nobody's.
    Released,
}

/// How long a pool that is to be let go of waits for requests to its disks that nobody waits for any more.
const STRAGGLERS_END_WITHIN: Duration = Duration::from_secs(10);

/// What is left to do of a pool that has stopped.
async fn end(core: Arc<Core>, tasks: Vec<JoinHandle<()>>, afterwards: Afterwards) -> Result<(), PoolError> {
    for task in tasks {
        // Background work that has panicked is at its end too.
        let _ = task.await;
    }
    core.requests_end().await;
    core.meta.look_for_newer_owner().await;
    if core.meta.is_poisoned() {
        // Nothing may be written any more: what is left to do, the next opening does.
        core.all_disks().iter().for_each(|disk| disk.release_device());
        return Err(core.meta.failed().into());
    }
    let mut settled = settle(&core).await;
    if afterwards == Afterwards::Released && settled.is_ok() {
        settled = release(&core).await;
    }
    core.meta.close();
    for disk in core.all_disks() {
        disk.release_device();
    }
    settled
}

/// Makes durable what is not yet, and calls regions clean. All of it is tried, whatever fails.
async fn settle(core: &Arc<Core>) -> Result<(), PoolError> {
    let tidied = upkeep::tidy_journals(core, true).await;
    let cleaned = clean::clean(core, true).await;
    let marked = marks::renew(core).await;
    let saved = core.meta.checkpoint().await;
    tidied?;
    cleaned?;
    marked?;
    saved?;
    // Whoever has been told that it is closed takes all that was acknowledged for durable.
    match core.all_spaces().iter().find(|space| space.has_untold_loss()) {
        Some(space) => {
            let detail = format!(
                "the pool is closed, and a disk went away with data of space {} that no other copy has",
                space.name()
            );
            Err(PoolError::new(PoolErrorKind::Lost, detail))
        }
        None => Ok(()),
    }
}

/// Says on the disks that the pool is nobody's, unless a request may still reach one of them.
async fn release(core: &Arc<Core>) -> Result<(), PoolError> {
    let Some(owner) = core.meta.with_state(|state| state.owner.clone()) else { return Ok(()) };
    let disks = core.all_disks();
    let idle = async {
        while disks.iter().any(|disk| disk.has_requests()) {
            shard_runtime::sleep(Duration::from_millis(1)).await;
        }
    };
    if shard_runtime::timeout(STRAGGLERS_END_WITHIN, idle).await.is_none() {
        return Err(still_written(core, |disk| disk.has_requests()));
    }
    Ok(core.meta.commit(vec![Change::Owner(Owner { released: true, ..owner })]).await?)
}

fn still_written(core: &Core, is_late: impl Fn(&PoolDisk) -> bool) -> PoolError {
    let disks = core.all_disks();
    let late: Vec<String> =
        disks.iter().filter(|disk| is_late(disk)).map(|disk| disk.id.to_string()).collect();
    let detail = format!("requests to disks {} of pool {} do not end", late.join(", "), core.name);
    PoolError::new(PoolErrorKind::InUse, detail)
}
