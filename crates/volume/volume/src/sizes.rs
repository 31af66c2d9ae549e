//! Sizes of a stream, and when they are durable.
//!
//! Three orders keep stale bytes away, whatever a crash leaves:
//! * Growing: mapped bytes beyond the old size are zeroed, durably, before the new size is committed.
//! * A size that volatile writes have grown is committed only after a flush of the device: else a crash could show,
//!   in what such a write covered, bytes that were cut off before.
//! * Cutting: the smaller size is committed before clusters go, so that a crash leaves clusters, not a hole in the
//!   file. A cut is durable when it completes, whoever makes it.
//!
//! Whoever has grown a stream by volatile writes lets it be: what grew is saved with others' after one flush for all (`saving.rs`).
//!
//! A size that has been saved by a volatile change is the database's, and not durable yet: [`Stream::settle`] makes it so.

use std::sync::atomic::Ordering;

use block_device::Durability;
use file_store::StoreError;
use volume_format::CLUSTER;

use crate::core::Core;
use crate::database_error::no_room_to_grow;
use crate::stream::{Stream, check_range};

/// A cut under way, from before the database is asked to know the smaller size until everybody sees it. Under `sizing`.
struct Cutting<'a>(&'a Stream);

impl<'a> Cutting<'a> {
    fn begin(stream: &'a Stream) -> Self {
        stream.cuts.fetch_add(1, Ordering::AcqRel);
        Self(stream)
    }
}

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        self.0.cuts.fetch_add(1, Ordering::AcqRel);
    }
}

impl Stream {
    /// How often the stream was cut; `None` while it is being cut.
    pub(crate) fn cuts(&self) -> Option<u64> {
        let cuts = self.cuts.load(Ordering::Acquire);
        cuts.is_multiple_of(2).then_some(cuts)
    }

    /// Lets everybody see a size; the database learns of it later.
    pub(crate) fn show_size(&self, size: u64) {
        if self.size.swap(size, Ordering::AcqRel) != size {
            self.resized.notify_waiters();
        }
    }

    /// As [`Stream::show_size`], of one that the database is to know soon.
    pub(crate) fn show_grown(&self, core: &Core, size: u64) {
        self.show_size(size);
        core.grown.notify_one();
    }

    /// Commits `size` and shows it. Under `sizing`.
    pub(crate) async fn commit_size(&self, core: &Core, size: u64) -> Result<(), StoreError> {
        if size == self.durable_size() && size == self.size() {
            return self.settle(core).await;
        }
        let _cutting = (size < self.size()).then(|| Cutting::begin(self));
        self.flush_growth(core).await?;
        let (key, written) = (self.key, self.written.load(Ordering::Acquire));
        core.metadata
            .change(move |session| {
                let stored = session.save_stream(key, size, written);
                session.fatal(stored)
            })
            .await?;
        // A later write keeps its later time.
        let _ = self.written.compare_exchange(written, 0, Ordering::AcqRel, Ordering::Acquire);
        self.size_is_durable(size);
        Ok(())
    }

    /// Before a size is committed: what volatile writes have put beyond the committed one becomes durable.
    pub(crate) async fn flush_growth(&self, core: &Core) -> Result<(), StoreError> {
        if self.size() > self.durable_size() {
            core.device.flush().await?;
        }
        Ok(())
    }

    /// The database has this size.
    pub(crate) fn size_is_durable(&self, size: u64) {
        self.durable_size.store(size, Ordering::Release);
        self.show_size(size);
    }

    /// Makes the size durable if a durable write that ended at `end` needs it.
    pub(crate) async fn cover(&self, core: &Core, end: u64) -> Result<(), StoreError> {
        if end <= self.durable_size() {
            return self.settle(core).await;
        }
        let _sizing = self.sizing.lock().await;
        self.commit_size(core, self.size()).await
    }

    /// What is in the file stands on the changes that were made so far.
    pub(crate) fn stands_on_changes(&self, core: &Core) {
        self.stands_on.fetch_max(core.metadata.last_change(), Ordering::AcqRel);
    }

    /// Makes durable what the file stands on.
    ///
    /// # Errors
    /// When the volume has stopped.
    pub(crate) async fn settle(&self, core: &Core) -> Result<(), StoreError> {
        let number = self.stands_on.load(Ordering::Acquire);
        if number == 0 {
            return Ok(());
        }
        core.metadata.settle(number).await?;
        // Something later stays.
        let _ = self.stands_on.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    /// Makes completed writes and the size durable, and all changes of the volume that have completed.
    pub(crate) async fn flush(&self, core: &Core) -> Result<(), StoreError> {
        let changed = core.metadata.last_change();
        // A size that is saved from now on is among what the file stands on.
        if self.durable_size() == self.size() {
            core.device.flush().await?;
        } else {
            let _sizing = self.sizing.lock().await;
            core.device.flush().await?;
            self.commit_size(core, self.size()).await?;
        }
        core.metadata.settle(changed).await?;
        self.settle(core).await
    }

    /// Whether the size may become another one, though others have the stream open: `by` is the open that changes it, if it is one.
    pub(crate) fn may_resize(&self, core: &Core, by: Option<u64>) -> Result<(), StoreError> {
        core.registry.lock().check_resize(self.key, by)
    }

    /// Cuts or grows the stream, for an open. If volatile, the database learns later how far it has grown.
    pub(crate) async fn set_size(
        &self,
        core: &Core,
        size: u64,
        by: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        check_range(0, size)?;
        let _sizing = self.sizing.lock().await;
        let old = self.size();
        let is_volatile = durability == Durability::Volatile && size >= old;
        if size == old {
            return if is_volatile { Ok(()) } else { self.commit_size(core, size).await };
        }
        self.may_resize(core, Some(by))?;
        if is_volatile && core.full {
            return Err(no_room_to_grow());
        }
        let from = size.min(old) / CLUSTER * CLUSTER;
        let _blocks = self.blocks.lock(from, u64::MAX - from).await;
        if size > old {
            self.zero_beyond(core, old, size).await?;
        }
        self.touch(core);
        if is_volatile {
            self.show_grown(core, size);
            return Ok(());
        }
        self.commit_size(core, size).await?;
        if size < old {
            self.drop_clusters(core, size.div_ceil(CLUSTER), u64::MAX / CLUSTER, false).await?;
        }
        Ok(())
    }

    /// Waits until the size differs from `known`.
    pub(crate) async fn wait_resize(&self, known: u64) -> u64 {
        loop {
            // Made before the look at the size, so that no change falls between the two.
            let resized = self.resized.notified();
            let size = self.size();
            if size != known {
                return size;
            }
            resized.await;
        }
    }
}
