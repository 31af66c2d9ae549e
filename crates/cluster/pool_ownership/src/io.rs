//! What goes into the state machine and what comes out.

use cluster_store::keys::{NodeId, PoolId};
use cluster_store::values::Incarnation;
use cluster_store::{Change, Outcome, Snapshot, StoreError, Transaction};

use crate::chain::RequestId;
use crate::sight::Sight;
use crate::time::BootTime;

/// What nodes tell each other directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// "I cannot beat: promise not to claim my pools."
    Ask {
        /// Who asks.
        incarnation: Incarnation,
        /// Which time.
        round: u64,
    },
    /// "For a while I will not."
    Promise {
        /// To whom.
        incarnation: Incarnation,
        /// The round that is answered.
        round: u64,
    },
}

/// What is to be done with a pool, in this order; [`Order::Stop`] at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Nobody of a lower epoch writes to the disks that can be reached: over connections that are new, as what is still on its way
    /// over older ones must not arrive any more. Done when a majority of the metadata votes is fenced.
    Fence,
    /// Find the newest state among the fenced disks and the witness, raise its epoch, make copies equal.
    Open,
    /// Bring back what clients have open.
    Restore,
    /// Let clients in. Answers may be given from now on, while there is a permit.
    Publish,
    /// Give no more answers, at once; then end all I/O, or end the connections that carry it. Done when nothing of the pool is on
    /// its way to a disk any more.
    Stop,
}

/// Why a pool cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A disk has refused: there is an owner of a higher epoch.
    Fenced,
    /// The disks know an owner of this epoch, which is not below the one in which the pool was taken: the store is older than they are.
    Behind(u64),
    /// Anything else: no majority of votes, no sound copy.
    Trouble,
}

/// Something has happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time went by.
    Tick,
    /// The whole shared state as it was read; first of all, and whenever the watch has missed something.
    Snapshot(Snapshot),
    /// Changes since then.
    Changed(Vec<Change>),
    /// The answer to a transaction.
    Answer(RequestId, Result<Outcome, StoreError>),
    /// Another node says something.
    Message(NodeId, Message),
    /// An order is carried out.
    Done(PoolId, u64, Order),
    /// A pool cannot go on in this epoch.
    Failed(PoolId, u64, Failure),
    /// This node sees these disks. Before it is said, nothing is known of what it sees, and it is taken for what can open all pools.
    Sight(Sight),
    /// An administrator moves a pool. One that is moved to its owner is stopped, and opened again in the next epoch.
    Move(PoolId, NodeId),
    /// An administrator pauses the node, or drains it.
    Mode {
        /// It takes no pools.
        paused: bool,
        /// It gives away those that it has.
        draining: bool,
    },
}

/// Something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers may be given until then; earlier than before, if need be. It comes before everything that makes it necessary.
    Permit(BootTime),
    /// Send this to the store, and its answer here, however late.
    Transact(RequestId, Transaction),
    /// Read everything again and watch from there: the watch seems to be deaf.
    Read,
    /// Tell another node.
    Send(NodeId, Message),
    /// Do this with a pool, in this epoch.
    Pool(PoolId, u64, Order),
    /// The pool has been stopping for another [`Settings::stop_within`](crate::Settings::stop_within): it has much to do, or something that it waits
    /// for hangs. As long as this node beats nobody else takes the pool, so if it hangs the process has to end.
    Hung(PoolId),
    /// This life is over: others have taken what it had, and all of its pools are stopped. The next one begins with a new
    /// incarnation.
    Ended,
}

/// Defects put in on purpose, for the proof that the cluster campaign notices them. None of them is ever set in what ships.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// The permit counts from the answer to a beat, not from its send.
    pub permit_from_answer: bool,
    /// Silence counts from when news were asked for, not from when they came.
    pub claim_from_asking: bool,
    /// Promises that were given are not kept.
    pub promise_ignored: bool,
    /// The promise of one member counts for that of all.
    pub one_promise_is_enough: bool,
    /// A promise is given while a claim is on its way.
    pub promise_beside_claim: bool,
    /// A member claims from an owner that does not know it.
    pub stranger_claims: bool,
    /// A pool is taken for an orphan by what was seen of its node at another time.
    pub orphan_unchecked: bool,
    /// A claim does not depend on the beat that was seen last.
    pub claim_without_beat: bool,
}
