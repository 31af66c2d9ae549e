//! A client of the volume: one change of names at a time, and data operations of which some run side by side.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use file_store::{Access, FileId, FileStore, OpenFile, OpenOptions, StoreError, StoreErrorKind};
use sim::Dice;
use volume::Volume;

use super::Run;
use super::model::{FileModel, Part, Step};
use crate::rig::Mark;

/// Time, a hundred times as fast as outside, after which an operation hangs.
const PATIENCE: Duration = Duration::from_secs(6000);

/// Kinds of steps below this need not be durable.
const NOT_DURABLE: u64 = 57;

/// The worker cannot go on: what it asked for last is undecided, or the boot is over.
pub(super) struct Stop;

/// One worker in one boot.
pub(super) struct Worker<'a> {
    pub(super) run: &'a Rc<Run>,
    pub(super) volume: &'a Arc<Volume>,
    pub(super) part: &'a Rc<Part>,
    pub(super) dice: &'a Dice,
    pub(super) number: usize,
    /// Opens that are kept for later.
    opens: RefCell<BTreeMap<u64, Arc<dyn OpenFile>>>,
    /// Those of them that have volatile changes.
    relaxed: RefCell<BTreeSet<u64>>,
    /// The change that is under way is volatile; what there was before it; volatile changes that were answered then.
    pub(super) is_volatile: Cell<bool>,
    pub(super) before: RefCell<Option<Step>>,
    pub(super) began: Cell<u64>,
    /// Few of its changes are durable, and it does little else: so that a crash has much to take back.
    pub(super) hardly_durable: bool,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        run: &'a Rc<Run>,
        volume: &'a Arc<Volume>,
        part: &'a Rc<Part>,
        dice: &'a Dice,
        (number, hardly_durable): (usize, bool),
    ) -> Self {
        Self {
            run,
            volume,
            part,
            dice,
            number,
            opens: RefCell::default(),
            relaxed: RefCell::default(),
            is_volatile: Cell::default(),
            before: RefCell::default(),
            began: Cell::default(),
            hardly_durable,
        }
    }

    /// Works until the steps are done or the boot is over.
    pub(super) async fn work(&self) {
        for _ in 0..self.run.plan.steps {
            if self.run.rig.is_over() {
                return;
            }
            match shard_runtime::timeout(PATIENCE, self.step()).await {
                Some(Ok(())) => {}
                Some(Err(Stop)) => return,
                None => {
                    let number = self.number;
                    self.run.rig.broken(format!("an operation of worker {number} has not ended"));
                    return;
                }
            }
        }
    }

    async fn step(&self) -> Result<(), Stop> {
        let file = {
            let names = self.part.names.borrow();
            let names: Vec<_> = names.iter().map(|(name, file)| (name.clone(), Rc::clone(file))).collect();
            self.dice.pick(&names).cloned()
        };
        // Changes of names, attributes and state, and writes: the rest is durable, or makes it so.
        let kinds = if self.hardly_durable && !self.dice.one_in(30) { NOT_DURABLE } else { 100 };
        let kind = self.dice.below(kinds);
        let Some((name, file)) = file else { return self.create().await };
        self.run.rig.trace(|| format!("worker {}: {name} (owner {}) kind {kind}", self.number, file.owner));
        match kind {
            0..=7 => self.create().await,
            8..=12 => self.remove(&name, &file).await,
            13..=17 => self.rename(&name).await,
            18..=21 => self.set_attributes(&file).await,
            22..=24 => self.set_state().await,
            25 | 26 | 28 if self.hardly_durable && !self.dice.one_in(8) => self.rename(&name).await,
            25 | 26 => self.snapshot().await,
            28 => self.clone_from_snapshot().await,
            27 => {
                self.opens.borrow_mut().clear();
                Ok(())
            }
            30 => self.link(&name, &file).await,
            29 => {
                // Now and then for so long that what is promised to be durable soon has to be.
                let millis =
                    if self.dice.one_in(2) { 10_000 + self.dice.below(5_000) } else { self.dice.below(800) };
                shard_runtime::sleep(Duration::from_millis(millis)).await;
                Ok(())
            }
            _ => {
                let open = self.open(&file).await?;
                self.data(&file, &open, kind).await
            }
        }
    }

    /// An open of the file, a kept one or a new one.
    pub(super) async fn open(&self, file: &Rc<FileModel>) -> Result<Arc<dyn OpenFile>, Stop> {
        let id = file.id.get().unwrap_or_default();
        let kept = self.opens.borrow().get(&id).cloned();
        if let Some(open) = kept {
            return Ok(open);
        }
        let since = self.run.mark();
        let wanted = if self.hardly_durable { !self.dice.one_in(30) } else { self.dice.one_in(2) };
        let relaxed = self.volume.volatile().filter(|_| wanted);
        match &relaxed {
            Some(_) => self.relaxed.borrow_mut().insert(id),
            None => self.relaxed.borrow_mut().remove(&id),
        };
        let store = relaxed.unwrap_or_else(|| Arc::clone(self.volume) as Arc<dyn FileStore>);
        match store.open(FileId(id), OpenOptions::shared(Access::READ_WRITE)).await {
            Ok(open) => {
                self.opens.borrow_mut().insert(id, Arc::clone(&open));
                Ok(open)
            }
            Err(error) => self.judge("an open", &error, &since).and(Err(Stop)),
        }
    }

    /// Whether the kept open of a file has volatile changes.
    pub(super) fn is_relaxed(&self, file: &FileModel) -> bool {
        self.relaxed.borrow().contains(&file.id.get().unwrap_or_default())
    }

    /// Lets go of a kept open.
    pub(super) fn close(&self, file: &FileModel) -> Option<Arc<dyn OpenFile>> {
        self.opens.borrow_mut().remove(&file.id.get().unwrap_or_default())
    }

    /// Judges a failure. `Ok` when nothing has changed and the worker can go on.
    pub(super) fn judge(&self, what: &str, error: &StoreError, since: &Mark) -> Result<(), Stop> {
        let rig = &self.run.rig;
        if error.kind() == StoreErrorKind::NoSpace {
            return Ok(());
        }
        let excused = self.run.excuses(error, since);
        rig.trace(|| {
            format!(
                "worker {}: {what} failed{}: {error}",
                self.number,
                if excused { ", excused" } else { "" }
            )
        });
        if !excused {
            rig.broken(format!("{what} fails within what the layout stands: {error}"));
        }
        Err(Stop)
    }
}
