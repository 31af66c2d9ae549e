//! Changes that are under way through an open: closing it waits for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many there are, and who waits for them to end.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    count: AtomicUsize,
    none: Notify,
}

/// A change that is under way until this is dropped.
pub(crate) struct Change<'a>(&'a Changes);

impl Changes {
    /// A change begins.
    pub(crate) fn begin(&self) -> Change<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Change(self)
    }

    /// Ends when none is under way.
    pub(crate) async fn ended(&self) {
        loop {
            let mut none = std::pin::pin!(self.none.notified());
            // Before the look, so that an end after it is noticed.
            none.as_mut().enable();
            if self.count.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}
