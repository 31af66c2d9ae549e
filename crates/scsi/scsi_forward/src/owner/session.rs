//! One connection of another node, from its greeting to its end.
//!
//! One task: it hears, works and speaks, in this order in each turn, so that commands start in the order in which they come and their answers
//! leave together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aligned_buffer::SharedBuf;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, abortable};
use futures_util::stream::FuturesUnordered;
use scsi_core::{ScsiCommand, ScsiResponse, TaskManagementOutcome};
use tcp_service::{Answers, SendQueue};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::Notify;

use super::Host;
use super::nexuses::{Nexuses, RemoteNexus, Whose};
use crate::MAX_AGE;
use crate::frames::{invalid, read_data, read_head};
use crate::wire::{Aim, Call, Hello, Port, Reply, framed};

/// Bytes of data of the commands of a connection, sent and expected, and of answers that were not taken: beyond it nothing is read, unless
/// there is nothing else. As much as an initiator's connection has.
const BYTES: usize = 64 << 20;
/// Commands of a connection that are under way.
const COMMANDS: usize = 2048;
/// Read at once; data of this length goes straight to its place.
const READ: usize = 64 << 10;
/// Data up to here is copied behind its head.
const COPIED: usize = 1 << 10;

/// How a command ended.
enum Ended {
    /// With what it said, and how many bytes of data may come back.
    Answered(Option<ScsiResponse>, usize),
    Managed(TaskManagementOutcome),
    NotDone,
    Aborted,
}

type Running = Pin<Box<dyn Future<Output = (u64, usize, Ended)>>>;

/// One connection.
pub(super) struct Session<'a> {
    host: &'a dyn Host,
    nexuses: &'a Nexuses,
    node: u16,
    incarnation: u64,
    channel: u32,
    queue: RefCell<SendQueue>,
    // Before the nexuses: commands end first.
    running: RefCell<FuturesUnordered<Running>>,
    aborts: RefCell<BTreeMap<u64, AbortHandle>>,
    known: RefCell<BTreeMap<u64, Arc<RemoteNexus>>>,
    bytes: Cell<usize>,
    /// There may be room for another command.
    room: Notify,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.running.borrow_mut().clear();
        for nexus in std::mem::take(&mut *self.known.borrow_mut()).into_keys() {
            self.nexuses.leave(self.whose(nexus), self.channel, false);
        }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(host: &'a dyn Host, nexuses: &'a Nexuses, hello: &Hello, answers: Answers) -> Self {
        let mut queue = SendQueue::default();
        queue.ask(answers);
        Self {
            host,
            nexuses,
            node: hello.from,
            incarnation: hello.incarnation,
            channel: hello.channel,
            queue: RefCell::new(queue),
            running: RefCell::default(),
            aborts: RefCell::default(),
            known: RefCell::default(),
            bytes: Cell::new(0),
            room: Notify::new(),
        }
    }

    /// Until the connection ends.
    pub(super) async fn run(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (read, mut write) = tokio::io::split(stream);
        let mut read = BufReader::with_capacity(READ, read);
        tokio::select! {
            biased;
            heard = self.hear(&mut read) => heard,
            () = poll_fn(|cx| self.poll_work(cx)) => Ok(()),
            spoken = poll_fn(|cx| self.poll_speak(&mut write, cx)) => spoken,
        }
    }

    fn whose(&self, nexus: u64) -> Whose {
        (self.node, self.incarnation, nexus)
    }

    async fn hear(&self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        loop {
            let (head, len) = read_head(stream).await?;
            let call = Call::decode(&head).map_err(invalid)?;
            if len > 0 && !call.carries_data() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "data where there is none"));
            }
            if let Call::Command { limit, .. } = &call {
                self.wait_for_room(len + *limit as usize).await;
            }
            let data = read_data(stream, len).await?;
            self.take(call, data)?;
        }
    }

    async fn wait_for_room(&self, more: usize) {
        loop {
            let used = self.bytes.get() + self.queue.borrow().waiting();
            let idle = self.running.borrow().is_empty();
            if (used == 0 || used + more <= BYTES) && (idle || self.running.borrow().len() < COMMANDS) {
                return;
            }
            self.room.notified().await;
        }
    }

    fn take(&self, call: Call, data: SharedBuf) -> io::Result<()> {
        match call {
            Call::Hello(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it greets again")),
            Call::Nexus(port) => self.introduce(&port),
            Call::Command { tag, aim, attribute, limit, cdb } => {
                let limit_bytes = limit as usize;
                let charge = data.len() + limit_bytes;
                match self.nexus_for(&aim) {
                    Some(of) => {
                        let command = ScsiCommand { cdb, data_out: data, data_in_limit: limit, attribute };
                        self.begin(tag, charge, async move {
                            match of.device.execute_here(&of.nexus, aim.lun, aim.unit, command).await {
                                Some(response) => Ended::Answered(response, limit_bytes),
                                None => Ended::NotDone,
                            }
                        })?;
                    }
                    None => self.say(&Reply::NotDone(tag), None),
                }
            }
            Call::Abort(tag) => {
                if let Some(abort) = self.aborts.borrow().get(&tag) {
                    abort.abort();
                }
            }
            Call::Manage { tag, aim, function } => match self.nexus_for(&aim) {
                Some(of) => self.begin(tag, 0, async move {
                    match of.device.manage_here(&of.nexus, aim.lun, aim.unit, function).await {
                        Some(outcome) => Ended::Managed(outcome),
                        None => Ended::NotDone,
                    }
                })?,
                None => self.say(&Reply::NotDone(tag), None),
            },
            Call::Lost(nexus) => {
                drop(self.known.borrow_mut().remove(&nexus));
                self.nexuses.leave(self.whose(nexus), self.channel, true);
            }
            Call::Ask => self.say(&Reply::Tick(self.host.now()), None),
        }
        Ok(())
    }

    fn introduce(&self, port: &Port) {
        let device =
            self.host.device(&port.target).filter(|_| self.host.is_port_of(self.node, port.target_port));
        // Commands of one that is not let in are not done.
        let Some(device) = device else { return };
        if let Some(nexus) = self.nexuses.enter(self.whose(port.nexus), self.channel, port, device) {
            self.known.borrow_mut().insert(port.nexus, nexus);
        }
    }

    /// The nexus of a command, if the command may begin now.
    fn nexus_for(&self, aim: &Aim) -> Option<Arc<RemoteNexus>> {
        let age = self.host.now().checked_sub(aim.tick)?.checked_add(aim.waited)?;
        if u128::from(age) > MAX_AGE.as_nanos() || !self.host.is_member(self.node, self.incarnation) {
            return None;
        }
        self.known.borrow().get(&aim.nexus).cloned()
    }

    fn begin(&self, tag: u64, charge: usize, work: impl Future<Output = Ended> + 'static) -> io::Result<()> {
        let (work, abort) = abortable(work);
        if self.aborts.borrow_mut().insert(tag, abort).is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a tag that is in use"));
        }
        self.bytes.set(self.bytes.get() + charge);
        let running = async move { (tag, charge, work.await.unwrap_or(Ended::Aborted)) };
        self.running.borrow_mut().push(Box::pin(running));
        Ok(())
    }

    fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ended = false;
        loop {
            let next = self.running.borrow_mut().poll_next_unpin(cx);
            let Poll::Ready(Some((tag, charge, how))) = next else { break };
            ended = true;
            self.aborts.borrow_mut().remove(&tag);
            self.bytes.set(self.bytes.get() - charge);
            match how {
                Ended::Answered(Some(response), limit) => self.answer(tag, limit, response),
                Ended::Answered(None, _) | Ended::Aborted => self.say(&Reply::Unanswered(tag), None),
                Ended::Managed(outcome) => self.say(&Reply::Managed { tag, outcome }, None),
                Ended::NotDone => self.say(&Reply::NotDone(tag), None),
            }
        }
        if ended {
            shard_runtime::flush_engine();
            self.room.notify_one();
        }
        Poll::Pending
    }

    /// `limit` bytes are wanted at most; the transfer length says what there would have been.
    fn answer(&self, tag: u64, limit: usize, response: ScsiResponse) {
        let ScsiResponse { status, sense, data_in, transfer_length } = response;
        let there = data_in.as_ref().map_or(0, |data| data.len());
        let data = data_in.map(|data| data.slice(0..there.min(limit))).filter(|data| !data.is_empty());
        let transfer = transfer_length.max(there as u64);
        let tick = self.host.now();
        self.say(&Reply::Answer { tag, tick, status, transfer, sense }, data);
    }

    fn say(&self, reply: &Reply, data: Option<SharedBuf>) {
        let mut queue = self.queue.borrow_mut();
        let head = framed(&reply.encode(), data.as_ref().map_or(0, |data| data.len()));
        queue.small(|bytes| bytes.extend_from_slice(&head));
        match data {
            Some(data) if data.len() > COPIED => queue.large(data),
            Some(data) => queue.small(|bytes| bytes.extend_from_slice(&data)),
            None => {}
        }
    }

    fn poll_speak(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut queue = self.queue.borrow_mut();
        let sent = queue.poll_send(stream, cx);
        match sent {
            Ok(true) => self.room.notify_one(),
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        }
    }
}
