//! Why a node's identity is not to be had.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a node does not know, or does not come to know, which cluster it belongs to.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The system says no.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// A file cannot be believed.
    #[error(
        "{0}: {1}. This node belongs to a cluster and does not start without knowing which: put the folder back from a backup; or, if \
         the cluster goes on without this node, remove the folder and let it join again"
    )]
    Damaged(String, String),
    /// There is an identity already.
    #[error("{0}: this node belongs to a cluster already")]
    Exists(String),
    /// What should be written is none that could be read.
    #[error("{0}")]
    Invalid(String),
}

impl IdentityError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io(path.display().to_string(), error)
    }

    pub(crate) fn damaged(path: &Path, why: impl std::fmt::Display) -> Self {
        Self::Damaged(path.display().to_string(), why.to_string())
    }
}
