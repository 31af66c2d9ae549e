//! "May I answer now?": what a shard looks at when data was read, and before an answer is queued.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pool_ownership::BootTime;

use crate::clock::boot_time;

/// Taken back for good.
const REVOKED: u64 = 0;
/// Not given yet.
const NOT_YET: u64 = 1;

/// The permit to answer for one pool in one epoch. Clones are the same permit; looking at it costs one load and one reading of
/// the clock.
#[derive(Clone)]
pub struct Permit(Arc<AtomicU64>);

impl Permit {
    /// One that was not given yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(NOT_YET)))
    }

    /// The permit of a node on its own, whose pools nobody else takes: it lasts until it is taken back, and looking at it reads no
    /// clock.
    #[must_use]
    pub fn without_end() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// Whether an answer may be given now.
    #[must_use]
    #[inline]
    pub fn may_answer(&self) -> bool {
        let until = self.0.load(Ordering::Acquire);
        until == u64::MAX || boot_time().0 < until
    }

    /// Whether an answer may be given at this time.
    #[must_use]
    pub fn allows(&self, at: BootTime) -> bool {
        at.0 < self.0.load(Ordering::Acquire)
    }

    /// Until when, as far as is known now; the past when it was not given yet, or was taken back.
    #[must_use]
    pub fn until(&self) -> BootTime {
        BootTime(self.0.load(Ordering::Acquire))
    }

    /// Takes it back for good. Whoever finds out first that the pool has another owner does this, without waiting for anybody.
    pub fn revoke(&self) {
        self.0.store(REVOKED, Ordering::SeqCst);
    }

    /// Whether it was taken back.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.load(Ordering::Acquire) == REVOKED
    }

    /// Gives it until then, also earlier than before; not when it was taken back.
    pub(crate) fn set(&self, until: BootTime) {
        let until = until.0.max(NOT_YET);
        let unless_revoked = |present| (present != REVOKED).then_some(until);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unless_revoked);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit(until {})", self.until().0)
    }
}

/// The permit of a node to answer anything at all: what is asked last, when bytes are about to leave. Clones are the same permit.
///
/// It goes from life to life: whoever has begun something remembers in which one.
#[derive(Clone, Debug, Default)]
pub struct NodePermit(Arc<Lives>);

#[derive(Debug, Default)]
struct Lives {
    /// 0 between lives.
    life: AtomicU64,
    until: AtomicU64,
}

impl NodePermit {
    /// The number of the life in which the node may answer now; none when it may not.
    #[must_use]
    #[inline]
    pub fn life(&self) -> Option<u64> {
        let life = self.0.life.load(Ordering::SeqCst);
        let until = self.0.until.load(Ordering::SeqCst);
        // What was read belongs together: a life that ends takes its number away before the next one has a permit.
        (life != 0 && boot_time().0 < until && self.0.life.load(Ordering::SeqCst) == life).then_some(life)
    }

    /// A life begins, without a permit.
    pub(crate) fn begin(&self, life: u64) {
        self.0.until.store(0, Ordering::SeqCst);
        self.0.life.store(life, Ordering::SeqCst);
    }

    /// Its permit lasts until then, also earlier than before.
    pub(crate) fn set(&self, until: BootTime) {
        self.0.until.store(until.0, Ordering::SeqCst);
    }

    /// The life is over.
    pub(crate) fn end(&self) {
        self.0.life.store(0, Ordering::SeqCst);
        self.0.until.store(0, Ordering::SeqCst);
    }
}

/// The node's permit; over when the work is.
pub(crate) struct Ending(pub(crate) NodePermit);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_permit_begins_ends_and_is_taken_back_for_good() {
        let permit = Permit::new();
        assert!(!permit.may_answer(), "it was not given yet");
        permit.set(boot_time().after(Duration::from_secs(3600)));
        let shard = permit.clone();
        assert!(shard.may_answer());
        permit.set(BootTime(0));
        assert!(!shard.may_answer() && !shard.is_revoked(), "it is over, and may begin again");
        permit.set(boot_time().after(Duration::from_secs(3600)));
        assert!(shard.may_answer());
        shard.revoke();
        permit.set(BootTime::NEVER);
        assert!(!permit.may_answer() && permit.is_revoked(), "what was taken back is not given again");
    }

    #[test]
    fn the_permit_of_a_node_is_that_of_its_life() {
        let permit = NodePermit::default();
        let hour = || boot_time().after(Duration::from_secs(3600));
        assert_eq!(permit.life(), None);
        permit.set(hour());
        assert_eq!(permit.life(), None, "without a life there is nobody to answer");
        permit.begin(3);
        assert_eq!(permit.life(), None, "a life begins without one");
        permit.set(hour());
        assert_eq!(permit.clone().life(), Some(3));
        permit.set(BootTime(0));
        assert_eq!(permit.life(), None);
        permit.set(hour());
        permit.end();
        assert_eq!(permit.life(), None);
    }

    #[test]
    fn the_permit_of_a_node_on_its_own_ends_only_when_it_is_taken_back() {
        let permit = Permit::without_end();
        assert!(permit.may_answer() && permit.allows(BootTime(u64::MAX - 1)));
        permit.revoke();
        assert!(!permit.may_answer());
    }
}
