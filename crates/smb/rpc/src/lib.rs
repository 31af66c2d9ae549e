//! Remote procedure calls over the named pipes of IPC$: what makes `\\server` show shares, and Windows' security page
//! names. No sockets, clocks or databases.
//!
//! ```text
//!   bytes ──► RpcPipe (service)      a pipe: PDUs in, PDUs out, a message at a time
//!               connection             bind, fragments, calls
//!               association            what pipes share: handles of association groups, the client's number of pipes
//!               protection             NTLM and SPNEGO inside the pipe: connect, integrity, privacy
//!               pdu, ndr               the bytes of all that (C706 12 and 14, MS-RPCE)
//!             endpoint                 which interfaces are behind which pipe
//!             interface                what an interface is, and what its operations get
//!               srvsvc                 shares, sessions, opens, connections, the server itself (MS-SRVS)
//!               wkssvc                 the server once more, as a workstation (MS-WKST)
//!               lsarpc                 names and SIDs (MS-LSAT), a little policy (MS-LSAD)
//!               samr                   users, groups and their members (MS-SAMR)
//!                 ServerView (view)    what there is, and what may be changed: the node answers
//!                 client                 who asks, and who proves it
//! ```
//!
//! Invariants:
//! * Every length and count is compared with the bytes that are there before anything is made of it; stubs, arrays,
//!   handles, contexts, groups, waiting requests and waiting answers have limits.
//! * A context handle is random and belongs to who opened it.
//! * Once a client has asked for integrity, a request without it is refused and the connection given up.
//! * A login inside a pipe counts for requests that it signs; others have the rights of who opened the pipe.
//! * Nothing changes the server for who is not an administrator when the call comes, whatever it was when the pipe opened.
//! * Only NDR 2.0 is spoken; NDR64 is offered by clients together with it, and refused.

mod association;
pub mod client;
mod connection;
mod endpoint;
pub mod error;
pub mod fuzz;
mod handles;
mod interface;
mod lsarpc;
pub mod ndr;
pub mod pdu;
mod protection;
mod samr;
mod server_info;
pub mod service;
mod srvsvc;
pub mod view;
mod wkssvc;

pub use association::PIPES_MAX;
pub use client::{Authenticator, NoAuthenticator, RpcClient};
pub use error::{Fault, Win32};
pub use service::{RpcPipe, RpcService};
pub use view::ServerView;

#[cfg(test)]
mod tests;
