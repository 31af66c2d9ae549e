//! What was asked of the pool and what it answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim::SECTOR;

use crate::history::{History, Value};
use crate::rig::Mark;

/// Where a space is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Asked for, not answered.
    Creating,
    /// There.
    Present,
    /// To be deleted, not answered.
    Deleting,
    /// Deleted.
    Gone,
}

/// A space as it must be.
pub(crate) struct SpaceModel {
    pub(crate) name: String,
    /// Stands in what is written, so that another space's data is recognised.
    pub(crate) owner: u32,
    pub(crate) life: Cell<Life>,
    /// Bytes, as acknowledged.
    pub(crate) size: Cell<u64>,
    /// A size that was asked for and not answered.
    pub(crate) growing: Cell<Option<u64>>,
    pub(crate) history: RefCell<History>,
    /// The rig's mark when a flush last ended.
    pub(crate) last_flush: RefCell<Mark>,
}

/// All spaces of a run.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) spaces: RefCell<Vec<Rc<SpaceModel>>>,
    generation: Cell<u32>,
    /// The last end left the disks' caches alone: what is read may not be durable.
    killed: Cell<bool>,
}

impl Model {
    /// A space that will be asked for.
    pub(crate) fn add(&self, size: u64) -> Rc<SpaceModel> {
        let mut spaces = self.spaces.borrow_mut();
        let owner = spaces.len() as u32 + 1;
        let space = Rc::new(SpaceModel {
            name: format!("s{owner}"),
            owner,
            life: Cell::new(Life::Creating),
            size: Cell::new(size),
            growing: Cell::new(None),
            history: RefCell::new(History::zeros(size as usize / SECTOR)),
            last_flush: RefCell::default(),
        });
        spaces.push(Rc::clone(&space));
        space
    }

    pub(crate) fn present(&self) -> Vec<Rc<SpaceModel>> {
        let spaces = self.spaces.borrow();
        spaces.iter().filter(|space| space.life.get() == Life::Present).cloned().collect()
    }

    /// A number for a write.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.set(self.generation.get() + 1);
        self.generation.get()
    }

    /// Whatever was under way is undecided now.
    pub(crate) fn crash(&self) {
        for space in self.spaces.borrow().iter() {
            space.history.borrow_mut().crash();
        }
    }

    /// A disk without copies elsewhere has lost its cache, or may have.
    pub(crate) fn cache_lost(&self) {
        for space in self.spaces.borrow().iter() {
            space.history.borrow_mut().cache_lost();
        }
    }

    pub(crate) fn note_kill(&self) {
        self.killed.set(true);
    }

    /// Whether what is on the disks now survives a power cut; asked once for each boot.
    pub(crate) fn take_killed(&self) -> bool {
        self.killed.take()
    }

    /// The pool was closed: everything acknowledged is durable, except where a loss has not been told yet.
    pub(crate) fn closed(&self) {
        for space in self.present() {
            space.history.borrow_mut().closed();
        }
    }
}

impl SpaceModel {
    pub(crate) fn value(&self, generation: u32, sector: usize) -> Value {
        Value { owner: self.owner, generation, sector: sector as u32 }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.life.get() == Life::Present
    }
}
