//! An initiator at the gate: whether it may write, and how much it has under way. One word for both, so that who is barred is known to
//! have begun nothing afterwards.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// It may not write.
const BARRED: u64 = 1 << 63;
/// Somebody waits, or has waited, for what is under way. Never taken back: it only makes the end of the last write dearer.
const WAITED_FOR: u64 = 1 << 62;
/// What is under way, counted.
const UNDER_WAY: u64 = WAITED_FOR - 1;

/// One initiator.
pub(crate) struct Port {
    pub(crate) name: Box<str>,
    word: AtomicU64,
    ended: Notify,
}

/// Something under way; it is over when this is dropped.
pub(crate) struct Pass<'a>(&'a Port);

impl Port {
    pub(crate) fn new(name: &str, barred: bool) -> Self {
        Self {
            name: name.into(),
            word: AtomicU64::new(if barred { BARRED } else { 0 }),
            ended: Notify::new(),
        }
    }

    /// Begins something that changes the disk, if this initiator may.
    pub(crate) fn enter(&self) -> Option<Pass<'_>> {
        // All changes of one word have one order: who bars later sees what is under way here, and who has barred before is seen here.
        let before = self.word.fetch_add(1, Ordering::AcqRel);
        let pass = Pass(self);
        (before & BARRED == 0).then_some(pass)
    }

    /// Lets nothing begin from now on.
    pub(crate) fn bar(&self) {
        self.word.fetch_or(BARRED, Ordering::AcqRel);
    }

    /// Lets things begin again.
    pub(crate) fn admit(&self) {
        self.word.fetch_and(!BARRED, Ordering::AcqRel);
    }

    /// Ends when nothing is under way.
    pub(crate) async fn idle(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.word.fetch_or(WAITED_FOR, Ordering::AcqRel) & UNDER_WAY == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let before = self.0.word.fetch_sub(1, Ordering::AcqRel);
        if before & WAITED_FOR != 0 && before & UNDER_WAY == 1 {
            self.0.ended.notify_waiters();
        }
    }
}
