//! How much memory all peers together may make a node hold for their requests and the answers to them.
//!
//! Each connection has an [`Account`]. All that it holds counts against the node's [`Budget`], which all services share:
//!
//! ```text
//!   0 ├─ CONNECTION for each ─┼─ small: up to ALLOWANCE of each ─┼─ large: the rest ───┼─ reserve ──┤ limit
//!     │ the newest goes where │ never waits; who stands still    │ waits until it fits │ small only │
//!     │ they are a quarter    │ goes where all is over the limit │ before the reserve  │            │
//! ```
//! What is large asks first:
//!
//! ```text
//!   request ─► admit(all that the connection would hold) ─► Now      the memory is charged, and taken
//!                                                       ├─► Wait     nothing is taken; the connection is not read from
//!                                                       └─► Refused  too many wait already: the newest goes
//!   end of each turn ─► settle(all that it does hold) ─► whoever waits first is woken
//! ```
//! Nobody waits for ever, and nobody waits with half of what a request needs:
//! * A request is admitted as a whole before memory is taken for it, in the order of asking. What a connection holds while it
//!   waits belongs to other requests, which end without anything more. Where that cannot be – what a packet's answers need shows only
//!   when it is here – the connection says that it holds the packet for its peer.
//! * What a connection holds for its *peer* – a packet that is not all here, an answer that is not taken – it loses, with the
//!   connection, when others wait and the peer moves less than [`MIN_PROGRESS`] in a second. The newest go first.
//! * What works in the store, or waits for other clients, ends; where that takes longer than [`QUIET_SWEEPS`] seconds while others
//!   wait, it goes, too.
//! * While the budget is half used ([`Budget::is_tight`]), services let a peer show [`SHOWN`] bytes of a long request before they
//!   ask for the rest: a header alone takes nothing from anybody.

mod beside;
mod sweeper;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use sweeper::Sweeper;

/// What a connection takes that does nothing: its task, its session with keys, its place in lists, and the first of what it holds.
pub const CONNECTION: usize = 32 << 10;
/// The first of what a connection holds: half a header, some small requests. So most requests change no number that all connections share.
const SLACK: usize = 16 << 10;
/// The part of the budget that the connections of a service take at most by being there: one in so many.
const SEATS: usize = 4;
/// The part of the budget that what is large never takes: one in so many.
const RESERVE: usize = 8;
/// Freed blocks that a thread keeps while the budget is tight, in bytes: nobody counts them.
const LEAN_CACHE: usize = 2 << 20;
/// Bytes that each connection may hold without asking: small requests never wait for others' large ones.
pub const ALLOWANCE: usize = 128 << 10;
/// Bytes of a long request that must be here before the rest is asked for, while the budget is tight.
pub const SHOWN: usize = 32 << 10;
/// Bytes that a peer has to move in a second to keep what is held for it while others wait: slower than any network that
/// storage is used over.
pub const MIN_PROGRESS: u64 = 16 << 10;
/// How long what does not wait for its peer may stand still while others wait, in seconds: longer than disks take, shorter
/// than clients wait for an answer.
pub const QUIET_SWEEPS: u32 = 50;
/// The least that makes sense, in bytes: some of the longest requests at once.
pub const MIN_BUDGET: usize = 64 << 20;
/// Connections that may wait; those that come later are refused.
const WAITING_MAX: usize = 4096;
/// How often those who stand still are looked for while somebody waits.
const SWEEP: Duration = Duration::from_secs(1);

/// Whether a request may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may: what it needs is charged.
    Now,
    /// Not yet: the connection is woken when it should ask again.
    Wait,
    /// Too many wait: the connection ends.
    Refused,
}

/// What a budget has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// Bytes that there are.
    pub limit: u64,
    /// Bytes charged now, those of connections that do nothing among them.
    pub used: u64,
    /// Of these, bytes that are no connection's ([`Budget::take`]).
    pub beside: u64,
    /// Connections that wait now.
    pub waiting: u64,
    /// How often one began to wait.
    pub waits: u64,
    /// Connections that ended for want of room: refused, or standing still while others waited.
    pub refused: u64,
}

/// Memory for the requests of all peers of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
    /// Connections of this service that have logged in.
    connections: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Shared {
    limit: AtomicUsize,
    /// What accounts hold beyond [`ALLOWANCE`].
    used: AtomicUsize,
    /// What of it is no account's.
    beside: AtomicUsize,
    /// What they hold below, and [`CONNECTION`] for each.
    small: AtomicUsize,
    waiting: AtomicUsize,
    waits: AtomicU64,
    refused: AtomicU64,
    sweeping: AtomicBool,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    next: u64,
    /// Who waits, in the order of asking, and for how much.
    queue: BTreeMap<u64, (usize, Waker)>,
    /// All accounts, oldest first.
    holders: BTreeMap<u64, Arc<Holder>>,
}

/// What others see of an account.
#[derive(Debug, Default)]
struct Holder {
    /// Bytes held beyond [`ALLOWANCE`].
    held: AtomicUsize,
    /// Bytes held below it, but for [`SLACK`].
    small: AtomicUsize,
    /// Bytes that the connection has moved, in either direction.
    moved: AtomicU64,
    /// Whether some of it is held for the peer.
    for_peer: AtomicBool,
    /// Set when the connection has to end.
    gone: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// [`Holder::moved`] at the last sweep, and for how many the connection has stood still.
    seen: AtomicU64,
    still: AtomicU32,
}

impl Budget {
    /// A budget of so many bytes, at least [`MIN_BUDGET`].
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let shared = Shared {
            limit: AtomicUsize::new(bytes.max(MIN_BUDGET)),
            used: AtomicUsize::new(0),
            beside: AtomicUsize::new(0),
            small: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            sweeping: AtomicBool::new(false),
            lists: Mutex::default(),
        };
        Self { shared: Arc::new(shared), connections: Arc::default() }
    }

    /// The same memory, for another service: its connections are counted by themselves, so that those of one service never keep
    /// the clients of another out.
    #[must_use]
    pub fn for_service(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), connections: Arc::default() }
    }

    /// Changes the size; what is charged beyond it stays until it is given back.
    pub fn resize(&self, bytes: usize) {
        self.shared.limit.store(bytes.max(MIN_BUDGET), Ordering::SeqCst);
        self.shared.wake_first();
    }

    /// Most connections of a service that have logged in, as each takes [`CONNECTION`].
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.shared.limit.load(Ordering::SeqCst) / SEATS / CONNECTION
    }

    /// What it has come to.
    #[must_use]
    pub fn usage(&self) -> BudgetUse {
        let shared = &self.shared;
        BudgetUse {
            limit: shared.limit.load(Ordering::Relaxed) as u64,
            used: shared.charged() as u64,
            beside: shared.beside.load(Ordering::Relaxed) as u64,
            waiting: shared.waiting.load(Ordering::Relaxed) as u64,
            waits: shared.waits.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
        }
    }

    /// Whether half of it is used, or somebody waits.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        let shared = &self.shared;
        shared.waiting.load(Ordering::Relaxed) > 0
            || shared.charged() > shared.limit.load(Ordering::Relaxed) / 2
    }

    /// An account for a connection. Those that have not logged in are bounded by their seats.
    #[must_use]
    pub fn account(&self) -> Account {
        self.shared.small.fetch_add(CONNECTION, Ordering::SeqCst);
        let holder = Arc::new(Holder::default());
        let mut lists = self.shared.lists.lock();
        let number = lists.next;
        lists.next += 1;
        lists.holders.insert(number, Arc::clone(&holder));
        Account { budget: self.clone(), number, holder, held: 0, small: 0, logged_in: false, ticket: None }
    }
}

impl Default for Budget {
    /// For services that run by themselves, as in tests: 1 GiB.
    fn default() -> Self {
        Self::new(1 << 30)
    }
}

impl Shared {
    /// All that is charged.
    fn charged(&self) -> usize {
        self.used.load(Ordering::SeqCst).saturating_add(self.small.load(Ordering::SeqCst))
    }

    /// Bytes by which all that is charged is more than there is; or, where somebody waits, by which what is small takes more than
    /// half, for what is large would have no room beside it and nobody would ever make some.
    fn over(&self) -> usize {
        let (limit, small) = (self.limit.load(Ordering::SeqCst), self.small.load(Ordering::SeqCst));
        let crowded =
            if self.waiting.load(Ordering::SeqCst) > 0 { small.saturating_sub(limit / 2) } else { 0 };
        self.charged().saturating_sub(limit).max(crowded)
    }

    /// Bytes that what is large may take in all.
    fn for_large(&self) -> usize {
        let limit = self.limit.load(Ordering::SeqCst);
        (limit - limit / RESERVE).saturating_sub(self.small.load(Ordering::SeqCst))
    }

    /// Charges `bytes` if they are there; `own` is what the asker holds already, who is never refused for that alone.
    fn charge(&self, bytes: usize, own: usize) -> bool {
        let most = self.for_large();
        let fits = |used: usize| {
            let after = used.saturating_add(bytes);
            // One that is larger than all that there is goes alone.
            (after <= most || used <= own).then_some(after)
        };
        self.used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Whoever waits first asks again.
    fn wake_first(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0
            && let Some((_, waker)) = self.lists.lock().queue.values().next()
        {
            waker.wake_by_ref();
        }
    }

    /// From now on it counts who stands still.
    fn watch(&self) {
        for holder in self.lists.lock().holders.values() {
            holder.seen.store(holder.moved.load(Ordering::Relaxed), Ordering::Relaxed);
            holder.still.store(0, Ordering::Relaxed);
        }
    }

    /// Ends those who stand still, newest first, until those who wait have room, and until no more is charged than there is.
    fn sweep(&self) {
        let lists = self.lists.lock();
        let free = self.for_large().saturating_sub(self.used.load(Ordering::SeqCst));
        let wanted = lists.queue.values().fold(0, |sum: usize, (bytes, _)| sum.saturating_add(*bytes));
        let over = self.over();
        let mut wanted = wanted.saturating_sub(free).max(over);
        for holder in lists.holders.values().rev() {
            let mut held = holder.held.load(Ordering::Relaxed);
            // What is small goes only where it is too much in all, and never what works or waits for others.
            if over > 0 && holder.for_peer.load(Ordering::Relaxed) {
                held += holder.small.load(Ordering::Relaxed);
            }
            let moved = holder.moved.load(Ordering::Relaxed);
            let before = holder.seen.swap(moved, Ordering::Relaxed);
            if held == 0 || moved.wrapping_sub(before) >= MIN_PROGRESS {
                holder.still.store(0, Ordering::Relaxed);
                continue;
            }
            // The first look may come right after a request has begun.
            let still = holder.still.fetch_add(1, Ordering::Relaxed);
            let patience = if holder.for_peer.load(Ordering::Relaxed) { 1 } else { QUIET_SWEEPS };
            if still >= patience && wanted > 0 && !holder.gone.swap(true, Ordering::SeqCst) {
                wanted = wanted.saturating_sub(held + CONNECTION);
                self.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(waker) = holder.waker.lock().as_ref() {
                    waker.wake_by_ref();
                }
            }
        }
    }
}

/// What one connection holds.
#[derive(Debug)]
pub struct Account {
    budget: Budget,
    number: u64,
    holder: Arc<Holder>,
    /// Bytes charged that are held beyond [`ALLOWANCE`].
    held: usize,
    /// Bytes charged that are held below it.
    small: usize,
    logged_in: bool,
    /// The place in the queue.
    ticket: Option<u64>,
}

impl Account {
    /// Whom to wake when the connection may ask again, or has to end. To be called whenever it is polled.
    pub fn register(&self, waker: &Waker) {
        let mut known = self.holder.waker.lock();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// The peer has logged in. `false` when those of the service that had before take their part of the budget by being there: this
    /// one, the newest, has to end.
    #[must_use]
    pub fn log_in(&mut self) -> bool {
        let shared = &self.budget.shared;
        if !self.logged_in {
            let most = self.budget.connections_max();
            let one_more = |there: usize| (there < most).then_some(there + 1);
            let there = &self.budget.connections;
            let counted = there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
            self.logged_in = counted.is_ok();
            shared.refused.fetch_add(u64::from(counted.is_err()), Ordering::Relaxed);
        }
        self.logged_in
    }

    /// Whether the connection may hold `total` bytes. [`Admission::Wait`] keeps its place: it asks again when it is woken.
    pub fn admit(&mut self, total: usize) -> Admission {
        let more = total.saturating_sub(ALLOWANCE).saturating_sub(self.held);
        let shared = Arc::clone(&self.budget.shared);
        if more == 0 {
            self.leave_queue();
            return Admission::Now;
        }
        // Nobody waits: no lock is needed.
        if self.ticket.is_none()
            && shared.waiting.load(Ordering::SeqCst) == 0
            && shared.charge(more, self.held)
        {
            self.hold(self.held + more);
            return Admission::Now;
        }
        let mut lists = shared.lists.lock();
        let first = lists.queue.keys().next().copied();
        if first.is_none_or(|first| Some(first) == self.ticket) && shared.charge(more, self.held) {
            drop(lists);
            self.hold(self.held + more);
            self.leave_queue();
            return Admission::Now;
        }
        if self.ticket.is_none() {
            if lists.queue.len() >= WAITING_MAX {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                return Admission::Refused;
            }
            let ticket = lists.next;
            lists.next += 1;
            let waker = self.holder.waker.lock().clone();
            lists.queue.insert(ticket, (more, waker.unwrap_or_else(|| Waker::noop().clone())));
            shared.waiting.fetch_add(1, Ordering::SeqCst);
            shared.waits.fetch_add(1, Ordering::Relaxed);
            self.ticket = Some(ticket);
        } else if let Some((bytes, waker)) = self.ticket.and_then(|ticket| lists.queue.get_mut(&ticket)) {
            *bytes = more;
            waker.clone_from(self.holder.waker.lock().as_ref().unwrap_or(Waker::noop()));
        }
        // Once more, now that whoever gives back knows that somebody waits.
        let first = lists.queue.keys().next().copied();
        if first == self.ticket && shared.charge(more, self.held) {
            drop(lists);
            self.hold(self.held + more);
            self.leave_queue();
            return Admission::Now;
        }
        drop(lists);
        Sweeper::start(&shared);
        Admission::Wait
    }

    /// Charges what is held below [`ALLOWANCE`], which nobody asks for.
    fn settle_small(&mut self, total: usize) {
        let (now, before) = (total.min(ALLOWANCE).saturating_sub(SLACK), self.small);
        if now == before {
            return;
        }
        self.small = now;
        self.holder.small.store(now, Ordering::Relaxed);
        let shared = &self.budget.shared;
        if now > before {
            shared.small.fetch_add(now - before, Ordering::SeqCst);
            if shared.over() > 0 {
                Sweeper::start(shared);
            }
        } else {
            shared.small.fetch_sub(before - now, Ordering::SeqCst);
            shared.wake_first();
        }
    }

    /// At the end of a turn: the connection holds `total` bytes, some of them `for_peer` (a packet that is not all here, an answer
    /// that is not taken), and has moved `moved` bytes since it began. `false` when it has to end.
    #[must_use]
    pub fn settle(&mut self, total: usize, for_peer: bool, moved: u64) -> bool {
        self.holder.moved.store(moved, Ordering::Relaxed);
        self.holder.for_peer.store(for_peer, Ordering::Relaxed);
        self.settle_small(total);
        let now = total.saturating_sub(ALLOWANCE);
        let before = self.held;
        if now != before {
            self.hold(now);
            if now > before {
                self.budget.shared.used.fetch_add(now - before, Ordering::SeqCst);
            } else {
                self.budget.shared.used.fetch_sub(before - now, Ordering::SeqCst);
                self.budget.shared.wake_first();
            }
        }
        if self.budget.is_tight() {
            aligned_buffer::trim_thread_cache(LEAN_CACHE);
        }
        !self.holder.gone.load(Ordering::SeqCst)
    }

    /// The connection has something else to do before it asks again: others may go first.
    pub fn withdraw(&mut self) {
        self.leave_queue();
    }

    /// The budget that it belongs to.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    fn hold(&mut self, bytes: usize) {
        self.held = bytes;
        self.holder.held.store(bytes, Ordering::Relaxed);
    }

    fn leave_queue(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.budget.shared.lists.lock().queue.remove(&ticket);
            self.budget.shared.waiting.fetch_sub(1, Ordering::SeqCst);
            self.budget.shared.wake_first();
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.shared.lists.lock().holders.remove(&self.number);
        self.budget.shared.used.fetch_sub(self.held, Ordering::SeqCst);
        self.budget.shared.small.fetch_sub(self.small + CONNECTION, Ordering::SeqCst);
        self.budget.connections.fetch_sub(usize::from(self.logged_in), Ordering::SeqCst);
        self.leave_queue();
        self.budget.shared.wake_first();
    }
}

#[cfg(test)]
mod tests;
