//! The login phase of a connection, and which session it becomes a part of.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::login::{
    Access, Auth, LoginMachine, LoginPolicy, LoginResponse, LoginResult, LoginStatus, LoginSubject,
    MAX_LOGIN_DATA, Outcome, Refusal,
};
use iscsi_protocol::pdu::padded;
use iscsi_protocol::{BHS_BYTES, Bhs, IscsiName};
use observe::IoTally;
use scsi_core::Nexus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::{AuthConfig, DiscoveryAuth, TargetConfig};
use crate::limits::{MAX_CONNECTIONS_PER_PORTAL, MAX_SESSIONS_PER_TARGET, REINSTATE_TIMEOUT};
use crate::refused::Subject;
use crate::session::{Message, Peer, ReserveError, Session, SessionSeed};
use crate::share::{self, Host};
use crate::shared::{Portal, Shared, Target};

struct Policy<'a> {
    shared: &'a Shared,
    group: u16,
}

impl LoginPolicy for Policy<'_> {
    fn access(&self, subject: &LoginSubject) -> Result<Access, Refusal> {
        let Some(name) = &subject.target else {
            let auth = match self.shared.config.read().discovery {
                DiscoveryAuth::Open => Auth::None,
                DiscoveryAuth::Chap => Auth::Chap {
                    users: self.shared.discovery_users(&subject.initiator),
                    mutual: self.shared.discovery_mutual(&subject.initiator),
                },
            };
            return Ok(Access { portal_group: self.group, alias: None, auth });
        };
        let none = |why| LoginStatus::NOT_FOUND.because(why);
        let target = self.shared.targets.read().get(name).cloned().ok_or(none("there is no such target"))?;
        let config = Arc::clone(&target.config.read());
        if !config.in_group(self.group) {
            return Err(none("the target is not reached over this portal"));
        }
        if !config.access.allows(&subject.initiator) {
            // The same as for a target that does not exist: who may not log in does not learn which targets there are.
            return Err(none("no LUN of the target is mapped to the initiator"));
        }
        let auth = config.auth.to_auth(&subject.initiator);
        Ok(Access { portal_group: self.group, alias: config.alias.clone(), auth })
    }
}

/// What a login ends with.
pub(crate) struct Admitted {
    pub(crate) result: LoginResult,
    /// Holds the place in the session until the connection itself does.
    pub(crate) seat: SessionSeat,
    /// The next StatSN.
    pub(crate) stat_sn: u32,
    pub(crate) first_cmd_sn: u32,
}

/// A connection in its session while the last response is on its way: a login that is dropped there, by its
/// time limit or a failed send, leaves the session again.
pub(crate) struct SessionSeat {
    shared: Arc<Shared>,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) peer: Arc<Peer>,
}

impl Drop for SessionSeat {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.shared.leave(&session, &self.peer);
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> io::Result<(Bhs, Vec<u8>)> {
    let mut head = [0; BHS_BYTES];
    stream.read_exact(&mut head).await?;
    let bhs = Bhs(head);
    // Digests are never on during login.
    let (ahs, data) = (bhs.ahs_len(), bhs.data_len());
    if data > MAX_LOGIN_DATA {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; ahs + padded(data)];
    stream.read_exact(&mut body).await?;
    body.drain(..ahs);
    body.truncate(data);
    Ok((bhs, body))
}

async fn send(stream: &mut TcpStream, response: &LoginResponse) -> io::Result<()> {
    let mut bytes = response.bhs.0.to_vec();
    bytes.extend_from_slice(&response.data);
    bytes.resize(padded(bytes.len()), 0);
    stream.write_all(&bytes).await
}

/// Carries the login phase out; `None` when it was refused.
pub(crate) async fn login(
    shared: &Arc<Shared>,
    stream: &mut TcpStream,
    portal: &Portal,
    shard: usize,
) -> io::Result<Option<Admitted>> {
    let addresses = (stream.peer_addr()?, stream.local_addr()?);
    let mut machine = LoginMachine::new(shared.config.read().offer.clone());
    let entropy = Arc::clone(&shared.entropy);
    let mut stat_sn = 0;
    loop {
        let (bhs, data) = read_request(stream).await.inspect_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                let refusal = LoginStatus::INITIATOR_ERROR.because("its login request is too long");
                shared.tell_refused(&Subject::of(&machine), addresses.0, refusal);
            }
        })?;
        let policy = Policy { shared, group: portal.group };
        let mut step = machine.request(&bhs, &data, &policy, &mut |out| entropy.fill(out));
        if let Some(refusal) = machine.refusal() {
            shared.tell_refused(&Subject::of(&machine), addresses.0, refusal);
        }
        let mut admitted = None;
        if step.outcome == Outcome::Done
            && let Some(result) = machine.result()
        {
            let peer = Peer::new(result.subject.cid, addresses, shard, result.connection.clone());
            match establish((shared, portal), &result, &peer, bhs.cmd_sn()).await {
                Ok(session) => {
                    // A discovery session needs a handle that is not 0, too; nobody can join it.
                    let tsih = session.as_ref().map_or(1, |session| session.tsih);
                    step.response.bhs.set_u16(14, tsih);
                    let stat_sn = stat_sn + 1;
                    let seat = SessionSeat { shared: Arc::clone(shared), session, peer };
                    admitted = Some(Admitted { result, seat, stat_sn, first_cmd_sn: bhs.cmd_sn() });
                }
                Err(refusal) => {
                    shared.tell_refused(&Subject::of(&machine), addresses.0, refusal);
                    step.response.refuse(refusal.status);
                    step.outcome = Outcome::Refused(refusal.status);
                }
            }
        }
        let (expected, max) = match admitted.as_ref().and_then(|a| a.seat.session.as_ref()) {
            Some(session) => session.window(),
            None => (bhs.cmd_sn(), bhs.cmd_sn().wrapping_add(1)),
        };
        step.response.bhs.set_sequence(stat_sn, expected, max);
        stat_sn += 1;
        send(stream, &step.response).await?;
        match step.outcome {
            Outcome::Continue => {}
            Outcome::Done => return Ok(admitted),
            Outcome::Refused(_) => return Ok(None),
        }
    }
}

const REMOVED: Refusal = LoginStatus::REMOVED.because("the target is being removed");
const NO_SESSION: Refusal =
    LoginStatus::NO_SESSION.because("there is no session to join, or it is another's");
const STAYS: Refusal =
    LoginStatus::OUT_OF_RESOURCES.because("what it is to take the place of does not come to its end in time");

/// Finds or makes the session (RFC 7143 6.3.5): reinstates, joins, or begins one.
async fn establish(
    (shared, portal): (&Arc<Shared>, &Portal),
    result: &LoginResult,
    peer: &Arc<Peer>,
    first_cmd_sn: u32,
) -> Result<Option<Arc<Session>>, Refusal> {
    let subject = &result.subject;
    let Some(name) = &subject.target else { return Ok(None) };
    let target = shared.targets.read().get(name).cloned().ok_or(REMOVED)?;
    if subject.tsih != 0 {
        let session = target.sessions.lock().get(&subject.tsih).cloned().ok_or(NO_SESSION)?;
        if session.initiator != subject.initiator
            || session.isid != subject.isid
            || session.nexus.target_port != result.portal_group
        {
            return Err(NO_SESSION);
        }
        same_user(&target.config.read(), &session, result)?;
        session.reserve(subject.cid).map_err(|error| match error {
            ReserveError::Ended => NO_SESSION,
            ReserveError::Full => {
                LoginStatus::TOO_MANY_CONNECTIONS.because("the session has all its connections")
            }
            ReserveError::Joining => {
                LoginStatus::OUT_OF_RESOURCES.because("another connection of its number is just logging in")
            }
        })?;
        let place = Place { shared, session, cid: subject.cid, taken: false };
        let mut kept = Vec::new();
        if let Some(old) = place.session.peer(subject.cid) {
            let host = host_of(name, result, peer);
            take_ahead(&of_connection(shared, portal), &mut kept, &host, |places| {
                old.gives_up(places, &host)
            })?;
            // Connection reinstatement: the old one ends, with its commands, before the new one begins. Its places are taken first, as
            // an end gives them to everybody.
            kept.extend(old.give_up_places());
            old.tell(Message::Close);
            if shard_runtime::timeout(REINSTATE_TIMEOUT, old.wait_gone()).await.is_none() {
                return Err(STAYS);
            }
        }
        take_connection((shared, portal), &host_of(name, result, peer), peer, &mut kept)?;
        let session = place.take(peer);
        // A target that was changed meanwhile ended the sessions that it would not let in; this connection may have
        // been too late for that, and proved what no longer counts.
        let admitted = still_admitted(&target.config.read(), result);
        if let Err(refusal) = admitted {
            shared.leave(&session, peer);
            return Err(refusal);
        }
        return Ok(Some(session));
    }
    let mut kept = Vec::new();
    let session = loop {
        let old = match begin((shared, portal), &target, result, (peer, first_cmd_sn), &mut kept)? {
            Begun::New(session) => break session,
            Begun::Old(old) => old,
        };
        // Session reinstatement: the old one ends, with its commands, before the new one begins. Its places are taken first, as an end
        // gives them to everybody.
        kept.extend(old.give_up_places());
        old.close();
        if shard_runtime::timeout(REINSTATE_TIMEOUT, old.wait_ended()).await.is_none() {
            return Err(STAYS);
        }
    };
    // A target removed meanwhile did not see this session in its list.
    if !shared.targets.read().get(name).is_some_and(|now| Arc::ptr_eq(now, &target)) {
        shared.leave(&session, peer);
        return Err(REMOVED);
    }
    Ok(Some(session))
}

enum Begun {
    New(Arc<Session>),
    /// A session of the same initiator port, to be ended first.
    Old(Arc<Session>),
}

/// A session is one user's: another one who gives the same names neither joins nor ends it. The name is what counts,
/// as a user may come back with a new secret.
fn same_user(config: &TargetConfig, session: &Session, result: &LoginResult) -> Result<(), Refusal> {
    let name = |user: &Option<ChapUser>| user.as_ref().map(|user| user.name.clone());
    if matches!(config.auth, AuthConfig::None) || name(&session.user) == name(&result.user) {
        return Ok(());
    }
    Err(LoginStatus::FORBIDDEN
        .because("the session of this initiator port is another user's, and stays as it is"))
}

/// Whether what the login has proved still lets it in.
fn still_admitted(config: &TargetConfig, result: &LoginResult) -> Result<(), Refusal> {
    let subject = &result.subject;
    match config.admits(&subject.initiator, result.user.as_ref(), result.portal_group) {
        true => Ok(()),
        false => Err(LoginStatus::AUTHENTICATION_FAILURE
            .because("what it has proved does not let it in any more: the target was just changed")),
    }
}

/// Who takes the places of a login.
fn host_of(target: &IscsiName, result: &LoginResult, peer: &Peer) -> Host {
    Host::new(target, &result.subject.initiator, result.user.as_ref(), peer.remote.ip())
}

/// Places of which a login needs one.
struct Needed<'a> {
    places: &'a Arc<share::Places>,
    limit: usize,
    /// How it is refused without.
    without: Refusal,
}

fn of_session(target: &Target) -> Needed<'_> {
    let without = LoginStatus::OUT_OF_RESOURCES.because("it has its share of the target's sessions");
    Needed { places: &target.places, limit: MAX_SESSIONS_PER_TARGET, without }
}

fn of_connection<'a>(shared: &'a Shared, portal: &'a Portal) -> [Needed<'a>; 2] {
    let of_portal = LoginStatus::OUT_OF_RESOURCES.because("it has its share of the portal's connections");
    let of_node = LoginStatus::OUT_OF_RESOURCES
        .because("it has its share of the connections that the node has memory for");
    [
        Needed { places: &portal.places, limit: MAX_CONNECTIONS_PER_PORTAL, without: of_portal },
        Needed { places: &shared.places, limit: shared.budget.connections_max(), without: of_node },
    ]
}

/// Takes what a login needs beside what it is given by the one that it takes the place of, which `gives_up` tells: that one is not ended
/// for one that is refused then.
fn take_ahead(
    needed: &[Needed<'_>],
    kept: &mut Vec<share::Place>,
    host: &Host,
    gives_up: impl Fn(&Arc<share::Places>) -> bool,
) -> Result<(), Refusal> {
    for Needed { places, limit, without } in needed {
        if !places.is_replaced_by(kept, host) && !gives_up(places) {
            kept.push(places.take(*limit, host).ok_or(*without)?);
        }
    }
    Ok(())
}

/// Takes the places of a connection, for as long as it is in its session: of the `kept` ones, if it comes instead of another.
fn take_connection(
    (shared, portal): (&Shared, &Portal),
    host: &Host,
    peer: &Peer,
    kept: &mut Vec<share::Place>,
) -> Result<(), Refusal> {
    let mut places = Vec::with_capacity(2);
    for needed in of_connection(shared, portal) {
        places.push(needed.places.take_over(kept, needed.limit, host).ok_or(needed.without)?);
    }
    peer.hold(places);
    Ok(())
}

/// Looks for a session of the same initiator port and makes one if there is none, in one step: two logins at
/// once never both begin.
fn begin(
    (shared, portal): (&Shared, &Portal),
    target: &Target,
    result: &LoginResult,
    (peer, first_cmd_sn): (&Arc<Peer>, u32),
    kept: &mut Vec<share::Place>,
) -> Result<Begun, Refusal> {
    let subject = &result.subject;
    let mut sessions = target.sessions.lock();
    // Read under the lock: whoever changes the target looks at its sessions afterwards, and sees this one or is seen here.
    let config = Arc::clone(&target.config.read());
    still_admitted(&config, result)?;
    let same = |session: &&Arc<Session>| {
        session.initiator == subject.initiator
            && session.isid == subject.isid
            && session.nexus.target_port == result.portal_group
    };
    let host = host_of(&config.name, result, peer);
    if let Some(old) = sessions.values().find(same) {
        same_user(&config, old, result)?;
        let [of_portal, of_node] = of_connection(shared, portal);
        let needed = [of_session(target), of_portal, of_node];
        take_ahead(&needed, kept, &host, |places| old.gives_up(places, &host))?;
        return Ok(Begun::Old(Arc::clone(old)));
    }
    let needed = of_session(target);
    let place = needed.places.take_over(kept, needed.limit, &host).ok_or(needed.without)?;
    take_connection((shared, portal), &host, peer, kept)?;
    let tsih = loop {
        let tsih = target.next_tsih.fetch_add(1, Ordering::Relaxed) as u16;
        if tsih != 0 && !sessions.contains_key(&tsih) {
            break tsih;
        }
    };
    let nexus = Arc::new(Nexus {
        id: shared.next_nexus.fetch_add(1, Ordering::Relaxed),
        initiator: subject.initiator.as_str().to_owned(),
        initiator_port: subject.isid,
        target: config.name.as_str().to_owned(),
        target_port: result.portal_group,
        io: IoTally::default(),
    });
    let session = Session::new(SessionSeed {
        nexus,
        device: Arc::clone(&config.device),
        target: config.name.clone(),
        initiator: subject.initiator.clone(),
        alias: subject.alias.clone(),
        user: result.user.clone(),
        tsih,
        params: result.session.clone(),
        first_cmd_sn,
        first_cid: peer.cid,
        place: Some(place),
    });
    sessions.insert(tsih, Arc::clone(&session));
    session.join(peer);
    Ok(Begun::New(session))
}

/// A reserved place in a session, given back when the login fails or is dropped.
struct Place<'a> {
    shared: &'a Shared,
    session: Arc<Session>,
    cid: u16,
    taken: bool,
}

impl Place<'_> {
    fn take(mut self, peer: &Arc<Peer>) -> Arc<Session> {
        self.taken = true;
        self.session.join(peer);
        Arc::clone(&self.session)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.taken && self.session.give_up(self.cid) {
            self.shared.end(&self.session);
        }
    }
}
