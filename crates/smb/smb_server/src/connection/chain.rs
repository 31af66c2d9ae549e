//! A packet's messages one after the other, and the answers to them (MS-SMB2 3.3.5.2).
//!
//! ```text
//!   message ─► session, signature, encryption ─► tree ─► command ─► answer ─┐
//!      └── related: session, tree and file of the one before               ├─► one packet
//!   message ─► …                                                           ┘
//! ```
//! A command that takes long is answered in between with PENDING; what was answered before goes out with it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use smb_protocol::header::{HeaderFlags, Routing};
use smb_protocol::{Command, Header, NtStatus};

use super::answer::{Answer, Body, Hashed, Outcome, Reply};
use super::channel::Channel;
use super::receive::Packet;
use super::state::{Conn, Pending};
use crate::commands::{self, Call, Carried};
use crate::limits::{INTERIM_AFTER, INTERIM_AFTER_HELD, MAX_PENDING};
use crate::session::Session;

/// A packet that has been decrypted and whose message numbers were good.
pub(crate) struct Chain {
    pub(crate) packet: Packet,
    /// Where its messages lie in the packet, with their headers.
    pub(crate) messages: Vec<(Range<usize>, Header)>,
    /// The channel that decrypted it, if it was encrypted.
    pub(crate) sealed: Option<Rc<Channel>>,
    /// Whether it is finished even if the connection is lost.
    pub(crate) outlives: Rc<Cell<bool>>,
}

/// How a command may wait for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// For ever: each has a place among those that do.
    Endlessly,
    /// Until other clients have given up what they cached.
    ForBreaks,
}

fn waits(command: Command) -> Option<Waits> {
    match command {
        Command::LOCK | Command::CHANGE_NOTIFY => Some(Waits::Endlessly),
        Command::CREATE | Command::IOCTL | Command::SET_INFO => Some(Waits::ForBreaks),
        _ => None,
    }
}

/// Takes a request off the list of those that can be cancelled.
struct Listed<'a> {
    conn: &'a Conn,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.conn.pending.borrow_mut().remove(&self.number);
    }
}

impl Chain {
    /// Runs all messages and queues the answers.
    pub(crate) async fn run(mut self, conn: Rc<Conn>) {
        let messages = std::mem::take(&mut self.messages);
        let mut answers = Vec::with_capacity(messages.len());
        let carried = RefCell::new(Carried::default());
        for (at, (range, mut header)) in messages.iter().cloned().enumerate() {
            let mut reply = None;
            if !header.is_related() {
                let tree = header.tree_id().unwrap_or(0);
                *carried.borrow_mut() = Carried { session: header.session_id, tree, ..Carried::default() };
            } else if at == 0 || carried.borrow().nothing {
                // There is nothing that it could be related to (MS-SMB2 3.3.5.2.7.2).
                carried.borrow_mut().nothing = true;
                reply = Some(Reply::new(NtStatus::INVALID_PARAMETER, None));
            } else {
                let carried = carried.borrow();
                header.session_id = carried.session;
                header.routing = Routing::Sync { process: 0, tree: carried.tree };
            }
            let reply = match reply {
                Some(reply) => reply,
                None => {
                    let last = at + 1 == messages.len();
                    self.one(&conn, &header, range, &carried, last, &mut answers).await
                }
            };
            let mut carried = carried.borrow_mut();
            carried.nothing |= matches!(
                reply.outcome.status,
                NtStatus::USER_SESSION_DELETED | NtStatus::NETWORK_NAME_DELETED
            );
            carried.failed = reply.outcome.status.is_error().then_some(reply.outcome.status);
            let Reply { outcome, sign, hash, async_id, grants, session } = reply;
            // What the first message of a compound made, the related ones use.
            carried.session = session.unwrap_or(header.session_id);
            header.session_id = carried.session;
            if header.command == Command::TREE_CONNECT {
                header.routing = Routing::Sync { process: 0, tree: carried.tree };
            }
            let echo = sign.is_none()
                && self.sealed.is_none()
                && outcome.status.is_error()
                && Conn::is_signed(&header);
            let signature = header.signature;
            let mut header = match async_id {
                // The interim answer has granted the credits.
                Some(id) if !grants => {
                    Header { routing: Routing::Async(id), ..header.answer(outcome.status, 0) }
                }
                Some(id) => {
                    Header { routing: Routing::Async(id), ..conn.answer_header(&header, outcome.status) }
                }
                None => conn.answer_header(&header, outcome.status),
            };
            if echo {
                // A refusal that no key may sign. Clients who sign leave at an answer that does not even say that it were
                // signed; what stands there is what they sent (as Windows).
                header.flags |= HeaderFlags::SIGNED;
                header.signature = signature;
            }
            answers.push(Answer { header, body: outcome.body, sign, hash });
        }
        conn.send(answers, self.sealed.as_ref());
    }

    /// One message: who asks, what it is, what comes of it.
    async fn one(
        &mut self,
        conn: &Rc<Conn>,
        header: &Header,
        range: Range<usize>,
        carried: &RefCell<Carried>,
        last: bool,
        answers: &mut Vec<Answer>,
    ) -> Reply {
        let sealed = self.sealed.as_ref();
        let channel = match commands::admit(conn, header, self.packet.message_mut(&range), sealed) {
            Ok(channel) => channel,
            Err(reply) => return reply,
        };
        if header.command == Command::NEGOTIATE {
            return commands::negotiate::run(conn, self.packet.message(&range));
        }
        if header.command == Command::SESSION_SETUP {
            return commands::session_setup::run(conn, header, self.packet.message(&range), channel).await;
        }
        let signed = Conn::is_signed(header) && sealed.is_none();
        let sign = channel.clone().filter(|_| signed);
        let pending = Rc::new(Pending::of(&self.outlives));
        let waits = waits(header.command);
        // Whose it is, should it wait without an end.
        let waiter = channel.as_ref().filter(|_| waits == Some(Waits::Endlessly));
        let waiter = waiter.map(|channel| Arc::clone(&channel.session));
        let call = Call {
            conn,
            header,
            packet: &mut self.packet,
            range,
            channel,
            sealed,
            carried,
            last,
            pending: Rc::clone(&pending),
            held: answers.iter().map(|answer| answer.body.len()).sum(),
        };
        let request = Request { conn, header, pending: &pending, sign, sealed, last };
        if waits.is_none() {
            return request.unless_held(std::pin::pin!(commands::run(call)), answers).await;
        }
        if conn.pending.borrow().len() >= MAX_PENDING {
            return Reply::new(NtStatus::INSUFFICIENT_RESOURCES, request.sign);
        }
        // Listed from here on, so that a CANCEL that came in the same read finds it.
        conn.pending.borrow_mut().insert(header.message_id, Rc::clone(&pending));
        let _listed = Listed { conn, number: header.message_id };
        request.while_it_waits(Box::pin(commands::run(call)), waiter.as_deref(), answers).await
    }
}

/// A command that is mostly carried out at once.
struct Request<'a> {
    conn: &'a Rc<Conn>,
    header: &'a Header,
    pending: &'a Rc<Pending>,
    sign: Option<Rc<Channel>>,
    sealed: Option<&'a Rc<Channel>>,
    last: bool,
}

/// What comes next of a command that waits, or is held back.
enum Next {
    Ended(Outcome),
    Cancelled,
    /// Its client is to be told that it takes longer.
    Late,
}

impl Request<'_> {
    /// Carries out a command that may wait for somebody else. Only while it does it can be given up, cancelled or refused a place: before
    /// and after it changes something, and how that ends is what it is answered.
    async fn while_it_waits(
        self,
        mut work: Pin<Box<impl Future<Output = Outcome>>>,
        waiter: Option<&Session>,
        answers: &mut Vec<Answer>,
    ) -> Reply {
        let Self { conn, header, pending, sign, sealed, last } = self;
        let mut cancelled = std::pin::pin!(pending.wait());
        let mut late = std::pin::pin!(shard_runtime::sleep(INTERIM_AFTER));
        // In the midst of a compound there is no interim answer.
        let (mut told, mut place) = (!last, None);
        let outcome = loop {
            let needs_place = waiter.filter(|_| place.is_none());
            let next = poll_fn(|cx| {
                if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                    return Poll::Ready(Next::Ended(outcome));
                }
                if pending.waits() && (!told || needs_place.is_some()) {
                    return Poll::Ready(Next::Late);
                }
                if (pending.waits() || pending.is_held()) && cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Cancelled);
                }
                if !told && late.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Late);
                }
                Poll::Pending
            });
            match next.await {
                Next::Ended(outcome) => break outcome,
                Next::Cancelled => break NtStatus::CANCELLED.into(),
                Next::Late => {}
            }
            if let Some(session) = needs_place.filter(|_| pending.waits()) {
                if !last {
                    // It could take for ever, and what comes after it would wait (as Windows and Samba).
                    break NtStatus::INTERNAL_ERROR.into();
                }
                place = conn.shared.place(&conn.shared.tables.waiting, &session.user(), conn.peer.remote);
                if place.is_none() {
                    break NtStatus::INSUFFICIENT_RESOURCES.into();
                }
            }
            if !told {
                told = true;
                let id = conn.next_async();
                pending.async_id.set(Some(id));
                conn.send(std::mem::take(answers), sealed);
                let interim =
                    Header { routing: Routing::Async(id), ..conn.answer_header(header, NtStatus::PENDING) };
                // Unsigned: with AES-GMAC the final answer has the same nonce.
                let interim = Answer { header: interim, body: Body::Empty, sign: None, hash: Hashed::No };
                conn.send(vec![interim], sealed);
            }
        };
        // What is given up is gone before that is said.
        drop(work);
        let async_id = pending.async_id.get();
        Reply { async_id, grants: async_id.is_none(), ..Reply::new(outcome, sign) }
    }

    /// Carries it out. Only while it is held back here it can be cancelled: from then on it changes something. The interim answer
    /// grants no credits: who has much held back sends no more for it.
    async fn unless_held(
        self,
        mut work: Pin<&mut impl Future<Output = Outcome>>,
        answers: &mut Vec<Answer>,
    ) -> Reply {
        let Self { conn, header, pending, sign, sealed, last } = self;
        let ended = poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if pending.may_take_long() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(outcome) = ended.await {
            return Reply::new(outcome, sign);
        }
        let room = conn.pending.borrow().len() < MAX_PENDING;
        if !room && header.command == Command::TREE_CONNECT {
            // It waits for a share, and has changed nothing.
            return Reply::new(NtStatus::INSUFFICIENT_RESOURCES, sign);
        }
        let _listed = room.then(|| {
            conn.pending.borrow_mut().insert(header.message_id, Rc::clone(pending));
            Listed { conn, number: header.message_id }
        });
        let mut cancelled = std::pin::pin!(pending.wait());
        let mut late = std::pin::pin!(shard_runtime::sleep(INTERIM_AFTER_HELD));
        // After an interim answer the last one has the number of that in place of the tree's, which the client would never learn (MS-SMB2
        // 2.2.1.1): a TREE_CONNECT is answered once.
        let mut told = !last || header.command == Command::TREE_CONNECT;
        loop {
            let next = poll_fn(|cx| {
                if let Poll::Ready(outcome) = work.as_mut().poll(cx) {
                    return Poll::Ready(Next::Ended(outcome));
                }
                if pending.is_held() && cancelled.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Cancelled);
                }
                if !told && late.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Next::Late);
                }
                Poll::Pending
            });
            let outcome = match next.await {
                Next::Ended(outcome) => outcome,
                Next::Cancelled => NtStatus::CANCELLED.into(),
                Next::Late => {
                    told = true;
                    let id = conn.next_async();
                    pending.async_id.set(Some(id));
                    conn.send(std::mem::take(answers), sealed);
                    let interim =
                        Header { routing: Routing::Async(id), ..header.answer(NtStatus::PENDING, 0) };
                    // Unsigned, as all interim answers.
                    let interim = Answer { header: interim, body: Body::Empty, sign: None, hash: Hashed::No };
                    conn.send(vec![interim], sealed);
                    continue;
                }
            };
            return Reply { async_id: pending.async_id.get(), ..Reply::new(outcome, sign) };
        }
    }
}
