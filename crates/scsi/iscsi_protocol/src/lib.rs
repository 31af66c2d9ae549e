//! iSCSI as bytes and rules, without sockets, clocks or SCSI (RFC 7143).
//!
//! ```text
//!   bytes ──► Bhs + Frame (pdu)       header, lengths, digests (digest)
//!             TextBuffer (text)       key=value lists over several PDUs
//!             Negotiator (keys)       every key of the RFC → SessionParams, ConnectionParams
//!             ChapServer (chap)       who is it?
//!             LoginMachine (login)    all of these in the order the RFC wants; answers a request with a response
//!             discovery               what SendTargets says
//!
//!   and for an initiator:
//!             Url (url)               where a LUN is and how to log in to it
//!             ChapClient (chap_client), LoginClient (login_client)   gives requests, takes responses
//! ```
//!
//! Words are the RFC's: a *connection* is one TCP connection, a *session* is one or several of them between one
//! initiator port (name + ISID) and one target portal group; CmdSN numbers commands of a session, StatSN the
//! answers of a connection.
//!
//! Invariants:
//! * No input panics, loops for long or makes anything here hold more than [`text::MAX_TEXT_BYTES`].
//! * A secret never appears in a `Debug` output, an error or a log line.
//! * What needs the outside (which targets exist, which secrets, random challenges) comes in as arguments.
//!
//! Deliberately absent: error recovery levels 1 and 2 (we negotiate 0, as every common initiator does), markers
//! (obsolete in RFC 7143), Kerberos and SRP.

pub mod chap;
pub mod chap_client;
pub mod digest;
pub mod discovery;
pub mod fuzz;
pub mod keys;
pub mod login;
pub mod login_client;
pub mod name;
pub mod pdu;
pub mod text;
pub mod url;

pub use keys::{ConnectionParams, SessionParams};
pub use name::{IscsiName, NameError};
pub use pdu::{BHS_BYTES, Bhs, Frame, FrameError};
