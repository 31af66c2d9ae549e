//! Lets reads run without locks, and whoever frees clusters wait until no earlier read can reach them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts readers in two generations; [`ReadGate::drain`] starts a new one and waits for the old to end.
#[derive(Default)]
pub(crate) struct ReadGate {
    generation: AtomicUsize,
    readers: [AtomicUsize; 2],
    draining: tokio::sync::Mutex<()>,
}

/// A reader, until dropped.
pub(crate) struct Reading<'a>(&'a AtomicUsize);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ReadGate {
    /// Enters. Look at the map of extents only afterwards.
    pub(crate) fn enter(&self) -> Reading<'_> {
        loop {
            let generation = self.generation.load(Ordering::SeqCst);
            let count = &self.readers[generation % 2];
            count.fetch_add(1, Ordering::SeqCst);
            let reading = Reading(count);
            // Had the generation changed in between, a drain could have missed this reader.
            if self.generation.load(Ordering::SeqCst) == generation {
                return reading;
            }
        }
    }

    /// Waits until every read that entered before has left.
    pub(crate) async fn drain(&self) {
        let _one = self.draining.lock().await;
        let old = self.generation.fetch_add(1, Ordering::SeqCst);
        while self.readers[old % 2].load(Ordering::SeqCst) > 0 {
            shard_runtime::sleep(Duration::from_millis(1)).await;
        }
    }
}
