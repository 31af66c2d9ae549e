//! A disk of an open pool: present or not, and what it owes its copies.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Device, Durability, UnmapBehavior};
use parking_lot::{Mutex, RwLock};
use pool_format::{BLOCK, DiskId, Guid, Superblock};
use shard_runtime::Clock;

use crate::fullness::Fullness;
use crate::ownership::Ownership;
use crate::pace::{Pace, SMALL, Window};
use crate::went_back::WentBack;

/// Read errors of a present disk after which it is taken offline: a medium that fails here and there keeps
/// serving (other copies heal it), one that fails everywhere does not.
const READ_ERRORS_MAX: u64 = 1000;

/// The disk was not here when the pool was opened, so nobody has looked at its checkpoints.
pub(crate) const SLOT_UNKNOWN: u8 = u8::MAX;

/// A disk of an open pool.
pub(crate) struct PoolDisk {
    pub(crate) id: DiskId,
    pub(crate) guid: Guid,
    /// Where its areas lie.
    pub(crate) layout: RwLock<Superblock>,
    /// In an `Arc` of its own, which each request holds while it is under way.
    device: RwLock<Option<Arc<Device>>>,
    /// Those that were let go of, for as long as requests to them are under way.
    former: Mutex<Vec<Weak<Device>>>,
    online: AtomicBool,
    /// Volatile writes that completed, counted; and how many of them a flush that succeeded covers.
    written: AtomicU64,
    flushed: AtomicU64,
    /// One flush at a time, so that whoever finds nothing to flush knows that it is on the disk.
    flushing: tokio::sync::Mutex<()>,
    /// Since the disk went offline, everything it may have lost has been marked stale or told of.
    pub(crate) loss_marked: AtomicBool,
    /// Marking is done once for each loss.
    pub(crate) marking: tokio::sync::Mutex<()>,
    /// The checkpoint slot, 0 or 1, that holds the newest state this disk has: the other one is written next.
    pub(crate) newest_slot: AtomicU8,
    /// The disk's log continues its newest checkpoint without a gap, so that what is added to it counts.
    pub(crate) log_whole: AtomicBool,
    /// How often it went offline.
    outages: AtomicU64,
    /// Data has been written to it since its mark was renewed.
    pub(crate) changed: AtomicBool,
    /// Its superblocks could not be written, or not both.
    pub(crate) unsigned: AtomicBool,
    /// It had gone back in time when it was found; its copies are made anew.
    pub(crate) went_back: Mutex<Option<WentBack>>,
    pub(crate) read_errors: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    /// Blocks that were not what their checksum says, and damaged pages of checksums.
    pub(crate) checksum_errors: AtomicU64,
    /// Blocks rewritten from another copy or from parity.
    pub(crate) healed: AtomicU64,
    why_offline: Mutex<String>,
    ownership: Arc<Ownership>,
    clock: Arc<dyn Clock>,
    fullness: Fullness,
    /// Small reads and writes.
    pub(crate) pace: Pace,
    pub(crate) window: Mutex<Window>,
}

impl PoolDisk {
    pub(crate) fn new(
        id: DiskId,
        layout: Superblock,
        device: Option<Device>,
        (clock, ownership): (Arc<dyn Clock>, Arc<Ownership>),
    ) -> Self {
        let online = device.is_some();
        Self {
            id,
            guid: layout.disk,
            layout: RwLock::new(layout),
            device: RwLock::new(device.map(Arc::new)),
            former: Mutex::default(),
            online: AtomicBool::new(online),
            // What an earlier process wrote may still be in the disk's cache: the first flush must reach it.
            written: AtomicU64::new(1),
            flushed: AtomicU64::new(0),
            flushing: tokio::sync::Mutex::new(()),
            marking: tokio::sync::Mutex::new(()),
            newest_slot: AtomicU8::new(SLOT_UNKNOWN),
            log_whole: AtomicBool::new(false),
            // A disk that is missing when the pool opens: what it may have lost follows from the dirty regions.
            loss_marked: AtomicBool::new(online),
            outages: AtomicU64::new(0),
            changed: AtomicBool::new(false),
            unsigned: AtomicBool::new(false),
            went_back: Mutex::default(),
            read_errors: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
            checksum_errors: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            why_offline: Mutex::new(if online { String::new() } else { "not found at start".into() }),
            ownership,
            clock,
            fullness: Fullness::default(),
            pace: Pace::default(),
            window: Mutex::default(),
        }
    }

    pub(crate) fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }

    pub(crate) fn why_offline(&self) -> String {
        self.why_offline.lock().clone()
    }

    /// Says why a disk that is offline is not used.
    pub(crate) fn tell_why_offline(&self, why: &str) {
        let mut told = self.why_offline.lock();
        if *told != why {
            tracing::warn!(disk = %self.guid, "disk {} is not used: {why}", self.id);
            why.clone_into(&mut told);
        }
    }

    /// Stops using the disk. Says so once.
    pub(crate) fn take_offline(&self, why: &str) {
        if self.online.swap(false, Ordering::AcqRel) {
            self.outages.fetch_add(1, Ordering::AcqRel);
            self.loss_marked.store(false, Ordering::Release);
            self.log_whole.store(false, Ordering::Release);
            *self.why_offline.lock() = why.to_owned();
            tracing::warn!(disk = %self.guid, "disk {} is offline: {why}; its copies are no longer written", self.id);
        }
    }

    /// Uses `device` from now on. The caller has made sure that it is this disk, and that what it missed is
    /// marked stale.
    pub(crate) fn bring_online(&self, device: Device) {
        self.replace_device(Some(Arc::new(device)));
        // Its cache may have survived, with writes that nobody has flushed.
        self.written.fetch_add(1, Ordering::AcqRel);
        self.log_whole.store(false, Ordering::Release);
        self.read_errors.store(0, Ordering::Relaxed);
        self.why_offline.lock().clear();
        self.online.store(true, Ordering::Release);
        tracing::info!(disk = %self.guid, "disk {} is back", self.id);
    }

    /// Whether something that needs space on it is worth trying: it is here, and not known to be full.
    pub(crate) fn has_room(&self) -> bool {
        self.is_online() && !self.fullness.waits(self.clock.now())
    }

    /// For how long its file system has been full, if it is.
    pub(crate) fn full_for(&self) -> Option<Duration> {
        self.fullness.lasting(self.clock.now())
    }

    /// How often it has gone offline since the opening.
    pub(crate) fn outages(&self) -> u64 {
        self.outages.load(Ordering::Acquire)
    }

    /// Whether it has gone offline since the opening.
    pub(crate) fn was_away(&self) -> bool {
        self.outages() > 0
    }

    /// Whether the disk has taken volatile writes that no flush covers.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.written.load(Ordering::Acquire) != self.flushed.load(Ordering::Acquire)
    }

    /// Whether it is this device that is used.
    pub(crate) fn has_open(&self, device: &Device) -> bool {
        self.device.read().as_ref().is_some_and(|open| Arc::ptr_eq(&**open, device))
    }

    /// Lets go of the device, so that its file or path can be opened anew.
    pub(crate) fn release_device(&self) {
        self.replace_device(None);
    }

    fn replace_device(&self, device: Option<Arc<Device>>) {
        let former = std::mem::replace(&mut *self.device.write(), device);
        let mut all = self.former.lock();
        all.retain(|device| device.strong_count() > 0);
        all.extend(former.as_ref().map(Arc::downgrade));
    }

    /// Whether requests are under way to a device that was let go of.
    pub(crate) fn has_stragglers(&self) -> bool {
        self.former.lock().iter().any(|device| device.strong_count() > 0)
    }

    /// Whether requests are under way to its device, or to one that was let go of.
    pub(crate) fn has_requests(&self) -> bool {
        self.device.read().as_ref().is_some_and(|device| Arc::strong_count(device) > 1)
            || self.has_stragglers()
    }

    fn device(&self, doing: &'static str) -> Result<Arc<Device>, BlockError> {
        self.ownership.check(doing)?;
        let device = if self.is_online() { self.device.read().clone() } else { None };
        device.ok_or_else(|| BlockError::new(BlockErrorKind::Gone, doing))
    }

    pub(crate) async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf, BlockError> {
        let (device, len) = (self.device("read")?, buf.len() as u64);
        let result = self.timed(len, device.read(offset, buf)).await;
        if self.ownership.hear(self.id, &result) {
            return result;
        }
        if let Err(error) = &result {
            let errors = self.read_errors.fetch_add(1, Ordering::Relaxed) + 1;
            if error.kind() == BlockErrorKind::Gone || errors > READ_ERRORS_MAX {
                self.take_offline(&error.to_string());
            }
        }
        result
    }

    /// Reads what says whose the disk is. An error counts for nothing: the other end says the same.
    pub(crate) async fn peek(&self, offset: u64, buf: IoBuf) -> Result<IoBuf, BlockError> {
        let result = self.device("read")?.read(offset, buf).await;
        self.ownership.hear(self.id, &result);
        result
    }

    pub(crate) async fn write(
        &self,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
    ) -> Result<(), BlockError> {
        self.note_change();
        self.write_metadata(offset, data, durability).await
    }

    /// Usually one load.
    fn note_change(&self) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Writes both superblocks, one durably before the other, so that one is always whole.
    pub(crate) async fn write_superblock(&self, superblock: &Superblock) -> Result<(), BlockError> {
        let block = IoBuf::copy_from(&superblock.encode()).freeze();
        self.unsigned.store(true, Ordering::Release);
        self.write_metadata(0, block.clone(), Durability::Durable).await?;
        self.write_metadata(superblock.disk_size - BLOCK, block, Durability::Durable).await?;
        self.unsigned.store(false, Ordering::Release);
        Ok(())
    }

    /// Writes what is not data: no reason to renew the disk's mark.
    pub(crate) async fn write_metadata(
        &self,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let (device, len) = (self.device("write")?, data.len() as u64);
        let result = self.timed(len, device.write(offset, data, durability)).await;
        self.wrote(result, durability)
    }

    /// Writes several buffers one behind the other.
    pub(crate) async fn write_vectored(
        &self,
        offset: u64,
        parts: Vec<SharedBuf>,
        durability: Durability,
    ) -> Result<(), BlockError> {
        self.note_change();
        let len = parts.iter().map(|part| part.len() as u64).sum();
        let device = self.device("write")?;
        let result = self.timed(len, device.write_vectored(offset, parts, durability)).await;
        self.wrote(result, durability)
    }

    /// Runs a request of so many bytes to its end, and takes the time of a small one.
    async fn timed<T>(&self, bytes: u64, request: impl Future<Output = T>) -> T {
        if bytes > SMALL {
            return request.await;
        }
        let begun = self.clock.now();
        let result = request.await;
        self.pace.record(self.clock.now().since(begun));
        result
    }

    pub(crate) async fn zero(
        &self,
        offset: u64,
        len: u64,
        unmap: bool,
        durability: Durability,
    ) -> Result<(), BlockError> {
        self.note_change();
        let outages = self.outages();
        let device = self.device("zero")?;
        // Only an unmap that leaves zeros makes all copies read the same.
        let result = if unmap && device.geometry().unmap == UnmapBehavior::Zeroes {
            device.unmap(offset, len).await
        } else {
            device.write_zeroes(offset, len, Durability::Volatile).await
        };
        self.wrote(result, Durability::Volatile)?;
        if durability == Durability::Durable {
            self.flush().await?;
            // What was zeroed is in the cache that was there then; the flush may be of one that has come since.
            if self.outages() != outages {
                return Err(BlockError::new(
                    BlockErrorKind::Gone,
                    "zero a range of a disk that was away meanwhile",
                ));
            }
        }
        Ok(())
    }

    fn wrote(&self, result: Result<(), BlockError>, durability: Durability) -> Result<(), BlockError> {
        if self.ownership.hear(self.id, &result) {
            return result;
        }
        if let Err(error) = &result {
            // A disk without space serves on; anything else makes its copies unreliable.
            if error.kind() == BlockErrorKind::NoSpace {
                // A part of it may be in the cache, whatever durability was asked for.
                self.written.fetch_add(1, Ordering::AcqRel);
                if self.fullness.refused(self.clock.now()) {
                    tracing::warn!(disk = %self.guid, "the file system of disk {} is full: its copies lack what is written now until there is room", self.id);
                }
            } else {
                self.write_errors.fetch_add(1, Ordering::Relaxed);
                self.take_offline(&error.to_string());
            }
            return result;
        }
        if durability == Durability::Volatile {
            self.written.fetch_add(1, Ordering::AcqRel);
            // Whoever took the disk offline may have looked for losses already: this write would be missed.
            if !self.is_online() {
                return Err(BlockError::new(
                    BlockErrorKind::Gone,
                    "write to a disk that went offline meanwhile",
                ));
            }
        }
        Ok(())
    }

    /// Makes completed writes durable; nothing to do when there were none.
    pub(crate) async fn flush(&self) -> Result<(), BlockError> {
        let _one = self.flushing.lock().await;
        let device = self.device("flush")?;
        let covered = self.written.load(Ordering::Acquire);
        if covered == self.flushed.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = device.flush().await;
        if self.ownership.hear(self.id, &result) {
            return result;
        }
        match &result {
            Ok(()) => self.flushed.store(covered, Ordering::Release),
            Err(error) => self.take_offline(&error.to_string()),
        }
        result
    }
}
