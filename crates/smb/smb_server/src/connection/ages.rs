//! How long a connection may be there that nobody is logged in over.

use std::time::Duration;

use crate::limits::{LOGIN_TIMEOUT, LOST_MAX, UNUSED_MAX};

/// How old a connection is, and for how long there has been no session on it.
#[derive(Default)]
pub(super) struct Ages {
    age: Duration,
    unused: Duration,
    /// Its client says that it has lost it.
    lost: bool,
}

/// What a connection has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    InTime,
    /// Nobody has logged in in time.
    NoLogin,
    /// Whoever was logged in has left, and nobody has come since.
    NoSession,
}

impl Ages {
    /// Its client says that it has lost it, and that there is no session on it any more.
    pub(super) fn is_lost(&mut self) {
        self.lost = true;
    }

    /// So much time has passed. `is_logged_in`: somebody has logged in at any time; `is_used`: somebody is.
    pub(super) fn pass(&mut self, time: Duration, is_logged_in: bool, is_used: bool) -> Age {
        self.age += time;
        (self.unused, self.lost) = match is_used {
            true => (Duration::ZERO, false),
            false => (self.unused + time, self.lost),
        };
        if !is_logged_in && self.age >= LOGIN_TIMEOUT {
            return Age::NoLogin;
        }
        // A login that never ends does not keep it: what has come of it counts.
        if is_logged_in && self.unused >= if self.lost { LOST_MAX } else { UNUSED_MAX } {
            return Age::NoSession;
        }
        Age::InTime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(10);

    /// For how long a connection stays.
    fn stays(ages: &mut Ages, is_logged_in: bool, is_used: bool) -> (Duration, Age) {
        let mut time = Duration::ZERO;
        loop {
            let age = ages.pass(STEP, is_logged_in, is_used);
            time += STEP;
            if age != Age::InTime || time > 1000 * STEP {
                return (time, age);
            }
        }
    }

    #[test]
    fn who_has_left_does_not_stay_for_ever() {
        assert_eq!(stays(&mut Ages::default(), false, false), (LOGIN_TIMEOUT, Age::NoLogin));
        let mut ages = Ages::default();
        assert_eq!(stays(&mut ages, true, true).1, Age::InTime);
        assert_eq!(stays(&mut ages, true, false), (UNUSED_MAX, Age::NoSession));
        // One that is lost goes sooner, but for another session on it.
        let mut ages = Ages::default();
        ages.is_lost();
        assert_eq!(stays(&mut ages, true, false), (LOST_MAX, Age::NoSession));
        let mut ages = Ages::default();
        ages.is_lost();
        assert_eq!(stays(&mut ages, true, true).1, Age::InTime);
        assert_eq!(stays(&mut ages, true, false), (UNUSED_MAX, Age::NoSession));
        // Who logs in again begins anew.
        let mut ages = Ages::default();
        assert_eq!(ages.pass(UNUSED_MAX - STEP, true, false), Age::InTime);
        assert_eq!(ages.pass(STEP, true, true), Age::InTime);
        assert_eq!(stays(&mut ages, true, false), (UNUSED_MAX, Age::NoSession));
    }
}
