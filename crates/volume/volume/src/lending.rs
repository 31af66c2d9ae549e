//! Clusters that are ready to take the place of shared ones, or of holes.
//!
//! What takes the place of a shared cluster is *freed* in the database while it is filled, which cost each first write after a
//! snapshot a batch of its own. Now some more are put into the list with the first, single clusters each, and those that come next
//! find theirs there: a batch for some dozens, and one each for the exchange.
//!
//! First writes of small files find theirs there, too, and wait for no batch ([`Session::map_lent`]): what they write lies in clusters
//! that are freed in the database until their mapping is durable, so whatever a crash leaves is zeroed before anybody gets it.
//!
//! Invariant: what is lent, or ready to be, is in the list of freed clusters and among those that are being filled, and so it is not
//! zeroed, nor given to anybody else, until it is somebody's or nobody wants it any more. It reads as zeros until then.

use std::collections::BTreeSet;
use std::sync::Arc;

use file_store::StoreError;
use parking_lot::Mutex;
use shard_runtime::Monotonic;

use crate::clusters::{ROW, lay_out, no_space};
use crate::extents::Extent;
use crate::free::Run;
use crate::lent::REST;
use crate::session::Session;
use crate::tables::StreamKey;

/// Clusters that are made ready at once, at most: 4 MiB.
const READY_MAX: usize = 64;
/// Clusters that are made ready at once for holes, at least and at most: 16 MiB.
const HOLES_MIN: usize = 8;
const HOLES_MAX: usize = 256;
/// Whoever wants more than this gets runs, in a batch of its own: it is long, and so is what it does.
pub(crate) const FEW: u64 = 4;
/// None is made ready unless so many times as many are free.
const FREE_PART: u64 = 16;

impl Session<'_> {
    /// Clusters to be filled, in the list of freed ones and in `filling`.
    ///
    /// # Errors
    /// When there is no space.
    pub(crate) fn lend(
        &mut self,
        count: u64,
        filling: &Arc<Mutex<BTreeSet<u64>>>,
        now: Monotonic,
    ) -> Result<Vec<Run>, StoreError> {
        let lent = &mut self.space.lent;
        let single = |start| Run { start, count: 1 };
        let few = count <= FEW;
        if few {
            lent.wanted = now;
        }
        if few && lent.ready.len() as u64 >= count {
            let rest = lent.ready.len() - count as usize;
            let mut taken = lent.ready.split_off(rest);
            taken.sort_unstable();
            return Ok(taken.into_iter().map(|(start, _)| single(start)).collect());
        }
        let more = if few { lent.more.min((self.space.free.total() / FREE_PART) as usize) } else { 0 };
        let more = if self.spend(2 * ROW * more as u64).is_ok() { more } else { 0 };
        let runs = self.take_free(count)?;
        self.changed = true;
        for run in &runs {
            filling.lock().insert(run.start);
            let stored = self.put_freed(*run);
            self.fatal(stored)?;
        }
        self.make_ready(more, filling)?;
        let lent = &mut self.space.lent;
        if few {
            lent.more = (lent.more * 2).clamp(1, READY_MAX);
        }
        Ok(runs)
    }

    /// Takes free clusters; where they are short, those that are ready are free again first: nobody has written to them.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`](file_store::StoreErrorKind::NoSpace).
    pub(crate) fn take_free(&mut self, count: u64) -> Result<Vec<Run>, StoreError> {
        if let Some(runs) = self.space.free.take(count) {
            return Ok(runs);
        }
        for (start, _) in std::mem::take(&mut self.space.lent.ready) {
            let run = Run { start, count: 1 };
            self.changed = true;
            let stored = self.forget_freed(run);
            self.fatal(stored)?;
            self.space.lent.filling.lock().remove(&start);
            self.space.free.add(run);
        }
        self.space.free.take(count).ok_or_else(no_space)
    }

    /// Puts so many free clusters into the list, to be ready.
    fn make_ready(&mut self, count: usize, filling: &Arc<Mutex<BTreeSet<u64>>>) -> Result<(), StoreError> {
        self.space.lent.filling = Arc::clone(filling);
        let ready = self.space.free.take(count as u64).unwrap_or_default();
        self.changed |= !ready.is_empty();
        let starts: Vec<u64> = ready.iter().flat_map(|run| run.start..run.end()).collect();
        for start in &starts {
            filling.lock().insert(*start);
            let stored = self.put_freed(Run { start: *start, count: 1 });
            self.fatal(stored)?;
        }
        let number = self.last_change();
        // From the end, so that they are used in order.
        self.space.lent.ready.splice(0..0, starts.into_iter().rev().map(|start| (start, number)));
        Ok(())
    }

    /// Maps a few holes to clusters that are ready, and in the list durably: they may be written before this is durable. `None` when
    /// there are too few; more are made ready then, or when they become few.
    ///
    /// # Errors
    /// When there is no room for the rows.
    pub(crate) fn map_lent(
        &mut self,
        stream: StreamKey,
        holes: &[(u64, u64)],
        filling: &Arc<Mutex<BTreeSet<u64>>>,
        now: Monotonic,
    ) -> Result<Option<Vec<Extent>>, StoreError> {
        let count = holes.iter().map(|(_, count)| *count as usize).sum::<usize>();
        self.may_take(stream.0, count as u64)?;
        let durable = self.durable;
        let lent = &mut self.space.lent;
        lent.wanted = now;
        let rest = lent.ready.len().saturating_sub(count);
        let sound = lent.ready[rest..].iter().all(|(_, number)| *number <= durable);
        let taken = if sound && lent.ready.len() >= count { lent.ready.split_off(rest) } else { Vec::new() };
        let mapped = if taken.is_empty() {
            None
        } else if let Err(error) = self.spend(2 * ROW * count as u64) {
            self.space.lent.ready.extend(taken);
            return Err(error);
        } else {
            self.changed = true;
            let mut starts: Vec<u64> = taken.iter().map(|(start, _)| *start).collect();
            starts.sort_unstable();
            let runs: Vec<Run> = starts.iter().map(|start| Run { start: *start, count: 1 }).collect();
            let extents = lay_out(holes, runs.clone());
            let stored = runs.iter().try_for_each(|run| self.forget_freed(*run));
            let stored = stored.and_then(|()| self.insert_extents(stream, &extents));
            self.fatal(stored)?;
            let mut filling = filling.lock();
            for start in &starts {
                filling.remove(start);
            }
            Some(extents)
        };
        let lent = &mut self.space.lent;
        if lent.ready.len() <= lent.more_for_holes / 2 {
            let more = (lent.more_for_holes * 2).clamp(HOLES_MIN, HOLES_MAX);
            lent.more_for_holes = more;
            let more = more.min((self.space.free.total() / FREE_PART) as usize);
            if more > 0 && self.spend(2 * ROW * more as u64).is_ok() {
                self.make_ready(more, filling)?;
                // Those who come next wait for that.
                self.hurries = true;
            }
        }
        Ok(mapped)
    }

    /// Clusters that are free, or ready.
    pub(crate) fn available(&self) -> u64 {
        self.space.free.total() + self.space.lent.ready.len() as u64
    }

    /// What is ready and has not been wanted for a while is left to be zeroed, as anything else that is freed. Whether some are
    /// ready still.
    pub(crate) fn stop_lending(&mut self, filling: &Arc<Mutex<BTreeSet<u64>>>, now: Monotonic) -> bool {
        let lent = &mut self.space.lent;
        if now.since(lent.wanted) >= REST {
            let mut filling = filling.lock();
            lent.ready.drain(..).for_each(|(start, _)| {
                filling.remove(&start);
            });
            (lent.more, lent.more_for_holes) = (0, 0);
        }
        !lent.ready.is_empty()
    }
}
