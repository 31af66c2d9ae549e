//! Byte-range locks of one stream (MS-FSA 2.1.4.10, 2.1.5.8, 2.1.5.9). Pure.
//!
//! An exclusive lock keeps others from reading, and everybody but its holder from writing; a shared one keeps everybody
//! from writing, its holder too. A range of no bytes conflicts with ranges that it lies strictly inside of.

use crate::api::OpenId;

/// Most locks on one stream: databases hold a few hundred; each is looked at by each read and write.
pub(crate) const LOCKS_MAX: usize = 16_384;

/// A range of bytes. Its end may be 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl ByteRange {
    /// Whether its last byte has an offset.
    pub(crate) fn is_valid(self) -> bool {
        self.length == 0 || self.offset.checked_add(self.length - 1).is_some()
    }

    fn end(self) -> u128 {
        u128::from(self.offset) + u128::from(self.length)
    }

    fn overlaps(self, other: Self) -> bool {
        u128::from(self.offset) < other.end() && u128::from(other.offset) < self.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) open: OpenId,
    pub(crate) range: ByteRange,
    pub(crate) exclusive: bool,
}

/// Why a lock was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Another lock is in the way.
    Conflict,
    /// There are too many.
    Full,
}

/// All locks of a stream, in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockTable {
    locks: Vec<Lock>,
}

impl LockTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Takes a lock.
    pub(crate) fn lock(&mut self, lock: Lock) -> Result<(), NotTaken> {
        let in_the_way = |held: &Lock| {
            // A shared lock may lie over its holder's own exclusive one; two shared ones never conflict.
            let stacks = !lock.exclusive && (!held.exclusive || held.open == lock.open);
            // Windows refuses the same range again even where it has no bytes to overlap in.
            let same = held.range == lock.range && lock.range.length > 0;
            !stacks && (same || held.range.overlaps(lock.range))
        };
        if self.locks.iter().any(in_the_way) {
            return Err(NotTaken::Conflict);
        }
        if self.locks.len() >= LOCKS_MAX {
            return Err(NotTaken::Full);
        }
        self.locks.push(lock);
        Ok(())
    }

    /// Gives a lock back; the range must be exactly one that was locked. Exclusive ones go first. Says whether there was
    /// one.
    pub(crate) fn unlock(&mut self, open: OpenId, range: ByteRange) -> bool {
        let mine = |lock: &Lock| lock.open == open && lock.range == range;
        let found = self.locks.iter().position(|lock| mine(lock) && lock.exclusive);
        let found = found.or_else(|| self.locks.iter().position(mine));
        found.map(|at| self.locks.remove(at)).is_some()
    }

    /// Takes back the lock that was taken last, if it is this one.
    pub(crate) fn undo(&mut self, lock: &Lock) {
        if let Some(at) = self.locks.iter().rposition(|held| held == lock) {
            self.locks.remove(at);
        }
    }

    /// Whether a read or write by `open` is kept out.
    pub(crate) fn blocks(&self, open: OpenId, range: ByteRange, write: bool) -> bool {
        range.length > 0
            && self.locks.iter().any(|lock| {
                let keeps_out = if lock.exclusive { lock.open != open } else { write };
                keeps_out && lock.range.overlaps(range)
            })
    }

    /// Gives all locks of an open back; says whether there were any.
    pub(crate) fn release(&mut self, open: OpenId) -> bool {
        let before = self.locks.len();
        self.locks.retain(|lock| lock.open != open);
        self.locks.len() != before
    }

    /// The locks of an open.
    pub(crate) fn of(&self, open: OpenId) -> impl Iterator<Item = &Lock> {
        self.locks.iter().filter(move |lock| lock.open == open)
    }

    /// Puts a lock back as it was before a restart.
    pub(crate) fn restore(&mut self, lock: Lock) {
        self.locks.push(lock);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(offset: u64, length: u64) -> ByteRange {
        ByteRange { offset, length }
    }

    fn lock(open: u64, offset: u64, length: u64, exclusive: bool) -> Lock {
        Lock { open: OpenId(open), range: range(offset, length), exclusive }
    }

    #[test]
    fn who_keeps_whom_out() {
        let mut table = LockTable::default();
        table.lock(lock(1, 10, 10, true)).unwrap();
        assert!(!table.blocks(OpenId(1), range(0, 100), true));
        assert!(table.blocks(OpenId(2), range(19, 1), false) && !table.blocks(OpenId(2), range(20, 1), true));
        assert!(!table.blocks(OpenId(2), range(15, 0), true), "no bytes, no conflict");
        table.lock(lock(1, 50, 1, false)).unwrap();
        assert!(table.blocks(OpenId(1), range(50, 1), true), "a shared lock keeps its holder from writing");
        assert!(!table.blocks(OpenId(2), range(50, 1), false));
    }

    #[test]
    fn stacking_and_unlocking() {
        let mut table = LockTable::default();
        table.lock(lock(1, 0, 10, true)).unwrap();
        assert_eq!(table.lock(lock(1, 0, 10, true)), Err(NotTaken::Conflict));
        table.lock(lock(1, 0, 10, false)).unwrap();
        assert_eq!(table.lock(lock(2, 0, 10, false)), Err(NotTaken::Conflict));
        assert!(!table.unlock(OpenId(1), range(0, 9)) && !table.unlock(OpenId(2), range(0, 10)));
        assert!(table.unlock(OpenId(1), range(0, 10)));
        table.lock(lock(2, 0, 10, false)).unwrap();
        assert!(table.unlock(OpenId(1), range(0, 10)) && !table.unlock(OpenId(1), range(0, 10)));
    }

    #[test]
    fn ranges_of_no_bytes_and_at_the_end() {
        let mut table = LockTable::default();
        table.lock(lock(1, 10, 0, true)).unwrap();
        table.lock(lock(2, 10, 0, true)).unwrap();
        assert_eq!(table.lock(lock(2, 9, 2, true)), Err(NotTaken::Conflict), "10 is strictly inside");
        table.lock(lock(2, 10, 5, true)).unwrap();
        assert_eq!(table.lock(lock(1, 12, 0, true)), Err(NotTaken::Conflict));
        table.lock(lock(1, 15, 0, true)).unwrap();
        assert!(
            range(u64::MAX, 1).is_valid() && range(u64::MAX, 0).is_valid() && !range(u64::MAX, 2).is_valid()
        );
        table.lock(lock(1, u64::MAX, 1, true)).unwrap();
        assert!(table.blocks(OpenId(2), range(u64::MAX, 1), false));
    }

    proptest! {
        /// Byte by byte: who holds what, as a list of (open, exclusive) for each.
        #[test]
        fn a_table_agrees_with_a_byte_map(
            steps in prop::collection::vec((0_u8..3, 1_u64..4, 0_u64..12, 1_u64..6, any::<bool>()), 0..40)
        ) {
            let mut table = LockTable::default();
            let mut held: Vec<Lock> = Vec::new();
            for (what, open, offset, length, exclusive) in steps {
                let new = lock(open, offset, length, exclusive);
                let bytes = offset..offset + length;
                let covers = |l: &Lock, byte: u64| byte >= l.range.offset && byte < l.range.offset + l.range.length;
                match what {
                    0 => {
                        let free = bytes.clone().all(|b| held.iter().filter(|l| covers(l, b)).all(|l| {
                            !exclusive && (!l.exclusive || l.open == new.open)
                        }));
                        prop_assert_eq!(table.lock(new).is_ok(), free);
                        if free { held.push(new); }
                    }
                    1 => {
                        let at = held.iter().position(|l| l.open == new.open && l.range == new.range && l.exclusive)
                            .or_else(|| held.iter().position(|l| l.open == new.open && l.range == new.range));
                        prop_assert_eq!(table.unlock(new.open, new.range), at.is_some());
                        if let Some(at) = at { held.remove(at); }
                    }
                    _ => {
                        let blocked = bytes.clone().any(|b| held.iter().filter(|l| covers(l, b)).any(|l| {
                            if l.exclusive { l.open != new.open } else { exclusive }
                        }));
                        prop_assert_eq!(table.blocks(new.open, new.range, exclusive), blocked);
                    }
                }
            }
        }
    }
}
