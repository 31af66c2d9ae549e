//! One of each message, as seeds for the fuzzer and for tests.

mod payloads;

use crate::access::{AccessMask, CreateDisposition, OplockLevel};
use crate::command::{Command, Dialect};
use crate::create::contexts::{ContextWriter, MaximalAccessReply, tag};
use crate::create::handles::{AppInstanceId, DurableFlags, DurableReplyV2, DurableRequestV2};
use crate::create::lease::{LeaseKey, LeaseState, LeaseV2};
use crate::create::{CreateRequest, CreateResponse};
use crate::directory::{ChangeNotifyRequest, OutputResponse, QueryDirectoryRequest};
use crate::error::ErrorResponse;
use crate::file::{CloseRequest, CloseResponse, FileId, FlushRequest};
use crate::fscc::FileClass;
use crate::fsctl::FsctlCode;
use crate::guid::Guid;
use crate::header::HEADER_BYTES;
use crate::info::{InfoType, QueryInfoRequest, SetInfoRequest, SetInfoResponse};
use crate::ioctl::{IoctlFlags, IoctlRequest, IoctlResponse};
use crate::lock::{LockElement, LockFlags, LockRequest};
use crate::message::{Request, Response};
use crate::negotiate::contexts::list;
use crate::negotiate::{
    Capabilities, NegotiateContext, NegotiateContexts, NegotiateRequest, NegotiateResponse, SecurityMode,
    U16List,
};
use crate::oplock::{BreakAck, LeaseBreakAck, OplockBreak};
use crate::read::{ReadRequest, ReadResponse};
use crate::session::{SessionSetupRequest, SessionSetupResponse};
use crate::tree::{ShareType, TreeConnectRequest, TreeConnectResponse};
use crate::utf16::{Utf16, utf16};
use crate::wire::{Out, Wire};
use crate::write::{WriteRequest, WriteResponse};

pub use payloads::{descriptors, fsctls, information};

const FILE: FileId = FileId { persistent: 0x1122_3344, volatile: 0x5566_7788 };

fn negotiate_contexts() -> (u16, Vec<u8>) {
    let name = utf16("server");
    list(&[
        NegotiateContext::Preauth { algorithms: U16List::new(&[1, 0]), salt: &[0x5a; 32] },
        NegotiateContext::Encryption(U16List::new(&[2, 0, 1, 0, 4, 0, 3, 0])),
        NegotiateContext::Signing(U16List::new(&[2, 0, 1, 0])),
        NegotiateContext::NetName(Utf16::new(&name).unwrap_or_default()),
    ])
}

/// A list of create contexts as a client of 3.1.1 sends it.
#[must_use]
pub fn create_contexts() -> Vec<u8> {
    let mut w = ContextWriter::default();
    w.push(tag::MAXIMAL_ACCESS, &[]);
    w.push(tag::ON_DISK_ID, &[]);
    let flags = DurableFlags::PERSISTENT;
    w.push_value(
        tag::DURABLE_REQUEST_V2,
        &DurableRequestV2 { timeout: 0, flags, create_guid: Guid([6; 16]) },
    );
    let state = LeaseState::READ | LeaseState::HANDLE | LeaseState::WRITE;
    w.push_value(tag::LEASE, &LeaseV2 { key: LeaseKey([7; 16]), state, ..LeaseV2::default() });
    w.push_value(tag::APP_INSTANCE_ID, &AppInstanceId { id: Guid([8; 16]) });
    w.into_buffer()
}

/// Bodies of every kind of request, each after its command and a byte for [`super::request`] (dialect 3.1.1).
#[must_use]
pub fn requests() -> Vec<Vec<u8>> {
    let (count, contexts) = negotiate_contexts();
    let (path, name, all) = (utf16("\\\\server\\share"), utf16("dir\\file.vhdx"), utf16("*"));
    let contexts = NegotiateContexts::of(count, &contexts).unwrap_or_default();
    let creates = create_contexts();
    let locks = [
        LockElement { offset: 0, length: 10, flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY },
        LockElement { offset: 20, length: 1, flags: LockFlags::UNLOCK },
    ]
    .map(|lock| lock.to_bytes())
    .concat();
    let break_ack = LeaseBreakAck { key: LeaseKey([7; 16]), state: LeaseState::READ, ..Default::default() };
    [
        Request::Negotiate(NegotiateRequest {
            security_mode: SecurityMode::SIGNING_ENABLED,
            capabilities: Capabilities::LARGE_MTU | Capabilities::ENCRYPTION,
            client_guid: Guid([1; 16]),
            dialects: U16List::new(&[2, 2, 0x10, 2, 0, 3, 2, 3, 0x11, 3]),
            contexts,
        }),
        Request::SessionSetup(SessionSetupRequest {
            flags: Default::default(),
            security_mode: 1,
            capabilities: Capabilities::DFS,
            previous_session_id: 5,
            security_buffer: b"token",
        }),
        Request::Logoff,
        Request::TreeConnect(TreeConnectRequest {
            flags: Default::default(),
            path: Utf16::new(&path).unwrap_or_default(),
            contexts: Default::default(),
        }),
        Request::TreeDisconnect,
        Request::Create(CreateRequest {
            oplock: OplockLevel::LEASE,
            desired_access: AccessMask::FILE_ALL,
            disposition: CreateDisposition::OPEN_IF,
            name: Utf16::new(&name).unwrap_or_default(),
            contexts: crate::create::CreateContexts::new(&creates).unwrap_or_default(),
            ..CreateRequest::default()
        }),
        Request::Close(CloseRequest { file_id: FILE, ..Default::default() }),
        Request::Flush(FlushRequest { file_id: FILE }),
        Request::Read(ReadRequest { length: 8192, offset: 4096, file_id: FILE, ..Default::default() }),
        Request::Write(WriteRequest { offset: 4096, file_id: FILE, ..Default::default() }, b"data"),
        Request::Lock(LockRequest::new(0x21, FILE, &locks)),
        Request::Ioctl(IoctlRequest {
            code: FsctlCode::SRV_REQUEST_RESUME_KEY,
            file_id: FILE,
            input: b"input",
            max_input_response: 0,
            max_output_response: 32,
            flags: IoctlFlags::IS_FSCTL,
        }),
        Request::Cancel,
        Request::Echo,
        Request::QueryDirectory(QueryDirectoryRequest {
            class: FileClass::ID_BOTH_DIRECTORY,
            flags: Default::default(),
            file_index: 0,
            file_id: FILE,
            pattern: Utf16::new(&all).unwrap_or_default(),
            output_length: 65536,
        }),
        Request::ChangeNotify(ChangeNotifyRequest {
            file_id: FILE,
            output_length: 4096,
            ..Default::default()
        }),
        Request::QueryInfo(QueryInfoRequest {
            info_type: InfoType::FILE,
            class: FileClass::ALL.0,
            output_length: 4096,
            input: b"",
            additional: 0,
            flags: Default::default(),
            file_id: FILE,
        }),
        Request::SetInfo(SetInfoRequest {
            info_type: InfoType::FILE,
            class: FileClass::END_OF_FILE.0,
            buffer: &[0, 16, 0, 0, 0, 0, 0, 0],
            additional: 0,
            file_id: FILE,
        }),
        Request::OplockBreak(BreakAck::Oplock(OplockBreak { level: OplockLevel::II, file_id: FILE })),
        Request::OplockBreak(BreakAck::Lease(break_ack)),
    ]
    .iter()
    .map(|request| seed(request.command(), 4, |out| request.encode(out)))
    .collect()
}

/// Bodies of every kind of response, each after its command and a byte for [`super::response`].
#[must_use]
pub fn responses() -> Vec<Vec<u8>> {
    let (count, contexts) = negotiate_contexts();
    let mut creates = ContextWriter::default();
    let access = MaximalAccessReply { access: AccessMask::FILE_ALL, ..Default::default() };
    creates.push_value(tag::MAXIMAL_ACCESS, &access);
    creates.push_value(tag::DURABLE_REQUEST_V2, &DurableReplyV2 { timeout: 60_000, ..Default::default() });
    let read = ReadResponse::of(4);
    [
        (
            Command::NEGOTIATE,
            Response::Negotiate(NegotiateResponse {
                security_mode: SecurityMode::SIGNING_REQUIRED,
                dialect: Dialect::SMB_3_1_1,
                server_guid: Guid([2; 16]),
                capabilities: Capabilities::LARGE_MTU,
                max_transact: 8 << 20,
                max_read: 8 << 20,
                max_write: 8 << 20,
                system_time: crate::FileTime(1),
                start_time: crate::FileTime(0),
                security_buffer: b"token",
                contexts: NegotiateContexts::of(count, &contexts).unwrap_or_default(),
            }),
        ),
        (
            Command::SESSION_SETUP,
            Response::SessionSetup(SessionSetupResponse {
                flags: Default::default(),
                security_buffer: b"token",
            }),
        ),
        (Command::LOGOFF, Response::Done),
        (
            Command::TREE_CONNECT,
            Response::TreeConnect(TreeConnectResponse { share_type: ShareType::DISK, ..Default::default() }),
        ),
        (
            Command::CREATE,
            Response::Create(CreateResponse {
                file_id: FILE,
                contexts: creates.as_contexts(),
                ..Default::default()
            }),
        ),
        (Command::CLOSE, Response::Close(CloseResponse { end_of_file: 7, ..Default::default() })),
        (Command::READ, Response::Read(read, b"data")),
        (Command::WRITE, Response::Write(WriteResponse { count: 4 })),
        (
            Command::IOCTL,
            Response::Ioctl(IoctlResponse {
                code: FsctlCode::PIPE_TRANSCEIVE,
                file_id: FILE,
                output: b"output",
            }),
        ),
        (Command::QUERY_DIRECTORY, Response::Output(OutputResponse { output: b"entries" })),
        (Command::CHANGE_NOTIFY, Response::Output(OutputResponse { output: b"changes" })),
        (Command::QUERY_INFO, Response::Output(OutputResponse { output: b"info" })),
        (Command::SET_INFO, Response::SetInfo(SetInfoResponse {})),
        (Command::OPLOCK_BREAK, Response::OplockBreak(BreakAck::Lease(LeaseBreakAck::default()))),
        (Command::SERVER_TO_CLIENT_NOTIFICATION, Response::SessionClosed(Default::default())),
    ]
    .iter()
    .map(|(command, response)| seed(*command, 0, |out| response.encode(out)))
    .chain([seed(Command::CREATE, 4, |out| ErrorResponse { context_count: 0, data: b"data" }.encode(out))])
    .collect()
}

/// The number of negotiate contexts and their bytes, for [`super::negotiate_contexts`].
#[must_use]
pub fn negotiate_context_list() -> Vec<u8> {
    let (count, bytes) = negotiate_contexts();
    [&[count as u8], bytes.as_slice()].concat()
}

fn seed(command: Command, second: u8, body: impl FnOnce(&mut Out<'_>)) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    body(&mut Out::at(&mut message, 0));
    let [a, _] = command.0.to_le_bytes();
    [&[a, second], message.get(HEADER_BYTES..).unwrap_or_default()].concat()
}
