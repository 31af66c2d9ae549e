//! What is under way for somebody who may go: how much it is, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Set while what is under way is to end; the other bits count it.
const ENDS: usize = 1 << (usize::BITS - 1);

/// What is under way.
#[derive(Clone, Default)]
pub(super) struct Commands(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// How many are under way, and whether they are to end: in one word, so that none begins once that is said.
    state: AtomicUsize,
    changed: Notify,
}

/// Something that is under way until this is dropped.
pub(super) struct Command(Arc<Inner>);

impl Drop for Command {
    fn drop(&mut self) {
        if self.0.state.fetch_sub(1, Ordering::SeqCst) & !ENDS == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl Commands {
    /// One begins; `None` once they are to end.
    pub(super) fn begin(&self) -> Option<Command> {
        let next = |state: usize| (state & ENDS == 0).then_some(state + 1);
        self.0.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Command(self.0.clone()))
    }

    /// Whether they are to end.
    pub(super) fn are_ending(&self) -> bool {
        self.0.state.load(Ordering::SeqCst) & ENDS != 0
    }

    /// Ends when they are to end.
    pub(super) async fn ending(&self) {
        self.wait(|state| state & ENDS != 0).await;
    }

    /// No other begins from now on, those under way are told to end, and this does when they have.
    pub(super) async fn end(&self) {
        self.0.state.fetch_or(ENDS, Ordering::SeqCst);
        self.0.changed.notify_waiters();
        self.wait(|state| state == ENDS).await;
    }

    /// Ends when none is under way, whenever that is.
    pub(super) async fn have_ended(&self) {
        self.wait(|state| state & !ENDS == 0).await;
    }

    async fn wait(&self, until: impl Fn(usize) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.changed.notified());
            // Before the look, so that a change after it is noticed.
            changed.as_mut().enable();
            if until(self.0.state.load(Ordering::SeqCst)) {
                return;
            }
            changed.await;
        }
    }
}
