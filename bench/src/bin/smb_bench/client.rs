//! A client: one connection with one tree connect, and the requests that loads are made of.

use std::net::SocketAddr;

use smb_client::{Connection, Options, Protection};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, tag};
use smb_protocol::create::handles::{DurableFlags, DurableRequestV2};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::fscc::FileClass;
use smb_protocol::info::{InfoType, QueryInfoRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Dialect, Guid};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is connected to, and as whom.
pub(crate) struct Place<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) share: &'a str,
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

/// A connection with a tree connect.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) tree: u32,
}

impl Client {
    /// Connects, logs in, and has enough credits for the deepest pipeline.
    pub(crate) fn connect(place: &Place<'_>, protection: Protection) -> Result<Self, Failure> {
        let options = Options { dialects: vec![Dialect::SMB_3_1_1], ..Options::default() };
        let mut connection = Connection::connect(place.address, options)?;
        connection.login(place.user, place.password)?;
        // The tree connect must be signed whatever follows (MS-SMB2 3.3.5.7).
        let tree = connection.tree(place.share)?;
        connection.protection = protection;
        Ok(Self { connection, tree })
    }

    /// Credits come with answers: enough of them for the deepest pipeline.
    pub(crate) fn gather_credits(&mut self) -> Result<(), Failure> {
        for _ in 0..16 {
            self.connection.call(&Request::Echo, 0)?;
        }
        Ok(())
    }

    pub(crate) fn call(&mut self, request: &Request<'_>) -> Result<smb_client::Received, Failure> {
        let answer = self.connection.call(request, self.tree)?;
        answer.good()?;
        Ok(answer)
    }

    pub(crate) fn open(
        &mut self,
        name: &str,
        disposition: CreateDisposition,
        options: CreateOptions,
        persistent: Option<Guid>,
    ) -> Result<FileId, Failure> {
        let name = utf16(name);
        let mut contexts = ContextWriter::default();
        if let Some(create_guid) = persistent {
            let request = DurableRequestV2 { timeout: 0, flags: DurableFlags::PERSISTENT, create_guid };
            contexts.push_value(tag::DURABLE_REQUEST_V2, &request);
        }
        let answer = self.call(&Request::Create(CreateRequest {
            oplock: OplockLevel::NONE,
            desired_access: AccessMask::FILE_ALL,
            share_access: ShareAccess(7),
            disposition,
            options,
            name: Utf16::new(&name)?,
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        }))?;
        match answer.response()? {
            Response::Create(created) => Ok(created.file_id),
            _ => Err("CREATE was answered with something else".into()),
        }
    }

    pub(crate) fn close(&mut self, file_id: FileId) -> Result<(), Failure> {
        self.call(&Request::Close(CloseRequest { file_id, ..CloseRequest::default() })).map(drop)
    }

    pub(crate) fn stat(&mut self, file_id: FileId) -> Result<(), Failure> {
        let request = QueryInfoRequest {
            info_type: InfoType::FILE,
            class: FileClass::NETWORK_OPEN.0,
            output_length: 56,
            input: &[],
            additional: 0,
            flags: Default::default(),
            file_id,
        };
        self.call(&Request::QueryInfo(request)).map(drop)
    }
}
