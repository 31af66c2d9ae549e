//! Sessions of users that have logged in with a password.

use std::collections::BTreeMap;
use std::time::Duration;

use shard_runtime::Monotonic;
use smb_protocol::security::Sid;

use super::Hash;

/// A session ends after so long without a request.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// And after so long in any case.
const ABSOLUTE: Duration = Duration::from_secs(12 * 3600);
/// Most sessions of one user; the one that was not used for longest ends when another begins.
const OF_USER: usize = 32;
/// Most sessions.
const ALL: usize = 1024;

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) user: Sid,
    /// When the password that opened it was set.
    pub(super) password_set: u64,
    began: Monotonic,
    used: Monotonic,
}

impl Session {
    fn is_over(&self, now: Monotonic) -> bool {
        now.since(self.used) >= IDLE || now.since(self.began) >= ABSOLUTE
    }
}

/// All of them, by the hash of their secret.
#[derive(Debug, Default)]
pub(super) struct Sessions(BTreeMap<Hash, Session>);

impl Sessions {
    /// Begins one.
    pub(super) fn begin(&mut self, key: Hash, user: Sid, password_set: u64, now: Monotonic) {
        self.sweep(now, |_| true);
        if self.0.values().filter(|session| session.user == user).count() >= OF_USER {
            self.drop_oldest(|session| session.user == user);
        }
        if self.0.len() >= ALL {
            self.drop_oldest(|_| true);
        }
        self.0.insert(key, Session { user, password_set, began: now, used: now });
    }

    fn drop_oldest(&mut self, among: impl Fn(&Session) -> bool) {
        let oldest =
            self.0.iter().filter(|(_, session)| among(session)).min_by_key(|(_, session)| session.used);
        let oldest = oldest.map(|(key, _)| *key);
        oldest.and_then(|key| self.0.remove(&key));
    }

    /// The session of this secret, which is used now if it `uses` it; none when there is none, or its time is over.
    pub(super) fn shown(&mut self, key: &Hash, now: Monotonic, uses: bool) -> Option<Session> {
        if self.0.get(key)?.is_over(now) {
            self.0.remove(key);
            return None;
        }
        let session = self.0.get_mut(key)?;
        if uses {
            session.used = now;
        }
        Some(session.clone())
    }

    /// Ends one; whether it was there.
    pub(super) fn end(&mut self, key: &Hash) -> bool {
        self.0.remove(key).is_some()
    }

    /// Ends those whose time is over or that are not to be kept.
    pub(super) fn sweep(&mut self, now: Monotonic, mut keep: impl FnMut(&Session) -> bool) {
        self.0.retain(|_, session| !session.is_over(now) && keep(session));
    }

    /// The users of those whose time is not over, and how many each has.
    pub(super) fn of_users(&self, now: Monotonic) -> BTreeMap<Sid, u64> {
        let mut counts = BTreeMap::new();
        for session in self.0.values().filter(|session| !session.is_over(now)) {
            *counts.entry(session.user).or_default() += 1;
        }
        counts
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Monotonic {
        Monotonic(minutes * 60_000_000_000)
    }

    fn key(n: u32) -> Hash {
        super::super::hash(&n.to_string())
    }

    #[test]
    fn idle_ones_and_old_ones_end() {
        let mut sessions = Sessions::default();
        sessions.begin(key(1), Sid::SYSTEM, 0, at(0));
        sessions.begin(key(2), Sid::SYSTEM, 0, at(0));
        assert!(sessions.shown(&key(2), at(15), false).is_some());
        assert!(sessions.shown(&key(1), at(29), true).is_some());
        assert!(sessions.shown(&key(2), at(30), true).is_none(), "idle");
        for minute in (49..720).step_by(20) {
            assert!(sessions.shown(&key(1), at(minute), true).is_some(), "{minute}");
        }
        assert!(sessions.shown(&key(1), at(720), true).is_none(), "twelve hours");
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn memory_is_bounded_and_one_user_cannot_push_others_out() {
        let mut sessions = Sessions::default();
        sessions.begin(key(0), Sid::EVERYONE, 0, at(0));
        for n in 1..200 {
            sessions.begin(key(n), Sid::SYSTEM, 0, at(1));
        }
        assert_eq!(sessions.count(), OF_USER + 1);
        assert!(sessions.shown(&key(0), at(2), true).is_some());
    }
}
