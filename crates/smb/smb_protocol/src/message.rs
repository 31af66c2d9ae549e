//! A message of any command, in both directions.
//!
//! The server's hot path decodes READ and WRITE by themselves; these enums are for everything that treats commands
//! alike: dispatch, clients, tests, logs.

use crate::command::{Command, Dialect};
use crate::create::{CreateRequest, CreateResponse};
use crate::directory::{ChangeNotifyRequest, OutputResponse, QueryDirectoryRequest};
use crate::error::ErrorResponse;
use crate::file::{CloseRequest, CloseResponse, FlushRequest};
use crate::header::{HEADER_BYTES, Header, UNSOLICITED, body};
use crate::info::{QueryInfoRequest, SetInfoRequest, SetInfoResponse};
use crate::ioctl::{IoctlRequest, IoctlResponse};
use crate::lock::LockRequest;
use crate::negotiate::{NegotiateRequest, NegotiateResponse};
use crate::oplock::{BreakAck, BreakNotification};
use crate::read::{ReadRequest, ReadResponse};
use crate::session::{Empty, SessionClosed, SessionSetupRequest, SessionSetupResponse};
use crate::status::NtStatus;
use crate::tree::{TreeConnectRequest, TreeConnectResponse};
use crate::wire::{DecodeError, Out, Wire};
use crate::write::{WriteRequest, WriteResponse};

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is its command")]
pub enum Request<'a> {
    Negotiate(NegotiateRequest<'a>),
    SessionSetup(SessionSetupRequest<'a>),
    Logoff,
    TreeConnect(TreeConnectRequest<'a>),
    TreeDisconnect,
    Create(CreateRequest<'a>),
    Close(CloseRequest),
    Flush(FlushRequest),
    Read(ReadRequest<'a>),
    /// The message together with its data.
    Write(WriteRequest, &'a [u8]),
    Lock(LockRequest<'a>),
    Ioctl(IoctlRequest<'a>),
    Cancel,
    Echo,
    QueryDirectory(QueryDirectoryRequest<'a>),
    ChangeNotify(ChangeNotifyRequest),
    QueryInfo(QueryInfoRequest<'a>),
    SetInfo(SetInfoRequest<'a>),
    OplockBreak(BreakAck),
}

impl<'a> Request<'a> {
    /// The body of a message whose header has been decoded.
    ///
    /// # Errors
    /// When it is not what the specification says, or the command is none of a client's.
    pub fn decode(command: Command, message: &'a [u8], dialect: Dialect) -> Result<Self, DecodeError> {
        Ok(match command {
            Command::NEGOTIATE => Self::Negotiate(NegotiateRequest::decode(message)?),
            Command::SESSION_SETUP => Self::SessionSetup(SessionSetupRequest::decode(message)?),
            Command::LOGOFF => Empty::from_message(message).map(|_| Self::Logoff)?,
            Command::TREE_CONNECT => {
                Self::TreeConnect(TreeConnectRequest::decode(message, dialect == Dialect::SMB_3_1_1)?)
            }
            Command::TREE_DISCONNECT => Empty::from_message(message).map(|_| Self::TreeDisconnect)?,
            Command::CREATE => Self::Create(CreateRequest::decode(message)?),
            Command::CLOSE => Self::Close(CloseRequest::from_message(message)?),
            Command::FLUSH => Self::Flush(FlushRequest::from_message(message)?),
            Command::READ => Self::Read(ReadRequest::decode(message)?),
            Command::WRITE => {
                let request = WriteRequest::decode(message)?;
                let data = message.get(request.data.clone()).ok_or(DecodeError::Truncated)?;
                Self::Write(request, data)
            }
            Command::LOCK => Self::Lock(LockRequest::decode(message)?),
            Command::IOCTL => Self::Ioctl(IoctlRequest::decode(message)?),
            Command::CANCEL => Empty::from_message(message).map(|_| Self::Cancel)?,
            Command::ECHO => Empty::from_message(message).map(|_| Self::Echo)?,
            Command::QUERY_DIRECTORY => Self::QueryDirectory(QueryDirectoryRequest::decode(message)?),
            Command::CHANGE_NOTIFY => Self::ChangeNotify(ChangeNotifyRequest::from_message(message)?),
            Command::QUERY_INFO => Self::QueryInfo(QueryInfoRequest::decode(message)?),
            Command::SET_INFO => Self::SetInfo(SetInfoRequest::decode(message)?),
            Command::OPLOCK_BREAK => Self::OplockBreak(BreakAck::from_message(message)?),
            _ => return Err(DecodeError::Invalid("command")),
        })
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> Command {
        match self {
            Self::Negotiate(_) => Command::NEGOTIATE,
            Self::SessionSetup(_) => Command::SESSION_SETUP,
            Self::Logoff => Command::LOGOFF,
            Self::TreeConnect(_) => Command::TREE_CONNECT,
            Self::TreeDisconnect => Command::TREE_DISCONNECT,
            Self::Create(_) => Command::CREATE,
            Self::Close(_) => Command::CLOSE,
            Self::Flush(_) => Command::FLUSH,
            Self::Read(_) => Command::READ,
            Self::Write(..) => Command::WRITE,
            Self::Lock(_) => Command::LOCK,
            Self::Ioctl(_) => Command::IOCTL,
            Self::Cancel => Command::CANCEL,
            Self::Echo => Command::ECHO,
            Self::QueryDirectory(_) => Command::QUERY_DIRECTORY,
            Self::ChangeNotify(_) => Command::CHANGE_NOTIFY,
            Self::QueryInfo(_) => Command::QUERY_INFO,
            Self::SetInfo(_) => Command::SET_INFO,
            Self::OplockBreak(_) => Command::OPLOCK_BREAK,
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        match self {
            Self::Negotiate(request) => request.encode(out),
            Self::SessionSetup(request) => request.encode(out),
            Self::TreeConnect(request) => request.encode(out),
            Self::Create(request) => request.encode(out),
            Self::Close(request) => out.put(request),
            Self::Flush(request) => out.put(request),
            Self::Read(request) => request.encode(out),
            Self::Write(request, data) => request.encode(data, out),
            Self::Lock(request) => request.encode(out),
            Self::Ioctl(request) => request.encode(out),
            Self::Logoff | Self::TreeDisconnect | Self::Cancel | Self::Echo => out.put(&Empty {}),
            Self::QueryDirectory(request) => request.encode(out),
            Self::ChangeNotify(request) => out.put(request),
            Self::QueryInfo(request) => request.encode(out),
            Self::SetInfo(request) => request.encode(out),
            Self::OplockBreak(BreakAck::Oplock(ack)) => out.put(ack),
            Self::OplockBreak(BreakAck::Lease(ack)) => out.put(ack),
        }
    }
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is its command")]
pub enum Response<'a> {
    /// The request failed, or will be answered later (PENDING).
    Error(ErrorResponse<'a>),
    Negotiate(NegotiateResponse<'a>),
    SessionSetup(SessionSetupResponse<'a>),
    TreeConnect(TreeConnectResponse),
    Create(CreateResponse<'a>),
    Close(CloseResponse),
    /// The message together with its data.
    Read(ReadResponse, &'a [u8]),
    Write(WriteResponse),
    Ioctl(IoctlResponse<'a>),
    /// QUERY_DIRECTORY, CHANGE_NOTIFY and QUERY_INFO.
    Output(OutputResponse<'a>),
    SetInfo(SetInfoResponse),
    /// The answer to an acknowledgement.
    OplockBreak(BreakAck),
    /// LOGOFF, TREE_DISCONNECT, FLUSH, LOCK and ECHO.
    Done,
    /// Unasked: an oplock or lease is taken back.
    BreakNotification(BreakNotification),
    /// Unasked: the session is closed.
    SessionClosed(SessionClosed),
}

/// Whether an answer with this status has an error's body. Some that are no success have their command's own all the
/// same (MS-SMB2 3.3.4.4).
#[must_use]
pub fn has_error_body(command: Command, status: NtStatus) -> bool {
    match status {
        // A watch that ended because its directory was closed saw nothing; one whose list was too long says so itself.
        NtStatus::PENDING | NtStatus::NOTIFY_CLEANUP => true,
        NtStatus::MORE_PROCESSING_REQUIRED => command != Command::SESSION_SETUP,
        NtStatus::BUFFER_OVERFLOW => !matches!(
            command,
            Command::QUERY_INFO | Command::QUERY_DIRECTORY | Command::READ | Command::IOCTL
        ),
        _ => !status.is_success(),
    }
}

impl<'a> Response<'a> {
    /// The body of a message whose header has been decoded.
    ///
    /// # Errors
    /// When it is not what the specification says, or the command is none of a server's.
    pub fn decode(header: &Header, message: &'a [u8]) -> Result<Self, DecodeError> {
        let command = header.command;
        // A server-side copy that is too large is answered with INVALID_PARAMETER and the limits (MS-SMB2 3.3.5.15.6.2),
        // and one that failed half-way with its error and how far it came.
        let told = command == Command::IOCTL && message.get(HEADER_BYTES) == Some(&49);
        if has_error_body(command, header.status) && !told {
            return ErrorResponse::decode(message).map(Self::Error);
        }
        Ok(match command {
            Command::NEGOTIATE => Self::Negotiate(NegotiateResponse::decode(message)?),
            Command::SESSION_SETUP => Self::SessionSetup(SessionSetupResponse::decode(message)?),
            Command::TREE_CONNECT => Self::TreeConnect(TreeConnectResponse::from_message(message)?),
            Command::CREATE => Self::Create(CreateResponse::decode(message)?),
            Command::CLOSE => Self::Close(CloseResponse::from_message(message)?),
            Command::READ => {
                let (response, data) = ReadResponse::from_message(message)?;
                Self::Read(response, data)
            }
            Command::WRITE => Self::Write(WriteResponse::from_message(message)?),
            Command::IOCTL => Self::Ioctl(IoctlResponse::decode(message)?),
            Command::QUERY_DIRECTORY | Command::CHANGE_NOTIFY | Command::QUERY_INFO => {
                Self::Output(OutputResponse::decode(message)?)
            }
            Command::SET_INFO => Self::SetInfo(SetInfoResponse::from_message(message)?),
            Command::OPLOCK_BREAK if header.message_id == UNSOLICITED => {
                Self::BreakNotification(BreakNotification::from_message(message)?)
            }
            Command::OPLOCK_BREAK => Self::OplockBreak(BreakAck::from_message(message)?),
            Command::LOGOFF | Command::TREE_DISCONNECT | Command::FLUSH | Command::LOCK | Command::ECHO => {
                Empty::from_message(message).map(|_| Self::Done)?
            }
            Command::SERVER_TO_CLIENT_NOTIFICATION => {
                Self::SessionClosed(SessionClosed::take(&mut body(message)?)?)
            }
            _ => return Err(DecodeError::Invalid("command")),
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        match self {
            Self::Error(response) => response.encode(out),
            Self::Negotiate(response) => response.encode(out),
            Self::SessionSetup(response) => response.encode(out),
            Self::TreeConnect(response) => out.put(response),
            Self::Create(response) => response.encode(out),
            Self::Close(response) => out.put(response),
            Self::Read(response, data) => {
                out.put(&ReadResponse {
                    data_offset: crate::read::READ_DATA_AT as u8,
                    data_length: u32::try_from(data.len()).unwrap_or(u32::MAX),
                    ..*response
                });
                out.raw(data);
            }
            Self::Write(response) => out.put(response),
            Self::Ioctl(response) => response.encode(out),
            Self::Output(response) => response.encode(out),
            Self::SetInfo(response) => out.put(response),
            Self::OplockBreak(BreakAck::Oplock(ack)) => out.put(ack),
            Self::OplockBreak(BreakAck::Lease(ack)) => out.put(ack),
            Self::Done => out.put(&Empty {}),
            Self::BreakNotification(BreakNotification::Oplock(told)) => out.put(told),
            Self::BreakNotification(BreakNotification::Lease(told)) => out.put(told),
            Self::SessionClosed(told) => out.put(told),
        }
    }
}
