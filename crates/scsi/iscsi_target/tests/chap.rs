//! Who may be whom: users bound to initiators, sessions that are one user's, changes that end sessions, discovery.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{Algorithm, ChapUser, Secret};
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode};
use iscsi_protocol::text::{binary, hex};
use iscsi_target::{
    Account, AuthConfig, DiscoveryAuth, InitiatorAccess, IscsiServer, PortalConfig, ServerConfig,
    TargetConfig,
};
use support::initiator::Initiator;
use support::{MemoryDisk, Threads, eventually};

const DISK: &str = "iqn.2026-01.org.example:disk";
const OTHER_DISK: &str = "iqn.2026-01.org.example:other";
const HOST_A: &str = "iqn.2026-01.org.example:host-a";
const HOST_B: &str = "iqn.2026-01.org.example:host-b";
const A: (&str, &str) = ("alice", "a secret of alice");
const B: (&str, &str) = ("bob", "a secret of bob");

const AUTHENTICATION: u16 = 0x0201;
const FORBIDDEN: u16 = 0x0202;
const NOT_FOUND: u16 = 0x0203;

struct Rig {
    server: IscsiServer,
    disk: Arc<MemoryDisk>,
    address: SocketAddr,
}

fn only(initiator: &'static str) -> InitiatorAccess {
    InitiatorAccess::Check(Arc::new(move |name: &IscsiName| name.as_str() == initiator))
}

fn account((name, secret): (&str, &str), initiators: InitiatorAccess) -> Account {
    Account { user: ChapUser { name: name.into(), secret: Secret::new(secret) }, initiators }
}

fn chap(users: Vec<Account>) -> AuthConfig {
    AuthConfig::Chap { users, mutual: None }
}

impl Rig {
    fn start(auth: AuthConfig) -> Self {
        let server = IscsiServer::new(ServerConfig::default(), Threads::start(2), support::random()).unwrap();
        let disk = MemoryDisk::new(1 << 20);
        let listen = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
        let address = server.add_portal(listen).unwrap();
        let rig = Self { server, disk, address };
        rig.server.add_target(rig.target(DISK, auth)).unwrap();
        rig
    }

    fn target(&self, name: &str, auth: AuthConfig) -> TargetConfig {
        let name = IscsiName::parse(name).unwrap();
        TargetConfig { auth, ..TargetConfig::new(name, self.disk.clone()) }
    }

    fn change(&self, auth: AuthConfig) {
        self.server.update_target(self.target(DISK, auth)).unwrap();
    }

    /// An initiator that has gone through the security stage as a user, or where that failed.
    fn proved(&self, keys: &[(&str, &str)], user: (&str, &str)) -> Result<Initiator, u16> {
        self.proved_as(Initiator::connect(self.address), keys, user)
    }

    fn proved_as(
        &self,
        mut i: Initiator,
        keys: &[(&str, &str)],
        user: (&str, &str),
    ) -> Result<Initiator, u16> {
        let first = i.login_request(0x00, &[keys, &[("AuthMethod", "CHAP")]].concat());
        if first.bhs.u16_at(36) != 0 {
            return Err(first.bhs.u16_at(36));
        }
        let offer = i.login_request(0x00, &[("CHAP_A", "7")]).text();
        let get = |k: &str| offer.iter().find(|(key, _)| key == k).unwrap().1.clone();
        let challenge = binary(&get("CHAP_C"), 1024).unwrap();
        let secret = Secret::new(user.1);
        let proof = Algorithm::Sha256.response(get("CHAP_I").parse().unwrap(), &secret, &challenge);
        let answer = i.login_request(0x81, &[("CHAP_N", user.0), ("CHAP_R", &hex(&proof))]);
        match answer.bhs.u16_at(36) {
            0 => Ok(i),
            status => Err(status),
        }
    }

    /// A session of an initiator as a user; `isid` tells its ports apart.
    fn login(&self, initiator: &str, user: (&str, &str), isid: u8) -> Result<Initiator, u16> {
        let mut i = Initiator::connect(self.address);
        i.isid[5] = isid;
        let i = self.proved_as(i, &[("InitiatorName", initiator), ("TargetName", DISK)], user)?;
        finish(i)
    }

    fn discover(&self, initiator: &str, user: (&str, &str)) -> Result<Vec<String>, u16> {
        let i = self.proved(&[("InitiatorName", initiator), ("SessionType", "Discovery")], user)?;
        Ok(told(&mut finish(i)?))
    }
}

/// From the operational stage to full feature phase.
fn finish(mut i: Initiator) -> Result<Initiator, u16> {
    let done = i.login_request(0x87, &[("MaxConnections", "4")]);
    i.tsih = done.bhs.tsih();
    match done.bhs.u16_at(36) {
        0 => Ok(i),
        status => Err(status),
    }
}

/// The targets that a discovery session is told of.
fn told(i: &mut Initiator) -> Vec<String> {
    let mut text = i.request(opcode::TEXT, flag::FINAL);
    text.set_u32(20, RESERVED_TAG);
    i.send(text, b"SendTargets=All\0");
    // Each target begins with the same key: these are no pairs of a negotiation.
    let answer = i.receive();
    let keys = answer.data.split(|byte| *byte == 0).filter_map(|key| std::str::from_utf8(key).ok());
    keys.filter_map(|key| key.strip_prefix("TargetName=")).map(str::to_owned).collect()
}

fn works(i: &mut Initiator) -> bool {
    i.read(0, 1).len() == 512
}

fn ended(mut i: Initiator) {
    // Not merely silent: the connection is closed.
    let end = i.stream.read(&mut [0]);
    let closed = end.as_ref().map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |read| *read == 0);
    assert!(closed, "the session goes on: {end:?}");
}

#[test]
fn a_user_is_the_initiators_that_it_is_bound_to() {
    let rig = Rig::start(chap(vec![account(A, only(HOST_A)), account(B, only(HOST_B))]));
    let mut a = rig.login(HOST_A, A, 1).unwrap();
    // The other host gives itself this one's name and ISID, and proves to be itself.
    assert_eq!(rig.login(HOST_A, B, 1).err(), Some(AUTHENTICATION));
    assert!(works(&mut a));
    assert!(rig.login(HOST_B, B, 1).is_ok());
    assert!(works(&mut a));
    // Neither does a user for any initiator take a name that belongs to one.
    rig.change(chap(vec![account(A, only(HOST_A)), account(B, InitiatorAccess::Any)]));
    assert_eq!(rig.login(HOST_A, B, 1).err(), Some(AUTHENTICATION));
    assert!(rig.login("iqn.2026-01.org.example:host-c", B, 1).is_ok());
    assert!(works(&mut a));
}

#[test]
fn a_session_is_one_users() {
    // Both may log in as either host.
    let rig = Rig::start(chap(vec![account(A, InitiatorAccess::Any), account(B, InitiatorAccess::Any)]));
    let mut a = rig.login(HOST_A, A, 1).unwrap();
    assert_eq!(rig.login(HOST_A, B, 1).err(), Some(FORBIDDEN), "reinstates");
    let joining = || {
        let mut i = Initiator::connect(rig.address);
        (i.isid, i.tsih, i.cid) = (a.isid, a.tsih, 1);
        i
    };
    let names = [("InitiatorName", HOST_A), ("TargetName", DISK)];
    let other = rig.proved_as(joining(), &names, B).unwrap();
    assert_eq!(finish(other).err(), Some(FORBIDDEN), "joins");
    let second = finish(rig.proved_as(joining(), &names, A).unwrap());
    assert!(second.is_ok());
    assert!(works(&mut a));
    assert!(rig.login(HOST_A, B, 2).is_ok(), "a session of its own");
    // The user itself comes back in place of its session.
    let mut again = rig.login(HOST_A, A, 1).unwrap();
    assert!(works(&mut again));
    ended(a);
}

#[test]
fn sessions_end_that_would_not_be_let_in() {
    let rig = Rig::start(AuthConfig::None);
    let mut open = Initiator::connect(rig.address);
    assert_eq!(open.login(&[]).bhs.u16_at(36), 0);
    let both = || vec![account(A, only(HOST_A)), account(B, only(HOST_B))];
    rig.change(chap(both()));
    ended(open);
    let (mut a, b) = (rig.login(HOST_A, A, 1).unwrap(), rig.login(HOST_B, B, 1).unwrap());
    // A user is taken away.
    rig.change(chap(vec![account(A, only(HOST_A))]));
    ended(b);
    assert!(works(&mut a));
    // A user is bound to another initiator.
    rig.change(chap(both()));
    let b = rig.login(HOST_B, B, 1).unwrap();
    rig.change(chap(vec![account(A, only(HOST_A)), account(B, only("iqn.2026-01.org.example:c"))]));
    ended(b);
    assert!(works(&mut a));
    // A secret is another one.
    rig.change(chap(vec![account((A.0, "another secret"), only(HOST_A))]));
    ended(a);
    assert_eq!(rig.login(HOST_A, A, 1).err(), Some(AUTHENTICATION));
    let _last = rig.login(HOST_A, (A.0, "another secret"), 1).unwrap();
    eventually("only the last one is there", || rig.server.sessions().len() == 1);
}

#[test]
fn what_was_proved_before_a_change_does_not_count_after_it() {
    let names = [("InitiatorName", HOST_A), ("TargetName", DISK)];
    let rig = Rig::start(chap(vec![account(A, only(HOST_A))]));
    let first = rig.proved(&names, A).unwrap();
    rig.change(chap(vec![account((A.0, "another secret"), only(HOST_A))]));
    assert_eq!(finish(first).err(), Some(AUTHENTICATION));
    assert_eq!(rig.server.sessions().len(), 0);
    // The same for a connection that joins: its own session is there again by then.
    let old = rig.login(HOST_A, (A.0, "another secret"), 1).unwrap();
    let mut joining = Initiator::connect(rig.address);
    (joining.isid, joining.tsih, joining.cid) = (old.isid, old.tsih, 1);
    let joining = rig.proved_as(joining, &names, (A.0, "another secret")).unwrap();
    rig.change(chap(vec![account(A, only(HOST_A))]));
    assert!(finish(joining).is_err());
    ended(old);
}

#[test]
fn discovery_with_proof_tells_of_what_would_let_in() {
    let rig = Rig::start(chap(vec![account(A, only(HOST_A))]));
    rig.server.add_target(rig.target(OTHER_DISK, chap(vec![account(B, only(HOST_B))]))).unwrap();
    let open = [("InitiatorName", HOST_A), ("SessionType", "Discovery")];
    let mut early = Initiator::connect(rig.address);
    assert_eq!(early.login_request(0x87, &open).bhs.u16_at(36), 0);
    assert_eq!(told(&mut early), [DISK, OTHER_DISK], "nothing is asked for");

    rig.server.reconfigure(ServerConfig { discovery: DiscoveryAuth::Chap, ..rig.server.config() });
    assert_eq!(told(&mut early), [""; 0], "it has proved nothing");
    let refused = Initiator::connect(rig.address).login_request(0x87, &open);
    assert_eq!(refused.bhs.u16_at(36), AUTHENTICATION);
    assert_eq!(rig.discover(HOST_A, A), Ok(vec![DISK.to_owned()]));
    assert_eq!(rig.discover(HOST_B, B), Ok(vec![OTHER_DISK.to_owned()]));
    assert_eq!(rig.discover(HOST_A, B), Err(AUTHENTICATION), "another's name");
    assert_eq!(rig.discover(HOST_A, (A.0, "guessed")), Err(AUTHENTICATION));
    // One name with another secret at each target is two users.
    rig.server
        .update_target(rig.target(OTHER_DISK, chap(vec![account((A.0, "a third secret"), only(HOST_B))])))
        .unwrap();
    assert_eq!(rig.discover(HOST_A, A), Ok(vec![DISK.to_owned()]));
    assert_eq!(rig.discover(HOST_B, (A.0, "a third secret")), Ok(vec![OTHER_DISK.to_owned()]));
}

/// What a discovery session of a user is told when it asks who we are: our name, and whether we know the secret.
fn mutual_discovery(
    rig: &Rig,
    initiator: &str,
    user: (&str, &str),
    own: &str,
) -> Result<(String, bool), u16> {
    let mut i = Initiator::connect(rig.address);
    let keys = [("InitiatorName", initiator), ("SessionType", "Discovery"), ("AuthMethod", "CHAP")];
    assert_eq!(i.login_request(0x00, &keys).bhs.u16_at(36), 0);
    let offer = i.login_request(0x00, &[("CHAP_A", "7")]).text();
    let get = |list: &[(String, String)], k: &str| list.iter().find(|(key, _)| key == k).unwrap().1.clone();
    let challenge = binary(&get(&offer, "CHAP_C"), 1024).unwrap();
    let secret = Secret::new(user.1);
    let proof = Algorithm::Sha256.response(get(&offer, "CHAP_I").parse().unwrap(), &secret, &challenge);
    let (proof, asked) = (hex(&proof), [0x5a; 32]);
    let asks = [("CHAP_N", user.0), ("CHAP_R", &*proof), ("CHAP_I", "9"), ("CHAP_C", &*hex(&asked))];
    let answer = i.login_request(0x81, &asks);
    if answer.bhs.u16_at(36) != 0 {
        return Err(answer.bhs.u16_at(36));
    }
    let expected = hex(&Algorithm::Sha256.response(9, &Secret::new(own), &asked));
    let right = get(&answer.text(), "CHAP_R") == expected;
    finish(i)?;
    Ok((get(&answer.text(), "CHAP_N"), right))
}

#[test]
fn discovery_proves_itself_where_all_targets_would_alike() {
    const OWN: &str = "the secret of the node";
    let own = |secret: &str| Some(ChapUser { name: "node".into(), secret: Secret::new(secret) });
    let with = |users: Vec<Account>, mutual| AuthConfig::Chap { users, mutual };
    let rig = Rig::start(with(vec![account(A, only(HOST_A))], own(OWN)));
    rig.server.reconfigure(ServerConfig { discovery: DiscoveryAuth::Chap, ..rig.server.config() });
    assert_eq!(mutual_discovery(&rig, HOST_A, A, OWN), Ok(("node".into(), true)));
    assert_eq!(rig.discover(HOST_A, A), Ok(vec![DISK.to_owned()]), "who does not ask is not told");
    // Another target, of which this initiator is no user, has no say; one of which it is has.
    let other = |users, secret| rig.target(OTHER_DISK, with(users, own(secret)));
    rig.server.add_target(other(vec![account(B, only(HOST_B))], "another secret of it")).unwrap();
    assert_eq!(mutual_discovery(&rig, HOST_A, A, OWN), Ok(("node".into(), true)));
    rig.server.update_target(other(vec![account(A, only(HOST_A))], "another secret of it")).unwrap();
    assert_eq!(mutual_discovery(&rig, HOST_A, A, OWN), Err(AUTHENTICATION));
    // A proof with a secret that a user has, too, would be that user's.
    rig.server
        .update_target(other(vec![account(("carol", OWN), only(HOST_B))], "another secret of it"))
        .unwrap();
    assert_eq!(mutual_discovery(&rig, HOST_A, A, OWN), Err(AUTHENTICATION));
}

#[test]
fn a_target_that_is_not_for_an_initiator_does_not_show() {
    let rig = Rig::start(AuthConfig::None);
    let masked = TargetConfig { access: only(HOST_B), ..rig.target(OTHER_DISK, AuthConfig::None) };
    rig.server.add_target(masked).unwrap();
    for target in [OTHER_DISK, "iqn.2026-01.org.example:nothing"] {
        let names = [("InitiatorName", HOST_A), ("TargetName", target)];
        let answer = Initiator::connect(rig.address).login_request(0x87, &names);
        assert_eq!(answer.bhs.u16_at(36), NOT_FOUND);
    }
}

#[test]
fn a_cold_reset_ends_no_session_of_another_initiator() {
    let rig = Rig::start(chap(vec![account(A, only(HOST_A)), account(B, only(HOST_B))]));
    let (mut a, mut b) = (rig.login(HOST_A, A, 1).unwrap(), rig.login(HOST_B, B, 1).unwrap());
    let cold_reset = |i: &mut Initiator| {
        let bhs = i.request(opcode::TASK_MANAGEMENT, flag::FINAL | 7);
        i.send(bhs, &[]);
        i.receive().bhs.0[2]
    };
    rig.disk.apart.store(true, Ordering::SeqCst);
    assert_eq!(cold_reset(&mut b), 6, "function authorization failed");
    assert!(works(&mut a) && works(&mut b));
    drop(a);
    eventually("one is left", || rig.server.sessions().len() == 1);
    assert_eq!(cold_reset(&mut b), 0);
    ended(b);
}
