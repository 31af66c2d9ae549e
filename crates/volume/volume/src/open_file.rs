//! Opens: handles on streams.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{Access, FileId, OpenFile, Range, Share, StoreError, StoreErrorKind, StoreFuture};
use observe::IoKind;
use shard_runtime::finish_anyway;

use crate::mapping::map_what_is_due;
use crate::pin::Pin;
use crate::stream::check_range;

/// One open.
pub(crate) struct Handle {
    pin: Arc<Pin>,
    access: Access,
    id: u64,
    /// It does not share deletion, and so keeps the size.
    keeps: bool,
    /// Whether what it changes besides data is durable when that completes.
    durability: Durability,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The stream stays as long as operations in flight have it; for others this open is gone now.
        let file = self.pin.stream().key.0;
        self.pin.core().registry.lock().remove_open(file, self.id);
    }
}

impl Handle {
    /// Takes over an open that the registry has counted under `id`.
    pub(crate) fn new(pin: Pin, (access, share): (Access, Share), id: u64, durability: Durability) -> Self {
        Self { pin: Arc::new(pin), access, id, keeps: !share.delete, durability }
    }

    /// Who keeps the size waits for changes of it that were allowed before this open was counted. Later ones are refused: each looks
    /// at the opens under `sizing`, or right before it waits for that.
    pub(crate) async fn settled(self) -> Self {
        if self.keeps {
            drop(self.pin.stream().sizing.lock().await);
        }
        self
    }

    fn may_read(&self) -> Result<(), StoreError> {
        if self.access.read {
            return self.pin.core().check_open();
        }
        Err(StoreError::new(StoreErrorKind::AccessDenied, "the file was not opened for reading"))
    }

    /// Runs a change to its end, whether or not anybody waits for it.
    fn change<'a, T, F, Work>(&'a self, work: Work) -> StoreFuture<'a, T>
    where
        T: 'static,
        Work: FnOnce(Arc<Pin>) -> F + 'static,
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        match self.refuse_change() {
            Some(refused) => refused,
            None => self.to_the_end(work),
        }
    }

    /// What a change ends with that this open was not opened for.
    fn refuse_change<'a, T: 'static>(&self) -> Option<StoreFuture<'a, T>> {
        if self.access.write {
            return None;
        }
        let refused = StoreError::new(StoreErrorKind::AccessDenied, "the file was not opened for writing");
        Some(Box::pin(std::future::ready(Err(refused))))
    }

    fn to_the_end<'a, T, F, Work>(&'a self, work: Work) -> StoreFuture<'a, T>
    where
        T: 'static,
        Work: FnOnce(Arc<Pin>) -> F + 'static,
        F: Future<Output = Result<T, StoreError>> + 'static,
    {
        let pin = Arc::clone(&self.pin);
        Box::pin(finish_anyway(async move {
            let core = Arc::clone(pin.core());
            let _operation = core.begin()?;
            // A snapshot waits for what has begun, and holds up what begins.
            let _changing = core.pause.read().await;
            work(pin).await
        }))
    }
}

impl OpenFile for Handle {
    fn file(&self) -> FileId {
        self.pin.stream().file()
    }

    fn size(&self) -> u64 {
        self.pin.stream().size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            self.may_read()?;
            let core = self.pin.core();
            let (since, len) = (core.clock.now(), buf.len() as u64);
            core.counted(IoKind::Read, len, since, self.pin.stream().read(core, offset, buf)).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        let (since, len) = (self.pin.core().clock.now(), data.len() as u64);
        let (by, lends) = (self.id, self.durability == Durability::Volatile);
        self.change(move |pin| async move {
            let end = check_range(offset, len)?;
            if len > 0 && end > pin.stream().size() {
                // The write asks for `sizing` before anything else can run.
                pin.stream().may_resize(pin.core(), Some(by))?;
            }
            let write = pin.stream().write(pin.core(), offset, data, durability, lends);
            let written = pin.core().counted(IoKind::Write, len, since, write).await;
            map_what_is_due(&pin);
            written
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        let since = self.pin.core().clock.now();
        self.to_the_end(move |pin| async move {
            pin.core().counted(IoKind::Flush, 0, since, pin.stream().flush(pin.core())).await
        })
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        if let Err(error) = self.may_read() {
            return Box::pin(std::future::ready(Err(error)));
        }
        self.change(move |pin| async move {
            pin.stream().compare_and_write(pin.core(), offset, expected, data).await
        })
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        let by = self.id;
        self.change(move |pin| async move { pin.stream().allocate(pin.core(), offset, len, grow, by).await })
    }

    fn reserve(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        if let Some(refused) = self.refuse_change() {
            return refused;
        }
        Box::pin(finish_anyway(crate::reserve::reserve(Arc::clone(&self.pin), offset, len, self.id)))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.change(move |pin| async move { pin.stream().punch_hole(pin.core(), offset, len).await })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        let by = self.id;
        self.change(move |pin| async move {
            pin.stream().zero_range(pin.core(), offset, len, durability, by).await
        })
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        let (by, durability) = (self.id, self.durability);
        self.change(move |pin| async move { pin.stream().set_size(pin.core(), size, by, durability).await })
    }

    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        Box::pin(async move { self.pin.stream().allocated_ranges(offset, len, limit) })
    }

    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(self.pin.stream().wait_resize(known).await) })
    }
}
