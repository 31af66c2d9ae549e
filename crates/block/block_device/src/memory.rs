//! A disk in memory, for tests of what lies above and as the smallest example of an implementation.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use aligned_buffer::{IoBuf, SharedBuf};

use crate::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, Reservation,
    ReservationTable, Reservations, UnmapBehavior, check_range,
};

/// A disk whose blocks live in memory. Everything is durable at once. Several initiators can share it.
pub struct MemoryDisk {
    geometry: Geometry,
    medium: Arc<RwLock<Medium>>,
    /// The number of this initiator.
    initiator: u64,
}

/// What all initiators of a disk see.
struct Medium {
    bytes: Vec<u8>,
    reservations: ReservationTable,
    /// Initiators that there have been.
    initiators: u64,
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
        let medium =
            Medium { bytes: vec![0; size], reservations: ReservationTable::default(), initiators: 1 };
        Self { geometry, medium: Arc::new(RwLock::new(medium)), initiator: 0 }
    }

    /// The same disk, as another node opens it.
    #[must_use]
    pub fn another_initiator(&self) -> Self {
        let mut medium = self.change();
        let initiator = medium.initiators;
        medium.initiators += 1;
        Self { geometry: self.geometry.clone(), medium: Arc::clone(&self.medium), initiator }
    }

    fn look(&self) -> RwLockReadGuard<'_, Medium> {
        self.medium.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Medium> {
        self.medium.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a range, if this initiator may.
    fn put(
        &self,
        doing: &'static str,
        (offset, len): (u64, u64),
        put: impl FnOnce(&mut [u8]),
    ) -> Result<(), BlockError> {
        self.check(offset, len)?;
        let mut medium = self.change();
        if !medium.reservations.permits(self.initiator) {
            return Err(BlockError::new(BlockErrorKind::Fenced, doing).at(offset, len));
        }
        put(&mut medium.bytes[offset as usize..][..len as usize]);
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
        self.look().bytes.len() as u64
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(offset, buf.len() as u64)?;
            let len = buf.len();
            buf.copy_from_slice(&self.look().bytes[offset as usize..][..len]);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.put("write", (offset, data.len() as u64), |range| range.copy_from_slice(&data))
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.put("unmap", (offset, len), |range| range.fill(0)) })
    }

    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.put("write zeroes", (offset, len), |range| range.fill(0)) })
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
}

impl Reservations for MemoryDisk {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.change().reservations.register(self.initiator, key);
            Ok(())
        })
    }

    fn unregister(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.change().reservations.unregister(self.initiator);
            Ok(())
        })
    }

    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        Box::pin(async move { Ok(self.look().reservations.keys()) })
    }

    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        Box::pin(async move { Ok(self.look().reservations.reservation()) })
    }

    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.change().reservations.reserve(self.initiator, key) })
    }

    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.change().reservations.preempt(self.initiator, key, victim) })
    }
}
