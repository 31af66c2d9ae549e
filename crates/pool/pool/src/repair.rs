//! Restoring redundancy: the task that finds the columns with copies on lost or leaving disks, and has them repaired
//! (`column_repair.rs`), the most urgent first.
//!
//! A column whose copies find no disk with room waits for one. When all others have been worked on, `exchange.rs` looks for slabs
//! of other rows that can make room by moving.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::{BlockError, BlockErrorKind};
use futures_util::stream::{self, StreamExt};

use crate::balance;
use crate::column_repair::{Outcome, is_leaving, work_on};
use crate::core::Core;
use crate::error::PoolError;
use crate::exchange;
use crate::pool::Pool;
use crate::row::{Copies, Place, Row};

/// How often the background task looks for work nobody told it of.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What it rests after a pass that has found work, at the least.
const PAUSE: Duration = Duration::from_millis(20);

/// The pool's repair: runs until the pool closes or stops. While there is nothing to repair, it rebalances.
pub(crate) async fn run(core: Arc<Core>) {
    while !core.is_over() {
        let passed = match pass(&core).await {
            Ok(true) => balance::step(&core).await,
            other => other.map(|_| false),
        };
        if core.is_over() {
            break;
        }
        match passed {
            Ok(true) => continue,
            Ok(false) => {}
            // A disk left meanwhile, which has been told: the next look has another plan.
            Err(error) if error.kind() == BlockErrorKind::Gone => {}
            Err(error) => tracing::warn!("repair of pool {} was interrupted: {error}", core.name),
        }
        // A disk that damages what it is given asks for attention in each pass: that must not become all that is done.
        shard_runtime::sleep(PAUSE).await;
        shard_runtime::timeout(LOOK_EVERY, core.attention.notified()).await;
    }
}

/// One pass over all columns: the ones with the fewest good copies first, then exchanges for those that found no room. `true`
/// when there was nothing to do. It ends early when a disk goes or comes: then something else may be the first.
pub(crate) async fn pass(core: &Arc<Core>) -> Result<bool, BlockError> {
    core.urgent.store(false, Ordering::Release);
    for disk in core.all_disks() {
        if !disk.is_online() {
            core.mark_losses(&disk).await?;
        }
    }
    let mut work = Vec::new();
    core.for_each_column(|space, place, row| {
        let copies = row.column(place.column).copies();
        if needs_work(core, row, place, &copies) {
            work.push((can_lose(row, place.column), place, Arc::clone(space)));
        }
    });
    if work.is_empty() {
        core.exchanges.without_room.lock().clear();
        return Ok(true);
    }
    work.sort_by_key(|(spare, place, _)| (*spare, place.space, place.row, place.column));
    let parallel = core.params.read().parallel.max(1);
    let goes_on = || !core.is_over() && !core.urgent.load(Ordering::Acquire);
    let results = stream::iter(work)
        .take_while(|_| std::future::ready(goes_on()))
        .map(|(spare, place, space)| async move {
            let waits = work_on(core, &space, place).await? == Outcome::WaitsForRoom;
            Ok::<_, BlockError>(waits.then_some((spare, place)))
        })
        .buffer_unordered(parallel)
        .collect::<Vec<_>>()
        .await;
    let waiting: Vec<Option<_>> = results.into_iter().collect::<Result<_, _>>()?;
    let mut waiting: Vec<_> = waiting.into_iter().flatten().collect();
    waiting.sort_by_key(|(spare, place)| (*spare, place.space, place.row, place.column));
    let waiting: Vec<Place> = waiting.into_iter().map(|(_, place)| place).collect();
    exchange::make_room(core, &waiting).await?;
    Ok(false)
}

/// How many more disks the column's data survives the loss of.
fn can_lose(row: &Row, column: u8) -> usize {
    let copies = row.column(column).copies();
    let good = copies.iter().filter(|copy| copy.is_good(u64::MAX)).count();
    if row.shape.parity == 0 {
        return good.saturating_sub(1);
    }
    let lost = row.columns.iter().filter(|column| column.good() != u64::MAX).count();
    row.shape.parity.saturating_sub(lost)
}

fn needs_work(core: &Core, row: &Row, place: Place, copies: &Copies) -> bool {
    let group = row.group(place.column);
    let unsettled = group.unsettled.load(Ordering::Acquire)
        | group.forgotten.load(Ordering::Acquire)
        | group.suspect.load(Ordering::Acquire)
        != 0;
    row.lead(place.column) == place.column && unsettled
        || copies.len() > row.shape.copies
        || copies.iter().any(|copy| {
            (copy.disk.has_room() && copy.stale.load(Ordering::Acquire) != 0) || is_leaving(core, copy)
        })
}

impl Pool {
    /// One pass of repair now, besides the background's: for tests that want it done.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub async fn repair_now(&self) -> Result<(), PoolError> {
        loop {
            pass(&self.core).await?;
            if self.core.is_over() || !self.core.urgent.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }
}
