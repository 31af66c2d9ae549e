//! Changes of a file through an open, whose closing waits for them, and those whose requests were dropped, for which whatever changes
//! the file after them waits.
//!
//! ```text
//!   Asking (who asks) ──► Going (the change, which goes on when who asks is dropped)
//!      └─ dropped before the change has ended: an orphan of the node, until it has
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::file_system::Open;

impl Open {
    /// A change through this open. Once begun it goes on to its end, whatever becomes of the request that wanted it: what is known
    /// here and what the store has do not come apart half-way. Closing waits for it, so that nobody who may come in then meets it, and
    /// whatever changes the file after the request was dropped waits for it, so that it surprises nobody.
    pub(crate) fn change<T: 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T> + 'static {
        let open = Arc::clone(self);
        async move {
            // What nobody waits for any more comes before what is asked for now.
            open.node.orphans.ended().await;
            let asking = Asking::new(&open);
            let going = asking.going();
            let change = shard_runtime::finish_anyway(async move {
                let _going = going.begin();
                work.await
            });
            change.await
        }
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
struct Asking(Rc<Shared>);

/// The change itself, which is under way until this is dropped.
struct Going(Rc<Shared>);

impl Asking {
    fn new(open: &Arc<Open>) -> Self {
        Self(Rc::new(Shared { open: Arc::clone(open), stage: Cell::new(Stage::New) }))
    }

    /// The side of the change; it counts from [`Going::begin`] on.
    fn going(&self) -> Going {
        Going(Rc::clone(&self.0))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.0.stage.get() == Stage::Going {
            self.0.stage.set(Stage::Orphan);
            self.0.open.node.orphans.add();
        }
    }
}

impl Going {
    fn begin(self) -> Self {
        self.0.stage.set(Stage::Going);
        self.0.open.changes.add();
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
