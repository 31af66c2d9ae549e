//! Commands that run, and what the target's PDUs mean to them.

use std::collections::VecDeque;
use std::ops::Range;

use iscsi_protocol::pdu::{RESERVED_TAG, flag, opcode, sn_lt};
use iscsi_protocol::{Bhs, SessionParams};
use scsi_defs::Reported;

use crate::error::{ClientError, status};
use crate::frames::{Frames, MAX_RECV, OUTBOX_FULL};
use crate::login::{FIRST_CMD_SN, LoggedIn};

/// The task tag of our NOP.
pub const PING: u32 = 0xffff_fffe;
/// The task tag of our logout.
pub const LOGOUT: u32 = 0xffff_fffd;
/// The task tag of our ABORT TASK SET.
const ABORT: u32 = 0xffff_fffc;
/// The function ABORT TASK SET, and what answers it when it is done (RFC 7143 11.5.1, 11.6.1).
const ABORT_TASK_SET: u8 = 2;
const ABORTED: u8 = 0;

/// Where the data of commands lies, by tag. A slice that is shorter than the command's data ends the session.
pub trait Buffers {
    /// Where data from the unit goes.
    fn input(&mut self, tag: usize) -> &mut [u8];
    /// Data for the unit.
    fn output(&self, tag: usize) -> &[u8];
}

/// Which way a command's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// There is none.
    None,
    /// The unit sends this many bytes, at the most.
    In(u32),
    /// The unit takes this many bytes.
    Out(u32),
}

/// What a unit is to do.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The unit, as on the wire.
    pub lun: [u8; 8],
    /// The command descriptor block, of up to 16 bytes.
    pub cdb: &'a [u8],
    /// Its data.
    pub transfer: Transfer,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// The SCSI status.
    pub status: u8,
    /// Why, with CHECK CONDITION.
    pub sense: Option<Reported>,
    /// Bytes that were moved.
    pub moved: u32,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its tag, free again.
    pub tag: usize,
    /// How.
    pub end: CommandEnd,
}

/// A command that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    itt: u32,
    transfer: Transfer,
    /// Bytes that came; for output, bytes that were sent unasked or asked for.
    at: u32,
    /// Data-In PDUs that came, or R2Ts.
    sequence: u32,
    /// R2Ts that are not yet served.
    asked: u16,
}

/// Data-Out that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Burst {
    itt: u32,
    ttt: u32,
    lun: [u8; 8],
    at: u32,
    end: u32,
    sequence: u32,
}

/// What is known of a session's commands.
pub struct State {
    params: SessionParams,
    running: Vec<Option<Running>>,
    outstanding: usize,
    bursts: VecDeque<Burst>,
    generation: u32,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    logged_out: bool,
    /// ABORT TASK SET is on its way: no command begins before it is answered.
    aborting: bool,
}

impl State {
    /// A session that has just been let in, for tags below `depth`.
    #[must_use]
    pub fn new(login: &LoggedIn, depth: usize) -> Self {
        let depth = depth.clamp(1, 1 << 16);
        Self {
            params: login.agreed.session.clone(),
            running: vec![None; depth],
            outstanding: 0,
            bursts: VecDeque::new(),
            generation: 0,
            cmd_sn: FIRST_CMD_SN,
            max_cmd_sn: login.max_cmd_sn,
            exp_stat_sn: login.exp_stat_sn,
            logged_out: false,
            aborting: false,
        }
    }

    /// Commands that are under way.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether the target has answered our logout.
    #[must_use]
    pub fn logged_out(&self) -> bool {
        self.logged_out
    }

    /// Whether the target takes no further command at the moment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.aborting || sn_lt(self.max_cmd_sn, self.cmd_sn)
    }

    /// A command's header on its way out, with the data that may go with it. The tag is free, and the target takes one more.
    ///
    /// # Errors
    /// When the buffer is too short, or the target takes nothing.
    pub fn start(
        &mut self,
        frames: &mut Frames,
        tag: usize,
        command: &Command<'_>,
        buffers: &impl Buffers,
    ) -> Result<(), ClientError> {
        // Task tags carry a count, so that an answer to an earlier command is none to this one.
        self.generation = self.generation.wrapping_add(1) & 0x7fff;
        let itt = self.generation << 16 | tag as u32 & 0xffff;
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND, 0);
        bhs.set_lun(command.lun);
        bhs.set_u32(16, itt);
        bhs.set_u32(24, self.cmd_sn);
        bhs.set_u32(28, self.exp_stat_sn);
        if let (Some(place), Some(cdb)) =
            (bhs.0.get_mut(32..32 + command.cdb.len().min(16)), command.cdb.get(..command.cdb.len().min(16)))
        {
            place.copy_from_slice(cdb);
        }
        // Simple task attribute.
        let mut flags = flag::FINAL | 1;
        let mut at = 0;
        match command.transfer {
            Transfer::None => frames.push(with_flags(bhs, flags), &[])?,
            Transfer::In(len) => {
                bhs.set_u32(20, len);
                frames.push(with_flags(bhs, flags | flag::READ), &[])?;
            }
            Transfer::Out(len) => {
                bhs.set_u32(20, len);
                flags |= flag::WRITE;
                let data = buffers.output(tag).get(..len as usize).ok_or(BUFFER)?;
                let first = len.min(self.params.first_burst);
                let immediate =
                    if self.params.immediate_data { first.min(frames.params.peer_max_recv) } else { 0 };
                let unasked = if self.params.initial_r2t { immediate } else { first };
                if unasked > immediate {
                    flags &= !flag::FINAL;
                    let ttt = RESERVED_TAG;
                    self.bursts.push_back(Burst {
                        itt,
                        ttt,
                        lun: command.lun,
                        at: immediate,
                        end: unasked,
                        sequence: 0,
                    });
                }
                frames.push(with_flags(bhs, flags), data.get(..immediate as usize).unwrap_or_default())?;
                at = unasked;
            }
        }
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        self.outstanding += 1;
        if let Some(slot) = self.running.get_mut(tag) {
            *slot = Some(Running { itt, transfer: command.transfer, at, sequence: 0, asked: 0 });
        }
        Ok(())
    }

    /// Whether a tag may be used.
    #[must_use]
    pub fn is_free(&self, tag: usize) -> bool {
        self.running.get(tag).is_some_and(Option::is_none)
    }

    fn find(&mut self, itt: u32) -> Result<(usize, &mut Running), ClientError> {
        let tag = (itt & 0xffff) as usize;
        match self.running.get_mut(tag) {
            Some(Some(running)) if running.itt == itt => Ok((tag, running)),
            _ => Err(ClientError::Protocol("it answers a command that does not run")),
        }
    }

    /// Puts Data-Out behind what waits to be sent, as long as there is room.
    ///
    /// # Errors
    /// When a command's buffer is too short.
    pub fn pump(&mut self, frames: &mut Frames, buffers: &impl Buffers) -> Result<(), ClientError> {
        while frames.waiting() < OUTBOX_FULL
            && let Some(burst) = self.bursts.front_mut()
        {
            let tag = (burst.itt & 0xffff) as usize;
            let running = self.running.get_mut(tag).and_then(Option::as_mut);
            let Some(running) = running.filter(|running| running.itt == burst.itt) else {
                // It ended without its data.
                self.bursts.pop_front();
                continue;
            };
            let most = frames.params.peer_max_recv.min(MAX_RECV);
            let end = burst.end.min(burst.at.saturating_add(most));
            let last = end == burst.end;
            let mut bhs = Bhs::new(opcode::DATA_OUT, if last { flag::FINAL } else { 0 });
            if burst.ttt != RESERVED_TAG {
                bhs.set_lun(burst.lun);
            }
            bhs.set_u32(16, burst.itt);
            bhs.set_u32(20, burst.ttt);
            bhs.set_u32(28, self.exp_stat_sn);
            bhs.set_u32(36, burst.sequence);
            bhs.set_u32(40, burst.at);
            let data = buffers.output(tag).get(burst.at as usize..end as usize).ok_or(BUFFER)?;
            frames.push(bhs, data)?;
            burst.at = end;
            burst.sequence += 1;
            if last {
                if burst.ttt != RESERVED_TAG {
                    running.asked = running.asked.saturating_sub(1);
                }
                self.bursts.pop_front();
            }
        }
        Ok(())
    }

    /// Takes one PDU; adds what it ends to `ended`.
    ///
    /// # Errors
    /// When it must not be, or ends the session.
    pub fn take(
        &mut self,
        frames: &mut Frames,
        (bhs, data): (Bhs, Range<usize>),
        buffers: &mut impl Buffers,
        ended: &mut Vec<Ended>,
    ) -> Result<(), ClientError> {
        let (expected, max) = (bhs.u32_at(28), bhs.u32_at(32));
        // RFC 7143 4.2.2.1: a window that is older than what we know is ignored.
        if !sn_lt(max, expected.wrapping_sub(1)) && sn_lt(self.max_cmd_sn, max) {
            self.max_cmd_sn = max;
        }
        match bhs.opcode() {
            opcode::DATA_IN => {
                let done = self.data_in(&bhs, frames.data(data), buffers)?;
                ended.extend(done);
                Ok(())
            }
            opcode::SCSI_RESPONSE => {
                let done = self.response(&bhs, frames.data(data))?;
                ended.push(done);
                Ok(())
            }
            opcode::R2T => self.r2t(&bhs),
            opcode::NOP_IN => self.nop(&bhs, frames),
            opcode::ASYNC => {
                self.status(&bhs)?;
                // Events 1 to 3 end the session, 4 wants a negotiation, which a new login is. Others tell, and ask nothing.
                if matches!(bhs.0[36], 1..=4) { Err(ClientError::Ended) } else { Ok(()) }
            }
            opcode::REJECT => Err(ClientError::Rejected(bhs.0[2])),
            opcode::TASK_MANAGEMENT_RESPONSE if bhs.itt() == ABORT => self.aborted(&bhs, ended),
            opcode::LOGOUT_RESPONSE if bhs.itt() == LOGOUT => {
                self.logged_out = true;
                Ok(())
            }
            _ => Err(ClientError::Protocol("it sends a PDU that nobody asked for")),
        }
    }

    /// A request that needs no place in the window: [`PING`] asks whether the target is there, [`LOGOUT`] ends the session.
    ///
    /// # Errors
    /// When the target takes nothing.
    pub fn immediate(&mut self, frames: &mut Frames, itt: u32) -> Result<(), ClientError> {
        let opcode = if itt == LOGOUT { opcode::LOGOUT } else { opcode::NOP_OUT };
        let mut bhs = Bhs::new(opcode | 0x40, flag::FINAL);
        bhs.set_u32(16, itt);
        if opcode == opcode::NOP_OUT {
            bhs.set_u32(20, RESERVED_TAG);
        }
        bhs.set_u32(24, self.cmd_sn);
        bhs.set_u32(28, self.exp_stat_sn);
        frames.push(bhs, &[])
    }

    /// Has the target end all our commands on a unit (ABORT TASK SET): each that runs then ends as if it were answered with TASK ABORTED,
    /// also those that the target has ended before without an answer. All commands that run are of this unit. What such a command has
    /// done by then nobody knows; it does nothing any more.
    ///
    /// # Errors
    /// When the target takes nothing.
    pub fn abort_all(&mut self, frames: &mut Frames, lun: [u8; 8]) -> Result<(), ClientError> {
        if self.aborting || self.outstanding == 0 {
            return Ok(());
        }
        self.aborting = true;
        let mut bhs = Bhs::new(opcode::TASK_MANAGEMENT | 0x40, flag::FINAL | ABORT_TASK_SET);
        bhs.set_lun(lun);
        bhs.set_u32(16, ABORT);
        bhs.set_u32(20, RESERVED_TAG);
        bhs.set_u32(24, self.cmd_sn);
        bhs.set_u32(28, self.exp_stat_sn);
        frames.push(bhs, &[])
    }

    /// The answer to ABORT TASK SET. What was answered before has come before it, as there is one connection.
    fn aborted(&mut self, bhs: &Bhs, ended: &mut Vec<Ended>) -> Result<(), ClientError> {
        if !std::mem::take(&mut self.aborting) {
            return Err(ClientError::Protocol("it ends commands that nobody asked it to end"));
        }
        self.status(bhs)?;
        if bhs.0[2] != ABORTED {
            // A new session ends them.
            return Err(ClientError::Protocol("it does not end our commands when it is asked to"));
        }
        let running: Vec<u32> = self.running.iter().flatten().map(|running| running.itt).collect();
        for itt in running {
            ended.push(self.end(itt, status::TASK_ABORTED, None)?);
        }
        Ok(())
    }

    /// StatSN of a PDU that has one: with a gap, something was lost, and level 0 does not find it again.
    fn status(&mut self, bhs: &Bhs) -> Result<(), ClientError> {
        if bhs.u32_at(24) != self.exp_stat_sn {
            return Err(ClientError::Protocol("its status numbers (StatSN) have a gap"));
        }
        self.exp_stat_sn = self.exp_stat_sn.wrapping_add(1);
        Ok(())
    }

    fn data_in(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        buffers: &mut impl Buffers,
    ) -> Result<Option<Ended>, ClientError> {
        let (tag, running) = self.find(bhs.itt())?;
        let Transfer::In(len) = running.transfer else {
            return Err(ClientError::Protocol("it sends data for a command that takes none"));
        };
        let (at, number) = (bhs.u32_at(40), bhs.u32_at(36));
        let end = at.checked_add(data.len() as u32).filter(|end| *end <= len);
        let (Some(end), true) = (end, at == running.at && number == running.sequence) else {
            return Err(ClientError::Protocol("its data is out of order, or more than was asked for"));
        };
        let place = buffers.input(tag).get_mut(at as usize..end as usize).ok_or(BUFFER)?;
        place.copy_from_slice(data);
        running.at = end;
        running.sequence += 1;
        if bhs.flags() & flag::STATUS == 0 {
            return Ok(None);
        }
        self.status(bhs)?;
        self.end(bhs.itt(), bhs.0[3], None).map(Some)
    }

    fn response(&mut self, bhs: &Bhs, data: &[u8]) -> Result<Ended, ClientError> {
        let output = matches!(self.find(bhs.itt())?.1.transfer, Transfer::Out(_));
        self.status(bhs)?;
        if bhs.0[2] != 0 {
            return Err(ClientError::TargetFailure);
        }
        let sense = data.get(2..).and_then(Reported::parse);
        let code = bhs.0[3];
        let done = self.end(bhs.itt(), code, sense.filter(|_| code == status::CHECK_CONDITION))?;
        // What was sent is what the unit took, except for what it says it did not. What came is counted as it comes.
        let left = if output && bhs.flags() & flag::UNDERFLOW != 0 { bhs.u32_at(44) } else { 0 };
        let end = CommandEnd { moved: done.end.moved.saturating_sub(left), ..done.end };
        Ok(Ended { end, ..done })
    }

    /// Ends a command.
    fn end(&mut self, itt: u32, status: u8, sense: Option<Reported>) -> Result<Ended, ClientError> {
        let (tag, running) = self.find(itt)?;
        let moved = match running.transfer {
            Transfer::None => 0,
            Transfer::In(_) => running.at,
            Transfer::Out(len) => len,
        };
        if let Some(slot) = self.running.get_mut(tag) {
            *slot = None;
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        Ok(Ended { tag, end: CommandEnd { status, sense, moved } })
    }

    fn r2t(&mut self, bhs: &Bhs) -> Result<(), ClientError> {
        let (most, burst) = (self.params.max_outstanding_r2t, self.params.max_burst);
        let (_, running) = self.find(bhs.itt())?;
        let Transfer::Out(len) = running.transfer else {
            return Err(ClientError::Protocol("it asks for data of a command that has none"));
        };
        let (number, at, count) = (bhs.u32_at(36), bhs.u32_at(40), bhs.u32_at(44));
        let end = at.checked_add(count).filter(|end| *end <= len && (1..=burst).contains(&count));
        let in_order = at == running.at && number == running.sequence;
        let (Some(end), true, true) = (end, in_order, running.asked < most) else {
            return Err(ClientError::Protocol("it asks for data out of order, too much, or too often"));
        };
        running.at = end;
        running.sequence += 1;
        running.asked += 1;
        let (itt, ttt, lun) = (bhs.itt(), bhs.ttt(), bhs.lun());
        if ttt == RESERVED_TAG {
            return Err(ClientError::Protocol("it asks for data without a tag"));
        }
        self.bursts.push_back(Burst { itt, ttt, lun, at, end, sequence: 0 });
        Ok(())
    }

    fn nop(&mut self, bhs: &Bhs, frames: &mut Frames) -> Result<(), ClientError> {
        if bhs.itt() == PING {
            return self.status(bhs);
        }
        if bhs.ttt() == RESERVED_TAG {
            return Ok(());
        }
        let mut answer = Bhs::new(opcode::NOP_OUT | 0x40, flag::FINAL);
        answer.set_lun(bhs.lun());
        answer.set_u32(16, RESERVED_TAG);
        answer.set_u32(20, bhs.ttt());
        answer.set_u32(24, self.cmd_sn);
        answer.set_u32(28, self.exp_stat_sn);
        frames.push(answer, &[])
    }
}

const BUFFER: ClientError = ClientError::Protocol("a command's buffer is shorter than its data");

fn with_flags(mut bhs: Bhs, flags: u8) -> Bhs {
    bhs.0[1] = flags;
    bhs
}
