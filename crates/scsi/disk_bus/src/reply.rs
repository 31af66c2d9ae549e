//! How a command ends.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind};
use scsi_core::{ScsiResponse, ScsiStatus};
use scsi_defs::{Sense, SenseKey, asc};

/// Success: data for the initiator, and how many bytes the command has moved.
pub(crate) struct Reply {
    pub(crate) data: Option<SharedBuf>,
    pub(crate) moved: u64,
}

/// Anything else.
pub(crate) enum Failure {
    Sense(Sense),
    /// Somebody else owns the disk.
    Conflict,
}

pub(crate) type Outcome = Result<Reply, Failure>;

impl Reply {
    /// Done, after taking so many bytes.
    pub(crate) fn took(moved: u64) -> Outcome {
        Ok(Self { data: None, moved })
    }

    /// Parameter data, cut to the allocation length.
    pub(crate) fn parameters(bytes: &[u8], allocation: u32) -> Outcome {
        let bytes = bytes.get(..allocation as usize).unwrap_or(bytes);
        let data = (!bytes.is_empty()).then(|| IoBuf::copy_from(bytes).freeze());
        Ok(Self { data, moved: bytes.len() as u64 })
    }
}

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Sense(sense)
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Self {
        Self::Sense(match error.kind() {
            BlockErrorKind::Fenced => return Self::Conflict,
            BlockErrorKind::NoSpace => Sense::new(SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED),
            BlockErrorKind::ReadOnly => Sense::new(SenseKey::DataProtect, asc::WRITE_PROTECTED),
            BlockErrorKind::Media => Sense::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR),
            BlockErrorKind::Gone => Sense::new(SenseKey::NotReady, asc::MEDIUM_NOT_PRESENT),
            BlockErrorKind::OutOfRange | BlockErrorKind::Unaligned => Sense::illegal(asc::LBA_OUT_OF_RANGE),
            BlockErrorKind::Unsupported => Sense::illegal(asc::INVALID_OPCODE),
            _ => Sense::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE),
        })
    }
}

/// What goes to the initiator.
pub(crate) fn response(outcome: Outcome) -> ScsiResponse {
    let (status, sense, data_in, transfer_length) = match outcome {
        Ok(Reply { data, moved }) => (ScsiStatus::Good, Vec::new(), data, moved),
        Err(Failure::Sense(sense)) => (ScsiStatus::CheckCondition, sense.encode(false), None, 0),
        Err(Failure::Conflict) => (ScsiStatus::ReservationConflict, Vec::new(), None, 0),
    };
    ScsiResponse { status, sense, data_in, transfer_length }
}
