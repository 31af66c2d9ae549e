//! Blocks whose content is known to be lost: reading them is an error until they are written again, never something made
//! up.
//!
//! There is one way to lose a block although its disks keep their promise: power goes while a whole stripe is being
//! written in place, and a disk of the stripe is lost before the write has been made good (`replay.rs`). Which blocks
//! these are is in the pool's metadata.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use block_device::BlockError;
use parking_lot::Mutex;
use pool_format::Change;

use crate::core::Core;
use crate::row::Place;

/// The lost blocks of a row.
#[derive(Default)]
pub(crate) struct LostBlocks {
    any: AtomicBool,
    /// Column and block of its slab.
    blocks: Mutex<BTreeSet<(u8, u32)>>,
}

impl LostBlocks {
    pub(crate) fn new(blocks: BTreeSet<(u8, u32)>) -> Self {
        Self { any: AtomicBool::new(!blocks.is_empty()), blocks: Mutex::new(blocks) }
    }

    /// Whether there are none, as is usual: one load.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.lock().len()
    }

    pub(crate) fn contains(&self, column: u8, block: u64) -> bool {
        !self.is_empty()
            && u32::try_from(block).is_ok_and(|block| self.blocks.lock().contains(&(column, block)))
    }

    /// Remembers, durably, that a block is lost.
    pub(crate) async fn lose(&self, core: &Core, place: Place, block: u32) -> Result<(), BlockError> {
        self.any.store(true, Ordering::Release);
        self.blocks.lock().insert((place.column, block));
        Ok(core.meta.commit(vec![change(place, block, true)]).await?)
    }

    /// Forgets those of `blocks` that were lost: they have been written. Called under their lock.
    pub(crate) async fn found(
        &self,
        core: &Core,
        place: Place,
        blocks: Range<u64>,
    ) -> Result<(), BlockError> {
        let inside =
            |(column, block): &(u8, u32)| *column == place.column && blocks.contains(&u64::from(*block));
        let found: Vec<_> = self.blocks.lock().iter().copied().filter(inside).collect();
        if found.is_empty() {
            return Ok(());
        }
        core.meta.commit(found.iter().map(|(_, block)| change(place, *block, false)).collect()).await?;
        let mut lost = self.blocks.lock();
        found.iter().for_each(|block| {
            lost.remove(block);
        });
        self.any.store(!lost.is_empty(), Ordering::Release);
        Ok(())
    }
}

fn change(place: Place, block: u32, lost: bool) -> Change {
    let Place { space, row, column } = place;
    if lost {
        Change::LoseBlock { space, row, column, block }
    } else {
        Change::FindBlock { space, row, column, block }
    }
}
