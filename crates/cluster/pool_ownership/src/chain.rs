//! The node's transactions, each conditional on the one before: what became of one that was not answered is known as soon as a
//! later one is, and one that is still on its way then can do nothing any more.

use cluster_store::keys::{NodeId, PoolId};
use cluster_store::{Outcome, Revision};

use crate::time::BootTime;

/// Beats without an answer that are remembered; of older ones only the permit is lost.
const REMEMBERED: usize = 16;

/// Number of a transaction that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Join,
    Beat,
    Mode {
        paused: bool,
        draining: bool,
    },
    /// Says what this node sees of the disks of pools.
    Sight,
    /// Takes a pool; from a node that is thereby evicted, or that is gone.
    Claim {
        pool: PoolId,
        epoch: u64,
        evicts: Option<NodeId>,
    },
    Evict(NodeId),
    HandOver {
        pool: PoolId,
        epoch: u64,
    },
    Release {
        pool: PoolId,
        epoch: u64,
    },
}

impl Purpose {
    /// Whether it evicts this node.
    fn evicts(self, node: NodeId) -> bool {
        match self {
            Self::Claim { evicts, .. } => evicts == Some(node),
            Self::Evict(of) => of == node,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) id: RequestId,
    pub(crate) counter: u64,
    pub(crate) sent: BootTime,
    pub(crate) purpose: Purpose,
    /// It is waited for no longer.
    pub(crate) late: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// What the next transaction finds under `beats/ME`.
    pub(crate) last: Revision,
    /// And under `members/ME`.
    pub(crate) member: Revision,
    counter: u64,
    /// All conditional on `last`: at most one of them is ever done.
    pending: Vec<Pending>,
}

impl Chain {
    /// Nothing was sent yet.
    pub(crate) fn count_from(&mut self, counter: u64) {
        self.counter = counter;
    }

    /// The counter that the next transaction writes.
    pub(crate) fn next(&self) -> u64 {
        self.counter + 1
    }

    pub(crate) fn sent(&mut self, now: BootTime, purpose: Purpose) -> RequestId {
        self.counter += 1;
        let id = RequestId(self.counter);
        self.pending.push(Pending { id, counter: self.counter, sent: now, purpose, late: false });
        if self.pending.len() > REMEMBERED
            && let Some(beat) = self.pending.iter().position(|pending| pending.purpose == Purpose::Beat)
        {
            self.pending.remove(beat);
        }
        id
    }

    pub(crate) fn find(&self, id: RequestId) -> Option<Pending> {
        self.pending.iter().find(|pending| pending.id == id).copied()
    }

    pub(crate) fn with_counter(&self, counter: u64) -> Option<Pending> {
        self.pending.iter().find(|pending| pending.counter == counter).copied()
    }

    /// Whether a store that gives this answer to one of those on their way has gone back: it is not as far as it was when they were sent, or what
    /// only this node writes is older than it has written it.
    pub(crate) fn is_of_the_past(&self, outcome: &Outcome) -> bool {
        let older = |at: usize, known: Revision| {
            outcome.reads.get(at).and_then(Option::as_ref).is_some_and(|found| found.modified < known)
        };
        outcome.revision < self.last.max(self.member) || older(0, self.member) || older(1, self.last)
    }

    /// One has certainly not been done.
    pub(crate) fn undone(&mut self, id: RequestId) {
        self.pending.retain(|pending| pending.id != id);
    }

    /// It may have been done; nobody waits for its answer.
    pub(crate) fn unknown(&mut self, id: RequestId) {
        for pending in self.pending.iter_mut().filter(|pending| pending.id == id) {
            pending.late = true;
        }
    }

    /// `beats/ME` is of this revision: none of those on their way can be done any more.
    pub(crate) fn reached(&mut self, last: Revision) {
        self.last = last;
        self.pending.clear();
    }

    /// The one whose answer is waited for.
    pub(crate) fn awaited(&self) -> Option<Pending> {
        self.pending.iter().find(|pending| !pending.late).copied()
    }

    /// Whether it is known what became of all that was sent.
    pub(crate) fn settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether something may be on its way that evicts this node.
    pub(crate) fn may_evict(&self, node: NodeId) -> bool {
        self.pending.iter().any(|pending| pending.purpose.evicts(node))
    }

    pub(crate) fn time_out(&mut self, now: BootTime, patience: std::time::Duration) {
        for pending in self.pending.iter_mut().filter(|pending| pending.sent.after(patience) <= now) {
            pending.late = true;
        }
    }
}
