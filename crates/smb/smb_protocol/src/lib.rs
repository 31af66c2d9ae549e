//! SMB 2 and 3 as bytes, without sockets, clocks, keys or state (MS-SMB2, MS-FSCC, MS-DTYP).
//!
//! ```text
//!   bytes ──► framing      length prefixes, which kind of packet
//!             transform    headers of encrypted and compressed packets
//!             smb1         a multi-protocol NEGOTIATE, and who still speaks SMB 1
//!             compound     several messages in one packet, read and written
//!             header       the 64 bytes that begin each message
//!             message      Request, Response: any command
//!               negotiate session tree create file read write lock oplock ioctl directory info error
//!             fsctl        what IOCTL carries          fscc   what QUERY_INFO, SET_INFO, QUERY_DIRECTORY carry
//!             security     descriptors, lists, SIDs    status NTSTATUS
//! ```
//!
//! Both directions are here for every message: the server decodes requests and encodes responses, the test client and
//! the load generator do the opposite. Decoding borrows from the message. READ and WRITE allocate nothing, and a WRITE
//! can be decoded before its data have arrived.
//!
//! Invariants:
//! * No input panics, loops for long, or takes memory out of proportion to its length. Offsets and lengths are compared
//!   with the message before they are used, counts with the bytes that are there, lists go forward at every step.
//! * What decodes, encodes to something that decodes to the same (but for descriptors of RDMA buffers); `fuzz` checks it.
//! * Encoding cannot write a length that does not fit its field: [`wire::Out::check`] tells, and
//!   [`compound::FrameWriter`] asks.
//! * Values without a name in the specification are kept, not refused: which are errors depends on state that is not
//!   here.
//!
//! Deliberately absent: SMB 1 beyond its recognition, compression, SMB Direct, the POSIX extensions, printing.

#[macro_use]
mod macros;
#[cfg(test)]
mod tests;

pub mod access;
pub mod command;
pub mod compound;
pub mod create;
pub mod directory;
pub mod error;
pub mod file;
pub mod framing;
pub mod fscc;
pub mod fsctl;
pub mod fuzz;
pub mod guid;
pub mod header;
pub mod info;
pub mod ioctl;
pub mod lock;
pub mod message;
pub mod negotiate;
pub mod oplock;
pub mod read;
pub mod security;
pub mod session;
pub mod smb1;
pub mod status;
pub mod time;
pub mod transform;
pub mod tree;
pub mod utf16;
pub mod wire;
pub mod write;

pub use command::{Command, Dialect};
pub use guid::Guid;
pub use header::{HEADER_BYTES, Header};
pub use status::NtStatus;
pub use time::FileTime;
pub use utf16::Utf16;
pub use wire::{DecodeError, Out, Wire};
