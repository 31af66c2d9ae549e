//! Freed clusters become free: zeroed, part by part, so that where a disk is lost the parts of the others come back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockError, Durability};
use file_store::StoreError;
use redb::ReadableTable;
use volume_format::CLUSTER;

use crate::clear::clear;
use crate::core::Core;
use crate::database_error::database_error;
use crate::free::Run;
use crate::growth::ZEROED_AT_ONCE;
use crate::tables::FREED;

/// Freed runs that are zeroed in one round.
const RUNS_PER_ROUND: usize = 1024;
/// Clusters that are tried alone where a longer part cannot be zeroed: 16 MiB, a part of a slab.
const SMALL: u64 = if cfg!(test) { 1 } else { (16 << 20) / CLUSTER };
/// Small parts that may fail in a round. What is behind them has its turn in the next one.
const FAILURES_PER_ROUND: usize = 64;

/// What a round came to.
#[derive(Default)]
struct Zeroed {
    cleared: Vec<Run>,
    /// Still to be zeroed, in order.
    left: Vec<Run>,
    /// Why, the first time.
    error: Option<BlockError>,
    failures: usize,
    /// Where too much has failed: nothing from here on has been tried.
    gave_up: Option<u64>,
}

impl Zeroed {
    /// Zeroes a run as far as the device lets it.
    ///
    /// # Errors
    /// When the volume is closing: no part is begun then.
    async fn zero(&mut self, core: &Core, run: Run) -> Result<(), StoreError> {
        for part in parts(run, ZEROED_AT_ONCE) {
            core.check_open()?;
            if self.gave_up.is_none()
                && clear(&core.device, core.at(part.start * CLUSTER), part.count * CLUSTER).await.is_ok()
            {
                self.cleared.push(part);
                continue;
            }
            for small in parts(part, SMALL) {
                core.check_open()?;
                if self.failures >= FAILURES_PER_ROUND || self.gave_up.is_some() {
                    self.gave_up.get_or_insert(small.start);
                    self.left.push(Run { start: small.start, count: run.end() - small.start });
                    return Ok(());
                }
                let at = core.at(small.start * CLUSTER);
                match clear(&core.device, at, small.count * CLUSTER).await {
                    Ok(()) => self.cleared.push(small),
                    Err(error) => {
                        self.failures += 1;
                        self.left.push(small);
                        self.error.get_or_insert(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Core {
    /// Zeroes freed clusters, so that they can be used again; whether there may be more to do now. The order is the
    /// invariant: no request can reach them (they left every map, and earlier reads have ended), then they are zero on
    /// the disk, then free.
    ///
    /// What cannot be zeroed stays in the list, and does not keep the rest from being looked at.
    ///
    /// # Errors
    /// When the whole list has been looked at, and of what was looked at last nothing could be zeroed.
    pub(crate) async fn zero_freed(&self) -> Result<bool, StoreError> {
        let from = self.zero_from.load(Ordering::Relaxed);
        let runs = self.freed_runs(from).await?;
        let behind = (runs.len() == RUNS_PER_ROUND).then(|| runs.last().map_or(0, Run::end));
        // The first wait is for those that change maps: their change may be committed and not yet in the map in memory. The
        // second is for the reads that saw the old map meanwhile.
        self.gate.drain().await;
        self.gate.drain().await;
        let mut zeroed = Zeroed::default();
        for run in joined(&runs) {
            // Whoever closes the volume waits for the part that is being zeroed. All of the round is still in the list.
            if zeroed.zero(self, run).await.is_err() {
                return Ok(false);
            }
        }
        let Zeroed { cleared, left, error, gave_up, .. } = zeroed;
        let (any, next) = (!cleared.is_empty(), gave_up.or(behind));
        let again = any && !left.is_empty();
        if any {
            self.device.flush().await?;
        }
        if any || gave_up.is_some() {
            self.give_back(runs, cleared, left).await?;
        }
        self.zero_from.store(next.unwrap_or(0), Ordering::Relaxed);
        match error {
            Some(error) if !any && next.is_none() => Err(error.into()),
            // What is freed meanwhile asks for attention, and is gathered first.
            _ => Ok(again || next.is_some()),
        }
    }

    /// Freed runs from a cluster on that nobody is filling.
    async fn freed_runs(&self, from: u64) -> Result<Vec<Run>, StoreError> {
        let (filling, now) = (Arc::clone(&self.filling), self.clock.now());
        let runs = self.metadata.change_as(Durability::Volatile, move |session| {
            let is_lending = session.stop_lending(&filling, now);
            let filling = filling.lock();
            let table = session.txn.open_table(FREED).map_err(database_error)?;
            let mut runs = Vec::new();
            for row in table.range(from..).map_err(database_error)? {
                let (start, count) = row.map_err(database_error)?;
                if runs.len() == RUNS_PER_ROUND {
                    break;
                }
                if !filling.contains(&start.value()) {
                    runs.push(Run { start: start.value(), count: count.value() });
                }
            }
            Ok((runs, is_lending))
        });
        let (runs, is_lending) = runs.await?;
        self.is_lending.store(is_lending, Ordering::Relaxed);
        if !runs.is_empty() {
            // After a crash they belong again to whom a change has taken them from that is not durable.
            self.metadata.settle(self.metadata.last_change()).await?;
        }
        Ok(runs)
    }

    /// Takes runs off the list: what of them was cleared is free, what is left comes back to it.
    async fn give_back(&self, runs: Vec<Run>, cleared: Vec<Run>, left: Vec<Run>) -> Result<(), StoreError> {
        let changed = self.metadata.change_as(Durability::Volatile, move |session| {
            session.changed = true;
            let stored = (|| {
                let mut table = session.txn.open_table(FREED).map_err(database_error)?;
                for run in &runs {
                    table.remove(run.start).map_err(database_error)?;
                }
                for run in &left {
                    table.insert(run.start, run.count).map_err(database_error)?;
                }
                Ok(())
            })();
            session.fatal(stored)?;
            cleared.iter().for_each(|run| session.space.free.add(*run));
            Ok(())
        });
        changed.await
    }
}

/// A run in parts of at most so many clusters.
fn parts(run: Run, most: u64) -> impl Iterator<Item = Run> {
    (run.start..run.end())
        .step_by(most as usize)
        .map(move |start| Run { start, count: most.min(run.end() - start) })
}

/// Runs in order, neighbours as one.
fn joined(runs: &[Run]) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if last.start + last.count == run.start => last.count += run.count,
            _ => all.push(*run),
        }
    }
    all
}
