//! Why a node does not come in, or does not leave.

use cluster_store::StoreError;
use thiserror::Error;

/// What whoever asked can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was asked makes no sense.
    Invalid,
    /// The token does not count.
    Token,
    /// A name, an address or a cluster is there already.
    Taken,
    /// The two releases do not go together.
    Release,
    /// It cannot be done as things are.
    State,
    /// There is no such node.
    NotFound,
    /// Somebody does not answer.
    Away,
    /// Something is damaged.
    Damaged,
}

/// Why a node does not come in, or does not leave.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct JoinError {
    /// What can be decided on.
    pub kind: Kind,
    /// What was wrong, and where.
    pub what: String,
    /// What to do about it.
    pub todo: String,
}

impl JoinError {
    pub(crate) fn new(kind: Kind, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { kind, what: what.into(), todo: todo.into() }
    }

    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        Self::new(Kind::Damaged, format!("what the cluster keeps in etcd: {what}"), "Look into etcd.")
    }
}

impl From<StoreError> for JoinError {
    fn from(error: StoreError) -> Self {
        Self::new(
            Kind::Away,
            format!("etcd: {error}"),
            "Try again when etcd answers; what was begun is then finished.",
        )
    }
}
