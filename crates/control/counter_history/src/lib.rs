//! What counters were: each second for an hour, each minute for 30 days, on files of bounded size.
//!
//! ```text
//!   counters, each second ──► what grew since the look before ──► seconds, in segments of ten minutes
//!                                        └──► added up ─────────► minutes, in segments of six hours
//!   query ──► the segments of the span ──► steps as long as asked for, of the things asked for, or their sums
//! ```
//! What did nothing takes no room. A step stores the busiest things of each kind by themselves, the others as one sum, and the
//! oldest segments go when there are too many or they have too many bytes: the size is bounded whatever a node serves, and a very large one
//! remembers less far back. Nothing is flushed: a power cut may take the last seconds, and what it left half is not believed.
//!
//! Of QoS policies and flows, which may be very many, only those that were held back for longest are by themselves: fifty of each in a second and
//! twenty-five in a minute. One that reads and writes under limits takes some 50 bytes of a step, where another thing takes some 30. Were that
//! many busy all the time, they would take 2 × 50 × 3600 × 50 bytes, 17 MiB, of the seconds' room and 2 × 25 × 43,200 × 50 bytes, 103 MiB, of the
//! minutes'; what is left holds 140 other things that are always busy in the seconds, and 45 in the minutes, before the oldest goes early. Limits are what they were
//! at the end of a step; where things are added up there are none.
//!
//! Steps have the time of a clock that may be set, and their length by one that nobody sets: rates are right whatever happened
//! to the former. Files that cannot be used are set aside by name, and the history goes on without them.
//!
//! Cost of a look, with 10,000 things of which 1,000 do something: `cargo run --profile ci -p counter_history --example cost`.

pub mod fuzz;
mod level;
mod query;
mod segment;
mod step;
mod values;

use std::io;
use std::path::Path;

use control_api::Counters;

use level::Level;
pub use level::Limits;
pub use query::{Found, Query, QueryError, Snapshot, TOTAL};
pub use step::OTHERS;
use step::{Looks, Step};

/// An hour of seconds, in at most 32 MiB.
pub const SECONDS: Limits =
    Limits { seconds: 1, steps: 600, segments: 6, bytes: 32 << 20, things: 500, flows: 50 };
/// Thirty days of minutes, in at most 160 MiB.
pub const MINUTES: Limits =
    Limits { seconds: 60, steps: 360, segments: 120, bytes: 160 << 20, things: 200, flows: 25 };
/// The minute that is not over takes so many times the policies and flows of each second that it will keep: of one that is kept nothing is among the
/// others but what it did in seconds in which more than these were held back for longer.
const SPARE: usize = 4;
/// Seconds are put on their file ten at a time.
const WRITE_EVERY: u32 = 10;

/// The history of a node.
#[derive(Debug)]
pub struct CounterHistory {
    looks: Looks,
    seconds: Level,
    minutes: Level,
    /// The minute that is not over.
    minute: Option<Step>,
    since_write: u32,
}

impl CounterHistory {
    /// The history that is in a directory, and sentences about files in it that were set aside.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(dir: &Path) -> io::Result<(Self, Vec<String>)> {
        Self::with_limits(dir, SECONDS, MINUTES)
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn with_limits(dir: &Path, seconds: Limits, minutes: Limits) -> io::Result<(Self, Vec<String>)> {
        let mut told = Vec::new();
        let seconds = Level::open(dir, "seconds-", seconds, &mut told)?;
        let minutes = Level::open(dir, "minutes-", minutes, &mut told)?;
        let history = Self { looks: Looks::default(), seconds, minutes, minute: None, since_write: 0 };
        Ok((history, told))
    }

    /// Takes a look at the counters into the history. To be called once a second; a longer step is as long as it was.
    ///
    /// # Errors
    /// When the files cannot be written. What is not written then is tried again with later looks, up to a limit.
    pub fn take(&mut self, now: &Counters, wall_ms: u64) -> io::Result<()> {
        let Some(mut step) = self.looks.step(now, wall_ms) else { return Ok(()) };
        // Far more policies and flows may come and go in a minute than are there in any of its seconds.
        let flows = self.minutes.limits.flows.saturating_mul(SPARE).max(self.seconds.limits.flows);
        step.keep_busiest(usize::MAX, flows);
        let minute_ms = u64::from(self.minutes.limits.seconds) * 1000;
        let minute_of = |step: &Step| step.wall_ms.saturating_sub(1) / minute_ms;
        let ended = self.minute.take_if(|minute| minute_of(minute) != minute_of(&step));
        match &mut self.minute {
            Some(minute) => minute.then(step.clone()),
            None => self.minute = Some(step.clone()),
        }
        self.seconds.add(step);
        self.since_write += 1;
        let minute_is_over = ended.is_some();
        ended.into_iter().for_each(|minute| self.minutes.add(minute));
        if minute_is_over || self.since_write >= WRITE_EVERY {
            self.write()?;
        }
        Ok(())
    }

    /// Puts on files what is not there, the minute that is not over as well: the node stops.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn close(&mut self) -> io::Result<()> {
        self.minute.take().into_iter().for_each(|minute| self.minutes.add(minute));
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        self.since_write = 0;
        self.seconds.write().and(self.minutes.write())
    }

    /// What can be read now. Reading it takes no part in the history: it may take long, and the history goes on.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { levels: vec![self.seconds.kept(), self.minutes.kept()] }
    }
}

#[cfg(test)]
mod tests;
