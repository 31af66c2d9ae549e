//! Why a client's call failed.

use smb_protocol::{Command, DecodeError, NtStatus};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed or was closed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The server refused.
    #[error("{command:?} was answered with {status}")]
    Status {
        /// What was asked.
        command: Command,
        /// The answer.
        status: NtStatus,
    },
    /// What came is not what the specification says.
    #[error("the server sent something malformed: {0}")]
    Malformed(#[from] DecodeError),
    /// The server proved nothing, or something wrong.
    #[error("authentication failed: {0}")]
    Auth(#[from] smb_auth::AuthError),
    /// A signature or tag is wrong.
    #[error("an answer does not prove itself: {0}")]
    Crypto(#[from] smb_crypto::CryptoError),
    /// The server chose what was not offered, or nothing.
    #[error("{0}")]
    Protocol(&'static str),
}

impl ClientError {
    /// The server's answer, if it was one.
    #[must_use]
    pub fn status(&self) -> Option<NtStatus> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}
