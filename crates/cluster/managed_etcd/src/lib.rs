//! A member of etcd that a node runs itself (Debian's package `etcd-server`), as a child of its process.
//!
//! ```text
//!   EtcdProcess ── thread "etcd" ── setpriv --pdeathsig KILL etcd …
//!      stop, status      │ starts, waits, starts again with growing pauses; its output goes to the node's log
//! ```
//! Invariants:
//! * etcd does not outlive the node, however that ends: the kernel kills it when the thread that has started it is gone
//!   (PR_SET_PDEATHSIG, which `setpriv` sets; from here it would take `unsafe`). That thread lives as long as [`EtcdProcess`] does.
//! * Clients and members reach it with certificates of one authority only; it listens nowhere without.
//! * Its history is compacted, by itself, and its size is bounded ([`QUOTA_BYTES`]): a beat of each node twice a second is a change that is
//!   remembered otherwise.
//! * How its cluster is made up is said at its first start ([`First`]) and kept by etcd itself afterwards.
//!
//! Deliberately absent: who is a member. That is asked for and changed through `cluster_store_etcd`.

mod command;
mod log;
mod process;

pub use command::{Certificates, EtcdMemberConfig, First, QUOTA_BYTES};
pub use process::{EtcdProcess, EtcdStatus, ProcessError, has_data, is_installed};
