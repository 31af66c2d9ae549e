//! The second waist: [`FileStore`], files as a file server needs them.
//!
//! SMB, LUNs, the admin's `file` verbs and later FUSE are clients of this trait; `volume` implements it on a
//! space, and [`MemoryStore`] in memory as the oracle of tests. Both run the suite in `file_store_conformance`,
//! which turns each sentence of the contract into a check.
//!
//! Vocabulary: a *file* has an id that is never reused (but for one that a crash took back), one unnamed data stream and any number of named
//! streams; a *directory* maps names to files. Names keep their case and are found in any case (as on NTFS).
//! An *open* is a handle on one stream with the access it was opened for and what it shares.
//!
//! Byte-range locks, leases and change notification join the trait with the SMB server; the durable state they
//! and persistent reservations need is already here ([`FileStore::state_write`]).

mod error;
mod limits;
mod model;
pub mod names;
mod quota;
mod snapshots;
mod types;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;

pub use error::{StoreError, StoreErrorKind};
pub use limits::{
    FILE_SIZE_MAX, NAMES_MAX, OPEN_ROW_KEPT, OPENS_TABLE, RESERVATIONS_TABLE, SECURITY_MAX, STATE_KEY_MAX,
    STATE_VALUE_MAX, STREAMS_MAX,
};
pub use model::MemoryStore;
pub use quota::{
    NO_LIMIT, Owner, QUOTAS_MAX, QuotaEntry, QuotaEvent, QuotaLevel, QuotaLimits, QuotaMode, QuotaReport,
    QuotaSettings, QuotaStore,
};
pub use snapshots::{
    Difference, NewSnapshot, SNAPSHOTS_MAX, Snapshot, SnapshotId, SnapshotStore, SpaceUse, TREE_MAX,
};
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
/// **Metadata** changes (create, rename, remove, set, resize, state) are atomic, durable when they complete, and
/// seen by every operation that starts afterwards. After a crash each one that had completed is there, and each
/// other one is there whole or not at all.
///
/// **Volatile changes** are those made through [`FileStore::volatile`]: as atomic, and seen by every operation on either, but
/// durable only later. They become so in the order in which they were made: with the next change that is durable when it
/// completes, with a durable write through an open that was made after them if the file is not durable before, with any flush,
/// [`FileStore::sync`], closing the store, or within about a second. So after a crash the last of them may be
/// missing, never one in the middle, and nothing of the others is torn; what a missing one has freed is as it was.
///
/// **Volatile sizes** are not among them: those that a volatile write has grown, through whichever store, and those that
/// [`OpenFile::set_size`] has grown through [`FileStore::volatile`]. They are durable with a flush of their stream, with a durable
/// write to it as far as that reaches at least, with closing the store, or within about a second; each stream's by itself, and never
/// before the data that they reach over. So after a crash a file that is there may be as long as it was before one of them, and a name that was made
/// later may be there all the same. (A cut is durable when it completes, whoever makes it.)
///
/// **Errors.** An operation checks its arguments, then what is there, then what it needs; one that ends with an
/// error has changed nothing, unless the error is [`StoreErrorKind::Io`], [`StoreErrorKind::Corrupt`] or
/// [`StoreErrorKind::Stopped`]. (Writing or cloning data that runs out of space half-way may have changed some of
/// the blocks, but not the size.) An id that was never given out, or whose file is gone, ends with [`StoreErrorKind::NotFound`]; a
/// file where a directory is needed with [`StoreErrorKind::NotADirectory`]. No value of any argument makes an
/// implementation panic.
///
/// **Names** are valid Unicode, 1 to 255 UTF-16 units, without `/`, `\`, `:`, NUL or control characters, and
/// not `.` or `..`; else [`StoreErrorKind::InvalidName`]. Looking for a name that cannot be ends with
/// [`StoreErrorKind::NotFound`]. [`names`] has the rules as code; names of streams follow them too.
///
/// **Removal** of the only name of a file that is open takes the name away at once; its content goes when the last open closes
/// (also after a crash), and it cannot be opened again. The space of removed or cut content comes back soon, not
/// at once. A removed directory takes no new names.
///
/// **Threads.** A store is shared by all shards; an operation's future stays on the shard that started it.
/// Dropping a future leaves the effect of its operation undecided and the store intact.
pub trait FileStore: Send + Sync + 'static {
    /// The root directory.
    fn root(&self) -> FileId;

    /// Finds `name`, in any case, in `directory`.
    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry>;

    /// Makes a file or directory; [`StoreErrorKind::AlreadyExists`] if the name, in any case, is taken,
    /// [`StoreErrorKind::InvalidArgument`] if the security descriptor is longer than [`SECURITY_MAX`].
    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId>;

    /// Removes a name, and with its only name the file. A directory must be empty ([`StoreErrorKind::NotEmpty`]). Refused with
    /// [`StoreErrorKind::SharingViolation`] while an open, of whichever stream, does not share deletion.
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()>;

    /// Gives a file one more name (a hard link); with `replace`, a file of that name loses it in the same step.
    ///
    /// All names are alike: each is found, moved and removed by itself, and the file goes with the last. The first of them, which
    /// [`FileInfo::parent`] tells, is the oldest that is left. A name that is already this file's is taken
    /// ([`StoreErrorKind::AlreadyExists`]) but with `replace`, which may change its case. A directory has one name
    /// ([`StoreErrorKind::IsADirectory`]) and is not replaced ([`StoreErrorKind::AlreadyExists`]). Opens of the file that loses
    /// its name, and of the file itself, must share deletion ([`StoreErrorKind::SharingViolation`]): who keeps a file can rely on its
    /// going with the name that it has. At most [`NAMES_MAX`]
    /// ([`StoreErrorKind::TooManyNames`]).
    fn link<'a>(&'a self, file: FileId, to: (FileId, &'a str), replace: bool) -> StoreFuture<'a, ()>;

    /// The names of a file, the first one first, each with its directory; none of the root, of the root of a snapshot, and of
    /// what was removed.
    fn names(&self, file: FileId) -> StoreFuture<'_, Vec<(FileId, String)>>;

    /// Moves a name within the volume; with `replace`, a file of the target name loses it in the same step. Other names of
    /// the moved file stay; the target may be one of them, which takes `replace` too.
    ///
    /// Directories neither replace nor are replaced, and without `replace` nothing is
    /// ([`StoreErrorKind::AlreadyExists`]). A directory cannot be moved into itself or its descendants
    /// ([`StoreErrorKind::InvalidArgument`]). Opens of the moved and of the replaced file, and of files below a moved directory, must
    /// share deletion ([`StoreErrorKind::SharingViolation`]). A new name that differs from the old one in case only, or not at
    /// all, is not taken.
    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()>;

    /// Up to `limit` entries after `cursor`, in a stable order: entries that exist during the whole
    /// enumeration come exactly once, whatever else changes. A `limit` of 0 ends with
    /// [`StoreErrorKind::InvalidArgument`]; a cursor that no page gave leads anywhere.
    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage>;

    /// What is known of a file without opening it. Data written by any open counts at once.
    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo>;

    /// Changes attributes and times; fields that are `None` stay, but for the time of change, which is then now. A file becomes
    /// read-only only while all its opens share deletion ([`StoreErrorKind::SharingViolation`]).
    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()>;

    /// The security descriptor, as stored; empty when none was ever set.
    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>>;

    /// Replaces the security descriptor; [`StoreErrorKind::InvalidArgument`] if it is longer than
    /// [`SECURITY_MAX`].
    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()>;

    /// The streams of a file, in any order; the unnamed one has the empty name. Directories have only named ones.
    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>>;

    /// Removes a named stream, found in any case; [`StoreErrorKind::SharingViolation`] while it is open.
    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()>;

    /// Gives a named stream another name; opens of it go on.
    ///
    /// With `replace`, a stream of the new name is removed in the same step, if nobody has it open
    /// ([`StoreErrorKind::SharingViolation`]); without it nothing is replaced ([`StoreErrorKind::AlreadyExists`]). A new name
    /// that differs from the old one in case only, or not at all, is not taken. The unnamed stream is neither renamed nor
    /// replaced ([`StoreErrorKind::InvalidArgument`]).
    fn rename_stream<'a>(
        &'a self,
        file: FileId,
        from: &'a str,
        to: &'a str,
        replace: bool,
    ) -> StoreFuture<'a, ()>;

    /// Opens a stream of a file, after checking the access and share modes of the other opens of that stream
    /// ([`StoreErrorKind::SharingViolation`]).
    ///
    /// A named stream, found in any case, is created when asked for in `options` (at most [`STREAMS_MAX`] of a
    /// file, else [`StoreErrorKind::InvalidArgument`]). The unnamed stream of a directory ends with
    /// [`StoreErrorKind::IsADirectory`].
    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>>;

    /// Makes `len` bytes at `target` share the storage of the bytes at `source`, replacing what was there.
    ///
    /// Works on the unnamed streams and needs no open; the files may be the same if the ranges do not overlap
    /// ([`StoreErrorKind::InvalidArgument`]). Where a range is not made of whole clusters its edges are copied.
    /// The source must lie within its file ([`StoreErrorKind::InvalidArgument`]); the target grows as needed,
    /// and reads as zeros between its old end and the range. Durable when it completes: data of the source that
    /// was volatile is made durable first. Not atomic: after a crash or an error the target's range may hold old
    /// and new blocks; its size has changed only if all of them are new.
    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()>;

    /// The same files, with volatile changes: they complete when they are made, and wait for no disk. What is durable by its own
    /// contract stays so (writes that ask for it, flushes, cuts, clones, snapshots). Access and sharing of opens count across both.
    ///
    /// The default, `None`, is for a store that has only durable changes: they are what is promised of volatile ones, and more.
    fn volatile(&self) -> Option<Arc<dyn FileStore>> {
        None
    }

    /// Makes all volatile changes durable that have completed: names, attributes, times, security, streams and their names, state.
    ///
    /// It makes no data durable, and so no volatile size, which would speak of it (see there): that is what [`OpenFile::flush`] is for.
    /// A file is there by its name afterwards, as long as it was when that was last durable.
    ///
    /// The default is for a store whose changes are all durable when they complete.
    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Snapshots and clones of trees, where the store has them.
    fn snapshot_store(&self) -> Option<&dyn SnapshotStore> {
        None
    }

    /// Quotas of owners, where the store has them.
    fn quota_store(&self) -> Option<&dyn QuotaStore> {
        None
    }

    /// Space accounting of the volume.
    fn usage(&self) -> StoreFuture<'_, StoreUsage>;

    /// One row of durable state: open handles, reservations, and what else must survive the node.
    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>>;

    /// All rows of `table` whose key starts with `prefix`, in key order.
    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>>;

    /// Applies all changes, in order, in one atomic, durable step. A table's name together with a key longer
    /// than [`STATE_KEY_MAX`], or a value longer than [`STATE_VALUE_MAX`], ends with
    /// [`StoreErrorKind::InvalidArgument`]. Rows of [`OPENS_TABLE`] and [`RESERVATIONS_TABLE`] find room where others are refused;
    /// rows that go, or become no longer than they were, need none.
    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()>;
}

/// An open stream: the data plane. Shared by shards; dropping it closes it.
///
/// # Contract
///
/// **Ranges** are in bytes and need no alignment (aligned ones are faster: whole 4 KiB blocks are not read
/// back). A range that ends beyond [`FILE_SIZE_MAX`] ends with [`StoreErrorKind::InvalidArgument`]. A length of
/// zero succeeds and does nothing.
///
/// **Order, atomicity, durability** are those of `BlockDevice`: overlapping writes leave the data of one of
/// them in each 4 KiB block; a write is durable when it completed with [`Durability::Durable`] or a later
/// flush completed. The size is part of it: when a write is durable, the file is at least as long as its end. So is
/// that the file is there, by the name that it had when this open was made. A size that volatile writes have grown, or that
/// [`OpenFile::set_size`] has through [`FileStore::volatile`], is durable within about a second.
///
/// **Kept sizes.** While an open of the stream does not share deletion, others cannot make it longer or shorter, whichever way
/// ([`StoreErrorKind::SharingViolation`]); nothing has changed then.
///
/// **Never stale data.** Bytes that were never written read as zeros, also after any crash. Bytes that were cut
/// off are gone: when the file grows again, they read as zeros.
///
/// **Access.** Reading needs [`Access::read`], changing [`Access::write`], comparing and writing both, else
/// [`StoreErrorKind::AccessDenied`]; size, flush, ranges and waiting need nothing.
///
/// **Closing** lets no operation go: what was started comes to its end.
pub trait OpenFile: Send + Sync + 'static {
    /// Which file this is.
    fn file(&self) -> FileId;

    /// Size in bytes now.
    fn size(&self) -> u64;

    /// Reads into `buf` and gives it back, cut to the bytes that lie before the end of the file.
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf>;

    /// Writes `data`, growing the file as needed.
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()>;

    /// Makes all completed writes of this stream durable, and how long it is; and all volatile changes of the store that have completed,
    /// as [`FileStore::sync`] does. Data and volatile sizes of others are theirs to flush.
    fn flush(&self) -> StoreFuture<'_, ()>;

    /// Compares `expected` with the bytes at `offset` and, if equal, writes `data`, which is as long, there
    /// durably, with no other write to these blocks between the two. Returns the offset of the first difference
    /// within the range, or `None` when written. [`StoreErrorKind::InvalidArgument`] if the lengths differ or the
    /// range ends beyond the end of the file.
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>>;

    /// Reserves space of the store for the range without changing what it reads; grows the file if `grow` and the range
    /// ends beyond its end. What the store lies on, as a thin space of a pool, may lack the space nevertheless when it is
    /// written. [`StoreErrorKind::NoSpace`]: nothing was reserved, and the file has not grown.
    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()>;

    /// Reserves space for the range as [`OpenFile::allocate`] does, without growing the file, and what the store lies on has its
    /// space then, too: writes to the range find room until others share what it has (snapshots, clones). That can take long, and
    /// nothing waits for it; a store that closes meanwhile ends it ([`StoreErrorKind::Stopped`]). When it fails, the store has
    /// reserved nothing; what lies below may keep some of what it took for the store's other files.
    ///
    /// The default is for a store whose space is all there.
    fn reserve(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.allocate(offset, len, false)
    }

    /// Deallocates whole clusters of the range and zeroes the rest of it; the size stays. What of the range lies
    /// beyond the end has no effect.
    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()>;

    /// Makes the range read as zeros, keeping its space reserved; grows the file if the range ends beyond its
    /// end.
    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()>;

    /// Cuts or grows the file; new bytes read as zeros.
    fn set_size(&self, size: u64) -> StoreFuture<'_, ()>;

    /// Ranges that contain all data of the given one, in order, not touching each other, at most `limit`: what
    /// lies between them reads as zeros. They may be larger than what was written. When there are `limit` of
    /// them, there may be more after the last.
    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>>;

    /// Ends when the size differs from `known`, with the new size.
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64>;
}
