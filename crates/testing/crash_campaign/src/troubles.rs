//! Which of the rarer kinds of bad luck a seed has, and where they stand. Their choices have dice of their own: a seed without
//! them does what it did before there were any.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use pool::Pool;
use sim::{Dice, Image};

use crate::case::{Case, Layout, Sabotage, Subject};

/// The kinds that a seed has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    /// A disk goes back to what it was at an earlier moment.
    pub(crate) roll_back: bool,
    /// A disk acknowledges writes of data and of the checksums that vouch for it, and keeps neither.
    pub(crate) lose_pairs: bool,
    /// A disk is full for a while.
    pub(crate) fill: bool,
    /// Disks with all copies of the same data are away for a while, together.
    pub(crate) scatter: bool,
    /// The largest disk has a hundred times what the smallest has.
    pub(crate) sizes: bool,
}

impl Kinds {
    fn choose(case: &Case, dice: &Dice) -> Self {
        // What is broken on purpose shows only where there is the bad luck that it does not stand.
        let has = |kind: Sabotage| dice.one_in(5) || case.sabotage == kind;
        let (roll_back, lose_pairs) =
            (has(Sabotage::PoolTrustsStaleMember), has(Sabotage::PoolSkipsGenerations));
        let (fill, scatter) = (has(Sabotage::PoolIgnoresNoSpace), has(Sabotage::PoolAcknowledgesWithoutCopy));
        let sizes = has(Sabotage::PoolOverfillsDisks);
        // One copy cannot be made up for, and each loss of it is one of all copies.
        let redundant = case.layout != Layout::Simple;
        if case.subject == Subject::Log {
            return Self::default();
        }
        Self {
            roll_back: roll_back && redundant,
            lose_pairs: lose_pairs && redundant,
            fill,
            scatter: scatter && redundant,
            sizes,
        }
    }
}

/// Disks that went away together.
#[derive(Default)]
pub(crate) struct Scattered {
    /// Those of them that may not have caught up yet.
    pub(crate) slots: BTreeSet<usize>,
    /// They are away, or some of them.
    pub(crate) away: bool,
}

/// What a disk was.
pub(crate) struct Earlier {
    pub(crate) image: Image,
    /// The epoch in which it was that, or after which.
    pub(crate) epoch: u64,
}

/// Where the rarer kinds stand.
pub(crate) struct Troubles {
    pub(crate) kinds: Kinds,
    pub(crate) dice: Dice,
    /// Of the last opening that succeeded.
    pub(crate) epoch: Cell<u64>,
    /// The epoch of the last opening at which each disk was there and got its mark, by slot.
    pub(crate) marked: RefCell<BTreeMap<usize, u64>>,
    /// The disks that were there when the pool was closed since then: closing marks no others.
    pub(crate) closed: RefCell<BTreeSet<usize>>,
    /// What disks were, by slot.
    pub(crate) images: RefCell<BTreeMap<usize, Earlier>>,
    pub(crate) scattered: RefCell<Scattered>,
    /// So many disks went away that the pool may have stopped.
    pub(crate) lost_quorum: Cell<bool>,
}

impl Troubles {
    pub(crate) fn new(case: &Case) -> Self {
        let dice = Dice::new(!case.seed);
        Self {
            kinds: Kinds::choose(case, &dice),
            dice,
            epoch: Cell::new(0),
            marked: RefCell::default(),
            closed: RefCell::default(),
            images: RefCell::default(),
            scattered: RefCell::default(),
            lost_quorum: Cell::new(false),
        }
    }

    /// The pool is open, and has marked these disks.
    pub(crate) fn opened(&self, pool: &Pool, marked: &BTreeSet<usize>) {
        let epoch = pool.status().epoch.0;
        self.epoch.set(epoch);
        self.marked.borrow_mut().extend(marked.iter().map(|slot| (*slot, epoch)));
        self.closed.borrow_mut().clear();
    }

    /// The pool was closed, and has marked these disks.
    pub(crate) fn closed(&self, marked: BTreeSet<usize>) {
        *self.closed.borrow_mut() = marked;
    }

    /// The disks that are away together now.
    pub(crate) fn away_together(&self) -> impl Iterator<Item = usize> + use<> {
        let scattered = self.scattered.borrow();
        let away = if scattered.away { scattered.slots.clone() } else { BTreeSet::new() };
        away.into_iter()
    }
}
