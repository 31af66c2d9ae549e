//! A differencing disk becomes part of its parent.
//!
//! ```text
//!   child says: its parent's data is what it is now, or what has this new id ──► parent gets the new id ──► what the child has goes there
//! ```
//! Only what the child has itself is written to the parent, so the child shows the same over it at every moment, and takes it for its
//! parent at every moment: a merge that was interrupted has changed no disk that somebody sees but the parent's, and can be done again.
//! Then the parent is the disk that the child was, and the child can go.

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use shard_runtime::finish_anyway;
use vhdx_format::{PayloadState, Uuid};

use crate::compact::Progress;
use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::{Image, Inner};
use crate::journal::new_id;
use crate::open::{Opening, check_linkage};

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// The key of the id that a parent will have, while it is changed (MS-VHDX 2.6.2.6.3).
const NEXT_LINKAGE: &str = "parent_linkage2";

impl Opening {
    /// Brings all that this image has into its parent, durably; both must have been opened to be written, and the parent is closed at
    /// the end. Other children of the parent cannot be read any more after that.
    ///
    /// # Errors
    /// When it is not the parent, or a file fails; the child is what it was, and so can be merged again.
    pub async fn merge_into(self, parent: Image, progress: Progress) -> Result<()> {
        let inner = self.build(None);
        finish_anyway(async move {
            inner.merge_into(&parent, &progress).await?;
            inner.end_log().await
        })
        .await
    }
}

impl Inner {
    async fn merge_into(&self, parent: &Image, progress: &Progress) -> Result<()> {
        self.check_writable()?;
        parent.inner.check_writable()?;
        let locator = self.metadata.parent.as_ref();
        let locator =
            locator.ok_or_else(|| ImageError::argument("it is no differencing disk: it has no parent"))?;
        let now = parent.data_write_guid().await;
        check_linkage(locator, now)?;
        if parent.geometry().block_size != self.geometry.block_size {
            return Err(ImageError::new(ImageErrorKind::Parent, "the parent has sectors of another size"));
        }
        self.read_through().await?;
        let next = new_id(&*self.entropy);
        let mut both = locator.clone();
        both.pairs.retain(|(key, _)| key != "parent_linkage" && key != NEXT_LINKAGE);
        both.pairs.insert(0, ("parent_linkage".to_owned(), format!("{{{now}}}")));
        both.pairs.push((NEXT_LINKAGE.to_owned(), format!("{{{next}}}")));
        self.begin_changes(false).await?;
        self.put_locator(&both).await?;
        // Before the parent says that it is another one.
        self.sync().await?;
        parent.inner.become_next(next).await?;
        let size = self.layout().disk_size;
        if parent.size() < size {
            parent.resize(size).await?;
        }
        self.copy_into(parent, size, progress).await?;
        if parent.size() > size {
            parent.flush().await?;
            parent.resize(size).await?;
        }
        parent.close().await
    }

    /// Looks at each entry of the table, so that damage is found before the parent is changed.
    async fn read_through(&self) -> Result<()> {
        for block in 0..self.layout().payload_blocks() {
            if self.payload(block).await?.0 == PayloadState::PartiallyPresent {
                self.bitmap(block).await?;
            }
        }
        Ok(())
    }

    /// The id of the data is this one from the next change on, durably.
    async fn become_next(&self, id: Uuid) -> Result<()> {
        let _alone = self.shape.write().await;
        self.begin_changes_as(id).await?;
        self.begun.store(true, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Writes what this image has itself to its parent.
    async fn copy_into(&self, parent: &Image, size: u64, progress: &Progress) -> Result<()> {
        let layout = self.layout();
        for block in 0..layout.payload_blocks() {
            let start = block * self.block_size();
            let len = self.block_size().min(size - start);
            let (state, place) = self.payload(block).await?;
            match state {
                PayloadState::NotPresent => {}
                PayloadState::FullyPresent => self.copy_part(parent, place, start, len).await?,
                PayloadState::PartiallyPresent => {
                    let mut at = 0;
                    for (present, count) in self.bits(block, 0, len / self.sector()).await? {
                        let bytes = count * self.sector();
                        if present {
                            self.copy_part(parent, place + at, start + at, bytes).await?;
                        }
                        at += bytes;
                    }
                }
                PayloadState::Undefined | PayloadState::Zero | PayloadState::Unmapped => {
                    parent.unmap(start, len).await?;
                }
            }
            progress(start + len, size);
        }
        Ok(())
    }

    async fn copy_part(&self, parent: &Image, place: u64, start: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let step = PIECE.min(len - done);
            let bytes = self.source.read(place + done, IoBuf::new(step as usize)).await?;
            parent.write(start + done, bytes.freeze(), Durability::Volatile).await?;
            done += step;
        }
        Ok(())
    }
}
