//! Lines in the log that peers can cause at will: some of each kind for each peer, and how many were left out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::{Clock, Monotonic, SystemClock};

/// How long a count lasts.
const WINDOW: Duration = Duration::from_secs(60);
/// How often old counts are looked for, at most.
const LOOK: Duration = Duration::from_secs(1);
/// Lines of one kind about one peer in that time.
const LINES: u64 = 10;
/// Lines of one kind about all peers in that time.
const LINES_OF_KIND: u64 = 100;
/// Peers of which counts are kept; the others share one.
const PEERS_MAX: usize = 4096;
/// Stands for all peers.
const ALL: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Debug)]
struct Count {
    since: Monotonic,
    lines: u64,
    left_out: u64,
}

type Counts = BTreeMap<(&'static str, IpAddr), Count>;

/// Decides which lines are written.
pub struct Throttle {
    clock: SystemClock,
    /// With when old ones were last looked for.
    counts: Mutex<(Counts, Monotonic)>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { clock: SystemClock::new(), counts: Mutex::new((Counts::new(), Monotonic(0))) }
    }
}

impl Throttle {
    /// Whether a line of that kind about that peer may be written now. If not, it is counted, and the count comes into the log
    /// by itself: with the next event after a minute.
    #[must_use]
    pub fn admits(&self, kind: &'static str, peer: IpAddr) -> bool {
        self.admits_at(kind, peer, self.clock.now())
    }

    /// Tells of what was left out in a minute that is over; to be called now and then, as otherwise the next event does.
    pub fn look(&self) {
        self.look_at(self.clock.now());
    }

    fn look_at(&self, now: Monotonic) {
        let mut guard = self.counts.lock();
        let (counts, looked) = &mut *guard;
        if now.since(*looked) >= LOOK {
            *looked = now;
            Self::tell_left_out(counts, now);
        }
    }

    fn admits_at(&self, kind: &'static str, peer: IpAddr, now: Monotonic) -> bool {
        self.look_at(now);
        let mut guard = self.counts.lock();
        let counts = &mut guard.0;
        let room = counts.len() < PEERS_MAX || counts.contains_key(&(kind, peer));
        let peer = if room { peer } else { ALL };
        let fresh = || Count { since: now, lines: 0, left_out: 0 };
        let of_kind = counts.entry((kind, ALL)).or_insert_with(fresh).lines;
        let count = counts.entry((kind, peer)).or_insert_with(fresh);
        if of_kind >= LINES_OF_KIND || peer != ALL && count.lines >= LINES {
            count.left_out += 1;
            return false;
        }
        count.lines += 1;
        if peer != ALL
            && let Some(all) = counts.get_mut(&(kind, ALL))
        {
            all.lines += 1;
        }
        true
    }

    /// Ends the counts that have lasted a minute.
    fn tell_left_out(counts: &mut Counts, now: Monotonic) {
        counts.retain(|(kind, peer), count| {
            let lasts = now.since(count.since) < WINDOW;
            if !lasts && count.left_out > 0 {
                let left_out = count.left_out;
                match *peer {
                    ALL => tracing::warn!(kind, left_out, "lines about several peers were left out of the log in the last minute"),
                    _ => tracing::warn!(kind, %peer, left_out, "lines about a peer were left out of the log in the last minute"),
                }
            }
            lasts
        });
    }

    /// Lines left out that nobody was told of yet.
    #[cfg(test)]
    fn left_out(&self) -> u64 {
        self.counts.lock().0.values().map(|count| count.left_out).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0001 + n))
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn one_peer_cannot_fill_the_log_or_silence_others() {
        let throttle = Throttle::default();
        let written = (0..1000).filter(|_| throttle.admits_at("open", peer(0), at(1))).count();
        assert_eq!((written as u64, throttle.left_out()), (LINES, 1000 - LINES));
        assert!(throttle.admits_at("open", peer(1), at(1)), "another peer");
        assert!(throttle.admits_at("tree", peer(0), at(1)), "another kind");
        assert!(throttle.admits_at("open", peer(0), at(62)), "after a minute");
        assert_eq!(throttle.left_out(), 0, "what was left out has been told");
    }

    #[test]
    fn what_was_left_out_is_told_without_a_further_event() {
        let throttle = Throttle::default();
        let _ = (0..1000).filter(|_| throttle.admits_at("open", peer(0), at(1))).count();
        throttle.look_at(at(30));
        assert_eq!(throttle.left_out(), 1000 - LINES, "the minute is not over");
        throttle.look_at(at(62));
        assert_eq!(throttle.left_out(), 0);
    }

    #[test]
    fn many_peers_cannot_either() {
        let throttle = Throttle::default();
        let written = (0..20_000).filter(|n| throttle.admits_at("open", peer(*n), at(1))).count();
        assert_eq!(written as u64, LINES_OF_KIND);
        assert!(throttle.counts.lock().0.len() <= PEERS_MAX + 1, "memory is bounded");
        assert_eq!(throttle.left_out(), 20_000 - LINES_OF_KIND);
        assert!(throttle.admits_at("tree", peer(0), at(1)), "another kind");
    }
}
