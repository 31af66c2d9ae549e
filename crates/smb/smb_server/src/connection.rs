//! A connection: one task that receives, runs requests and transmits.
//!
//! [`Connection::poll`] goes round until nothing moves: mail from others, the socket's bytes, requests that ended,
//! answers to send. It never awaits one thing alone, so a slow request delays no other.
//!
//! ```text
//!   receive ─► Packet ─► open (decrypt) ─► Chain (message numbers checked) ─► commands ─► answer ─► transmit
//! ```

mod ages;
pub(crate) mod answer;
pub(crate) mod chain;
pub(crate) mod channel;
pub(crate) mod credits;
mod expected;
pub(crate) mod receive;
pub(crate) mod state;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use kept_listeners::KeptConnection;
use smb_protocol::framing::Packet as PacketKind;
use smb_protocol::header::Routing;
use smb_protocol::transform::{TRANSFORM_BYTES, TransformHeader};
use smb_protocol::{Command, Header, compound};
use tcp_service::{Account, Admission, Answers, LoginSeat, UNACKNOWLEDGED};
use tokio::net::TcpStream;

use crate::commands;
use crate::limits::{MAX_COMPOUND, SEND_HIGH_WATER, UNACKNOWLEDGED_MAX, WORK_HIGH_WATER};
use crate::peer::{Mail, Peer};
use crate::shared::Shared;
use ages::{Age, Ages};
use chain::Chain;
use channel::Channel;
use expected::{expected, holds_while_it_waits};
use receive::{Got, Next, Packet, Receive};
use state::Conn;

/// How often a quiet connection is looked at.
const TICK: Duration = Duration::from_secs(10);
/// For how long a client that was told of a break has to hear: until the break is over, answered or not.
const URGENT_TICKS: u32 = 5;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The peer closed, or the socket failed.
    Disconnected,
    /// The peer broke the protocol.
    Protocol(&'static str),
    /// No user logged in in time.
    NoLogin,
    /// Nobody is logged in any more.
    NoSession,
    /// The node has no memory for more requests or connections, and this one was the newest or stood still.
    NoMemory,
    /// We were told to.
    Told,
}

/// A packet's work, which gives back the bytes that were charged for it.
struct Running {
    work: Pin<Box<dyn Future<Output = ()>>>,
    bytes: usize,
    outlives: Rc<Cell<bool>>,
}

impl Future for Running {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let bytes = self.bytes;
        self.work.as_mut().poll(cx).map(|()| bytes)
    }
}

/// A packet whose work has not begun.
struct Ready {
    chain: Chain,
    /// Bytes that it and its answers take.
    bytes: usize,
    outlives: Rc<Cell<bool>>,
}

/// One connection.
pub(crate) struct Connection {
    conn: Rc<Conn>,
    stream: KeptConnection<TcpStream>,
    receive: Receive,
    running: FuturesUnordered<Running>,
    /// What the connection holds of the node's memory.
    account: Account,
    /// A packet that waits for it.
    ready: Option<Ready>,
    /// Whether the next packet waits for it.
    starved: bool,
    /// Bytes received and sent.
    moved: u64,
    tick: Pin<Box<dyn Future<Output = ()>>>,
    ages: Ages,
    /// Ticks for which the client has to hear soon: it was told of a break.
    urgent: u32,
    patience: Duration,
}

/// Serves a connection to its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: Arc<Peer>,
    login: LoginSeat,
    answers: Answers,
) {
    let account = shared.parts.budget.account();
    let conn = Rc::new(Conn::new(shared, peer, login));
    conn.transmit.borrow_mut().ask(answers);
    let mut connection = Connection {
        conn: Rc::clone(&conn),
        stream: KeptConnection::new(stream),
        receive: Receive::new(),
        running: FuturesUnordered::new(),
        account,
        ready: None,
        starved: false,
        moved: 0,
        tick: Box::pin(shard_runtime::sleep(TICK)),
        ages: Ages::default(),
        urgent: 0,
        patience: UNACKNOWLEDGED,
    };
    // Also when this task is dropped: a session must not believe in a connection that is gone.
    let leaving = Leaving(Rc::clone(&conn));
    let end = poll_fn(|cx| connection.poll(cx)).await;
    let remote = conn.peer.remote;
    match end {
        End::Protocol(what) if conn.may_tell("protocol error") => {
            tracing::warn!(%remote, what, "SMB connection closed: protocol error");
        }
        End::NoLogin if conn.may_tell("no login") => {
            tracing::info!(%remote, "SMB connection closed: nobody logged in");
        }
        End::NoMemory if conn.may_tell("no memory") => {
            tracing::warn!(%remote, "SMB connection closed: too many connections, or requests under way, for the node's memory");
        }
        _ => tracing::debug!(%remote, ?end, "SMB connection ended"),
    }
    let sessions: Vec<_> =
        conn.sessions.borrow().values().map(|channel| Arc::clone(&channel.session)).collect();
    drop(leaving);
    if end == End::Disconnected && sessions.iter().any(|session| !session.has_ended()) {
        connection.finish().await;
    }
}

/// Takes the connection out of its sessions.
pub(crate) struct Leaving(pub(crate) Rc<Conn>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.peer.leave();
        let sessions = std::mem::take(&mut *self.0.sessions.borrow_mut());
        for channel in sessions.into_values() {
            let Conn { shared, peer, .. } = &*self.0;
            shared.opens.clients().leave(channel.session.client(), peer);
            if channel.session.leave(peer) {
                shared.lost(&channel.session);
            }
            shared.channel_lost(&channel.session, peer);
        }
    }
}

impl Connection {
    /// The socket is gone, but the client may have other channels of its sessions: over them it asks again for what it
    /// has named, and finds it under way or done.
    async fn finish(self) {
        drop(self.stream);
        let mut account = self.account;
        // It asks for nothing any more, and others must not wait behind it.
        account.withdraw();
        let rest = self.running.into_iter().filter(|running| running.outlives.get());
        let mut rest: FuturesUnordered<_> = rest.collect();
        while rest.next().await.is_some() {}
    }

    /// Sets how long the network may leave unacknowledged what we send.
    fn set_patience(&mut self, patience: Duration) {
        if self.patience != patience {
            self.patience = patience;
            // Where it cannot be had, the system's quarter of an hour is what there is.
            let _ = socket2::SockRef::from(&*self.stream).set_tcp_user_timeout(Some(patience));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.conn.peer.waker.register(cx.waker());
        self.account.register(cx.waker());
        while self.tick.as_mut().poll(cx).is_ready() {
            self.tick = Box::pin(shard_runtime::sleep(TICK));
            match self.ages.pass(TICK, self.conn.is_logged_in(), self.conn.is_used()) {
                Age::InTime => {}
                Age::NoLogin => return Poll::Ready(End::NoLogin),
                Age::NoSession => return Poll::Ready(End::NoSession),
            }
            self.urgent = self.urgent.saturating_sub(1);
            if self.urgent == 0 {
                self.set_patience(UNACKNOWLEDGED);
            }
        }
        loop {
            match self.turn(cx) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(end) => return Poll::Ready(end),
            }
        }
    }

    /// One round; whether anything moved.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        for mail in self.conn.peer.take_mail() {
            moved = true;
            self.on_mail(mail)?;
        }
        if self.has_room() {
            moved |= self.poll_receive(cx)?;
        } else {
            self.account.withdraw();
        }
        while let Poll::Ready(Some(bytes)) = self.running.poll_next_unpin(cx) {
            moved = true;
            self.conn.working.set(self.conn.working.get().saturating_sub(bytes));
        }
        moved |= self.send(cx)?;
        // Between two turns of one poll it holds the thread's buffer.
        let rest = if moved { 0 } else { self.receive.rest() };
        // What waits for memory waits for us.
        let is_half = self.receive.held() > 0 || rest > 0 && !self.starved;
        let for_peer = is_half || self.conn.transmit.borrow().waiting() > 0;
        let waits = holds_while_it_waits(self.ready_bytes(), self.conn.working.get());
        if !self.account.settle(self.held() + rest, for_peer || waits, self.moved) {
            return Err(End::NoMemory);
        }
        match self.conn.fatal.get() {
            Some(why) => Err(End::Protocol(why)),
            None => Ok(moved),
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.conn.told_break.take() {
            self.urgent = URGENT_TICKS;
            self.set_patience(UNACKNOWLEDGED_MAX);
        }
        let mut transmit = self.conn.transmit.borrow_mut();
        if transmit.waiting() == 0 {
            return Ok(false);
        }
        let before = transmit.waiting();
        let sent = transmit.poll_send(&mut *self.stream, cx).map_err(|_| End::Disconnected)?;
        let gone = before - transmit.waiting();
        self.moved += gone as u64;
        self.conn.peer.counters.bytes_out.fetch_add(gone as u64, Ordering::Relaxed);
        Ok(sent)
    }

    fn on_mail(&mut self, mail: Mail) -> Result<(), End> {
        match mail {
            Mail::Break { session, notification } => self.conn.tell_break(session, notification),
            // The channel stays to sign the refusals of what still comes.
            Mail::SessionEnded => {}
            // Not at once: who has another one after all hears that the session is no more.
            Mail::Unused => self.ages.is_lost(),
            Mail::Close => return Err(End::Told),
            Mail::Abandon => {
                // What waits to be sent is for nobody, and the system is not to try for minutes.
                let _ = socket2::SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
                return Err(End::Told);
            }
        }
        Ok(())
    }

    /// Whether more requests may begin: what they and their answers hold is bounded.
    fn has_room(&self) -> bool {
        self.conn.transmit.borrow().waiting() < SEND_HIGH_WATER && self.conn.working.get() < WORK_HIGH_WATER
    }

    /// Bytes that it holds: packets that come, wait or are worked on, and answers.
    fn held(&self) -> usize {
        self.receive.held()
            + self.ready_bytes()
            + self.conn.working.get()
            + self.conn.transmit.borrow().waiting()
    }

    /// Bytes of the packet that waits for memory.
    fn ready_bytes(&self) -> usize {
        self.ready.as_ref().map_or(0, |ready| ready.chain.packet.buf.capacity())
    }

    /// Begins what is there already, reads once, and begins what that brought.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let began = self.take_packets(cx)?;
        if !self.has_room() || self.starved {
            return Ok(began);
        }
        let tight = self.account.budget().is_tight();
        let got = match self.receive.poll_read(&mut self.stream, cx, tight) {
            Poll::Pending => return Ok(began),
            Poll::Ready(Ok(Got::Bytes(got))) => got,
            Poll::Ready(Ok(Got::End) | Err(_)) => return Err(End::Disconnected),
        };
        self.conn.peer.counters.bytes_in.fetch_add(got as u64, Ordering::Relaxed);
        self.moved += got as u64;
        self.take_packets(cx)?;
        Ok(true)
    }

    /// Begins the packets that have been received, as far as there is room; whether there was one.
    fn take_packets(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut began = false;
        self.starved = false;
        while self.has_room() {
            if !self.begin_ready(cx)? {
                self.starved = true;
                break;
            }
            let besides = self.held();
            let next = self.receive.next_packet(&mut self.account, besides).map_err(|error| {
                tracing::debug!(remote = %self.conn.peer.remote, %error, "packet refused");
                End::Protocol("not a packet of SMB, or too long")
            })?;
            let packet = match next {
                Next::Packet(packet) => packet,
                Next::More => break,
                Next::Wait => {
                    self.starved = true;
                    break;
                }
                Next::Refused => return Err(End::NoMemory),
            };
            began = true;
            self.on_packet(packet)?;
            self.starved = !self.begin_ready(cx)?;
            if self.conn.is_logged_in() {
                if !self.account.log_in() {
                    return Err(End::NoMemory);
                }
                self.receive.allow_long();
                self.stream.keep();
            }
            if self.starved {
                break;
            }
        }
        if began {
            // Disk requests of the whole batch go to the kernel before the time that sending takes.
            shard_runtime::flush_engine();
        }
        Ok(began)
    }

    fn on_packet(&mut self, mut packet: Packet) -> Result<(), End> {
        let mut sealed = None;
        match PacketKind::of(packet.bytes()) {
            Some(PacketKind::Smb2) => {}
            Some(PacketKind::Encrypted) => sealed = Some(self.decrypt(&mut packet)?),
            Some(PacketKind::Smb1) => {
                return commands::negotiate::smb1(&self.conn, packet.bytes()).map_err(End::Protocol);
            }
            Some(PacketKind::Compressed) | None => return Err(End::Protocol("unknown kind of packet")),
        }
        let mut messages = Vec::with_capacity(1);
        let mut cancels = Vec::new();
        for message in compound::messages(packet.bytes()) {
            let Ok(message) = message else {
                return Err(End::Protocol("a header is not one"));
            };
            if messages.len() == MAX_COMPOUND {
                return Err(End::Protocol("too many messages in one packet"));
            }
            let header = message.header;
            if header.is_response() {
                return Err(End::Protocol("an answer from a client"));
            }
            if header.command == Command::CANCEL {
                cancels.push((message.at..message.at + message.bytes.len(), header));
                continue;
            }
            let charge = if self.multi_credit() { header.credit_charge } else { 1 };
            if self.conn.credits.borrow_mut().consume(header.message_id, charge).is_err() {
                return Err(End::Protocol("a message number is not in the window"));
            }
            messages.push((message.at..message.at + message.bytes.len(), header));
        }
        for (range, header) in cancels {
            // Who could cancel for others could hold them up: it is checked like everything else.
            if commands::admit(&self.conn, &header, packet.message_mut(&range), sealed.as_ref()).is_ok() {
                self.cancel(&header);
            }
        }
        if messages.is_empty() {
            return Ok(());
        }
        self.conn.peer.counters.requests.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let bytes = packet.buf.capacity()
            + messages.iter().map(|(range, header)| expected(header, packet.message(range))).sum::<usize>();
        let outlives = Rc::new(Cell::new(false));
        let chain = Chain { packet, messages, sealed, outlives: Rc::clone(&outlives) };
        self.ready = Some(Ready { chain, bytes, outlives });
        Ok(())
    }

    /// Begins the packet that waits, if there is memory for its answers; whether none waits any more.
    fn begin_ready(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let Some(ready) = self.ready.take() else { return Ok(true) };
        let besides = self.held();
        match self.account.admit(besides + ready.bytes) {
            Admission::Now => {}
            Admission::Wait => {
                self.ready = Some(ready);
                return Ok(false);
            }
            Admission::Refused => return Err(End::NoMemory),
        }
        let Ready { chain, bytes, outlives } = ready;
        let mut running = Running { work: Box::pin(chain.run(Rc::clone(&self.conn))), bytes, outlives };
        // Once, here: requests begin in the order in which they came, and what needs no waiting is done.
        if Pin::new(&mut running).poll(cx).is_pending() {
            self.conn.working.set(self.conn.working.get() + bytes);
            self.running.push(running);
        }
        Ok(true)
    }

    fn multi_credit(&self) -> bool {
        self.conn.negotiated().is_some_and(|negotiated| {
            negotiated.capabilities.contains(smb_protocol::negotiate::Capabilities::LARGE_MTU)
        })
    }

    fn decrypt(&self, packet: &mut Packet) -> Result<Rc<Channel>, End> {
        let (transform, _) =
            TransformHeader::decode(packet.bytes()).map_err(|_| End::Protocol("a transform is not one"))?;
        let Some(channel) = self.conn.channel(transform.session_id) else {
            return Err(End::Protocol("encrypted for a session that is not here"));
        };
        let Some((_, opener)) = &channel.session.seal else {
            return Err(End::Protocol("encrypted, but the session cannot"));
        };
        if opener.open(packet.bytes_mut()).is_err() {
            return Err(End::Protocol("an encrypted packet does not prove itself"));
        }
        packet.skip(TRANSFORM_BYTES);
        // Nothing inside may be encrypted once more, or be SMB 1 (MS-SMB2 3.3.5.2.1.1).
        if PacketKind::of(packet.bytes()) != Some(PacketKind::Smb2) {
            return Err(End::Protocol("not SMB 2 inside a transform"));
        }
        Ok(channel)
    }

    /// CANCEL is never answered. It goes by the number of the interim answer where it has one, else by the message's.
    fn cancel(&self, header: &Header) {
        let pending = self.conn.pending.borrow();
        let found = match header.routing {
            Routing::Async(id) => pending.values().find(|each| each.async_id.get() == Some(id)),
            Routing::Sync { .. } => pending.get(&header.message_id),
        };
        if let Some(found) = found {
            found.cancel();
        }
    }
}
