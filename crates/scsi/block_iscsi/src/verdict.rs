//! What a status and its sense data mean to a disk's user.

use block_device::BlockErrorKind;
use iscsi_client::{CommandEnd, answer, status};
use scsi_defs::{Reported, SenseKey, asc};

/// What is to become of a command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    /// It was not carried out, for a reason that is over: what the target has to say (a unit attention).
    Again(u16),
    /// It was ended before it was done: it does nothing any more, and what it has done by then nobody knows.
    Cut(String),
    /// It was not carried out, for a reason that may pass.
    Busy(String),
    Failed(BlockErrorKind, String),
}

/// Reads the end of a command.
pub(crate) fn verdict(end: CommandEnd) -> Verdict {
    let text = answer(end.status, end.sense);
    match end.status {
        status::GOOD => Verdict::Done,
        status::RESERVATION_CONFLICT => Verdict::Failed(BlockErrorKind::Fenced, text),
        status::BUSY | status::TASK_SET_FULL => Verdict::Busy(text),
        status::TASK_ABORTED => Verdict::Cut(text),
        status::CHECK_CONDITION => match end.sense {
            Some(sense) => of_sense(sense, text),
            None => Verdict::Failed(BlockErrorKind::Io, text),
        },
        _ => Verdict::Failed(BlockErrorKind::Io, text),
    }
}

fn of_sense(sense: Reported, text: String) -> Verdict {
    const NO_SENSE: u8 = SenseKey::NoSense as u8;
    const RECOVERED: u8 = SenseKey::RecoveredError as u8;
    const NOT_READY: u8 = SenseKey::NotReady as u8;
    const MEDIUM: u8 = SenseKey::MediumError as u8;
    const ILLEGAL: u8 = SenseKey::IllegalRequest as u8;
    const ATTENTION: u8 = SenseKey::UnitAttention as u8;
    const PROTECT: u8 = SenseKey::DataProtect as u8;
    const ABORTED: u8 = SenseKey::AbortedCommand as u8;
    let kind = match (sense.key, sense.code) {
        (NO_SENSE | RECOVERED, _) => return Verdict::Done,
        (ATTENTION, code) => return Verdict::Again(code),
        // Becoming ready, or a transition of its ports' states: it will be ready.
        (NOT_READY, asc::BECOMING_READY | 0x040a) => return Verdict::Busy(text),
        (NOT_READY, _) => BlockErrorKind::Gone,
        (MEDIUM, _) => BlockErrorKind::Media,
        // Protection information that does not match its block.
        (ABORTED, 0x1000..=0x10ff) => BlockErrorKind::Media,
        (ABORTED, _) => return Verdict::Cut(text),
        (PROTECT, asc::SPACE_ALLOCATION_FAILED) => BlockErrorKind::NoSpace,
        (PROTECT, _) => BlockErrorKind::ReadOnly,
        (ILLEGAL, asc::LBA_OUT_OF_RANGE) => BlockErrorKind::OutOfRange,
        (ILLEGAL, asc::LUN_NOT_SUPPORTED) => BlockErrorKind::Gone,
        (ILLEGAL, asc::INVALID_OPCODE | asc::INVALID_FIELD_IN_CDB | asc::INVALID_FIELD_IN_PARAMETER_LIST) => {
            BlockErrorKind::Unsupported
        }
        _ => BlockErrorKind::Io,
    };
    Verdict::Failed(kind, text)
}

/// Whether a unit attention tells that the target has started anew, so that what its write cache held may be lost.
pub(crate) fn tells_of_start(attention: u16) -> bool {
    // POWER ON, RESET OR BUS DEVICE RESET; POWER ON; DEVICE INTERNAL RESET. The others of 29h leave the cache.
    matches!(attention, 0x2900 | 0x2901 | 0x2904)
}

/// Whether a unit attention tells that somebody may have ended commands of ours, of which we hear nothing if the target does not answer
/// them (TAS): a reset, somebody's CLEAR TASK SET, a PREEMPT AND ABORT.
pub(crate) fn tells_of_cut(attention: u16) -> bool {
    let resets = attention >> 8 == 0x29;
    let cleared = matches!(attention, asc::COMMANDS_CLEARED | 0x2f02);
    resets || cleared || matches!(attention, asc::RESERVATIONS_PREEMPTED | asc::REGISTRATIONS_PREEMPTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u8, key: SenseKey, code: u16) -> Verdict {
        let sense = Some(Reported { key: key as u8, code });
        verdict(CommandEnd { status, sense, moved: 0 })
    }

    #[test]
    fn kinds() {
        let check = status::CHECK_CONDITION;
        for (key, code, kind) in [
            (SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR, BlockErrorKind::Media),
            (SenseKey::NotReady, asc::MEDIUM_NOT_PRESENT, BlockErrorKind::Gone),
            (SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED, BlockErrorKind::NoSpace),
            (SenseKey::DataProtect, asc::WRITE_PROTECTED, BlockErrorKind::ReadOnly),
            (SenseKey::AbortedCommand, 0x1001, BlockErrorKind::Media),
            (SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE, BlockErrorKind::OutOfRange),
            (SenseKey::IllegalRequest, asc::INVALID_OPCODE, BlockErrorKind::Unsupported),
            (SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE, BlockErrorKind::Io),
        ] {
            assert!(
                matches!(of(check, key, code), Verdict::Failed(found, _) if found == kind),
                "{key:?} {code:x}"
            );
        }
        assert!(matches!(of(check, SenseKey::NotReady, asc::BECOMING_READY), Verdict::Busy(_)));
        assert_eq!(of(check, SenseKey::UnitAttention, asc::POWER_ON), Verdict::Again(asc::POWER_ON));
        assert_eq!(of(check, SenseKey::RecoveredError, 0x1701), Verdict::Done);
        let conflict = CommandEnd { status: status::RESERVATION_CONFLICT, sense: None, moved: 0 };
        assert!(matches!(verdict(conflict), Verdict::Failed(BlockErrorKind::Fenced, _)));
        assert!(matches!(
            verdict(CommandEnd { status: 0x02, ..conflict }),
            Verdict::Failed(BlockErrorKind::Io, _)
        ));
        assert!(matches!(
            verdict(CommandEnd { status: 0x77, ..conflict }),
            Verdict::Failed(BlockErrorKind::Io, _)
        ));
        let aborted = CommandEnd { status: status::TASK_ABORTED, ..conflict };
        assert!(matches!(verdict(aborted), Verdict::Cut(_)));
        assert!(matches!(of(check, SenseKey::AbortedCommand, 0x4400), Verdict::Cut(_)));
        for code in [
            asc::DEVICE_RESET,
            asc::COMMANDS_CLEARED,
            asc::RESERVATIONS_PREEMPTED,
            asc::REGISTRATIONS_PREEMPTED,
        ] {
            assert!(tells_of_cut(code), "{code:x}");
        }
        assert!(!tells_of_cut(asc::MODE_PARAMETERS_CHANGED) && !tells_of_cut(asc::CAPACITY_CHANGED));
        assert!(tells_of_start(asc::POWER_ON) && !tells_of_start(asc::NEXUS_LOSS));
    }
}
