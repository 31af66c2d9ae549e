//! One thread's session: commands go out at once, ends come in any order.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use iscsi_client::{Buffers, ClientError, Command, CommandEnd, Disk, Ended, Facts, Transfer, answer, status};
use scsi_defs::{SenseKey, request};
use spd_engine::{Awaited, Data, Done, EngineError, Lane, LaneFailure, LanePlan, Op, Outage};

use crate::open::Opening;

/// How often a command is sent again that the unit has not carried out, with a pause of [`PAUSE`] each: two minutes, as
/// long as a server is waited for.
const AGAIN: u32 = 12_000;
/// How long a unit is left alone that is busy.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct IscsiLane {
    opening: Opening,
    facts: Facts,
    /// `None` while there is no session.
    disk: Option<Disk>,
    memory: Memory,
    /// Slots whose operations are to be sent, in order.
    waiting: VecDeque<usize>,
    ended: Vec<Ended>,
    outage: Outage,
    /// A unit was busy: one operation at a time until one ends well.
    careful: bool,
}

/// The slots' memory.
struct Memory {
    slots: Vec<Slot>,
    source: Vec<u8>,
}

#[derive(Default)]
struct Slot {
    read: Vec<u8>,
    write: Vec<u8>,
    op: Option<Op>,
    /// How often it was sent in vain.
    vain: u32,
}

impl Buffers for Memory {
    fn input(&mut self, tag: usize) -> &mut [u8] {
        self.slots.get_mut(tag).map_or(&mut [], |slot| slot.read.as_mut_slice())
    }

    fn output(&self, tag: usize) -> &[u8] {
        let Some(slot) = self.slots.get(tag) else { return &[] };
        match slot.op.map(|op| op.data) {
            Some(Data::WriteSource(at)) => self.source.get(at..).unwrap_or_default(),
            _ => &slot.write,
        }
    }
}

/// What comes of a command that has ended.
enum Verdict {
    Well,
    /// It was not carried out, and may be the next time.
    Again,
    Failed(LaneFailure),
}

impl IscsiLane {
    pub(crate) fn new(opening: Opening, facts: Facts, plan: &LanePlan<'_>) -> Result<Self, EngineError> {
        let disk = opening.open().map_err(|error| opening.explain(&error))?;
        let slots = plan.slots.iter().map(|slot| Slot {
            read: vec![0; slot.read],
            write: vec![0; slot.write],
            ..Slot::default()
        });
        Ok(Self {
            opening,
            facts,
            disk: Some(disk),
            memory: Memory { slots: slots.collect(), source: plan.source.to_vec() },
            waiting: VecDeque::with_capacity(plan.slots.len()),
            ended: Vec::with_capacity(plan.slots.len()),
            outage: Outage::default(),
            careful: false,
        })
    }

    /// Sends what waits, as far as the target takes it.
    fn send_waiting(&mut self) -> Result<(), ClientError> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        while let Some(slot) = self.waiting.front().copied() {
            if self.careful && disk.session.outstanding() > 0 {
                return Ok(());
            }
            let Some(op) = self.memory.slots.get(slot).and_then(|slot| slot.op) else {
                self.waiting.pop_front();
                continue;
            };
            let block = disk.facts.capacity.block.max(1);
            let (lba, blocks) = (op.offset / u64::from(block), op.len / block);
            let (cdb, transfer) = match op.data {
                Data::Read => (request::read(lba, blocks), Transfer::In(op.len)),
                _ => (request::write(lba, blocks, self.opening.fua), Transfer::Out(op.len)),
            };
            let command = Command { lun: disk.lun, cdb: &cdb, transfer };
            if !disk.session.start(slot, &command, &self.memory)? {
                return Ok(());
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// One turn of the session.
    fn turn(&mut self, timeout: Duration, done: &mut Vec<Done>) -> Result<(), ClientError> {
        self.send_waiting()?;
        let Some(disk) = &mut self.disk else { return Ok(()) };
        self.ended.clear();
        disk.session.turn(timeout, &mut self.memory, &mut self.ended)?;
        self.sort(done);
        if self.careful && done.is_empty() && !self.waiting.is_empty() {
            std::thread::park_timeout(PAUSE.min(timeout));
        }
        // What a closed window has kept leaves as soon as it opens.
        if !self.waiting.is_empty() && !self.careful {
            self.send_waiting()?;
        }
        Ok(())
    }

    /// Sorts what has ended into what is done and what is sent again.
    fn sort(&mut self, done: &mut Vec<Done>) {
        for Ended { tag, end } in self.ended.drain(..) {
            let Some(slot) = self.memory.slots.get_mut(tag) else { continue };
            let Some(op) = slot.op else { continue };
            let result = match verdict(&end, op.len) {
                Verdict::Well => Ok(()),
                Verdict::Again if slot.vain < AGAIN => {
                    slot.vain += 1;
                    self.waiting.push_back(tag);
                    self.careful = true;
                    continue;
                }
                Verdict::Again => Err(refusal(&end, true)),
                Verdict::Failed(failure) => Err(failure),
            };
            self.careful = false;
            (slot.op, slot.vain) = (None, 0);
            done.push(Done { slot: tag, result });
        }
    }

    /// Tries once to open the session anew and to send again what was not answered.
    fn reconnect(&mut self, timeout: Duration) -> io::Result<()> {
        self.disk = None;
        match self.opening.open() {
            Ok(disk) => {
                let (now, before) = (&disk.facts, &self.facts);
                if now.identity != before.identity
                    || now.capacity.block != before.capacity.block
                    || now.capacity.blocks < before.capacity.blocks
                {
                    return Err(io::Error::other(format!(
                        "behind '{}' is another disk than before: the run ends, nothing more is written",
                        self.opening.shown
                    )));
                }
                self.disk = Some(disk);
                self.outage.mended();
                // Everything that has no answer, once, whether it was sent or not.
                self.waiting.clear();
                let slots = self.memory.slots.iter().enumerate();
                self.waiting.extend(slots.filter(|(_, slot)| slot.op.is_some()).map(|(index, _)| index));
                Ok(())
            }
            Err(error) => self.outage.failed(&self.opening.shown, &error, timeout),
        }
    }
}

/// What comes of a command that ended like this, when it should have moved `len` bytes.
fn verdict(end: &CommandEnd, len: u32) -> Verdict {
    let is = |key| end.sense.is_some_and(|sense| sense.is(key));
    match end.status {
        status::GOOD if end.moved == len => Verdict::Well,
        status::GOOD => Verdict::Failed(LaneFailure::Short(end.moved)),
        status::BUSY | status::TASK_SET_FULL | status::TASK_ABORTED => Verdict::Again,
        status::CHECK_CONDITION if is(SenseKey::RecoveredError) && end.moved == len => Verdict::Well,
        status::CHECK_CONDITION
            if is(SenseKey::UnitAttention) || is(SenseKey::AbortedCommand) || is(SenseKey::NotReady) =>
        {
            Verdict::Again
        }
        status::CHECK_CONDITION => {
            Verdict::Failed(refusal(end, is(SenseKey::IllegalRequest) || is(SenseKey::DataProtect)))
        }
        status => Verdict::Failed(refusal(end, status == status::RESERVATION_CONFLICT)),
    }
}

fn refusal(end: &CommandEnd, for_good: bool) -> LaneFailure {
    LaneFailure::Other(format!("the unit answered {}", answer(end.status, end.sense)), for_good)
}

impl Lane for IscsiLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.memory.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.read,
            _ => &mut [],
        }
    }

    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        match self.memory.slots.get_mut(slot) {
            Some(slot) if slot.op.is_none() => &mut slot.write,
            _ => &mut [],
        }
    }

    fn queue(&mut self, op: &Op) -> io::Result<()> {
        let Some(slot) = self.memory.slots.get_mut(op.slot).filter(|slot| slot.op.is_none()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such slot, or it is busy"));
        };
        // A replayed trace may be of a disk with smaller blocks.
        let block = self.facts.capacity.block.max(1);
        if !op.len.is_multiple_of(block) || !op.offset.is_multiple_of(u64::from(block)) {
            let what =
                format!("{} bytes at offset {} are not whole blocks of {block} bytes", op.len, op.offset);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        slot.op = Some(*op);
        self.waiting.push_back(op.slot);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let timeout = timeout.unwrap_or(Duration::from_secs(1));
        if self.outage.is_cut() {
            return self.reconnect(timeout);
        }
        match self.turn(timeout, done) {
            Ok(()) => {
                if !done.is_empty() {
                    self.outage.over();
                }
                Ok(())
            }
            Err(error) if error.is_lost() => {
                // What has ended before the session broke has ended.
                self.sort(done);
                self.outage.cut(error.to_string());
                self.reconnect(timeout)
            }
            Err(error) => Err(io::Error::other(format!("'{}': {error}", self.opening.shown))),
        }
    }

    fn awaited(&self) -> Option<Awaited<'_>> {
        // A session that was lost is made anew in a wait; a busy unit is left alone in one.
        let disk = self.disk.as_ref().filter(|_| !self.outage.is_cut() && !self.careful);
        disk.map(|disk| disk.session.awaited())
    }
}

impl Drop for IscsiLane {
    fn drop(&mut self) {
        if let Some(disk) = self.disk.take() {
            // The target would find out by itself.
            let _ = disk.session.close();
        }
    }
}
