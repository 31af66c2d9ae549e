//! What goes over the wire, and where answers go.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, missing_docs, reason = "tests")]

#[path = "../../../smb/smb_server/tests/common/mod.rs"]
mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Served, serve};
use file_store::MemoryStore;
use smb_client::{Buffers, Connection, Options, Protection};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::header::HeaderFlags;
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, compound, framing};
use smb_server::{ServerConfig, Signing};
use spd_engine::{Backend as _, Confirm, Data, EngineError, LanePlan, Login, Op, Preparation, SlotPlan};
use spd_profile::Target;
use spd_smb::SmbBackend;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const MIB: usize = 1 << 20;
const PLAIN: Preparation = Preparation { sparse: false, verify: false };

fn server(signing: Signing) -> Served {
    let store = Arc::new(MemoryStore::new(1 << 30));
    serve(store, ServerConfig { signing, ..ServerConfig::default() }, ANY).unwrap()
}

/// Agrees to everything, for so many questions whether it goes on.
struct For(AtomicUsize);

impl Confirm for For {
    fn may_destroy(&self, _: &str) -> bool {
        true
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

fn open_for(
    address: SocketAddr,
    share: &str,
    create: Option<u64>,
    questions: usize,
) -> Result<SmbBackend, EngineError> {
    let path = format!("smb://{address}/{share}/f");
    let target = Target { create, block: MIB as u32, ..Target::new(path.clone()) };
    let login = Login { user: "admin".into(), password: "secret".into() };
    SmbBackend::open(&[target], &[path], &[Some(login)], PLAIN, &For(AtomicUsize::new(questions)))
}

/// Makes a file of eight MiB; its lane for so many reads of a MiB.
fn lane(address: SocketAddr, share: &str, slots: usize) -> (SmbBackend, Box<dyn spd_engine::Lane>) {
    let backend = open_for(address, share, Some(8 * MIB as u64), usize::MAX).unwrap();
    let slots = vec![SlotPlan { read: MIB, write: 0 }; slots];
    let lane = backend.lane(&LanePlan { thread: 0, targets: &[0], slots: &slots, source: &[] }).unwrap();
    (backend, lane)
}

fn read_of(slot: usize) -> Op {
    Op { slot, target: 0, data: Data::Read, offset: (slot % 8 * MIB) as u64, len: MIB as u32 }
}

/// Passes on what a client and the server say; keeps what the client said.
fn relay(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind(ANY).unwrap();
    let (address, said) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
    let all = Arc::clone(&said);
    // Its threads end with the process.
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let number = {
                let mut all = all.lock().unwrap();
                all.push(Vec::new());
                all.len() - 1
            };
            let (mut from, mut to, all) = (client, server, Arc::clone(&all));
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(len @ 1..) = from.read(&mut buffer) {
                    all.lock().unwrap()[number].extend_from_slice(&buffer[..len]);
                    if to.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, said)
}

/// How many READs a client sent in the clear without a signature, with one, and how many packets it encrypted.
fn sent(said: &[u8]) -> [usize; 3] {
    let (mut rest, mut counts) = (said, [0; 3]);
    while let Some((packet, len)) = framing::next_packet(rest, framing::MAX_PACKET_BYTES).unwrap() {
        counts[2] += usize::from(framing::Packet::of(packet) == Some(framing::Packet::Encrypted));
        let reads = compound::messages(packet).map_while(Result::ok).map(|message| message.header);
        for header in reads.filter(|header| header.command == Command::READ) {
            counts[usize::from(header.flags.contains(HeaderFlags::SIGNED))] += 1;
        }
        rest = &rest[len..];
    }
    counts
}

#[test]
fn what_is_signed_or_encrypted_is_what_the_server_asks_for() {
    for (signing, share) in
        [(Signing::Offered, "share"), (Signing::Required, "share"), (Signing::Offered, "sealed")]
    {
        let served = server(signing);
        let (address, said) = relay(served.address);
        let (_backend, mut lane) = lane(address, share, 4);
        let mut done = Vec::new();
        (0..4).for_each(|slot| lane.queue(&read_of(slot)).unwrap());
        while done.len() < 4 {
            lane.wait(Some(Duration::from_secs(1)), &mut done).unwrap();
        }
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
        // Each MiB is another one: every sector of the file begins with its place in it.
        for slot in 0..4 {
            let data = lane.read_buffer(slot);
            for at in [0, MIB / 2, MIB - 4096] {
                let place = u64::from_le_bytes(*data[at..].first_chunk().unwrap());
                assert_eq!(place, (slot * MIB + at) as u64, "{signing:?} {share}");
            }
        }
        drop(lane);
        let all = said.lock().unwrap();
        let [clear, signed, encrypted] = sent(all.last().unwrap());
        match (signing, share) {
            (_, "sealed") => assert!((clear, signed) == (0, 0) && encrypted > 4),
            (Signing::Offered, _) => assert_eq!([clear, signed, encrypted], [4, 0, 0]),
            (Signing::Required, _) => assert_eq!([clear, signed, encrypted], [0, 4, 0]),
        }
    }
}

#[test]
fn a_long_answer_is_given_before_the_next_one_is_taken() {
    for signing in [Signing::Offered, Signing::Required] {
        let served = server(signing);
        let (_backend, mut lane) = lane(served.address, "share", 8);
        (0..8).for_each(|slot| lane.queue(&read_of(slot)).unwrap());
        let (mut done, mut ended) = (Vec::new(), 0);
        while ended < 8 {
            lane.wait(Some(Duration::from_secs(1)), &mut done).unwrap();
            assert!(done.len() <= 1, "{} were taken while the server had nothing to do", done.len());
            ended += done.len();
            done.clear();
            // What has ended meanwhile waits in the system.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn half_a_file_is_deleted() {
    let served = server(Signing::Required);
    let Err(why) = open_for(served.address, "share", Some(8 * MIB as u64), 3) else { panic!("it was made") };
    assert!(why.0.contains("was interrupted; it is deleted"), "{why}");
    let Err(why) = open_for(served.address, "share", None, 0) else { panic!("it is there") };
    assert!(why.0.contains("does not exist"), "{why}");
}

/// A place for the data of one message.
struct Place(u64, Vec<u8>);

impl Buffers for Place {
    fn input(&mut self, message: u64, len: usize) -> Option<&mut [u8]> {
        (message == self.0).then(|| self.1.get_mut(..len)).flatten()
    }
}

#[test]
fn only_awaited_data_that_need_no_check_go_to_their_place() {
    let served = server(Signing::Offered);
    open_for(served.address, "share", Some(2 * MIB as u64), usize::MAX).unwrap();
    let mut connection = Connection::connect(served.address, Options::default()).unwrap();
    connection.login("admin", "secret").unwrap();
    let tree = connection.tree("share").unwrap();
    for _ in 0..4 {
        connection.call(&Request::Echo, 0).unwrap();
    }
    let name = utf16("f");
    let create = CreateRequest {
        desired_access: AccessMask::FILE_READ,
        share_access: ShareAccess(7),
        disposition: CreateDisposition::OPEN,
        options: CreateOptions::NON_DIRECTORY_FILE,
        name: Utf16::new(&name).unwrap(),
        ..CreateRequest::default()
    };
    let answer = connection.call(&Request::Create(create), tree).unwrap();
    let Response::Create(created) = answer.good().unwrap() else { panic!("an answer to another request") };
    let mut read = |protection, offset: usize, awaited: bool, room: usize| {
        connection.protection = protection;
        let length = MIB as u32;
        let request =
            ReadRequest { file_id: created.file_id, offset: offset as u64, length, ..ReadRequest::default() };
        let header = connection.header_for(Command::READ, tree, MIB);
        connection.send_as(&[(header, &Request::Read(request))]).unwrap();
        let mut place = Place(header.message_id + u64::from(!awaited), vec![0xaa; room]);
        let answer = connection.receive_into(&mut place).unwrap();
        let placed = answer.placed;
        let data = match placed {
            Some(_) => place.1,
            None => {
                assert!(place.1.iter().all(|byte| *byte == 0xaa), "a place was written to");
                let Response::Read(_, data) = answer.good().unwrap() else { panic!("no READ") };
                data.to_vec()
            }
        };
        assert_eq!(data.len(), 2 * MIB - offset.max(MIB));
        for at in [0, data.len() - 4096] {
            let number = u64::from_le_bytes(*data[at..].first_chunk().unwrap());
            assert_eq!(number, (offset + at) as u64);
        }
        connection.recycle(answer);
        placed
    };
    assert_eq!(read(Protection::None, 0, true, MIB), Some(MIB));
    assert_eq!(read(Protection::None, MIB, false, MIB), None);
    assert_eq!(read(Protection::Sign, MIB, true, MIB), None);
    // At the end of the file less comes than was asked for.
    assert_eq!(read(Protection::None, MIB + 4096, true, MIB - 4096), Some(MIB - 4096));
    assert_eq!(read(Protection::Sign, 0, true, MIB), None);
    assert_eq!(read(Protection::None, MIB, true, MIB - 1), None);
}
