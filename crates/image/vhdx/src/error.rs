//! Errors of virtual disks.

use std::error::Error;
use std::fmt;

use block_device::{BlockError, BlockErrorKind};
use byte_codec::DecodeError;
use file_store::{StoreError, StoreErrorKind};
use vhdx_format::FormatError;

/// What a caller can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageErrorKind {
    /// The file is something else.
    NotAnImage,
    /// A structure of the file is damaged, or the file was cut.
    Damaged,
    /// The file needs what is not known here.
    Unsupported,
    /// The parent is missing, is not the one, or leads back to the child.
    Parent,
    /// What is asked for makes no sense.
    InvalidArgument,
    /// The disk has become smaller, and ends before.
    OutOfRange,
    /// The image was opened to be read.
    ReadOnly,
    /// The file cannot grow.
    NoSpace,
    /// Others have the memory that is needed now.
    NoMemory,
    /// Whoever asked for it does not want it any more: nothing has changed.
    Cancelled,
    /// An earlier failure of durability: nothing more is promised, so nothing more is done.
    Stopped,
    /// The file below has failed.
    Io,
}

/// An error of a virtual disk.
#[derive(Debug)]
pub struct ImageError {
    kind: ImageErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ImageError {
    /// An error with a sentence for people.
    #[must_use]
    pub fn new(kind: ImageErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// What happened, for decisions.
    #[must_use]
    pub fn kind(&self) -> ImageErrorKind {
        self.kind
    }

    /// Says of which file it speaks.
    #[must_use]
    pub fn of(mut self, name: &str) -> Self {
        self.detail = format!("{name}: {}", self.detail);
        self
    }

    pub(crate) fn damaged(detail: impl Into<String>) -> Self {
        Self::new(ImageErrorKind::Damaged, detail)
    }

    pub(crate) fn argument(detail: impl Into<String>) -> Self {
        Self::new(ImageErrorKind::InvalidArgument, detail)
    }

    /// The same for whoever sees the image as a block device.
    pub(crate) fn into_block(self, doing: &'static str) -> BlockError {
        let kind = match self.kind {
            ImageErrorKind::NotAnImage | ImageErrorKind::Damaged | ImageErrorKind::Unsupported => {
                BlockErrorKind::Media
            }
            ImageErrorKind::OutOfRange => BlockErrorKind::OutOfRange,
            ImageErrorKind::ReadOnly => BlockErrorKind::ReadOnly,
            ImageErrorKind::NoSpace => BlockErrorKind::NoSpace,
            ImageErrorKind::Stopped => BlockErrorKind::Poisoned,
            _ => BlockErrorKind::Io,
        };
        BlockError::new(kind, doing).because(self)
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Files say some of it, and it is shown on terminals.
        f.write_str(&printable(&self.detail))
    }
}

impl Error for ImageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<FormatError> for ImageError {
    fn from(error: FormatError) -> Self {
        let kind = match error.why() {
            DecodeError::Unsupported(_) => ImageErrorKind::Unsupported,
            _ => ImageErrorKind::Damaged,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::NoSpace | StoreErrorKind::QuotaExceeded => ImageErrorKind::NoSpace,
            StoreErrorKind::ReadOnly | StoreErrorKind::AccessDenied => ImageErrorKind::ReadOnly,
            StoreErrorKind::Stopped => ImageErrorKind::Stopped,
            _ => ImageErrorKind::Io,
        };
        Self { kind, detail: error.to_string(), source: Some(Box::new(error)) }
    }
}

impl From<BlockError> for ImageError {
    fn from(error: BlockError) -> Self {
        let kind = match error.kind() {
            BlockErrorKind::Media => ImageErrorKind::Damaged,
            BlockErrorKind::NoSpace => ImageErrorKind::NoSpace,
            BlockErrorKind::ReadOnly => ImageErrorKind::ReadOnly,
            BlockErrorKind::Poisoned | BlockErrorKind::Fenced => ImageErrorKind::Stopped,
            _ => ImageErrorKind::Io,
        };
        let detail = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        Self { kind, detail, source: Some(Box::new(error)) }
    }
}

/// Text that a file says, without what a terminal would do something for.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).collect()
}

/// What operations of images return.
pub(crate) type Result<T, E = ImageError> = std::result::Result<T, E>;
