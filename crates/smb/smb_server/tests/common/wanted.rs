//! A client of persistent handles: what it opens, and how it comes back.

#![allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use file_store::MemoryStore;
use smb_client::{Connection, Options, Received};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::{ContextWriter, CreateReply, tag};
use smb_protocol::create::handles::{DurableFlags, DurableReconnectV2, DurableRequestV2};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::header::HeaderFlags;
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, Guid, NtStatus};
use smb_server::ServerConfig;

use super::common::{Served, serve};

pub const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
pub const CREATE: Guid = Guid([0xc1; 16]);

pub fn served(store: &Arc<MemoryStore>) -> Served {
    serve(Arc::clone(store), ServerConfig::default(), ANY).unwrap()
}

pub fn client(served: &Served, client: Guid) -> (Connection, u32) {
    let options = Options { client, timeout: Duration::from_secs(20), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("admin", "secret").unwrap();
    let tree = connection.tree("ca").unwrap();
    (connection, tree)
}

/// The server is gone without a word, and comes again with one open that waits; its client, too.
pub fn restarted(first: Served, store: &Arc<MemoryStore>, me: Guid) -> (Served, Connection, u32) {
    std::mem::forget(first);
    let second = served(store);
    assert_eq!(second.restore().opens, 1);
    let (connection, tree) = client(&second, me);
    (second, connection, tree)
}

/// What to open, and with which contexts.
pub struct Wanted {
    pub share: ShareAccess,
    pub options: CreateOptions,
    pub disposition: CreateDisposition,
    pub contexts: ContextWriter,
    pub replay: bool,
    pub oplock: OplockLevel,
    pub name: &'static str,
}

impl Wanted {
    pub fn plain() -> Self {
        Self {
            share: ShareAccess::NONE,
            options: CreateOptions::NON_DIRECTORY_FILE,
            disposition: CreateDisposition::OPEN_IF,
            contexts: ContextWriter::default(),
            replay: false,
            oplock: OplockLevel::NONE,
            name: "disk.vhdx",
        }
    }

    pub fn persistent(timeout: u32) -> Self {
        let mut wanted = Self::plain();
        let request = DurableRequestV2 { timeout, flags: DurableFlags::PERSISTENT, create_guid: CREATE };
        wanted.contexts.push_value(tag::DURABLE_REQUEST_V2, &request);
        wanted
    }

    pub fn back(id: FileId) -> Self {
        let mut wanted = Self::plain();
        let reconnect =
            DurableReconnectV2 { file_id: id, create_guid: CREATE, flags: DurableFlags::PERSISTENT };
        wanted.contexts.push_value(tag::DURABLE_RECONNECT_V2, &reconnect);
        wanted
    }

    pub fn open(&self, connection: &mut Connection, tree: u32) -> Received {
        let id = self.begin(connection, tree);
        connection.answer_to(id).unwrap()
    }

    /// Sends the request; its number is what the answer has.
    pub fn begin(&self, connection: &mut Connection, tree: u32) -> u64 {
        let name = utf16(self.name);
        let request = Request::Create(CreateRequest {
            oplock: self.oplock,
            desired_access: AccessMask::FILE_ALL,
            share_access: self.share,
            disposition: self.disposition,
            options: self.options,
            name: Utf16::new(&name).unwrap(),
            contexts: self.contexts.as_contexts(),
            ..CreateRequest::default()
        });
        let mut header = connection.header(Command::CREATE, tree);
        if self.replay {
            header.flags |= HeaderFlags::REPLAY_OPERATION;
        }
        let id = header.message_id;
        connection.send_as(&[(header, &request)]).unwrap();
        id
    }
}

pub fn file_id(received: &Received) -> FileId {
    match received.good().unwrap() {
        Response::Create(created) => created.file_id,
        other => panic!("{other:?}"),
    }
}

pub fn is_persistent(received: &Received) -> bool {
    let Response::Create(created) = received.good().unwrap() else { return false };
    created.contexts.replies().any(|reply| {
        matches!(reply, Ok(CreateReply::DurableV2(durable)) if durable.flags.contains(DurableFlags::PERSISTENT))
    })
}

pub fn write(connection: &mut Connection, tree: u32, file_id: FileId, data: &[u8]) -> NtStatus {
    let request = Request::Write(WriteRequest { file_id, ..WriteRequest::default() }, data);
    connection.call(&request, tree).unwrap().header.status
}

pub fn read(connection: &mut Connection, tree: u32, file_id: FileId) -> Vec<u8> {
    let request = Request::Read(ReadRequest { length: 100, file_id, ..ReadRequest::default() });
    let received = connection.call(&request, tree).unwrap();
    match received.good().unwrap() {
        Response::Read(_, data) => data.to_vec(),
        other => panic!("{other:?}"),
    }
}

pub fn close(connection: &mut Connection, tree: u32, file_id: FileId) -> NtStatus {
    let request = Request::Close(CloseRequest { file_id, ..CloseRequest::default() });
    connection.call(&request, tree).unwrap().header.status
}
