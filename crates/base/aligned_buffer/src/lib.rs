//! Owned, aligned, pooled I/O buffers.
//!
//! Direct I/O wants memory aligned to the device's block size, and the kernel keeps using that memory while a
//! request is in flight. So every byte that goes to or comes from a disk travels in an [`IoBuf`] or a
//! [`SharedBuf`], which own their memory and move with the request:
//!
//! ```text
//!   IoBuf      exclusive, writable          split_to / join     freeze
//!   ┌────────────────────────────┐   ──►  ┌──────┐┌───────────┐  ──►  SharedBuf (read-only, cheap clone, slices)
//!   │ 4096-aligned block of pool │        │ IoBuf││   IoBuf   │
//!   └────────────────────────────┘        └──────┘└───────────┘
//! ```
//!
//! * A striped read splits one buffer, sends the parts to several disks and joins them: no copy.
//! * A mirrored write freezes one buffer and clones the handle for each copy: no copy.
//!
//! Memory comes from per-thread free lists by size (up to [`MAX_POOLED`]), so after warm-up the hot path does not
//! allocate. A buffer dropped on another thread joins that thread's list; what a thread keeps is bounded
//! ([`MAX_CACHED_BYTES`]).
//!
//! Deliberately absent: growing, writing through `SharedBuf`, alignment below a page.

mod pool;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;

use pool::Block;
pub use pool::{
    MAX_CACHED_BYTES, MAX_POOLED, give_back_free_memory, release_thread_cache, trim_thread_cache,
};

/// Alignment of every fresh buffer, in bytes: a page, which satisfies O_DIRECT on every device we meet.
pub const ALIGNMENT: usize = 4096;

/// An exclusive, writable range of an aligned block.
///
/// Invariant: no other `IoBuf` or `SharedBuf` covers any byte of `start..start + len` of the same block.
pub struct IoBuf {
    block: Block,
    start: usize,
    len: usize,
}

impl IoBuf {
    /// A buffer of `len` bytes whose content is whatever an earlier user left there, never uninitialised.
    ///
    /// A buffer for reads that overwrite all of it; use [`IoBuf::zeroed`] when some bytes may stay.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { block: Block::take(len), start: 0, len }
    }

    /// A buffer of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::new(len);
        buf.fill(0);
        buf
    }

    /// A buffer holding a copy of `bytes`.
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Self {
        let mut buf = Self::new(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of memory that a buffer of `len` bytes takes, as far as it is written to: what is counted where memory is bounded.
    #[must_use]
    pub fn footprint(len: usize) -> usize {
        pool::footprint(len)
    }

    /// Bytes of memory that the block takes which this is of.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Keeps the first `len` bytes; the rest becomes unreachable through this handle.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Splits off the first `at` bytes and leaves the rest in `self`. `at` above the length takes all of it.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        let at = at.min(self.len);
        let head = Self { block: self.block.share(), start: self.start, len: at };
        self.start += at;
        self.len -= at;
        head
    }

    /// Joins `next` to the end of `self`, the reverse of [`IoBuf::split_to`].
    ///
    /// # Errors
    /// Gives `next` back when it is not the part that follows `self` in the same block.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        if self.block.is(&next.block) && self.start + self.len == next.start {
            self.len += next.len;
            Ok(())
        } else if self.len == 0 {
            *self = next;
            Ok(())
        } else if next.len == 0 {
            Ok(())
        } else {
            Err(next)
        }
    }

    /// Gives up writing in exchange for cheap clones.
    #[must_use]
    pub fn freeze(self) -> SharedBuf {
        SharedBuf { block: self.block, start: self.start, len: self.len }
    }

    /// Where the bytes lie, for a system call. Valid while `self` lives.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr().as_ptr()
    }

    /// Whether address and length suit direct I/O with blocks of `align` bytes (a power of two).
    #[must_use]
    pub fn is_aligned_to(&self, align: usize) -> bool {
        (self.ptr().as_ptr() as usize | self.len) & (align - 1) == 0
    }

    fn ptr(&self) -> NonNull<u8> {
        self.block.at(self.start)
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block holds at least start + len initialised bytes, and the invariant says that no one
        // else writes them while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.ptr().as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the invariant makes this handle the only one that covers these bytes.
        unsafe { slice::from_raw_parts_mut(self.ptr().as_ptr(), self.len) }
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

/// A read-only range of an aligned block, cheap to clone and to slice.
#[derive(Clone)]
pub struct SharedBuf {
    block: Block,
    start: usize,
    len: usize,
}

impl SharedBuf {
    /// A handle on `range` of this buffer, cut to its length.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = range.start.min(self.len);
        let end = range.end.clamp(start, self.len);
        Self { block: self.block.share(), start: self.start + start, len: end - start }
    }

    /// Where the bytes lie, for a system call. Valid while `self` lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.block.at(self.start).as_ptr()
    }

    /// Whether address and length suit direct I/O with blocks of `align` bytes (a power of two).
    #[must_use]
    pub fn is_aligned_to(&self, align: usize) -> bool {
        (self.as_ptr() as usize | self.len) & (align - 1) == 0
    }

    /// Makes the buffer writable again, if this is the only handle on its block.
    ///
    /// # Errors
    /// Gives `self` back when other handles exist.
    pub fn try_unfreeze(self) -> Result<IoBuf, Self> {
        if self.block.is_unique() {
            Ok(IoBuf { block: self.block, start: self.start, len: self.len })
        } else {
            Err(self)
        }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block holds at least start + len initialised bytes; a range that was frozen is never
        // covered by an IoBuf again while a SharedBuf covers it (`try_unfreeze` asks for the only handle).
        unsafe { slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len)
    }
}

impl From<IoBuf> for SharedBuf {
    fn from(buf: IoBuf) -> Self {
        buf.freeze()
    }
}

/// Whether all bytes are zeros.
#[must_use]
pub fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests;
