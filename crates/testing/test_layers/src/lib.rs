//! Layers that tests put before a device, a store or an open file, where operations are to be held up, delayed or spoiled.
//!
//! ```text
//!   who uses it ──► Layered(L) ──► L's own way, where it has one ──► L::below()
//! ```
//! A test implements [`DeviceLayer`], [`StoreLayer`] or [`FileLayer`] and writes only the operations that it changes; all others go
//! on to what is below. [`Layered`] is the [`BlockDevice`], [`FileStore`] or [`OpenFile`] then: the orphan rule does not let a layer
//! be one itself.
//!
//! [`until_wait`] lets a request go on to one of its waits, to be dropped there, and [`slow`] is the store that makes each of its
//! operations such a wait.

mod drops;
mod slow;

use std::ops::Deref;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Durability, Geometry, Reservations};
use file_store::{
    DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileStore, InfoChange, NewFile,
    OpenFile, OpenOptions, QuotaStore, Range, SnapshotStore, StateChange, StateRow, StoreFuture, StoreUsage,
    StreamInfo,
};

pub use drops::{Left, until_wait};
pub use slow::{OnDrop, Slow, slow};

/// A layer as what it stands before.
#[derive(Debug)]
pub struct Layered<L>(pub L);

/// What a test tells its layer.
impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

/// A trait for layers, and what makes an implementation of the lower trait of one: each operation is listed once.
macro_rules! layer {
    (
        $(#[$about:meta])*
        $layer:ident before $below:ident:
        at once { $($known:ident() -> $value:ty;)* }
        $(unless the layer says so { $($own:ident() -> $kept:ty = $default:expr;)* })?
        in time as $future:ident { $($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)* }
    ) => {
        $(#[$about])*
        pub trait $layer: Send + Sync + 'static {
            /// What it stands before.
            fn below(&self) -> &dyn $below;

            /// What comes of any operation passes here on its way back.
            fn answered<'a, T: 'a>(&'a self, answer: $future<'a, T>) -> $future<'a, T> {
                answer
            }

            $(
                #[doc = concat!("See [`", stringify!($below), "::", stringify!($known), "`].")]
                fn $known(&self) -> $value {
                    self.below().$known()
                }
            )*

            $($(
                #[doc = concat!("See [`", stringify!($below), "::", stringify!($own), "`].")]
                fn $own(&self) -> $kept {
                    $default
                }
            )*)?

            $(
                #[doc = concat!("See [`", stringify!($below), "::", stringify!($name), "`].")]
                fn $name<'a>(&'a self, $($argument: $kind),*) -> $future<'a, $answer> {
                    self.below().$name($($argument),*)
                }
            )*
        }

        impl<L: $layer> $below for Layered<L> {
            $(
                fn $known(&self) -> $value {
                    self.0.$known()
                }
            )*

            $($(
                fn $own(&self) -> $kept {
                    self.0.$own()
                }
            )*)?

            $(
                fn $name<'a>(&'a self, $($argument: $kind),*) -> $future<'a, $answer> {
                    self.0.answered(self.0.$name($($argument),*))
                }
            )*
        }
    };
}

layer! {
    /// What stands before a device; what it does not say for itself goes on to the device. Vectored writes come as plain ones.
    DeviceLayer before BlockDevice:
    at once {
        geometry() -> &Geometry;
        size() -> u64;
        reservations() -> Option<&dyn Reservations>;
    }
    in time as BlockFuture {
        read(offset: u64, buf: IoBuf) -> IoBuf;
        write(offset: u64, data: SharedBuf, durability: Durability) -> ();
        flush() -> ();
        unmap(offset: u64, len: u64) -> ();
        write_zeroes(offset: u64, len: u64, durability: Durability) -> ();
        has_room_for(ranges: Vec<(u64, u64)>) -> bool;
        allocate(offset: u64, len: u64) -> ();
        wait_resize(known: u64) -> u64;
    }
}

layer! {
    /// What stands before a store; what it does not say for itself goes on to the store.
    StoreLayer before FileStore:
    at once {
        root() -> FileId;
        snapshot_store() -> Option<&dyn SnapshotStore>;
        quota_store() -> Option<&dyn QuotaStore>;
    }
    unless the layer says so {
        // What is changed that way would pass by it.
        volatile() -> Option<Arc<dyn FileStore>> = None;
    }
    in time as StoreFuture {
        lookup(directory: FileId, name: &'a str) -> DirectoryEntry;
        create(directory: FileId, name: &'a str, new: NewFile) -> FileId;
        remove(directory: FileId, name: &'a str) -> ();
        link(file: FileId, to: (FileId, &'a str), replace: bool) -> ();
        names(file: FileId) -> Vec<(FileId, String)>;
        rename(from: (FileId, &'a str), to: (FileId, &'a str), replace: bool) -> ();
        read_directory(directory: FileId, cursor: DirectoryCursor, limit: usize) -> DirectoryPage;
        info(file: FileId) -> FileInfo;
        set_info(file: FileId, change: InfoChange) -> ();
        security(file: FileId) -> Vec<u8>;
        set_security(file: FileId, descriptor: Vec<u8>) -> ();
        streams(file: FileId) -> Vec<StreamInfo>;
        remove_stream(file: FileId, stream: &'a str) -> ();
        rename_stream(file: FileId, from: &'a str, to: &'a str, replace: bool) -> ();
        open(file: FileId, options: OpenOptions) -> Arc<dyn OpenFile>;
        clone_range(source: (FileId, u64), target: (FileId, u64), len: u64) -> ();
        sync() -> ();
        usage() -> StoreUsage;
        state_get(table: &'a str, key: &'a [u8]) -> Option<Vec<u8>>;
        state_scan(table: &'a str, prefix: &'a [u8]) -> Vec<StateRow>;
        state_write(changes: Vec<StateChange>) -> ();
    }
}

layer! {
    /// What stands before an open file; what it does not say for itself goes on to the file.
    FileLayer before OpenFile:
    at once {
        file() -> FileId;
        size() -> u64;
    }
    in time as StoreFuture {
        read(offset: u64, buf: IoBuf) -> IoBuf;
        write(offset: u64, data: SharedBuf, durability: Durability) -> ();
        flush() -> ();
        compare_and_write(offset: u64, expected: SharedBuf, data: SharedBuf) -> Option<u64>;
        allocate(offset: u64, len: u64, grow: bool) -> ();
        reserve(offset: u64, len: u64) -> ();
        punch_hole(offset: u64, len: u64) -> ();
        zero_range(offset: u64, len: u64, durability: Durability) -> ();
        set_size(size: u64) -> ();
        allocated_ranges(offset: u64, len: u64, limit: usize) -> Vec<Range>;
        wait_resize(known: u64) -> u64;
    }
}
