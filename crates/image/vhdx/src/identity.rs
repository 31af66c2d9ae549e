//! A copy of an image becomes a disk of its own.

use shard_runtime::finish_anyway;

use crate::error::{ImageError, Result};
use crate::image::Inner;
use crate::journal::new_id;
use crate::open::Opening;

impl Opening {
    /// Gives the disk another id than the one that it was copied with, and the file and its data other ids, durably: what knows
    /// disks by their ids takes it for no other, and no child of the original takes it for its parent. Parents are not looked at.
    /// It must have been opened to be written.
    ///
    /// # Errors
    /// When the file fails; then the disk has the one id or the other.
    pub async fn become_another(self) -> Result<()> {
        let inner = self.build(None);
        finish_anyway(async move { inner.become_another().await }).await
    }
}

impl Inner {
    async fn become_another(&self) -> Result<()> {
        self.check_writable()?;
        self.begin_changes(true).await?;
        let place = self.items.disk_id_place().ok_or_else(|| ImageError::damaged("the disk has no id"))?;
        let metadata = self.regions.lock().table.metadata;
        let mut batch = Vec::new();
        let id = new_id(&*self.entropy).to_bytes_le();
        self.patch(&mut batch, metadata.offset + u64::from(place.offset), &id).await?;
        {
            let mut journal = self.journal.lock().await;
            self.check_stopped()?;
            self.or_stop(self.commit_batch(&mut journal, batch).await)?;
        }
        self.end_log().await
    }
}
