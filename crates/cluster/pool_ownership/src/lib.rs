//! Which node owns a pool: beats, permits, claims, promises and hand-overs, as a state machine without I/O.
//!
//! `now` (a clock that goes on while the machine sleeps), what the store and the other nodes say, and what became of orders
//! go into [`Node::handle`]; transactions, messages and orders come out. There is no clock, task, lock or chance in here, so the
//! cluster campaign (`crates/testing/cluster_campaign`) runs exactly this code through thousands of bad days.
//!
//! ```text
//!                    owner in the store: me, this life, epoch e (claimed, or handed to me)
//!             ┌─────────────────────────────────────────────────────────────────────────┐
//!             │                                                                         ▼
//!   Idle ─────┘   Fence ──► Open ──► Restore ──► Publish ──► serving            (each step by an order, each answered)
//!    ▲  ▲           │         │         │           │           │
//!    │  └─ Release ◄┼─────────┴─────────┴───────────┴───────────┤ Failed(Trouble): e is given up, others first
//!    │              ▼                                           ▼
//!    │           Stop, at once ◄── Failed(Fenced) · owner changed · evicted · moved
//!    │              │ nothing is on its way to a disk any more
//!    └──────────────┴──► HandOver (moved): owner = the other node, e + 1; or this one, which opens the pool anew
//!
//!   Joining ── members/ME, beats/ME ──► Member ── evicted ──► Leaving ── all pools idle ──► Over (then a new incarnation)
//! ```
//!
//! # Rules
//!
//! 1. **Chain.** Every transaction of a node is conditional on `members/ME` (this life still takes part) and on `beats/ME` as its last
//!    one left it, and writes `beats/ME`. So each is a beat; at most one of those on their way is ever done; and when one is
//!    answered it is known what became of all before it, also of those that are still on their way: they can do nothing any more.
//! 2. **Permit.** Answers may be given until D after the *send* of the last transaction that is known to be committed.
//! 3. **Claim.** Who has heard no new beat for W, counted from the *receipt* of the last one, may take the pools of its node and
//!    delete `members/N` in one transaction, conditional on that beat being the last one still, and on the owner being the one seen.
//! 4. **Orphans.** An owner whose incarnation is not the one in `members/N` has no permit any more: who deleted or replaced that key
//!    had waited (rule 3), or knows that the process is gone (the supervisor; the next life, which has the data directory's lock).
//!    Such pools, and released ones, are free at once. The transaction depends on `members/N` being as it was seen: the owner may have
//!    been read later than the members, and then it is a new life that looks like an old one.
//! 5. **Promises.** A node that cannot beat asks the others. A promise counts for `promise_used` from when it was *asked for*, and is
//!    kept for the longer `promise_kept` from when it was *given*. The permit also lasts until the earliest of the promises of *all* other
//!    members ends. A node gives none while a transaction of its own that evicts the asker may still be committed, and evicts only who
//!    has shown in its last beat that it knew the member. What the life before has promised is kept by rule 3: a new life has heard
//!    nothing before it began, and W is not shorter than `promise_kept`. A node asks only while it has a permit.
//!    A node that learns of a member therefore beats at once, and is given pools by another only after a beat that shows that it knows all
//!    members: whoever owns a pool before it has shown that could never be followed by those who came later.
//! 6. **Epochs.** Each change of owner raises the epoch; a node carries out one epoch of a pool at most once, and begins the next
//!    only after [`Order::Stop`] of the one before is done.
//!
//! 7. **A store that has gone back** (restored from a backup): revisions that a node has seen come again and mean something else. Each node learns
//!    of it by its own chain, which nobody else writes, and which is then older than it left it; its life is over at once. The disks then judge
//!    how far epochs have come ([`Failure::Behind`]): the next claim goes above what they know.
//! 8. **Sight.** A node says which disks it sees, an owner which of them its pool needs. A pool is given only to a node that sees enough of them,
//!    which the hand-over depends on; who sees none claims none, and who sees too few tries last, as what is known may be old. A paused or drained
//!    node keeps what nobody else can open, and takes it again where that was given up in vain.
//! 9. **Removed.** Who joins depends on its entry in `nodes/` as it was seen, and does not when that says that it was removed.
//!
//! # Why never two of them answer
//!
//! *By beats.* Let O have owned a pool and C have claimed it. C's transaction was committed, so the last committed beat of O is one
//! that C had received W before. O sent it before that. O's permit by rule 2 counts from that beat or an earlier one, so it ended D
//! after that send at the latest; D on the slowest clock is shorter than W on the fastest ([`Timings::new`] refuses anything else).
//! With D = 2.9 s, W = 3.3 s and clocks that are 5 % wrong there are 90 ms between them. (3.0 s and 3.3 s, which were planned first,
//! overlap by 15 ms at 5 %; the simulation finds it.) Wall time is never looked at.
//!
//! *By promises.* Suppose C's claim was committed at a moment when O counted on promises. All members that O asked include C: O's
//! last beat shows that O knew C when it was sent, what is known only grows with the store's revisions, and C takes part still, as rule 1
//! makes it a condition. So C gave O a promise that O still counted on. C did not *send* the claim after giving it while it was
//! kept, which is longer than O counts on it, whatever the clocks. C did not send it before and have it committed later either: it would
//! not have given the promise while the claim was on its way. Nor did a life of C before: its claims depend on its own
//! incarnation, and the life after has to hear O be silent for W, in which everything promised before runs out. The supervisor and the next life of O
//! evict without waiting, but only when O's process is gone.
//!
//! *By orphans.* An orphan's former owner has no permit (rule 4): if it was evicted by X, the two paragraphs above hold for X. That
//! C itself has promised something to the owner is then of no consequence.
//!
//! *By hand-over.* The former owner answers nothing after [`Order::Stop`], and hands over only after that is done.
//!
//! *Two processes under one number* (a copied data directory): whoever joins second finds a member that it has not seen when it began, and
//! ends its life. Beats are numbered from a number by chance ([`Node::with_beats_from`]), so neither takes the other's for its own.
//!
//! *On disks* the epoch decides, not time: [`Order::Fence`] comes before anything is read that is believed, so a write of an
//! older epoch either reached its disks before the new owner looked, or is refused. A write that an owner sent before it stopped must not
//! arrive after it has registered again with a higher epoch: that is why `Stop` is done only when nothing is on its way, and
//! why fencing begins new connections.
//!
//! # What goes on when something is away
//!
//! * The store alone: everything, while all members reach each other.
//! * The store and one member that was not evicted yet: the permit ends, requests wait, and go on when a beat is committed again; the
//!   owner is still the owner.
//! * An answer of the store: the next transaction tells what became of the one before.
//!
//! Deliberately absent: which pools go together, load (the balancer says [`Input::Move`]), how orders are carried out.

mod chain;
mod io;
mod node;
mod permit;
mod pool;
mod settings;
mod sight;
#[cfg(test)]
mod tests;
mod time;
mod view;

pub use chain::RequestId;
pub use io::{Action, Failure, Flaws, Input, Message, Order};
pub use node::{Node, Phase};
pub use settings::{Settings, SettingsError, Timings};
pub use sight::{NodeSight, PoolSight, Sight};
pub use time::BootTime;
