//! A disk in memory, for tests of what lies above and as the smallest example of an implementation.

use std::sync::{PoisonError, RwLock};

use aligned_buffer::{IoBuf, SharedBuf};

use crate::{BlockDevice, BlockError, BlockFuture, Durability, Geometry, UnmapBehavior, check_range};

/// A disk whose blocks live in memory. Everything is durable at once.
pub struct MemoryDisk {
    geometry: Geometry,
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDisk {
    /// A disk of `size` zero bytes; `size` is rounded down to whole blocks of `block_size` bytes.
    #[must_use]
    pub fn new(size: usize, block_size: u32) -> Self {
        let geometry = Geometry {
            block_size,
            physical_block_size: block_size.max(4096),
            optimal_io_size: 0,
            unmap: UnmapBehavior::Zeroes,
            rotational: false,
            read_only: false,
        };
        let size = size - size % block_size as usize;
        Self { geometry, bytes: RwLock::new(vec![0; size]) }
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        bytes[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())
    }
}

impl BlockDevice for MemoryDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(offset, buf.len() as u64)?;
            let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
            let len = buf.len();
            buf.copy_from_slice(&bytes[offset as usize..][..len]);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, data.len() as u64)?;
            let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
            bytes[offset as usize..][..data.len()].copy_from_slice(&data);
            Ok(())
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }

    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }
}
