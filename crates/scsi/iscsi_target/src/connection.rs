//! A connection in full feature phase: one task that receives, runs commands and transmits.
//!
//! [`Connection::poll`] goes round until nothing moves: mail from others, the socket's bytes, commands that
//! ended, answers to send. It never awaits one thing alone, so a slow command delays no other.

mod command;
mod receive;
mod requests;
mod running;

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use iscsi_protocol::chap::ChapUser;
use iscsi_protocol::login::LoginResult;
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode};
use iscsi_protocol::text::TextBuffer;
use iscsi_protocol::{Bhs, ConnectionParams, IscsiName};
use tcp_service::{Account, Answers};
use tokio::net::TcpStream;

use crate::limits::{IDLE_TICKS, SEND_BATCH, SEND_HIGH_WATER, TICK};
use crate::session::{Message, Peer, Session};
use crate::shared::Shared;
use crate::transmit::Transmit;
use command::Task;
use receive::Receive;
use running::Running;

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The peer closed, or the socket failed.
    Disconnected,
    /// The peer broke the protocol, or a digest was wrong: with recovery level 0 the session ends.
    Protocol(&'static str),
    /// The peer does not answer.
    Silent,
    /// The node has no memory for more commands, and this connection was the newest or stood still.
    NoMemory,
    /// The node has no memory for more connections.
    Full,
    /// We were told to.
    Told,
    /// Logged out.
    Logout,
}

type Flow = Result<bool, End>;

/// How often a quiet connection is looked at, and after how many looks it is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    tick: Duration,
    dead_ticks: u32,
}

impl Pace {
    /// Leaves room for a ping, which goes out after [`IDLE_TICKS`], and an answer.
    fn new(dead_after: Duration) -> Self {
        let tick = TICK.min(dead_after / (IDLE_TICKS + 1)).max(Duration::from_millis(1));
        let dead_ticks = dead_after.as_nanos().div_ceil(tick.as_nanos());
        Self { tick, dead_ticks: u32::try_from(dead_ticks).unwrap_or(u32::MAX).max(IDLE_TICKS + 1) }
    }
}

/// One connection.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    stream: TcpStream,
    initiator: IscsiName,
    /// Who the initiator has proved to be when this connection logged in.
    user: Option<ChapUser>,
    /// `None` in a discovery session.
    session: Option<Arc<Session>>,
    peer: Arc<Peer>,
    params: ConnectionParams,
    receive: Receive,
    transmit: Transmit,
    tasks: BTreeMap<u32, Task>,
    running: FuturesUnordered<Running>,
    /// Commands that wait for [`crate::limits::TRANSFER_BUDGET`], oldest first, by initiator task tag.
    waiting: VecDeque<u32>,
    /// Bytes of running and receiving commands.
    charged: u64,
    /// Bytes of data that came unasked, or was asked for to see whether it comes, of commands that wait.
    early: u64,
    /// What the connection holds of the node's memory.
    account: Account,
    /// Bytes received and sent.
    moved: u64,
    /// The node has no room for this connection's commands, not even in its queue.
    refused: bool,
    /// Numbered requests other than SCSI commands that wait for their turn, by CmdSN.
    deferred: BTreeMap<u32, (Bhs, Vec<u8>)>,
    immediate: usize,
    /// Whether commands were started in this turn.
    started: bool,
    /// Numbers held up by what came in this turn, with the connections that hold them.
    released: Vec<(Arc<Peer>, u32)>,
    stat_sn: u32,
    next_ttt: u32,
    /// CmdSN of a discovery session, which has no [`Session`].
    discovery_cmd_sn: u32,
    text_in: TextBuffer,
    /// The part of a text answer not yet asked for, with its tag.
    text_out: Option<(u32, Vec<u8>)>,
    /// Set when the connection ends as soon as everything is sent.
    closing: Option<End>,
    pace: Pace,
    tick: Pin<Box<dyn Future<Output = ()>>>,
    idle_ticks: u32,
    stuck_ticks: u32,
    /// Ticks until we cut off an initiator that was asked to log out.
    cut_ticks: Option<u32>,
}

impl Connection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        account: Account,
        stream: TcpStream,
        result: LoginResult,
        (session, peer): (Option<Arc<Session>>, Arc<Peer>),
        stat_sn: u32,
        first_cmd_sn: u32,
    ) -> Self {
        let params = result.connection;
        let pace = Pace::new(shared.config.read().dead_after);
        Self {
            transmit: Transmit::new(params.header_digest, params.data_digest),
            receive: Receive::new(),
            initiator: result.subject.initiator,
            user: result.user,
            shared,
            stream,
            session,
            peer,
            params,
            tasks: BTreeMap::new(),
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            charged: 0,
            early: 0,
            account,
            moved: 0,
            refused: false,
            deferred: BTreeMap::new(),
            immediate: 0,
            started: false,
            released: Vec::new(),
            stat_sn,
            next_ttt: 1,
            discovery_cmd_sn: first_cmd_sn,
            text_in: TextBuffer::default(),
            text_out: None,
            closing: None,
            pace,
            tick: Box::pin(shard_runtime::sleep(pace.tick)),
            idle_ticks: 0,
            stuck_ticks: 0,
            cut_ticks: None,
        }
    }

    /// The same, whose answers leave only while they may.
    pub(crate) fn answering(mut self, answers: Answers) -> Self {
        self.transmit.ask(answers);
        self
    }

    /// Runs until the end; then the connection is out of its session, and its commands are gone.
    pub(crate) async fn run(self) {
        let mut guard = Leaving(Some(self));
        let Some(connection) = guard.0.as_mut() else { return };
        let end = match connection.account.log_in() {
            true => poll_fn(|cx| connection.poll(cx)).await,
            false => End::Full,
        };
        let initiator = &connection.initiator;
        let remote = connection.peer.remote.ip();
        let may_tell = |kind| connection.shared.throttle.admits(kind, remote);
        match end {
            End::Protocol(what) if may_tell("protocol error") => {
                tracing::warn!(%initiator, remote = %connection.peer.remote, what, "iSCSI connection closed: protocol error");
            }
            End::Silent if may_tell("silent") => {
                tracing::warn!(%initiator, remote = %connection.peer.remote, "iSCSI connection closed: the initiator does not answer");
            }
            End::NoMemory if may_tell("no memory") => {
                tracing::warn!(%initiator, remote = %connection.peer.remote, "iSCSI connection closed: too many commands are under way for the node's memory");
            }
            End::Full if may_tell("too many for memory") => {
                tracing::warn!(%initiator, remote = %connection.peer.remote, "iSCSI connection closed: there are too many for the node's memory");
            }
            _ => {
                tracing::debug!(%initiator, remote = %connection.peer.remote, ?end, "iSCSI connection ended");
            }
        }
        // With recovery level 0 its end is the session's, unless it has not begun.
        if !matches!(end, End::Logout | End::Told | End::Full)
            && let Some(session) = &connection.session
        {
            session.close();
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.peer.waker.register(cx.waker());
        self.account.register(cx.waker());
        while self.tick.as_mut().poll(cx).is_ready() {
            self.tick = Box::pin(shard_runtime::sleep(self.pace.tick));
            if let Err(end) = self.on_tick() {
                return Poll::Ready(end);
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
    fn turn(&mut self, cx: &mut Context<'_>) -> Flow {
        let mut moved = false;
        for message in self.peer.mail() {
            moved = true;
            self.on_message(message)?;
        }
        if self.closing.is_none() && self.transmit.waiting() < SEND_HIGH_WATER {
            moved |= self.poll_receive(cx)?;
        }
        let mut ended = 0;
        while let Poll::Ready(Some(done)) = self.running.poll_next_unpin(cx) {
            moved = true;
            self.on_done(done);
            ended += 1;
            // A long batch that ends at once (memory, a fast disk): the peer works on its first part meanwhile.
            if ended % SEND_BATCH == 0 {
                self.send(cx)?;
            }
        }
        for (peer, cmd_sn) in self.released.drain(..) {
            peer.tell(Message::Release(cmd_sn));
        }
        self.start_waiting();
        moved |= self.send(cx)?;
        // Looking through all commands is worth it only where it may count.
        let tight = self.account.budget().is_tight();
        // Between two turns of one poll it holds the thread's buffer.
        let rest = if moved { 0 } else { self.receive.rest() };
        let for_peer = self.transmit.waiting() > 0 || rest > 0 || tight && self.is_receiving();
        if !self.account.settle(self.held() + rest, for_peer, self.moved) || self.refused {
            return Err(End::NoMemory);
        }
        match self.closing {
            Some(end) if self.transmit.waiting() == 0 => Err(end),
            _ => Ok(moved),
        }
    }

    /// Sends what waits; whether anything went out.
    fn send(&mut self, cx: &mut Context<'_>) -> Flow {
        // Disk requests of the whole batch go to the kernel before the time that sending takes.
        if std::mem::take(&mut self.started) {
            shard_runtime::flush_engine();
        }
        let before = self.transmit.waiting();
        let sent = self.transmit.poll_send(&mut self.stream, cx).map_err(|_| End::Disconnected)?;
        self.moved += (before - self.transmit.waiting()) as u64;
        if sent {
            self.stuck_ticks = 0;
        }
        Ok(sent)
    }

    fn on_message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Release(cmd_sn) => self.on_release(cmd_sn)?,
            Message::Cancel(lun, done) => {
                self.cancel_tasks(lun);
                // The canceller may be gone; then nobody needs to know.
                let _ = done.send(());
            }
            Message::Close => return Err(End::Told),
            Message::AskLogout(seconds) => {
                let ticks = Duration::from_secs(seconds.into()).as_nanos() / self.pace.tick.as_nanos() + 1;
                self.cut_ticks.get_or_insert(u32::try_from(ticks).unwrap_or(u32::MAX));
                let mut bhs = Bhs::new(opcode::ASYNC, flag::FINAL);
                bhs.set_u32(16, RESERVED_TAG);
                // Event 1: the target asks for a logout; parameter 3 is the time until we cut off.
                bhs.0[36] = 1;
                bhs.set_u16(42, seconds);
                self.respond(bhs, &[]);
            }
        }
        Ok(())
    }

    fn on_tick(&mut self) -> Result<(), End> {
        self.shared.throttle.look();
        self.idle_ticks += 1;
        if self.transmit.waiting() > 0 {
            self.stuck_ticks += 1;
        }
        if let Some(ticks) = &mut self.cut_ticks {
            match ticks.checked_sub(1) {
                Some(left) => *ticks = left,
                None => return Err(End::Told),
            }
        }
        if self.closing.is_some() && self.stuck_ticks >= 1 {
            return Err(End::Told);
        }
        let dead = self.pace.dead_ticks;
        if self.stuck_ticks >= dead || (self.idle_ticks >= dead && self.transmit.waiting() < SEND_HIGH_WATER)
        {
            return Err(End::Silent);
        }
        // A discovery session is asked for nothing: it ends when it is idle.
        if self.idle_ticks >= IDLE_TICKS && self.session.is_some() {
            self.ping();
        }
        Ok(())
    }

    /// ExpCmdSN and MaxCmdSN.
    fn window(&self) -> (u32, u32) {
        match &self.session {
            Some(session) => session.window(),
            None => (self.discovery_cmd_sn, self.discovery_cmd_sn.wrapping_add(1)),
        }
    }

    /// Queues an answer that takes a StatSN.
    fn respond(&mut self, mut bhs: Bhs, data: &[u8]) {
        let (expected, max) = self.window();
        bhs.set_sequence(self.stat_sn, expected, max);
        self.stat_sn = self.stat_sn.wrapping_add(1);
        self.count_out(data.len());
        self.transmit.pdu(bhs, data);
    }

    fn count_out(&self, bytes: usize) {
        self.peer.counters.bytes_out.fetch_add(bytes as u64 + 48, Ordering::Relaxed);
    }

    fn reject(&mut self, reason: u8, offender: &Bhs) {
        let mut bhs = Bhs::new(opcode::REJECT, flag::FINAL);
        bhs.0[2] = reason;
        bhs.set_u32(16, RESERVED_TAG);
        self.respond(bhs, &offender.0);
    }

    fn new_ttt(&mut self) -> u32 {
        let ttt = self.next_ttt;
        self.next_ttt = if ttt >= RESERVED_TAG - 1 { 1 } else { ttt + 1 };
        ttt
    }
}

/// Takes the connection out of its session, even when its task is dropped or panics.
struct Leaving(Option<Connection>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else { return };
        let (shared, session) = (Arc::clone(&connection.shared), connection.session.clone());
        let peer = Arc::clone(&connection.peer);
        // First the futures of commands, then the news: see the contract of ScsiDevice.
        drop(connection);
        match session {
            Some(session) => shared.leave(&session, &peer),
            None => tracing::trace!("discovery session ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_peer_is_asked_before_it_is_given_up() {
        let usual = Pace::new(crate::limits::DEAD_AFTER);
        assert_eq!(usual, Pace { tick: TICK, dead_ticks: 24 });
        for dead_after in [0, 1, 7, 400, 19_999, 86_400_000].map(Duration::from_millis) {
            let pace = Pace::new(dead_after);
            assert!(pace.dead_ticks > IDLE_TICKS, "{pace:?}");
            assert!(pace.tick * pace.dead_ticks >= dead_after, "{pace:?}");
        }
    }
}
