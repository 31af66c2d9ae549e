//! How nodes come into a cluster, and leave it.
//!
//! ```text
//!   founding   a node on its own writes itself, and the epochs and votes of its pools, into an empty place of etcd
//!   tokens     a member makes one: its hash is kept, for 24 hours
//!   asking     the node that joins, over TLS to the authority that the token names ──► admission at the member that answers:
//!                one transaction takes the token away and writes number and name; then a certificate, and where etcd is
//!   seats      who runs a member of etcd: the first three nodes
//!   leaving    the node's entry says so, its name is free, its member of etcd is gone
//!   giving_up  a life whose process is known to be gone: others take its pools at once
//! ```
//! Invariants:
//! * A number is given once ([`NodeEntry`](cluster_store::values::NodeEntry) stays when the node is gone): keys of reservations carry it.
//! * A token lets one node in. It is gone in the transaction that writes the node; whoever asks again with it gets the same answer if, and only if,
//!   it has the same key: so a node that was killed while it joined asks again, and nobody else gets anything.
//! * etcd never loses its majority by a node that comes or goes: a new member learns and has no vote. It gets one when there are seats for three;
//!   of two members with a vote either one's loss would stop all changes, while a learner is a copy that costs nothing.
//! * Nothing here decides who owns a pool.
//!
//! Deliberately absent: what a node does with all that (`control_server`).

mod admission;
mod asking;
mod error;
mod founding;
mod giving_up;
mod leaving;
mod messages;
mod roll;
mod seats;
mod tokens;

pub use admission::admit;
pub use asking::ask;
pub use error::{JoinError, Kind};
pub use founding::{found, wait_for_etcd};
pub use giving_up::give_up;
pub use leaving::{check_leave, check_member, check_remove, depart, last_beat, patiently, remove};
pub use messages::{ADMIT_PATH, Admission, JoinRequest, MAX_REQUEST_BYTES};
pub use roll::{Standing, nodes, standing};
pub use seats::{Steward, etcd_of, member_config};
pub use tokens::make_token;
