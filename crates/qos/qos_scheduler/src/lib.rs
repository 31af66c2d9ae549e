//! Which request of which flow goes to the volume next: minimums first, within limits, the rest in fair shares.
//!
//! A *flow* is what one client does with one virtual disk. A *class* is what limits and a minimum apply to: one flow alone
//! (a dedicated policy, or none), or several together (an aggregated policy). Costs are normalised I/Os: one for each
//! [`Settings::unit_bytes`] begun. The crate is pure: `now` (nanoseconds) is passed in, there is no timer, task or lock.
//!
//! ```text
//! try_pass ──────────────────────────────────────────────► volume   nobody waits for it: counted, nothing else
//! enqueue ──► queue of the flow ──► class ──► next ──────► volume ──► complete
//!                                   │ limited: by the time at which its limits let it go on
//!                                   │ ready:   by its share tag        } of these,
//!                                   └ reserved: by when its minimum is due } the class that goes next
//! ```
//!
//! How many requests may be at the volume is learnt from its answers ([`Scheduler::answered`]; `capacity` has the rules): as many as
//! configured, but while a minimum or a share would suffer by the volume's own queue, no more than it is quick with; some of these
//! places are then kept for classes with a minimum, as many as that needs, and at least one is anybody's.
//!
//! It is of the mClock family (Gulati, Merchant, Varman, OSDI 2010), with tags of classes in place of tags of requests, so that
//! each request costs O(log n) and changes of terms apply to what waits already. Where mClock is known to be weak:
//!
//! * *Large requests, drift*: tags move by the exact cost, and what a division leaves over is carried (`pace`).
//! * *Minimums that cannot be met*: the time line of minimums then runs slower for all of them, so each gets the same
//!   part of its minimum, what was missed is caught up for at most [`Settings::catch_up`], and one start in 32 still
//!   goes by shares, so that flows without a minimum are not starved.
//! * *Tags that run ahead*: a class served by its minimum does not pay for that with its share for longer than
//!   1024 I/Os; one that was idle or held back by its limit starts at the present and has saved nothing.
//! * *Fairness by requests*: shares are of flows: a class weighs what its flows that wait weigh together, whatever their depths.
//!
//! Invariants (tests: an exact reference with linear searches, and properties on a simulated disk):
//! * A request that was taken comes out of exactly one of [`Scheduler::next`], [`Scheduler::cancel`],
//!   [`Scheduler::remove_flow`].
//! * A limit is never exceeded by more than its burst allowance and one request, in any span of time.
//! * While less than `depth` requests are at the volume, or than it is quick with while somebody would suffer by more, none waits that
//!   its limits let go, but for those that places are kept from (not while nothing is at the volume), and those of a class that has all but an eighth of `depth` (at least all but one, of more than one) there
//!   already while other classes have flows. So the requests of one class that are never answered stop that class only; those of two
//!   may take all places.
//! * Requests that are never answered take no places of the few that are left while somebody would suffer by more: within a few seconds
//!   of silence they are not counted there, and a volume that answers nothing for a second has all places.
//! * A clock that goes back stops time for the scheduler, one that jumps ahead gives no more than the allowances.
//!
//! Not done here: waiting, wake-ups, the clock (`qos_gate`); what policies are (`qos_policy`).

mod capacity;
mod class;
mod counters;
mod divide;
mod heap;
mod pace;
mod queue;
mod scheduler;
mod terms;

pub use capacity::Learnt;
pub use class::ClassId;
pub use counters::{FlowCounters, FlowState, KindCounters};
pub use divide::divide;
pub use queue::RequestId;
pub use scheduler::{Answer, Dispatched, FlowId, Next, Promised, Refusal, Scheduler};
pub use terms::{DEFAULT_BURST, Settings, Terms};

/// What a request does with the medium; the two are counted apart and scheduled alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It brings data from the volume.
    Read,
    /// It changes the volume.
    Write,
}

#[cfg(test)]
mod tests;
