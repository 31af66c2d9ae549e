//! Wrong passwords, counted for each user.

use std::collections::BTreeMap;
use std::time::Duration;

use shard_runtime::Monotonic;
use smb_protocol::security::sid::Sid;

/// When an account is locked, and for how long. The defaults are those of Windows 11.
///
/// Whoever can reach the server can lock an account out by guessing; without a limit he could guess the password. The
/// lock ends by itself, so he must go on doing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// Wrong passwords one after another that lock the account; 0 locks it never.
    pub failures: u32,
    /// After so long without a wrong password the count begins again.
    pub window: Duration,
    /// How long it stays locked.
    pub locked_for: Duration,
}

impl Default for Lockout {
    fn default() -> Self {
        let ten_minutes = Duration::from_secs(600);
        Self { failures: 10, window: ten_minutes, locked_for: ten_minutes }
    }
}

/// Counts. Only accounts that exist have one, so there are never more than accounts.
#[derive(Debug, Default)]
pub(crate) struct Tallies(BTreeMap<Sid, Tally>);

#[derive(Debug)]
struct Tally {
    failures: u32,
    /// When the last of them was.
    last: Monotonic,
    locked: bool,
}

impl Tallies {
    /// How long the account stays locked; `None` when it is not.
    pub(crate) fn locked_for(&self, user: Sid, rule: &Lockout, now: Monotonic) -> Option<Duration> {
        let tally = self.0.get(&user).filter(|tally| tally.locked && rule.failures > 0)?;
        rule.locked_for.checked_sub(now.since(tally.last)).filter(|left| !left.is_zero())
    }

    /// Counts an answer; whether the account is locked from now on.
    pub(crate) fn judged(&mut self, user: Sid, right: bool, rule: &Lockout, now: Monotonic) -> bool {
        if right || rule.failures == 0 {
            self.0.remove(&user);
            return false;
        }
        let tally = self.0.entry(user).or_insert(Tally { failures: 0, last: now, locked: false });
        // What came to an end, a lock or a quiet time, leaves nothing.
        if tally.locked || now.since(tally.last) > rule.window {
            *tally = Tally { failures: 0, last: now, locked: false };
        }
        tally.failures += 1;
        tally.last = now;
        tally.locked = tally.failures >= rule.failures;
        tally.locked
    }

    /// Forgets an account's count: it is unlocked, or gone.
    pub(crate) fn forget(&mut self, user: Sid) {
        self.0.remove(&user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Lockout =
        Lockout { failures: 3, window: Duration::from_secs(60), locked_for: Duration::from_secs(600) };

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn three_within_the_window_lock_for_a_time() {
        let mut tallies = Tallies::default();
        let user = Sid::SYSTEM;
        for second in [0, 50] {
            assert!(!tallies.judged(user, false, &RULE, at(second)));
            assert_eq!(tallies.locked_for(user, &RULE, at(second)), None);
        }
        assert!(tallies.judged(user, false, &RULE, at(100)), "counted from the last one, not from the first");
        assert_eq!(tallies.locked_for(user, &RULE, at(100)), Some(RULE.locked_for));
        assert_eq!(tallies.locked_for(user, &RULE, at(699)), Some(Duration::from_secs(1)));
        assert_eq!(tallies.locked_for(user, &RULE, at(700)), None);
        assert_eq!(tallies.locked_for(Sid::EVERYONE, &RULE, at(100)), None);
        // After the lock the count begins again.
        assert!(!tallies.judged(user, false, &RULE, at(700)));
        assert!(!tallies.judged(user, false, &RULE, at(701)));
        assert!(tallies.judged(user, false, &RULE, at(702)));
        tallies.forget(user);
        assert_eq!(tallies.locked_for(user, &RULE, at(703)), None);
    }

    #[test]
    fn a_right_one_or_a_quiet_time_begins_again() {
        let mut tallies = Tallies::default();
        let user = Sid::SYSTEM;
        for (second, right) in
            [(0, false), (1, false), (2, true), (3, false), (4, false), (65, false), (66, false)]
        {
            assert!(!tallies.judged(user, right, &RULE, at(second)), "{second}");
        }
        assert!(tallies.judged(user, false, &RULE, at(67)));
        let never = Lockout { failures: 0, ..RULE };
        assert_eq!(tallies.locked_for(user, &never, at(67)), None);
        for second in 68..100 {
            assert!(!tallies.judged(user, false, &never, at(second)));
        }
    }
}
