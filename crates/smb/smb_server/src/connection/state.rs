//! What the requests of a connection share. All of it stays on the connection's thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use smb_auth::Acceptor;
use smb_crypto::PreauthHash;
use smb_protocol::header::{HeaderFlags, Routing, UNSOLICITED};
use smb_protocol::message::Response;
use smb_protocol::negotiate::{Capabilities, SecurityMode};
use smb_protocol::oplock::BreakNotification;
use smb_protocol::{Command, Dialect, Guid, Header, NtStatus};
use tcp_service::{LoginSeat, SendQueue};
use tokio::sync::Notify;

use super::answer::{self, Answer, Body, Hashed};
use super::channel::Channel;
use super::credits::Credits;
use crate::peer::{Mail, Peer};
use crate::session::{Session, Terms, User};
use crate::shared::Shared;

/// What NEGOTIATE agreed on.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated {
    pub(crate) terms: Terms,
    /// What the client said, to be compared with what it says again under a signature (FSCTL_VALIDATE_NEGOTIATE_INFO).
    pub(crate) client_capabilities: Capabilities,
    pub(crate) client_security: SecurityMode,
    /// What we said.
    pub(crate) capabilities: Capabilities,
    pub(crate) security: SecurityMode,
    pub(crate) max_transfer: u32,
}

/// A login that is not finished.
pub(crate) struct Login {
    pub(crate) acceptor: Acceptor,
    /// The hash of this login's messages.
    pub(crate) preauth: PreauthHash,
    /// The session that this connection wants to join, or that is proven once more.
    pub(crate) existing: Option<Arc<Session>>,
    pub(crate) binding: bool,
}

/// A request that can be cancelled while it waits.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) cancelled: Cell<bool>,
    pub(crate) wake: Notify,
    pub(crate) async_id: Cell<Option<u64>>,
    /// Whether the packet that the request came in is worked on to its end even if the connection is lost.
    pub(crate) outlives: Rc<Cell<bool>>,
    /// Whether the request waits for somebody else now, and can be given up.
    waits: Cell<bool>,
    /// Whether it is held back now, and has changed nothing yet.
    held: Cell<bool>,
    /// Whether it may take long though it is not held back here: its client is told so, and it comes to its end.
    takes_long: Cell<bool>,
}

/// A request that is held back, until this is dropped.
pub(crate) struct Hold<'a>(&'a Cell<bool>);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Pending {
    /// A request that came in a packet with that mark.
    pub(crate) fn of(outlives: &Rc<Cell<bool>>) -> Self {
        Self { outlives: Rc::clone(outlives), ..Self::default() }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
        self.wake.notify_one();
    }

    /// The request begins to wait for somebody else, or goes on: then it changes something, and comes to its end.
    pub(crate) fn say_waiting(&self, waits: bool) {
        self.waits.set(waits);
    }

    /// Whether it waits for somebody else.
    pub(crate) fn waits(&self) -> bool {
        self.waits.get()
    }

    /// The request is held back until its turn has come.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.held.set(true);
        Hold(&self.held)
    }

    /// Whether it is held back.
    pub(crate) fn is_held(&self) -> bool {
        self.held.get()
    }

    /// The request may take long: what carries it out holds it back, and nobody can tell from here whether it has begun.
    pub(crate) fn say_long(&self) {
        self.takes_long.set(true);
    }

    /// Whether it may take long, held back or not.
    pub(crate) fn may_take_long(&self) -> bool {
        self.is_held() || self.takes_long.get()
    }

    /// Ends when the request is cancelled.
    pub(crate) async fn wait(&self) {
        while !self.cancelled.get() {
            self.wake.notified().await;
        }
    }
}

/// The connection.
pub(crate) struct Conn {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) negotiated: RefCell<Option<Rc<Negotiated>>>,
    /// The hash over NEGOTIATE, with which each login begins.
    pub(crate) preauth: Cell<PreauthHash>,
    pub(crate) credits: RefCell<Credits>,
    pub(crate) sessions: RefCell<BTreeMap<u64, Rc<Channel>>>,
    pub(crate) logins: RefCell<BTreeMap<u64, Login>>,
    /// Requests that can be cancelled, by their message numbers.
    pub(crate) pending: RefCell<BTreeMap<u64, Rc<Pending>>>,
    next_async: Cell<u64>,
    pub(crate) transmit: RefCell<SendQueue>,
    /// Bytes of packets being worked on.
    pub(crate) working: Cell<usize>,
    /// A break was queued since it was last looked at.
    pub(crate) told_break: Cell<bool>,
    /// Why the connection must end.
    pub(crate) fatal: Cell<Option<&'static str>>,
    /// Held until somebody has logged in; from then on `peer` has a place of the first who has.
    login: RefCell<Option<LoginSeat>>,
}

impl Drop for Conn {
    fn drop(&mut self) {
        // Others may know the connection for longer.
        self.peer.give_up_place(None);
    }
}

impl Conn {
    pub(crate) fn new(shared: Arc<Shared>, peer: Arc<Peer>, login: impl Into<Option<LoginSeat>>) -> Self {
        Self {
            shared,
            peer,
            negotiated: RefCell::new(None),
            preauth: Cell::new(PreauthHash::new()),
            credits: RefCell::new(Credits::new()),
            sessions: RefCell::new(BTreeMap::new()),
            logins: RefCell::new(BTreeMap::new()),
            pending: RefCell::new(BTreeMap::new()),
            next_async: Cell::new(1),
            transmit: RefCell::new(SendQueue::default()),
            working: Cell::new(0),
            told_break: Cell::new(false),
            fatal: Cell::new(None),
            login: RefCell::new(login.into()),
        }
    }

    pub(crate) fn negotiated(&self) -> Option<Rc<Negotiated>> {
        self.negotiated.borrow().clone()
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.negotiated.borrow().as_ref().map_or(Dialect::SMB_2_0_2, |negotiated| negotiated.terms.dialect)
    }

    /// The other side's identity; zeros in 2.0.2, which has none.
    pub(crate) fn client(&self) -> Guid {
        self.negotiated.borrow().as_ref().map_or(Guid::ZERO, |negotiated| negotiated.terms.client)
    }

    pub(crate) fn channel(&self, session: u64) -> Option<Rc<Channel>> {
        self.sessions.borrow().get(&session).cloned()
    }

    /// Somebody is about to log in; if it is the first, the connection counts as its from now on, whatever becomes of its session.
    /// `lost` is a session of the same user that the client has lost: where there is no place for this connection, one that has nothing else
    /// ends, and its place is this one's.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when that user may have no more connections.
    pub(crate) fn take_place(&self, user: &User, lost: Option<&Session>) -> Result<(), NtStatus> {
        if self.peer.has_place() {
            return Ok(());
        }
        let of_lost = || {
            let (old, place) = lost?.give_up_connection(&self.peer)?;
            // Without a place it may not stay, whoever else logs in over it now.
            old.tell(Mail::Close);
            Some(place)
        };
        let place = self.shared.free_connection_place(user).or_else(of_lost);
        let place = place.or_else(|| self.shared.connection_place(user, self.peer.remote));
        self.peer.hold(place.ok_or(NtStatus::INSUFFICIENT_RESOURCES)?);
        Ok(())
    }

    /// Somebody has logged in.
    pub(crate) fn log_in(&self) {
        self.login.borrow_mut().take();
    }

    pub(crate) fn is_logged_in(&self) -> bool {
        self.login.borrow().is_none()
    }

    /// Whether there is a session on it, or a write of one that has ended is under way.
    pub(crate) fn is_used(&self) -> bool {
        self.peer.carries() > 0 || self.sessions.borrow().values().any(|channel| channel.session.is_writing())
    }

    /// Whether a line of that kind about the client may go into the log: what it can cause at will is throttled.
    pub(crate) fn may_tell(&self, kind: &'static str) -> bool {
        self.shared.throttle.admits(kind, self.peer.remote.ip())
    }

    /// Ends the connection after what is queued has been tried to send.
    pub(crate) fn fail(&self, why: &'static str) {
        if self.fatal.get().is_none() {
            self.fatal.set(Some(why));
        }
    }

    pub(crate) fn next_async(&self) -> u64 {
        let id = self.next_async.get();
        self.next_async.set(id + 1);
        id
    }

    /// The header of an answer to `request`, with the credits that it grants.
    pub(crate) fn answer_header(&self, request: &Header, status: NtStatus) -> Header {
        let credits = self.credits.borrow_mut().grant(request.credits);
        request.answer(status, credits)
    }

    /// Queues answers as one packet. Breaks that wait go before them: who has an answer knows what the request, or one
    /// before it, has taken back.
    pub(crate) fn send(&self, answers: Vec<Answer>, seal: Option<&Rc<Channel>>) {
        if answers.is_empty() {
            return;
        }
        for (session, notification) in self.peer.take_breaks() {
            self.tell_break(session, notification);
        }
        self.queue(answers, seal);
    }

    /// Breaks are not signed (MS-SMB2 3.3.4.6): they have no number that a nonce could be made of.
    pub(crate) fn tell_break(&self, session: u64, notification: BreakNotification) {
        let header = Header {
            command: Command::OPLOCK_BREAK,
            message_id: UNSOLICITED,
            flags: HeaderFlags::SERVER_TO_REDIR,
            routing: Routing::Sync { process: 0, tree: 0 },
            ..Header::default()
        };
        self.told_break.set(true);
        let response = Response::BreakNotification(notification);
        let Ok(body) = Body::of(|out| response.encode(out)) else { return };
        let channel = self.channel(session).filter(|channel| channel.session.encrypt);
        self.queue(vec![Answer { header, body, sign: None, hash: Hashed::No }], channel.as_ref());
    }

    fn queue(&self, answers: Vec<Answer>, seal: Option<&Rc<Channel>>) {
        let dialect = self.dialect();
        let mut transmit = self.transmit.borrow_mut();
        let made = answer::send(&mut transmit, dialect, answers, seal, |hashed, message| match hashed {
            Hashed::No => {}
            Hashed::Connection => {
                let mut hash = self.preauth.get();
                hash.update(message);
                self.preauth.set(hash);
            }
            Hashed::Login(session) => {
                if let Some(login) = self.logins.borrow_mut().get_mut(&session) {
                    login.preauth.update(message);
                }
            }
        });
        if !made {
            self.fail("an answer could not be made");
        }
    }

    /// Whether the answers to a request are encrypted: those to encrypted requests are.
    pub(crate) fn is_signed(header: &Header) -> bool {
        header.flags.contains(HeaderFlags::SIGNED)
    }
}
