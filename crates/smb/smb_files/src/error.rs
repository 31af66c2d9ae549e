//! How operations fail: a status for the client and a reason for the server's log.

use std::borrow::Cow;
use std::fmt;

use file_store::{StoreError, StoreErrorKind};
use smb_protocol::NtStatus;

/// The result of an operation.
pub type Result<T> = std::result::Result<T, FileError>;

/// What a client is told besides the status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// How long the buffer must be: with BUFFER_TOO_SMALL (MS-SMB2 2.2.2).
    Needed(u32),
    /// The data of STOPPED_ON_SYMLINK, ready for [`smb_protocol::error::error_data`].
    Symlink(Box<[u8]>),
    /// The output that goes with the status: the limits of COPYCHUNK with INVALID_PARAMETER (MS-SMB2 3.3.5.15.6).
    Output(Box<[u8]>),
}

/// An operation was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// What the client is told.
    pub status: NtStatus,
    /// Why, for the log; not for the client.
    pub reason: Cow<'static, str>,
    /// What the client is told besides.
    pub detail: Detail,
}

impl FileError {
    /// An error with its reason.
    pub fn new(status: NtStatus, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { status, reason: reason.into(), detail: Detail::None }
    }

    /// Adds what the client is told besides.
    #[must_use]
    pub fn with(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }
}

/// Shorthand for an error with its reason.
pub(crate) fn refuse<T>(status: NtStatus, reason: impl Into<Cow<'static, str>>) -> Result<T> {
    Err(FileError::new(status, reason))
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl std::error::Error for FileError {}

impl From<NtStatus> for FileError {
    fn from(status: NtStatus) -> Self {
        Self::new(status, "")
    }
}

impl From<smb_protocol::DecodeError> for FileError {
    fn from(error: smb_protocol::DecodeError) -> Self {
        Self::new(NtStatus::INVALID_PARAMETER, error.to_string())
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        let status = match error.kind() {
            StoreErrorKind::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
            StoreErrorKind::AlreadyExists => NtStatus::OBJECT_NAME_COLLISION,
            StoreErrorKind::InvalidName => NtStatus::OBJECT_NAME_INVALID,
            StoreErrorKind::InvalidArgument => NtStatus::INVALID_PARAMETER,
            StoreErrorKind::NotADirectory => NtStatus::NOT_A_DIRECTORY,
            StoreErrorKind::IsADirectory => NtStatus::FILE_IS_A_DIRECTORY,
            StoreErrorKind::NotEmpty => NtStatus::DIRECTORY_NOT_EMPTY,
            StoreErrorKind::TooManyNames => NtStatus::TOO_MANY_LINKS,
            StoreErrorKind::SharingViolation => NtStatus::SHARING_VIOLATION,
            StoreErrorKind::AccessDenied => NtStatus::ACCESS_DENIED,
            StoreErrorKind::NoSpace | StoreErrorKind::QuotaExceeded => NtStatus::DISK_FULL,
            StoreErrorKind::ReadOnly => NtStatus::MEDIA_WRITE_PROTECTED,
            StoreErrorKind::Corrupt => NtStatus::FILE_CORRUPT_ERROR,
            // The volume goes to another owner or stopped: the client reconnects and finds it again.
            StoreErrorKind::Stopped => NtStatus::FILE_NOT_AVAILABLE,
            _ => NtStatus::UNEXPECTED_IO_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
