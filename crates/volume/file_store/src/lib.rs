//! The second waist: [`FileStore`], files as a file server needs them.
//!
//! SMB, LUNs, the admin's `file` verbs and later FUSE are clients of this trait; `volume` implements it on a
//! space, and [`model::MemoryStore`] in memory as the oracle of tests. Both run [`conformance`].
//!
//! Vocabulary: a *file* has an id that is never reused, one unnamed data stream and any number of named
//! streams; a *directory* maps names to files. Names keep their case and are found in any case (as on NTFS).
//! An *open* is a handle on one stream with the access it was opened for and what it shares.
//!
//! Byte-range locks, leases and change notification join the trait with the SMB server; the durable state they
//! and persistent reservations need is already here ([`FileStore::state_write`]).

pub mod conformance;
mod error;
pub mod model;
mod types;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;

pub use error::{StoreError, StoreErrorKind};
pub use types::{
    Access, Attributes, DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileKind,
    InfoChange, NewFile, OpenOptions, Range, Share, StateChange, StateRow, StoreUsage, StreamInfo, Times,
};

/// The future of one operation. It stays on the thread (shard) that started it.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>;

/// Files, directories and durable state of one volume.
///
/// # Contract
///
/// **Metadata** changes (create, rename, remove, set, clone, resize, state) are atomic, durable when they
/// complete, and seen by every operation that starts afterwards. After a crash each one that had completed is
/// there, and each other one is there whole or not at all.
///
/// **Names** are valid Unicode, 1 to 255 UTF-16 units, without `/`, `\`, `:`, NUL or control characters, and
/// not `.` or `..`; else [`StoreErrorKind::InvalidName`].
///
/// **Removal** of a file that is open takes its name away at once; its content goes when the last open closes
/// (also after a crash).
pub trait FileStore: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> FileId;

    /// Finds `name`, in any case, in `directory`.
    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry>;

    /// Makes a file or directory; [`StoreErrorKind::AlreadyExists`] if the name, in any case, is taken.
    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId>;

    /// Removes a name. A directory must be empty ([`StoreErrorKind::NotEmpty`]). Refused with
    /// [`StoreErrorKind::SharingViolation`] while an open exists that does not share deletion.
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()>;

    /// Moves a name within the volume; with `replace`, a file of the target name is removed in the same step.
    /// A directory cannot be moved into itself or its descendants ([`StoreErrorKind::InvalidArgument`]).
    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()>;

    /// Up to `limit` entries after `cursor`, in a stable order: entries that exist during the whole
    /// enumeration come exactly once, whatever else changes.
    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage>;

    /// What is known of a file without opening it.
    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo>;

    /// Changes attributes and times; fields that are `None` stay.
    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()>;

    /// The security descriptor, as stored; empty when none was ever set.
    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>>;

    /// Replaces the security descriptor (at most 64 KiB).
    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()>;

    /// The streams of a file; the unnamed one has the empty name. Directories have only named ones.
    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>>;

    /// Removes a named stream.
    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()>;

    /// Opens a stream of a file, after checking the access and share modes of the other opens of that stream
    /// ([`StoreErrorKind::SharingViolation`]). A named stream is created when asked for in `options`.
    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>>;

    /// Makes `len` bytes at `target` share the storage of the bytes at `source`, replacing what was there.
    ///
    /// Works on the unnamed streams; the files may be the same if the ranges do not overlap. Where a range
    /// is not made of whole clusters its edges are copied. The source must lie within its file; the target
    /// grows as needed. Durable when it completes: data of the source that was volatile is made durable first.
    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()>;

    /// Space accounting of the volume.
    fn usage(&self) -> StoreFuture<'_, StoreUsage>;

    /// One row of durable state: open handles, reservations, and what else must survive the node.
    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// All rows of `table` whose key starts with `prefix`, in key order.
    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>>;

    /// Applies all changes in one atomic, durable step.
    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()>;
}

/// An open stream: the data plane. Shared by shards; dropping it closes it.
///
/// # Contract
///
/// **Ranges** are in bytes and need no alignment (aligned ones are faster: whole 4 KiB blocks are not read
/// back). Offsets beyond `i64::MAX` end with [`StoreErrorKind::InvalidArgument`].
///
/// **Order, atomicity, durability** are those of `BlockDevice`: overlapping writes leave the data of one of
/// them in each 4 KiB block; a write is durable when it completed with [`Durability::Durable`] or a later
/// flush completed. Growing a file by writing is part of the write: when it is durable, so is the new size.
///
/// **Never stale data.** Bytes that were never written read as zeros, also after any crash.
///
/// **Access.** Operations beyond the access of the open end with [`StoreErrorKind::AccessDenied`].
pub trait OpenFile: Send + Sync + 'static {
    /// Which file this is.
    fn file(&self) -> FileId;

    /// Size in bytes now.
    fn size(&self) -> u64;

    /// Reads into `buf` and gives it back, cut to the bytes that lie before the end of the file.
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf>;

    /// Writes `data`, growing the file as needed.
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()>;

    /// Makes all completed writes of this file durable.
    fn flush(&self) -> StoreFuture<'_, ()>;

    /// Compares `expected.len()` bytes with the file and, if equal, writes `data` there durably, with no other
    /// write to these blocks between the two. Returns the offset of the first difference, or `None` when
    /// written.
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>>;

    /// Reserves space for the range without changing what it reads; grows the file if `grow`.
    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()>;

    /// Deallocates whole clusters of the range and zeroes the rest of it; the size stays.
    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()>;

    /// Makes the range read as zeros, keeping its space reserved.
    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()>;

    /// Cuts or grows the file; new bytes read as zeros.
    fn set_size(&self, size: u64) -> StoreFuture<'_, ()>;

    /// The parts of the range that hold data (were written), in order, at most `limit`. The last one tells
    /// whether there may be more by ending before the end of the range.
    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>>;

    /// Ends when the size differs from `known`, with the new size.
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64>;
}
