//! Another parent for a differencing disk, or another place where its parent is.

use shard_runtime::finish_anyway;
use vhdx_format::ParentLocator;

use crate::error::{ImageError, Result};
use crate::image::Inner;
use crate::open::Opening;

/// Where the metadata table has its first entry, how long one is, and where in it the place of its item is (MS-VHDX 2.6.1).
const FIRST_ENTRY: u64 = 32;
const ENTRY: u64 = 32;
const PLACE_IN_ENTRY: u64 = 16;

impl Opening {
    /// Says durably where the parent is, and which it is, in one step. The image must have been opened to be written. With
    /// `other_data` the parent is one with other content than the former: then children of this image do not take it for their parent
    /// any more.
    ///
    /// # Errors
    /// When it has no parent, the locator does not fit, or the file fails; then the image has the former parent or this one.
    pub async fn reparent(self, locator: ParentLocator, other_data: bool) -> Result<()> {
        let inner = self.build(None);
        finish_anyway(async move {
            inner.begin_changes(other_data).await?;
            inner.put_locator(&locator).await?;
            inner.end_log().await
        })
        .await
    }
}

impl Inner {
    /// Replaces the parent locator, by one entry of the log: in its place, or behind all other items if that is too small for it.
    pub(crate) async fn put_locator(&self, locator: &ParentLocator) -> Result<()> {
        self.check_writable()?;
        let known = self.items.parent_locator_place().filter(|_| self.metadata.parameters.has_parent);
        let place =
            known.ok_or_else(|| ImageError::argument("it is no differencing disk: it has no parent"))?;
        let too_long =
            || ImageError::argument("the paths of the parent are too long for the image's metadata");
        let bytes = locator.encode().ok_or_else(too_long)?;
        let length = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        let region = self.regions.lock().table.metadata;
        let offset = if length <= place.length {
            place.offset
        } else {
            let last = self.items.items.iter().map(|item| item.offset.saturating_add(item.length)).max();
            last.unwrap_or(place.offset).checked_next_multiple_of(8).ok_or_else(too_long)?
        };
        if offset.checked_add(length).is_none_or(|end| end > region.length) {
            return Err(too_long());
        }
        let index = self.items.items.iter().position(|item| *item == place).unwrap_or_default() as u64;
        let mut batch = Vec::new();
        let entry = region.offset + FIRST_ENTRY + index * ENTRY + PLACE_IN_ENTRY;
        let words = [offset.to_le_bytes(), length.to_le_bytes()].concat();
        // The table and the items are sectors of their own: no sector is changed twice.
        self.patch(&mut batch, entry, &words).await?;
        self.patch(&mut batch, region.offset + u64::from(offset), &bytes).await?;
        let mut journal = self.journal.lock().await;
        self.check_stopped()?;
        self.or_stop(self.commit_batch(&mut journal, batch).await)
    }
}
