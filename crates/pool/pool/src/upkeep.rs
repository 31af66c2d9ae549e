//! What an open pool does for itself every few seconds, whether or not something is being repaired meanwhile.

use std::sync::Arc;
use std::time::Duration;

use block_device::{BlockError, BlockErrorKind};

use crate::core::Core;
use crate::marks::Renewals;
use crate::{clean, health};

/// Regions become clean after being quiet for one to two of these.
const EVERY: Duration = Duration::from_secs(5);

/// Runs until the pool closes or stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut begun = core.clock.now();
    let mut renewals = Renewals::new(&core);
    while !core.is_over() {
        shard_runtime::timeout(EVERY, core.upkeep_attention.notified()).await;
        if core.is_over() {
            break;
        }
        let now = core.clock.now();
        health::end_window(&core, now.since(begun));
        core.governor.end_window();
        begun = now;
        core.meta.look_for_newer_owner().await;
        if core.is_over() {
            break;
        }
        warn_of(&core, "metadata could not be completed", core.bring_voters_up().await);
        warn_of(&core, "a journal could not be tidied", tidy_journals(&core, false).await);
        warn_of(&core, "dirty regions could not be cleaned", clean::clean(&core, false).await);
        warn_of(&core, "the marks of disks could not be renewed", renewals.go_on(&core).await);
    }
}

/// Tells of work that failed and will be tried again; not when the pool ends or because a disk left, which has been
/// told.
fn warn_of(core: &Core, what: &str, done: Result<(), BlockError>) {
    if let Err(error) = done
        && error.kind() != BlockErrorKind::Gone
        && !core.is_over()
    {
        tracing::warn!("{what} in pool {}: {error}", core.name);
    }
}

/// Frees what the journals no longer need.
pub(crate) async fn tidy_journals(core: &Arc<Core>, all: bool) -> Result<(), BlockError> {
    for space in core.all_spaces() {
        if let Ok(journal) = space.journal() {
            journal.tidy(core, &space, all).await?;
        }
    }
    Ok(())
}
