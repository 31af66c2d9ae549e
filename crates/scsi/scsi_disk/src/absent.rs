//! Stand-ins for storage that is away: everything that needs it fails as stopped.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{Range, StoreError, StoreErrorKind, StoreFuture};

use crate::backing::{Backing, ReservationStore};

/// Storage that is not there. What is said of it stays what it was.
#[derive(Default)]
pub struct AbsentBacking {
    size: u64,
    physical_block_size: u32,
    unmap_zeroes: bool,
    rotational: bool,
    read_only: bool,
}

impl AbsentBacking {
    /// Absent, and as large as `other`.
    pub(crate) fn like(other: &dyn Backing) -> Self {
        Self {
            size: other.size(),
            physical_block_size: other.physical_block_size(),
            unmap_zeroes: other.unmap_zeroes(),
            rotational: other.rotational(),
            read_only: other.read_only(),
        }
    }
}

fn absent<'a, T: 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Stopped, "what the LUN lies in is not open")) })
}

impl Backing for AbsentBacking {
    fn size(&self) -> u64 {
        self.size
    }
    fn physical_block_size(&self) -> u32 {
        self.physical_block_size.max(512)
    }
    fn unmap_zeroes(&self) -> bool {
        self.unmap_zeroes
    }
    fn rotational(&self) -> bool {
        self.rotational
    }
    fn read_only(&self) -> bool {
        self.read_only
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

/// State that cannot be changed now.
pub(crate) struct AbsentStore;

impl ReservationStore for AbsentStore {
    fn load<'a>(&'a self, _key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        absent()
    }
    fn save<'a>(&'a self, _key: &'a [u8], _value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        absent()
    }
}
