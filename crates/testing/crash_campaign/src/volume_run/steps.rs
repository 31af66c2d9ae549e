//! Volatile changes: what a crash may take back, and only from the end.
//!
//! Each worker's metadata goes from one *step* to the next: its names, its row of state, attributes and descriptors of its files. A
//! volatile change that was answered leaves the step before it as one that a crash may show. A change that is durable when it is
//! answered, of whichever worker, takes away all steps that were left before it was asked for. So after a crash all that a worker
//! has is one of its steps, whole.

use std::collections::BTreeMap;
use std::rc::Rc;

use file_store::{FileId, FileStore};
use volume::Volume;

use super::Run;
use super::model::{FileModel, Model, Names, Part, Register};
use super::names::TABLE;
use super::verify::{Checked, ended, matches};

/// A worker's metadata as it was.
pub(crate) struct Step {
    /// The number of the change that was answered and left it.
    left: u64,
    names: Names,
    state: u64,
    /// By owner: attributes and descriptor.
    files: BTreeMap<u32, (u32, Vec<u8>)>,
}

impl Part {
    /// What there is now, with nothing under way.
    fn step(&self, left: u64) -> Step {
        let names = self.names.borrow().clone();
        let of = |file: &Rc<FileModel>| {
            let (attributes, security) = (file.attributes.borrow().live(), file.security.borrow().live());
            (file.owner, (attributes, security))
        };
        Step { left, files: names.values().map(of).collect(), names, state: self.state.borrow().live() }
    }

    /// What it was before a volatile change that is asked for.
    pub(super) fn before(&self) -> Step {
        self.step(0)
    }
}

impl Model {
    /// The number of the last volatile change that was answered.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// A volatile change was answered; this was before. Its number.
    pub(super) fn left(&self, part: &Part, before: Step) -> u64 {
        self.changes.set(self.changes.get() + 1);
        part.steps.borrow_mut().push(Step { left: self.changes.get(), ..before });
        self.changes.get()
    }

    /// All changes up to this number are durable.
    pub(super) fn durable(&self, number: u64) {
        for part in &self.parts {
            part.steps.borrow_mut().retain(|step| step.left > number);
        }
    }
}

/// What a worker's metadata are on the volume.
struct Seen<'a> {
    names: &'a BTreeMap<String, u64>,
    state: u64,
    /// By number of the file.
    files: BTreeMap<u64, (u32, Vec<u8>)>,
}

impl Seen<'_> {
    fn is_now(&self, part: &Part) -> bool {
        let pending = part.pending.borrow();
        let admitted = |names: &Names| {
            matches(names, self.names)
                && names.iter().all(|(name, file)| {
                    self.names.get(name).and_then(|id| self.files.get(id)).is_some_and(
                        |(attributes, security)| {
                            file.attributes.borrow().admits(attributes)
                                && file.security.borrow().admits(security)
                        },
                    )
                })
        };
        part.state.borrow().admits(&self.state)
            && (admitted(&part.names.borrow()) || pending.as_ref().is_some_and(admitted))
    }

    fn is(&self, step: &Step) -> bool {
        self.state == step.state
            && matches(&step.names, self.names)
            && step.names.iter().all(|(name, file)| {
                self.names.get(name).and_then(|id| self.files.get(id)) == step.files.get(&file.owner)
            })
    }
}

/// After an opening: if the worker's metadata are those of an earlier step that a crash may show, they are from now on.
pub(super) async fn roll_back(
    run: &Rc<Run>,
    volume: &Volume,
    part: &Part,
    number: usize,
    there: &BTreeMap<String, u64>,
) -> Checked {
    let steps = std::mem::take(&mut *part.steps.borrow_mut());
    if steps.is_empty() {
        return Ok(());
    }
    let row = ended(run, "a row of state", volume.state_get(TABLE, &[number as u8]).await)?;
    let state = row.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes);
    let mut files = BTreeMap::new();
    for id in there.values() {
        let info = ended(run, "looking at a file", volume.info(FileId(*id)).await)?;
        let security = ended(run, "a security descriptor", volume.security(FileId(*id)).await)?;
        files.insert(*id, (info.attributes.0, security));
    }
    let seen = Seen { names: there, state, files };
    if seen.is_now(part) {
        return Ok(());
    }
    let Some(step) = steps.into_iter().rev().find(|step| seen.is(step)) else { return Ok(()) };
    run.rig.trace(|| format!("worker {number} is back at what was before change {}", step.left));
    run.rig.stats.borrow_mut().taken_back += 1;
    *part.pending.borrow_mut() = None;
    *part.state.borrow_mut() = Register::new(step.state);
    for file in step.names.values() {
        if let Some((attributes, security)) = step.files.get(&file.owner) {
            file.attributes.borrow_mut().settle(*attributes);
            file.security.borrow_mut().settle(security.clone());
        }
    }
    *part.names.borrow_mut() = step.names;
    Ok(())
}
