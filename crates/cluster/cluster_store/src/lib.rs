//! What the nodes of a cluster share: keys with revisions, changed by transactions, and watched.
//!
//! ```text
//!   pool_ownership, control plane
//!        │ get · transact · watch                      keys::Key, values::*   what is kept, and where
//!   ═════╪═══ ClusterStore ═════════════════════════
//!   ┌────┴───────┐   ┌───────────┐   ┌───────────┐
//!   │ LocalStore │   │ SimStore  │   │ a cluster-│   one conformance suite: cluster_store_conformance
//!   │ one file   │   │ (sim_store)│  │ wide store│
//!   └────┬───────┘   └────┬──────┘   └───────────┘
//!        └──── Tree ──────┘                            the rules of revisions and conditions, once, without I/O
//! ```
//! The model is etcd's: one revision counts the transactions of the whole store; each key knows the revision that made it and
//! the one that changed it last, and how often it was changed in between. A transaction compares and then changes, as one.
//!
//! Invariants, of every implementation:
//! * Transactions are linearizable: each takes effect as a whole at one moment between request and answer, or not at all.
//!   A read sees everything that was answered before it was asked for.
//! * [`StoreError::NotDone`] is certain. Whoever gets [`StoreError::Unknown`] has to look, and to take into account that the request
//!   may still be on its way: what makes that harmless is a condition that the next transaction makes untrue.
//! * A watch tells each change of its prefix once, in the order of revisions, whole revisions together, from the revision that it
//!   was asked for; or it says [`StoreError::Compacted`], and whoever watches reads everything again.
//!
//! Deliberately absent: leases and times to live. No clock of the store decides anything here: a stalled leader has let leases end
//! that were renewed elsewhere.

mod error;
pub mod files;
pub mod keys;
mod local;
mod revision;
#[cfg(test)]
mod tests;
mod tree;
mod txn;
pub mod values;

use std::future::Future;
use std::pin::Pin;

pub use error::StoreError;
pub use local::{LocalError, LocalStore};
pub use revision::Revision;
pub use tree::Tree;
pub use txn::{
    Change, Condition, Found, MAX_KEY, MAX_REQUEST, MAX_STEPS, MAX_VALUE, Outcome, Range, Snapshot, Step,
    Transaction,
};

/// What a store answers with, later.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The state that a cluster shares.
///
/// The futures may be dropped at any point; a transaction whose future is dropped counts as [`StoreError::Unknown`].
pub trait ClusterStore: Send + Sync + 'static {
    /// What is there, at one revision.
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot>;

    /// Makes all steps of a transaction if all of its conditions hold, and reads.
    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome>;

    /// All changes under a prefix after the revision `after`, those that were and those that will be.
    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>>;
}

/// Changes as they come.
pub trait Watch: Send {
    /// The next changes, at least one, in the order of revisions and never a part of a revision. After an error the watch is over.
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>>;
}
