//! The ledger of faults: which disks may have one now, and what failures they excuse.

use std::collections::BTreeSet;

use pool::{DiskStatus, DiskUse, Pool, PoolError, PoolErrorKind};

use super::spoiled::has_losses;
use super::{Rig, Slot, Standing, resiliency};
use crate::case::Layout;

/// A moment in the sequence of faults, and which disks were suspect then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    faults: usize,
    /// Disks that were suspect, or away together.
    suspects: BTreeSet<usize>,
}

impl Mark {
    /// The one that excuses more.
    pub(crate) fn earlier(self, other: &Self) -> Self {
        Self {
            faults: self.faults.min(other.faults),
            suspects: self.suspects.union(&other.suspects).copied().collect(),
        }
    }
}

impl Rig {
    /// Whether a fault may be the reason of a failure now that redundancy does not cover.
    pub(crate) fn excuses_failure(&self) -> bool {
        self.excuses_since(&self.mark())
    }

    /// Judges what the pool answered the administrator.
    pub(crate) fn judge(&self, what: &str, result: Result<(), PoolError>) -> bool {
        match result {
            Ok(()) => {
                self.answered();
                true
            }
            Err(error) => {
                self.trace(|| format!("{what}: {error}"));
                let sensible = matches!(error.kind(), PoolErrorKind::NoSpace | PoolErrorKind::InUse);
                if !sensible && !self.excuses_failure() {
                    self.broken(format!("{what} fails within what the layout stands: {error}"));
                }
                false
            }
        }
    }

    /// A mark of now, for [`Rig::excuses_since`].
    pub(crate) fn mark(&self) -> Mark {
        let mut suspects = self.suspects.borrow().clone();
        suspects.extend(self.troubles.away_together());
        Mark { faults: self.faults.borrow().len(), suspects }
    }

    /// Whether more disks had faults since the mark than the layout stands, or the boot is over. A write that was
    /// under way through two losses, one after the other, may fail although both were stood.
    pub(crate) fn excuses_since(&self, mark: &Mark) -> bool {
        let mut disks = mark.suspects.clone();
        disks.extend(&self.faults.borrow()[mark.faults..]);
        let stood = resiliency(self.case.layout).failures();
        self.is_over() || self.troubles.lost_quorum.get() || disks.len() > stood
    }

    /// Disks that may be faulty at once.
    pub(crate) fn tolerance(&self) -> usize {
        match self.case.layout {
            Layout::Simple | Layout::Mirror2 | Layout::Parity1 => 1,
            Layout::Mirror3 | Layout::Parity2 => 2,
        }
    }

    /// A membership change begins: until it is known how it ended, nothing more may be lost.
    pub(crate) fn forget_voters(&self) {
        *self.voters.borrow_mut() = None;
    }

    /// Looks at what the pool says of itself: which disks vote, and whether all faults are behind us.
    pub(crate) fn look(&self, pool: &Pool) {
        self.forget_healed(pool, false);
        let status = pool.status();
        if status.stopped && self.troubles.lost_quorum.get() {
            return;
        }
        if status.stopped {
            self.broken("the pool has stopped although a majority of its votes is here");
            return;
        }
        let slots = self.slots.borrow();
        let of = |slot: &Slot| status.disks.iter().find(|disk| disk.record.serial == slot.name);
        let votes = |slot: &usize| of(&slots[*slot]).is_some_and(|disk| disk.record.metadata);
        *self.voters.borrow_mut() = Some((0..slots.len()).filter(votes).collect());
        let healthy = slots.iter().all(|slot| match slot.standing {
            // One that the pool still takes for full gets rows that it has nothing of: they are without it until it is tried again.
            Standing::Member => {
                of(slot).is_some_and(|disk| disk.online && !disk.lacks_metadata && disk.full_for.is_none())
            }
            Standing::Leaving => of(slot).is_none_or(|disk| disk.online),
            Standing::Replaced => {
                of(slot).is_none_or(|disk| disk.record.usage == DiskUse::Retired && !disk.record.metadata)
            }
            Standing::Away | Standing::Joining => false,
        });
        let at_work = slots.iter().any(|slot| slot.disk.is_full() || slot.disk.is_losing());
        let spoiled = !self.spoiled.borrow().is_empty() || has_losses(&slots);
        let apart = self.troubles.away_together().next().is_some();
        if healthy && status.is_fully_redundant() && !at_work && !spoiled && !apart {
            self.suspects.borrow_mut().clear();
            self.troubles.scattered.borrow_mut().slots.clear();
            slots.iter().for_each(|slot| slot.disk.mend());
        }
    }

    /// Whether this disk may have a fault now; if so it is noted as suspect.
    pub(crate) fn may_fail(&self, slot: usize) -> bool {
        let mut suspects = self.suspects.borrow_mut();
        let voters = self.voters.borrow();
        let Some(voters) = voters.as_ref() else { return false };
        if !self.troubles.scattered.borrow().slots.is_empty() {
            return false;
        }
        if !suspects.contains(&slot) && suspects.len() >= self.tolerance() {
            return false;
        }
        let lost = voters.iter().filter(|voter| **voter == slot || suspects.contains(voter)).count();
        let witness = usize::from(voters.len().is_multiple_of(2));
        if voters.len() - lost + witness < (voters.len() + witness) / 2 + 1 {
            return false;
        }
        suspects.insert(slot);
        self.faults.borrow_mut().push(slot);
        true
    }

    /// Whether nothing is wrong that is known of, and the votes of the disks can be told.
    pub(crate) fn is_well(&self) -> bool {
        let slots = self.slots.borrow();
        let settled = |slot: &Slot| !matches!(slot.standing, Standing::Away | Standing::Joining);
        let quiet = |slot: &Slot| !slot.disk.is_full() && !slot.disk.is_losing();
        self.suspects.borrow().is_empty()
            && self.troubles.scattered.borrow().slots.is_empty()
            && self.spoiled.borrow().is_empty()
            && !has_losses(&slots)
            && self.voters.borrow().is_some()
            && slots.iter().all(|slot| settled(slot) && quiet(slot))
    }

    /// These disks go away together, more of them than the layout stands: what is asked for until they are back may fail.
    pub(crate) fn note_scattered(&self, chosen: &BTreeSet<usize>) {
        self.faults.borrow_mut().extend(chosen);
        let voters = self.voters.borrow();
        let (votes, left) =
            voters.as_ref().map_or((0, 0), |voters| (voters.len(), voters.difference(chosen).count()));
        let witness = usize::from(votes.is_multiple_of(2));
        // One vote more than a majority may be taken by a disk that leaves meanwhile.
        self.troubles.lost_quorum.set(left + witness < (votes + witness) / 2 + 2);
        let mut scattered = self.troubles.scattered.borrow_mut();
        scattered.slots.clone_from(chosen);
        scattered.away = true;
    }

    /// The active disks of the pool that have at least so many slabs free.
    pub(crate) fn disks_with_room(&self, pool: &Pool, least: u32) -> usize {
        let has_room = |disk: &DiskStatus| {
            let free = disk.record.slab_count.saturating_sub(disk.used_slabs);
            disk.record.usage == DiskUse::Active && free >= least
        };
        pool.status().disks.iter().filter(|disk| has_room(disk)).count()
    }
}
