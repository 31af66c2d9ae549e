//! Virtual disks in VHDX files: an [`Image`] is a [`BlockDevice`](block_device::BlockDevice) over an
//! [`OpenFile`](file_store::OpenFile).
//!
//! ```text
//!   create ──► file ──► Opening::read ──► finish(parent) ──► Image: read, write, flush, unmap, resize, compact ──► close
//!                          │ header, log, regions, metadata     │ read.rs, write.rs: places of blocks from
//!                          │                                    ▼
//!                          │            pages: BAT and bitmaps in memory ──commit──► log, then in place (journal)
//!                          └ open_chain: the same for all parents       space: which parts of the file are free
//! ```
//! Invariants:
//! * **What was flushed survives.** Content is durable before the entry of the table that leads to it is in the log; the log is
//!   durable before a flush is acknowledged; in place follows.
//! * **Nobody sees what is not theirs.** Space that others had is zeroed before it is led to, and is not given to anybody while
//!   an operation or the table in the file may still lead there.
//! * **A file is an image at every moment.** Each change of its structures is one entry of its log, there whole or not at all.
//! * **An image that is read changes nothing**, also where its log has to be replayed.
//! * Memory: the sectors of the table that were used last ([`pages`]), most of them from what others share ([`Memory`]), and for an image that is written one bit for each MiB of
//!   the file, whatever the size of the disk.
//!
//! Deliberately absent: sharing of one image by several writers; who opens a file exclusively is who opens it (files of volumes have
//! share modes). Names of files: whoever knows them is a [`Finder`].

mod bits;
mod chain;
mod check;
mod commit;
mod compact;
mod create;
mod error;
mod identity;
mod image;
mod journal;
mod linkage;
mod memory;
mod merge;
mod open;
mod pages;
mod read;
mod resize;
mod source;
mod space;
#[cfg(test)]
mod tests;
mod used;
mod write;

pub use chain::{CHAIN_MAX, Finder, Finding, Found, open_chain, open_parent};
pub use check::{Report, check};
pub use compact::{Compacted, Progress};
pub use create::{BLOCK_SIZE, CreateOptions, DIFFERENCING_BLOCK_SIZE, Kind, create};
pub use error::{ImageError, ImageErrorKind, printable};
pub use image::{Held, Image, ImageInfo};
pub use memory::{Memory, unlimited};
pub use open::{Mode, Opening};
pub use vhdx_format::{DISK_SIZE_MAX, ParentLocator, Uuid};
