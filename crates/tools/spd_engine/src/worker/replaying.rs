//! A thread that replays a trace.

use std::sync::atomic::Ordering;

use spd_profile::trace::Replay;

use super::Worker;
use crate::error::EngineError;
use crate::offsets::Choice;
use crate::replay::{Feed, Next};

/// How long the thread waits for a trace that is not read fast enough, in nanoseconds.
const BEHIND: u64 = 50_000;

/// A trace on its way.
pub(super) struct Replaying {
    feed: Feed,
    pub(super) fast: bool,
    /// Until when all slots were taken while an operation was due.
    starved_until: u64,
    pub(super) intended: u64,
    pub(super) late: u64,
}

impl Replaying {
    pub(super) fn open(replay: &Replay) -> Result<Self, EngineError> {
        let feed = Feed::open(replay)?;
        Ok(Self { feed, fast: replay.fast, starved_until: 0, intended: 0, late: 0 })
    }
}

impl Worker<'_> {
    /// Begins operations of a trace, in its order; returns when the next one may, if that is what keeps it.
    pub(super) fn replay(&mut self, index: usize, now: u64) -> Option<u64> {
        loop {
            let stream = self.streams.get_mut(index)?;
            let replay = stream.replay.as_mut()?;
            let record = match replay.feed.peek() {
                Next::Record(record) => *record,
                // The reading thread needs a moment.
                Next::Later => return Some(now + BEHIND),
                Next::End => {
                    // All has begun; when all has ended, so has the run.
                    if self.outstanding == 0 {
                        self.shared.stop.store(true, Ordering::Relaxed);
                        // Nothing is waited for.
                        return Some(now);
                    }
                    return None;
                }
                Next::Broken(why) => {
                    let why = why.clone();
                    self.give_up(why);
                    return None;
                }
            };
            let due = if replay.fast { now } else { self.window.start.saturating_add(record.at) };
            if due > now {
                return Some(due);
            }
            let Some(slot) = self.pools.get_mut(stream.pool).and_then(Vec::pop) else {
                replay.starved_until = now;
                return None;
            };
            replay.feed.take();
            let intended = (!replay.fast).then_some(due);
            if intended.is_some() && (self.window.from..self.window.to).contains(&due) {
                replay.intended += 1;
                replay.late += u64::from(due <= replay.starved_until);
            }
            let offset = stream.target.base + record.offset;
            let choice = Choice { offset, len: record.len, is_write: record.is_write };
            self.issue(index, slot, choice, intended, now);
            if self.broken.is_some() {
                return None;
            }
        }
    }
}
