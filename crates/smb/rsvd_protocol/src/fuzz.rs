//! Entries for fuzzing: any bytes, never a panic; and what was understood is written again and understood in the same way.

use smb_protocol::wire::Wire;
use smb_protocol::{Guid, NtStatus};

use crate::Version;
use crate::disk::{DiskInfo, InitialInfo, Support, Validation};
use crate::open::{DiskProperties, OpenDevice, Originator};
use crate::scsi::{ScsiAnswer, ScsiRequest, SrbStatusAnswer, SrbStatusRequest};
use crate::set::{
    ChangeTracking, ChangesQuery, CreateSnapshot, DeleteSnapshot, Extract, MetaStart, Progress,
    ProgressRequest, Resize, SafeSize, SetQuery, SnapshotName, StartTracking,
};
use crate::tunnel::{self, Header, Operation};

fn again<T: Wire + PartialEq>(bytes: &[u8]) {
    if let Ok(value) = T::decode(bytes) {
        assert!(T::decode(&value.to_bytes()).is_ok_and(|again| again == value), "what is written is read");
    }
}

/// The data of the create context, of a request and of an answer.
pub fn open(bytes: &[u8]) {
    if let Ok(device) = OpenDevice::of_request(bytes) {
        let written = device.encode(&DiskProperties::default());
        assert!(OpenDevice::of_request(&written) == Ok(device), "what is written is read");
        let named = device.of_host(&device.host_name());
        assert!(named.host_length as usize <= crate::HOST_NAME_BYTES, "a name has room");
    }
    if let Ok((device, properties)) = OpenDevice::of_answer(bytes) {
        let written = device.encode(&properties.unwrap_or_default());
        assert!(OpenDevice::of_answer(&written) == Ok((device, properties)), "what is written is read");
    }
}

/// What goes through the tunnel, of both directions.
pub fn tunnel(bytes: &[u8]) {
    if let Ok((header, payload)) = Header::of_request(bytes) {
        let _ = header.unknown_to(Version::V2);
        request(payload);
    }
    if let Ok((_, payload)) = tunnel::answer(bytes) {
        answer(payload);
    }
}

fn request(payload: &[u8]) {
    if let Ok((request, data)) = ScsiRequest::of_request(payload) {
        assert!(request.cdb().len() <= crate::CDB_BYTES, "a block has room");
        let mut written = request.to_bytes();
        written.extend_from_slice(data);
        assert!(ScsiRequest::of_request(&written) == Ok((request, data)), "what is written is read");
    }
    if let Ok((start, data)) = MetaStart::of_request(payload) {
        again::<MetaStart>(&start.to_bytes());
        let _ = Resize::of_request(data);
        if let Ok(create) = CreateSnapshot::of_request(data) {
            assert!(create.stages()[0] != 0, "there is a first stage");
        }
        again::<Extract>(data);
        again::<SnapshotName>(data);
    }
    again::<SrbStatusRequest>(payload);
    again::<ProgressRequest>(payload);
    again::<SetQuery>(payload);
    again::<DeleteSnapshot>(payload);
    again::<StartTracking>(payload);
    again::<ChangesQuery>(payload);
}

fn answer(payload: &[u8]) {
    again::<ScsiAnswer>(payload);
    if let Ok((answer, data)) = ScsiAnswer::of_answer(payload) {
        assert!(answer.transfer as usize == data.len(), "as many data as were said");
    }
    again::<SrbStatusAnswer>(payload);
    again::<InitialInfo>(payload);
    again::<DiskInfo>(payload);
    again::<Validation>(payload);
    again::<Support>(payload);
    again::<Progress>(payload);
    again::<ChangeTracking>(payload);
    again::<SafeSize>(payload);
}

/// Seeds for [`open`], with what each is called.
#[must_use]
pub fn open_samples() -> Vec<(&'static str, Vec<u8>)> {
    let device = OpenDevice {
        version: Version::V1,
        has_initiator: 1,
        initiator: Guid([7; 16]),
        originator: Originator::PVHDPARSER,
        request: 9,
        ..OpenDevice::default()
    };
    let device = device.of_host("host1");
    let second = OpenDevice { version: Version::V2, ..device };
    vec![
        ("v1", device.encode(&DiskProperties::default())),
        ("v2", second.encode(&DiskProperties { known: 1, server: Version::V2, ..DiskProperties::default() })),
    ]
}

/// Seeds for [`tunnel`], with what each is called.
#[must_use]
pub fn tunnel_samples() -> Vec<(&'static str, Vec<u8>)> {
    let scsi = ScsiRequest::of(&[0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0], 0, 512);
    let mut write = scsi.to_bytes();
    write.resize(ScsiRequest::SIZE + 512, 0x5a);
    let sensed = crate::scsi::Sensed::of(crate::scsi::SrbStatus::ERROR, 2, &[0x70, 0, 6]);
    let ended = ScsiAnswer { sensed, cdb_length: 10, transfer: 4, ..ScsiAnswer::default() };
    let mut answered = ended.to_bytes();
    answered.extend_from_slice(&[1, 2, 3, 4]);
    let resize = Resize { size: 1 << 30, expand_only: true, ..Resize::default() };
    let mut start = MetaStart { transaction: Guid([5; 16]), ..MetaStart::default() }.to_bytes();
    resize.put(&mut start);
    let left = SrbStatusAnswer { key: 3, sensed };
    let header = Header { operation: Operation::SCSI, status: NtStatus::SUCCESS, request: 2 };
    vec![
        ("scsi", tunnel::request(Operation::SCSI, 1, &write)),
        ("scsi_answer", header.answer(NtStatus::SUCCESS, &answered)),
        ("srb", tunnel::request(Operation::SRB_STATUS, 2, &SrbStatusRequest { key: 3 }.to_bytes())),
        ("srb_answer", header.answer(NtStatus::SUCCESS, &left.to_bytes())),
        ("info", tunnel::request(Operation::GET_INITIAL_INFO, 3, &[])),
        ("resize", tunnel::request(Operation::META_OPERATION_START, 4, &start)),
    ]
}
