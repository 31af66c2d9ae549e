//! A file store on a space.
//!
//! ```text
//!  FileStore verbs ──► Metadata: one thread, groups of changes ──► metadata log, one durable write for a group
//!                                                              └─► one redb database, committed once a second
//!  OpenFile data   ──► Stream: extents in memory ──► device, in place, no metadata
//!                        hole? map it, and ahead of a stream   shared? replace by a copy
//!  background      ──► freed clusters → zeroed → free (freed.rs, part by part); content of removed files, of deleted snapshots
//!                  ──► sizes that nobody has flushed: once a second, with one flush for all (saving.rs)
//!  SnapshotStore   ──► all changes paused ─► records and names copied, maps linked (trees.rs, links.rs)
//! ```
//! Vocabulary: a *cluster* is 64 KiB; an *extent* maps clusters of a stream to clusters of the device; a *map* is a set of
//! extents, a stream's own or a *frozen* one that streams *link* to; clusters
//! are *free* (zero, nobody's), *freed* (nobody's, not yet zero), used, or *shared* by several extents.
//!
//! Invariants:
//! * **Zero.** A free cluster reads as zeros. So a mapped cluster holds zeros or data of its own stream, and no
//!   crash can show anyone else's old data, without a record of which blocks have been written.
//! * A cluster is given back only after it left every map, every earlier read has ended, and it is zero on disk.
//! * Once a flush of the device has failed none succeeds, whoever asks, until the volume is opened again (`fail_stop.rs`).
//! * What a change says is durable in the metadata log, or committed in the database, before it is answered, unless it is volatile:
//!   those are durable with what comes after them, and not out of order (`groups.rs`). After a write of the log or a commit has
//!   failed the volume stops (`metadata_log.rs`).
//! * What is done outside of the database because of a change waits until that is durable: data goes into clusters that were free
//!   after their mapping is, or they stand in the list of freed ones (`lent.rs`), and what was freed is zeroed after that is.
//! * What owners of files have is charged on the metadata thread, which alone gives out clusters, in the change that maps or frees them;
//!   so a limit holds exactly, with no reservation that somebody could fail to give back (`charges.rs`, `quota_tally.rs`).
//! * What was read of names and files lately is in memory as the last group left it that was answered (`recent.rs`).
//! * A stream that anybody can change is in memory once (`registry.rs`), and its map says what is committed.
//!
//! This differs from the first design, which marked mapped space *unwritten* and logged each first write: with
//! zeroed free space a first write in a mapped window costs what an overwrite costs, and needs no log. The price
//! is zeroing on give-back, which a space does by unmapping.

mod ahead;
mod backend;
mod background;
#[cfg(any(test, feature = "bench"))]
mod bench;
mod charges;
mod check;
mod clear;
mod clusters;
mod copy;
mod core;
mod costs;
mod data_path;
mod database;
mod database_error;
mod differences;
mod extents;
mod fail_stop;
mod finding;
mod folding;
mod free;
mod freed;
mod gate;
mod give_back;
mod groups;
mod growth;
mod holes;
mod integrity;
mod jobs;
mod known;
mod leftovers;
mod lending;
mod lent;
mod links;
mod load;
mod log_feature;
mod mapping;
mod metadata_log;
mod meter;
mod names;
mod namespace;
mod open_file;
mod pending;
mod pin;
mod quota_store;
mod quota_tally;
mod recent;
mod registry;
mod replay;
mod reserve;
mod room;
mod rows;
mod saving;
mod security;
mod session;
mod shadow;
mod sizes;
mod snapshots;
mod space;
mod state_rows;
mod stopped;
mod store;
mod stream;
mod stream_records;
mod tables;
#[cfg(test)]
mod tests;
mod trees;
mod unshare;
mod volume;

pub use check::{CheckOptions, Repair, verify};
pub use finding::{Finding, Severity};
pub use volume::{Environment, FormatOptions, Volume};
