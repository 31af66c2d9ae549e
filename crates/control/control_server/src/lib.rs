//! The node behind the API: it assembles disks, pools, volumes, LUNs and targets, and keeps its configuration.
//!
//! ```text
//!   Unix socket ── http ── Node ─┬─ config_store   what cannot be found on disks (TOML, atomic)
//!   (root or same user)  │       ├─ access, audit  tokens, sessions, roles; the record of changes
//!   network (TLS 1.3) ───┘       ├─ disk_table     LocalDisk → FaultDisk → StatsDisk, by stable id
//!                                ├─ pools, volumes opened in parallel, one volume per space
//!                                ├─ luns           files of volumes → logical units → targets, portals
//!                                ├─ shares         folders of volumes → SMB; accounts: who may use them
//!                                └─ watch          returned disks, spares, repair, what has stopped, jobs
//!   control runtime (2 threads)  │  run_on   ┌─ shard 0 ─┐ ┌─ shard 1 ─┐
//!                                └──────────►│ pools, volumes, iSCSI: one thread each │
//! ```
//!
//! Invariants:
//! * One change at a time: everything that changes the configuration or the pools' shape runs under
//!   [`Node`]'s change lock. Looking takes no such lock and never waits for disks.
//! * The configuration on disk is replaced only as a whole (write aside, sync, rename, sync the directory),
//!   and before the change is answered.
//! * The data directory has one owner at a time (a lock on a file, released by the kernel when the owner
//!   dies); a socket left by a dead owner is replaced.
//! * Nothing that destroys data runs without the name repeated in `confirm`.
//!
//! * Over the network nobody is let in without a token or a session, and each route says which role it needs (`http::gate`).
//!
//! Deliberately absent: any decision that needs more than this node.

mod access;
mod audit;
mod backend;
mod config_store;
mod data_dir;
mod differences;
mod events;
mod files;
mod http;
mod jobs;
pub mod local;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
mod metrics;
mod network;
mod node;
pub mod offline;
mod open_told;
mod running;
mod socket;
mod system;

pub use backend::{
    Backends, DiskBackend, DiskContent, DiskFence, FoundDisk, IscsiBackend, NewPool, NewSpace, NoFence,
    OpenDisk, OpenVolume, Opened, PoolBackend, PoolDisk, PoolHandle, PoolInfo, PoolOwner, ServedLun,
    ShardBackend, SmbBackend, SmbInfo, SpaceInfo, VolumeHandle, WantedShares, Work,
};
pub use config_store::Current;
pub use node::{Node, NodeDriver, Ordered, PoolDriver};
pub use running::{NodeOptions, Running, Signals, entropy, notify_supervisor, random_secret};
pub use system::{Iscsi, Smb, SystemDisk, SystemDisks, SystemShards, UnitBackend};
