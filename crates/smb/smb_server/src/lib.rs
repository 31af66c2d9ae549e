//! The protocol half of the SMB 3 server: listeners, connections, sessions, tree connects, opens (MS-SMB2). Files and
//! what Windows means by them are in `smb_files`.
//!
//! ```text
//!   SmbServer (server)    what the control plane talks to; restore: opens that come back after a restart
//!     │  shared             what all connections have in common: shares, sessions, opens
//!     └─ connection       one task on one shard: receive ─► chain ─► commands ─► answer ─► tcp_service::SendQueue
//!          ├─ session     a user with keys, over one or more connections (channel)
//!          │    └─ tree   a share, with the rights that it grants
//!          │         └─ open ─► smb_files::Open, or a named pipe (pipe); link: the way back to the client;
//!          │                    persistence: what of it outlives the server; table: all of the server's
//!          ├─ queue       reads and writes wait for their turn at the volume: limits and shares
//!          │    └─ logical_flows  what hosts say of virtual machines whose disks they have open
//!          ├─ disks       files that several have open as one SCSI disk (MS-RSVD)
//!          ├─ clients     over which connection a client hears of its leases
//!          └─ replay      what is sent twice, on another channel, is done once
//! ```
//!
//! Invariants:
//! * A connection stays on its shard for life; what it shares with others is behind short locks, never held over an await.
//! * Nothing of a message is believed before its signature or encryption was checked, but for NEGOTIATE and SESSION_SETUP,
//!   which the keys prove afterwards; a CANCEL needs a session, but no signature: it only stops what its sender asked for.
//! * A message number is good once; a connection that breaks this, or sends what is no SMB 2, is closed.
//! * A break that was told over a connection that is lost is told once more over another one of the client, if there is one;
//!   a CREATE that a client can ask for again by its own name is finished even if its channel is lost.
//! * SMB 1 is never served; who tries is remembered ([`SmbServer::smb1_attempts`]).
//! * What a client makes us hold is bounded: `limits`. Of what all share no user takes what others need: `places`.
//!
//! Cost of a READ without signature: one box for its future, one pooled buffer that the disk fills and the socket sends
//! (headers are written before the data), no copy of the data. Signing and encryption work in place. A WRITE of more than
//! 32 KiB is received to where the disk takes it from; a smaller one is copied there once.

mod clients;
mod commands;
pub mod config;
mod connection;
mod disks;
mod endings;
pub mod limits;
pub mod listing;
mod logical_flows;
mod open;
mod peer;
pub mod pipe;
mod places;
mod queue;
mod record;
mod replay;
mod restore;
mod server;
mod session;
mod share;
mod shared;
#[cfg(test)]
mod tests;
mod tree;

pub use config::{
    ConfigError, Directory, Encryption, ServerConfig, ShareConfig, ShareKind, SharePermission, ShareRight,
    Signing,
};
pub use disks::{DiskAnswer, DiskFacts, DiskFile, DiskFuture, NoSharedDisks, SharedDisk, SharedDisks};
pub use listing::{ChannelInfo, OpenInfo, SessionInfo, ShareTraffic, Smb1Attempt, TreeInfo};
pub use pipe::{NoPipes, Pipe, PipeClient, PipeService, PipeWork};
pub use queue::{NoQueues, Queues, Wanted};
pub use record::{NoRecord, QuotasAsked, Record};
pub use restore::Restored;
pub use server::SmbServer;
pub use shared::{Interfaces, Parts};
