//! The database's storage, with changes kept in memory: what is on the device stays as it is.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use parking_lot::Mutex;
use redb::StorageBackend;
use volume_format::BLOCK;

use crate::backend::{DeviceBackend, parts};

/// Most bytes of changes held in memory: recovery and a repair's plan write far less.
const HELD_MAX: usize = 256 << 20;
/// The database's header: which byte says how it was left, and what that says.
const STATE_AT: usize = 9;
const SECOND_SLOT: u8 = 1;
const MUST_REPAIR: u8 = 2;
const TWO_PHASE: u8 = 4;
/// Its two commits: where they are, and how long they are. The first byte is a version.
const SLOTS: [usize; 2] = [64, 192];
const SLOT: usize = 128;

/// Changes over a database that is only read.
pub(crate) struct Shadow {
    below: DeviceBackend,
    state: Mutex<Changed>,
}

struct Changed {
    len: u64,
    /// By number of the block.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl fmt::Debug for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shadow of {:?}", self.below)
    }
}

impl Shadow {
    pub(crate) fn new(below: DeviceBackend) -> io::Result<Self> {
        let len = below.len()?;
        Ok(Self { below, state: Mutex::new(Changed { len, blocks: BTreeMap::new() }) })
    }

    /// The same, with a header that says that the database was not closed, and not that what its last commit wrote
    /// can be relied on: it then verifies all its pages.
    ///
    /// It would then also prefer a newer commit in the other slot. If it can rely on the last one, as after a crash,
    /// that is one which did not come to its end, and whose pages may be anything; so it is hidden.
    pub(crate) fn unclean(below: DeviceBackend) -> io::Result<Self> {
        let shadow = Self::new(below)?;
        {
            let mut state = shadow.state.lock();
            if state.len > 0 {
                let mut header = shadow.block(&state, 0)?;
                let left = header[STATE_AT];
                let [first, second] = SLOTS;
                let (last, other) = if left & SECOND_SLOT == 0 { (first, second) } else { (second, first) };
                // A version that cannot be is damage, and told as such.
                if left & TWO_PHASE != 0 && header[last] == header[other] {
                    header.copy_within(last..last + SLOT, other);
                }
                header[STATE_AT] = (left | MUST_REPAIR) & !TWO_PHASE;
                state.blocks.insert(0, header);
            }
        }
        Ok(shadow)
    }

    /// One block as it is now.
    fn block(&self, state: &Changed, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        // What was added to the length is only here, and zero.
        let below = self.below.len()?;
        let from = number * BLOCK;
        if from < below {
            let there = (below - from).min(BLOCK) as usize;
            self.below.read(from, &mut block[..there])?;
        }
        Ok(block)
    }
}

impl StorageBackend for Shadow {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= state.len);
        let Some(end) = end else {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database"));
        };
        // One request where nothing has changed: most reads.
        let changed = state.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).next().is_some();
        if !changed && end <= self.below.len()? {
            return self.below.read(offset, out);
        }
        for (number, within, at, len) in parts(offset, out.len()) {
            let block = self.block(&state, number)?;
            out[at..at + len].copy_from_slice(&block[within..within + len]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.len = len;
        state.blocks.split_off(&len.div_ceil(BLOCK));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > state.len) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the database"));
        }
        for (number, within, at, len) in parts(offset, data.len()) {
            let mut block = self.block(&state, number)?;
            block[within..within + len].copy_from_slice(&data[at..at + len]);
            state.blocks.insert(number, block);
        }
        if state.blocks.len() * BLOCK as usize > HELD_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "too much to hold in memory"));
        }
        Ok(())
    }
}
