//! What a node keeps of the cluster that it belongs to, in `cluster/` of its data directory; a node on its own has no such folder.
//!
//! ```text
//!   identity.toml    cluster, number and name of the node, its addresses, where etcd is     written last, taken away first
//!   ca.pem  ca.key   the cluster's authority, the same on all nodes: each can let another one in
//!   node.pem node.key        what this node shows: links, etcd, the API between members
//!   etcd-ca.pem etcd.pem etcd.key    for an etcd that is not the cluster's own
//! ```
//! Invariants:
//! * A node belongs to a cluster from the moment `identity.toml` is there until it is gone. Every other file is durable before it comes;
//!   what a crash leaves without it counts for nothing.
//! * Files are replaced as a whole and for their owner only (0600). Keys never appear in messages.
//! * What is read is bounded and checked as a whole: the keys fit the certificates, the authority has signed the node's, which names
//!   the node's number.
//! * A token holds the fingerprint of the authority, so that whoever joins knows whom it speaks to before it says anything, and a secret
//!   of which only the hash is kept ([`JoinToken::key`]).
//!
//! Deliberately absent: a way to take back a certificate. A node has the authority's key; one that must not be trusted any more leaves
//! behind an authority that has to be replaced.

mod authority;
mod error;
pub mod fuzz;
mod identity;
mod private_file;
mod record;
mod request;
mod token;

pub use authority::{Authority, CertificateError, MAX_ADDRESSES};
pub use error::IdentityError;
pub use identity::{CLUSTER_DIR, ClusterIdentity, EtcdPem, NodePem};
pub use record::{EtcdAccess, EtcdId, ManagedEtcd, NodeName, NodeRecord, RecordError};
pub use request::{CertificateRequest, new_key};
pub use token::{JoinToken, TOKEN_SECONDS, TokenError};
