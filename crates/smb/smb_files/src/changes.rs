//! Changes of a file that are under way: through an open, whose closing waits for them, and those whose requests were dropped, for which
//! whatever changes the file after them waits.
//!
//! ```text
//!   Asking (who asks) ──► Going (the change, which goes on when who asks is dropped)
//!      └─ dropped before the change has ended: an orphan of the node, until it has
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::open::Open;

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
    fn end(&self) {
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

/// How far a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was done.
    New,
    Going,
    /// It goes on, and who asked for it is gone.
    Orphan,
    Ended,
}

/// A change, as both sides of it see it. Both stay on one thread.
struct Shared {
    open: Arc<Open>,
    stage: Cell<Stage>,
}

/// Who asks for a change.
pub(crate) struct Asking(Rc<Shared>);

/// The change itself, which is under way until this is dropped.
pub(crate) struct Going(Rc<Shared>);

impl Asking {
    pub(crate) fn new(open: &Arc<Open>) -> Self {
        Self(Rc::new(Shared { open: Arc::clone(open), stage: Cell::new(Stage::New) }))
    }

    /// The side of the change; it counts from [`Going::begin`] on.
    pub(crate) fn going(&self) -> Going {
        Going(Rc::clone(&self.0))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.0.stage.get() == Stage::Going {
            self.0.stage.set(Stage::Orphan);
            self.0.open.node.orphans.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Going {
    pub(crate) fn begin(self) -> Self {
        self.0.stage.set(Stage::Going);
        self.0.open.changes.count.fetch_add(1, Ordering::SeqCst);
        self
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let stage = self.0.stage.replace(Stage::Ended);
        if stage == Stage::Orphan {
            self.0.open.node.orphans.end();
        }
        if stage != Stage::New {
            self.0.open.changes.end();
        }
    }
}
