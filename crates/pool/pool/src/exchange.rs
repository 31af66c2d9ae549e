//! Exchanges: a sound slab moves so that a copy that is lost or leaves, and finds no room, gets its place.
//!
//! [`pool_layout::plan_exchanges`] makes the plan, and says what it finds and what it does not. It is made when all that had
//! room has been repaired, by the one task that repairs: a column is never worked on twice at once. Between the two halves
//! of an exchange nothing is at risk: the slab that moves counts until it has arrived, and what it makes room for is as it
//! was. A crash in between leaves a slab that has moved, or one that has not, and whoever waits for room waits as before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use futures_util::stream::{self, StreamExt};
use pool_format::DiskId;
use pool_layout::plan_exchanges;

use crate::column_repair;
use crate::core::Core;
use crate::exchanges::Futile;
use crate::moves::{self, Placement};
use crate::row::{Place, Planned, Purpose};

/// Exchanges between two looks for something to repair: what a slab has made room for is the more urgent.
const BATCH: usize = 16;
/// When a plan that found nothing is made again although the same disks have room. It looks at every
/// slab of the pool.
const AGAIN: Duration = Duration::from_secs(10);

/// Makes room for columns that found none for a copy, the most urgent first, as far as moving a single slab for each can.
pub(crate) async fn make_room(core: &Arc<Core>, waiting: &[Place]) -> Result<(), BlockError> {
    let goes_on = || !core.is_over() && !core.params.read().paused && !core.urgent.load(Ordering::Acquire);
    if waiting.is_empty() || !goes_on() {
        core.exchanges.without_room.lock().clear();
        return Ok(());
    }
    let planned = plan(core, waiting);
    let hopeless = planned.is_empty() && core.exchanges.futile.lock().is_some();
    *core.exchanges.without_room.lock() = waiting.iter().filter(|_| hopeless).copied().collect();
    if !planned.is_empty() {
        tracing::info!(
            "pool {}: {} slabs move to make room for copies that find none, {} wait",
            core.name,
            planned.len(),
            waiting.len()
        );
    }
    let exchanges = stream::iter(planned).take_while(|_| std::future::ready(goes_on()));
    let parallel = core.params.read().parallel.max(1);
    let exchanges = exchanges.map(|(need, step)| exchange(core, need, step)).buffer_unordered(parallel);
    let made: Vec<Result<bool, BlockError>> = exchanges.collect().await;
    let made = made.into_iter().try_fold(false, |any, made| made.map(|made| any | made))?;
    if made {
        // There may be more.
        core.attention.notify_one();
    }
    Ok(())
}

fn plan(core: &Core, waiting: &[Place]) -> Vec<(Place, Planned)> {
    let disks = core.candidates(false);
    let here = disks.iter().filter(|disk| disk.online).map(|disk| (disk.disk, disk.free > 0));
    let (here, now): (Vec<_>, _) = (here.collect(), core.clock.now());
    let mut futile = core.exchanges.futile.lock();
    if !here.iter().any(|(_, has_room)| *has_room) {
        *futile = Some(Futile { made: now, disks: here, waiting: waiting.len() });
        return Vec::new();
    }
    let same =
        |last: &Futile| now.since(last.made) < AGAIN && last.waiting == waiting.len() && last.disks == here;
    if futile.as_ref().is_some_and(same) {
        return Vec::new();
    }
    let placement = Placement::of(core);
    // What moves already makes room for some of them.
    let most = BATCH.min(waiting.len().saturating_sub(placement.making_room));
    if most == 0 {
        *futile = None;
        return Vec::new();
    }
    let needs: Vec<_> = waiting.iter().filter_map(|place| placement.index(*place)).collect();
    let with_sums: Vec<DiskId> = core.candidates(true).iter().map(|disk| disk.disk).collect();
    let has_sums = |disk| with_sums.contains(&disk);
    let sound = |row, column| placement.is_sound(row, column);
    let plan = plan_exchanges(&disks, &placement.rows, &needs, most, has_sums, sound);
    *futile = plan.is_empty().then_some(Futile { made: now, disks: here, waiting: waiting.len() });
    let exchanges = plan.into_iter().filter_map(|exchange| {
        let (row, column) = *needs.get(exchange.need)?;
        Some((placement.place(row, column)?, placement.planned(exchange.step)?))
    });
    exchanges.collect()
}

/// Moves a slab, and gives its place to the copy that needs it. Whether it has moved.
async fn exchange(core: &Arc<Core>, need: Place, step: Planned) -> Result<bool, BlockError> {
    tracing::debug!("{step:?} makes room for {need:?}");
    if !moves::carry_out(core, step, Purpose::Room).await? {
        return Ok(false);
    }
    let space = core.spaces.read().get(&need.space).cloned();
    if let Some(space) = space {
        column_repair::work_on(core, &space, need).await?;
    }
    Ok(true)
}
