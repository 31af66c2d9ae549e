//! Which pages of checksums stay in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pool_format::SUMS_PER_PAGE;

use crate::row::Row;

/// Bytes of pages in memory at most, unless told otherwise: enough for 256 GiB of data in use.
const CACHE_BYTES: usize = 256 << 20;
/// Memory of one page.
const PAGE_BYTES: usize = SUMS_PER_PAGE as usize * 4;
/// Pages that one more page in memory may cost a look at.
const LOOKS: usize = 16;

/// Pages in memory of a whole pool, the longest there first.
pub(crate) struct SumsCache {
    queue: Mutex<VecDeque<(Weak<Row>, u8, u32)>>,
    limit: AtomicUsize,
}

impl Default for SumsCache {
    fn default() -> Self {
        Self { queue: Mutex::default(), limit: AtomicUsize::new(CACHE_BYTES / PAGE_BYTES) }
    }
}

impl SumsCache {
    /// Takes at most this many bytes from now on.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store((bytes / PAGE_BYTES).max(1), Ordering::Release);
    }

    /// Counts a page, and lets go of those that have not been used for the longest time (second chance).
    pub(crate) fn admit(&self, row: &Arc<Row>, column: u8, page: usize) {
        let mut queue = self.queue.lock();
        queue.push_back((Arc::downgrade(row), column, page as u32));
        for _ in 0..LOOKS {
            if queue.len() <= self.limit.load(Ordering::Acquire) {
                return;
            }
            let Some((row, column, page)) = queue.pop_front() else { return };
            if row.upgrade().is_some_and(|row| !let_go(&row, column, page)) {
                queue.push_back((row, column, page));
            }
        }
    }
}

/// Takes a page out of memory; `false` when it is needed.
fn let_go(row: &Row, column: u8, page: u32) -> bool {
    let Some(slot) = row.column(column).sums.as_ref().and_then(|sums| sums.pages.get(page as usize)) else {
        return true;
    };
    let mut slot = slot.write();
    // Whoever holds it may be about to change it: a second one from disk would lack that.
    let free = slot.as_ref().is_none_or(|page| {
        !page.used.swap(false, Ordering::AcqRel)
            && !page.dirty.load(Ordering::Acquire)
            && page.generation.load(Ordering::Acquire) == page.told.load(Ordering::Acquire)
            && Arc::strong_count(page) == 1
    });
    if free {
        *slot = None;
    }
    free
}
