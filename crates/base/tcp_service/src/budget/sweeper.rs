//! Who ends those who stand still.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{SWEEP, Shared};

/// Looks for those who stand still as long as somebody waits, or more is charged than there is.
pub(super) struct Sweeper {
    shared: Arc<Shared>,
    /// It has said itself that it sweeps no more.
    ended: bool,
}

impl Sweeper {
    /// One at a time, on the shard of who began to wait.
    pub(super) fn start(shared: &Arc<Shared>) {
        if shared.sweeping.swap(true, Ordering::SeqCst) {
            return;
        }
        let mut sweeper = Self { shared: Arc::clone(shared), ended: false };
        shard_runtime::spawn_local(async move {
            let shared = Arc::clone(&sweeper.shared);
            let is_needed = || shared.waiting.load(Ordering::SeqCst) > 0 || shared.over() > 0;
            while !sweeper.ended {
                shared.watch();
                while is_needed() {
                    shard_runtime::sleep(SWEEP).await;
                    shared.sweep();
                }
                shared.sweeping.store(false, Ordering::SeqCst);
                // Who came just before that took this one for one that goes on.
                sweeper.ended = !is_needed() || shared.sweeping.swap(true, Ordering::SeqCst);
            }
        });
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.sweeping.store(false, Ordering::SeqCst);
        }
        // Who began to wait meanwhile asks again, and so starts another one.
        self.shared.wake_first();
    }
}
