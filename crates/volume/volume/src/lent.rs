//! Clusters that are ready to take the place of shared ones.
//!
//! What takes the place of a shared cluster is *freed* in the database while it is filled, which cost each first write after a
//! snapshot a batch of its own. Now some more are put into the list with the first, single clusters each, and those that come next
//! find theirs there: a batch for some dozens, and one each for the exchange.
//!
//! Invariant: what is lent, or ready to be, is in the list of freed clusters and among those that are being filled, and so it is not
//! zeroed, nor given to anybody else, until it is somebody's or nobody wants it any more. It reads as zeros until then.

use std::collections::BTreeSet;
use std::time::Duration;

use file_store::StoreError;
use parking_lot::Mutex;
use shard_runtime::Monotonic;

use crate::clusters::{ROW, no_space};
use crate::database::Session;
use crate::free::Run;

/// Clusters that are made ready at once, at most: 4 MiB.
const READY_MAX: usize = 64;
/// Whoever wants more than this gets runs, in a batch of its own: it is long, and so is what it does.
const FEW: u64 = 4;
/// How long those that are ready wait for somebody to want them.
pub(crate) const REST: Duration = Duration::from_secs(1);
/// None is made ready unless so many times as many are free.
const FREE_PART: u64 = 16;

/// Clusters that are ready.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    ready: Vec<u64>,
    /// How many are made ready next time: more while they are wanted.
    more: usize,
    /// When some were wanted last.
    wanted: Monotonic,
}

impl Session<'_> {
    /// Clusters to be filled, in the list of freed ones and in `filling`.
    ///
    /// # Errors
    /// When there is no space.
    pub(crate) fn lend(
        &mut self,
        count: u64,
        filling: &Mutex<BTreeSet<u64>>,
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
            return Ok(taken.into_iter().map(single).collect());
        }
        let more = if few { lent.more.min((self.space.free.total() / FREE_PART) as usize) } else { 0 };
        let more = if self.spend(2 * ROW * more as u64).is_ok() { more } else { 0 };
        let runs = self.space.free.take(count).ok_or_else(no_space)?;
        let ready = self.space.free.take(more as u64).unwrap_or_default();
        self.changed = true;
        let starts: Vec<u64> = ready.iter().flat_map(|run| run.start..run.end()).collect();
        for run in runs.iter().copied().chain(starts.iter().copied().map(single)) {
            filling.lock().insert(run.start);
            let stored = self.put_freed(run);
            self.fatal(stored)?;
        }
        let lent = &mut self.space.lent;
        // From the end, so that they are used in order.
        lent.ready.splice(0..0, starts.into_iter().rev());
        if few {
            lent.more = (lent.more * 2).clamp(1, READY_MAX);
        }
        Ok(runs)
    }

    /// What is ready and has not been wanted for a while is left to be zeroed, as anything else that is freed. Whether some are
    /// ready still.
    pub(crate) fn stop_lending(&mut self, filling: &Mutex<BTreeSet<u64>>, now: Monotonic) -> bool {
        let lent = &mut self.space.lent;
        if now.since(lent.wanted) >= REST {
            let mut filling = filling.lock();
            lent.ready.drain(..).for_each(|start| {
                filling.remove(&start);
            });
            lent.more = 0;
        }
        !lent.ready.is_empty()
    }
}
