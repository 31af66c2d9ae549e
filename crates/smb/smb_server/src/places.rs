//! What of the tables that all users share each of them may take.
//!
//! Users are told apart by their SIDs; all who have not said who they are have one SID, and so count as one user. A user may take one
//! more entry as long as
//!
//! ```text
//!   it holds fewer than few, and one is free              few = a 4096th of the table, at least 1
//!   or it holds less than a quarter of the table,
//!      and less than is free above the reserve            reserve = a 16th of the table
//! ```
//! Of connections few is 16, or a 64th where there are not a thousand, and the reserve a quarter: there are not many of them, and one
//! host has several ways, and several that died with it and are not known to be dead yet.
//!
//! What follows from that:
//! * One user alone never holds more than a quarter, and never keeps another one from its first entries.
//! * The fuller a table is, the less somebody must hold to get more: whoever holds most is refused first. A user that holds no more than
//!   few is refused by a full table only.
//! * The reserve goes to users who hold fewer than few, so to fill the table takes 256 users who act together (of connections, 16 at the
//!   least). Of a table that some have filled as far as they can, each newcomer gets few.
//! * A connection that only carried a session which its client has lost gives its place to the one over which the client comes back, where
//!   there is no other.
//!
//! What a restart or a takeover brings back was promised to its client: it counts, and is never refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::Monotonic;
use smb_protocol::security::sid::Sid;

use crate::limits::{MAX_CONNECTIONS, MAX_OPENS, MAX_SESSIONS, MAX_TREES, MAX_WAITING};

/// One user holds no more than one in so many entries.
const SHARE: usize = 4;
/// What of a table only those get who hold few, and how many are few.
#[derive(Clone, Copy)]
struct Kept {
    /// One in so many entries.
    reserve: usize,
    /// One in so many entries…
    few: usize,
    /// … or so many, …
    at_least: usize,
    /// … as long as that is no more than one in so many.
    at_most: usize,
}

/// Of tables with many entries.
const OF_MANY: Kept = Kept { reserve: 16, few: 4096, at_least: 1, at_most: 1 };
/// Of connections: a host has eight ways, and eight that have died.
const OF_CONNECTIONS: Kept = Kept { reserve: 4, few: 4096, at_least: 16, at_most: 64 };

impl Kept {
    fn few_of(self, limit: usize) -> usize {
        (limit / self.few).max(self.at_least.min(limit / self.at_most)).max(1)
    }
}

/// A user's refusals are told once in this time.
const TELL: Duration = Duration::from_secs(60);
/// Users of whom it is known when their refusals were told last; those of further ones are not told.
const TOLD_MAX: usize = 1024;

/// How many entries there are, and how many each user has.
#[derive(Debug, Default)]
struct Count {
    taken: usize,
    /// Invariant: the sum is `taken`, and none is 0.
    of: BTreeMap<Sid, usize>,
    told: BTreeMap<Sid, Monotonic>,
}

impl Count {
    fn take(&mut self, user: Sid) {
        self.taken += 1;
        *self.of.entry(user).or_default() += 1;
    }

    fn give_back(&mut self, user: Sid) {
        let Some(count) = self.of.get_mut(&user) else { return };
        *count -= 1;
        self.taken -= 1;
        if *count == 0 {
            self.of.remove(&user);
        }
    }

    fn held(&self, user: Sid) -> usize {
        self.of.get(&user).copied().unwrap_or(0)
    }
}

/// Whether somebody who holds `mine` of a table in which `taken` of `limit` entries are taken may have one more.
fn admits(kept: Kept, limit: usize, taken: usize, mine: usize) -> bool {
    let free = limit.saturating_sub(taken);
    let most = (limit / SHARE).min(free.saturating_sub(limit / kept.reserve));
    free > 0 && (mine < kept.few_of(limit) || mine < most)
}

/// The entries of a table.
pub(crate) struct Places {
    /// What they are, for the log.
    pub(crate) what: &'static str,
    pub(crate) limit: usize,
    kept: Kept,
    count: Arc<Mutex<Count>>,
}

/// An entry that a user has; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    count: Arc<Mutex<Count>>,
    pub(crate) user: Sid,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.count.lock().give_back(self.user);
    }
}

impl Places {
    fn new(what: &'static str, limit: usize) -> Self {
        Self { what, limit, kept: OF_MANY, count: Arc::default() }
    }

    /// Connections.
    fn of_connections(limit: usize) -> Self {
        Self { kept: OF_CONNECTIONS, ..Self::new("connections", limit) }
    }

    fn place(&self, user: Sid) -> Place {
        Place { count: Arc::clone(&self.count), user }
    }

    /// One more for a user, in a table of `limit` at the most. `gives_up`: it stands for one that the user has, and which goes at once.
    pub(crate) fn take(&self, user: Sid, limit: usize, gives_up: bool) -> Option<Place> {
        let mut count = self.count.lock();
        let (taken, mine) = (count.taken, count.held(user));
        let own = usize::from(gives_up).min(mine);
        if !admits(self.kept, limit, taken - own, mine - own) {
            return None;
        }
        count.take(user);
        drop(count);
        Some(self.place(user))
    }

    /// One more for a user to whom it was promised.
    pub(crate) fn take_anyway(&self, user: Sid) -> Place {
        self.count.lock().take(user);
        self.place(user)
    }

    /// Whether it is time to tell that a user is refused; with how many it holds, and how many are taken.
    pub(crate) fn may_tell(&self, user: Sid, now: Monotonic) -> Option<(usize, usize)> {
        let mut count = self.count.lock();
        count.told.retain(|_, told| now.since(*told) < TELL);
        if count.told.contains_key(&user) || count.told.len() >= TOLD_MAX {
            return None;
        }
        count.told.insert(user, now);
        Some((count.held(user), count.taken))
    }

    /// How many are taken, and how many of them by a user.
    #[cfg(test)]
    pub(crate) fn taken(&self, user: Sid) -> (usize, usize) {
        let count = self.count.lock();
        assert_eq!(count.taken, count.of.values().sum::<usize>(), "{}", self.what);
        (count.taken, count.held(user))
    }
}

/// The tables that all users share.
pub(crate) struct Tables {
    pub(crate) sessions: Places,
    pub(crate) trees: Places,
    pub(crate) opens: Places,
    /// Locks and notifications that are waited for.
    pub(crate) waiting: Places,
    pub(crate) connections: Places,
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            sessions: Places::new("sessions", MAX_SESSIONS),
            trees: Places::new("tree connects", MAX_TREES),
            opens: Places::new("opens", MAX_OPENS),
            waiting: Places::new("waiting requests", MAX_WAITING),
            connections: Places::of_connections(MAX_CONNECTIONS),
        }
    }
}

impl Tables {
    /// All tables this small.
    #[cfg(test)]
    pub(crate) fn of(limit: usize) -> Self {
        let small = |what| Places::new(what, limit);
        Self {
            sessions: small("sessions"),
            trees: small("tree connects"),
            opens: small("opens"),
            waiting: small("waiting requests"),
            connections: Places::of_connections(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    /// Takes all that a user gets.
    fn all(places: &Places, user: u32) -> Vec<Place> {
        std::iter::from_fn(|| places.take(sid(user), places.limit, false)).collect()
    }

    #[test]
    fn one_user_gets_a_quarter_and_others_their_first() {
        for limit in [64, 4096, MAX_SESSIONS, MAX_OPENS] {
            let places = Places::new("things", limit);
            let first = all(&places, 1);
            assert_eq!(first.len(), limit / SHARE, "a quarter of {limit}");
            assert_eq!(
                all(&places, 2).len(),
                limit / SHARE,
                "others as much, as long as the table is not full"
            );
            assert_eq!(
                places.taken(sid(1)),
                (limit / SHARE, limit / SHARE),
                "what was dropped is given back"
            );
        }
    }

    #[test]
    fn who_holds_most_is_refused_first() {
        let places = Places::new("things", 65_536);
        let mut many = all(&places, 1);
        let mut others = Vec::new();
        for user in 2..5 {
            others.extend(all(&places, user));
        }
        many.pop();
        assert!(places.take(sid(1), 65_536, false).is_none(), "it holds more than is free");
        let little = places.take(sid(9), 65_536, false);
        assert!(little.is_some(), "who holds nothing gets something");
    }

    #[test]
    fn users_in_league_leave_the_reserve() {
        let places = Places::new("things", 65_536);
        let few = OF_MANY.few_of(65_536);
        let mut held = Vec::new();
        for user in 0..255 {
            held.extend(all(&places, user));
            // Those after them still get their first ones.
            let newcomer = all(&places, 100_000).len();
            assert!(newcomer >= few, "{newcomer} after {user}");
        }
    }

    #[test]
    fn what_was_promised_is_never_refused() {
        let places = Places::new("things", 64);
        let back: Vec<_> = (0..100).map(|_| places.take_anyway(sid(1))).collect();
        assert_eq!(places.taken(sid(1)), (100, 100));
        assert!(places.take(sid(2), 64, false).is_none(), "nothing is free");
        drop(back);
        assert_eq!(places.taken(sid(1)), (0, 0));
        assert!(places.take(sid(2), 64, false).is_some());
    }

    #[test]
    fn who_gives_one_up_may_have_one() {
        let places = Places::new("things", 64);
        let held = all(&places, 1);
        assert!(places.take(sid(1), 64, false).is_none());
        assert!(places.take(sid(1), 64, true).is_some());
        assert!(places.take(sid(2), 64, true).is_some(), "of nothing it gives nothing up");
        drop(held);
    }

    #[test]
    fn a_user_is_told_of_once_in_a_minute() {
        let places = Places::new("things", 64);
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        assert!(places.may_tell(sid(1), at(1)).is_some());
        assert!(places.may_tell(sid(1), at(60)).is_none());
        assert!(places.may_tell(sid(2), at(60)).is_some(), "another user");
        assert!(places.may_tell(sid(1), at(61)).is_some());
        for user in 0..5000 {
            let _ = places.may_tell(sid(user), at(62));
        }
        assert!(places.count.lock().told.len() <= TOLD_MAX);
    }
}
