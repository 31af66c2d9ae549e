//! How a cache ends: nothing of it goes to its overflow file any more, and whoever is at it hears of that.
//!
//! ```text
//!   stop ──► writers that wait for room, blocks that were to leave, who asks from now on: it is gone
//!     ──► what is at the file comes to its end, with no limit ──► the file is nobody's, and can be removed
//! ```
//! What was begun before is carried out or not; in either case it is answered as gone, as nobody finds it any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::{BlockError, BlockErrorKind};

use crate::cache::{Inner, WriteCache};
use crate::overflow::Overflow;

/// How often it is looked whether the last operation at the overflow file has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// So long that takes before somebody is told, and told again: a disk is given less.
const TELL_EVERY: u32 = 1000;

impl Inner {
    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// # Errors
    /// When it has ended.
    pub(crate) fn still(&self) -> Result<(), BlockError> {
        if self.has_ended() {
            return Err(BlockError::new(BlockErrorKind::Gone, "use a write cache that has ended"));
        }
        Ok(())
    }
}

impl WriteCache {
    /// Ends it without waiting: whatever was asked and is not answered yet, and what is asked from now on, ends with
    /// [`BlockErrorKind::Gone`]. Its overflow file is open for as long as operations are under way to it.
    pub fn stop(&self) {
        let inner = self.inner();
        inner.ended.store(true, Ordering::Release);
        if let Some(overflow) = &inner.overflow {
            overflow.let_go();
        }
        inner.share.wake();
    }

    /// The same, and waits until nothing of it is under way, however long that takes: nobody has its overflow file open then, and what it had of
    /// the budget is given back when it is dropped.
    pub async fn end(&self) {
        self.stop();
        let inner = self.inner();
        let is_used =
            || inner.overflow.as_ref().is_some_and(Overflow::is_in_use) || Arc::strong_count(inner) > 1;
        let mut looked: u32 = 0;
        while is_used() {
            looked = looked.wrapping_add(1);
            if looked.is_multiple_of(TELL_EVERY) {
                let seconds = (LOOK_EVERY * looked).as_secs();
                tracing::warn!(seconds, "a write cache cannot be closed: its overflow file does not answer");
            }
            shard_runtime::sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for WriteCache {
    fn drop(&mut self) {
        self.stop();
    }
}
