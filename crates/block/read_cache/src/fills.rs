//! Read-aheads under way: a reader that catches up with one waits for it in place of reading the same again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Read-aheads under way at once on one device, at most: what they hold is bounded by it.
const MAX_FILLS: usize = 32;

/// Read-aheads that one reader waits for, one after another: then it reads for itself.
const MAX_WAITS: usize = 8;

#[derive(Default)]
struct Done {
    ended: AtomicBool,
    told: Notify,
}

/// The ranges being read ahead on one device, in bytes.
#[derive(Default)]
pub(crate) struct Fills {
    /// How many fills there are, so that readers need no lock when there are none.
    count: AtomicUsize,
    ranges: Mutex<Vec<(Range<u64>, Arc<Done>)>>,
}

impl Fills {
    /// Announces a read-ahead; `None` when there are too many, or one overlaps.
    pub(crate) fn begin(self: &Arc<Self>, range: Range<u64>) -> Option<Fill> {
        let mut ranges = self.ranges.lock();
        let overlaps = |(other, _): &(Range<u64>, _)| other.start < range.end && range.start < other.end;
        if ranges.len() >= MAX_FILLS || ranges.iter().any(overlaps) {
            return None;
        }
        let done = Arc::new(Done::default());
        ranges.push((range, Arc::clone(&done)));
        self.count.store(ranges.len(), Ordering::Release);
        Some(Fill { fills: Arc::clone(self), done })
    }

    /// Waits for the read-aheads that overlap a range; whether there were any.
    pub(crate) async fn wait(&self, range: Range<u64>) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut waited = false;
        for _ in 0..MAX_WAITS {
            let found = {
                let ranges = self.ranges.lock();
                ranges
                    .iter()
                    .find(|(other, _)| other.start < range.end && range.start < other.end)
                    .map(|(_, done)| Arc::clone(done))
            };
            let Some(done) = found else { return waited };
            waited = true;
            // Made before the look at `ended`: an end in between is not missed.
            let told = done.told.notified();
            if !done.ended.load(Ordering::Acquire) {
                told.await;
            }
        }
        waited
    }
}

/// A read-ahead under way, until it is dropped.
pub(crate) struct Fill {
    fills: Arc<Fills>,
    done: Arc<Done>,
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut ranges = self.fills.ranges.lock();
        ranges.retain(|(_, done)| !Arc::ptr_eq(done, &self.done));
        self.fills.count.store(ranges.len(), Ordering::Release);
        drop(ranges);
        self.done.ended.store(true, Ordering::Release);
        self.done.told.notify_waiters();
    }
}
