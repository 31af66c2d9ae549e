//! What was asked of the volume and what it answered.
//!
//! Each worker has a directory and files of its own and asks for one change of names at a time, so after a crash
//! its names are those before the last unanswered change, or those after it; or, after volatile changes, one of `steps.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use file_store::FileId;
use shard_runtime::Monotonic;

use crate::history::{History, Moment, Value};

/// Something that changes whole or not at all.
#[derive(Clone, Debug)]
pub(crate) struct Register<T>(Vec<T>);

impl<T: Clone + PartialEq> Register<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(vec![value])
    }

    /// A change is asked for.
    pub(crate) fn begin(&mut self, value: T) {
        self.0.push(value);
    }

    /// The last change that was asked for was answered.
    pub(crate) fn done(&mut self) {
        self.0 = self.0.last().cloned().into_iter().collect();
    }

    /// The last change that was asked for was refused.
    pub(crate) fn refused(&mut self) {
        self.0.pop();
    }

    pub(crate) fn admits(&self, value: &T) -> bool {
        self.0.contains(value)
    }

    /// What it is, when no change is under way.
    pub(crate) fn live(&self) -> T {
        self.0[0].clone()
    }

    /// What it is, is seen.
    pub(crate) fn settle(&mut self, value: T) {
        self.0 = vec![value];
    }
}

/// How long a size that nobody flushed may be missing after a crash. It is promised to be durable within about a second; the rest is
/// for disks of which some requests take up to 0.4 s, several times behind each other.
const SIZES_LATE: Duration = Duration::from_secs(10);

/// A size that a crash may show, in sectors.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    sectors: u64,
    /// When it was answered that the file is so long, in this boot.
    answered: Option<Monotonic>,
}

/// The size of a file, in sectors: cut and grown atomically, and grown by writes.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// What a crash may show, in the order in which it was asked for or answered.
    candidates: Vec<Candidate>,
    pub(crate) live: u64,
}

impl Sizes {
    fn new() -> Self {
        Self { candidates: vec![Candidate { sectors: 0, answered: None }], live: 0 }
    }

    /// A write up to `end`, or a change of the size to it, begins.
    pub(crate) fn begin(&mut self, end: u64) {
        self.candidates.push(Candidate { sectors: end, answered: None });
    }

    /// A write up to `end` was answered.
    pub(crate) fn written(&mut self, end: u64, durable: bool, now: Monotonic) {
        self.live = self.live.max(end);
        if durable {
            self.flushed(end);
        }
        self.candidates.push(Candidate { sectors: self.live, answered: Some(now) });
    }

    /// A flush that began when the size was `at_least` succeeded.
    pub(crate) fn flushed(&mut self, at_least: u64) {
        self.candidates.retain(|size| size.sectors >= at_least);
    }

    /// The size is this, durably.
    pub(crate) fn settle(&mut self, size: u64) {
        *self = Self { candidates: vec![Candidate { sectors: size, answered: None }], live: size };
    }

    /// The boot has ended, and its volume was last seen to work at `alive`: what it was told of long before that it has made durable.
    pub(crate) fn crash(&mut self, alive: Monotonic) {
        let is_late = |size: &Candidate| size.answered.is_some_and(|at| alive.since(at) >= SIZES_LATE);
        if let Some(late) = self.candidates.iter().rposition(is_late) {
            // What was asked for later may be there instead.
            let later = self.candidates.split_off(late);
            let least = later.first().map_or(0, |size| size.sectors);
            self.flushed(least);
            self.candidates.extend(later);
        }
        self.candidates.iter_mut().for_each(|size| size.answered = None);
    }

    pub(crate) fn admits(&self, size: u64) -> bool {
        self.candidates.iter().any(|candidate| candidate.sectors == size)
    }

    pub(crate) fn candidates(&self) -> String {
        let sectors: Vec<u64> = self.candidates.iter().map(|size| size.sectors).collect();
        format!("{sectors:?}")
    }
}

/// A file as it must be.
pub(crate) struct FileModel {
    /// Stands in what is written, so that another file's data is recognised.
    pub(crate) owner: u32,
    /// The volume's number for it, once known.
    pub(crate) id: Cell<Option<u64>>,
    /// The number of the volatile change that has made it; 0 if a durable one has.
    pub(crate) made: Cell<u64>,
    pub(crate) history: RefCell<History>,
    pub(crate) sizes: RefCell<Sizes>,
    pub(crate) attributes: RefCell<Register<u32>>,
    pub(crate) security: RefCell<Register<Vec<u8>>>,
}

impl FileModel {
    pub(crate) fn value(&self, generation: u32, sector: usize) -> Value {
        Value { owner: self.owner, generation, sector: sector as u32 }
    }

    /// The file has this many sectors, and none beyond them that ever comes back.
    pub(crate) fn cut(&self, sectors: u64) {
        self.sizes.borrow_mut().settle(sectors);
        let mut history = self.history.borrow_mut();
        history.grow(sectors as usize);
        for sector in sectors as usize..history.len() {
            history.settle(sector, Value::ZERO, true);
        }
    }
}

/// The table of the rows that workers keep.
pub(super) const TABLE: &str = "campaign";
/// The directory within each worker's directory.
pub(crate) const INNER: &str = "d";

/// Names and what they name; those in the inner directory begin with its name and a slash.
pub(crate) type Names = BTreeMap<String, Rc<FileModel>>;

/// A snapshot that was asked for.
pub(crate) struct FrozenModel {
    pub(super) name: String,
    /// By name; one without a name where it is a file's.
    pub(super) files: BTreeMap<String, Frozen>,
    /// Whether it must be there, and whether it may be.
    pub(super) must: bool,
    pub(super) may: bool,
}

/// A file in a snapshot: what it held, and what it had beside that.
pub(super) struct Frozen {
    pub(super) history: History,
    pub(super) sectors: u64,
    pub(super) attributes: Register<u32>,
    pub(super) security: Register<Vec<u8>>,
}

impl Frozen {
    /// The file as it is, when all that has ended is durable; and since when.
    pub(super) fn of(file: &FileModel) -> (Self, Moment) {
        let began = file.history.borrow_mut().moment();
        let mut history = file.history.borrow().clone();
        history.flushed(began);
        let sectors = file.sizes.borrow().live;
        let (attributes, security) = (file.attributes.borrow().clone(), file.security.borrow().clone());
        (Self { history, sectors, attributes, security }, began)
    }
}

/// A worker's part of the volume.
pub(crate) struct Part {
    pub(crate) directory: Cell<u64>,
    pub(crate) inner: Cell<u64>,
    pub(crate) names: RefCell<Names>,
    /// The names if the change that is under way, or failed half-way, has been made.
    pub(crate) pending: RefCell<Option<Names>>,
    /// A row of durable state.
    pub(crate) state: RefCell<Register<u64>>,
    /// What a crash may show instead of what there is, the oldest first.
    pub(crate) steps: RefCell<Vec<Step>>,
    /// Snapshots of the directory that were asked for, the oldest first.
    pub(crate) frozen: RefCell<Vec<FrozenModel>>,
}

impl Part {
    /// In which directory a name lies, and as what.
    pub(crate) fn place<'a>(&self, name: &'a str) -> (FileId, &'a str) {
        match name.split_once('/') {
            Some((_, name)) => (FileId(self.inner.get()), name),
            None => (FileId(self.directory.get()), name),
        }
    }
}

/// Everything on the volume.
pub(crate) struct Model {
    pub(crate) parts: Vec<Rc<Part>>,
    files: Cell<u32>,
    generation: Cell<u32>,
    /// Volatile changes that were answered.
    pub(super) changes: Cell<u64>,
    /// The last end left the disks' caches alone.
    killed: Cell<bool>,
    /// Files without names that are open still.
    pub(crate) ghosts: RefCell<Vec<Rc<FileModel>>>,
}

impl Model {
    pub(crate) fn new(workers: u64) -> Self {
        let part = || Part {
            directory: Cell::new(0),
            inner: Cell::new(0),
            names: RefCell::default(),
            pending: RefCell::default(),
            state: RefCell::new(Register::new(0)),
            steps: RefCell::default(),
            frozen: RefCell::default(),
        };
        Self {
            parts: (0..workers).map(|_| Rc::new(part())).collect(),
            files: Cell::new(0),
            generation: Cell::new(0),
            changes: Cell::new(0),
            killed: Cell::new(false),
            ghosts: RefCell::default(),
        }
    }

    /// A file that will be asked for.
    pub(crate) fn new_file(&self, attributes: u32, security: Vec<u8>) -> Rc<FileModel> {
        self.files.set(self.files.get() + 1);
        Rc::new(FileModel {
            owner: self.files.get(),
            id: Cell::new(None),
            made: Cell::new(0),
            history: RefCell::default(),
            sizes: RefCell::new(Sizes::new()),
            attributes: RefCell::new(Register::new(attributes)),
            security: RefCell::new(Register::new(security)),
        })
    }

    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.set(self.generation.get() + 1);
        self.generation.get()
    }

    fn for_each_file(&self, mut visit: impl FnMut(&FileModel)) {
        for part in &self.parts {
            part.names.borrow().values().for_each(|file| visit(file));
            if let Some(names) = part.pending.borrow().as_ref() {
                names.values().for_each(|file| visit(file));
            }
            // Those that a crash may bring back.
            for step in part.steps.borrow().iter() {
                step.names.values().for_each(|file| visit(file));
            }
        }
    }

    /// The boot has ended; its volume was last seen to work at `alive`.
    pub(crate) fn crash(&self, alive: Monotonic) {
        self.ghosts.borrow_mut().clear();
        self.for_each_file(|file| {
            file.history.borrow_mut().crash();
            file.sizes.borrow_mut().crash(alive);
        });
    }

    pub(crate) fn cache_lost(&self) {
        self.ghosts.borrow().iter().for_each(|file| file.history.borrow_mut().cache_lost());
        self.for_each_file(|file| file.history.borrow_mut().cache_lost());
    }

    pub(crate) fn closed(&self) {
        self.durable(self.changes());
        self.for_each_file(|file| {
            file.history.borrow_mut().closed();
            let mut sizes = file.sizes.borrow_mut();
            let live = sizes.live;
            sizes.flushed(live);
        });
    }

    pub(crate) fn note_kill(&self) {
        self.killed.set(true);
    }

    pub(crate) fn take_killed(&self) -> bool {
        self.killed.take()
    }
}

/// A worker's metadata as it was.
pub(crate) struct Step {
    /// The number of the change that was answered and left it.
    pub(super) left: u64,
    /// The number of the last change that had been answered when that one was asked for.
    pub(super) asked: u64,
    pub(super) names: Names,
    pub(super) state: u64,
    /// By owner: attributes and descriptor.
    pub(super) files: BTreeMap<u32, (u32, Vec<u8>)>,
}

impl Part {
    /// What it is before a volatile change that is asked for now, with nothing else under way.
    pub(super) fn before(&self, asked: u64) -> Step {
        let names = self.names.borrow().clone();
        let of = |file: &Rc<FileModel>| {
            let (attributes, security) = (file.attributes.borrow().live(), file.security.borrow().live());
            (file.owner, (attributes, security))
        };
        let files = names.values().map(of).collect();
        Step { left: 0, asked, files, names, state: self.state.borrow().live() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    /// What a crash may show of a file that has grown to 5 and then to 9 sectors and was asked to become one of 3.
    fn after(alive: u64) -> Vec<u64> {
        let mut sizes = Sizes::new();
        sizes.begin(5);
        sizes.written(5, false, at(1));
        sizes.begin(9);
        sizes.written(9, false, at(4));
        sizes.begin(3);
        sizes.crash(at(alive));
        (0..20).filter(|size| sizes.admits(*size)).collect()
    }

    #[test]
    fn sizes_that_are_old_are_there_after_a_crash() {
        let late = SIZES_LATE.as_secs();
        assert_eq!(after(late), [0, 3, 5, 9], "nothing is old");
        assert_eq!(after(1 + late), [3, 5, 9]);
        assert_eq!(after(4 + late), [3, 9]);
    }
}
