//! [`Trial`]: a cut, and what it has shown.

use super::latency::Means;
use super::rate::Rate;
use super::{Capacity, DOUBTS, LEFT};

/// A cut after which the volume does so much of what it did before costs nothing, in thousandths.
const COSTS_NOTHING: u64 = 970;

/// A volume that does so much of what it did before with as many requests, window after window, has become slower, in thousandths.
const SLOWER: u64 = 750;

/// A cut whose outcome is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) from: u32,
    pub(super) to: u32,
    /// What was let to the volume before it.
    pub(super) held: Option<u32>,
    /// Answers to come of what was at the volume before.
    pub(super) stale: u64,
    /// Windows that have shown that it does not help.
    pub(super) doubts: u32,
    /// What the volume must still do of what it can, in thousandths.
    pub(super) left: u64,
    /// What the volume did before.
    pub(super) rate: Rate,
    /// Mean latencies before it.
    pub(super) before: Means,
}

impl Capacity {
    /// Whether a cut costs too much of what the volume can do.
    pub(super) fn costs_much(&self, now: u64, trial: &Trial) -> bool {
        self.rate(now).of(self.can) < trial.left
    }

    /// Where a large cut costs nothing at all of very little, the volume can do less than it could.
    pub(super) fn learn_less(&mut self, now: u64, trial: &Trial) {
        let rate = self.rate(now);
        let large = trial.to <= trial.from - trial.from / 4;
        if large && rate.of(trial.rate) >= COSTS_NOTHING && rate.of(self.can) < 500 {
            self.can = rate;
            self.learnt.units = self.learnt.units.min(rate.units);
        }
    }

    /// A volume that does much less than it did with as many requests has become slower: what it can has become less by as much, and what
    /// trials have shown was of another volume. One that becomes faster shows that by itself.
    pub(super) fn learn_slower(&mut self, now: u64) {
        let rate = self.rate(now);
        let Some(held) = self.held.filter(|_| self.trial.is_none() && self.is_crowded()) else { return };
        match self.does {
            Some((with, did)) if with <= held && rate.of(did) < SLOWER => {
                self.slower += 1;
                if self.slower >= DOUBTS {
                    self.can = self.can.part(rate.of(did));
                    (self.does, self.slower) = (Some((held, rate)), 0);
                    self.believed = Default::default();
                }
            }
            Some((with, did)) if with == held => {
                (self.does, self.slower) = (Some((held, did.up_to(rate))), 0)
            }
            _ => (self.does, self.slower) = (Some((held, rate)), 0),
        }
    }

    /// Whether a cut has shortened the latency by less than half of what it would have, were it all for a queue, or the volume does much
    /// less than it can.
    pub(super) fn was_in_vain(&self, now: u64, trial: &Trial) -> bool {
        let (from, to) = (u64::from(trial.from.max(1)), u64::from(trial.to));
        // For what was promised less is enough.
        let part = if trial.left == LEFT { 500 } else { 250 };
        let enough = 1000 - (from - to.min(from)) * part / from;
        self.costs_much(now, trial)
            || self.latencies.against(&trial.before).is_some_and(|permille| permille > enough)
    }
}
