//! Ends commands: ABORT TASK SET and its like, PREEMPT AND ABORT, LOGICAL UNIT RESET.

use scsi_defs::asc;

use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// Marks commands as aborted and waits until they have ended; so it does for those of nexuses that are gone.
    pub(crate) async fn abort(&self, concerns: impl Fn(u64) -> bool, except: Option<u64>) -> Vec<u64> {
        let (marked, mut nexuses) = {
            let inner = self.inner.lock();
            let gone = |nexus: u64| !inner.nexuses.contains_key(&nexus);
            self.tasks.mark_aborted(|nexus, orphan| concerns(nexus) || orphan && gone(nexus), except)
        };
        self.tasks.wake();
        self.tasks.ended(&marked).await;
        nexuses.dedup();
        nexuses
    }

    /// Waits for what its transport has dropped by now and goes on here, as it had begun to change something: none of that comes after
    /// what is done next.
    pub async fn dropped_have_ended(&self) {
        self.tasks.orphans_ended().await;
    }

    /// LOGICAL UNIT RESET.
    pub(crate) async fn reset(&self) {
        self.abort(|_| true, None).await;
        let mut inner = self.inner.lock();
        inner.legacy = None;
        inner.stopped = false;
        inner.mode = inner.saved_mode;
        inner.attention_all(None, asc::DEVICE_RESET);
    }
}
