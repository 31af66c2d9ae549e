//! Whether a unit is being or has been sanitized, and what may be done meanwhile.

use scsi_defs::{Op, Sense, SenseKey, asc};

use crate::reply::Failure;

/// Whether the unit is being or has been sanitized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sanitize {
    /// Nothing to say.
    Idle,
    /// Done so far, in 65536ths.
    Running(u16),
    /// Begun and not ended well; whether EXIT FAILURE MODE helps.
    Failed { may_exit: bool },
}

const MAGIC: &[u8] = b"HFSN\x01";

impl Sanitize {
    /// The state of a unit that starts with `row`.
    pub(crate) fn decode(row: &[u8]) -> Option<Self> {
        match row.strip_prefix(MAGIC)? {
            [may_exit @ 0..2] => Some(Self::Failed { may_exit: *may_exit == 1 }),
            _ => None,
        }
    }

    pub(crate) fn row(may_exit: bool) -> Vec<u8> {
        [MAGIC, &[u8::from(may_exit)]].concat()
    }

    /// Why a command cannot be carried out now.
    pub(crate) fn sense(self) -> Option<Sense> {
        match self {
            Self::Idle => None,
            Self::Running(done) => {
                Some(Sense::new(SenseKey::NotReady, asc::SANITIZE_IN_PROGRESS).with_progress(done))
            }
            Self::Failed { .. } => Some(Sense::new(SenseKey::MediumError, asc::SANITIZE_FAILED)),
        }
    }

    /// Lets the commands pass that may come during and after a SANITIZE.
    pub(crate) fn allows(self, op: Op) -> Result<(), Failure> {
        use Op::*;
        let failed = matches!(self, Sanitize::Failed { .. });
        let passes = match op {
            Inquiry | ReportLuns | RequestSense | ReportTargetPortGroups => true,
            SanitizeOverwrite | SanitizeBlockErase | SanitizeExitFailure => failed,
            _ => false,
        };
        match self.sense() {
            Some(sense) if !passes => Err(sense.into()),
            _ => Ok(()),
        }
    }
}
