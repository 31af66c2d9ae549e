//! Shared virtual disks as clients meet them (MS-RSVD 3.2.5): who may open one, what is kept from it, and what it keeps from others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;

use std::sync::Arc;

use common::{Served, serve};
use file_store::MemoryStore;
use rsvd_protocol::disk::{HandleState, Support};
use rsvd_protocol::open::{DiskProperties, OpenDevice, Originator};
use rsvd_protocol::scsi::{ScsiAnswer, ScsiRequest, SrbStatusRequest};
use rsvd_protocol::tunnel::{self, Operation};
use rsvd_protocol::{NAME_SUFFIX, Version};
use smb_client::{Connection, Options};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::fscc::FileClass;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::info::{InfoType, SetInfoRequest};
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Dialect, Guid, NtStatus, Wire as _};
use smb_server::ServerConfig;

const ALL: ShareAccess = ShareAccess(7);

fn world() -> Served {
    let store = Arc::new(MemoryStore::new(64 << 20));
    serve(store, ServerConfig::default(), "127.0.0.1:0".parse().unwrap()).unwrap()
}

struct Client {
    connection: Connection,
    tree: u32,
}

/// What is asked of CREATE.
struct Ask {
    name: String,
    access: AccessMask,
    share: ShareAccess,
    disposition: CreateDisposition,
    options: CreateOptions,
    device: Option<OpenDevice>,
}

fn device(initiator: u8) -> OpenDevice {
    OpenDevice {
        version: Version::V1,
        has_initiator: u8::from(initiator > 0),
        initiator: Guid([initiator; 16]),
        originator: Originator::PVHDPARSER,
        ..OpenDevice::default()
    }
}

fn plain(name: &str) -> Ask {
    Ask {
        name: name.to_owned(),
        access: AccessMask::READ_DATA | AccessMask::WRITE_DATA,
        share: ALL,
        disposition: CreateDisposition::OPEN_IF,
        options: CreateOptions::NON_DIRECTORY_FILE,
        device: None,
    }
}

fn disk(name: &str, initiator: u8) -> Ask {
    Ask {
        name: format!("{name}{NAME_SUFFIX}"),
        access: AccessMask::READ_ATTRIBUTES,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::NO_INTERMEDIATE_BUFFERING,
        device: Some(device(initiator)),
        ..plain(name)
    }
}

impl Client {
    fn of(served: &Served, user: &str, share: &str, dialect: Dialect) -> Self {
        let options = Options { dialects: vec![dialect], ..Options::default() };
        let mut connection = Connection::connect(served.address, options).unwrap();
        connection.login(user, "secret").unwrap();
        let tree = connection.tree(share).unwrap();
        Self { connection, tree }
    }

    fn admin(served: &Served) -> Self {
        Self::of(served, "admin", "ca", Dialect::SMB_3_1_1)
    }

    fn create(&mut self, ask: &Ask) -> Result<FileId, NtStatus> {
        let name = utf16(&ask.name);
        let mut contexts = ContextWriter::default();
        if let Some(device) = &ask.device {
            contexts.push(tag::SVHDX_OPEN_DEVICE, &device.encode(&DiskProperties::default()));
        }
        let request = Request::Create(CreateRequest {
            desired_access: ask.access,
            share_access: ask.share,
            disposition: ask.disposition,
            options: ask.options,
            name: Utf16::new(&name).unwrap(),
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        });
        let received = self.connection.call(&request, self.tree).unwrap();
        match received.good() {
            Ok(Response::Create(created)) => Ok(created.file_id),
            _ => Err(received.header.status),
        }
    }

    fn status(&mut self, request: &Request<'_>) -> NtStatus {
        self.connection.call(request, self.tree).unwrap().header.status
    }

    fn close(&mut self, file_id: FileId) {
        let request = Request::Close(CloseRequest { file_id, ..CloseRequest::default() });
        assert_eq!(self.status(&request), NtStatus::SUCCESS);
    }

    /// Makes an empty file.
    fn file(&mut self, name: &str) {
        let id = self.create(&plain(name)).unwrap();
        self.close(id);
    }

    fn write(&mut self, file_id: FileId, offset: u64, data: &[u8]) -> NtStatus {
        self.status(&Request::Write(WriteRequest { file_id, offset, ..WriteRequest::default() }, data))
    }

    fn read(&mut self, file_id: FileId, length: u32) -> Result<Vec<u8>, NtStatus> {
        let request = Request::Read(ReadRequest { file_id, length, ..ReadRequest::default() });
        let received = self.connection.call(&request, self.tree).unwrap();
        match received.good() {
            Ok(Response::Read(_, data)) => Ok(data.to_vec()),
            _ => Err(received.header.status),
        }
    }

    fn control(
        &mut self,
        file_id: FileId,
        code: FsctlCode,
        input: &[u8],
        room: u32,
    ) -> Result<Vec<u8>, NtStatus> {
        let request = Request::Ioctl(IoctlRequest {
            code,
            file_id,
            input,
            max_input_response: 0,
            max_output_response: room,
            flags: IoctlFlags::IS_FSCTL,
        });
        let received = self.connection.call(&request, self.tree).unwrap();
        match received.good() {
            Ok(Response::Ioctl(answer)) => Ok(answer.output.to_vec()),
            _ => Err(received.header.status),
        }
    }

    fn tunnel(
        &mut self,
        id: FileId,
        operation: u32,
        payload: &[u8],
    ) -> Result<(NtStatus, Vec<u8>), NtStatus> {
        let input = tunnel::request(Operation(operation), 5, payload);
        let output = self.control(id, FsctlCode::SVHDX_SYNC_TUNNEL_REQUEST, &input, 4096)?;
        let (header, payload) = tunnel::answer(&output).unwrap();
        assert_eq!(header.request, 5);
        Ok((header.status, payload.to_vec()))
    }

    fn state(&mut self, id: FileId) -> HandleState {
        let output = self.control(id, FsctlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT, &[], 64).unwrap();
        Support::decode(&output).unwrap().state
    }
}

#[test]
fn only_who_may_read_and_write_the_file_opens_the_disk_in_it() {
    let served = world();
    let mut admin = Client::admin(&served);
    admin.file("d.vhdx");
    for (user, share, dialect, expected) in [
        ("admin", "ca", Dialect::SMB_3_1_1, Ok(())),
        ("admin", "ca", Dialect::SMB_3_0_2, Ok(())),
        ("admin", "ca", Dialect::SMB_3_0, Err(NtStatus::INVALID_DEVICE_REQUEST)),
        ("admin", "ca", Dialect::SMB_2_1, Err(NtStatus::INVALID_DEVICE_REQUEST)),
        ("admin", "read", Dialect::SMB_3_1_1, Err(NtStatus::ACCESS_DENIED)),
        ("stranger", "ca", Dialect::SMB_3_1_1, Err(NtStatus::ACCESS_DENIED)),
    ] {
        let mut client = Client::of(&served, user, share, dialect);
        let opened = client.create(&disk("d.vhdx", 1)).map(|id| client.close(id));
        assert_eq!(opened, expected, "{user} over {share} with {dialect:?}");
    }
}

#[test]
fn what_is_no_disk_is_not_opened_as_one() {
    let served = world();
    let mut admin = Client::admin(&served);
    admin.file("d.vhdx");
    admin.file("d.raw");
    let of = |change: &dyn Fn(&mut Ask)| {
        let mut ask = disk("d.vhdx", 1);
        change(&mut ask);
        ask
    };
    let wrong_type = NtStatus::SVHDX_WRONG_FILE_TYPE;
    let invalid = NtStatus::INVALID_PARAMETER;
    for (ask, expected) in [
        (disk("d.raw", 1), wrong_type),
        (disk("d.vhds", 1), wrong_type),
        (disk("missing.vhdx", 1), NtStatus::OBJECT_NAME_NOT_FOUND),
        (of(&|ask| ask.disposition = CreateDisposition::OVERWRITE_IF), invalid),
        (of(&|ask| ask.disposition = CreateDisposition::SUPERSEDE), invalid),
        (of(&|ask| ask.options = CreateOptions::DIRECTORY_FILE), invalid),
        (of(&|ask| ask.device = Some(OpenDevice { version: Version(3), ..device(1) })), invalid),
        (of(&|ask| ask.device = Some(OpenDevice { has_initiator: 2, ..device(1) })), invalid),
    ] {
        assert_eq!(admin.create(&ask), Err(expected), "{} {:?}", ask.name, ask.disposition);
    }
    // Who would make it finds that it is not there: nothing is made.
    let mut makes = disk("missing.vhdx", 1);
    makes.disposition = CreateDisposition::OPEN_IF;
    assert_eq!(admin.create(&makes), Err(NtStatus::OBJECT_NAME_NOT_FOUND));
}

#[test]
fn the_bytes_and_the_disk_of_a_file_are_not_open_together() {
    let served = world();
    let (mut one, mut two) = (Client::admin(&served), Client::admin(&served));
    one.file("d.vhdx");
    let shared = one.create(&disk("d.vhdx", 1)).unwrap();
    assert_eq!(two.create(&plain("d.vhdx")), Err(NtStatus::SHARING_VIOLATION));
    let mut deletes = plain("d.vhdx");
    deletes.access = AccessMask::DELETE;
    assert_eq!(two.create(&deletes), Err(NtStatus::SHARING_VIOLATION));
    let mut host = disk("d.vhdx", 2);
    host.access = AccessMask::READ_DATA;
    host.device = Some(OpenDevice { originator: Originator::VHDMP, ..device(2) });
    assert_eq!(two.create(&host), Err(NtStatus::VHD_SHARED));
    let mut looks = plain("d.vhdx");
    looks.access = AccessMask::READ_ATTRIBUTES;
    let looking = two.create(&looks).unwrap();
    assert_eq!(two.state(looking), HandleState::FILE_SHARED);
    assert_eq!(one.state(shared), HandleState::SHARED);
    let other = two.create(&disk("d.vhdx", 2)).unwrap();
    one.close(shared);
    two.close(other);
    assert_eq!(two.state(looking), HandleState::NONE);
    // And the other way round, whatever the open shares.
    let bytes = one.create(&host).unwrap();
    assert_eq!(two.create(&disk("d.vhdx", 2)), Err(NtStatus::SHARING_VIOLATION));
    one.close(bytes);
    let again = two.create(&disk("d.vhdx", 2)).unwrap();
    two.close(again);
}

#[test]
fn reads_and_writes_are_commands_of_the_initiator() {
    let served = world();
    let (mut one, mut two) = (Client::admin(&served), Client::admin(&served));
    one.file("d.vhdx");
    let (first, second) = (one.create(&disk("d.vhdx", 1)).unwrap(), two.create(&disk("d.vhdx", 2)).unwrap());
    assert_eq!(one.write(first, 512, &[7; 512]), NtStatus::SUCCESS);
    assert_eq!(two.read(second, 1024).unwrap()[510..514], [0, 0, 7, 7]);
    assert_eq!(one.write(first, 1, &[7; 512]), NtStatus::INVALID_PARAMETER, "no whole sectors");
    assert_eq!(two.read(second, 100), Err(NtStatus::INVALID_PARAMETER));
    // The first one reserves, through the tunnel.
    let reserve = ScsiRequest::of(&[0x5f, 1, 1, 0, 0, 0, 0, 0, 0, 0], 2, 0).to_bytes();
    let (status, payload) = one.tunnel(first, Operation::SCSI.0, &reserve).unwrap();
    assert_eq!((status, ScsiAnswer::of_answer(&payload).unwrap().0.sensed.scsi), (NtStatus::SUCCESS, 0));
    assert_eq!(two.write(second, 0, &[8; 512]), NtStatus::SVHDX_RESERVATION_CONFLICT);
    assert_eq!(one.write(first, 0, &[8; 512]), NtStatus::SUCCESS);
    // One without an initiator asks, and sends nothing.
    let nobody = two.create(&disk("d.vhdx", 0)).unwrap();
    assert_eq!(two.write(nobody, 0, &[9; 512]), NtStatus(0xc05c_0001));
    assert_eq!(two.read(nobody, 512), Err(NtStatus(0xc05c_0002)));
    assert_eq!(two.tunnel(nobody, Operation::SCSI.0, &reserve).unwrap().0, NtStatus::INVALID_HANDLE);
    let key = |key| SrbStatusRequest { key }.to_bytes();
    let (status, left) = two.tunnel(nobody, Operation::SRB_STATUS.0, &key(2)).unwrap();
    assert_eq!((status, left[0], left[1], left[2]), (NtStatus::SUCCESS, 2, 0x82, 2));
    let (status, _) = two.tunnel(nobody, Operation::SRB_STATUS.0, &key(3)).unwrap();
    assert_eq!(status, NtStatus::SVHDX_ERROR_NOT_AVAILABLE);
    // Nor does one that has not asked for no buffers.
    let mut buffered = disk("d.vhdx", 1);
    buffered.options = CreateOptions::NONE;
    let buffered = one.create(&buffered).unwrap();
    assert_eq!(one.write(buffered, 0, &[9; 512]), NtStatus::NOT_SUPPORTED);
    assert_eq!(one.read(first, 512).unwrap(), [8; 512]);
}

#[test]
fn what_would_reach_the_file_under_the_disk_is_refused() {
    let served = world();
    let mut one = Client::admin(&served);
    one.file("d.vhdx");
    let id = one.create(&disk("d.vhdx", 1)).unwrap();
    let element = LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE }.to_bytes();
    assert_eq!(one.status(&Request::Lock(LockRequest::new(0, id, &element))), NtStatus::LOCK_NOT_GRANTED);
    for (class, expected) in [
        (FileClass::RENAME, NtStatus::NOT_SUPPORTED),
        (FileClass::LINK, NtStatus::INVALID_PARAMETER),
        (FileClass::END_OF_FILE, NtStatus::NOT_SUPPORTED),
        (FileClass::ALLOCATION, NtStatus::NOT_SUPPORTED),
        (FileClass::DISPOSITION, NtStatus::NOT_SUPPORTED),
    ] {
        let buffer = [1; 8];
        let request = SetInfoRequest {
            info_type: InfoType::FILE,
            class: class.0,
            buffer: &buffer,
            additional: 0,
            file_id: id,
        };
        assert_eq!(one.status(&Request::SetInfo(request)), expected, "{class:?}");
    }
    for (code, expected) in [
        (FsctlCode::OFFLOAD_READ, NtStatus::OFFLOAD_READ_FILE_NOT_SUPPORTED),
        (FsctlCode::OFFLOAD_WRITE, NtStatus::OFFLOAD_WRITE_FILE_NOT_SUPPORTED),
        (FsctlCode::SET_ZERO_DATA, NtStatus::INVALID_DEVICE_REQUEST),
        (FsctlCode::SRV_REQUEST_RESUME_KEY, NtStatus::INVALID_DEVICE_REQUEST),
        (FsctlCode::SRV_COPYCHUNK, NtStatus::INVALID_DEVICE_REQUEST),
    ] {
        assert_eq!(one.control(id, code, &[0; 64], 4096), Err(expected), "{code:?}");
    }
}

#[test]
fn operations_are_refused_as_specified() {
    let served = world();
    let mut one = Client::admin(&served);
    one.file("d.vhdx");
    let id = one.create(&disk("d.vhdx", 1)).unwrap();
    let sync = FsctlCode::SVHDX_SYNC_TUNNEL_REQUEST;
    assert_eq!(one.control(id, sync, &[0; 15], 4096), Err(NtStatus::BUFFER_TOO_SMALL));
    assert_eq!(one.control(id, sync, &[0; 16], 4096), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(one.tunnel(id, 0x0200_3001, &[]).unwrap().0, NtStatus::SVHDX_VERSION_MISMATCH);
    assert_eq!(one.tunnel(id, 0x0200_1fff, &[]).unwrap().0, NtStatus::INVALID_PARAMETER);
    let short = |operation: Operation| tunnel::request(operation, 5, &[0; 64]);
    for (operation, room, expected) in [
        (Operation::GET_INITIAL_INFO, 39, NtStatus::BUFFER_TOO_SMALL),
        (Operation::CHECK_CONNECTION_STATUS, 15, NtStatus::BUFFER_OVERFLOW),
        (Operation::SRB_STATUS, 39, NtStatus::INVALID_PARAMETER),
        (Operation::GET_DISK_INFO, 71, NtStatus::BUFFER_TOO_SMALL),
        (Operation::SCSI, 51, NtStatus::INVALID_PARAMETER),
        (Operation::VALIDATE_DISK, 16, NtStatus::BUFFER_TOO_SMALL),
        (Operation::META_OPERATION_START, 15, NtStatus::BUFFER_TOO_SMALL),
        (Operation::META_OPERATION_QUERY_PROGRESS, 15, NtStatus::BUFFER_TOO_SMALL),
        (Operation::QUERY_SAFE_SIZE, 15, NtStatus::BUFFER_TOO_SMALL),
    ] {
        assert_eq!(one.control(id, sync, &short(operation), room), Err(expected), "{operation:?}");
    }
    // What only sets can do.
    for operation in [
        Operation::DELETE_SNAPSHOT,
        Operation::CHANGE_TRACKING_START,
        Operation::CHANGE_TRACKING_STOP,
        Operation::CHANGE_TRACKING_GET_PARAMETERS,
        Operation::QUERY_VIRTUAL_DISK_CHANGES,
    ] {
        assert_eq!(
            one.tunnel(id, operation.0, &[0; 64]),
            Err(NtStatus::INVALID_DEVICE_REQUEST),
            "{operation:?}"
        );
    }
    // More data than are said, and fewer than that.
    for transfer in [511, 513] {
        let mut write =
            ScsiRequest::of(&[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], 1, transfer).to_bytes();
        write.resize(ScsiRequest::SIZE + 512, 1);
        let status = one.tunnel(id, Operation::SCSI.0, &write).unwrap().0;
        assert_eq!(status, NtStatus::INVALID_PARAMETER, "{transfer}");
    }
    // None of all that is for an open of another kind.
    let other = one.create(&plain("e.vhdx")).unwrap();
    assert_eq!(one.control(other, sync, &short(Operation::SCSI), 4096), Err(NtStatus::INVALID_PARAMETER));
}
