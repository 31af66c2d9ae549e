//! Sizes of a stream, and when they are durable.
//!
//! Three orders keep stale bytes away, whatever a crash leaves:
//! * Growing: mapped bytes beyond the old size are zeroed, durably, before the new size is committed.
//! * A size that volatile writes have grown is committed only after a flush of the device: else a crash could show,
//!   in what such a write covered, bytes that were cut off before.
//! * Cutting: the smaller size is committed before clusters go, so that a crash leaves clusters, not a hole in the
//!   file.

use std::sync::atomic::Ordering;

use file_store::StoreError;
use volume_format::CLUSTER;

use crate::core::Core;
use crate::stream::{Stream, check_range};

impl Stream {
    /// Lets everybody see a size; the database learns of it later.
    pub(crate) fn show_size(&self, size: u64) {
        if self.size.swap(size, Ordering::AcqRel) != size {
            self.resized.notify_waiters();
        }
    }

    /// Commits `size` and shows it. Under `sizing`.
    pub(crate) async fn commit_size(&self, core: &Core, size: u64) -> Result<(), StoreError> {
        if size == self.durable_size() && size == self.size() {
            return Ok(());
        }
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
            return Ok(());
        }
        let _sizing = self.sizing.lock().await;
        self.commit_size(core, self.size()).await
    }

    /// Makes completed writes and the size durable.
    pub(crate) async fn flush(&self, core: &Core) -> Result<(), StoreError> {
        if self.durable_size() == self.size() {
            return Ok(core.device.flush().await?);
        }
        let _sizing = self.sizing.lock().await;
        core.device.flush().await?;
        self.commit_size(core, self.size()).await
    }

    /// Whether the size may become another one, though others have the stream open: `by` is the open that changes it, if it is one.
    pub(crate) fn may_resize(&self, core: &Core, by: Option<u64>) -> Result<(), StoreError> {
        core.registry.lock().check_resize(self.key, by)
    }

    /// Cuts or grows the stream, for an open.
    pub(crate) async fn set_size(&self, core: &Core, size: u64, by: u64) -> Result<(), StoreError> {
        check_range(0, size)?;
        let _sizing = self.sizing.lock().await;
        let old = self.size();
        if size == old {
            return self.commit_size(core, size).await;
        }
        self.may_resize(core, Some(by))?;
        let from = size.min(old) / CLUSTER * CLUSTER;
        let _blocks = self.blocks.lock(from, u64::MAX - from).await;
        if size > old {
            self.zero_beyond(core, old, size).await?;
        }
        self.touch(core);
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
