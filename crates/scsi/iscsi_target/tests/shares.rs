//! What one host leaves to others: it takes what sessions it gets, under whatever names, and another one finds its first all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::net::SocketAddr;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{Algorithm, ChapUser, Secret};
use iscsi_protocol::text::{binary, hex};
use iscsi_target::{AuthConfig, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{Initiator, TARGET};
use support::{MemoryDisk, Threads};
use tcp_service::Budget;

const OUT_OF_RESOURCES: u16 = 0x0302;
/// With the smallest budget there are so many connections.
const SEATS: usize = 512;

/// A server with memory for few connections.
fn server(auth: AuthConfig) -> (IscsiServer, SocketAddr) {
    let (config, budget) = (ServerConfig::default(), Budget::new(0));
    assert_eq!(budget.connections_max(), SEATS);
    let server = IscsiServer::with_budget(config, Threads::start(2), support::random(), budget).unwrap();
    let name = IscsiName::parse(TARGET).unwrap();
    server.add_target(TargetConfig { auth, ..TargetConfig::new(name, MemoryDisk::new(1 << 20)) }).unwrap();
    let listen = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
    let address = server.add_portal(listen).unwrap();
    (server, address)
}

fn name(host: usize) -> String {
    format!("iqn.2026-01.org.example:host-{host}")
}

/// A session of a host, over its path with this number.
fn login(
    address: SocketAddr,
    user: Option<(&str, &str)>,
    host: usize,
    path: usize,
) -> Result<Initiator, u16> {
    login_at(Initiator::connect(address), TARGET, user, host, path)
}

/// The same over a connection that is there, at a target.
fn login_at(
    mut i: Initiator,
    target: &str,
    user: Option<(&str, &str)>,
    host: usize,
    path: usize,
) -> Result<Initiator, u16> {
    let name = name(host);
    i.isid[4..].copy_from_slice(&(path as u16).to_be_bytes());
    let names = [("InitiatorName", &*name), ("TargetName", target)];
    if let Some((user, secret)) = user {
        i.login_request(0x00, &[&names[..], &[("AuthMethod", "CHAP")]].concat());
        let offer = i.login_request(0x00, &[("CHAP_A", "7")]).text();
        let get = |k: &str| offer.iter().find(|(key, _)| key == k).unwrap().1.clone();
        let challenge = binary(&get("CHAP_C"), 1024).unwrap();
        let proof =
            Algorithm::Sha256.response(get("CHAP_I").parse().unwrap(), &Secret::new(secret), &challenge);
        i.login_request(0x81, &[("CHAP_N", user), ("CHAP_R", &hex(&proof))]);
    }
    let first: &[(&str, &str)] = if user.is_some() { &[] } else { &names };
    let done = i.login_request(0x87, first);
    i.tsih = done.bhs.tsih();
    match done.bhs.u16_at(36) {
        0 => Ok(i),
        status => Err(status),
    }
}

/// All sessions that whoever asks gets, until it is refused one.
fn grab(mut one: impl FnMut(usize) -> Result<Initiator, u16>) -> Vec<Initiator> {
    let mut got = Vec::new();
    loop {
        match one(got.len()) {
            Ok(mut session) => {
                assert_eq!(session.read(0, 1).len(), 512, "who was let in is served");
                got.push(session);
            }
            Err(status) => {
                assert_eq!(status, OUT_OF_RESOURCES);
                return got;
            }
        }
    }
}

fn user(name: &str) -> iscsi_target::Account {
    ChapUser { name: name.into(), secret: Secret::new(format!("the secret of {name}")) }.into()
}

#[test]
fn one_user_leaves_sessions_to_another() {
    let users = vec![user("alice"), user("bob")];
    let (server, address) = server(AuthConfig::Chap { users, mutual: None });
    let alice = Some(("alice", "the secret of alice"));
    // Over as many names as it likes: each has eight paths at the most.
    let mut first = grab(|n| login(address, alice, n / 8, n % 8));
    assert!((64..SEATS / 2).contains(&first.len()), "{}", first.len());
    let bob = Some(("bob", "the secret of bob"));
    let second: Vec<_> = (0..8).map(|path| login(address, bob, 1000, path)).collect();
    assert!(second.iter().all(Result::is_ok), "another user finds its first sessions");
    assert_eq!(server.sessions().len(), first.len() + 8);
    // A session that takes the place of one is none more.
    let again = login(address, alice, 0, 0);
    assert!(again.is_ok(), "a host with its share replaces its own session");
    // What is given back is there again, as long as others have not come to hold it.
    drop(second);
    let last = first.pop().unwrap();
    assert!(last.stream.shutdown(std::net::Shutdown::Both).is_ok());
    support::eventually("a place is free again", || login(address, alice, 2000, 0).is_ok());
}

#[test]
fn without_chap_names_are_no_hosts() {
    let (_server, address) = server(AuthConfig::None);
    let all = grab(|n| login(address, None, n, 0));
    assert!(all.len() < SEATS / 2, "{} sessions from one address, each under another name", all.len());
}

/// Users are a target's: tenants who have given theirs the same name are two.
#[test]
fn users_of_one_name_at_two_targets_are_two() {
    const OTHER: &str = "iqn.2026-01.org.example:other";
    let (server, address) = server(AuthConfig::Chap { users: vec![user("esx")], mutual: None });
    let secret = "another secret of esx";
    let theirs = ChapUser { name: "esx".into(), secret: Secret::new(secret) };
    let auth = AuthConfig::Chap { users: vec![theirs.into()], mutual: None };
    let other = TargetConfig::new(IscsiName::parse(OTHER).unwrap(), MemoryDisk::new(1 << 20));
    server.add_target(TargetConfig { auth, ..other }).unwrap();
    let first = grab(|n| login(address, Some(("esx", "the secret of esx")), n / 8, n % 8));
    assert!(first.len() >= 64, "{}", first.len());
    let second =
        grab(|n| login_at(Initiator::connect(address), OTHER, Some(("esx", secret)), 1000 + n / 8, n % 8));
    assert!(second.len() >= 32, "{} sessions of the other tenant", second.len());
}

/// Those of its initiators that come late find their first, whatever earlier ones take.
#[test]
fn initiators_of_one_user_leave_each_other_their_first() {
    let (_server, address) = server(AuthConfig::Chap { users: vec![user("group")], mutual: None });
    let group = Some(("group", "the secret of group"));
    let mut greedy = grab(|n| login(address, group, 0, n));
    assert!(greedy.len() > 64, "{}", greedy.len());
    greedy.extend(grab(|n| login(address, group, 1, n)));
    for host in 2..6 {
        let ways = (0..8).map(|path| login(address, group, host, path));
        let got: Vec<_> = ways.filter_map(Result::ok).collect();
        assert_eq!(got.len(), 8, "host {host}");
        greedy.extend(got);
    }
}

/// An initiator that comes from that address.
fn from(local: [u8; 4], address: SocketAddr) -> Initiator {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((local, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut i = Initiator::connect(address);
    i.stream = socket.into();
    i.stream.set_nodelay(true).unwrap();
    i.stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    i
}

/// A session is not ended for one that is then refused.
#[test]
fn who_may_not_begin_a_session_ends_none() {
    let (server, address) = server(AuthConfig::None);
    let mut mine = login(address, None, 0, 0).unwrap();
    assert_eq!(mine.read(0, 1).len(), 512);
    // Another address has all that it gets, and comes with the same initiator's name.
    let theirs = grab(|n| login_at(from([127, 0, 0, 2], address), TARGET, None, 1 + n / 8, n % 8));
    assert!(theirs.len() >= 64, "{}", theirs.len());
    let refused = login_at(from([127, 0, 0, 2], address), TARGET, None, 0, 0);
    assert_eq!(refused.err(), Some(OUT_OF_RESOURCES));
    assert_eq!(mine.read(0, 1).len(), 512, "the session is there");
    assert_eq!(server.sessions().len(), theirs.len() + 1);
    // Nor a connection of a session.
    let mut late = from([127, 0, 0, 2], address);
    late.tsih = mine.tsih;
    let refused = login_at(late, TARGET, None, 0, 0);
    assert_eq!(refused.err(), Some(OUT_OF_RESOURCES));
    assert_eq!(mine.read(0, 1).len(), 512, "the connection is there");
}
