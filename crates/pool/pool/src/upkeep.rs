//! What an open pool does for itself every few seconds, whether or not something is being repaired meanwhile.

use std::sync::Arc;
use std::time::Duration;

use block_device::{BlockError, BlockErrorKind};

use crate::core::Core;
use crate::marks::Renewals;
use crate::{clean, governor, health};

/// How often it looks after everything.
const EVERY: Duration = Duration::from_secs(5);

/// Runs until the pool closes or stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut begun = core.clock.now();
    let mut renewals = Renewals::new(&core);
    while !core.is_over() {
        let rest = EVERY.saturating_sub(core.clock.now().since(begun));
        shard_runtime::timeout(rest, core.upkeep_attention.notified()).await;
        if core.is_over() {
            break;
        }
        let now = core.clock.now();
        if now.since(begun) < EVERY {
            if core.dirty.is_pressed() {
                warn_of(&core, "dirty regions could not be cleaned", clean::clean(&core, false).await);
            }
            continue;
        }
        health::end_window(&core, now.since(begun));
        governor::end_window(&core);
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
