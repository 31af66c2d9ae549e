//! What the log says of refusals that somebody may have to do something about.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test on a thread of its own")]

mod common;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::serve;
use file_store::MemoryStore;
use smb_client::{Connection, Options};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateDisposition, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::FileId;
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::info::{InfoType, SetInfoRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::utf16::{Utf16, utf16};
use smb_server::ServerConfig;

/// What was logged, by whichever thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn open(connection: &mut Connection, tree: u32, name: &str) -> FileId {
    let name = utf16(name);
    let create = CreateRequest {
        desired_access: AccessMask::FILE_ALL,
        share_access: ShareAccess(7),
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        ..CreateRequest::default()
    };
    let answer = connection.call(&Request::Create(create), tree).unwrap();
    let Response::Create(created) = answer.good().unwrap() else { panic!("a file") };
    created.file_id
}

#[test]
fn a_refused_rename_has_a_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let served = serve(Arc::new(MemoryStore::new(1 << 30)), ServerConfig::default(), any).unwrap();
    let options = Options { timeout: Duration::from_secs(10), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("admin", "secret").unwrap();
    let tree = connection.tree("share").unwrap();
    let (_old, new) = (open(&mut connection, tree, "old"), open(&mut connection, tree, "new"));
    let mut set = |class: FileClass, flags, name: &str| {
        let name = utf16(name);
        let info = RenameInformation { flags, root_directory: 0, name: Utf16::new(&name).unwrap() };
        let buffer = info.encode(false);
        let request = SetInfoRequest {
            info_type: InfoType::FILE,
            class: class.0,
            buffer: &buffer,
            additional: 0,
            file_id: new,
        };
        connection.call(&Request::SetInfo(request), tree).unwrap().header.status
    };
    // The file that is to be replaced is open.
    let replace = RenameFlags::REPLACE_IF_EXISTS;
    assert_eq!(set(FileClass::RENAME, replace, "old"), NtStatus::ACCESS_DENIED);
    assert_eq!(set(FileClass::LINK, replace, "old"), NtStatus::ACCESS_DENIED);
    // What programs do all the time says nothing.
    assert_eq!(set(FileClass::RENAME, RenameFlags::NONE, "old"), NtStatus::OBJECT_NAME_COLLISION);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let found: Vec<&str> = text.lines().filter(|line| line.contains("refused")).collect();
    let [rename, link] = found[..] else { panic!("{text}") };
    assert!(rename.contains("SMB rename refused") && link.contains("SMB link refused"), "{text}");
    for part in ["path=\"new\"", "to=\"old\"", "the file to be replaced is open", "127.0.0.1"] {
        assert!(rename.contains(part), "{part} in {rename}");
    }
}
