//! Where fields lie, what is wrong with what, and that hostile bytes do no harm.

use proptest::prelude::*;
use smb_protocol::wire::Wire;
use smb_protocol::{Guid, NtStatus};

use crate::open::{DiskProperties, OpenDevice, Originator, V1_BYTES, V2_BYTES};
use crate::scsi::{ScsiAnswer, ScsiRequest, Sensed, SrbStatus, SrbStatusAnswer};
use crate::set::{CreateSnapshot, MetaStart, Resize};
use crate::tunnel::{self, Header, Operation};
use crate::{Version, fuzz};

/// The context of the specification's example 4.1.
fn example() -> OpenDevice {
    OpenDevice {
        version: Version::V1,
        has_initiator: 1,
        initiator: Guid([
            0x07, 0x77, 0x0d, 0x20, 0x1f, 0x27, 0x40, 0x83, 0x45, 0x79, 0xd4, 0x6f, 0x5a, 0xc4, 0x3b, 0x73,
        ]),
        originator: Originator::PVHDPARSER,
        request: 0x1ec7_871e,
        ..OpenDevice::default()
    }
    .of_host("client01")
}

#[test]
fn the_context_is_where_the_specification_has_it() {
    let bytes = example().encode(&DiskProperties::default());
    assert_eq!(bytes.len(), V1_BYTES);
    assert_eq!(bytes[..8], [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[8..24], example().initiator.0);
    assert_eq!(bytes[28..32], [1, 0, 0, 0], "the originator");
    assert_eq!(bytes[32..40], 0x1ec7_871e_u64.to_le_bytes());
    assert_eq!(bytes[40..46], [16, 0, b'c', 0, b'l', 0]);
    let device = OpenDevice::of_request(&bytes).unwrap();
    assert_eq!((device.host_name().as_str(), device.initiator()), ("client01", Some(example().initiator)));
    let properties =
        DiskProperties { known: 1, server: Version::V2, sector: 512, physical_sector: 4096, size: 1 << 40 };
    let second = OpenDevice { version: Version::V2, ..device }.encode(&properties);
    assert_eq!(second.len(), V2_BYTES);
    assert_eq!(second[184..192], (1_u64 << 40).to_le_bytes());
    assert_eq!(OpenDevice::of_answer(&second).unwrap().1, Some(properties));
}

#[test]
fn what_is_wrong_with_a_context_is_told_as_specified() {
    let read = |device: OpenDevice, cut: usize| {
        let bytes = device.encode(&DiskProperties::default());
        OpenDevice::of_request(&bytes[..bytes.len() - cut])
    };
    let second = OpenDevice { version: Version::V2, ..example() };
    assert!(read(example(), 0).is_ok() && read(second, 0).is_ok());
    assert_eq!(read(example(), 1), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(read(second, 1), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(OpenDevice::of_request(&[]), Err(NtStatus::BUFFER_TOO_SMALL));
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(read(OpenDevice { version: Version(3), ..example() }, 0), invalid);
    assert_eq!(read(OpenDevice { has_initiator: 2, ..example() }, 0), invalid);
    assert_eq!(read(OpenDevice { host_length: 127, ..example() }, 0), invalid);
    let nobody = OpenDevice { has_initiator: 0, ..example() };
    assert_eq!(read(nobody, 0).unwrap().initiator(), None);
}

#[test]
fn operations_are_known_by_version_and_name() {
    let header = |code| Header { operation: Operation(code), ..Header::default() };
    assert_eq!(header(0x0200_1002).unknown_to(Version::V1), None);
    assert_eq!(header(0x0200_2101).unknown_to(Version::V2), None);
    let mismatch = Some(NtStatus::SVHDX_VERSION_MISMATCH);
    assert_eq!(header(0x0200_2101).unknown_to(Version::V1), mismatch);
    assert_eq!(header(0x0200_3001).unknown_to(Version::V2), mismatch);
    assert_eq!(header(0x0200_1fff).unknown_to(Version::V2), Some(NtStatus::INVALID_PARAMETER));
    assert_eq!(Header::of_request(&[0; 15]), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(Header::of_request(&[0; 16]), Err(NtStatus::INVALID_DEVICE_REQUEST));
    let bytes = tunnel::request(Operation::SRB_STATUS, 7, &[1, 2]);
    let (read, payload) = Header::of_request(&bytes).unwrap();
    assert_eq!((read.request, payload), (7, &[1, 2][..]));
    let answer = read.answer(NtStatus::SVHDX_ERROR_NOT_AVAILABLE, &[]);
    assert_eq!(answer[..16], [4, 0x10, 0, 2, 0, 0xff, 0x5c, 0xc0, 7, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_command_and_its_answer_lie_where_the_specification_has_them() {
    // Example 4.2 reads the capacity.
    let request = ScsiRequest { srb_flags: 0x0020_014a, ..ScsiRequest::of(&[0x25; 1], 1, 8) };
    let mut bytes = request.to_bytes();
    assert_eq!(bytes[..12], [36, 0, 0, 0, 1, 20, 1, 0, 0x4a, 1, 0x20, 0]);
    bytes.resize(44, 0);
    assert_eq!(ScsiRequest::of_request(&bytes).unwrap(), (request, &[0; 8][..]));
    bytes.push(0);
    assert_eq!(ScsiRequest::of_request(&bytes), Err(NtStatus::INVALID_PARAMETER), "more data than are said");
    for (at, value) in [(0, 35), (4, 17), (4, 0), (5, 21)] {
        let mut wrong = request.to_bytes();
        wrong[at] = value;
        assert_eq!(ScsiRequest::of_request(&wrong), Err(NtStatus::INVALID_PARAMETER), "byte {at}: {value}");
    }
    let sensed = Sensed::of(SrbStatus::ERROR, 2, &[0x70, 0, 6]);
    let answer = ScsiAnswer { sensed, cdb_length: 1, disposition: 1, srb_flags: 9, transfer: 0 };
    let bytes = answer.to_bytes();
    assert_eq!(bytes[..8], [36, 0, 0x84, 2, 1, 3, 1, 0]);
    assert_eq!(bytes[16..19], [0x70, 0, 6]);
    assert_eq!(ScsiAnswer::of_answer(&bytes), Ok((answer, &[][..])));
    let left = SrbStatusAnswer { key: 5, sensed };
    assert_eq!(left.to_bytes()[..7], [5, 0x84, 2, 3, 0x70, 0, 6]);
    let mut long = left.to_bytes();
    long[3] = 21;
    assert!(SrbStatusAnswer::decode(&long).is_err());
}

#[test]
fn meta_operations_are_checked_as_specified() {
    let start = MetaStart::default().to_bytes();
    assert!(MetaStart::of_request(&start).is_ok());
    assert_eq!(MetaStart::of_request(&start[1..]), Err(NtStatus::BUFFER_TOO_SMALL));
    let mut other = start;
    other[16] = 6;
    assert_eq!(MetaStart::of_request(&other), Err(NtStatus::INVALID_PARAMETER));
    let resize = Resize { shrink_to_safe: true, ..Resize::default() };
    assert!(Resize::of_request(&resize.to_bytes()).is_ok());
    let both = Resize { size: 1, ..resize };
    assert_eq!(Resize::of_request(&both.to_bytes()), Err(NtStatus::INVALID_PARAMETER_1));
    let create = |snapshot: u32, flags: u32, stages: [u32; 6]| {
        let mut bytes = Vec::new();
        snapshot.put(&mut bytes);
        flags.put(&mut bytes);
        stages.iter().for_each(|stage| stage.put(&mut bytes));
        bytes.resize(52, 0);
        CreateSnapshot::of_request(&bytes).map(|create| create.stages())
    };
    assert_eq!(create(1, 1, [1, 2, 3, 4, 5, 0]), Ok([1, 2, 3, 4, 5, 0]));
    assert_eq!(create(2, 0, [1, 0, 0, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_1));
    assert_eq!(create(1, 0, [0; 6]), Err(NtStatus::INVALID_PARAMETER_2));
    assert_eq!(create(1, 0, [1, 0, 2, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_3));
    assert_eq!(create(1, 0, [2, 1, 0, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_4));
    assert_eq!(create(3, 1, [1, 0, 0, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_5));
    assert_eq!(create(1, 1, [2, 0, 0, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_5));
    assert_eq!(create(1, 2, [1, 0, 0, 0, 0, 0]), Err(NtStatus::INVALID_PARAMETER_5));
}

#[test]
fn seeds_are_understood() {
    for (name, bytes) in fuzz::open_samples() {
        assert!(OpenDevice::of_request(&bytes).is_ok(), "{name}");
        fuzz::open(&bytes);
    }
    for (name, bytes) in fuzz::tunnel_samples() {
        assert!(Header::of_request(&bytes).is_ok(), "{name}");
        fuzz::tunnel(&bytes);
    }
}

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::open(&bytes);
        fuzz::tunnel(&bytes);
    }

    #[test]
    fn hostile_payloads_do_no_harm(code in 0_u32..16, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for operation in [0x0200_1000 | code, 0x0200_2000 | code, 0x0200_2100 | code] {
            fuzz::tunnel(&tunnel::request(Operation(operation), 1, &bytes));
        }
    }

    #[test]
    fn contexts_there_and_back(initiator: [u8; 16], flags: u32, request: u64, name in "[a-zA-Z0-9ü]{0,70}", second: bool, size: u64) {
        let version = if second { Version::V2 } else { Version::V1 };
        let device = OpenDevice { version, has_initiator: 1, initiator: Guid(initiator), flags, request, ..OpenDevice::default() };
        let device = device.of_host(&name);
        let bytes = device.encode(&DiskProperties { known: 1, size, ..DiskProperties::default() });
        prop_assert_eq!(OpenDevice::of_request(&bytes), Ok(device));
        let kept: String = name.chars().take(63).collect();
        prop_assert_eq!(device.host_name(), kept);
        for at in 0..bytes.len() {
            prop_assert!(OpenDevice::of_request(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn commands_there_and_back(cdb in proptest::collection::vec(any::<u8>(), 1..=16), data in proptest::collection::vec(any::<u8>(), 0..64), flags: u32) {
        let request = ScsiRequest { srb_flags: flags, ..ScsiRequest::of(&cdb, 1, data.len() as u32) };
        let mut bytes = request.to_bytes();
        bytes.extend_from_slice(&data);
        let (read, behind) = ScsiRequest::of_request(&bytes).unwrap();
        prop_assert_eq!((read.cdb(), behind), (&cdb[..], &data[..]));
        prop_assert_eq!(read, request);
    }
}
