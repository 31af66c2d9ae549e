//! Wrong passwords, counted for each address. Those of each user are counted by `smb_users`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use shard_runtime::Monotonic;

use crate::network::peer;

/// Wrong passwords of an address after which it has to wait: more than one person mistypes, as an office may share one.
const FAILURES: u32 = 20;
/// How long it waits, counted from the last; and after so long a quiet time the count begins again.
const WINDOW: Duration = Duration::from_secs(600);
/// Most addresses that are remembered. Who has more than these can guess on, but each user is locked out by itself.
const ADDRESSES: usize = 4096;

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Guesses(BTreeMap<IpAddr, (u32, Monotonic)>);

impl Guesses {
    /// How long nobody from this address is listened to; none when somebody is.
    pub(super) fn locked_for(&self, from: IpAddr, now: Monotonic) -> Option<Duration> {
        let (_, last) = self.0.get(&peer(from)).filter(|(failures, _)| *failures >= FAILURES)?;
        WINDOW.checked_sub(now.since(*last)).filter(|left| !left.is_zero())
    }

    /// Counts a wrong one.
    pub(super) fn wrong(&mut self, from: IpAddr, now: Monotonic) {
        let from = peer(from);
        if !self.0.contains_key(&from) && self.0.len() >= ADDRESSES {
            self.0.retain(|_, (_, last)| now.since(*last) < WINDOW);
        }
        if !self.0.contains_key(&from) && self.0.len() >= ADDRESSES {
            // The one that has been quiet for longest makes room.
            let oldest = self.0.iter().min_by_key(|(_, (_, last))| *last).map(|(address, _)| *address);
            oldest.and_then(|address| self.0.remove(&address));
        }
        let (failures, last) = self.0.entry(from).or_insert((0, now));
        if now.since(*last) >= WINDOW {
            *failures = 0;
        }
        *failures = failures.saturating_add(1);
        *last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn an_address_that_guesses_waits_and_others_do_not() {
        let mut guesses = Guesses::default();
        let bad: IpAddr = "192.0.2.1".parse().expect("an address");
        for second in 0..u64::from(FAILURES) {
            assert_eq!(guesses.locked_for(bad, at(second)), None);
            guesses.wrong(bad, at(second));
        }
        assert!(guesses.locked_for(bad, at(20)).is_some());
        assert_eq!(guesses.locked_for("192.0.2.2".parse().expect("an address"), at(20)), None);
        assert_eq!(guesses.locked_for(bad, at(19 + 600)), None);
        guesses.wrong(bad, at(19 + 600));
        assert_eq!(guesses.locked_for(bad, at(19 + 600)), None, "the count has begun again");
    }

    #[test]
    fn memory_is_bounded() {
        let mut guesses = Guesses::default();
        for n in 0..3 * ADDRESSES as u64 {
            guesses.wrong(IpAddr::V4((n as u32).into()), at(n / 100));
        }
        assert!(guesses.0.len() <= ADDRESSES);
    }
}
