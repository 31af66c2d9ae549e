//! What is told of commands and problems of shared virtual disks.

use control_api::{Code, Problem};
use scsi_core::{ScsiResponse, ScsiStatus};
use scsi_defs::{Cdb, Op, Reported, asc};
use smb_protocol::NtStatus;

/// What a command is to send or can bring, in blocks of its unit.
pub(super) enum Data {
    In(u64),
    Out(u64),
    /// Parameters, or nothing.
    Other,
}

pub(super) fn data_of(cdb: &Cdb) -> Data {
    let blocks = u64::from(cdb.length());
    match cdb.op {
        Op::Read6 | Op::Read10 | Op::Read12 | Op::Read16 => Data::In(blocks),
        Op::Write6
        | Op::Write10
        | Op::Write12
        | Op::Write16
        | Op::WriteVerify10
        | Op::WriteVerify12
        | Op::WriteVerify16
        | Op::OrWrite => Data::Out(blocks),
        Op::CompareAndWrite => Data::Out(2 * blocks),
        _ => Data::Other,
    }
}

/// How a problem ends a CREATE.
pub(super) fn status(problem: &Problem) -> NtStatus {
    match problem.code {
        Code::InUse => NtStatus::SHARING_VIOLATION,
        Code::NotFound => NtStatus::OBJECT_NAME_NOT_FOUND,
        Code::InvalidRequest | Code::Damaged => NtStatus::FILE_CORRUPT_ERROR,
        Code::Unsupported => NtStatus::SVHDX_WRONG_FILE_TYPE,
        Code::NoSpace => NtStatus::DISK_FULL,
        Code::Unavailable | Code::TooMany => NtStatus::INSUFFICIENT_RESOURCES,
        // The volume has stopped, and is served anew before long, here or elsewhere.
        Code::WrongState => NtStatus::FILE_NOT_AVAILABLE,
        _ => NtStatus::UNEXPECTED_IO_ERROR,
    }
}

/// How a problem ends a change of the size.
pub(super) fn status_of_growing(problem: &Problem) -> NtStatus {
    match problem.code {
        Code::InvalidRequest => NtStatus::INVALID_PARAMETER,
        Code::NoSpace => NtStatus::DISK_FULL,
        Code::WrongState => NtStatus::FILE_NOT_AVAILABLE,
        _ => NtStatus::UNEXPECTED_IO_ERROR,
    }
}

/// Whether a command has found nothing to carry it out: its unit is on the way to another node, or what the unit keeps its data in is away.
pub(super) fn finds_nothing(answer: &ScsiResponse) -> bool {
    answer.status == ScsiStatus::Busy
        || Reported::parse(&answer.sense).is_some_and(|sense| sense.code == asc::BECOMING_READY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_says_how_many_data_it_moves() {
        let blocks = |cdb: &[u8]| match data_of(&Cdb::parse(cdb).unwrap()) {
            Data::In(blocks) => (1, blocks),
            Data::Out(blocks) => (2, blocks),
            Data::Other => (0, 0),
        };
        assert_eq!(blocks(&[0x28, 0, 0, 0, 0, 0, 0, 1, 2, 0]), (1, 258));
        assert_eq!(blocks(&[0x0a, 0, 0, 0, 0, 0]), (2, 256), "WRITE(6) of none writes 256");
        assert_eq!(blocks(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 3, 0]), (2, 3));
        let mut compare = [0; 16];
        (compare[0], compare[13]) = (0x89, 2);
        assert_eq!(blocks(&compare), (2, 4), "what is compared, then what is written");
        assert_eq!(blocks(&[0x12, 0, 0, 0, 96, 0]), (0, 0));
    }
}
