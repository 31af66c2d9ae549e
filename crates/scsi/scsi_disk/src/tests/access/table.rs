//! The rows: what is sent for each command, what it changes, and what is answered to whom.

use scsi_core::TaskManagement;
use scsi_core::TaskManagementOutcome::{self, Complete, IncorrectLun, Rejected};
use scsi_defs::asc;
use scsi_defs::reservation::transport_id;

use super::*;

/// What was done before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prep {
    Nothing,
    /// The sender is registered for persistent reservations.
    Registered,
    /// The sender holds one, where another one does not.
    Holds,
    /// The sender has sent RESERVE.
    Reserved,
    /// A copy, or a token, of the sender's can be asked about.
    Copied,
    Copied4,
    Token,
}

/// What can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Medium,
    /// The other unit's medium.
    Spare,
    /// Rows in the store.
    Stored,
    Reservations,
    Mode,
    Power,
    Sanitize,
    Unit,
    /// What the other initiator is told with its next command.
    News,
}

/// The parameter list or data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sent {
    Nothing,
    /// A block of data.
    Block,
    /// The block that is there, and one to be there.
    Pair,
    Unmap,
    /// The caching page with WCE.
    Mode,
    Mode10,
    /// Key and service action key.
    Keys(u64, u64),
    Move,
    Copy,
    Copy4,
    Populate,
    Use,
    Overwrite,
}

impl Sent {
    /// Where the CDB says how long the list is.
    pub(super) fn length_at(self, cdb: &[u8]) -> Option<usize> {
        match self {
            Self::Nothing | Self::Block | Self::Pair => None,
            Self::Copy | Self::Copy4 | Self::Populate | Self::Use => Some(13),
            _ if cdb.len() == 6 => Some(4),
            _ => Some(8),
        }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Status(u8),
    Sense(u8, u16),
}

impl Outcome {
    pub(super) fn is_good(self) -> bool {
        self == Self::Status(0)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(0) => f.write_str("GOOD"),
            Self::Status(0x18) => f.write_str("CONFLICT"),
            Self::Status(status) => write!(f, "status {status:#04x}"),
            Self::Sense(key, code) => write!(f, "{key:x}/{code:04x}"),
        }
    }
}

/// A command's row.
pub(super) struct Row {
    pub(super) prep: Prep,
    /// Bytes of the CDB beside the opcode and the service action.
    pub(super) bytes: &'static [(usize, u8)],
    pub(super) sent: Sent,
    /// What it changes when it is good.
    pub(super) changes: &'static [Part],
    /// What it changes instead, where it finds something else.
    pub(super) except: &'static [(Column, &'static [Part])],
    /// A letter for each column.
    answers: &'static str,
}

impl Default for Row {
    fn default() -> Self {
        let (prep, sent) = (Prep::Nothing, Sent::Nothing);
        Self { prep, bytes: &[], sent, changes: &[], except: &[], answers: INFORMS }
    }
}

impl Row {
    /// What changes when the answer is good.
    pub(super) fn changes(&self, column: Column) -> &'static [Part] {
        let except = self.except.iter().find(|(other, _)| *other == column);
        except.map_or(self.changes, |(_, parts)| parts)
    }

    pub(super) fn expected(&self) -> Vec<Outcome> {
        let letters = self.answers.chars().filter(|letter| *letter != ' ');
        letters.map(outcome).collect()
    }
}

fn outcome(letter: char) -> Outcome {
    match letter {
        'g' => Outcome::Status(0),
        'c' => Outcome::Status(0x18),
        'p' => Outcome::Sense(7, asc::WRITE_PROTECTED),
        'u' => Outcome::Sense(5, asc::LUN_NOT_SUPPORTED),
        'o' => Outcome::Sense(2, asc::NOT_READY_OFFLINE),
        's' => Outcome::Sense(2, asc::INITIALIZING_COMMAND_REQUIRED),
        'f' => Outcome::Sense(3, asc::SANITIZE_FAILED),
        'b' => Outcome::Sense(2, asc::BECOMING_READY),
        'i' => Outcome::Sense(5, asc::INVALID_FIELD_IN_CDB),
        'n' => Outcome::Sense(5, asc::NOT_RESERVED),
        'r' => Outcome::Sense(5, asc::INVALID_RELEASE_OF_RESERVATION),
        't' => Outcome::Sense(5, asc::INVALID_TOKEN_UNKNOWN),
        'h' => Outcome::Sense(4, asc::WRITE_ERROR),
        'd' => Outcome::Sense(0xa, asc::COPY_TARGET_NOT_REACHABLE),
        other => panic!("no answer {other}"),
    }
}

/// The columns: owner, beside others, read-only mapping, not mapped; write exclusive, exclusive access, RESERVE; offline,
/// read-only unit, stopped, SWP, SANITIZE failed, away.
const TELLS_ALL: &str = "gggg ggg gggggg";
const INFORMS: &str = "gggu ggg ggggfg";
const SIZE: &str = "gggu ggg ogsgfg";
const READS: &str = "gggu gcc ogsgfb";
/// What needs nothing of the storage to be there.
const READS_LATER: &str = "gggu gcc ogsgfg";
const WRITES: &str = "ggpu ccc opspfb";
const LOOKS: &str = "gggu ccc ogggfg";
const ASKS: &str = "gggu ccc ogsgfg";
const SELECTS: &str = "ggpu ccc ogsgfb";
const FLUSHES: &str = "gggu ccc ogsgfb";
const RESERVES: &str = "ggpu ccc ggggfg";
const RELEASES: &str = "gggu ccg ggggfg";
const PR_READS: &str = "gggu ggc ggggfg";
const PR_WRITES: &str = "ggpu ggc ggggfb";
const PR_TAKES: &str = "ggpu ccc ggggfb";
const SANITIZES: &str = "gnpu ccc opspgb";

const MEDIUM: &[Part] = &[Part::Medium];
const ROW: &[Part] = &[Part::Stored, Part::Reservations];
const ROW_AND_NEWS: &[Part] = &[Part::Stored, Part::Reservations, Part::News];

fn informs(answers: &'static str, bytes: &'static [(usize, u8)]) -> Row {
    Row { answers, bytes, ..Row::default() }
}

fn writes(bytes: &'static [(usize, u8)], sent: Sent) -> Row {
    Row { answers: WRITES, bytes, sent, changes: MEDIUM, ..Row::default() }
}

fn pr(answers: &'static str, prep: Prep, sent: Sent, changes: &'static [Part]) -> Row {
    Row { answers, prep, bytes: &[(2, 1)], sent, changes, ..Row::default() }
}

/// Block 3 of one, in commands of 6, 10, 12 and 16 bytes.
const B6: &[(usize, u8)] = &[(3, 3), (4, 1)];
const B10: &[(usize, u8)] = &[(5, 3), (8, 1)];
const B12: &[(usize, u8)] = &[(5, 3), (9, 1)];
const B16: &[(usize, u8)] = &[(9, 3), (13, 1)];

/// Every command has a row here.
pub(super) fn row(op: Op) -> Row {
    match op {
        Op::TestUnitReady => informs("gggu ggg ogsgfb", &[]),
        Op::RequestSense => informs(TELLS_ALL, &[(4, 18)]),
        Op::Inquiry => informs(TELLS_ALL, &[(4, 96)]),
        Op::ReportLuns => informs(TELLS_ALL, &[(9, 64)]),
        Op::ReportTargetPortGroups => informs("gggu ggg gggggg", &[(9, 64)]),
        Op::ReportOpcodes => informs(INFORMS, &[(9, 64)]),
        Op::ReportTaskManagement => informs(INFORMS, &[(9, 16)]),
        Op::LogSense => informs(INFORMS, &[(2, 0x40), (8, 64)]),
        Op::ReadDefect10 => informs(INFORMS, &[(8, 8)]),
        Op::ReadDefect12 => informs(INFORMS, &[(9, 8)]),
        Op::PreventAllow => informs("gggu ggc ggggfg", &[(4, 1)]),
        Op::ReadCapacity10 => informs(SIZE, &[]),
        Op::ReadCapacity16 => informs(SIZE, &[(13, 32)]),
        Op::Read6 => informs(READS, B6),
        Op::Read10 | Op::Verify10 => informs(READS, B10),
        Op::Read12 | Op::Verify12 => informs(READS, B12),
        Op::Read16 | Op::Verify16 => informs(READS, B16),
        Op::Prefetch10 => informs(READS_LATER, B10),
        Op::Prefetch16 => informs(READS_LATER, B16),
        Op::GetLbaStatus => informs(READS, &[(13, 32)]),
        Op::Write6 => writes(B6, Sent::Block),
        Op::Write10 | Op::WriteVerify10 | Op::WriteSame10 => writes(B10, Sent::Block),
        Op::Write12 | Op::WriteVerify12 => writes(B12, Sent::Block),
        Op::Write16 | Op::WriteVerify16 | Op::WriteSame16 | Op::OrWrite => writes(B16, Sent::Block),
        Op::CompareAndWrite => writes(B16, Sent::Pair),
        Op::Unmap => writes(&[], Sent::Unmap),
        Op::ExtendedCopy1 => writes(&[], Sent::Copy),
        Op::ExtendedCopy4 => writes(&[], Sent::Copy4),
        Op::WriteUsingToken => Row { prep: Prep::Token, ..writes(&[(9, 2)], Sent::Use) },
        Op::PopulateToken => Row { sent: Sent::Populate, ..informs(READS_LATER, &[(9, 1)]) },
        Op::ReceiveRodTokenInformation => Row { prep: Prep::Token, ..informs(ASKS, &[(5, 1), (12, 4)]) },
        Op::ReceiveCopyStatus1 => Row { prep: Prep::Copied, ..informs(ASKS, &[(2, 1), (13, 64)]) },
        Op::ReceiveCopyStatus4 => Row { prep: Prep::Copied4, ..informs(ASKS, &[(5, 1), (13, 64)]) },
        Op::ReceiveCopyParameters => informs(ASKS, &[(13, 64)]),
        Op::SyncCache10 => informs(FLUSHES, B10),
        Op::SyncCache16 => informs(FLUSHES, B16),
        Op::SendDiagnostic => informs(FLUSHES, &[(1, 4)]),
        Op::ModeSense6 => informs(LOOKS, &[(1, 8), (2, 0x3f), (4, 255)]),
        Op::ModeSense10 => informs(LOOKS, &[(1, 8), (2, 0x3f), (8, 255)]),
        Op::ModeSelect6 => select(Sent::Mode),
        Op::ModeSelect10 => select(Sent::Mode10),
        Op::StartStop => Row {
            changes: &[Part::Power],
            except: &[(Column::Stopped, &[])],
            ..informs("ggpu ccc ggggfg", &[])
        },
        Op::SanitizeOverwrite => sanitize(Sent::Overwrite),
        Op::SanitizeBlockErase => sanitize(Sent::Nothing),
        Op::SanitizeExitFailure => Row {
            except: &[(Column::SanitizeFailed, &[Part::Stored, Part::Sanitize])],
            ..informs("ggpu ccc opspgg", &[])
        },
        Op::Reserve6 | Op::Reserve10 => Row { changes: &[Part::Reservations], ..informs(RESERVES, &[]) },
        Op::Release6 | Op::Release10 => Row {
            prep: Prep::Reserved,
            changes: &[Part::Reservations],
            except: &[(Column::Reserved, &[])],
            ..informs(RELEASES, &[])
        },
        Op::PrInReadKeys | Op::PrInReadReservation | Op::PrInReportCapabilities | Op::PrInReadFullStatus => {
            informs(PR_READS, &[(8, 255)])
        }
        Op::PrOutRegister | Op::PrOutRegisterIgnore => {
            pr(PR_WRITES, Prep::Nothing, Sent::Keys(0, OWN_KEY), ROW)
        }
        Op::PrOutReserve => pr(PR_TAKES, Prep::Registered, Sent::Keys(OWN_KEY, 0), ROW),
        Op::PrOutRelease => Row {
            except: &[(Column::WriteExclusive, &[]), (Column::ExclusiveAccess, &[])],
            ..pr(PR_WRITES, Prep::Holds, Sent::Keys(OWN_KEY, 0), ROW)
        },
        Op::PrOutClear => pr(PR_WRITES, Prep::Registered, Sent::Keys(OWN_KEY, 0), ROW_AND_NEWS),
        Op::PrOutPreempt | Op::PrOutPreemptAbort => {
            pr(PR_WRITES, Prep::Registered, Sent::Keys(OWN_KEY, OTHER_KEY), ROW_AND_NEWS)
        }
        Op::PrOutRegisterMove => Row { bytes: &[], ..pr(PR_TAKES, Prep::Holds, Sent::Move, ROW) },
    }
}

fn select(sent: Sent) -> Row {
    let changes = &[Part::Stored, Part::Mode, Part::News];
    Row { sent, changes, ..informs(SELECTS, &[(1, 0x11)]) }
}

fn sanitize(sent: Sent) -> Row {
    const CURED: &[Part] = &[Part::Medium, Part::Stored, Part::Sanitize];
    let except = &[(Column::SanitizeFailed, CURED)];
    Row { sent, changes: MEDIUM, except, ..informs(SANITIZES, &[]) }
}

/// The block that writes send.
const BLOCK: [u8; 512] = [0xee; 512];

pub(super) fn parameters(sent: Sent, cell: &Cell) -> Vec<u8> {
    let naa = cell.rig.unit.designator();
    match sent {
        Sent::Nothing => Vec::new(),
        Sent::Block => BLOCK.to_vec(),
        Sent::Pair => [[3 ^ 7; 512], BLOCK].concat(),
        Sent::Unmap => {
            let range = [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0];
            [&[0, 22, 0, 16, 0, 0, 0, 0][..], &range].concat()
        }
        Sent::Mode | Sent::Mode10 => {
            let header = if matches!(sent, Sent::Mode) { 4 } else { 8 };
            let mut list = vec![0; header + 20];
            (list[header], list[header + 1], list[header + 2]) = (8, 18, 4);
            list
        }
        Sent::Keys(key, action) => {
            let mut list = [key.to_be_bytes(), action.to_be_bytes(), [0; 8]].concat();
            list[20] = 1;
            list
        }
        Sent::Move => {
            let id = transport_id(&cell.rig.nexuses[OTHER].initiator_port_name());
            let mut list = [OWN_KEY.to_be_bytes(), 0xc_u64.to_be_bytes(), [0, 1, 0, 1, 0, 0, 0, 0]].concat();
            list[23] = id.len() as u8;
            [list, id].concat()
        }
        Sent::Copy => copy_list(1, &naa, 0, 1, 100),
        Sent::Copy4 => copy_list4(&naa),
        Sent::Populate => super::super::tokens::populate(&[(4, 1)]),
        Sent::Use if cell.token.is_empty() => super::super::tokens::write(&[0; 512], 0, &[(9, 1)]),
        Sent::Use => super::super::tokens::write(&cell.token, 0, &[(9, 1)]),
        Sent::Overwrite => vec![1, 0, 0, 4, 0xaa, 0xbb, 0xcc, 0xdd],
    }
}

/// A copy of block 0 to block 100 with a list identifier of four bytes.
pub(super) fn copy_list4(naa: &[u8]) -> Vec<u8> {
    let descriptors = copy_list(1, naa, 0, 1, 100).split_off(16);
    let mut list = vec![0; 48];
    (list[0], list[3], list[16], list[23], list[43], list[45]) = (1, 0x20, 0xff, 1, 32, 28);
    list.extend_from_slice(&descriptors);
    list
}

/// All functions. [`function`] does not compile without a row for a new one, which belongs here, too.
pub(super) const FUNCTIONS: [TaskManagement; 5] = [
    TaskManagement::AbortTaskSet,
    TaskManagement::ClearTaskSet,
    TaskManagement::LogicalUnitReset,
    TaskManagement::TargetWarmReset,
    TaskManagement::TargetColdReset,
];

/// The outcomes with a mapping to read and write, to read only, and without one; and whether the unit is reset.
pub(super) fn function(function: TaskManagement) -> ([TaskManagementOutcome; 3], bool) {
    match function {
        TaskManagement::AbortTaskSet => ([Complete, Complete, IncorrectLun], false),
        TaskManagement::ClearTaskSet => ([Complete, Rejected, IncorrectLun], false),
        TaskManagement::LogicalUnitReset => ([Complete, Rejected, IncorrectLun], true),
        // The target is what the initiator sees of it.
        TaskManagement::TargetWarmReset | TaskManagement::TargetColdReset => {
            ([Complete, Complete, Complete], true)
        }
    }
}
