//! [`WaitingRoom`]: commands of a node that wait, each for a moment, for a unit that is on the way from one node to another.
//!
//! Only commands with the attribute SIMPLE wait, as nothing is said of their order. One that has to come after all before it
//! (ORDERED) is not let past those that wait, it is told to come again; and a command that such a one has passed does not begin to wait.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use scsi_core::TaskAttribute;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Commands of a node that wait at most, and bytes of their data: initiators that have more are told to come again, as one that is
/// told so sends less at once, and what waits is sent to the other node anew with each try.
pub(crate) const MAX_WAITING: usize = 1024;
pub(crate) const MAX_WAITING_BYTES: usize = 32 << 20;
/// One nexus has this part of both at most, so that others find room beside it.
pub(crate) const SHARE: usize = 4;
/// Units are told apart by so much of their identities where ordered commands are counted: a mistake costs one answer of BUSY.
const COUNTERS: usize = 64;

#[derive(Clone, Copy)]
struct Waits {
    unit: [u8; 16],
    nexus: u64,
    bytes: usize,
    aborted: bool,
}

#[derive(Default)]
struct State {
    next: u64,
    bytes: usize,
    of: BTreeMap<u64, Waits>,
    /// How many commands wait of a nexus, and how many bytes of data they have; none that has none.
    shares: BTreeMap<u64, (usize, usize)>,
}

/// Where commands of a node wait for their units, whichever targets those are of.
pub struct WaitingRoom {
    state: Mutex<State>,
    /// Something may have become of a unit, or of a command that waits.
    changed: Notify,
    /// A command waits no more.
    left: Notify,
    /// Ordered commands that have come, by unit.
    ordered: [AtomicU64; COUNTERS],
}

impl Default for WaitingRoom {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            left: Notify::new(),
            ordered: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// A command that waits: it does no more when this is dropped.
pub(crate) struct Waiting<'a> {
    room: &'a WaitingRoom,
    key: u64,
}

impl Waiting<'_> {
    /// It waits no more; whether it was aborted.
    pub(crate) fn leave(self) -> bool {
        let aborted = self.room.remove(self.key);
        std::mem::forget(self);
        aborted
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.room.remove(self.key);
    }
}

impl WaitingRoom {
    fn ordered(&self, unit: [u8; 16]) -> &AtomicU64 {
        &self.ordered[usize::from(unit[15]) % COUNTERS]
    }

    /// A command comes for a unit: how many ordered ones have come before it. `None`: it would have to come after some that wait.
    pub(crate) fn arrives(&self, unit: [u8; 16], attribute: TaskAttribute) -> Option<u64> {
        let ordered = self.ordered(unit);
        if attribute != TaskAttribute::Ordered {
            return Some(ordered.load(Ordering::SeqCst));
        }
        // Under the lock: whoever begins to wait sees it, or is seen by it.
        let state = self.state.lock();
        let before = ordered.fetch_add(1, Ordering::SeqCst);
        (!state.of.values().any(|waits| waits.unit == unit)).then_some(before)
    }

    /// A command begins to wait; `None` when it may not, or there is no room. `ordered` is what was said when it came.
    pub(crate) fn wait(
        &self,
        (unit, attribute, ordered): ([u8; 16], TaskAttribute, u64),
        nexus: u64,
        bytes: usize,
    ) -> Option<Waiting<'_>> {
        let mut state = self.state.lock();
        let (commands, held) = state.shares.get(&nexus).copied().unwrap_or_default();
        if attribute != TaskAttribute::Simple
            || self.ordered(unit).load(Ordering::SeqCst) != ordered
            || state.of.len() >= MAX_WAITING
            || commands >= MAX_WAITING / SHARE
            || bytes > MAX_WAITING_BYTES - state.bytes
            || bytes > MAX_WAITING_BYTES / SHARE - held
        {
            return None;
        }
        let key = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.shares.insert(nexus, (commands + 1, held + bytes));
        state.of.insert(key, Waits { unit, nexus, bytes, aborted: false });
        Some(Waiting { room: self, key })
    }

    fn remove(&self, key: u64) -> bool {
        let waited = {
            let mut state = self.state.lock();
            let waited = state.of.remove(&key);
            if let Some(Waits { nexus, bytes, .. }) = waited {
                state.bytes -= bytes;
                if let Entry::Occupied(mut share) = state.shares.entry(nexus) {
                    let (commands, held) = *share.get();
                    match commands {
                        0 | 1 => drop(share.remove()),
                        _ => *share.get_mut() = (commands - 1, held - bytes),
                    }
                }
            }
            waited
        };
        self.left.notify_waiters();
        waited.is_none_or(|waits| waits.aborted)
    }

    /// The next time that something may have become of a unit; to be enabled before the look.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// All that wait look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Ends the commands that wait for a unit, of those nexuses that it concerns: what is to be waited for, and of which nexuses they are.
    pub(crate) fn abort(&self, unit: [u8; 16], concerns: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<u64>) {
        let marked = {
            let mut state = self.state.lock();
            let of = state.of.iter_mut().filter(|(_, waits)| waits.unit == unit && concerns(waits.nexus));
            of.map(|(key, waits)| {
                waits.aborted = true;
                (*key, waits.nexus)
            })
            .unzip()
        };
        self.wake();
        marked
    }

    /// Until none of these waits any more.
    pub(crate) async fn ended(&self, these: &[u64]) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if !these.iter().any(|key| self.state.lock().of.contains_key(key)) {
                return;
            }
            left.await;
        }
    }

    /// How many commands wait, and how many bytes of data they have.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let shares = state.shares.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        assert_eq!(shares, (state.of.len(), state.bytes));
        (state.of.len(), state.bytes)
    }
}
