//! How long a node may answer: its own beats, and what the others have promised.

use std::collections::BTreeMap;

use cluster_store::keys::NodeId;

use crate::settings::Timings;
use crate::time::BootTime;

/// Rounds of questions whose answers still count: more than fit in the time that a promise is used.
const ROUNDS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Permit {
    /// When the last beat was sent that is known to be committed.
    committed: Option<BootTime>,
    /// Until when each member has promised to claim nothing of this node's.
    promised: BTreeMap<NodeId, BootTime>,
    /// When each round of questions was sent.
    rounds: BTreeMap<u64, BootTime>,
    next_round: u64,
}

impl Permit {
    pub(crate) fn committed(&mut self, counted_from: BootTime) {
        self.committed = self.committed.max(Some(counted_from));
    }

    pub(crate) fn last_committed(&self) -> Option<BootTime> {
        self.committed
    }

    /// A new round of questions.
    pub(crate) fn ask(&mut self, now: BootTime) -> u64 {
        self.next_round += 1;
        self.rounds.insert(self.next_round, now);
        while self.rounds.len() > ROUNDS {
            self.rounds.pop_first();
        }
        self.next_round
    }

    pub(crate) fn promised(&mut self, from: NodeId, round: u64, timings: &Timings) {
        if let Some(sent) = self.rounds.get(&round) {
            let until = sent.after(timings.promise_used);
            let known = self.promised.entry(from).or_default();
            *known = (*known).max(until);
        }
    }

    /// Until when this node may answer, with these as the others that take part.
    pub(crate) fn until(&self, timings: &Timings, others: impl Iterator<Item = NodeId>) -> BootTime {
        let Some(committed) = self.committed else { return BootTime(0) };
        // With nobody there who could claim, nothing ends.
        let promised = others.map(|node| self.promised.get(&node).copied().unwrap_or_default()).min();
        committed.after(timings.permit).max(promised.unwrap_or(BootTime::NEVER))
    }
}

/// What this node has promised to others.
#[derive(Debug, Default)]
pub(crate) struct Promises(BTreeMap<NodeId, BootTime>);

impl Promises {
    pub(crate) fn give(&mut self, to: NodeId, until: BootTime) {
        let known = self.0.entry(to).or_default();
        *known = (*known).max(until);
    }

    /// From when on pools of this node may be claimed again.
    pub(crate) fn until(&self, to: NodeId) -> BootTime {
        self.0.get(&to).copied().unwrap_or_default()
    }
}
