//! Rebalancing: slabs move to emptier disks and to other fault domains, while there is nothing to repair.
//!
//! [`pool_layout::plan_moves`] makes the plan, `moves.rs` carries it out. It is looked at again move by move: what clients,
//! repair or administrators have changed meanwhile makes a move void.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use futures_util::stream::{self, StreamExt};
use pool_format::DiskId;
use pool_layout::{Candidate, plan_moves, unevenness};

use crate::core::Core;
use crate::error::PoolError;
use crate::moves::{self, Placement};
use crate::pool::Pool;
use crate::row::{Planned, Purpose};

/// Moves between two looks for something to repair.
const BATCH: usize = 16;
/// When a plan that moved nothing is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// What a rebalancing would move, or has still to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancePlan {
    /// Slabs to be moved.
    pub moves: u64,
    /// Bytes to be moved.
    pub bytes: u64,
    /// For each active disk the slabs that it uses now, and will use then.
    pub disks: Vec<(DiskId, u32, u32)>,
}

/// Where a rebalancing stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalanceStatus {
    /// Percent points between the fullest and the emptiest active disk that are here.
    pub uneven_percent: u32,
    /// Somebody has asked for it, and there is no plan yet: repair goes first.
    pub waiting: bool,
    /// Slabs that the plan has still to move; 0 when none is under way.
    pub moves_left: u64,
    /// Slabs that the plan had.
    pub moves_planned: u64,
    /// Bytes still to move.
    pub bytes_left: u64,
    /// Slabs moved since the opening.
    pub moved: u64,
}

impl Pool {
    /// What a rebalancing would move now. Changes nothing.
    #[must_use]
    pub fn balance_plan(&self) -> BalancePlan {
        let (candidates, moves) = plan(&self.core, true);
        let count = |id, pick: fn(&Planned) -> DiskId| moves.iter().filter(|m| pick(m) == id).count() as u32;
        let disks = candidates.iter().map(|disk| {
            let (id, used) = (disk.disk, disk.total - disk.free);
            (id, used, used + count(id, |m| m.to) - count(id, |m| m.from))
        });
        BalancePlan {
            moves: moves.len() as u64,
            bytes: moves.len() as u64 * self.core.slab_size,
            disks: disks.collect(),
        }
    }

    /// Begins a rebalancing, however even the disks are. It goes on in the background whenever nothing is to be repaired.
    ///
    /// # Errors
    /// When the pool cannot be written.
    pub fn start_balance(&self) -> Result<(), PoolError> {
        self.core.check_writable()?;
        self.core.balancer.asked.store(true, Ordering::Release);
        self.core.attention.notify_one();
        Ok(())
    }

    /// Where the rebalancing stands.
    #[must_use]
    pub fn balance_status(&self) -> BalanceStatus {
        let core = &self.core;
        let uneven_percent = unevenness(&core.candidates(false));
        let mut under_way = 0;
        core.for_each_column(|_, place, row| {
            let copies = row.column(place.column).copies();
            under_way += copies.iter().filter(|copy| copy.moves_for() == Some(Purpose::Balance)).count();
        });
        let state = core.balancer.state.lock();
        let moves_left = (state.moves.len() + under_way) as u64;
        BalanceStatus {
            uneven_percent,
            waiting: core.balancer.asked.load(Ordering::Acquire),
            moves_left,
            moves_planned: state.planned.max(moves_left),
            bytes_left: moves_left * core.slab_size,
            moved: core.balancer.moved.load(Ordering::Relaxed),
        }
    }
}

/// Moves some slabs, if there are any to be moved. `true` when it has, and there may be more.
pub(crate) async fn step(core: &Arc<Core>) -> Result<bool, BlockError> {
    let params = *core.params.read();
    if params.paused {
        return Ok(false);
    }
    if core.balancer.state.lock().moves.is_empty() {
        look(core, params.balance_above_percent);
    }
    let batch: Vec<Planned> = {
        let mut state = core.balancer.state.lock();
        let count = state.moves.len().min(BATCH);
        state.moves.drain(..count).collect()
    };
    if batch.is_empty() {
        return Ok(false);
    }
    let goes_on = || !core.is_over() && !core.params.read().paused && !core.urgent.load(Ordering::Acquire);
    let moves = stream::iter(batch).take_while(|_| std::future::ready(goes_on()));
    let moves = moves.map(|planned| moves::carry_out(core, planned, Purpose::Balance));
    let moves = moves.buffer_unordered(params.parallel.max(1));
    let done: Vec<Result<bool, BlockError>> = moves.collect().await;
    let moved = done.into_iter().try_fold(0, |sum, moved| moved.map(|moved| sum + u64::from(moved)))?;
    core.balancer.moved.fetch_add(moved, Ordering::Relaxed);
    core.balancer.state.lock().progress |= moved > 0;
    Ok(moved > 0)
}

/// Makes a plan if somebody has asked for it, disks have joined, or they are too uneven.
fn look(core: &Arc<Core>, above_percent: u32) {
    let balancer = &core.balancer;
    let mut asked = balancer.asked.swap(false, Ordering::AcqRel);
    let joined = balancer.joined.swap(false, Ordering::AcqRel) && above_percent > 0;
    let candidates = core.candidates(false);
    let uneven = above_percent > 0 && unevenness(&candidates) > above_percent;
    let used: Vec<_> = candidates.iter().map(|disk| (disk.disk, disk.total - disk.free)).collect();
    let now = core.clock.now();
    {
        let state = balancer.state.lock();
        asked |= state.by_hand && state.progress;
        let same = |(at, was): &(_, _)| now.since(*at) < AGAIN && *was == used;
        let futile = !state.progress && state.made.as_ref().is_some_and(same);
        if !asked && !joined && (!uneven || futile) {
            return;
        }
    }
    let (_, moves) = plan(core, asked || uneven);
    let mut state = balancer.state.lock();
    (state.by_hand, state.progress, state.made) = (asked, false, Some((now, used)));
    state.planned = moves.len() as u64;
    if !moves.is_empty() {
        tracing::info!(
            "pool {} is being rebalanced: {} slabs of {} bytes to move",
            core.name,
            moves.len(),
            core.slab_size
        );
    }
    state.moves = moves.into();
}

fn plan(core: &Core, fills: bool) -> (Vec<Candidate>, Vec<Planned>) {
    let placement = Placement::of(core);
    let candidates = core.candidates(false);
    let with_sums: Vec<DiskId> = core.candidates(true).iter().map(|disk| disk.disk).collect();
    let moves = plan_moves(&candidates, &placement.rows, fills, |disk| with_sums.contains(&disk));
    let moves = moves.into_iter().filter_map(|step| placement.planned(step)).collect();
    (candidates, moves)
}
