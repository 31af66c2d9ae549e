//! Making the file smaller: blocks of zeros go, but not those of a fixed disk, and blocks at the file's end move into what is free
//! before them.
//!
//! A block is copied, then its entry changes through the log, then its old place is free: a crash leaves it in one place or the
//! other. The file is cut only when nothing leads behind the cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::{IoBuf, is_zeros};
use block_device::Durability;
use shard_runtime::finish_anyway;
use vhdx_format::{BatEntry, MIB, PayloadState};

use crate::error::Result;
use crate::image::{Image, Inner};
use crate::space::Extent;
use crate::write::{is_anchored, is_present};

/// Bytes that are read or copied at once.
const PIECE: u64 = 4 << 20;
/// Blocks that are looked at for moving in one round.
const BLOCKS_AT_ONCE: usize = 1 << 16;
/// Bytes that are moved before what they leave behind is freed.
const COMMIT_EVERY: u64 = 256 << 20;

/// What compacting has done, in bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// How far work has come: bytes done, and all of them.
pub type Progress = Box<dyn Fn(u64, u64)>;

impl Image {
    /// Makes the file as small as what is in it; that of a fixed disk, which keeps its blocks, as small as these. Nothing else
    /// goes on meanwhile.
    ///
    /// # Errors
    /// When the file fails.
    pub async fn compact(&self, progress: Progress) -> Result<Compacted> {
        let inner = Arc::clone(&self.inner);
        finish_anyway(async move { inner.compact(&progress).await }).await
    }
}

impl Inner {
    async fn compact(&self, progress: &Progress) -> Result<Compacted> {
        let _alone = self.shape.write().await;
        self.check_writable()?;
        let before = self.source.size();
        // What users see stays, so children stay valid.
        self.begin_changes(false).await?;
        if !self.metadata.parameters.leave_allocated {
            self.drop_zeros(progress).await?;
            self.settle().await?;
        }
        while self.move_some().await? {}
        self.cut_file().await?;
        Ok(Compacted { before, after: self.source.size() })
    }

    /// Everything is in its place, and what was freed can be taken.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.commit().await?;
        self.pages.forget()
    }

    /// Blocks that are there and hold zeros, and those that keep a place without content, become zeros without a place.
    async fn drop_zeros(&self, progress: &Progress) -> Result<()> {
        let (layout, size) = (self.layout(), self.block_size());
        for block in 0..layout.payload_blocks() {
            let (state, place) = self.payload(block).await?;
            let full = state == PayloadState::FullyPresent;
            if is_anchored(state, place) || full && self.holds_zeros(place).await? {
                self.set_zero(block).await?;
                self.space.free(Extent::of(place, size));
            }
            if self.pages.is_full() {
                self.commit().await?;
            }
            progress((block + 1) * size, layout.payload_blocks() * size);
        }
        Ok(())
    }

    async fn holds_zeros(&self, place: u64) -> Result<bool> {
        let mut done = 0;
        while done < self.block_size() {
            let step = PIECE.min(self.block_size() - done);
            let bytes = self.source.bytes(place + done, step as usize).await?;
            if !is_zeros(&bytes) {
                return Ok(false);
            }
            done += step;
        }
        Ok(true)
    }

    /// Moves blocks from the file's end to what is free before them; whether there may be more to move.
    async fn move_some(&self) -> Result<bool> {
        if self.space.free_count() == 0 {
            return Ok(false);
        }
        let mut moved = false;
        let mut since = 0;
        for (place, (number, len)) in self.last_blocks().await?.into_iter().rev() {
            let Some((to, _)) = self.space.take(len / MIB, Some(place / MIB)) else { continue };
            if let Err(error) = self.copy_block(place, to.at * MIB, len).await {
                self.space.give_back(to);
                return Err(error);
            }
            let state = BatEntry(self.entry(number).await?.0 & (MIB - 1));
            self.set_entry(number, BatEntry((to.at * MIB) | state.0)).await?;
            self.space.free(Extent::of(place, len));
            (moved, since) = (true, since + len);
            if since >= COMMIT_EVERY || self.pages.is_full() {
                self.settle().await?;
                since = 0;
            }
        }
        self.settle().await?;
        Ok(moved)
    }

    /// The blocks that lie last in the file, by place: their entries and lengths.
    async fn last_blocks(&self) -> Result<BTreeMap<u64, (u64, u64)>> {
        let layout = self.layout();
        let mut last = BTreeMap::new();
        for number in 0..layout.entries() {
            let found = match layout.block_of(number) {
                Some(block) if block >= layout.payload_blocks() => None,
                Some(block) => {
                    let (state, place) = self.payload(block).await?;
                    is_present(state).then_some((place, self.block_size()))
                }
                None if !layout.has_parent => None,
                None => self.entry(number).await?.bitmap_offset(number)?.map(|place| (place, MIB)),
            };
            if let Some((place, len)) = found {
                last.insert(place, (number, len));
                if last.len() > BLOCKS_AT_ONCE {
                    last.pop_first();
                }
            }
        }
        Ok(last)
    }

    async fn copy_block(&self, from: u64, to: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let step = PIECE.min(len - done);
            let bytes = self.source.read(from + done, IoBuf::new(step as usize)).await?;
            self.source.file.write(to + done, bytes.freeze(), Durability::Volatile).await?;
            done += step;
        }
        Ok(())
    }
}
