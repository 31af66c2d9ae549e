//! Errors of the client.

use std::path::PathBuf;
use std::{fmt, io};

use control_api::Problem;

/// Why a request did not end well.
#[derive(Debug)]
pub enum ClientError {
    /// The node does not answer on its socket.
    Unreachable {
        /// Which socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The node says no, and why.
    Problem(Box<Problem>),
    /// A local file could not be read or written.
    Local(io::Error),
    /// The exchange broke off or the answer makes no sense.
    Protocol(String),
}

impl ClientError {
    pub(crate) fn protocol(error: impl fmt::Display) -> Self {
        Self::Protocol(error.to_string())
    }

    /// The problem, if it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { socket, source } => {
                write!(f, "no node answers on {}: {source}\n  ", socket.display())?;
                f.write_str(match source.kind() {
                    io::ErrorKind::PermissionDenied => {
                        "Run as root or as the user that the node runs as."
                    }
                    _ => {
                        "Start it with `holdfast serve` (or `systemctl start holdfast`), or name its socket with \
                         --node or HOLDFAST_SOCKET."
                    }
                })
            }
            Self::Problem(problem) => problem.fmt(f),
            Self::Local(error) => write!(f, "local file: {error}"),
            Self::Protocol(what) => write!(f, "the exchange with the node broke off: {what}"),
        }
    }
}

impl std::error::Error for ClientError {}
