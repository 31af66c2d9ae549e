//! What the kernel may answer.

use std::io;

/// Why an address cannot be had, or something about one cannot be known.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The process may not do that.
    #[error("the node may not change the machine's addresses: it lacks {0}")]
    NotAllowed(&'static str),
    /// The machine has no such interface, or none that fits.
    #[error("{0}")]
    NoInterface(String),
    /// Something else of the kernel.
    #[error("{what}: {source}")]
    Kernel {
        /// What was asked for.
        what: &'static str,
        /// What came back.
        source: io::Error,
    },
}

impl AddressError {
    /// What the kernel said when this capability is needed.
    pub(crate) fn of(what: &'static str, needs: &'static str, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::NotAllowed(needs)
        } else {
            Self::Kernel { what, source }
        }
    }
}
