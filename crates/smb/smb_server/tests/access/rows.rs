//! What a row is, and how it is sent.

pub mod changes;
pub mod commands;
pub mod controls;
pub mod queries;

use smb_protocol::access::AccessMask;
use smb_protocol::directory::{
    ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter, QueryDirectoryFlags, QueryDirectoryRequest,
};
use smb_protocol::file::{CloseRequest, FileId, FlushRequest};
use smb_protocol::fscc::{FileClass, VolumeClass};
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::{
    OffloadReadInput, OffloadReadOutput, OffloadToken, ResumeKey, ResumeKeyReply,
};
use smb_protocol::info::{InfoType, QueryInfoFlags, QueryInfoRequest, SecurityInformation, SetInfoRequest};
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::oplock::{BreakAck, OplockBreak};
use smb_protocol::read::ReadRequest;
use smb_protocol::security::Sid;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, NtStatus, Wire as _};

use super::world::{Ask, Part, SOURCE, Seat, World};

/// What the input of an operation is made from.
#[derive(Default)]
pub struct Given {
    /// Who asks.
    pub who: Option<Sid>,
    /// A name that is free.
    pub name: String,
    /// An open of the source in the same session, with its resume key and a token for its data.
    pub source: Option<FileId>,
    pub key: ResumeKey,
    pub token: Option<OffloadToken>,
}

pub type Input = fn(&Given) -> Vec<u8>;

pub fn nothing(_: &Given) -> Vec<u8> {
    Vec::new()
}

/// The request.
#[derive(Clone, Copy, Debug)]
pub enum Send {
    Control(FsctlCode),
    /// A control that is about no open.
    ControlOfNone(FsctlCode),
    QueryFile(FileClass),
    QueryVolume(VolumeClass),
    QuerySecurity(SecurityInformation),
    SetFile(FileClass),
    SetVolume(VolumeClass),
    SetSecurity(SecurityInformation),
    List(FileClass),
    QueryQuota,
    SetQuota,
    Command(Command),
    /// A command without a handle, or whose requests have rows of their own: where it is tried.
    Elsewhere(Command, &'static str),
}

/// An operation.
#[derive(Clone, Copy)]
pub struct Row {
    pub send: Send,
    /// Of each of these, the open has one.
    pub needs: &'static [AccessMask],
    /// What is answered to who has.
    pub answer: NtStatus,
    /// What is answered to administrators, if something else.
    pub admin: Option<NtStatus>,
    /// What it changes: one of these at least.
    pub changes: &'static [Part],
    /// Whether the input needs a second open.
    pub second: bool,
    pub input: Input,
}

/// A row of something that changes nothing.
pub const fn row(send: Send, needs: &'static [AccessMask], answer: NtStatus) -> Row {
    Row { send, needs, answer, admin: None, changes: &[], second: false, input: nothing }
}

impl Row {
    pub const fn with(self, input: Input) -> Self {
        Self { input, ..self }
    }

    pub const fn with_second(self, input: Input) -> Self {
        Self { input, second: true, ..self }
    }

    pub const fn changing(self, changes: &'static [Part]) -> Self {
        Self { changes, ..self }
    }

    pub const fn for_admin(self, answer: NtStatus) -> Self {
        Self { admin: Some(answer), ..self }
    }

    /// The number that its kind of operation is known by.
    pub const fn code(&self) -> u32 {
        match self.send {
            Send::Control(code) | Send::ControlOfNone(code) => code.0,
            Send::QueryFile(class) | Send::SetFile(class) | Send::List(class) => class.0 as u32,
            Send::QueryVolume(class) | Send::SetVolume(class) => class.0 as u32,
            Send::QuerySecurity(parts) | Send::SetSecurity(parts) => parts.0,
            Send::QueryQuota | Send::SetQuota => 0,
            Send::Command(command) | Send::Elsewhere(command, _) => command.0 as u32,
        }
    }

    pub fn name(&self) -> String {
        match self.send {
            Send::Control(code) | Send::ControlOfNone(code) => format!("{code:?}"),
            Send::QueryFile(class) => format!("query {class:?}"),
            Send::QueryVolume(class) => format!("query volume {class:?}"),
            Send::QuerySecurity(parts) => format!("query security {parts:?}"),
            Send::SetFile(class) => format!("set {class:?}"),
            Send::SetVolume(class) => format!("set volume {class:?}"),
            Send::SetSecurity(parts) => format!("set security {parts:?}"),
            Send::List(class) => format!("list {class:?}"),
            Send::QueryQuota => "query quota".to_owned(),
            Send::SetQuota => "set quota".to_owned(),
            Send::Command(command) | Send::Elsewhere(command, _) => format!("{command:?}"),
        }
    }

    pub fn of_no_file(&self) -> bool {
        matches!(self.send, Send::ControlOfNone(_) | Send::Control(FsctlCode::VALIDATE_NEGOTIATE_INFO))
    }

    pub fn is_met(&self, rights: AccessMask) -> bool {
        self.needs.iter().all(|any| rights.intersects(*any))
    }

    pub fn refused(&self) -> NtStatus {
        NtStatus::ACCESS_DENIED
    }

    pub fn expected(&self, rights: AccessMask, admin: bool) -> NtStatus {
        match self.is_met(rights) {
            true => self.admin.filter(|_| admin).unwrap_or(self.answer),
            false => self.refused(),
        }
    }

    /// Times follow whatever else changes.
    pub fn may_change(&self, part: Part) -> bool {
        self.changes.contains(&part) || (part == Part::Times && !self.changes.is_empty())
    }
}

/// The numbers of a table's rows.
pub const fn codes<const N: usize>(rows: &[Row; N]) -> [u32; N] {
    let mut out = [0; N];
    let mut at = 0;
    while at < N {
        out[at] = rows[at].code();
        at += 1;
    }
    out
}

/// The numbers of all named values of a type.
macro_rules! named {
    ($name:ty) => {{
        const N: usize = <$name>::NAMED.len();
        let mut out = [0_u32; N];
        let mut at = 0;
        while at < N {
            out[at] = <$name>::NAMED[at].0 as u32;
            at += 1;
        }
        out
    }};
}
pub(crate) use named;

const LIMIT: u32 = 65_536;

fn query(info_type: InfoType, class: u8, additional: u32, file_id: FileId) -> Request<'static> {
    Request::QueryInfo(QueryInfoRequest {
        info_type,
        class,
        output_length: LIMIT,
        input: &[],
        additional,
        flags: QueryInfoFlags::NONE,
        file_id,
    })
}

fn set(info_type: InfoType, class: u8, additional: u32, file_id: FileId, buffer: &[u8]) -> Request<'_> {
    Request::SetInfo(SetInfoRequest { info_type, class, buffer, additional, file_id })
}

fn control(code: FsctlCode, file_id: FileId, input: &[u8]) -> Request<'_> {
    Request::Ioctl(IoctlRequest {
        code,
        file_id,
        input,
        max_input_response: 0,
        max_output_response: LIMIT,
        flags: IoctlFlags::IS_FSCTL,
    })
}

impl World {
    /// Sends a row's request with a seat's handles, and says how it ends. `own`: whether the handle is one of the sender's.
    pub fn send(&mut self, seat: &Seat, row: &Row, own: bool) -> NtStatus {
        let mut given =
            Given { who: Some(seat.client.sid()), name: self.next_name("new"), ..Given::default() };
        if row.second && own {
            self.open_source(seat, &mut given);
        }
        let input = (row.input)(&given);
        let file_id = seat.file;
        let pattern = utf16("*");
        let lock =
            LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY };
        let lock = lock.to_bytes();
        let request = match row.send {
            Send::Control(code) => control(code, file_id, &input),
            // With a handle, for who tries one that is not its own: such a control wants none.
            Send::ControlOfNone(code) => control(code, if own { FileId::RELATED } else { file_id }, &input),
            Send::QueryFile(class) => query(InfoType::FILE, class.0, 0, file_id),
            Send::QueryVolume(class) => query(InfoType::FILESYSTEM, class.0, 0, file_id),
            Send::QuerySecurity(parts) => query(InfoType::SECURITY, 0, parts.0, file_id),
            Send::QueryQuota => query(InfoType::QUOTA, 0, 0, file_id),
            Send::SetFile(class) => set(InfoType::FILE, class.0, 0, file_id, &input),
            Send::SetVolume(class) => set(InfoType::FILESYSTEM, class.0, 0, file_id, &input),
            Send::SetSecurity(parts) => set(InfoType::SECURITY, 0, parts.0, file_id, &input),
            Send::SetQuota => set(InfoType::QUOTA, 0, 0, file_id, &input),
            Send::List(class) => Request::QueryDirectory(QueryDirectoryRequest {
                class,
                flags: QueryDirectoryFlags::RESTART_SCANS,
                file_index: 0,
                file_id: seat.directory,
                pattern: Utf16::new(&pattern).unwrap(),
                output_length: LIMIT,
            }),
            Send::Command(Command::READ) => {
                Request::Read(ReadRequest { length: 512, file_id, ..ReadRequest::default() })
            }
            Send::Command(Command::WRITE) => {
                Request::Write(WriteRequest { file_id, ..WriteRequest::default() }, b"changed")
            }
            Send::Command(Command::FLUSH) => Request::Flush(FlushRequest { file_id }),
            Send::Command(Command::CLOSE) => {
                Request::Close(CloseRequest { file_id, ..CloseRequest::default() })
            }
            Send::Command(Command::LOCK) => Request::Lock(LockRequest::new(0, file_id, &lock)),
            Send::Command(Command::OPLOCK_BREAK) => {
                Request::OplockBreak(BreakAck::Oplock(OplockBreak { file_id, ..OplockBreak::default() }))
            }
            Send::Command(Command::CHANGE_NOTIFY) => Request::ChangeNotify(ChangeNotifyRequest {
                flags: ChangeNotifyFlags::NONE,
                output_length: LIMIT,
                file_id: seat.directory,
                filter: CompletionFilter::FILE_NAME,
            }),
            Send::Command(command) => panic!("{command:?} has no request"),
            Send::Elsewhere(command, place) => panic!("{command:?} is tried in {place}"),
        };
        let status = match row.send {
            Send::Command(Command::CHANGE_NOTIFY) if own => self.notified(seat, &request),
            _ => self.call(seat.client, seat.tree, &request),
        };
        if let Some(source) = given.source {
            self.close_id(seat.client, seat.share, source);
        }
        status
    }

    fn open_source(&mut self, seat: &Seat, given: &mut Given) {
        let opened = self.create(seat.client, seat.tree, &Ask::open(SOURCE, AccessMask::READ_DATA)).unwrap();
        given.source = Some(opened);
        let request = control(FsctlCode::SRV_REQUEST_RESUME_KEY, opened, &[]);
        let key = self.output(seat, &request);
        given.key = ResumeKeyReply::decode(&key).unwrap().key;
        let read = OffloadReadInput {
            size: OffloadReadInput::SIZE as u32,
            copy_length: 4096,
            ..OffloadReadInput::default()
        };
        let output = self.output(seat, &control(FsctlCode::OFFLOAD_READ, opened, &read.to_bytes()));
        given.token = Some(OffloadReadOutput::decode(&output).unwrap().token);
    }

    fn output(&mut self, seat: &Seat, request: &Request<'_>) -> Vec<u8> {
        let received = self.connection(seat.client).call(request, seat.tree).unwrap();
        match received.good().unwrap() {
            Response::Ioctl(answer) => answer.output.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}
