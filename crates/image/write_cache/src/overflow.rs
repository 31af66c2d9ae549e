//! The overflow file: slots of 64 KiB, given out in runs so that what leaves memory together is one sequential write.
//!
//! ```text
//!   given out ──► in use ──given back──► resting ──nobody reads who began before──► spare ──punched──► free ──► given out
//!                                                                                     └──────────────► given out
//! ```
//! Who reads holds a [`Reading`] from before it looks where something is until it has read it; a slot rests until all of those are gone that
//! were there when it was given back. What the slots hold nobody knows after a crash: the file is then begun anew.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Durability};
use file_store::OpenFile;
use parking_lot::Mutex;

use crate::base::block_error;
use crate::block::SLAB;
use crate::runs::Runs;

/// So many spare slots are punched at a time: 2 MiB.
const PUNCH: u64 = 32;

/// A file that takes what there is no memory for.
pub(crate) struct Overflow {
    /// Absent when the cache has ended.
    file: Mutex<Option<Arc<InUse>>>,
    in_use: Weak<InUse>,
    /// Slots that it has at most.
    limit: u64,
    slots: Mutex<Slots>,
}

/// The file, while the cache has it or an operation is under way to it.
struct InUse(Arc<dyn OpenFile>);

#[derive(Default)]
struct Slots {
    /// Never written, or punched.
    free: Runs,
    /// Not in use, with space in the file's volume.
    spare: Runs,
    /// Slots that the file has had.
    end: u64,
    in_use: u64,
    reading: Arc<()>,
    /// Given back while `reading` was handed out.
    given_back: Vec<u32>,
    resting: VecDeque<(Arc<()>, Vec<u32>)>,
}

/// No slot that was in use when this was made is used again while it is there.
pub(crate) struct Reading {
    _since: Arc<()>,
}

impl Slots {
    /// Lets slots go on that nobody reads any more.
    fn settle(&mut self) {
        if !self.given_back.is_empty() {
            let since = std::mem::take(&mut self.reading);
            self.resting.push_back((since, std::mem::take(&mut self.given_back)));
        }
        while let Some((_, slots)) = self.resting.pop_front_if(|(since, _)| Arc::strong_count(since) == 1) {
            for slot in slots {
                self.spare.add(slot.into(), u64::from(slot) + 1);
            }
        }
    }

    /// So many slots that follow each other, or as many as do.
    fn take(&mut self, most: u64, limit: u64) -> Option<(u64, u64)> {
        let rest = limit.saturating_sub(self.end).min(most);
        // A whole run before a part of one, and what has its space before what needs some.
        let runs = [&mut self.spare, &mut self.free].map(|runs| {
            let run = runs.take(most);
            (runs, run)
        });
        let mut found = None;
        for parts in [false, true] {
            for (_, run) in &runs {
                let fits = run.filter(|(start, end)| parts || end - start == most);
                found = found.or(fits);
            }
            if found.is_none() && rest > 0 && (parts || rest == most) {
                found = Some((self.end, self.end + rest));
            }
        }
        for (runs, run) in runs {
            if let Some((start, end)) = run.filter(|run| Some(*run) != found) {
                runs.add(start, end);
            }
        }
        if found.is_some_and(|(start, _)| start == self.end) {
            self.end += rest;
        }
        found
    }
}

impl Overflow {
    /// Uses `file`, which is empty and nobody else's, for up to `limit` bytes.
    pub(crate) fn new(file: Arc<dyn OpenFile>, limit: u64) -> Self {
        // Numbers of slots have 32 bits, of which the highest stands for none: 256 TiB.
        let limit = (limit / SLAB).min(u64::from(u32::MAX));
        let file = Arc::new(InUse(file));
        Self { in_use: Arc::downgrade(&file), file: Mutex::new(Some(file)), limit, slots: Mutex::default() }
    }

    /// Nothing is begun at the file any more.
    pub(crate) fn let_go(&self) {
        let file = self.file.lock().take();
        drop(file);
    }

    /// Whether the file is open here: the cache has it, or something is under way to it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.strong_count() > 0
    }

    /// The file, for one operation.
    fn file(&self) -> Result<Arc<InUse>, BlockError> {
        let file = self.file.lock().clone();
        file.ok_or_else(|| {
            BlockError::new(BlockErrorKind::Gone, "use the overflow file of a cache that has ended")
        })
    }

    pub(crate) fn reading(&self) -> Reading {
        Reading { _since: Arc::clone(&self.slots.lock().reading) }
    }

    /// Takes up to `count` slots, in as few runs as there are.
    pub(crate) fn take(&self, count: u64) -> Vec<(u64, u64)> {
        let mut slots = self.slots.lock();
        slots.settle();
        let (mut runs, mut left) = (Vec::new(), count);
        while left > 0
            && let Some((start, end)) = slots.take(left, self.limit)
        {
            left -= end - start;
            slots.in_use += end - start;
            runs.push((start, end));
        }
        runs
    }

    /// Gives slots back that somebody may still read.
    pub(crate) fn give_back(&self, given: &[u32]) {
        if given.is_empty() {
            return;
        }
        let mut slots = self.slots.lock();
        slots.in_use = slots.in_use.saturating_sub(given.len() as u64);
        slots.given_back.extend_from_slice(given);
    }

    /// Gives slots back that nothing ever led to.
    pub(crate) fn never_used(&self, runs: &[(u64, u64)]) {
        let mut slots = self.slots.lock();
        for (start, end) in runs {
            slots.in_use = slots.in_use.saturating_sub(end - start);
            slots.spare.add(*start, *end);
        }
    }

    pub(crate) fn used(&self) -> u64 {
        self.slots.lock().in_use * SLAB
    }

    /// Writes slots that follow each other.
    pub(crate) async fn write(&self, first: u64, data: SharedBuf) -> Result<(), BlockError> {
        let at = first * SLAB;
        let len = data.len() as u64;
        let file = self.file()?;
        let written = file.0.write(at, data, Durability::Volatile).await;
        written.map_err(|error| block_error(error, "write overflow file").at(at, len))
    }

    /// Reads a part of a slot.
    pub(crate) async fn read(&self, slot: u32, within: u64, len: u64) -> Result<IoBuf, BlockError> {
        let at = u64::from(slot) * SLAB + within;
        let file = self.file()?;
        let read = file.0.read(at, IoBuf::new(len as usize)).await;
        let read = read.map_err(|error| block_error(error, "read overflow file").at(at, len))?;
        if read.len() as u64 != len {
            return Err(BlockError::new(BlockErrorKind::Media, "read overflow file that was cut").at(at, len));
        }
        Ok(read)
    }

    /// Whether enough is spare to be punched.
    pub(crate) fn has_spare(&self) -> bool {
        let mut slots = self.slots.lock();
        slots.settle();
        let spare = slots.spare.count();
        spare >= PUNCH || spare > 0 && slots.in_use == 0
    }

    /// Gives the space of spare slots back to the file's volume. Comes to its end, or what was under way is not used again.
    pub(crate) async fn punch(&self) {
        let runs = {
            let mut slots = self.slots.lock();
            slots.settle();
            slots.spare.drain()
        };
        for (start, end) in runs {
            let Ok(file) = self.file() else { return };
            let punched = file.0.punch_hole(start * SLAB, (end - start) * SLAB).await;
            let mut slots = self.slots.lock();
            // Where it failed the space is there for what comes next.
            if punched.is_ok() { slots.free.add(start, end) } else { slots.spare.add(start, end) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_rest_while_somebody_reads_who_was_there_before() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(4, 100), Some((0, 4)));
        let first = Arc::clone(&slots.reading);
        slots.given_back.push(1);
        slots.settle();
        let second = Arc::clone(&slots.reading);
        slots.given_back.push(2);
        slots.settle();
        assert_eq!(slots.spare.count(), 0);
        drop(second);
        slots.settle();
        assert_eq!(slots.spare.count(), 0, "who reads longer may read what was given back later");
        drop(first);
        slots.settle();
        assert_eq!(slots.spare.take(2), Some((1, 3)));
    }

    #[test]
    fn runs_are_whole_while_the_file_may_grow() {
        let mut slots = Slots { end: 90, ..Slots::default() };
        slots.spare.add(3, 5);
        slots.free.add(10, 30);
        assert_eq!(slots.take(16, 100), Some((10, 26)));
        assert_eq!(slots.take(8, 100), Some((90, 98)));
        // No whole run is left: parts.
        assert_eq!(slots.take(8, 100), Some((3, 5)));
        assert_eq!(slots.take(8, 100), Some((26, 30)));
        assert_eq!(slots.take(8, 100), Some((98, 100)));
        assert_eq!(slots.take(8, 100), None);
    }
}
