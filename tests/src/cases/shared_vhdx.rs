//! Two hosts have one virtual disk of a share open as a SCSI disk (MS-RSVD), with our own client made from the specification: data of the one
//! are seen by the other, reservations hold for commands, reads and writes, handles come back with them after a cut and after kill -9, and the
//! file is an image that QEMU reads.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rsvd_protocol::disk::{Capability, DiskInfo, DiskType, HandleState, InitialInfo, Support};
use rsvd_protocol::open::{DiskProperties, OpenDevice, Originator};
use rsvd_protocol::scsi::{ScsiAnswer, ScsiRequest, SrbStatusAnswer, SrbStatusRequest};
use rsvd_protocol::set::{MetaStart, Resize};
use rsvd_protocol::tunnel::{self, Operation};
use rsvd_protocol::{NAME_SUFFIX, Version};
use smb_client::{ClientError, Connection, Options as ClientOptions, Received};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, CreateReply, tag};
use smb_protocol::create::handles::{DurableFlags, DurableReconnectV2, DurableRequestV2};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Guid, NtStatus, Wire as _};

use super::Context;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

const TOOL: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// Bytes of each write, in sectors of 512.
const PIECE: usize = 32 << 10;
const CONFLICT: u8 = 0x18;
const DISK: &str = "shared.vhdx";

fn wrong(what: &'static str) -> impl Fn(ClientError) -> Outcome {
    move |why| Outcome::Fail(format!("{what}: {why}"))
}

/// A host, and the disk as it has it open.
struct Host {
    number: u8,
    connection: Connection,
    tree: u32,
    file: FileId,
}

fn connect(node: &Node, number: u8) -> Result<(Connection, u32)> {
    let address: SocketAddr =
        node.told("smb_address").parse().map_err(|why| Outcome::Fail(format!("address: {why}")))?;
    let client = Guid([number; 16]);
    let options = ClientOptions { client, timeout: Duration::from_secs(30), ..ClientOptions::default() };
    let mut connection = Connection::connect(address, options).map_err(wrong("connect"))?;
    connection.login(&node.told("smb_user"), &node.told("smb_password")).map_err(wrong("login"))?;
    let tree = connection.tree(&node.told("smb_share")).map_err(wrong("tree"))?;
    Ok((connection, tree))
}

fn create(
    (connection, tree): (&mut Connection, u32),
    name: &str,
    contexts: &ContextWriter,
) -> Result<Received> {
    let name = utf16(name);
    let name = Utf16::new(&name).map_err(|why| Outcome::Fail(format!("name: {why:?}")))?;
    let request = Request::Create(CreateRequest {
        desired_access: AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES,
        share_access: ShareAccess::READ | ShareAccess::WRITE,
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::NON_DIRECTORY_FILE | CreateOptions::NO_INTERMEDIATE_BUFFERING,
        name,
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    });
    connection.call(&request, tree).map_err(wrong("CREATE"))
}

/// The context of a host, as that part of it which has the disk or the file.
fn device(number: u8, originator: Originator) -> Vec<u8> {
    let device = OpenDevice {
        version: Version::V2,
        has_initiator: 1,
        initiator: Guid([number; 16]),
        originator,
        request: u64::from(number),
        ..OpenDevice::default()
    };
    device.of_host("host").encode(&DiskProperties::default())
}

fn name_of(number: u8) -> Guid {
    Guid([0xc0 | number; 16])
}

impl Host {
    fn open(node: &Node, number: u8) -> Result<Self> {
        let (mut connection, tree) = connect(node, number)?;
        let mut contexts = ContextWriter::default();
        contexts.push(tag::SVHDX_OPEN_DEVICE, &device(number, Originator::PVHDPARSER));
        let durable =
            DurableRequestV2 { timeout: 0, flags: DurableFlags::PERSISTENT, create_guid: name_of(number) };
        contexts.push_value(tag::DURABLE_REQUEST_V2, &durable);
        let received = create((&mut connection, tree), &format!("{DISK}{NAME_SUFFIX}"), &contexts)?;
        let Response::Create(created) = received.good().map_err(wrong("CREATE"))? else {
            return Err(Outcome::Fail("CREATE: another answer".into()));
        };
        let told = created.contexts.replies().find_map(|reply| match reply {
            Ok(CreateReply::Other(tag::SVHDX_OPEN_DEVICE, data)) => OpenDevice::of_answer(data).ok(),
            _ => None,
        });
        let properties = told.and_then(|(_, properties)| properties);
        let right = properties.is_some_and(|known| {
            (known.known, known.sector, known.size, known.server) == (1, 512, SIZE, Version::V2)
        });
        ensure(right, || format!("CREATE tells of the disk: {properties:?}"))?;
        Ok(Self { number, connection, tree, file: created.file_id })
    }

    /// Takes the handle up over a new connection, without a word of the disk.
    fn come_back(&mut self, node: &Node) -> Result {
        let (connection, tree) = connect(node, self.number)?;
        (self.connection, self.tree) = (connection, tree);
        let mut contexts = ContextWriter::default();
        let create_guid = name_of(self.number);
        let back = DurableReconnectV2 { file_id: self.file, create_guid, flags: DurableFlags::PERSISTENT };
        contexts.push_value(tag::DURABLE_RECONNECT_V2, &back);
        let name = format!("{DISK}{NAME_SUFFIX}");
        let received = create((&mut self.connection, self.tree), &name, &contexts)?;
        let Response::Create(created) = received.good().map_err(wrong("reconnection"))? else {
            return Err(Outcome::Fail("reconnection: another answer".into()));
        };
        self.file = created.file_id;
        Ok(())
    }

    fn control(&mut self, code: FsctlCode, input: &[u8]) -> Result<Vec<u8>> {
        let request = Request::Ioctl(IoctlRequest {
            code,
            file_id: self.file,
            input,
            max_input_response: 0,
            max_output_response: 65_536,
            flags: IoctlFlags::IS_FSCTL,
        });
        let received = self.connection.call(&request, self.tree).map_err(wrong("IOCTL"))?;
        match received.good().map_err(wrong("IOCTL"))? {
            Response::Ioctl(answer) => Ok(answer.output.to_vec()),
            other => Err(Outcome::Fail(format!("IOCTL: {other:?}"))),
        }
    }

    /// An operation through the tunnel: its status and what it brings.
    fn tunnel(&mut self, operation: Operation, payload: &[u8]) -> Result<(NtStatus, Vec<u8>)> {
        let input = tunnel::request(operation, 7, payload);
        let output = self.control(FsctlCode::SVHDX_SYNC_TUNNEL_REQUEST, &input)?;
        let (header, payload) =
            tunnel::answer(&output).map_err(|why| Outcome::Fail(format!("the tunnel's answer {why}")))?;
        ensure((header.operation, header.request) == (operation, 7), || format!("answered: {header:?}"))?;
        Ok((header.status, payload.to_vec()))
    }

    /// A SCSI command: its status, sense data and data.
    fn scsi(&mut self, cdb: &[u8], data: &[u8], room: usize) -> Result<(u8, Vec<u8>, Vec<u8>)> {
        let disposition = u8::from(data.is_empty());
        let mut payload = ScsiRequest::of(cdb, disposition, (data.len() + room) as u32).to_bytes();
        payload.extend_from_slice(data);
        let (status, payload) = self.tunnel(Operation::SCSI, &payload)?;
        ensure(status == NtStatus::SUCCESS, || format!("SCSI {:#x}: {status}", cdb[0]))?;
        let (answer, data) =
            ScsiAnswer::of_answer(&payload).map_err(|why| Outcome::Fail(format!("SCSI answer {why}")))?;
        Ok((answer.sensed.scsi, answer.sensed.bytes().to_vec(), data.to_vec()))
    }

    fn good(&mut self, cdb: &[u8], data: &[u8], room: usize) -> Result<Vec<u8>> {
        let (status, sense, data) = self.scsi(cdb, data, room)?;
        ensure(status == 0, || format!("SCSI {:#x} ended with {status:#x}, {sense:x?}", cdb[0]))?;
        Ok(data)
    }

    /// PERSISTENT RESERVE OUT with a service action and a type.
    fn reserve(&mut self, action: u8, kind: u8, key: u64, other: u64) -> Result<u8> {
        let mut data = [0; 24];
        data[..8].copy_from_slice(&key.to_be_bytes());
        data[8..16].copy_from_slice(&other.to_be_bytes());
        Ok(self.scsi(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &data, 0)?.0)
    }

    fn write(&mut self, offset: u64, byte: u8) -> Result<NtStatus> {
        let data = vec![byte; PIECE];
        let request = WriteRequest { file_id: self.file, offset, ..WriteRequest::default() };
        let received = self.connection.call(&Request::Write(request, &data), self.tree);
        Ok(received.map_err(wrong("WRITE"))?.header.status)
    }

    fn writes(&mut self, offset: u64, byte: u8) -> Result {
        let status = self.write(offset, byte)?;
        ensure(status == NtStatus::SUCCESS, || format!("host {}: WRITE {offset}: {status}", self.number))
    }

    fn reads(&mut self, offset: u64, byte: u8) -> Result {
        let request =
            ReadRequest { length: PIECE as u32, offset, file_id: self.file, ..ReadRequest::default() };
        let received = self.connection.call(&Request::Read(request), self.tree).map_err(wrong("READ"))?;
        match received.good().map_err(wrong("READ"))? {
            Response::Read(_, data) if data == vec![byte; PIECE] => Ok(()),
            _ => Err(Outcome::Fail(format!("host {}: READ {offset} brings other bytes", self.number))),
        }
    }

    fn close(mut self) -> Result {
        let request = Request::Close(CloseRequest { file_id: self.file, ..CloseRequest::default() });
        self.connection.call(&request, self.tree).map_err(wrong("CLOSE"))?.good().map_err(wrong("CLOSE"))?;
        Ok(())
    }
}

pub(super) fn run(context: &Context) -> Result {
    need("qemu-img", "qemu-utils")?;
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let folder = context.folder.join("images");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let mut node = Node::start(&context.folder, Options::default())?;
    let made = folder.join(DISK);
    tool("qemu-img", &folder, &["create", "-q", "-f", "vhdx", DISK, "64M"])?;
    std::fs::write(folder.join("empty.vhdx"), b"")?;
    for name in [DISK, "empty.vhdx"] {
        node.smbclient(&format!("put {} {name}", folder.join(name).display()))?.ok("smbclient put")?;
    }
    std::fs::remove_file(&made)?;

    let (mut one, mut two) = (Host::open(&node, 1)?, Host::open(&node, 2)?);
    describe(&mut one)?;
    one.writes(0, 0x11)?;
    two.reads(0, 0x11)?;
    // The same through the tunnel: WRITE(10) and READ(10) of 64 sectors at 1 MiB.
    let at = [0, 0, 8, 0, 0, 0, 64, 0];
    two.good(&[&[0x2a, 0][..], &at].concat(), &vec![0x22; PIECE], 0)?;
    let read = one.good(&[&[0x28, 0][..], &at].concat(), &[], PIECE)?;
    ensure(read == vec![0x22; PIECE], || "READ(10) brings other bytes".into())?;
    kept_from_others(&node)?;
    reservations(&mut one, &mut two)?;
    crate::note!("     two initiators, one disk: data and reservations");

    // The holder's connection is cut: it goes on holding, and comes back.
    two.connection = connect(&node, 9)?.0;
    refused(&mut one)?;
    two.come_back(&node)?;
    two.writes(2 * MIB, 0x33)?;
    // And the node is killed.
    node.crash_and_restart()?;
    for host in [&mut one, &mut two] {
        host.come_back(&node)?;
    }
    refused(&mut one)?;
    two.writes(3 * MIB, 0x44)?;
    one.reads(3 * MIB, 0x44)?;
    crate::note!("     the reservation outlives a cut connection and kill -9");

    // It becomes larger while both have it open; the other is told.
    let grow = Resize { size: 96 * MIB, expand_only: true, ..Resize::default() };
    let mut payload = MetaStart::default().to_bytes();
    grow.put(&mut payload);
    let (status, _) = two.tunnel(Operation::META_OPERATION_START, &payload)?;
    ensure(status == NtStatus::SUCCESS, || format!("RESIZE: {status}"))?;
    let told = two.write(4 * MIB, 0x55)?;
    ensure(told == NtStatus::SVHDX_UNIT_ATTENTION_CAPACITY_DATA_CHANGED, || format!("after it: {told}"))?;
    two.writes(95 * MIB, 0x55)?;
    one.close()?;
    two.close()?;

    // Nobody has it open any more: it is a file again.
    node.smbclient(&format!("get {DISK} {}", made.display()))?.ok("smbclient get")?;
    tool("qemu-img", &folder, &["check", "-q", "-f", "vhdx", DISK])?;
    let mut verify = vec!["-f".to_owned(), "vhdx".into(), "-r".into()];
    for (at, byte) in [(0, 0x11), (1, 0x22), (2, 0x33), (3, 0x44), (4, 0), (95, 0x55)] {
        verify.extend(["-c".into(), format!("read -P {byte} {at}M {}k", PIECE >> 10)]);
    }
    verify.push(DISK.into());
    let verify: Vec<&str> = verify.iter().map(String::as_str).collect();
    let said = tool("qemu-io", &folder, &verify)?;
    ensure(!said.contains("Pattern verification failed"), || format!("QEMU reads other bytes:\n{said}"))?;
    node.finish()
}

fn tool(program: &str, folder: &Path, arguments: &[&str]) -> Result<String> {
    let mut tool = command(PathBuf::from(program));
    tool.args(arguments).current_dir(folder);
    run_program(TOOL, &tool)?.ok(&format!("{program} {arguments:?}"))
}

/// What the server and the disk say of themselves.
fn describe(host: &mut Host) -> Result {
    let output = host.control(FsctlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT, &[])?;
    let support = Support::decode(&output).map_err(|why| Outcome::Fail(why.to_string()))?;
    let right = Support { capability: Capability::SHARED, state: HandleState::SHARED };
    ensure(support == right, || format!("support: {support:?}"))?;
    let (_, info) = host.tunnel(Operation::GET_INITIAL_INFO, &[])?;
    let info = InitialInfo::decode(&info).map_err(|why| Outcome::Fail(why.to_string()))?;
    ensure((info.sector, info.size) == (512, SIZE), || format!("{info:?}"))?;
    let (_, disk) = host.tunnel(Operation::GET_DISK_INFO, &[0; 56])?;
    let disk = DiskInfo::decode(&disk).map_err(|why| Outcome::Fail(why.to_string()))?;
    let dynamic = disk.disk_type == DiskType::DYNAMIC && disk.block_size > 0 && disk.file_size > 0;
    ensure(dynamic && disk.is_mounted, || format!("{disk:?}"))?;
    ensure(host.tunnel(Operation::CHECK_CONNECTION_STATUS, &[])?.0 == NtStatus::SUCCESS, || "check".into())?;
    ensure(host.tunnel(Operation::VALIDATE_DISK, &[0; 56])?.1 == [1], || "the disk is not valid".into())?;
    let inquiry = host.good(&[0x12, 0, 0, 0, 96, 0], &[], 96)?;
    ensure(inquiry.get(16..27) == Some(b"SHARED DISK"), || format!("INQUIRY: {inquiry:x?}"))?;
    let mut capacity = [0; 16];
    (capacity[0], capacity[1], capacity[13]) = (0x9e, 0x10, 32);
    let capacity = host.good(&capacity, &[], 32)?;
    let last = (SIZE / 512 - 1).to_be_bytes();
    ensure(capacity.get(..8) == Some(&last[..]), || format!("READ CAPACITY: {capacity:x?}"))?;
    // What a read beyond the end has left.
    let request = ReadRequest { length: 512, offset: SIZE, file_id: host.file, ..ReadRequest::default() };
    let status =
        host.connection.call(&Request::Read(request), host.tree).map_err(wrong("READ"))?.header.status;
    let key = (status.0 & 0xff) as u8;
    ensure(status.0 & !0xff == NtStatus::SVHDX_ERROR_STORED.0, || {
        format!("a READ beyond the end: {status}")
    })?;
    let (_, left) = host.tunnel(Operation::SRB_STATUS, &SrbStatusRequest { key }.to_bytes())?;
    let left = SrbStatusAnswer::decode(&left).map_err(|why| Outcome::Fail(why.to_string()))?;
    let sense = left.sensed.bytes();
    let out_of_range = sense.get(2).map(|key| key & 15) == Some(5) && sense.get(12) == Some(&0x21);
    ensure(left.sensed.scsi == 2 && out_of_range, || format!("{left:?}"))
}

/// Nobody else gets at the file while it is shared, and what is no disk is not opened as one.
fn kept_from_others(node: &Node) -> Result {
    let said = node.smbclient(&format!("get {DISK} /dev/null"))?;
    let said = format!("{}{}", said.output, said.errors);
    ensure(said.contains("SHARING_VIOLATION"), || format!("a plain open: {said}"))?;
    let place = format!("{}:/shares/{}/{DISK}", node.told("volume"), node.told("smb_share"));
    let lun = node.cli(&["lun", "create", "same", "--image", &place, "--group", "everyone", "--number", "8"]);
    ensure(lun.is_err(), || "a LUN of a shared disk".into())?;
    let (mut connection, tree) = connect(node, 7)?;
    for (name, originator, expected) in [
        (DISK, Originator::VHDMP, NtStatus::VHD_SHARED),
        ("empty.vhdx", Originator::PVHDPARSER, NtStatus::FILE_CORRUPT_ERROR),
        ("missing.vhdx", Originator::PVHDPARSER, NtStatus::OBJECT_NAME_NOT_FOUND),
        ("shared.vhds", Originator::PVHDPARSER, NtStatus::SVHDX_WRONG_FILE_TYPE),
    ] {
        let mut contexts = ContextWriter::default();
        contexts.push(tag::SVHDX_OPEN_DEVICE, &device(7, originator));
        let name = format!("{name}{NAME_SUFFIX}");
        let status = create((&mut connection, tree), &name, &contexts)?.header.status;
        ensure(status == expected, || format!("{name} for {originator:?}: {status}"))?;
    }
    Ok(())
}

/// The first host reserves, the second is kept out, and takes over. It holds the reservation then.
fn reservations(one: &mut Host, two: &mut Host) -> Result {
    const WRITE_EXCLUSIVE: u8 = 1;
    let good = |status: u8, what: &str| ensure(status == 0, || format!("{what}: {status:#x}"));
    good(one.reserve(0, 0, 0, 0xa)?, "one registers")?;
    good(one.reserve(1, WRITE_EXCLUSIVE, 0xa, 0)?, "one reserves")?;
    refused(two)?;
    let command = [0x2a, 0, 0, 0, 16, 0, 0, 0, 1, 0];
    let status = two.scsi(&command, &[0x66; 512], 0)?.0;
    ensure(status == CONFLICT, || format!("WRITE(10) of the other: {status:#x}"))?;
    two.reads(0, 0x11)?;
    ensure(two.reserve(1, WRITE_EXCLUSIVE, 0, 0)? == CONFLICT, || "reserved without a registration".into())?;
    good(two.reserve(0, 0, 0, 0xb)?, "two registers")?;
    good(two.reserve(4, WRITE_EXCLUSIVE, 0xb, 0xa)?, "two preempts")?;
    let told = one.write(4 * MIB, 0x77)?;
    ensure(told == NtStatus::SVHDX_UNIT_ATTENTION_REGISTRATIONS_PREEMPTED, || format!("one hears {told}"))?;
    refused(one)?;
    two.writes(2 * MIB, 0x32)
}

fn refused(host: &mut Host) -> Result {
    let status = host.write(4 * MIB, 0x77)?;
    ensure(status == NtStatus::SVHDX_RESERVATION_CONFLICT, || {
        format!("host {} writes against the reservation: {status}", host.number)
    })
}
