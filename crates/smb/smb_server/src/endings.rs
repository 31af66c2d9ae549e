//! When an administrator has ended the sessions of which users: a login that was judged before and ends after that must not
//! become a session.
//!
//! ```text
//!   login            reads the time │ judges the account                 │ lists its session │ asks whether its user's were
//!   administrator                   │        changes it, notes the user  │                   │ ended; ends what is listed
//! ```
//! Whichever comes first, the session is seen by one of the two.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use smb_protocol::security::sid::Sid;

/// Counts endings; a user's entry says which was its last.
#[derive(Default)]
pub(crate) struct Endings(Mutex<(u64, BTreeMap<Sid, u64>)>);

impl Endings {
    /// How many there were: the time, for [`Endings::of_since`].
    pub(crate) fn now(&self) -> u64 {
        self.0.lock().0
    }

    /// The sessions of a user are about to be ended.
    pub(crate) fn note(&self, user: Sid) {
        let (count, users) = &mut *self.0.lock();
        *count += 1;
        users.insert(user, *count);
    }

    /// Whether the sessions of a user were ended since then.
    pub(crate) fn of_since(&self, user: Sid, then: u64) -> bool {
        self.0.lock().1.get(&user).is_some_and(|last| *last > then)
    }
}
