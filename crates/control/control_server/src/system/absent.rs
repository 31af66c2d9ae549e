//! The storage of a unit whose file is not there: nothing.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{Range, StoreError, StoreErrorKind, StoreFuture};
use scsi_disk::Backing;

/// No bytes. The unit over it is offline and says why; whatever gets here all the same fails.
pub(super) struct AbsentBacking;

fn absent<'a, T>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Io, "the LUN's file is not there")) })
}

impl Backing for AbsentBacking {
    fn size(&self) -> u64 {
        0
    }
    fn physical_block_size(&self) -> u32 {
        4096
    }
    fn unmap_zeroes(&self) -> bool {
        false
    }
    fn rotational(&self) -> bool {
        false
    }
    fn read_only(&self) -> bool {
        true
    }
    fn read(&self, _offset: u64, _buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        absent()
    }
    fn write(&self, _offset: u64, _data: SharedBuf, _durability: Durability) -> StoreFuture<'_, ()> {
        absent()
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        absent()
    }
    fn unmap(&self, _offset: u64, _len: u64) -> StoreFuture<'_, ()> {
        absent()
    }
    fn write_zeroes(&self, _offset: u64, _len: u64, _durability: Durability) -> StoreFuture<'_, ()> {
        absent()
    }
    fn compare_and_write(
        &self,
        _offset: u64,
        _expected: SharedBuf,
        _data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        absent()
    }
    fn allocated(&self, _offset: u64, _len: u64, _limit: usize) -> StoreFuture<'_, Vec<Range>> {
        absent()
    }
    fn wait_resize(&self, _known: u64) -> StoreFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
}
