//! iSCSI portals, sessions and connections on shards.
//!
//! ```text
//!   portal (server) ── accept ──► shard (round robin, for good)
//!                          serve         the two phases of a connection
//!                          login_phase   LoginMachine; finds, makes or reinstates the Session
//!                          connection    one task: receive ─► commands ─► ScsiDevice ─► transmit
//!   shared: targets with their sessions, portals, what the control plane set
//!   share: what one host may take of sessions and connections, which all share   refused: what the log says of who is refused
//!   Session (shared by its connections, maybe on several shards): CmdSN order and window, nexus, members
//! ```
//!
//! # A command's life, and what it costs
//! One `read` fills a connection's buffer; all complete PDUs in it are taken. A command becomes a future in the
//! connection's own set (no task per command) and all of them are polled before anything else happens, so disk
//! requests of the whole batch enter the kernel together when the shard ends its turn. Answers are gathered and
//! leave in one `writev`: headers from one reused buffer, data straight from the [`aligned_buffer::SharedBuf`]
//! that the device gave. Budget: 2 system calls per batch beyond the event loop's, 0 copies of read data, 1 copy
//! of small write data, 0 copies of large write data (read from the socket to its final place); two small
//! allocations per command (the device's future and its place in the set).
//!
//! # Invariants
//! * A connection never leaves its shard; what others tell it goes through a mailbox (`session::Peer`).
//! * No lock is held across an await. With one connection the session's lock is never contended.
//! * A stalled peer holds only what `limits` allows, and nobody else up.
//! * `nexus_lost` comes after the last command's future was dropped, and before a reinstating session begins.
//! * No host keeps another from its first sessions (`share` has the rule); nor from logging in (`tcp_service` has the seats of those who
//!   have not, discovery sessions among them), nor from memory (its budget serves connections in turn).
//! * Error recovery level 0: what breaks a connection breaks its session (RFC 7143 7.1.4.1).
//!
//! Deliberately absent: SCSI semantics (in the device), error recovery levels 1 and 2, SNACK, bidirectional
//! commands.

mod config;
mod connection;
pub mod limits;
mod listing;
mod login_phase;
mod refused;
mod serve;
mod server;
mod session;
mod share;
mod shared;
mod transmit;

pub use config::{
    Account, AuthConfig, ConfigError, DiscoveryAuth, InitiatorAccess, PortalConfig, ServerConfig,
    TargetConfig,
};
pub use listing::{ConnectionInfo, SessionInfo};
pub use server::IscsiServer;
