//! SCSI commands: their data from the initiator, their start, and their answers (RFC 7143 11.3, 11.4, 11.7, 11.8).
//!
//! A command may start when its turn (CmdSN) has come, all its data is here, and the connection's budget has
//! room for it. Data comes in order (DataPDUInOrder and DataSequenceInOrder are always agreed on), so one counter
//! says what is here.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use iscsi_protocol::Bhs;
use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode, reject};
use scsi_core::{ScsiCommand, ScsiResponse, ScsiStatus, TaskAttribute, WireLun};

use super::receive::{Placement, extensions};
use super::running::{Abort, Done, Running};
use super::{Connection, End};
use crate::limits::{MAX_IMMEDIATE, MAX_TRANSFER, TRANSFER_BUDGET};
use crate::session::{Session, Turn};

mod admission;

/// Additional sense of an aborted command (RFC 7143 11.4.7.2).
#[derive(Clone, Copy)]
struct Failure(u8, u8);

impl Failure {
    const UNEXPECTED_UNSOLICITED: Self = Self(0x0c, 0x0c);
    const INCORRECT_AMOUNT: Self = Self(0x0c, 0x0d);
    const CRC: Self = Self(0x47, 0x05);
    const DATA_PHASE: Self = Self(0x4b, 0x00);
}

/// Data asked for with an R2T.
struct Solicited {
    ttt: u32,
    end: u32,
    data_sn: u32,
}

/// A command from its arrival to its answer.
pub(super) struct Task {
    bhs: Bhs,
    cdb_rest: Vec<u8>,
    pub(super) lun: WireLun,
    /// Expected data transfer length.
    expected: u32,
    /// Bytes of data that we take: `expected` cut to [`MAX_TRANSFER`]; 0 for reads.
    wanted: u32,
    /// The data so far; absent while a long PDU is read into it, and for commands without.
    pub(super) data: Option<IoBuf>,
    received: u32,
    /// More data comes without being asked for.
    unsolicited: bool,
    unsolicited_sn: u32,
    asked: u32,
    r2ts: VecDeque<Solicited>,
    r2t_sn: u32,
    /// Whether the command's turn has come.
    turn: bool,
    /// Bytes that its data takes while it waits for the budgets.
    early: u64,
    /// What the budget is charged with; taken from it when the command is in `waiting` no more.
    charge: u64,
    charged: bool,
    pub(super) started: bool,
    failed: Option<Failure>,
    pub(super) abort: Rc<Abort>,
}

impl Task {
    fn outstanding(&self) -> u64 {
        if self.r2ts.is_empty() { 0 } else { u64::from(self.asked - self.received) }
    }
}

impl Connection {
    /// Bytes asked for and not here yet: long data is due.
    fn update_expectation(&mut self, itt: u32) {
        let bulk = crate::limits::BULK_THRESHOLD as u64;
        let expect = self.tasks.get(&itt).is_some_and(|task| task.outstanding() >= bulk)
            || self.tasks.values().any(|task| task.outstanding() >= bulk);
        self.expect_bulk(expect);
    }

    /// Checks a SCSI Command or Data-Out PDU with `len` bytes of data and finds their place.
    pub(super) fn place(&mut self, bhs: &Bhs, ahs: &[u8], len: usize) -> Result<Placement, End> {
        // A discovery session has no commands, not even aborted ones that data could be of.
        let Some(session) = self.session.clone() else {
            self.reject(reject::COMMAND_NOT_SUPPORTED, bhs);
            return Ok(Placement::Nowhere);
        };
        match bhs.opcode() {
            opcode::DATA_OUT => Ok(self.place_data(bhs, len)),
            _ => self.place_command(&session, bhs, ahs, len),
        }
    }

    fn place_command(&mut self, by: &Session, bhs: &Bhs, ahs: &[u8], len: usize) -> Result<Placement, End> {
        if bhs.itt() == RESERVED_TAG {
            return Err(End::Protocol("SCSI command with the reserved task tag"));
        }
        let turn =
            if bhs.immediate() { Turn::Now } else { by.turn(bhs.cmd_sn(), &self.peer, &mut self.released) };
        if turn == Turn::Ignore {
            return Ok(Placement::Nowhere);
        }
        let refusal = if self.tasks.contains_key(&bhs.itt()) {
            Some(reject::TASK_IN_PROGRESS)
        } else if bhs.immediate() && self.immediate >= MAX_IMMEDIATE {
            Some(reject::IMMEDIATE_COMMAND_REJECT)
        } else {
            None
        };
        if let Some(reason) = refusal {
            if turn == Turn::Later {
                return Err(End::Protocol("task tag in use"));
            }
            if !bhs.immediate() {
                by.credit();
            }
            self.reject(reason, bhs);
            return Ok(Placement::Nowhere);
        }
        self.peer.counters.commands.fetch_add(1, Ordering::Relaxed);
        let params = &by.params;
        let expected = bhs.ttt();
        let (read, write) = (bhs.flags() & flag::READ != 0, bhs.flags() & flag::WRITE != 0);
        let capped = expected.min(MAX_TRANSFER);
        let wanted = if write { capped } else { 0 };
        let unsolicited = write && !bhs.is_final();
        let failed = if len > 0 && (!params.immediate_data || !write) {
            Some(Failure::UNEXPECTED_UNSOLICITED)
        } else if len as u64 > u64::from(wanted.min(params.first_burst)) {
            Some(Failure::INCORRECT_AMOUNT)
        } else if unsolicited && params.initial_r2t {
            Some(Failure::UNEXPECTED_UNSOLICITED)
        } else {
            None
        };
        // What its buffer takes, which may be twice its length. A command that has failed is answered at once, and holds nothing.
        let charge =
            if failed.is_none() && (read || write) { IoBuf::footprint(capped as usize) as u64 } else { 0 };
        let fits = self.waiting.is_empty() && (self.charged == 0 || self.charged + charge <= TRANSFER_BUDGET);
        let charged = charge == 0 || fits && self.admit(charge, wanted, len as u32, 0);
        let data = if wanted == 0 || failed.is_some() {
            None
        } else if charged {
            Some(IoBuf::new(wanted as usize))
        } else {
            // Room for what may come unasked; the rest when the budgets allow.
            let unasked = if unsolicited { params.first_burst as usize } else { len };
            Some(IoBuf::new(unasked.min(wanted as usize)))
        };
        let early = if charged { 0 } else { data.as_ref().map_or(0, |data| data.capacity() as u64) };
        if charged {
            self.charged += charge;
        } else {
            self.early += early;
            self.waiting.push_back(bhs.itt());
        }
        if bhs.immediate() {
            self.immediate += 1;
        }
        let (cdb_rest, _) = extensions(ahs);
        let task = Task {
            bhs: *bhs,
            cdb_rest: cdb_rest.to_vec(),
            lun: WireLun(bhs.lun()),
            expected,
            wanted,
            data,
            received: 0,
            unsolicited,
            unsolicited_sn: 0,
            asked: 0,
            r2ts: VecDeque::new(),
            r2t_sn: 0,
            turn: turn == Turn::Now,
            early,
            charge,
            charged,
            started: false,
            failed,
            abort: Rc::new(Abort::default()),
        };
        let has_failed = task.failed.is_some();
        self.tasks.insert(bhs.itt(), task);
        if has_failed {
            self.advance(bhs.itt());
            return Ok(Placement::Nowhere);
        }
        Ok(Placement::At(0))
    }

    fn place_data(&mut self, bhs: &Bhs, len: usize) -> Placement {
        let first_burst = self.session.as_ref().map_or(0, |session| session.params.first_burst);
        // Data of a command that was aborted or has failed still arrives: it is thrown away (RFC 7143 11.5.1).
        let Some(task) = self.tasks.get_mut(&bhs.itt()) else { return Placement::Nowhere };
        if task.started || task.failed.is_some() {
            return Placement::Nowhere;
        }
        let (data_sn, offset, end) =
            (bhs.u32_at(36), bhs.u32_at(40), bhs.u32_at(40).saturating_add(len as u32));
        let failure = if bhs.ttt() == RESERVED_TAG {
            if !task.unsolicited {
                Some(Failure::UNEXPECTED_UNSOLICITED)
            } else if data_sn != task.unsolicited_sn {
                Some(Failure::DATA_PHASE)
            } else if offset != task.received || end > task.wanted.min(first_burst) {
                Some(Failure::INCORRECT_AMOUNT)
            } else {
                None
            }
        } else {
            match task.r2ts.front() {
                Some(asked) if asked.ttt == bhs.ttt() => {
                    if data_sn != asked.data_sn {
                        Some(Failure::DATA_PHASE)
                    } else if offset != task.received || end > asked.end {
                        Some(Failure::INCORRECT_AMOUNT)
                    } else {
                        None
                    }
                }
                // A tag of an earlier command with the same task tag, or none of ours.
                _ => return Placement::Nowhere,
            }
        };
        if let Some(failure) = failure {
            task.failed = Some(failure);
            self.advance(bhs.itt());
            return Placement::Nowhere;
        }
        Placement::At(offset as usize)
    }

    /// The data of a PDU is in its place (or, not intact, anywhere).
    pub(super) fn placed(&mut self, bhs: &Bhs, placement: Placement, intact: bool) -> Result<(), End> {
        if placement == Placement::Nowhere {
            return Ok(());
        }
        if !intact {
            self.reject(reject::DATA_DIGEST_ERROR, bhs);
        }
        let itt = bhs.itt();
        let Some(task) = self.tasks.get_mut(&itt) else { return Ok(()) };
        if !intact {
            task.failed = Some(Failure::CRC);
        }
        task.received += bhs.data_len() as u32;
        if bhs.opcode() == opcode::DATA_OUT {
            if bhs.ttt() == RESERVED_TAG {
                task.unsolicited_sn += 1;
                task.unsolicited &= !bhs.is_final();
            } else if let Some(asked) = task.r2ts.front_mut() {
                asked.data_sn += 1;
                let complete = task.received == asked.end;
                if bhs.is_final() != complete {
                    task.failed = Some(Failure::INCORRECT_AMOUNT);
                } else if complete {
                    task.r2ts.pop_front();
                }
            }
        }
        self.advance(itt);
        Ok(())
    }

    /// The turn of a number held back has come.
    pub(super) fn on_release(&mut self, cmd_sn: u32) -> Result<(), End> {
        if let Some((bhs, data)) = self.deferred.remove(&cmd_sn) {
            return self.execute(&bhs, &data);
        }
        let held = self.tasks.iter().find(|(_, task)| !task.turn && task.bhs.cmd_sn() == cmd_sn);
        match held.map(|(itt, _)| *itt) {
            Some(itt) => {
                if let Some(task) = self.tasks.get_mut(&itt) {
                    task.turn = true;
                }
                self.advance(itt);
            }
            None => self.session.iter().for_each(|session| session.credit()),
        }
        Ok(())
    }

    /// Takes a command as far as it can go now.
    fn advance(&mut self, itt: u32) {
        let Some(session) = self.session.clone() else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        if !task.turn || task.started {
            return;
        }
        if let Some(Failure(asc, ascq)) = task.failed {
            let sense = vec![0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
            let status = ScsiStatus::CheckCondition;
            self.on_done(Done::Command(
                itt,
                Some(ScsiResponse { status, sense, data_in: None, transfer_length: 0 }),
            ));
            return;
        }
        if task.unsolicited || !task.charged {
            return;
        }
        if task.received < task.wanted {
            let wanted = task.wanted;
            self.ask(&session, itt, wanted);
            return;
        }
        self.start(itt);
    }

    /// Asks for the data of a command up to `until`, as far as may be outstanding.
    fn ask(&mut self, session: &crate::session::Session, itt: u32, until: u32) {
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        let mut asks = Vec::new();
        task.asked = task.asked.max(task.received);
        while task.asked < until && task.r2ts.len() < usize::from(session.params.max_outstanding_r2t) {
            let len = (until - task.asked).min(session.params.max_burst);
            let ttt = self.next_ttt;
            self.next_ttt = if ttt >= RESERVED_TAG - 1 { 1 } else { ttt + 1 };
            let mut bhs = Bhs::new(opcode::R2T, flag::FINAL);
            bhs.set_lun(task.lun.0);
            bhs.set_u32(16, itt);
            bhs.set_u32(20, ttt);
            bhs.set_u32(36, task.r2t_sn);
            bhs.set_u32(40, task.asked);
            bhs.set_u32(44, len);
            asks.push(bhs);
            task.r2t_sn += 1;
            task.asked += len;
            task.r2ts.push_back(Solicited { ttt, end: task.asked, data_sn: 0 });
        }
        let (expected, max) = session.window();
        for mut bhs in asks {
            // An R2T shows the next StatSN and does not take it.
            bhs.set_sequence(self.stat_sn, expected, max);
            self.transmit.pdu(bhs, &[]);
        }
        self.update_expectation(itt);
    }

    fn start(&mut self, itt: u32) {
        let Some(session) = self.session.clone() else { return };
        let Some(task) = self.tasks.get_mut(&itt) else { return };
        task.started = true;
        let mut data = task.data.take().unwrap_or_else(|| IoBuf::new(0));
        data.truncate(task.received as usize);
        let mut cdb = Vec::with_capacity(16 + task.cdb_rest.len());
        cdb.extend_from_slice(&task.bhs.cdb());
        cdb.append(&mut task.cdb_rest);
        let attribute = match task.bhs.flags() & 7 {
            2 => TaskAttribute::Ordered,
            3 => TaskAttribute::HeadOfQueue,
            4 => TaskAttribute::Aca,
            _ => TaskAttribute::Simple,
        };
        let reads = task.bhs.flags() & flag::READ != 0;
        let data_in_limit = if reads { task.expected.min(MAX_TRANSFER) } else { 0 };
        let command = ScsiCommand { cdb, data_out: data.freeze(), data_in_limit, attribute };
        let lun = task.lun;
        let future = async move {
            let response = session.device.execute(&session.nexus, lun, command).await;
            Done::Command(itt, response)
        };
        self.started = true;
        self.running.push(Running::new(Rc::clone(&task.abort), future));
    }

    /// Takes a command out, whatever its state, and gives back what it held.
    pub(super) fn remove_task(&mut self, itt: u32) -> Option<Task> {
        let task = self.tasks.remove(&itt)?;
        if task.charged {
            self.charged -= task.charge;
        } else {
            self.early -= task.early;
        }
        if task.bhs.immediate() {
            self.immediate -= 1;
        } else if let Some(session) = &self.session {
            session.credit();
        }
        Some(task)
    }

    /// Drops commands on the unit, or on all; those whose turn has not come are left.
    pub(super) fn cancel_tasks(&mut self, lun: Option<WireLun>) {
        let hit = |task: &Task| task.turn && lun.is_none_or(|lun| lun == task.lun);
        let list: Vec<u32> = self.tasks.iter().filter(|(_, task)| hit(task)).map(|(itt, _)| *itt).collect();
        for itt in list {
            if let Some(task) = self.remove_task(itt) {
                task.abort.abort();
            }
        }
    }

    pub(super) fn on_done(&mut self, done: Done) {
        match done {
            Done::Aborted => {}
            Done::Management { itt, response, cold, numbered } => {
                self.immediate -= 1;
                self.managed(itt, response, cold, numbered);
            }
            Done::Command(itt, response) => {
                let Some(task) = self.remove_task(itt) else { return };
                if let Some(response) = response {
                    self.answer(&task, response);
                }
            }
        }
    }

    fn answer(&mut self, task: &Task, response: ScsiResponse) {
        let reads = task.bhs.flags() & flag::READ != 0;
        let limit = if reads { task.expected } else { 0 };
        let data = response.data_in.filter(|data| !data.is_empty());
        let here = data.as_ref().map_or(0, |data| data.len() as u64);
        // A device may cut data at the limit; the transfer length then says what there would have been.
        let length =
            if here > 0 && here < u64::from(limit) { here } else { response.transfer_length.max(here) };
        let expected = u64::from(task.expected);
        let (residual_flag, residual) = if length > expected {
            (flag::OVERFLOW, length - expected)
        } else if length < expected {
            (flag::UNDERFLOW, expected - length)
        } else {
            (0, 0)
        };
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        let (expected_sn, max_sn) = self.window();
        let itt = task.bhs.itt();
        let mut data_sn = 0;
        if let Some(data) = data.filter(|_| limit > 0) {
            let total = data.len().min(limit as usize);
            let good = response.status == ScsiStatus::Good && response.sense.is_empty();
            let segment = self.params.peer_max_recv as usize;
            let burst = self.session.as_ref().map_or(segment, |session| session.params.max_burst as usize);
            let (mut at, mut in_burst) = (0, 0);
            while at < total {
                let len = (total - at).min(segment).min(burst - in_burst);
                let last = at + len == total;
                in_burst += len;
                let mut flags = 0;
                if last || in_burst == burst {
                    flags |= flag::FINAL;
                    in_burst = 0;
                }
                let mut bhs = Bhs::new(opcode::DATA_IN, flags);
                bhs.set_u32(16, itt);
                bhs.set_u32(20, RESERVED_TAG);
                if last && good {
                    bhs.0[1] |= flag::STATUS | residual_flag;
                    bhs.set_u32(44, residual);
                    bhs.set_sequence(self.stat_sn, expected_sn, max_sn);
                    self.stat_sn = self.stat_sn.wrapping_add(1);
                } else {
                    bhs.set_sequence(0, expected_sn, max_sn);
                }
                bhs.set_u32(36, data_sn);
                bhs.set_u32(40, at as u32);
                self.count_out(len);
                self.transmit.pdu_shared(bhs, data.slice(at..at + len));
                data_sn += 1;
                at += len;
            }
            if good {
                return;
            }
        }
        let mut bhs = Bhs::new(opcode::SCSI_RESPONSE, flag::FINAL | residual_flag);
        bhs.0[3] = response.status as u8;
        bhs.set_u32(16, itt);
        bhs.set_u32(36, data_sn.max(task.r2t_sn));
        bhs.set_u32(44, residual);
        if response.sense.is_empty() {
            self.respond(bhs, &[]);
        } else {
            let mut sense = Vec::with_capacity(2 + response.sense.len());
            sense.extend_from_slice(&(response.sense.len() as u16).to_be_bytes());
            sense.extend_from_slice(&response.sense);
            self.respond(bhs, &sense);
        }
    }

    /// The session's device and nexus, for task management.
    pub(super) fn session(&self) -> Option<Arc<crate::session::Session>> {
        self.session.clone()
    }
}
