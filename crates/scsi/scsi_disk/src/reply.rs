//! How a command ends inside this crate.

use aligned_buffer::{IoBuf, SharedBuf};
use file_store::{StoreError, StoreErrorKind};
use scsi_core::ScsiStatus;
use scsi_defs::{Sense, SenseKey, asc};

/// Success.
pub(crate) struct Reply {
    pub(crate) data: Option<SharedBuf>,
    pub(crate) transfer: u64,
}

/// Anything else.
pub(crate) enum Failure {
    Sense(Sense),
    Status(ScsiStatus),
    /// What holds the data is away for now; told as NOT READY, becoming ready.
    Away,
    /// The unit is on the way, to another node or to this one, and the command was not begun; told as BUSY.
    OnTheWay,
}

impl Failure {
    /// The sense data that tells of it, if any does.
    pub(crate) fn sense(&self) -> Option<Sense> {
        match self {
            Self::Sense(sense) => Some(*sense),
            Self::Away => Some(Sense::new(SenseKey::NotReady, asc::BECOMING_READY)),
            Self::Status(_) | Self::OnTheWay => None,
        }
    }
}

/// What a command is told whose unit was taken away.
pub(crate) fn gone() -> Failure {
    Sense::illegal(asc::LUN_NOT_SUPPORTED).into()
}

pub(crate) type Outcome = Result<Reply, Failure>;

impl From<Sense> for Failure {
    fn from(sense: Sense) -> Self {
        Self::Sense(sense)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Sense(match error.kind() {
            StoreErrorKind::Stopped => return Self::Away,
            StoreErrorKind::NoSpace | StoreErrorKind::QuotaExceeded => {
                Sense::new(SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED)
            }
            StoreErrorKind::ReadOnly | StoreErrorKind::AccessDenied => {
                Sense::new(SenseKey::DataProtect, asc::WRITE_PROTECTED)
            }
            StoreErrorKind::Corrupt => Sense::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR),
            StoreErrorKind::InvalidArgument => Sense::illegal(asc::LBA_OUT_OF_RANGE),
            _ => Sense::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE),
        })
    }
}

impl Reply {
    /// Done, after moving `transfer` bytes.
    pub(crate) fn good(transfer: u64) -> Outcome {
        Ok(Self { data: None, transfer })
    }

    /// Parameter data, cut to the allocation length.
    pub(crate) fn parameters(bytes: &[u8], allocation: u32) -> Outcome {
        let bytes = &bytes[..bytes.len().min(allocation as usize)];
        let data = (!bytes.is_empty()).then(|| IoBuf::copy_from(bytes).freeze());
        Ok(Self { data, transfer: bytes.len() as u64 })
    }
}
