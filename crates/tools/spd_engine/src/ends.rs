//! The two ends of a copy: on one lane that carries both, or each on a lane of its own.
//!
//! Apart, the thread waits for what the two lanes wait for at once: neither end is left alone while the other one works.

use std::io;
use std::time::Duration;

use io_engine::readiness;

use crate::backend::{Backend, Data, Done, Lane, LanePlan, Op, SlotPlan};
use crate::error::EngineError;

/// Longest wait for one lane alone, which at the moment cannot be waited for together with another (its server is away).
const ALONE: Duration = Duration::from_millis(10);
/// Bytes that are moved at once between two buffers of one lane, which lends one at a time.
const STEP: usize = 4096;

pub(crate) enum Ends {
    Shared(Box<dyn Lane>),
    Apart([End; 2]),
}

/// A lane of one target.
pub(crate) struct End {
    lane: Box<dyn Lane>,
    outstanding: usize,
}

impl Ends {
    /// The ends of a copy that has `slots` pieces of `block` bytes under way at once: from target 0 to target 1.
    pub(crate) fn open(backend: &dyn Backend, slots: usize, block: usize) -> Result<Self, EngineError> {
        // Each lane is to its server what a thread's is, and has a number of its own.
        let lane = |thread: usize, targets: &[usize], slot: SlotPlan| {
            backend.lane(&LanePlan { thread, targets, slots: &vec![slot; slots], source: &[] })
        };
        if backend.joins_targets() {
            return Ok(Self::Shared(lane(0, &[0, 1], SlotPlan { read: block, write: block })?));
        }
        let from = lane(0, &[0], SlotPlan { read: block, write: 0 })?;
        let to = lane(1, &[1], SlotPlan { read: 0, write: block })?;
        Ok(Self::Apart([from, to].map(|lane| End { lane, outstanding: 0 })))
    }

    /// Begins a read of the first target, or a write to the second one.
    pub(crate) fn queue(&mut self, slot: usize, is_write: bool, offset: u64, len: u32) -> io::Result<()> {
        let data = if is_write { Data::Write } else { Data::Read };
        let at = usize::from(is_write);
        match self {
            Self::Shared(lane) => lane.queue(&Op { slot, target: at, data, offset, len }),
            Self::Apart(ends) => {
                let Some(end) = ends.get_mut(at) else { return Ok(()) };
                end.lane.queue(&Op { slot, target: 0, data, offset, len })?;
                end.outstanding += 1;
                Ok(())
            }
        }
    }

    /// Waits for ends, as [`Lane::wait`] does.
    pub(crate) fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<()> {
        let ends = match self {
            Self::Shared(lane) => return lane.wait(Some(timeout), done),
            Self::Apart(ends) => ends,
        };
        // What was queued begins, and what has ended is found, before anything is waited for, and again afterwards.
        for waited in [false, true] {
            ends.iter_mut().try_for_each(|end| end.turn(Duration::ZERO, done))?;
            if waited || !done.is_empty() {
                return Ok(());
            }
            if let Some(alone) =
                ends.iter_mut().find(|end| end.outstanding > 0 && end.lane.awaited().is_none())
            {
                alone.turn(timeout.min(ALONE), done)?;
                continue;
            }
            let awaited = ends.each_ref().map(|end| end.lane.awaited().filter(|_| end.outstanding > 0));
            readiness::wait_any(awaited, timeout)?;
        }
        Ok(())
    }

    /// Moves what a slot has read to where it is written from.
    pub(crate) fn pass_on(&mut self, slot: usize, len: usize) {
        match self {
            Self::Apart([from, to]) => {
                let (read, write) = (from.lane.read_buffer(slot), to.lane.write_buffer(slot));
                if let (Some(read), Some(write)) = (read.get(..len), write.get_mut(..len)) {
                    write.copy_from_slice(read);
                }
            }
            Self::Shared(lane) => {
                let mut piece = [0u8; STEP];
                for at in (0..len).step_by(STEP) {
                    let end = (at + STEP).min(len);
                    let Some(part) = piece.get_mut(..end - at) else { return };
                    match lane.read_buffer(slot).get(at..end) {
                        Some(read) => part.copy_from_slice(read),
                        None => return,
                    }
                    if let Some(write) = lane.write_buffer(slot).get_mut(at..end) {
                        write.copy_from_slice(part);
                    }
                }
            }
        }
    }
}

impl End {
    /// One turn of its lane, if anything is to be done.
    fn turn(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<()> {
        if self.outstanding == 0 {
            return Ok(());
        }
        let before = done.len();
        self.lane.wait(Some(timeout), done)?;
        self.outstanding = self.outstanding.saturating_sub(done.len() - before);
        Ok(())
    }
}
