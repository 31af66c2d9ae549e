//! Errors of block devices: a small stable kind for decisions, context for people, the cause as source.

use std::error::Error;
use std::fmt;
use std::io;

/// What a caller can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockErrorKind {
    /// Offset or length is not a multiple of the block size.
    Unaligned,
    /// The range ends beyond the device.
    OutOfRange,
    /// The device is, or has been made, read-only.
    ReadOnly,
    /// A write needed space that isn't there. Nothing was half-allocated.
    NoSpace,
    /// These blocks cannot be read back right (latent error, failed checksum) from any copy.
    Media,
    /// The device is gone: pulled, vanished, closed.
    Gone,
    /// A higher epoch owns the device; this node must stop serving it.
    Fenced,
    /// An earlier failure of durability: nothing more is promised, so nothing more is done.
    Poisoned,
    /// The device can't do this operation.
    Unsupported,
    /// Any other failure of the system below.
    Io,
}

/// An error of a block device.
#[derive(Debug)]
pub struct BlockError {
    kind: BlockErrorKind,
    doing: &'static str,
    range: Option<(u64, u64)>,
    device: Option<Box<str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BlockError {
    /// An error of `kind` met while `doing` ("write mirror copy").
    #[must_use]
    pub fn new(kind: BlockErrorKind, doing: &'static str) -> Self {
        Self { kind, doing, range: None, device: None, source: None }
    }

    /// Adds the byte range.
    #[must_use]
    pub fn at(mut self, offset: u64, len: u64) -> Self {
        self.range = Some((offset, len));
        self
    }

    /// Adds the name of the device; the innermost one stays.
    #[must_use]
    pub fn on(mut self, device: &str) -> Self {
        self.device.get_or_insert_with(|| device.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An error of the operating system, sorted into a kind.
    #[must_use]
    pub fn from_io(error: io::Error, doing: &'static str) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BlockErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => BlockErrorKind::ReadOnly,
            io::ErrorKind::NotFound => BlockErrorKind::Gone,
            io::ErrorKind::Unsupported => BlockErrorKind::Unsupported,
            _ => match error.raw_os_error() {
                // ENODEV, ENXIO, ESHUTDOWN: the device left.
                Some(19 | 6 | 108) => BlockErrorKind::Gone,
                // ENODATA, EILSEQ: what the kernel answers for medium and protection errors.
                Some(61 | 84) => BlockErrorKind::Media,
                // EBADE: reservation conflict, someone else owns the disk.
                Some(52) => BlockErrorKind::Fenced,
                _ => BlockErrorKind::Io,
            },
        };
        Self::new(kind, doing).because(error)
    }

    /// What happened, for decisions.
    #[must_use]
    pub fn kind(&self) -> BlockErrorKind {
        self.kind
    }
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            BlockErrorKind::Unaligned => "range is not aligned to the block size",
            BlockErrorKind::OutOfRange => "range is beyond the end",
            BlockErrorKind::ReadOnly => "device is read-only",
            BlockErrorKind::NoSpace => "no space left",
            BlockErrorKind::Media => "data cannot be read back",
            BlockErrorKind::Gone => "device is gone",
            BlockErrorKind::Fenced => "another owner has taken over",
            BlockErrorKind::Poisoned => "stopped after an earlier durability failure",
            BlockErrorKind::Unsupported => "operation is not supported",
            BlockErrorKind::Io => "input/output error",
        };
        write!(f, "{}: {what}", self.doing)?;
        if let Some(device) = &self.device {
            write!(f, " on {device}")?;
        }
        if let Some((offset, len)) = self.range {
            write!(f, " at {offset}+{len}")?;
        }
        Ok(())
    }
}

impl Error for BlockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
