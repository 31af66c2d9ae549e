//! One thread's connection: requests go out at once, answers come in any order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use smb_client::{Buffers, ClientError};
use smb_protocol::access::CreateDisposition;
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, NtStatus};
use spd_engine::{Awaited, Data, Done, EngineError, Lane, LaneFailure, LanePlan, Op, Outage};

use crate::open::{Opened, Opening};

/// Echoes at the beginning: each brings credits.
const ECHOES: usize = 16;
/// Bytes that one credit pays for.
const CREDIT_BYTES: u32 = 65_536;

pub(crate) struct SmbLane {
    opening: Opening,
    opened: Opened,
    slots: Vec<Slot>,
    source: Vec<u8>,
    /// Slots by the number of their message.
    sent: BTreeMap<u64, usize>,
    /// Slots whose operations wait for credits, in order.
    waiting: VecDeque<usize>,
    credits: u64,
    outage: Outage,
}

#[derive(Default)]
struct Slot {
    read: Vec<u8>,
    write: Vec<u8>,
    op: Option<Op>,
}

/// Where answers to reads go.
struct Places<'a> {
    slots: &'a mut [Slot],
    sent: &'a BTreeMap<u64, usize>,
}

impl Buffers for Places<'_> {
    fn input(&mut self, message: u64, len: usize) -> Option<&mut [u8]> {
        let slot = self.slots.get_mut(*self.sent.get(&message)?)?;
        slot.op.filter(|op| op.data == Data::Read && op.len as usize == len)?;
        slot.read.get_mut(..len)
    }
}

impl SmbLane {
    pub(crate) fn new(opening: Opening, plan: &LanePlan<'_>) -> Result<Self, EngineError> {
        let opened = opening.open(CreateDisposition::OPEN).map_err(|error| opening.explain(&error))?;
        let slots = plan
            .slots
            .iter()
            .map(|slot| Slot { read: vec![0; slot.read], write: vec![0; slot.write], op: None })
            .collect();
        let mut lane = Self {
            opening,
            opened,
            slots,
            source: plan.source.to_vec(),
            sent: BTreeMap::new(),
            waiting: VecDeque::new(),
            credits: 0,
            outage: Outage::default(),
        };
        lane.gather().map_err(|error| EngineError(error.to_string()))?;
        Ok(lane)
    }

    /// Credits come with answers; those of the login are not counted, so there are more than this knows of.
    fn gather(&mut self) -> Result<(), ClientError> {
        self.credits = 0;
        for _ in 0..ECHOES {
            let answer = self.opened.connection.call(&Request::Echo, 0)?;
            self.credits += u64::from(answer.header.credits.saturating_sub(1));
        }
        self.credits = self.credits.max(1);
        Ok(())
    }

    fn cost(op: &Op) -> u64 {
        u64::from(op.len.div_ceil(CREDIT_BYTES).max(1))
    }

    /// Sends what credits allow.
    fn send_waiting(&mut self) -> Result<(), ClientError> {
        while let Some(slot) = self.waiting.front().copied() {
            let Some(op) = self.slots.get(slot).and_then(|slot| slot.op) else {
                self.waiting.pop_front();
                continue;
            };
            // With nothing under way no credits would ever come: then one request goes out whatever is known of credits.
            if Self::cost(&op) > self.credits && !self.sent.is_empty() {
                return Ok(());
            }
            // Where that fails, it waits for the next connection.
            let number = self.send(&op)?;
            self.waiting.pop_front();
            self.credits = self.credits.saturating_sub(Self::cost(&op));
            self.sent.insert(number, slot);
        }
        Ok(())
    }

    fn send(&mut self, op: &Op) -> Result<u64, ClientError> {
        let (file_id, offset, length) = (self.opened.file, op.offset, op.len);
        let slot = self.slots.get(op.slot);
        let connection = &mut self.opened.connection;
        let len = op.len as usize;
        let data = match op.data {
            Data::Read => {
                let request =
                    ReadRequest { file_id, offset, length, minimum_count: length, ..ReadRequest::default() };
                let header = connection.header_for(Command::READ, self.opened.tree, len);
                connection.send_as(&[(header, &Request::Read(request))])?;
                return Ok(header.message_id);
            }
            Data::Write => slot.and_then(|slot| slot.write.get(..len)),
            Data::WriteSource(at) => at.checked_add(len).and_then(|end| self.source.get(at..end)),
        };
        let data = data.ok_or(ClientError::Protocol("a write without its data"))?;
        let request = WriteRequest { file_id, offset, ..WriteRequest::default() };
        let header = connection.header_for(Command::WRITE, self.opened.tree, len);
        connection.send_as(&[(header, &Request::Write(request, data))])?;
        Ok(header.message_id)
    }

    /// Waits for an answer and takes it, and others that came with it. Not those that come meanwhile: with long ones the
    /// server would be left without requests while all its answers are taken.
    fn receive(&mut self, timeout: Duration, done: &mut Vec<Done>) -> Result<(), ClientError> {
        while self.opened.connection.poll(timeout)? {
            let mut places = Places { slots: &mut self.slots, sent: &self.sent };
            let answer = self.opened.connection.receive_into(&mut places)?;
            self.credits += u64::from(answer.header.credits);
            if ends_open(answer.header.status) && self.sent.contains_key(&answer.header.message_id) {
                // Not this operation's failure: it is sent again over another connection.
                return Err(ClientError::Status {
                    command: answer.header.command,
                    status: answer.header.status,
                });
            }
            if answer.header.status != NtStatus::PENDING
                && let Some(slot) = self.sent.remove(&answer.header.message_id)
            {
                let result = self.take(slot, &answer);
                if let Some(slot) = self.slots.get_mut(slot) {
                    slot.op = None;
                }
                done.push(Done { slot, result });
            }
            self.opened.connection.recycle(answer);
            self.send_waiting()?;
            if !done.is_empty() && !self.opened.connection.has_more() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, index: usize, answer: &smb_client::Received) -> Result<(), LaneFailure> {
        let status = answer.header.status;
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let Some(op) = slot.op else { return Ok(()) };
        if !status.is_success() {
            let gone = matches!(status, NtStatus::DISK_FULL | NtStatus::ACCESS_DENIED);
            return Err(LaneFailure::Other(format!("the server answered {status}"), gone));
        }
        if answer.placed == Some(op.len as usize) {
            return Ok(());
        }
        let malformed =
            |what: String| LaneFailure::Other(format!("the server's answer is malformed: {what}"), true);
        match answer.response().map_err(|error| malformed(error.to_string()))? {
            Response::Read(_, data) if data.len() == op.len as usize => {
                if let Some(buffer) = slot.read.get_mut(..data.len()) {
                    buffer.copy_from_slice(data);
                }
                Ok(())
            }
            Response::Read(_, data) => Err(LaneFailure::Short(data.len() as u32)),
            Response::Write(written) if written.count == op.len => Ok(()),
            Response::Write(written) => Err(LaneFailure::Short(written.count)),
            _ => Err(malformed("it answers another request".into())),
        }
    }

    /// Tries once to make the connection anew and to send again what was not answered. What the earlier session has under
    /// way in the server must not come after it: the new one names it.
    fn reconnect(&mut self, timeout: Duration) -> io::Result<()> {
        let earlier = self.opened.connection.session.as_ref().map_or(0, |session| session.id);
        let tried = self.opening.open_after(CreateDisposition::OPEN, earlier).and_then(|opened| {
            self.opened = opened;
            let again: Vec<usize> = std::mem::take(&mut self.sent).into_values().collect();
            self.waiting.extend(again);
            self.gather()?;
            self.send_waiting()
        });
        match tried {
            Ok(()) => {
                self.outage.mended();
                Ok(())
            }
            Err(error) => self.outage.failed(&self.opening.path, &error, timeout),
        }
    }
}

/// Whether another connection may help: the network or the server went away, the session or the open with it.
fn is_lost(error: &ClientError) -> bool {
    matches!(error, ClientError::Io(_)) || error.status().is_some_and(ends_open)
}

/// Statuses by which a server says that it no longer knows the session, the share or the open.
fn ends_open(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::USER_SESSION_DELETED
            | NtStatus::NETWORK_SESSION_EXPIRED
            | NtStatus::NETWORK_NAME_DELETED
            | NtStatus::FILE_CLOSED
    )
}

impl Lane for SmbLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.read,
            _ => &mut [],
        }
    }

    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.write,
            _ => &mut [],
        }
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        let Some(slot) = self.slots.get_mut(op.slot).filter(|slot| slot.op.is_none()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such slot, or it is busy"));
        };
        slot.op = Some(*op);
        self.waiting.push_back(op.slot);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let timeout = timeout.unwrap_or(Duration::from_secs(1));
        if self.outage.is_cut() {
            return self.reconnect(timeout);
        }
        let result = self.send_waiting().and_then(|()| {
            if self.sent.is_empty() {
                std::thread::park_timeout(timeout);
                return Ok(());
            }
            self.receive(timeout, done)
        });
        match result {
            Ok(()) => {
                if !done.is_empty() {
                    self.outage.over();
                }
                Ok(())
            }
            Err(error) if is_lost(&error) => {
                self.outage.cut(error.to_string());
                self.reconnect(timeout)
            }
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn awaited(&self) -> Option<Awaited<'_>> {
        // A connection that was lost is made anew in a wait. Without anything sent, no answer comes.
        let is_awaited = !self.outage.is_cut() && !self.sent.is_empty();
        is_awaited.then(|| Awaited { file: self.opened.connection.socket(), write: false })
    }
}
