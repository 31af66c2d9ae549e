//! Who gets in, and what is believed: sessions over real sockets, with a client that can lie.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{Served, TwoUsers, serve};
use file_store::MemoryStore;
use smb_auth::initiator::Answer;
use smb_auth::ntlm::client::{Credentials, Randomness};
use smb_auth::{Initiator, NtHash};
use smb_client::{Connection, Options, Protection};
use smb_protocol::access::{AccessMask, CreateDisposition, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::FileId;
use smb_protocol::framing::PREFIX_BYTES;
use smb_protocol::header::HeaderFlags;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::negotiate::Capabilities;
use smb_protocol::negotiate::contexts::{Cipher, SigningAlgorithm};
use smb_protocol::read::ReadRequest;
use smb_protocol::session::{SessionSetupFlags, SessionSetupRequest};
use smb_protocol::smb1;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, Dialect, FileTime, Header, NtStatus, Wire as _};
use smb_server::{ServerConfig, Signing};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn served() -> Served {
    serve(Arc::new(MemoryStore::new(1 << 30)), ServerConfig::default(), ANY).unwrap()
}

fn connect(served: &Served, options: Options) -> Connection {
    Connection::connect(served.address, Options { timeout: Duration::from_secs(10), ..options }).unwrap()
}

fn logged_in(served: &Served) -> Connection {
    let mut connection = connect(served, Options::default());
    connection.login("admin", "secret").unwrap();
    connection
}

/// A request that changes nothing, and whether it was done.
fn echo(connection: &mut Connection) -> NtStatus {
    connection.call(&Request::Echo, 0).unwrap().header.status
}

#[test]
fn every_version_and_algorithm_gets_in() {
    let served = served();
    for dialect in Dialect::ALL {
        let mut connection = connect(&served, Options { dialects: vec![dialect], ..Options::default() });
        connection.login("Admin", "secret").unwrap();
        assert_eq!(connection.dialect, dialect);
        connection.tree("SHARE").unwrap();
    }
    for signing in [SigningAlgorithm::AES_GMAC, SigningAlgorithm::AES_CMAC, SigningAlgorithm::HMAC_SHA256] {
        let mut connection = connect(&served, Options { signing: vec![signing], ..Options::default() });
        connection.login("user", "secret").unwrap();
        connection.tree("share").unwrap();
    }
    for cipher in [Cipher::AES_128_GCM, Cipher::AES_256_GCM, Cipher::AES_128_CCM, Cipher::AES_256_CCM] {
        let mut connection = connect(&served, Options { ciphers: vec![cipher], ..Options::default() });
        connection.login("user", "secret").unwrap();
        assert!(connection.tree("sealed").is_ok(), "connecting needs no encryption yet");
        connection.protection = Protection::Seal;
        let tree = connection.tree("sealed").unwrap();
        assert!(connection.call(&Request::TreeDisconnect, tree).unwrap().sealed);
    }
}

#[test]
fn who_does_not_prove_itself_stays_outside() {
    let served = served();
    for (user, password) in [("admin", "wrong"), ("nobody", "secret"), ("", "")] {
        let mut connection = connect(&served, Options::default());
        let error = connection.login(user, password).unwrap_err();
        let expected = if user.is_empty() { NtStatus::ACCESS_DENIED } else { NtStatus::LOGON_FAILURE };
        assert_eq!(error.status(), Some(expected), "{user}");
        assert!(connection.tree("share").is_err());
    }
    assert!(served.server.sessions().is_empty());
}

#[test]
fn only_who_has_logged_in_is_a_client_that_another_node_would_tell() {
    let served = served();
    let mut stranger = connect(&served, Options::default());
    assert!(stranger.login("admin", "wrong").is_err());
    let mut nobody = connect(&served, Options::default());
    assert!(nobody.login("", "").is_err());
    assert_eq!(served.server.connections_to(ANY.ip()).len(), 0);
    let _user = logged_in(&served);
    assert_eq!(served.server.connections_to(ANY.ip()).len(), 1);
}

#[test]
fn what_is_not_signed_is_refused() {
    let served = served();
    let mut connection = logged_in(&served);
    let tree = connection.tree("share").unwrap();
    connection.protection = Protection::None;
    let refused = connection.call(&Request::TreeDisconnect, tree).unwrap();
    assert_eq!(refused.header.status, NtStatus::ACCESS_DENIED);
    connection.protection = Protection::Sign;
    assert_eq!(connection.call(&Request::TreeDisconnect, tree).unwrap().header.status, NtStatus::SUCCESS);
}

/// Opens a file, and the number by which it is open.
fn opened(connection: &mut Connection, tree: u32) -> FileId {
    let name = utf16("locked");
    let answer = connection
        .call(
            &Request::Create(CreateRequest {
                desired_access: AccessMask::FILE_ALL,
                share_access: ShareAccess(7),
                disposition: CreateDisposition::OPEN_IF,
                name: Utf16::new(&name).unwrap(),
                ..CreateRequest::default()
            }),
            tree,
        )
        .unwrap();
    let Response::Create(created) = answer.good().unwrap() else { panic!("a file") };
    created.file_id
}

#[test]
fn a_cancel_needs_no_signature() {
    let served = served();
    let (mut first, mut second) = (logged_in(&served), logged_in(&served));
    let trees = (first.tree("share").unwrap(), second.tree("share").unwrap());
    let files = (opened(&mut first, trees.0), opened(&mut second, trees.1));
    let element = LockElement { offset: 0, length: 10, flags: LockFlags::EXCLUSIVE }.to_bytes();
    let held = first.call(&Request::Lock(LockRequest::new(0, files.0, &element)), trees.0).unwrap();
    assert_eq!(held.header.status, NtStatus::SUCCESS);
    let header = second.header(Command::LOCK, trees.1);
    second.send_as(&[(header, &Request::Lock(LockRequest::new(0, files.1, &element)))]).unwrap();
    let interim = second.receive().unwrap();
    assert_eq!(interim.header.status, NtStatus::PENDING);
    second.protection = Protection::None;
    let cancel = Header {
        command: Command::CANCEL,
        routing: interim.header.routing,
        message_id: header.message_id,
        session_id: header.session_id,
        ..Header::default()
    };
    second.send_as(&[(cancel, &Request::Cancel)]).unwrap();
    second.protection = Protection::Sign;
    assert_eq!(second.answer_to(header.message_id).unwrap().header.status, NtStatus::CANCELLED);
}

#[test]
fn where_signing_is_only_offered_it_is_not_needed() {
    let config = ServerConfig { signing: Signing::Offered, ..ServerConfig::default() };
    let served = serve(Arc::new(MemoryStore::new(1 << 30)), config, ANY).unwrap();
    let mut connection = logged_in(&served);
    let tree = connection.tree("share").unwrap();
    connection.protection = Protection::None;
    assert_eq!(connection.call(&Request::TreeDisconnect, tree).unwrap().header.status, NtStatus::SUCCESS);
    // A share that wants encryption gets it all the same.
    connection.protection = Protection::Sign;
    let tree = connection.tree("sealed").unwrap();
    assert_eq!(
        connection.call(&Request::TreeDisconnect, tree).unwrap().header.status,
        NtStatus::ACCESS_DENIED
    );
}

/// 1,000 signed requests with one bit changed on the way: none is done. What keeps the message's number is answered
/// with ACCESS_DENIED, what does not ends the connection.
#[test]
fn tampered_messages_are_never_believed() {
    let served = served();
    // What has become a CANCEL is not answered: that is not waited for long.
    let login = || {
        let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
        let mut connection = Connection::connect(served.address, options).unwrap();
        connection.login("admin", "secret").unwrap();
        connection
    };
    let mut connection = login();
    let mut tree = connection.tree("share").unwrap();
    let mut closed = 0;
    for round in 0..1000_usize {
        let request = Request::TreeDisconnect;
        let header = connection.header(Command::TREE_DISCONNECT, tree);
        let mut packet = connection.packet(&[(header, &request)]).unwrap();
        let bit = round * 7919 % ((packet.len() - 4) * 8);
        packet[4 + bit / 8] ^= 1 << (bit % 8);
        connection.send_raw(&packet).unwrap();
        // The credits of a refused message come back with its answer, which is not signed.
        connection.protection = Protection::None;
        let answer = connection.receive();
        connection.protection = Protection::Sign;
        match answer {
            Ok(answer) => assert!(answer.header.status.is_error(), "bit {bit}: {answer:?}"),
            Err(_) => closed += 1,
        }
        if connection.call(&Request::Echo, 0).is_err() {
            connection = login();
            tree = connection.tree("share").unwrap();
        }
    }
    assert!(closed < 900, "most are answered");
    let tree_is_there = connection.call(&Request::TreeDisconnect, tree).unwrap();
    assert_eq!(tree_is_there.header.status, NtStatus::SUCCESS, "no tampered message took it away");
}

/// The same for encrypted ones: the connection ends, as nothing in them can be believed.
#[test]
fn tampered_packets_end_the_connection() {
    let served = served();
    for round in 0..60_usize {
        let mut connection = logged_in(&served);
        connection.protection = Protection::Seal;
        let header = connection.header(Command::ECHO, 0);
        let plain = connection.packet(&[(header, &Request::Echo)]).unwrap();
        let mut packet = connection.protect(plain).unwrap();
        let bit = round * 211 % ((packet.len() - 4) * 8);
        packet[4 + bit / 8] ^= 1 << (bit % 8);
        connection.send_raw(&packet).unwrap();
        assert!(connection.receive().is_err(), "bit {bit}");
    }
}

#[test]
fn a_message_number_is_good_once() {
    let served = served();
    let mut connection = logged_in(&served);
    let header = connection.header(Command::ECHO, 0);
    let packet = connection.packet(&[(header, &Request::Echo)]).unwrap();
    connection.send_raw(&packet).unwrap();
    assert_eq!(connection.receive().unwrap().header.status, NtStatus::SUCCESS);
    connection.send_raw(&packet).unwrap();
    assert!(connection.receive().is_err(), "the connection is closed");
}

#[test]
fn a_second_connection_joins_and_the_first_may_go() {
    let served = served();
    let options = Options::default();
    let mut first = connect(&served, options.clone());
    first.login("admin", "secret").unwrap();
    let tree = first.tree("share").unwrap();
    let mut second = connect(&served, options.clone());
    second.bind(&first, "admin", "secret").unwrap();
    assert_eq!(served.server.sessions()[0].channels.len(), 2);
    // The right password alone is not enough: another session's key.
    let other = logged_in(&served);
    let mut third = connect(&served, options.clone());
    third.bind(&other, "admin", "secret").unwrap();
    let mut stranger = connect(&served, options.clone());
    stranger.protection = Protection::None;
    let mut forged = other;
    forged.session.as_mut().unwrap().id = first.session.as_ref().unwrap().id;
    assert!(stranger.bind(&forged, "admin", "secret").is_err(), "without the session's key");
    let mut fourth = connect(&served, options);
    assert!(fourth.bind(&first, "user", "secret").is_err(), "another user");
    drop(first);
    let answer = second.call(&Request::TreeDisconnect, tree).unwrap();
    assert_eq!(answer.header.status, NtStatus::SUCCESS);
}

#[test]
fn nobody_proves_itself_once_more_without_the_key() {
    let served = served();
    let mut connection = logged_in(&served);
    let token = Request::SessionSetup(SessionSetupRequest {
        flags: SessionSetupFlags::NONE,
        security_mode: 1,
        capabilities: Capabilities::NONE,
        previous_session_id: 0,
        security_buffer: &[0],
    });
    connection.protection = Protection::None;
    assert_eq!(connection.call(&token, 0).unwrap().header.status, NtStatus::ACCESS_DENIED);
    connection.protection = Protection::Sign;
    assert_eq!(echo(&mut connection), NtStatus::SUCCESS, "the session has not ended");
}

#[test]
fn a_session_ends_with_its_last_connection_or_its_successor() {
    let served = served();
    let mut first = logged_in(&served);
    let id = first.session.as_ref().unwrap().id;
    let mut second = connect(&served, Options::default());
    second.login_again("admin", "secret", id).unwrap();
    assert_eq!(first.call(&Request::Logoff, 0).unwrap().header.status, NtStatus::USER_SESSION_DELETED);
    assert_eq!(served.server.sessions().len(), 1);
    drop(second);
    for _ in 0..100 {
        if served.server.sessions().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the session outlives its connection");
}

#[test]
fn smb_1_is_refused_and_remembered() {
    let served = served();
    let ask = |dialects: &[&str]| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let packet = smb1::negotiate(dialects);
        stream.write_all(&(packet.len() as u32).to_be_bytes()).unwrap();
        stream.write_all(&packet).unwrap();
        let mut answer = vec![0; 4 + 64];
        stream.read_exact(&mut answer).ok().and_then(|()| Header::decode(&answer[4..]).ok())
    };
    assert!(ask(&["NT LM 0.12"]).is_none());
    let header = ask(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"]).unwrap();
    assert_eq!((header.command, header.status), (Command::NEGOTIATE, NtStatus::SUCCESS));
    let (attempts, count) = served.server.smb1_attempts();
    assert_eq!((attempts.len(), count), (1, 1));
    assert!(attempts[0].detail.contains("NT LM 0.12"));
}

#[test]
fn what_is_no_smb_ends_the_connection_and_hurts_nobody() {
    let served = served();
    let mut good = logged_in(&served);
    let mut junk = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0, 0xff, 0xff, 0xff],
        [&[0, 0, 0, 64][..], b"\xfeSMB", &[0xff; 60]].concat(),
        [&[0, 0, 0, 64][..], b"\xfdSMB", &[0xff; 60]].concat(),
        [&[0, 0, 0, 64][..], b"\xfcSMB", &[0x55; 60]].concat(),
    ];
    junk.push((0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect());
    for bytes in junk {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut answer = [0; 4096];
        let _ = stream.read(&mut answer);
        assert_eq!(echo(&mut good), NtStatus::SUCCESS);
    }
}

/// The first request of a login that joins the session of `first`, over a connection of its own; what it was answered,
/// and the second request.
fn begin_to_join(served: &Served, first: &Connection) -> (Connection, Vec<u8>, Vec<u8>) {
    let mut connection = connect(served, Options::default());
    connection.speak_for(first).unwrap();
    let credentials = Credentials {
        user: "admin".to_owned(),
        domain: String::new(),
        nt_hash: NtHash::of_password("secret"),
        workstation: "CLIENT".to_owned(),
        target_name: String::new(),
    };
    let random = Randomness { challenge: [3; 8], session_key: [4; 16], now: FileTime::ZERO };
    let mut initiator = Initiator::new(credentials, random, None);
    let token = initiator.first();
    let answer = connection.call(&join(&token), 0).unwrap();
    assert_eq!(answer.header.status, NtStatus::MORE_PROCESSING_REQUIRED);
    let Ok(Response::SessionSetup(setup)) = answer.response() else { panic!("{answer:?}") };
    let Answer::Continue(token) = initiator.step(setup.security_buffer).unwrap() else {
        panic!("the login ends early")
    };
    let header = connection.header(Command::SESSION_SETUP, 0);
    let next = connection.packet(&[(header, &join(&token))]).unwrap();
    (connection, answer.bytes, next)
}

fn join(token: &[u8]) -> Request<'_> {
    Request::SessionSetup(SessionSetupRequest {
        flags: SessionSetupFlags::BINDING,
        security_mode: 1,
        capabilities: Capabilities::NONE,
        previous_session_id: 0,
        security_buffer: token,
    })
}

#[test]
fn no_two_answers_to_those_who_join_have_one_nonce() {
    let served = served();
    let first = logged_in(&served);
    assert_eq!(served.server.sessions()[0].signing, SigningAlgorithm::AES_GMAC);
    let (mut second, answer, rest) = begin_to_join(&served, &first);
    let (mut third, same, _) = begin_to_join(&served, &first);
    assert_eq!(answer, same, "under the same message number");
    second.send_raw(&rest).unwrap();
    second.protection = Protection::None;
    assert_eq!(second.receive().unwrap().header.status, NtStatus::SUCCESS);
    // Somebody has recorded it.
    third.send_raw(&rest).unwrap();
    let refused = third.receive().unwrap();
    assert_eq!(refused.header.status, NtStatus::ACCESS_DENIED);
    let sent = Header::decode(&rest[PREFIX_BYTES..]).unwrap().signature;
    assert_eq!(refused.header.signature, sent, "the key speaks once: what was sent comes back");
    assert!(third.receive().is_err(), "the connection is closed");
    // And what is signed for a session that the connection does not have is refused without a signature.
    let mut stranger = connect(&served, Options::default());
    stranger.speak_for(&first).unwrap();
    let header = stranger.header(Command::LOGOFF, 0);
    let packet = stranger.packet(&[(header, &Request::Logoff)]).unwrap();
    stranger.send_raw(&packet).unwrap();
    let refused = stranger.receive().unwrap();
    assert_eq!(refused.header.status, NtStatus::USER_SESSION_DELETED);
    assert!(refused.header.flags.contains(HeaderFlags::SIGNED), "clients want it said");
    assert_eq!(refused.header.signature, Header::decode(&packet[PREFIX_BYTES..]).unwrap().signature);
}

#[test]
fn a_packet_holds_no_more_answers_than_one_can() {
    let served = served();
    let mut connection = logged_in(&served);
    let tree = connection.tree("share").unwrap();
    let name = utf16("large");
    let create = Request::Create(CreateRequest {
        desired_access: AccessMask::FILE_ALL,
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        ..CreateRequest::default()
    });
    let created = connection.call(&create, tree).unwrap();
    let Ok(Response::Create(created)) = created.good() else { panic!("no file") };
    let file_id = created.file_id;
    let data = vec![7; 6 << 20];
    let write = Request::Write(WriteRequest { file_id, ..WriteRequest::default() }, &data);
    // Credits come with answers.
    for _ in 0..8 {
        assert_eq!(echo(&mut connection), NtStatus::SUCCESS);
    }
    let header = connection.header_for(Command::WRITE, tree, data.len());
    connection.send_as(&[(header, &write)]).unwrap();
    assert_eq!(connection.answer_to(header.message_id).unwrap().header.status, NtStatus::SUCCESS);
    let read = Request::Read(ReadRequest { length: 6 << 20, file_id, ..ReadRequest::default() });
    let headers = [(); 2].map(|()| connection.header_for(Command::READ, tree, data.len()));
    connection.send_as(&headers.map(|header| (header, &read))).unwrap();
    let status = |connection: &mut Connection, header: &Header| {
        connection.answer_to(header.message_id).unwrap().header.status
    };
    assert_eq!(status(&mut connection, &headers[0]), NtStatus::SUCCESS);
    assert_eq!(status(&mut connection, &headers[1]), NtStatus::INSUFFICIENT_RESOURCES);
    assert_eq!(echo(&mut connection), NtStatus::SUCCESS, "the connection goes on");
}

#[test]
fn reads_and_writes_count_for_the_session_that_they_came_over() {
    let served = served();
    let mut both = [logged_in(&served), logged_in(&served)].map(|mut connection| {
        let tree = connection.tree("share").unwrap();
        let file_id = opened(&mut connection, tree);
        (connection, tree, file_id)
    });
    let [(writer, tree, file_id), (reader, readers_tree, readers_file)] = &mut both;
    let write = Request::Write(WriteRequest { file_id: *file_id, ..WriteRequest::default() }, &[1; 700]);
    assert_eq!(writer.call(&write, *tree).unwrap().header.status, NtStatus::SUCCESS);
    for length in [300, 200] {
        let read = ReadRequest { file_id: *readers_file, length, ..ReadRequest::default() };
        let answer = reader.call(&Request::Read(read), *readers_tree).unwrap();
        assert_eq!(answer.header.status, NtStatus::SUCCESS);
    }
    let sessions = served.server.sessions();
    let of = |connection: &Connection| {
        let id = connection.session.as_ref().unwrap().id;
        let io = sessions.iter().find(|session| session.id == id).unwrap().io;
        assert_eq!(
            (io.read.nanos > 0, io.write.nanos > 0),
            (io.read.operations > 0, io.write.operations > 0)
        );
        [io.read, io.write].map(|kind| (kind.operations, kind.bytes))
    };
    assert_eq!(of(&both[0].0), [(0, 0), (1, 700)]);
    assert_eq!(of(&both[1].0), [(2, 500), (0, 0)]);
    let share = served.server.share_traffic("share").unwrap().io;
    assert_eq!((share.read.operations, share.write.bytes), (2, 700));
}

#[test]
fn a_login_that_ends_when_its_user_has_been_disabled_is_none() {
    let served = served();
    let server = served.server.clone();
    served.users.disable_in_the_middle_of_a_login(move || {
        server.close_sessions_of(TwoUsers::sid(500));
    });
    assert!(connect(&served, Options::default()).login("admin", "secret").is_err());
    assert!(served.server.sessions().is_empty(), "its session lives on");
}
