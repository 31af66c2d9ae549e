//! Windows file semantics over one [`FileStore`](file_store::FileStore) (MS-FSA), without a protocol: the half of the SMB
//! server that knows files. The other half knows connections, sessions and messages.
//!
//! ```text
//!   FileSystem::create ─► path, access check, share modes, breaks ─► Arc<Open> ─► read write lock query set notify …
//!          │                                                            │
//!          │     Node (one per file that is open or above one)          │
//!          └──── place · attributes · delete-pending · streams ◄────────┘
//!                                             └ share modes · oplocks and leases · byte-range locks
//! ```
//!
//! * **Threads.** Everything may be called from several shards. State is behind short mutexes, which are never held
//!   across an await; a future stays on the shard that started it.
//! * **Dropping** a future cancels what it waits for of others. A change that it has begun comes to its end (`asking`, a CREATE:
//!   `create::asker`), so that what is known here is what the store has; closing, and whatever changes the file next, waits for it.
//! * **Opens** live until [`Open::close`]; dropping the `Arc` closes nothing, as the tables keep one too.
//! * **Waiting.** Whoever needs another client's acknowledgement says so through `on_wait`, also that the wait is over, and goes on
//!   after [`BREAK_TIMEOUT`] at the latest. Only meanwhile is it true of a request that is given up that it has done nothing.
//! * **Errors** carry the client's status, a reason for the log, and what the client is told besides ([`FileError`]).
//!   Warnings that carry output (BUFFER_OVERFLOW, NOTIFY_ENUM_DIR) are `Ok` values.
//! * **Durable state** of an open is a [`record::OpenRecord`]: made by [`Open::record`], stored by the server, given back to
//!   [`FileSystem::restore`] before anybody else is served.

mod aliases;
mod api;
mod asking;
mod breaks;
mod caching;
mod changes;
mod close;
mod create;
mod data;
mod directory;
mod ea;
mod error;
mod extras;
mod file_system;
mod fsctl;
pub mod fuzz;
mod hard_links;
mod lock_requests;
mod locks;
mod name_locks;
mod notify;
mod path;
mod previous;
mod query;
mod quotas;
pub mod record;
mod rename;
mod scan;
mod security;
mod set;
mod share_mode;
mod shared_folders;
mod short_names;
mod stream_names;
#[cfg(test)]
mod tests;
mod times;
mod volume_info;
mod watches;
mod wildcard;
mod write_time;

pub use api::{
    CachingRequest, Caller, Closes, CreateRequest, DiskUse, Durability, Granted, Holder, Kept, LeaseBreak,
    LeaseRequest, LeaseRequestV2, LeftBehind, NoHolder, OpenId, OpenInfo, OpenSummary, OwnerId, ShareRoot,
};
pub use create::Created;
pub use error::{Detail, FileError, Result};
pub use extras::disk_rows;
pub use file_system::{DirectoryQuery, FileSystem, OPENS_MAX, Open, OpenLookup, VolumeOptions, WriteFlags};
pub use fsctl::FSCTLS;
pub use quotas::{QuotaChange, QuotaChanges};
pub use set::SET_CLASSES;
pub use shared_folders::SharedFolder;

/// How long a client has to acknowledge a break before it counts as done (MS-SMB2 3.3.2.1, 3.3.2.5: 35 seconds).
pub const BREAK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(35);
