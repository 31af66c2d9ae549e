//! Files of this machine as [`OpenFile`]s: what works over a file of a volume works over a file here.
//!
//! ```text
//!   LocalFile: OpenFile ──► the thread's I/O engine ──► the page cache ──► the file system
//! ```
//! A file that is opened to be written is locked (flock) against others that do so or read it; one that is read, against those that
//! write. Both also take and respect the locks of QEMU ([`io_engine::image_locks`]). Programs that take no locks are not kept out.
//!
//! Invariant: after a flush or durable write has failed nothing is promised any more (fail stop): what the system still holds of
//! earlier writes is not known.
//!
//! Deliberately absent: direct I/O (contents of any alignment are read and written), directories, streams.

mod file;
#[cfg(test)]
mod tests;

pub use file::{LocalFile, Purpose};

#[cfg(doc)]
use file_store::OpenFile;
