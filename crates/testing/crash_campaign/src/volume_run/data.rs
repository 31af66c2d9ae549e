//! What is done with the content of files.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::pattern;
use block_device::Durability;
use file_store::{FileId, FileStore, OpenFile, StoreError};
use futures_util::future::join_all;
use sim::SECTOR;

use super::model::FileModel;
use super::worker::{Stop, Worker};
use crate::history::{Operation, Value};
use crate::rig::Mark;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// Sectors of a file at most: 1.5 MiB.
const SECTORS_MAX: u64 = 3072;
/// Sectors of a block and of a cluster.
const BLOCK: u64 = 8;
const CLUSTER: u64 = 128;

type Open = Arc<dyn OpenFile>;

impl Worker<'_> {
    /// One data operation, or several writes side by side.
    pub(super) async fn data(&self, file: &Rc<FileModel>, open: &Open, kind: u64) -> Result<(), Stop> {
        match kind {
            31..=56 => {
                let writes: Vec<_> = (0..self.dice.between(1, 4)).map(|_| self.write(file, open)).collect();
                join_all(writes).await.into_iter().collect::<Result<(), Stop>>()?;
            }
            57..=66 => self.flush(file, open).await?,
            67..=74 => {
                let size = file.sizes.borrow().live;
                let (first, count) = self.range(size.max(BLOCK));
                self.read_and_compare(file, open, first, count).await?;
            }
            75..=79 => self.set_size(file, open).await?,
            80..=84 => self.punch(file, open).await?,
            85..=87 => self.zero(file, open).await?,
            88 => self.allocate(open).await?,
            89..=91 => self.compare_and_write(file, open).await?,
            _ => self.clone_from_another(file).await?,
        }
        let (size, known) = (open.size(), file.sizes.borrow().live * SECTOR_BYTES);
        if size != known {
            let owner = file.owner;
            self.run.rig.broken(format!("the file of owner {owner} has {size} bytes, not {known}"));
        }
        Ok(())
    }

    /// Mostly small, mostly whole blocks, often in the first blocks.
    fn range(&self, size: u64) -> (u64, u64) {
        let dice = self.dice;
        let unit = match dice.below(8) {
            0 => 1,
            1 => CLUSTER,
            _ => BLOCK,
        };
        let count = match dice.below(10) {
            0..=6 => dice.between(1, 4),
            _ => dice.between(1, 20),
        };
        let count = (count * unit).min(SECTORS_MAX / 2);
        let room = if dice.one_in(2) { 40 * BLOCK } else { size + 64 * BLOCK };
        let first = dice.below(room.min(SECTORS_MAX - count)) / unit * unit;
        (first, count)
    }

    fn durability(&self) -> Durability {
        let durable = self.dice.one_in(if self.hardly_durable { 30 } else { 2 });
        if durable { Durability::Durable } else { Durability::Volatile }
    }

    /// A change of content begins: it may grow the file.
    fn begin(
        &self,
        file: &FileModel,
        (first, count): (u64, u64),
        value: impl Fn(usize) -> Value,
    ) -> (Operation, Mark) {
        let sectors: Range<usize> = first as usize..(first + count) as usize;
        let mut history = file.history.borrow_mut();
        history.grow(sectors.end);
        (history.begin(sectors, value), self.run.mark())
    }

    fn end(
        &self,
        file: &FileModel,
        what: &str,
        (begun, since): (Operation, Mark),
        result: Result<(), StoreError>,
        durable: bool,
    ) -> Result<(), Stop> {
        match result {
            Ok(()) => {
                self.run.rig.answered();
                file.history.borrow_mut().complete(&begun, durable);
                if durable {
                    // Its file is there, and all that was changed before that was made.
                    self.run.model.durable(file.made.get());
                }
                Ok(())
            }
            Err(error) => {
                file.history.borrow_mut().fail(&begun);
                self.judge(what, &error, &since).or_else(|stop| self.goes_on(file, begun.end(), stop))
            }
        }
    }

    /// After a failure the content is undecided, which the history admits; but where a file may have grown or not,
    /// its size is not known any more.
    fn goes_on(&self, file: &FileModel, end: u64, stop: Stop) -> Result<(), Stop> {
        let within = end <= file.sizes.borrow().live;
        if within && !self.run.rig.is_over() { Ok(()) } else { Err(stop) }
    }

    async fn write(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let size = file.sizes.borrow().live;
        let (first, count) = self.range(size);
        let durability = self.durability();
        let generation = self.run.model.next_generation();
        let mut buf = IoBuf::new((count * SECTOR_BYTES) as usize);
        pattern::fill(&mut buf, u64::from(file.owner), first * SECTOR_BYTES, u64::from(generation));
        let begun = self.begin(file, (first, count), |sector| file.value(generation, sector));
        file.sizes.borrow_mut().begin(first + count);
        self.run
            .rig
            .trace(|| format!("write {generation} of owner {} {first}+{count} {durability:?}", file.owner));
        let written = open.write(first * SECTOR_BYTES, buf.freeze(), durability).await;
        self.run.rig.trace(|| format!("write {generation} ends well: {}", written.is_ok()));
        if written.is_ok() {
            file.sizes.borrow_mut().written(first + count, durability == Durability::Durable, self.run.now());
        }
        self.end(file, "a write", begun, written, durability == Durability::Durable)
    }

    async fn flush(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let (since, size) = (self.run.mark(), file.sizes.borrow().live);
        let changes = self.run.model.changes();
        let began = file.history.borrow_mut().moment();
        match open.flush().await {
            Ok(()) => {
                self.run.rig.answered();
                self.run.flushed(&since);
                self.run.model.durable(changes);
                file.history.borrow_mut().flushed(began);
                file.sizes.borrow_mut().flushed(size);
                Ok(())
            }
            Err(error) => {
                file.history.borrow_mut().flush_failed();
                self.judge("a flush", &error, &since).or_else(|stop| self.goes_on(file, 0, stop))
            }
        }
    }

    async fn set_size(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let since = self.run.mark();
        let size = self.dice.below(SECTORS_MAX);
        file.sizes.borrow_mut().begin(size);
        self.run.rig.trace(|| format!("owner {} to {size} sectors", file.owner));
        match open.set_size(size * SECTOR_BYTES).await {
            Ok(()) => {
                self.run.rig.answered();
                if self.is_relaxed(file) && size >= file.sizes.borrow().live {
                    // It is known later. What lies between the ends is zero, or nothing.
                    file.history.borrow_mut().grow(size as usize);
                    file.sizes.borrow_mut().written(size, false, self.run.now());
                } else {
                    file.cut(size);
                }
                Ok(())
            }
            Err(error) => self.judge("a change of the size", &error, &since),
        }
    }

    async fn punch(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let size = file.sizes.borrow().live;
        let (first, count) = self.range(size);
        let count = count.min(size.saturating_sub(first));
        self.run.rig.trace(|| format!("punch {first}+{count} of owner {}", file.owner));
        let begun = self.begin(file, (first, count), |_| Value::ZERO);
        let punched = open.punch_hole(first * SECTOR_BYTES, count * SECTOR_BYTES).await;
        self.end(file, "a hole", begun, punched, false)
    }

    async fn zero(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let size = file.sizes.borrow().live;
        let (first, count) = self.range(size);
        let durability = self.durability();
        let durable = durability == Durability::Durable;
        let begun = self.begin(file, (first, count), |_| Value::ZERO);
        file.sizes.borrow_mut().begin(first + count);
        let zeroed = open.zero_range(first * SECTOR_BYTES, count * SECTOR_BYTES, durability).await;
        if zeroed.is_ok() {
            file.sizes.borrow_mut().written(first + count, durable, self.run.now());
        }
        self.end(file, "a zeroed range", begun, zeroed, durable)
    }

    async fn allocate(&self, open: &Open) -> Result<(), Stop> {
        let since = self.run.mark();
        let (first, count) = self.range(SECTORS_MAX / 2);
        match open.allocate(first * SECTOR_BYTES, count * SECTOR_BYTES, false).await {
            Ok(()) => Ok(()),
            Err(error) => self.judge("an allocation", &error, &since),
        }
    }

    async fn compare_and_write(&self, file: &Rc<FileModel>, open: &Open) -> Result<(), Stop> {
        let size = file.sizes.borrow().live;
        let (first, count) = self.range(size);
        let count = count.min(size.saturating_sub(first)).min(4 * BLOCK);
        let Some(expected) = known(file, first, count).filter(|known| !known.is_empty()) else {
            return Ok(());
        };
        let mut present = IoBuf::zeroed((count * SECTOR_BYTES) as usize);
        for (value, bytes) in expected.iter().zip(present.chunks_mut(SECTOR)) {
            if *value != Value::ZERO {
                let place = u64::from(value.sector) * SECTOR_BYTES;
                pattern::fill(bytes, u64::from(value.owner), place, u64::from(value.generation));
            }
        }
        let generation = self.run.model.next_generation();
        let mut buf = IoBuf::new((count * SECTOR_BYTES) as usize);
        pattern::fill(&mut buf, u64::from(file.owner), first * SECTOR_BYTES, u64::from(generation));
        let begun = self.begin(file, (first, count), |sector| file.value(generation, sector));
        let written = open.compare_and_write(first * SECTOR_BYTES, present.freeze(), buf.freeze()).await;
        if let Ok(Some(at)) = written {
            let owner = file.owner;
            self.run
                .rig
                .broken(format!("the file of owner {owner} differs from what is known at {first}, {at}"));
        }
        self.end(file, "a compare and write", begun, written.map(drop), true)
    }

    async fn clone_from_another(&self, file: &Rc<FileModel>) -> Result<(), Stop> {
        let source = {
            let names = self.part.names.borrow();
            let others: Vec<_> = names.values().filter(|other| !Rc::ptr_eq(other, file)).cloned().collect();
            self.dice.pick(&others).cloned()
        };
        let Some(source) = source else { return Ok(()) };
        let size = source.sizes.borrow().live;
        let unit = if self.dice.one_in(4) { 1 } else { CLUSTER };
        let from = self.dice.below(size.max(1)) / unit * unit;
        let count = self.dice.between(1, 8 * CLUSTER).min(size - from.min(size));
        let to = if self.dice.one_in(3) { from } else { self.dice.below(SECTORS_MAX) / unit * unit };
        let count = count.min(SECTORS_MAX - to);
        let Some(values) = known(&source, from, count).filter(|values| !values.is_empty()) else {
            return Ok(());
        };
        self.run
            .rig
            .trace(|| format!("clone {from}+{count} of owner {} to {to} of {}", source.owner, file.owner));
        let begun = self.begin(file, (to, count), |sector| values[sector - to as usize]);
        file.sizes.borrow_mut().begin(to + count);
        let ids = (source.id.get().unwrap_or_default(), file.id.get().unwrap_or_default());
        let place = |id, sector| (FileId(id), sector * SECTOR_BYTES);
        let cloned =
            self.volume.clone_range(place(ids.0, from), place(ids.1, to), count * SECTOR_BYTES).await;
        if cloned.is_ok() {
            file.sizes.borrow_mut().written(to + count, true, self.run.now());
        }
        self.end(file, "a clone", begun, cloned, true)
    }
}

/// What sectors hold, if that is known of all of them.
fn known(file: &FileModel, first: u64, count: u64) -> Option<Vec<Value>> {
    let history = file.history.borrow();
    (first..first + count).map(|sector| history.known(sector as usize)).collect()
}
