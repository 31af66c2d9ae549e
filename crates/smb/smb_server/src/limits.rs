//! What a peer can make us hold, each with its reason.

use std::time::Duration;

/// Most bytes of one READ, WRITE or transaction from SMB 2.1 on: what Windows servers announce.
pub const MAX_TRANSFER: u32 = 8 << 20;
/// The same in SMB 2.0.2, which has no credits per size.
pub const MAX_TRANSFER_SMALL: u32 = 64 << 10;
/// Bytes that one credit pays for (MS-SMB2 3.3.5.2.5).
pub const CREDIT_BYTES: u32 = 64 << 10;
/// The longest packet that is taken: the largest WRITE with its headers, or a compound of many small messages.
pub const MAX_PACKET: usize = MAX_TRANSFER as usize + (64 << 10);
/// The longest packet before somebody has logged in: a NEGOTIATE with all contexts, a token with a large ticket.
pub const MAX_PACKET_BEFORE_LOGIN: usize = 128 << 10;
/// Credits that a connection can have: the depth at 4 KiB of many virtual machines behind one connection, and of
/// 64 WRITEs of [`MAX_TRANSFER`] at once; as Windows.
pub const MAX_CREDITS: u16 = 8192;
/// Messages of one compound. Clients send up to eight.
pub const MAX_COMPOUND: usize = 64;
/// Sessions of one connection; a terminal server has one per user.
pub const MAX_SESSIONS_PER_CONNECTION: usize = 4096;
/// How long a client that comes back with another session waits for writes of its earlier one to end: shorter than clients
/// wait for the answer to a login (Windows: 60 s).
pub const MAX_WRITE_WAIT: Duration = Duration::from_secs(30);
/// Sessions of the server. Of this and of all else that is counted for the server a user gets a part only: `places`.
pub const MAX_SESSIONS: usize = 65_536;
/// Connections of one session (Windows clients use up to 32).
pub const MAX_CHANNELS: usize = 32;
/// Requests to join a session that are remembered so that none is answered twice: two for each of a thousand channels
/// over the session's life.
pub const MAX_BINDINGS: usize = 2048;
/// Tree connects of one session.
pub const MAX_TREES_PER_SESSION: usize = 4096;
/// Tree connects of the server: several for each of [`MAX_SESSIONS`].
pub const MAX_TREES: usize = 262_144;
/// Opens of one session. A hypervisor with a thousand disks is far below; nothing else should come near.
pub const MAX_OPENS_PER_SESSION: usize = 65_536;
/// Opens of the server, durable ones without a connection among them: some 100,000 stay usable.
pub const MAX_OPENS: usize = 262_144;
/// Requests of one connection that wait for something (locks, notifications, breaks); further ones fail.
pub const MAX_PENDING: usize = 4096;
/// LOCK and CHANGE_NOTIFY requests of the server that wait, which they may do for ever: as many as there can be opens.
pub const MAX_WAITING: usize = MAX_OPENS;
/// How long a TREE_CONNECT waits for a share that is on its way: a takeover takes a few seconds, and Samba's clients wait 20 s for an
/// answer, others longer.
pub const SHARE_WAIT_MAX: Duration = Duration::from_secs(15);
/// Connections of one listener, and of all those that somebody has logged in over, where the node's memory for requests allows that many: each takes [`tcp_service::CONNECTION`] of it.
pub const MAX_CONNECTIONS: usize = 32_768;
/// Connections that have not logged in, in all: each may hold [`MAX_PACKET_BEFORE_LOGIN`].
pub const MAX_LOGINS: usize = 1024;
/// How many of those may come from one address: a host opens some tens when it starts, a test of ours a hundred.
pub const MAX_LOGINS_PER_ADDRESS: usize = 256;
/// A first message comes at once, a login takes well below a second: a longer one is half-open or hostile.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection stays over which somebody has logged in and nobody is: a client that has logged off logs in again at once, or
/// comes back over another one. Its place counts as its first user's meanwhile.
pub const UNUSED_MAX: Duration = Duration::from_secs(60);
/// The same where the client says that it has lost the session: what it still sends there is refused meanwhile.
pub const LOST_MAX: Duration = Duration::from_secs(20);
/// How long a client's network may leave unacknowledged that a break was told before the connection counts as lost; Windows
/// gives up after five retransmissions, too. Well below the 35 seconds after which caching ends anyway: a break that does
/// not arrive can go over another channel, and a client that lost its only one knows that it holds nothing any more.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);
/// Packets from here on are read from the socket to where their data belong; below, a copy is cheaper than further
/// system calls.
pub const BULK_THRESHOLD: usize = 32 << 10;
/// Answers not taken by the peer, beyond which nothing more is read from it.
pub const SEND_HIGH_WATER: usize = 16 << 20;
/// Bytes of packets being worked on, beyond which nothing more is read from the peer.
pub const WORK_HIGH_WATER: usize = 64 << 20;
/// How long a CREATE works before the client is told that it will take longer: a commit on a busy disk is below.
pub const INTERIM_AFTER: Duration = Duration::from_millis(50);
/// How long a READ or WRITE is held back before the client is told that it takes longer: far below the time after which clients take a
/// server for dead, and longer than most are held back, as each such answer is a packet.
pub const INTERIM_AFTER_HELD: Duration = Duration::from_secs(1);
/// Attempts of SMB 1 clients that are kept for the administrator.
pub const SMB1_LOG: usize = 1024;
/// Letters kept of what one of them said: the dialects that clients of SMB 1 offer take less.
pub const SMB1_DETAIL: usize = 200;
