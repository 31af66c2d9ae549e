//! Memory that all caches of a node share.
//!
//! ```text
//!   total = what members have put by for themselves  +  what is for all
//!                                                         │ taken by whoever writes; when there is none, the member that has most
//!                                                         ▼ of it, and can, brings blocks to its overflow file
//! ```
//! A cache that can give memory back may have all that nobody else wants: one that comes later gets its part, as those that have most give
//! first. A cache without an overflow file can give nothing back, so it puts all that it may ever have by at its beginning, or does not begin.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use block_device::BlockFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A member that may have memory which it can give back.
pub(crate) trait Evict: Send + Sync {
    /// Brings what it has used least recently to its overflow file. Bytes of memory that are free by that; 0 when it had nothing to give.
    fn evict(self: Arc<Self>) -> BlockFuture<'static, u64>;
    /// How it stands with that now.
    fn ability(&self) -> Ability;
}

/// Whether a member can give memory back, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    /// Nothing speaks against it.
    Ready,
    /// What it tried last failed.
    Failed,
    /// Something of it is on its way, which may take as long as its volume takes.
    Busy,
}

/// The memory that all caches of a node share. Cheap to clone.
#[derive(Clone, Default)]
pub struct Budget(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when memory was given back, or there is more.
    freed: Notify,
}

#[derive(Default)]
struct State {
    total: u64,
    /// What members have.
    used: u64,
    /// What members have or have put by, whichever is more.
    committed: u64,
    members: BTreeMap<u64, Member>,
    next: u64,
}

impl State {
    /// Bytes that are not put by.
    fn left(&self) -> u64 {
        let put: u64 = self.members.values().map(|member| member.put_by).sum();
        self.total.saturating_sub(put)
    }
}

struct Member {
    put_by: u64,
    limit: u64,
    used: u64,
    evict: Option<Weak<dyn Evict>>,
}

impl Member {
    fn committed(&self) -> u64 {
        self.used.max(self.put_by)
    }

    /// What it has of what is for all.
    fn of_all(&self) -> u64 {
        self.used.saturating_sub(self.put_by)
    }
}

/// What is put by for all caches leaves too little for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Bytes that it wanted put by.
    pub wanted: u64,
    /// Bytes that are left to be put by.
    pub left: u64,
}

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { wanted, left } = self;
        write!(
            f,
            "{wanted} bytes of memory are needed for the write cache, and {left} of its budget are left"
        )
    }
}

impl std::error::Error for NoRoom {}

/// Why memory was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// The cache has all that it may have.
    Own,
    /// There is none for anybody.
    All,
}

impl Budget {
    /// So many bytes for all.
    #[must_use]
    pub fn new(total: u64) -> Self {
        let budget = Self::default();
        budget.0.state.lock().total = total;
        budget
    }

    /// Bytes for all from now on. With less than is in use, nobody gets more until that was given back.
    pub fn set_total(&self, total: u64) {
        self.0.state.lock().total = total;
        self.0.freed.notify_waiters();
    }

    /// Bytes for all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.state.lock().total
    }

    /// Bytes that no cache has put by for itself.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.0.state.lock().left()
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.state.lock().used
    }

    /// A cache that may have up to `limit` bytes, `put_by` of which are its own whether it uses them or not.
    pub(crate) fn join(&self, put_by: u64, limit: u64) -> Result<Share, NoRoom> {
        let mut state = self.0.state.lock();
        let left = state.left();
        if put_by > left {
            return Err(NoRoom { wanted: put_by, left });
        }
        let id = state.next;
        state.next += 1;
        let member = Member { put_by, limit: limit.max(put_by), used: 0, evict: None };
        state.committed += member.committed();
        state.members.insert(id, member);
        Ok(Share { shared: Arc::clone(&self.0), id })
    }
}

/// A cache's part of the budget; what it has is given back when this is dropped.
pub(crate) struct Share {
    shared: Arc<Shared>,
    id: u64,
}

impl Share {
    /// It can give memory back this way.
    pub(crate) fn gives_by(&self, evict: Weak<dyn Evict>) {
        if let Some(member) = self.shared.state.lock().members.get_mut(&self.id) {
            member.evict = Some(evict);
        }
    }

    /// Takes bytes, all or none.
    pub(crate) fn take(&self, bytes: u64) -> Result<Taken<'_>, Short> {
        let mut state = self.shared.state.lock();
        let (total, used, committed) = (state.total, state.used, state.committed);
        let Some(member) = state.members.get_mut(&self.id) else { return Err(Short::Own) };
        if member.used + bytes > member.limit {
            return Err(Short::Own);
        }
        let before = member.committed();
        let more = (member.used + bytes).max(member.put_by) - before;
        // What is put by for one that has come later may be in use still by one that gives it back.
        if used + bytes > total || more > 0 && committed + more > total {
            return Err(Short::All);
        }
        member.used += bytes;
        state.used += bytes;
        state.committed += more;
        Ok(Taken { share: self, bytes })
    }

    /// Gives bytes back that were taken and kept.
    pub(crate) fn give(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        {
            let mut state = self.shared.state.lock();
            let Some(member) = state.members.get_mut(&self.id) else { return };
            let before = member.committed();
            member.used = member.used.saturating_sub(bytes);
            let less = before - member.committed();
            state.committed -= less;
            state.used = state.used.saturating_sub(bytes);
        }
        self.shared.freed.notify_waiters();
    }

    /// Bytes that it has.
    pub(crate) fn used(&self) -> u64 {
        self.shared.state.lock().members.get(&self.id).map_or(0, |member| member.used)
    }

    /// Which member it is.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether seven eighths of what it may have are in use, or of what there is for all, some of which it has.
    pub(crate) fn is_tight(&self) -> bool {
        let state = self.shared.state.lock();
        let Some(member) = state.members.get(&self.id) else { return false };
        let put_by: u64 = state.members.values().map(|member| member.put_by).sum();
        let of_all: u64 = state.members.values().map(Member::of_all).sum();
        let for_all = state.total.saturating_sub(put_by);
        member.used > member.limit / 8 * 7 || of_all > for_all / 8 * 7 && member.of_all() > 0
    }

    /// Those that have some of what is for all and can give it back, those that have most first. None of them is kept by that: one that ends
    /// is not held up by those who look for room.
    pub(crate) fn heaviest(&self) -> Vec<(u64, Weak<dyn Evict>)> {
        let mut able: Vec<_> = {
            let state = self.shared.state.lock();
            let others = state.members.iter().filter(|(_, member)| member.of_all() > 0);
            others.filter_map(|(id, member)| Some((member.of_all(), *id, member.evict.clone()?))).collect()
        };
        able.sort_by_key(|(of_all, id, _)| Reverse((*of_all, *id)));
        able.into_iter().map(|(_, id, evict)| (id, evict)).collect()
    }

    /// Wakes those who wait for memory, to look again.
    pub(crate) fn wake(&self) {
        self.shared.freed.notify_waiters();
    }

    /// Told when memory was given back, also before this is awaited.
    pub(crate) fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.freed.notified()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            if let Some(member) = state.members.remove(&self.id) {
                state.committed -= member.committed();
                state.used -= member.used;
            }
        }
        self.shared.freed.notify_waiters();
    }
}

/// Bytes that were taken; those that are not kept go back when this is dropped.
pub(crate) struct Taken<'a> {
    share: &'a Share,
    bytes: u64,
}

impl Taken<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some of them are in use now: whoever uses them gives them back.
    pub(crate) fn keep(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.share.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(taken: Result<Taken<'_>, Short>) -> Result<(), Short> {
        taken.map(|mut taken| taken.keep(taken.bytes()))
    }

    #[test]
    fn what_is_put_by_is_nobody_elses_and_the_rest_is_for_all() {
        let budget = Budget::new(100);
        let fixed = budget.join(40, 40).expect("room");
        let elastic = budget.join(10, 1000).expect("room");
        assert_eq!(budget.join(51, 60).err(), Some(NoRoom { wanted: 51, left: 50 }));
        assert_eq!(keep(elastic.take(60)), Ok(()));
        assert_eq!(keep(elastic.take(1)), Err(Short::All));
        assert_eq!(keep(fixed.take(40)), Ok(()));
        assert_eq!(keep(fixed.take(1)), Err(Short::Own));
        assert_eq!(budget.used(), 100);
        // Taken and not kept.
        elastic.give(20);
        drop(elastic.take(15));
        assert_eq!((elastic.used(), budget.used()), (40, 80));
        drop(fixed);
        assert_eq!(keep(elastic.take(60)), Ok(()));
        budget.set_total(50);
        elastic.give(50);
        assert_eq!(keep(elastic.take(1)), Err(Short::All));
        drop(elastic);
        assert_eq!((budget.used(), budget.0.state.lock().committed), (0, 0));
    }

    #[test]
    fn one_that_comes_later_has_what_is_put_by_for_it_when_others_have_given_it_back() {
        let budget = Budget::new(100);
        let first = budget.join(10, 1000).expect("room");
        assert_eq!(keep(first.take(100)), Ok(()));
        let later = budget.join(30, 30).expect("room");
        assert_eq!(keep(later.take(20)), Err(Short::All));
        first.give(25);
        assert_eq!(keep(later.take(20)), Ok(()));
        assert_eq!(keep(first.take(5)), Err(Short::All), "it is put by for the other");
        assert_eq!(budget.used(), 95);
    }
}
