//! How fast repair may copy: a limit that the administrator sets, and what clients bear.
//!
//! Copies share the disks with clients. While clients wait longer than they should, the rate is halved, down to a floor
//! at which a repair still ends; while they do not, it grows by a quarter. What they should wait is set, or is twice
//! what they waited before there was anything to copy.

use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::{Clock, Monotonic};

use crate::pace::{Pace, Sample};
use crate::params::RepairParams;

/// How often the rate is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// The slowest that clients make repair, in bytes a second: a disk of 4 TiB is copied in three days.
pub const FLOOR: u64 = 16 << 20;
/// Faster than any disk: no limit.
const CEILING: u64 = 64 << 30;
/// Bytes copied at once beside clients: a request that stands behind it on a disk waits no longer than for a large one of
/// another client.
const GENTLE: u64 = 128 << 10;
/// What clients may wait when nothing is known of them.
const UNKNOWN: Duration = Duration::from_millis(20);
/// Requests between two looks that make clients.
const SOME: u64 = 8;
/// Less than this is nobody's concern.
const LEAST: Duration = Duration::from_millis(1);

/// What decides the rate.
#[derive(Default)]
pub(crate) struct Governor {
    /// Small requests of clients.
    pub(crate) clients: Pace,
    state: Mutex<State>,
    /// Held by who copies beside clients: one at a time.
    alone: tokio::sync::Mutex<()>,
}

impl Governor {
    /// Waits for one's turn to copy: as many at a time as repair has workers, but one at a time, and in small steps, while there
    /// are clients.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        let beside_clients = {
            let state = self.state.lock();
            state.beside_clients || self.clients.sample().mean_since(state.seen, SOME).is_some()
        };
        Turn { alone: if beside_clients { Some(self.alone.lock().await) } else { None } }
    }

    /// How long whoever wants to copy `bytes` more waits before: all who copy in a pool share its rate.
    pub(crate) fn charge(&self, bytes: u64, params: RepairParams, clock: &dyn Clock) -> Duration {
        let mut state = self.state.lock();
        let now = clock.now();
        let target = match params.client_latency {
            Duration::ZERO => state.calm.map_or(UNKNOWN, |calm| (calm * 2).max(LEAST)),
            set => set,
        };
        state.copied += bytes;
        state.copied_in_window = true;
        state.look(now, self.clients.sample(), target);
        let limit = if params.bytes_per_second == 0 { CEILING } else { params.bytes_per_second };
        let rate = if state.rate == 0 { limit } else { state.rate.min(limit) };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let begin = state.next.0.max(now.0);
        state.next = Monotonic(begin.saturating_add(nanos.min(u128::from(u64::MAX)) as u64));
        Duration::from_nanos(state.next.0 - now.0)
    }

    /// Ends a window of some seconds: without copies in it, it tells what clients wait when they are alone.
    pub(crate) fn end_window(&self) {
        /// Requests that say anything.
        const ENOUGH: u64 = 32;
        let sample = self.clients.sample();
        let mut state = self.state.lock();
        let mean = sample.mean_since(state.window, ENOUGH);
        if !state.copied_in_window && mean.is_some() {
            state.calm = mean;
        }
        state.window = sample;
        state.copied_in_window = false;
    }
}

/// Leave to copy a region.
pub(crate) struct Turn<'a> {
    alone: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Turn<'_> {
    /// Bytes to be copied at once.
    pub(crate) fn step(&self) -> u64 {
        if self.alone.is_some() { GENTLE } else { u64::MAX }
    }
}

#[derive(Default)]
struct State {
    /// Whether there were clients between the last two looks.
    beside_clients: bool,
    /// Bytes a second that clients allow; 0 before anything was copied.
    rate: u64,
    looked: Monotonic,
    seen: Sample,
    /// Bytes copied since the last look.
    copied: u64,
    /// When the next copy may begin.
    next: Monotonic,
    /// What clients waited in the last window without copies, and the sample at its end.
    calm: Option<Duration>,
    window: Sample,
    copied_in_window: bool,
}

impl State {
    /// Adapts the rate to what clients waited since the last look.
    fn look(&mut self, now: Monotonic, clients: Sample, target: Duration) {
        let elapsed = now.since(self.looked);
        if elapsed < LOOK {
            return;
        }
        if elapsed > 4 * LOOK {
            // Nothing was copied for a while: it says nothing of what is copied now.
            self.beside_clients = false;
            (self.looked, self.seen, self.copied) = (now, clients, 0);
            return;
        }
        self.beside_clients = clients.mean_since(self.seen, SOME).is_some();
        let waited = clients.mean_since(self.seen, 1);
        let reached = (u128::from(self.copied) * 1_000_000_000 / elapsed.as_nanos().max(1)) as u64;
        if self.rate == 0 {
            self.rate = CEILING;
        }
        self.rate = match waited {
            Some(waited) if waited > target => (self.rate.min(reached) / 2).max(FLOOR),
            _ => (self.rate + self.rate / 4).min(CEILING),
        };
        (self.looked, self.seen, self.copied) = (now, clients, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_slows_down_while_clients_wait_and_recovers() {
        let (pace, mut state) = (Pace::default(), State::default());
        let mut now = 0u64;
        let mut round = |state: &mut State, millis: u64| {
            now += 300_000_000;
            pace.record(Duration::from_millis(millis));
            state.copied = 100 << 20;
            state.look(Monotonic(now), pace.sample(), Duration::from_millis(10));
            state.rate
        };
        state.looked = Monotonic(1);
        assert_eq!(round(&mut state, 5), CEILING);
        let halved = round(&mut state, 50);
        assert!((100 << 20..200 << 20).contains(&halved), "half of what was reached: {halved}");
        for _ in 0..10 {
            round(&mut state, 50);
        }
        assert_eq!(state.rate, FLOOR);
        assert_eq!(round(&mut state, 5), FLOOR + FLOOR / 4);
        for _ in 0..60 {
            round(&mut state, 5);
        }
        assert_eq!(state.rate, CEILING);
    }
}
