//! What a logical unit keeps its data in: [`Backing`], over a file of a volume or a block device.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{Device, Durability, UnmapBehavior};
use file_store::{FileId, FileStore, OpenFile, Range, StoreError, StoreErrorKind, StoreFuture};
use parking_lot::Mutex;

use crate::hole_map::HoleMap;
use crate::range_lock::RangeLock;

/// The store and file behind a unit, by which a copy between two units can become a clone.
#[derive(Clone)]
pub struct CloneHandle {
    /// The volume.
    pub store: Arc<dyn FileStore>,
    /// The file.
    pub file: FileId,
}

/// Storage of a unit. Offsets and lengths are multiples of 512 and inside `size()`; the unit has checked.
/// The contract of ordering, atomicity and durability is `BlockDevice`'s.
pub trait Backing: Send + Sync + 'static {
    /// Size in bytes now.
    fn size(&self) -> u64;
    /// Bytes below which a write is read-modify-write.
    fn physical_block_size(&self) -> u32;
    /// Whether `unmap` gives space back, after which zeros are read.
    fn unmap_zeroes(&self) -> bool;
    /// Whether the medium spins.
    fn rotational(&self) -> bool;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Reads; a result shorter than `buf` was means that the medium shrank.
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf>;
    /// Writes.
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()>;
    /// Makes completed writes durable.
    fn flush(&self) -> StoreFuture<'_, ()>;
    /// Gives space back; the range reads as zeros afterwards if `unmap_zeroes()`.
    fn unmap(&self, offset: u64, len: u64) -> StoreFuture<'_, ()>;
    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()>;
    /// As `OpenFile::compare_and_write`: durable, and nothing comes between the two.
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>>;
    /// The parts of the range that hold data; at most `limit`, see `OpenFile::allocated_ranges`.
    fn allocated(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>>;
    /// For copies by reference.
    fn clone_handle(&self) -> Option<CloneHandle> {
        None
    }
    /// Ends when the size differs from `known`.
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64>;
}

/// A file of a volume as a unit's storage. Each call is one call of the file: no allocation is added.
pub struct FileBacking {
    file: Arc<dyn OpenFile>,
    handle: CloneHandle,
    read_only: bool,
    rotational: bool,
}

impl FileBacking {
    /// Uses `file`, an open of an unnamed stream of `store`.
    #[must_use]
    pub fn new(
        store: Arc<dyn FileStore>,
        file: Arc<dyn OpenFile>,
        read_only: bool,
        rotational: bool,
    ) -> Self {
        let handle = CloneHandle { store, file: file.file() };
        Self { file, handle, read_only, rotational }
    }
}

impl Backing for FileBacking {
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn physical_block_size(&self) -> u32 {
        4096
    }
    fn unmap_zeroes(&self) -> bool {
        true
    }
    fn rotational(&self) -> bool {
        self.rotational
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        self.file.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        self.file.write(offset, data, durability)
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        self.file.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.file.punch_hole(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        self.file.zero_range(offset, len, durability)
    }
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        self.file.compare_and_write(offset, expected, data)
    }
    fn allocated(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        self.file.allocated_ranges(offset, len, limit)
    }
    fn clone_handle(&self) -> Option<CloneHandle> {
        Some(self.handle.clone())
    }
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        self.file.wait_resize(known)
    }
}

/// A block device as a unit's storage. A range lock gives COMPARE AND WRITE its atomicity; writes share it, and
/// UNMAP excludes them so that what is known as unmapped is right.
pub struct DeviceBacking {
    device: Device,
    lock: RangeLock,
    holes: Mutex<HoleMap>,
}

impl DeviceBacking {
    /// Uses all of `device`, whose only writer this must be.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self { device, lock: RangeLock::default(), holes: Mutex::default() }
    }
}

impl Backing for DeviceBacking {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn physical_block_size(&self) -> u32 {
        self.device.geometry().physical_block_size
    }
    fn unmap_zeroes(&self) -> bool {
        self.device.geometry().unmap == UnmapBehavior::Zeroes
    }
    fn rotational(&self) -> bool {
        self.device.geometry().rotational
    }
    fn read_only(&self) -> bool {
        self.device.geometry().read_only
    }
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move { Ok(self.device.read(offset, buf).await?) })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let _shared = self.lock.shared(offset, data.len() as u64).await;
            self.holes.lock().remove(offset, data.len() as u64);
            Ok(self.device.write(offset, data, durability).await?)
        })
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.device.flush().await?) })
    }
    fn unmap(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let _exclusive = self.lock.exclusive(offset, len).await;
            self.device.unmap(offset, len).await?;
            if self.unmap_zeroes() {
                self.holes.lock().add(offset, len);
            }
            Ok(())
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let _shared = self.lock.shared(offset, len).await;
            self.holes.lock().remove(offset, len);
            Ok(self.device.write_zeroes(offset, len, durability).await?)
        })
    }
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            let _exclusive = self.lock.exclusive(offset, expected.len() as u64).await;
            let current = self.device.read(offset, IoBuf::new(expected.len())).await?;
            if let Some(at) = first_difference(&current, &expected) {
                return Ok(Some(at));
            }
            self.holes.lock().remove(offset, data.len() as u64);
            self.device.write(offset, data, Durability::Durable).await?;
            Ok(None)
        })
    }
    fn allocated(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        Box::pin(async move { Ok(self.holes.lock().mapped(offset, len, limit)) })
    }
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(self.device.wait_resize(known).await?) })
    }
}

/// Where two equally long byte strings first differ.
pub(crate) fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(x, y)| x != y).map(|at| at as u64)
}

/// Durable rows of units: reservations and saved mode pages.
pub trait ReservationStore: Send + Sync + 'static {
    /// The row, if there is one.
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>>;
    /// Replaces (or with `None` removes) the row, durably.
    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()>;
}

/// Rows in the state table `scsi` of a volume.
pub struct VolumeReservations(pub Arc<dyn FileStore>);

const STATE_TABLE: &str = file_store::RESERVATIONS_TABLE;

impl ReservationStore for VolumeReservations {
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        self.0.state_get(STATE_TABLE, key)
    }
    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        let change = file_store::StateChange { table: STATE_TABLE.into(), key: key.to_vec(), value };
        self.0.state_write(vec![change])
    }
}

/// No durable rows: APTPL and saved pages are refused.
pub struct NoReservationStore;

impl ReservationStore for NoReservationStore {
    fn load<'a>(&'a self, _key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async { Ok(None) })
    }
    fn save<'a>(&'a self, _key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match value {
                None => Ok(()),
                Some(_) => Err(StoreError::new(StoreErrorKind::InvalidArgument, "unit has no durable state")),
            }
        })
    }
}
