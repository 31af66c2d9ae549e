//! What the engine asks of a kind of target.

use std::io;
use std::time::Duration;

use io_engine::readiness::Awaited;
use spd_profile::Target;

use crate::error::EngineError;

/// What an operation moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// A read from the target into the slot's read buffer.
    Read,
    /// A write from the slot's write buffer.
    Write,
    /// A write from the lane's source, beginning at this byte.
    WriteSource(usize),
}

impl Data {
    /// Whether the target is changed.
    #[must_use]
    pub fn is_write(self) -> bool {
        self != Self::Read
    }
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The slot that carries it.
    pub slot: usize,
    /// Index of the target among the lane's.
    pub target: usize,
    /// Its kind.
    pub data: Data,
    /// Byte offset in the target.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneFailure {
    /// The system's error number.
    System(i32),
    /// Fewer bytes than were asked for.
    Short(u32),
    /// Another reason; `true`: the target is gone and all that follows will fail.
    Other(String, bool),
}

impl LaneFailure {
    /// What it was, in words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::System(code) => io::Error::from_raw_os_error(*code).to_string(),
            Self::Short(bytes) => format!("only {bytes} bytes were moved"),
            Self::Other(what, _) => what.clone(),
        }
    }

    /// Whether the target cannot be expected to come back, or be written, in this run.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::System(code) => matches!(
                *code,
                libc::ENODEV
                    | libc::ENXIO
                    | libc::EBADF
                    | libc::ENOSPC
                    | libc::EDQUOT
                    | libc::EFBIG
                    | libc::EROFS
                    | libc::ESTALE
                    | libc::ENOENT
                    | libc::EINVAL
                    | libc::EPERM
                    | libc::EOPNOTSUPP
            ),
            Self::Short(_) => false,
            Self::Other(_, gone) => *gone,
        }
    }
}

/// How one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The slot, free again.
    pub slot: usize,
    /// Nothing, or why not.
    pub result: Result<(), LaneFailure>,
}

/// What one slot needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotPlan {
    /// Bytes of its read buffer; 0 for none.
    pub read: usize,
    /// Bytes of its write buffer; 0 for none.
    pub write: usize,
}

/// What a thread's lane must offer.
#[derive(Debug)]
pub struct LanePlan<'a> {
    /// Number of the thread.
    pub thread: usize,
    /// Its targets, as indices into the time span's.
    pub targets: &'a [usize],
    /// Its slots.
    pub slots: &'a [SlotPlan],
    /// Content that [`Data::WriteSource`] takes; empty for none.
    pub source: &'a [u8],
}

/// One thread's own way to its targets; used on the thread that asked for it.
pub trait Lane {
    /// The slot's read buffer, empty while an operation has it.
    fn read_buffer(&mut self, slot: usize) -> &mut [u8];

    /// The slot's write buffer, empty while an operation has it.
    fn write_buffer(&mut self, slot: usize) -> &mut [u8];

    /// Takes an operation; it begins at the next [`Lane::wait`] at the latest.
    ///
    /// # Errors
    /// When the lane itself is broken; failures of the operation come with its end.
    fn queue(&mut self, op: &Op) -> io::Result<()>;

    /// Begins what was queued and waits for at least one end, for `timeout` at the most, or until a signal; adds what
    /// has ended to `done`, which has room for all slots.
    ///
    /// # Errors
    /// When the lane itself is broken.
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()>;

    /// Whether an operation begins when it is queued: its time counts from then. Otherwise it counts from the next [`Lane::wait`].
    fn begins_at_once(&self) -> bool {
        false
    }

    /// What becomes ready when a [`Lane::wait`] without a timeout would find something, for who waits for another lane,
    /// too. `None` while there is no such thing: then only [`Lane::wait`] waits.
    fn awaited(&self) -> Option<Awaited<'_>> {
        None
    }
}

/// A kind of target, opened for one time span.
pub trait Backend: Sync {
    /// The size in bytes of each target of the time span.
    fn sizes(&self) -> Vec<u64>;

    /// A lane for the calling thread.
    ///
    /// # Errors
    /// When it cannot be set up.
    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError>;

    /// Whether a lane carries several targets. Otherwise each takes a lane of its own.
    fn joins_targets(&self) -> bool {
        true
    }

    /// Why a target is no longer there although its operations go on, if that is so; asked about every second.
    fn gone(&self) -> Option<String> {
        None
    }

    /// Called once when all lanes are gone: lets go of the targets, where that can fail.
    ///
    /// # Errors
    /// When what was written may not be where it belongs.
    fn close(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// What every kind of target checks before it opens one: that the pattern fits into `size`.
///
/// # Errors
/// When it does not.
pub fn fits(target: &Target, size: u64) -> Result<(), EngineError> {
    let end = if target.max > 0 { target.max.min(size) } else { size };
    let block = u64::from(target.block);
    if target.base.checked_add(block).is_none_or(|first| first > end) {
        return Err(EngineError::new(format!(
            "target '{}' is too small: {} usable bytes from offset {} do not hold a block of {block}; make it larger (-c) or lower -b, -B, -f",
            target.path,
            end.saturating_sub(target.base),
            target.base
        )));
    }
    Ok(())
}

/// What a kind of target checks that works in whole units: that the pattern does, too.
///
/// # Errors
/// Names the option that does not, with `why`: what works in these units, and what can be done.
pub fn aligned(target: &Target, unit: u64, why: &str) -> Result<(), EngineError> {
    let blocks = target.blocks().map(|block| ("block size -b or --mix", u64::from(block)));
    for (option, bytes) in blocks.chain([
        ("alignment -r or stride -s", target.step()),
        ("offset -B", target.base),
        ("thread stride -T", target.thread_stride),
    ]) {
        if !bytes.is_multiple_of(unit.max(1)) {
            return Err(EngineError::new(format!(
                "{option} of {bytes} bytes is no multiple of {unit} bytes, {why}"
            )));
        }
    }
    Ok(())
}
