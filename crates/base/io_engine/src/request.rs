//! What a caller asks for and what it gets back.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};

use crate::device_info;

/// The open file a request works on. Cheap to clone; the last clone closes it.
#[derive(Clone, Debug)]
pub enum IoTarget {
    /// A file or device of the operating system.
    File(Arc<OwnedFd>),
    /// A file whose data the operating system keeps in memory (tmpfs): calls never wait for a device, and the ring
    /// would hand each of them to a thread of its own.
    InMemory(Arc<OwnedFd>),
    /// A file of the simulator, by the number it was given there.
    Simulated(u32),
}

impl IoTarget {
    /// An open file or device of the operating system.
    #[must_use]
    pub fn of(file: OwnedFd) -> Self {
        if device_info::is_in_memory(&file) {
            Self::InMemory(Arc::new(file))
        } else {
            Self::File(Arc::new(file))
        }
    }

    /// The descriptor for a system call, if there is one.
    #[must_use]
    pub fn raw_fd(&self) -> Option<RawFd> {
        match self {
            Self::File(fd) | Self::InMemory(fd) => Some(fd.as_raw_fd()),
            Self::Simulated(_) => None,
        }
    }
}

/// One operation, with the buffers it uses.
#[derive(Debug)]
pub enum IoOp {
    /// Fill the buffer from the target.
    Read(IoBuf),
    /// Write the buffer to the target; `durable` asks for stable storage (RWF_DSYNC) before completion.
    Write {
        /// What to write.
        data: SharedBuf,
        /// Whether completion means stable storage.
        durable: bool,
    },
    /// Write several buffers one behind the other, as one transfer.
    WriteVectored {
        /// What to write, in order.
        parts: Vec<SharedBuf>,
        /// Whether completion means stable storage.
        durable: bool,
    },
    /// Make all completed writes durable (fdatasync).
    Sync,
    /// Deallocate `len` bytes; they read as zeros afterwards (fallocate PUNCH_HOLE | KEEP_SIZE).
    PunchHole {
        /// Bytes to deallocate.
        len: u64,
    },
    /// Make `len` bytes read as zeros without giving the space back (fallocate ZERO_RANGE | KEEP_SIZE).
    ZeroRange {
        /// Bytes to zero.
        len: u64,
    },
}

/// fallocate modes (linux/falloc.h); KEEP_SIZE so that no operation changes a file's length.
pub(crate) const PUNCH_HOLE: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
pub(crate) const ZERO_RANGE: i32 = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_ZERO_RANGE;

impl IoOp {
    /// Bytes of buffer the operation transfers; 0 for operations without data.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a length of work, not of a collection")]
    pub fn len(&self) -> usize {
        match self {
            Self::Read(buf) => buf.len(),
            Self::Write { data, .. } => data.len(),
            Self::WriteVectored { parts, .. } => parts.iter().map(|part| part.len()).sum(),
            Self::Sync | Self::PunchHole { .. } | Self::ZeroRange { .. } => 0,
        }
    }
}

/// Most parts of one system call (IOV_MAX); the rest goes as a resumed short transfer.
const MAX_PARTS: usize = 1024;

/// Lists what is left of `parts` behind their first `done` bytes.
pub(crate) fn list_parts(parts: &[SharedBuf], mut done: usize, list: &mut Vec<libc::iovec>) {
    list.clear();
    for part in parts {
        let rest = part.get(done..).unwrap_or_default();
        done = done.saturating_sub(part.len());
        if !rest.is_empty() && list.len() < MAX_PARTS {
            list.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
        }
    }
}

/// An operation at a place.
#[derive(Debug)]
pub struct IoRequest {
    /// The open file.
    pub target: IoTarget,
    /// Byte offset in it; ignored for [`IoOp::Sync`].
    pub offset: u64,
    /// What to do there.
    pub op: IoOp,
}

/// How a request ended.
#[derive(Debug)]
pub struct IoCompletion {
    /// Bytes transferred (0 for operations without data), or the system's error. A read at the end of the file
    /// is short, not an error.
    pub result: io::Result<usize>,
    /// The operation with its buffers, returned to the caller.
    pub op: IoOp,
}
