//! An IP address that moves between machines with what is served under it.
//!
//! ```text
//!   Machine: hold, renew, release ──► netlink ──► the kernel's interfaces
//!   announce, probe ─────────────► frames ──► datalink (AF_PACKET)
//!   Farewell: connections of the machine before ──► raw TCP sockets
//! ```
//! Invariants:
//! * An address is given to the kernel for [`LIFETIME`] only and has to be renewed before: when its holder dies, or stands still, the
//!   kernel takes it away by itself, also where nobody is left to do it.
//! * Whose an address is can be seen: ours have the interface's name with [`LABEL`] as their label, where it has room for that (IPv4), and last
//!   no longer than [`LIFETIME`].
//! * What arrives from the network is compared with lengths before it is looked at. Nothing of it is answered but segments of connections that
//!   are being ended, by segments without data.
//!
//! Needs `CAP_NET_ADMIN` for addresses and `CAP_NET_RAW` for frames.
//!
//! Deliberately absent: who may have an address, and when. Its user knows.

mod ending;
mod error;
mod farewell;
mod frames;
mod machine;
mod wire;

use std::time::Duration;

pub use error::AddressError;
pub use farewell::Farewell;
pub use machine::{Assigned, Interface, Machine};
pub use wire::{announce, probe};

/// How long the kernel keeps an address that is not renewed. It counts in whole seconds, and looks about once a second.
pub const LIFETIME: Duration = Duration::from_secs(3);

/// What is behind an interface's name in the label of an address that is ours. Labels have at most 15 bytes: on interfaces with
/// longer names than 12 bytes addresses have none, and are left to the kernel.
pub const LABEL: &str = ":hf";
