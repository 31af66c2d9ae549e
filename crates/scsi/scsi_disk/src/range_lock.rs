//! Locks on byte ranges: shared by writers, exclusive for COMPARE AND WRITE.

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Clone, Copy)]
struct Held {
    id: u64,
    start: u64,
    end: u64,
    exclusive: bool,
}

#[derive(Default)]
struct Table {
    next: u64,
    held: Vec<Held>,
}

/// The locks of one device.
#[derive(Default)]
pub(crate) struct RangeLock {
    table: Mutex<Table>,
    freed: Notify,
}

/// A lock; dropping it frees the range.
pub(crate) struct RangeGuard<'a>(&'a RangeLock, u64);

impl RangeLock {
    /// Waits until no exclusive lock overlaps.
    pub(crate) async fn shared(&self, offset: u64, len: u64) -> RangeGuard<'_> {
        self.take(offset, len, false).await
    }

    /// Waits until no lock overlaps.
    pub(crate) async fn exclusive(&self, offset: u64, len: u64) -> RangeGuard<'_> {
        self.take(offset, len, true).await
    }

    async fn take(&self, start: u64, len: u64, exclusive: bool) -> RangeGuard<'_> {
        let end = start.saturating_add(len);
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registered before the look, so that a lock freed between the two is noticed.
            freed.as_mut().enable();
            {
                let mut table = self.table.lock();
                let busy = table
                    .held
                    .iter()
                    .any(|held| (exclusive || held.exclusive) && held.start < end && start < held.end);
                if !busy {
                    let id = table.next;
                    table.next += 1;
                    table.held.push(Held { id, start, end, exclusive });
                    return RangeGuard(self, id);
                }
            }
            freed.await;
        }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.0.table.lock().held.retain(|held| held.id != self.1);
        self.0.freed.notify_waiters();
    }
}
