//! Files and block devices of this machine as [`block_device::BlockDevice`]s, and their discovery.
//!
//! [`LocalDisk`] is the bottom of the storage stack: one open file or device, reached through the calling
//! shard's I/O engine, past the page cache (O_DIRECT) where the file system allows it. The simulator runs the
//! same code over its own files.
//!
//! A block device of several machines that keeps persistent reservations offers them ([`block_device::Reservations`]).
//! Of any other one that other machines may reach ([`LocalDisk::may_be_shared`]) nothing keeps them from writing to it.
//!
//! Deliberately absent: caching, checksums, retries of failed writes.

mod discovery;
mod disk;
mod open;
mod reach;
mod reservations;

#[cfg(test)]
mod tests;

pub use discovery::{FoundDisk, discover};
pub use disk::{LocalDisk, LocalGeometry};
pub use open::{CreateFile, OpenError, OpenMode};
