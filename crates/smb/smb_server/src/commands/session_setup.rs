//! SESSION_SETUP and LOGOFF (MS-SMB2 3.3.5.5, 3.3.5.6).
//!
//! ```text
//!   id 0               ─► a new login            ─► new session
//!   id, BINDING        ─► a login, signed        ─► this connection joins the session
//!   id of a session    ─► a login                ─► the user is proven once more
//! ```

use std::rc::Rc;
use std::sync::Arc;

use smb_auth::ntlm::acceptor::{NtlmAcceptor, NtlmServer};
use smb_auth::{Acceptor, Authenticated, Failure, Identity, Step};
use smb_crypto::{Key, SessionKeys};
use smb_protocol::negotiate::contexts::SigningAlgorithm;
use smb_protocol::negotiate::{Capabilities, SecurityMode};
use smb_protocol::session::{SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse};
use smb_protocol::{Dialect, FileTime, Header, NtStatus};

use crate::config::{Encryption, ServerConfig, Signing};
use crate::connection::answer::{Body, Hashed, Outcome, Reply};
use crate::connection::channel::Channel;
use crate::connection::state::{Conn, Login, Negotiated};
use crate::limits::{MAX_SESSIONS_PER_CONNECTION, MAX_WRITE_WAIT};
use crate::peer::Mail;
use crate::session::{NewSession, Session, Terms, User};
use crate::shared::{Shared, filetime};

/// Logins of a connection that are not finished; clients have one for each user that connects at the moment.
const MAX_LOGINS: usize = 64;

/// Runs a SESSION_SETUP. `channel` is that of the header's session, if this connection has it.
pub(crate) async fn run(
    conn: &Rc<Conn>,
    header: &Header,
    message: &[u8],
    channel: Option<Rc<Channel>>,
) -> Reply {
    let Some(negotiated) = conn.negotiated() else {
        conn.fail("SESSION_SETUP before NEGOTIATE");
        return Reply::new(NtStatus::INVALID_PARAMETER, None);
    };
    if negotiated.terms.dialect == Dialect::WILDCARD {
        conn.fail("SESSION_SETUP before the version was settled");
        return Reply::new(NtStatus::INVALID_PARAMETER, None);
    }
    let mut sign = channel.clone().filter(|_| Conn::is_signed(header));
    let mut replaced = None;
    let reply = match step(conn, header, message, &negotiated, channel, (&mut sign, &mut replaced)) {
        Ok(reply) => reply,
        Err(status) => return Reply::new(status, sign),
    };
    if let Some((new, old)) = replaced
        && shard_runtime::timeout(MAX_WRITE_WAIT, old.written()).await.is_none()
    {
        // Let in now, the client would send its writes again, and these could still come after them.
        if conn.may_tell("login refused") {
            tracing::warn!(remote = %conn.peer.remote, user = old.user().name(), "SMB login refused: writes of the client's earlier session do not end");
        }
        conn.shared.end_session(&new, true, None);
        return Reply::new(NtStatus::IO_TIMEOUT, sign);
    }
    reply
}

fn step(
    conn: &Rc<Conn>,
    header: &Header,
    message: &[u8],
    negotiated: &Negotiated,
    channel: Option<Rc<Channel>>,
    (sign, replaced): (&mut Option<Rc<Channel>>, &mut Option<Replaced>),
) -> Result<Reply, NtStatus> {
    let request = SessionSetupRequest::decode(message)?;
    let binding = request.flags.contains(SessionSetupFlags::BINDING);
    let id = match header.session_id {
        0 if binding => return Err(NtStatus::USER_SESSION_DELETED),
        0 => begin(conn, None, false)?,
        id => {
            if binding {
                // Until this connection has a key of its own for the session, the session's speaks.
                *sign = believed(conn, header, message, id)?;
            }
            if !conn.logins.borrow().contains_key(&id) {
                let existing = if binding {
                    bindable(conn, negotiated, id)?
                } else {
                    // Only over a connection that has it (3.3.5.5.1).
                    let channel = channel.as_ref().ok_or_else(|| {
                        *sign = elsewhere(conn, header, message);
                        NtStatus::USER_SESSION_DELETED
                    })?;
                    Arc::clone(&channel.session)
                };
                begin(conn, Some(existing), binding)?;
            }
            id
        }
    };
    let id = if header.session_id == 0 { id } else { header.session_id };
    let judged = conn.shared.endings.now();
    let result = {
        let mut logins = conn.logins.borrow_mut();
        let login = logins.get_mut(&id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if login.binding != binding {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        login.preauth.update(message);
        login.acceptor.step(request.security_buffer, conn.shared.parts.directory.as_ref())
    };
    match result {
        Step::Continue(token) => {
            let response = SessionSetupResponse { flags: SessionFlags::NONE, security_buffer: &token };
            let body = Body::of(|out| response.encode(out))?;
            let outcome = Outcome { status: NtStatus::MORE_PROCESSING_REQUIRED, body };
            let mut reply = Reply::new(outcome, sign.take());
            reply.hash = Hashed::Login(id);
            reply.session = Some(id);
            Ok(reply)
        }
        Step::Done(token, who) => {
            let login = conn.logins.borrow_mut().remove(&id).ok_or(NtStatus::USER_SESSION_DELETED)?;
            let is_new = login.existing.is_none();
            let (channel, flags) = finish(conn, negotiated, &request, (id, judged), login, who)?;
            if is_new {
                *replaced = replace_previous(conn, &channel.session, request.previous_session_id);
            }
            let response = SessionSetupResponse { flags, security_buffer: &token };
            let body = Body::of(|out| response.encode(out))?;
            conn.log_in();
            // Anybody can log in as nobody.
            if channel.session.user().identity != Identity::Anonymous && conn.peer.becomes_client() {
                conn.shared.connected.notify_one();
            }
            let sign = (!flags.contains(SessionFlags::IS_NULL)).then_some(channel);
            let mut reply = Reply::new(Outcome::ok(body), sign);
            reply.session = Some(id);
            Ok(reply)
        }
        Step::Failed(failure) => {
            let login = conn.logins.borrow_mut().remove(&id);
            refused(conn, &failure);
            // Who cannot prove itself once more is out (3.3.5.5.3). What is durable stays: nothing of this needed a key, so
            // it may be another who has put it into the client's connection.
            if let Some(Login { existing: Some(session), binding: false, .. }) = login {
                conn.shared.end_session(&session, true, None);
            }
            Err(failure.error.status())
        }
    }
}

fn refused(conn: &Conn, failure: &Failure) {
    let Failure { error, user, domain, workstation } = failure;
    if conn.may_tell("login refused") {
        tracing::warn!(remote = %conn.peer.remote, user, domain, workstation, reason = %error, "SMB login refused");
    }
}

/// Begins a login; returns the number that its session has or will have.
fn begin(conn: &Rc<Conn>, existing: Option<Arc<Session>>, binding: bool) -> Result<u64, NtStatus> {
    if conn.sessions.borrow().len() >= MAX_SESSIONS_PER_CONNECTION {
        conn.sessions.borrow_mut().retain(|_, channel| !channel.session.has_ended());
    }
    let count = conn.sessions.borrow().len();
    if conn.logins.borrow().len() >= MAX_LOGINS || count >= MAX_SESSIONS_PER_CONNECTION {
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let shared = &conn.shared;
    let id = match &existing {
        Some(session) => session.id,
        None => shared.new_session_id(),
    };
    let (challenge, now) = match &existing {
        Some(session) if binding && is_gmac(&session.terms) => {
            (session.binding_challenge, filetime(session.since))
        }
        _ => (shared.challenge(), shared.now()),
    };
    let acceptor = acceptor(&shared.config(), challenge, now);
    let login = Login { acceptor, preauth: conn.preauth.get(), existing, binding };
    conn.logins.borrow_mut().insert(id, login);
    Ok(id)
}

/// An authentication with this challenge.
fn acceptor(config: &ServerConfig, challenge: [u8; 8], now: FileTime) -> Acceptor {
    let ntlm = NtlmAcceptor::new(Arc::new(ntlm_server(config)), challenge, now);
    Acceptor::new(vec![Box::new(ntlm)])
}

/// An authentication with a challenge of its own.
pub(crate) fn new_acceptor(shared: &Shared) -> Acceptor {
    acceptor(&shared.config(), shared.challenge(), shared.now())
}

fn ntlm_server(config: &ServerConfig) -> NtlmServer {
    let dns_computer =
        if config.dns_name.is_empty() { config.name.to_lowercase() } else { config.dns_name.clone() };
    let dns_domain = dns_computer.split_once('.').map(|(_, domain)| domain.to_owned()).unwrap_or_default();
    NtlmServer {
        computer: config.name.clone(),
        domain: config.domain.clone(),
        dns_computer,
        dns_domain,
        policy: config.auth.clone(),
    }
}

/// Whether who wants to join a session has its key; the channel that signs the answers until it has joined.
///
/// With AES-GMAC a second, different answer under the same message number would give the key away. The first request of a
/// login is the same on each connection, and so is our answer ([`Session::binding_challenge`]); no later one comes twice
/// but from somebody who has recorded it, and gets no answer.
fn believed(conn: &Conn, header: &Header, message: &[u8], id: u64) -> Result<Option<Rc<Channel>>, NtStatus> {
    conn.shared.session(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
    if !Conn::is_signed(header) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let channel = proven(conn, header, message).ok_or(NtStatus::ACCESS_DENIED)?;
    let later = conn.logins.borrow().contains_key(&id);
    if later && is_gmac(&channel.session.terms) && !channel.session.is_new_binding(header.signature) {
        conn.fail("a request to join a session was sent before");
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(Some(channel))
}

/// A session that this connection does not have, if the message proves with the session's key that its sender does: to
/// sign the refusal with. `None` with AES-GMAC, where another connection has signed under the same message number.
pub(crate) fn elsewhere(conn: &Conn, header: &Header, message: &[u8]) -> Option<Rc<Channel>> {
    proven(conn, header, message).filter(|channel| !is_gmac(&channel.session.terms))
}

fn is_gmac(terms: &Terms) -> bool {
    terms.signing == SigningAlgorithm::AES_GMAC
}

/// A session whose key the message proves. Only to sign answers with: it joins nothing, and nothing is encrypted with it,
/// so its nonces are never used.
fn proven(conn: &Conn, header: &Header, message: &[u8]) -> Option<Rc<Channel>> {
    if !Conn::is_signed(header) {
        return None;
    }
    let session = conn.shared.session(header.session_id)?;
    let key = session.keys.signing.clone();
    let channel = Channel::new(Arc::clone(&session), session.terms.signing, &key, 0).ok()?;
    channel.signer.verify(&mut message.to_vec()).ok()?;
    Some(Rc::new(channel))
}

/// The session that another connection of the same client wants to join (3.3.5.5.2).
fn bindable(conn: &Conn, negotiated: &Negotiated, id: u64) -> Result<Arc<Session>, NtStatus> {
    let session = conn.shared.session(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
    // AES-GMAC is part of what was negotiated with the first connection, in both directions; so do Windows and Samba,
    // which let the other algorithms, and clients with another identity, pass: who asks has the key.
    match (is_gmac(&session.terms), is_gmac(&negotiated.terms)) {
        (true, false) => return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE),
        (false, true) => return Err(NtStatus::NOT_SUPPORTED),
        _ => {}
    }
    if !negotiated.terms.dialect.is_smb3()
        || !negotiated.capabilities.contains(Capabilities::MULTI_CHANNEL)
        || !conn.shared.config().multichannel
    {
        return Err(NtStatus::REQUEST_NOT_ACCEPTED);
    }
    if session.terms.dialect != negotiated.terms.dialect || session.terms.cipher != negotiated.terms.cipher {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if conn.channel(id).is_some() {
        return Err(NtStatus::REQUEST_NOT_ACCEPTED);
    }
    if session.user().identity == Identity::Anonymous {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    Ok(session)
}

fn finish(
    conn: &Rc<Conn>,
    negotiated: &Negotiated,
    request: &SessionSetupRequest<'_>,
    (id, judged): (u64, u64),
    login: Login,
    who: Authenticated,
) -> Result<(Rc<Channel>, SessionFlags), NtStatus> {
    let shared = &conn.shared;
    let anonymous = who.identity == Identity::Anonymous;
    let token = match &who.identity {
        Identity::User { sid, .. } => {
            shared.parts.directory.token(*sid, &who.groups).ok_or(NtStatus::LOGON_FAILURE)?
        }
        Identity::Anonymous => shared.parts.directory.anonymous(),
    };
    let user = User { identity: who.identity, token: Arc::new(token), workstation: who.workstation };
    let keys = SessionKeys::derive(
        negotiated.terms.dialect,
        negotiated.terms.cipher,
        who.session_key.expose(),
        &login.preauth,
    );
    if let Some(session) = login.existing {
        if session.user().token.user != user.token.user {
            if conn.may_tell("login refused") {
                tracing::warn!(remote = %conn.peer.remote, was = session.user().name(), is = user.name(), "SMB session refused to another user");
            }
            return Err(NtStatus::ACCESS_DENIED);
        }
        if login.binding {
            conn.take_place(&user, None)?;
            let channel = join(conn, &session, negotiated.terms.signing, &keys.signing)?;
            return Ok((channel, flags(&session)));
        }
        // Proven once more: rights may be others now, the keys stay (3.3.5.5.3).
        *session.user.write() = Arc::new(user);
        let channel = conn.channel(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        return Ok((channel, flags(&session)));
    }
    let config = shared.config();
    let asked = negotiated.client_security.contains(SecurityMode::SIGNING_REQUIRED)
        || SecurityMode(u16::from(request.security_mode)).contains(SecurityMode::SIGNING_REQUIRED);
    let encrypt = config.encryption == Encryption::Required && !anonymous;
    if encrypt && negotiated.terms.cipher.is_none() {
        if conn.may_tell("login refused") {
            tracing::warn!(remote = %conn.peer.remote, user = user.name(), "SMB login refused: the client cannot encrypt, and must");
        }
        return Err(NtStatus::ACCESS_DENIED);
    }
    let lost = lost_session(conn, request.previous_session_id, &user);
    let place = shared.session_place(&user, conn.peer.remote, lost.is_some());
    let place = place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    conn.take_place(&user, lost.as_deref())?;
    let since = shared.parts.clock.wall().0;
    let session = Session::new(NewSession {
        id,
        terms: negotiated.terms,
        keys,
        user,
        signing_required: !anonymous && (config.signing == Signing::Required || asked),
        encrypt,
        since,
        binding_challenge: shared.challenge(),
    })
    .map_err(|_| NtStatus::INTERNAL_ERROR)?;
    let session = Arc::new(session);
    shared.add_session(&session, place);
    if shared.endings.of_since(session.user().token.user, judged) {
        if conn.may_tell("login refused") {
            tracing::warn!(remote = %conn.peer.remote, user = session.user().name(), "SMB login refused: the user's sessions were ended meanwhile");
        }
        shared.end_session(&session, false, None);
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    let channel = join(conn, &session, session.terms.signing, &session.keys.signing)
        .inspect_err(|_| shared.lost(&session))?;
    tracing::debug!(remote = %conn.peer.remote, user = session.user().name(), dialect = ?session.terms.dialect, "SMB session begins");
    Ok((channel, flags(&session)))
}

/// Makes the connection a channel of the session.
pub(crate) fn join(
    conn: &Conn,
    session: &Arc<Session>,
    algorithm: SigningAlgorithm,
    signing: &Key,
) -> Result<Rc<Channel>, NtStatus> {
    let number = session.join(&conn.peer).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    let channel = Channel::new(Arc::clone(session), algorithm, signing, number).map_err(|_| {
        session.leave(&conn.peer);
        NtStatus::INTERNAL_ERROR
    })?;
    let channel = Rc::new(channel);
    conn.sessions.borrow_mut().insert(session.id, Rc::clone(&channel));
    conn.shared.opens.clients().join(session.client(), &conn.peer);
    Ok(channel)
}

fn flags(session: &Session) -> SessionFlags {
    let mut flags = SessionFlags::NONE;
    if session.user().identity == Identity::Anonymous {
        flags |= SessionFlags::IS_NULL;
    }
    if session.encrypt {
        flags |= SessionFlags::ENCRYPT_DATA;
    }
    flags
}

/// A user's session of this number, which a new one stands for.
fn lost_session(conn: &Conn, id: u64, user: &User) -> Option<Arc<Session>> {
    let old = if id == 0 { None } else { conn.shared.session(id) };
    old.filter(|old| old.user().token.user == user.token.user)
}

/// A new session, and the one that it stands for.
type Replaced = (Arc<Session>, Arc<Session>);

/// The client has lost an earlier session: what it held is given up, but for what it can take up again (3.3.5.5.3).
/// Returns both; writes of the earlier one may still be under way, also if it had ended before. (Of a connection that is
/// lost none are: the write's range is locked until the disks have answered, whoever waits for it.)
fn replace_previous(conn: &Conn, session: &Arc<Session>, previous: u64) -> Option<Replaced> {
    if previous == 0 || previous == session.id {
        return None;
    }
    let old = conn.shared.earlier(previous)?;
    if old.user().token.user != session.user().token.user {
        return None;
    }
    let channels = old.channels();
    conn.shared.end_session(&old, true, None);
    // The client has lost them with the session, and we may never hear of that.
    for peer in channels.iter().filter(|peer| peer.id != conn.peer.id) {
        peer.tell(Mail::Unused);
    }
    Some((Arc::clone(session), old))
}

/// LOGOFF.
pub(crate) fn logoff(conn: &Conn, session: &Session) -> Outcome {
    // What is durable can be taken up again, as after a lost connection (3.3.5.6).
    conn.shared.end_session(session, true, Some(&conn.peer));
    Outcome::ok(Body::Empty)
}
