//! Faults: what goes wrong, with which operations, where and how often.

use std::time::Duration;

/// Which operations a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOperation {
    /// All of them.
    Any,
    /// Reads.
    Read,
    /// Writes, also of zeros, and unmaps.
    Write,
    /// Flushes.
    Flush,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation fails with an input/output error.
    Error,
    /// The operation takes longer by this time.
    Delay(Duration),
    /// The disk does such operations one after another, and takes this time for each.
    Serial(Duration),
    /// Half of the write arrives, then it fails.
    Torn,
    /// The write is acknowledged and dropped.
    Lost,
    /// The write goes elsewhere.
    Misdirected,
    /// A bit of what is read is flipped.
    BitRot,
    /// The disk is gone.
    Vanish,
}

/// A fault that is switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// To which operations.
    pub operation: FaultOperation,
    /// First byte of the range it concerns.
    pub offset: u64,
    /// Length of the range in bytes; `None` for all that follows.
    pub len: Option<u64>,
    /// How often it happens before it ends; `None` for ever.
    pub count: Option<u64>,
}

impl Fault {
    /// A fault of all operations everywhere, for ever.
    #[must_use]
    pub fn always(kind: FaultKind) -> Self {
        Self { kind, operation: FaultOperation::Any, offset: 0, len: None, count: None }
    }

    pub(crate) fn meets(&self, operation: Operation) -> bool {
        let end = self.len.map_or(u64::MAX, |len| self.offset.saturating_add(len));
        let operation_end = operation.offset.saturating_add(operation.len);
        // A flush has no range: it is concerned by faults that have none either.
        let inside = match operation.kind {
            FaultOperation::Flush => self.offset == 0 && self.len.is_none(),
            _ => operation.offset < end && self.offset < operation_end,
        };
        inside && (self.operation == FaultOperation::Any || self.operation == operation.kind)
    }
}

/// An operation as faults see it.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) kind: FaultOperation,
    pub(crate) doing: &'static str,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// What the faults that meet an operation add up to.
#[derive(Default)]
pub(crate) struct Met {
    pub(crate) delay: Duration,
    /// The last one that is no delay.
    pub(crate) fault: Option<FaultKind>,
}
