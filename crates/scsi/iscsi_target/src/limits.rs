//! What a peer can make us hold, each with its reason.

use std::time::Duration;

/// A login takes well below a second; a longer one is a half-open or hostile connection.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections that have not logged in, from one address. A host opens at most some tens at boot.
pub const MAX_LOGINS_PER_ADDRESS: usize = 64;
/// Connections that have not logged in, in all: each holds a descriptor and up to 64 KiB of text.
pub const MAX_LOGINS: usize = 1024;
/// Logged-in connections of one portal, where the node's memory for requests allows that many: each takes [`tcp_service::CONNECTION`]
/// of it.
pub const MAX_CONNECTIONS_PER_PORTAL: usize = 2048;
/// Sessions of one target, of all hosts together. `share` has what one of them may take: a 64-node cluster with 8 paths each fits,
/// also where all its nodes are one CHAP user.
pub const MAX_SESSIONS_PER_TARGET: usize = 2048;
/// Commands of a session that an initiator may have on the way (MaxCmdSN): beyond the depth of common initiators
/// (Linux 128, Windows 255 over all LUNs, ESXi 128).
pub const COMMAND_WINDOW: u32 = 256;
/// Immediate commands of a connection in progress; initiators use them for task management and NOP.
pub const MAX_IMMEDIATE: usize = 32;
/// Longest transfer of one command: buffers are contiguous. Data beyond is never asked for.
pub const MAX_TRANSFER: u32 = 32 << 20;
/// Bytes of all commands of a connection in progress; further commands wait. Enough for depth 64 at 512 KiB, and
/// for one command of [`MAX_TRANSFER`].
pub const TRANSFER_BUDGET: u64 = 32 << 20;
/// Answers not taken by the peer, beyond which nothing more is read from it.
pub const SEND_HIGH_WATER: usize = 4 << 20;
/// Commands that ended in one turn after which their answers are sent before going on.
pub const SEND_BATCH: usize = 16;
/// Longest data segment of text and NOP requests: with a header and its extensions below [`tcp_service::RECEIVE_BUFFER`].
pub const MAX_SMALL_DATA: usize = 64 << 10;
/// Data segments from here on are read from the socket to where they belong, without a copy. Below, the copy is
/// cheaper than the further system calls.
pub const BULK_THRESHOLD: usize = 32 << 10;
/// How often an idle connection is looked at, unless [`crate::ServerConfig::dead_after`] needs a closer look.
pub const TICK: Duration = Duration::from_secs(5);
/// Ticks without a byte from the peer before we ask with a NOP-In.
pub const IDLE_TICKS: u32 = 3;
/// A connection is closed when the peer has sent no byte, or sending to it has made no progress, for this long. It is no shorter because initiators that
/// sleep for a minute and answer then are alive (a host that is paused or moved, libiscsi's suite). Not longer: what
/// a dead initiator holds is given back. One that comes back sooner takes its session over and waits for nothing.
pub const DEAD_AFTER: Duration = Duration::from_secs(120);
/// How long a session may take to end before its successor is refused.
pub const REINSTATE_TIMEOUT: Duration = Duration::from_secs(5);
