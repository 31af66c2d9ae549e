//! An image of Ceph (RBD) as a [`BlockDevice`](block_device::BlockDevice): no kernel module is needed, and it carries reservations.
//!
//! ```text
//!   read, write, flush …   RbdDisk ──► Session: a client of the cluster of its own, and the image open through it
//!                             │           transfers are asynchronous; at most DEPTH of them are under way
//!   register, preempt …       └──────► the table of registrations, an object beside the image, changed by compare-and-set
//! ```
//! **Who may write.** Whoever has the image's exclusive lock, which is taken before the first write and never given to who asks for it.
//! The holder of the reservation takes it: the client that has it is *shut out* by the cluster first (blocklist), with all that it has
//! under way, then its lock is broken. So an owner that stood still finds each of its requests refused. The table says in which order
//! owners come: it is what `pool_fence` reads and changes.
//!
//! Invariants:
//! * A write is begun by a session only while it has the lock, as far as it knows; one that has lost it without knowing has been shut out.
//! * The table is changed before the lock is taken. Who finds itself holder without the lock takes it before it says that it is
//!   holder, so a change whose second half was cut off is finished by the next look.
//! * Each opening is a client of its own. A registration under a key ends earlier openings that had the same one.
//! * A request that Ceph does not answer in [`Times::answer`] may take effect later. Its session is never used again: the disk is
//!   gone, for good, and shuts itself out before it is closed; where it cannot, it keeps the lock, and the next opening has to break it.
//! * No request needs an event loop: a volume's metadata thread, which has none, makes requests, too.
//! * The library's cache is off: what is written is durable when it is answered. An image that demands a cache is refused.
//! * What stands in the table is anybody's: it is bounded, and one that cannot be read is no empty one.
//!
//! Deliberately absent: snapshots, clones and namespaces' management, images without the exclusive lock, and growing while in use.

mod address;
mod clock;
mod disk;
pub mod fuzz;
mod reservations;
mod session;
mod table;
mod verdict;

pub use address::{Address, AddressError, PREFIX};
pub use disk::RbdDisk;
pub use session::{OpenError, Times};

/// How an image is opened.
pub use librbd::Access;
