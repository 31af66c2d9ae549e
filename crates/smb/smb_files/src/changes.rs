//! Changes of a file that are under way: how many, and who waits for their end.

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
        self.add();
        Change(self)
    }

    /// Ends when none is under way.
    pub(crate) async fn ended(&self) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
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

impl Changes {
    /// A change begins, and ends with [`Changes::end`].
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// One that was added has ended.
    pub(crate) fn end(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.none.notify_waiters();
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
