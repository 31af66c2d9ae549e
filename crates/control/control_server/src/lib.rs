//! The node behind the API: it assembles disks, pools, volumes, LUNs and targets, and keeps its configuration.
//!
//! ```text
//!   Unix socket ── http ── Node ─┬─ config_store   what cannot be found on disks (TOML, atomic)
//!   (root or same user)  │       ├─ access, audit  tokens, sessions, roles; the record of changes
//!   network (TLS 1.3) ───┘       ├─ disk_table     LocalDisk → FaultDisk → StatsDisk, by stable id
//!                                ├─ path           each pool's way: take, fence, open, restore, publish, and down; serve
//!                                ├─ luns           files of volumes → logical units → targets, portals
//!                                ├─ shares         folders of volumes → SMB; accounts: who may use them
//!                                └─ watch          returned disks, spares, repair, what has stopped, jobs
//!   control runtime (2 threads)  │  run_on   ┌─ shard 0 ─┐ ┌─ shard 1 ─┐
//!                                └──────────►│ pools, volumes, iSCSI: one thread each │
//! ```
//!
//! Invariants:
//! * One change of the configuration at a time, under [`Node`]'s change lock, and one of each pool's shape, under the pool's turn
//!   (`node::path` says in which order). Nobody waits for a pool's disks with what others need: a pool that does not answer holds up only
//!   what is its own. Looking takes no lock, and does not wait for long.
//! * A pool is opened in an epoch that nobody had before, after its disks are fenced; shares are published when what clients had open is back.
//! * The configuration on disk is replaced only as a whole (write aside, sync, rename, sync the directory),
//!   and before the change is answered.
//! * The data directory has one owner at a time (a lock on a file, released by the kernel when the owner
//!   dies); a socket left by a dead owner is replaced.
//! * Nothing that destroys data runs without the name repeated in `confirm`.
//!
//! * Over the network nobody is let in without a token or a session, and each route says which role it needs (`http::gate`).
//!
//! * On a node of a cluster, pools come and go by orders (`cluster`), and what all nodes have in common is changed for all of them or not at all.
//!
//! Deliberately absent: which node owns a pool (`pool_ownership` decides that).

mod access;
mod audit;
mod backend;
pub mod cluster;
mod config_store;
mod data_dir;
mod differences;
mod entropy;
mod events;
mod files;
mod forecast;
mod http;
mod images;
mod jobs;
pub mod local;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
mod metrics;
mod network;
mod node;
mod notify;
pub mod offline;
mod open_told;
mod past;
mod running;
mod socket;
mod system;

pub use backend::{
    AddressBackend, Backends, BeginForwarding, DiskBackend, DiskContent, DiskFence, Fenced, FoundDisk, Held,
    IscsiBackend, MachineAddress, NewPool, NewSpace, NoFence, OpenDisk, OpenVolume, Opened, PoolBackend,
    PoolDisk, PoolHandle, PoolInfo, PoolOwner, ServedBy, ServedLun, ShardBackend, SmbBackend, SmbInfo,
    SpaceInfo, Targets, VolumeHandle, WantedShares, Whose, Work,
};
pub use cluster::{Carried, ChangeOver, START_AGAIN};
pub use config_store::Current;
pub use entropy::{entropy, random_secret};
pub use node::Node;
pub use running::{NodeOptions, Running, Signals, notify_supervisor};
pub use system::{Iscsi, Smb, SystemDisk, SystemDisks, SystemShards, UnitBackend};
