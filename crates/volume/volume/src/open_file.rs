//! Opens: handles on streams, and which of them may exist side by side.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{Access, FileId, OpenFile, Range, Share, StoreError, StoreErrorKind, StoreFuture};
use shard_runtime::finish_anyway;

use crate::clusters::StreamKey;
use crate::core::Core;
use crate::stream::Stream;

/// The opens of a volume.
#[derive(Default)]
pub(crate) struct Opens {
    next: u64,
    by_file: BTreeMap<u64, FileOpens>,
}

#[derive(Default)]
struct FileOpens {
    opens: BTreeMap<u64, (u32, Access, Share)>,
    /// The name is gone; the content goes with the last open.
    orphan: bool,
}

impl Opens {
    /// Whether an open with this access and sharing can join those of the stream.
    pub(crate) fn check(
        &self,
        (file, stream): StreamKey,
        access: Access,
        share: Share,
    ) -> Result<(), StoreError> {
        let Some(opens) = self.by_file.get(&file) else { return Ok(()) };
        let allows = |share: &Share, access: &Access| {
            (share.read || !access.read) && (share.write || !access.write) && (share.delete || !access.delete)
        };
        let refused = opens
            .opens
            .values()
            .filter(|(other, ..)| *other == stream)
            .any(|(_, theirs, shared)| !allows(shared, &access) || !allows(&share, theirs));
        if refused || opens.orphan {
            let detail = format!("file {file} is open in a way that does not share this access");
            return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, (file, stream): StreamKey, access: Access, share: Share) -> u64 {
        self.next += 1;
        self.by_file.entry(file).or_default().opens.insert(self.next, (stream, access, share));
        self.next
    }

    /// Whether anybody has the file open; an error if one of them does not share deletion.
    pub(crate) fn check_delete(&self, file: u64) -> Result<bool, StoreError> {
        let Some(opens) = self.by_file.get(&file) else { return Ok(false) };
        if opens.opens.values().any(|(_, _, share)| !share.delete) {
            let detail = format!("file {file} is open by someone who does not share deletion");
            return Err(StoreError::new(StoreErrorKind::SharingViolation, detail));
        }
        Ok(true)
    }

    pub(crate) fn is_open(&self, file: u64) -> bool {
        self.by_file.contains_key(&file)
    }

    pub(crate) fn mark_orphan(&mut self, file: u64) {
        if let Some(opens) = self.by_file.get_mut(&file) {
            opens.orphan = true;
        }
    }

    /// Takes an open away; whether the stream has no open any more, and whether the file is to be deleted.
    fn remove(&mut self, (file, stream): StreamKey, id: u64) -> (bool, bool) {
        let Some(opens) = self.by_file.get_mut(&file) else { return (false, false) };
        opens.opens.remove(&id);
        let stream_free = !opens.opens.values().any(|(other, ..)| *other == stream);
        let delete = opens.opens.is_empty() && opens.orphan;
        if opens.opens.is_empty() {
            self.by_file.remove(&file);
        }
        (stream_free, delete)
    }
}

/// One open.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) access: Access,
    pub(crate) id: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let key = self.stream.key;
        let (stream_free, delete) = {
            let mut opens = self.core.opens.lock();
            let (stream_free, delete) = opens.remove(key, self.id);
            if stream_free {
                // The next open reads the extents anew. An unsaved size of volatile writes is saved first.
                let unsaved =
                    self.stream.durable_size.load(std::sync::atomic::Ordering::Acquire) != self.stream.size();
                if !unsaved || delete {
                    self.core.streams.lock().remove(&key);
                }
            }
            (stream_free, delete)
        };
        if delete {
            self.core.to_delete.lock().push(FileId(key.0));
        }
        if delete || stream_free {
            self.core.attention.notify_one();
        }
    }
}

impl Handle {
    fn may_write(&self) -> Result<(Arc<Stream>, Arc<Core>), StoreError> {
        if !self.access.write {
            return Err(StoreError::new(StoreErrorKind::AccessDenied, "the file was not opened for writing"));
        }
        if self.core.metadata.is_stopped() {
            return Err(crate::database::stopped());
        }
        Ok((Arc::clone(&self.stream), Arc::clone(&self.core)))
    }
}

impl OpenFile for Handle {
    fn file(&self) -> FileId {
        self.stream.file()
    }

    fn size(&self) -> u64 {
        self.stream.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            if !self.access.read {
                return Err(StoreError::new(
                    StoreErrorKind::AccessDenied,
                    "the file was not opened for reading",
                ));
            }
            self.stream.read(&self.core, offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.write(core, offset, data, durability)).await
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { finish_anyway(Arc::clone(&self.stream).flush(Arc::clone(&self.core))).await })
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.compare_and_write(core, offset, expected, data)).await
        })
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.allocate(core, offset, len, grow)).await
        })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.punch_hole(core, offset, len)).await
        })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.zero_range(core, offset, len, durability)).await
        })
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (stream, core) = self.may_write()?;
            finish_anyway(stream.set_size(core, size)).await
        })
    }

    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        Box::pin(async move { self.stream.allocated_ranges(offset, len, limit) })
    }

    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            loop {
                let resized = self.stream.resized.notified();
                let size = self.stream.size();
                if size != known {
                    return Ok(size);
                }
                resized.await;
            }
        })
    }
}
