//! Snapshots and clones of whole trees: what a store may have beside its files.

use crate::{FileId, FileKind, StoreFuture};

/// Most files and directories in a snapshot or a cloned tree: it is one step, and others wait for it meanwhile.
pub const TREE_MAX: usize = 1_000_000;
/// Most snapshots of a store: all of them are listed at once.
pub const SNAPSHOTS_MAX: usize = 65_536;

/// A snapshot; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// What is to be taken.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Its name: as a file's ([`crate::names`]), and no other snapshot's of the store, in any case.
    pub name: String,
    /// A file, or a directory with all that is in it; the root is the whole store.
    pub source: FileId,
    /// Make volatile data durable first, so that little is left to do while writes are held up.
    pub quiesce: bool,
    /// Who takes it: the name of a schedule; empty for people.
    pub maker: String,
    /// Where the source is, for people; kept as it is.
    pub path: String,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// It.
    pub id: SnapshotId,
    /// Its name.
    pub name: String,
    /// What it is of; that may be gone.
    pub source: FileId,
    /// Where it can be looked at: a file or directory as any, but for changes.
    pub root: FileId,
    /// What `root` is.
    pub kind: FileKind,
    /// When it was taken, in nanoseconds since 1970-01-01 00:00 UTC.
    pub created: u64,
    /// Whether volatile data was made durable first.
    pub quiesced: bool,
    /// Who took it: the name of a schedule; empty for people.
    pub maker: String,
    /// Where the source was, for people.
    pub path: String,
}

/// A range of a stream that differs from another stream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; it does not reach beyond the end of the target.
    pub len: u64,
    /// It reads as zeros in the target, which has no space there.
    pub hole: bool,
}

/// What a file or tree takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// Files and directories, itself included.
    pub files: u64,
    /// Sum of the sizes of all streams.
    pub logical: u64,
    /// Space that its streams have, shared space counted for each of them.
    pub allocated: u64,
    /// The part of `allocated` that other streams have, too.
    pub shared: u64,
    /// The part of `allocated` that no other stream has: what removing any one file gives back.
    pub unique: u64,
}

/// Snapshots and clones of a store.
///
/// # Contract
///
/// **One point in time.** What a snapshot or a clone of a tree holds is what its source held at one moment between
/// the call and its end, over all files: each operation that changes something is in it whole or not at all, and one
/// that had completed before the call is in it. It is durable when the call ends, volatile data of its files included.
///
/// **Snapshots never change.** Everything in one can be looked up, listed, opened for reading and cloned, as any file,
/// by way of [`Snapshot::root`]; whatever would change something ends with [`crate::StoreErrorKind::ReadOnly`]. The root of
/// a snapshot is its own parent. A snapshot of a part of a snapshot ends with [`crate::StoreErrorKind::InvalidArgument`].
///
/// **Clones** are files and trees as any: named streams, attributes, times and security descriptors are the source's.
/// Reading a clone costs what reading its source costs, however many clones were between.
///
/// **Space.** Both share the space of their source until one of the two changes. What a deleted snapshot alone had comes
/// back soon, not at once.
pub trait SnapshotStore: Send + Sync {
    /// Takes a snapshot. [`crate::StoreErrorKind::AlreadyExists`] when the name is taken.
    fn take_snapshot(&self, new: NewSnapshot) -> StoreFuture<'_, Snapshot>;

    /// All snapshots, the oldest first.
    fn snapshots(&self) -> StoreFuture<'_, Vec<Snapshot>>;

    /// Takes a snapshot off the list and gives up what it has; who has a file of it open can read on.
    fn delete_snapshot(&self, id: SnapshotId) -> StoreFuture<'_, ()>;

    /// Makes a file or tree under `name` in `directory` that is as `source` is, which may belong to a snapshot.
    fn clone_tree<'a>(&'a self, source: FileId, directory: FileId, name: &'a str) -> StoreFuture<'a, FileId>;

    /// Where a stream of `target` differs from that of `base`, from `from` on, in order and at most `limit`: outside of
    /// these ranges, and of what follows the last when there are `limit`, both read the same up to the end of the
    /// target. Where `base` has no such stream, it is taken to be empty. No data is read for this, so ranges may be larger
    /// than what differs. What is written meanwhile counts or not.
    fn differences<'a>(
        &'a self,
        base: FileId,
        target: FileId,
        stream: &'a str,
        from: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Difference>>;

    /// The store's own identity, for those who compare where something comes from; zeros where it has none.
    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    /// What a file or tree takes.
    fn space(&self, root: FileId) -> StoreFuture<'_, SpaceUse>;
}
