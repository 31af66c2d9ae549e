//! What the log says of refusals that somebody may have to do something about.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use common::serve;
use file_store::{FileStore, MemoryStore, StateChange, StoreError, StoreErrorKind, StoreFuture};
use smb_client::{Connection, Options};
use smb_protocol::access::{AccessMask, CreateDisposition, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::FileId;
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::info::{InfoType, SetInfoRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Guid, NtStatus};
use smb_server::{ServerConfig, ShareConfig};
use test_layers::{Layered, StoreLayer};
use wanted::{ANY, Wanted, client};

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

/// What all tests of this program log: there is one log for each program.
fn log() -> Lines {
    static LINES: LazyLock<Lines> = LazyLock::new(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        lines
    });
    LINES.clone()
}

/// The lines that have these words in them.
fn lines_with(lines: &Lines, word: &str) -> Vec<String> {
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| line.contains(word)).map(str::to_owned).collect()
}

/// Who has not even logged in, and who may use a share of which the folder is gone, cannot fill the log, nor what is kept of them.
#[test]
fn what_a_client_can_cause_at_will_is_throttled() {
    let lines = log();
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let served = serve(Arc::new(MemoryStore::new(1 << 30)), ServerConfig::default(), any).unwrap();
    let nowhere =
        ShareConfig { name: "nowhere".into(), folder: "gone".into(), ..common::share(&served.files) };
    served.server.add_share(nowhere).unwrap();

    let long = format!("PC NETWORK PROGRAM 1.0\nSMB forged=true {}", "x".repeat(60_000));
    for _ in 0..30 {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let packet = smb_protocol::smb1::negotiate(&[&long]);
        stream.write_all(&(packet.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(&packet).unwrap();
        // The connection ends.
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    }
    assert_eq!(lines_with(&lines, "SMB 1 refused").len(), 10);
    assert_eq!(lines_with(&lines, "SMB forged").len(), 10, "within the line that it belongs to");
    let (kept, _) = served.server.smb1_attempts();
    assert_eq!(kept.len(), 30, "all of them are known");
    assert!(kept.iter().all(|attempt| attempt.detail.len() <= 200), "with little of what they said");

    let options = Options { timeout: Duration::from_secs(10), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("user", "secret").unwrap();
    for _ in 0..30 {
        assert!(connection.tree("nowhere").is_err());
    }
    assert_eq!(lines_with(&lines, "its folder cannot be found").len(), 10);
}

/// A store that has no room for rows, as a volume that is full.
struct Full(Arc<MemoryStore>);

impl StoreLayer for Full {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }

    fn state_write(&self, _: Vec<StateChange>) -> StoreFuture<'_, ()> {
        Box::pin(async { Err(StoreError::new(StoreErrorKind::NoSpace, "no room for a row")) })
    }
}

#[test]
fn a_full_volume_does_not_fill_the_log() {
    let lines = log();
    let store = Arc::new(Layered(Full(Arc::new(MemoryStore::new(1 << 30)))));
    let served = serve(store, ServerConfig::default(), ANY).unwrap();
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    for _ in 0..150 {
        let answer = Wanted::persistent(60_000).open(&mut connection, tree);
        assert_eq!(answer.header.status, NtStatus::DISK_FULL);
    }
    assert_eq!(lines_with(&lines, "a persistent open cannot be made durable").len(), 100);
    assert!(lines_with(&lines, "closed, but not forgotten").len() <= 100);
    // Of opens that were refused nothing is missing.
    assert_eq!(served.server.share_traffic("share").unwrap().unsaved, 0);
}

#[test]
fn a_refused_rename_has_a_line() {
    let lines = log();
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
    let (renames, links) = (lines_with(&lines, "SMB rename refused"), lines_with(&lines, "SMB link refused"));
    let ([rename], [_]) = (&renames[..], &links[..]) else { panic!("{renames:?} {links:?}") };
    for part in ["path=\"new\"", "to=\"old\"", "the file to be replaced is open", "127.0.0.1"] {
        assert!(rename.contains(part), "{part} in {rename}");
    }
}
