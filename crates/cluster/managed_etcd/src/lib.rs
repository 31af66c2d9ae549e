//! A member of etcd that a node runs itself (Debian's package `etcd-server`), as a child of its supervisor, or of its own process where it has none.
//!
//! ```text
//!   node: EtcdProcess ── "etcd start …" ──► supervisor: EtcdKeeper ── thread "etcd" ── setpriv --pdeathsig KILL etcd …
//!            │                                                           │ starts, waits, starts again with growing pauses;
//!            └ without a supervisor, or when that is gone: a thread here ┘ its output goes to the log
//! ```
//! Invariants:
//! * etcd does not outlive whoever runs it, however that ends: the kernel kills it when the thread that has started it is gone
//!   (PR_SET_PDEATHSIG, which `setpriv` sets; from here it would take `unsafe`). That thread lives as long as its handle does.
//! * It does outlive a node that dies under its supervisor: a node that starts again needs it to know whose its pools are, and so do the others;
//!   where it was etcd's leader, they would all wait for another election.
//! * Clients and members reach it with certificates of one authority only; it listens nowhere without.
//! * Its history is compacted, by itself, and its size is bounded ([`QUOTA_BYTES`]): a beat of each node twice a second is a change that is
//!   remembered otherwise.
//! * How its cluster is made up is said at its first start ([`First`]) and kept by etcd itself afterwards.
//!
//! Deliberately absent: who is a member. That is asked for and changed through `cluster_store_etcd`.

mod command;
mod kept;
mod log;
mod own;
mod process;

pub use command::{Certificates, EtcdMemberConfig, First, QUOTA_BYTES};
pub use kept::EtcdKeeper;
pub use own::{EtcdStatus, ProcessError, has_data, is_installed};
pub use process::EtcdProcess;
