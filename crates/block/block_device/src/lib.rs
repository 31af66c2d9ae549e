//! The first waist: [`BlockDevice`], a thing with blocks.
//!
//! Local disks, spaces of a pool, virtual disks, and wrappers (fault injection, statistics) all look like
//! this, so anything above works on anything below. The contract is on the trait; the suite in
//! `block_conformance` checks it for every implementation.
//!
//! Disks that several nodes reach carry [`Reservations`] besides: a trait of its own, which [`BlockDevice::reservations`] leads to.
//!
//! Deliberately absent: files, names, sharing rules, protocol-specific commands. COMPARE AND WRITE and
//! persistent reservations of the SCSI layer are built above on a file's range locks.

mod error;
mod memory;
mod reservations;
pub mod spc;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};

pub use error::{BlockError, BlockErrorKind};
pub use memory::MemoryDisk;
pub use reservations::{Reservation, ReservationKind, ReservationTable, Reservations};

/// A device held by its users.
pub type Device = Arc<dyn BlockDevice>;

/// The future of one operation. It stays on the thread (shard) that started it.
pub type BlockFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BlockError>> + 'a>>;

/// What a completed write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Visible to reads; survives power loss only after a later flush.
    Volatile,
    /// On stable storage (force unit access).
    Durable,
}

/// What `unmap` leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapBehavior {
    /// Unmapped blocks read as zeros.
    Zeroes,
    /// Unmapped blocks read as anything, even differently each time.
    Unspecified,
    /// Unmap does nothing.
    Ignored,
}

/// What a device is, as far as its users must know. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Smallest unit of transfer and alignment: a power of two, 512 or 4096.
    pub block_size: u32,
    /// Unit below which the device reads, changes and writes back: a power of two ≥ `block_size`.
    pub physical_block_size: u32,
    /// Preferred alignment and multiple of large transfers; 0 when there is none.
    pub optimal_io_size: u32,
    /// What `unmap` leaves behind.
    pub unmap: UnmapBehavior,
    /// Whether the device spins.
    pub rotational: bool,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A thing with blocks.
///
/// # Contract
///
/// **Ranges.** `offset` and length are multiples of `geometry().block_size`, else the operation ends with
/// [`BlockErrorKind::Unaligned`]. A range beyond [`BlockDevice::size`] ends with
/// [`BlockErrorKind::OutOfRange`] and has no effect. *Implementations check*; callers need not, and cannot
/// meaningfully, since the size may grow at any time. No value of any argument makes an implementation panic.
/// A length of zero succeeds and does nothing. There is no upper limit on a transfer: implementations split.
///
/// **Order.** Operations in flight together may take effect in any order. An operation that starts after
/// another completed sees its effect. Two overlapping writes in flight together leave, in each block, the data
/// of one of them, and every later read returns the same one (copies of a mirror never differ for good).
///
/// **Atomicity.** A write that ends with an error, or that is cut off by power loss, may have changed any of
/// its blocks, each to the new content or not at all at the granularity of 512 bytes.
///
/// **Durability.** A write or `write_zeroes` with [`Durability::Durable`] is on stable storage when it
/// completes. When `flush` completes with success, every write that *completed* before the flush was called is
/// on stable storage. After a flush or durable write has failed, no later flush may succeed unless the lost
/// data is known to be safe: implementations fail stop ([`BlockErrorKind::Poisoned`]).
///
/// **Cancelling.** Dropping a future leaves the operation's effect undecided (as on an error) but the device
/// intact: no lock stays taken, no buffer is freed while in use.
///
/// **Threads.** Devices are shared by all shards; an operation's future stays on the shard that started it,
/// which must have an I/O engine. No lock is held across an await where another operation could need it.
pub trait BlockDevice: Send + Sync + 'static {
    /// Properties that do not change while the device is open.
    fn geometry(&self) -> &Geometry;

    /// Size in bytes now, a multiple of the block size. It may grow ([`BlockDevice::wait_resize`]).
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` and gives it back. On an error the buffer is gone and its content was never
    /// shown to anyone.
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf>;

    /// Writes `data` at `offset`.
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()>;

    /// Writes `parts` one behind the other from `offset`, as [`BlockDevice::write`] would write all of them in one buffer. The
    /// length of each is a multiple of the block size. The default joins them first.
    fn write_vectored(
        &self,
        offset: u64,
        parts: Vec<SharedBuf>,
        durability: Durability,
    ) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.write(offset, join(&parts), durability).await })
    }

    /// Makes every completed write durable.
    fn flush(&self) -> BlockFuture<'_, ()>;

    /// Says that the content of the range is no longer needed; see [`Geometry::unmap`] for what reads return.
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()>;

    /// Makes the range read as zeros.
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()>;

    /// Whether [`BlockDevice::allocate`] would find space for what of `ranges`, each an offset and a length, has none yet, as far as
    /// can be known now: others may take it meanwhile. The default has all its space.
    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        let _ = ranges;
        Box::pin(std::future::ready(Ok(true)))
    }

    /// Sees to it that later writes to the range do not fail for want of space, as a device that takes space when it is
    /// written may let them; what is read there does not change. Where it fails, a part of the range may have its space.
    /// The default has nothing to do.
    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        let _ = (offset, len);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends when the size differs from `known`, with the new size. The default never ends.
    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        let _ = known;
        Box::pin(std::future::pending())
    }

    /// What keeps other nodes from writing, where the device has it. Whoever stands before one disk passes this through. The default
    /// has none.
    fn reservations(&self) -> Option<&dyn Reservations> {
        None
    }
}

/// What several buffers hold, one behind the other, in one.
#[must_use]
pub fn join(parts: &[SharedBuf]) -> SharedBuf {
    if let [only] = parts {
        return only.clone();
    }
    let mut whole = IoBuf::new(parts.iter().map(|part| part.len()).sum());
    let mut at = 0;
    for part in parts {
        whole[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    whole.freeze()
}

/// Checks a range against the contract: alignment to `block_size`, and inside `size`.
///
/// # Errors
/// [`BlockErrorKind::Unaligned`] or [`BlockErrorKind::OutOfRange`].
pub fn check_range(offset: u64, len: u64, block_size: u32, size: u64) -> Result<(), BlockError> {
    let mask = u64::from(block_size) - 1;
    if (offset | len) & mask != 0 {
        return Err(BlockError::new(BlockErrorKind::Unaligned, "check range").at(offset, len));
    }
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(BlockError::new(BlockErrorKind::OutOfRange, "check range").at(offset, len)),
    }
}
