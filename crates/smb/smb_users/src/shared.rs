//! Users that several nodes have in common: the database as one sealed value in a place that all of them reach.
//!
//! The file of each node, sealed with its own key, has what was known last: it is read when the place cannot be.

use std::sync::Arc;

use crate::directory::Directory;
use crate::error::UsersError;
use crate::format::{self, SealingKey};

/// The place. Its methods block, inside of [`SharedUsers::blocking`] only.
pub trait SharedUsers: Send + Sync + 'static {
    /// What is there, if that is not what was read or written here last; none when it is, or when there is nothing.
    ///
    /// # Errors
    /// Why it cannot be read, for people.
    fn news(&self) -> Result<Option<Vec<u8>>, String>;
    /// What was read last could not be taken up: it is read again, and never replaced unseen.
    fn forget(&self);
    /// Whether there was nothing when it was looked at last.
    fn is_empty(&self) -> bool;
    /// Replaces what is there, if that is what was read or written here last: false when it is not. Durable for all nodes when it returns.
    ///
    /// # Errors
    /// Why not, for people; whether it was replaced may be unknown, which [`Self::news`] tells later.
    fn replace(&self, sealed: Vec<u8>) -> Result<bool, String>;
    /// Runs this where it may block.
    fn blocking(&self, work: &mut dyn FnMut());
}

/// The place, and the key that all nodes have.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) place: Arc<dyn SharedUsers>,
    pub(crate) key: SealingKey,
}

impl Common {
    /// What others have changed, if they have.
    pub(crate) fn news(&self) -> Result<Option<Directory>, UsersError> {
        let Some(sealed) = self.place.news().map_err(UsersError::Shared)? else { return Ok(None) };
        format::open(&sealed, &self.key).map(Some).map_err(|reason| {
            self.place.forget();
            UsersError::Shared(format!("what is there cannot be opened: {reason}"))
        })
    }

    /// Makes this what all nodes have. False: somebody else has changed what they have.
    pub(crate) fn replace(&self, directory: &Directory, nonce: [u8; 12]) -> Result<bool, UsersError> {
        let sealed = format::seal(directory, &self.key, nonce).ok_or(UsersError::Full("accounts"))?;
        self.place.replace(sealed).map_err(UsersError::Shared)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use shard_runtime::{SystemClock, SystemEntropy};

    use super::*;
    use crate::{Files, NewUser, Policy, Secret, Users};

    #[derive(Default)]
    struct There(Mutex<(u64, Vec<u8>)>);

    struct Place {
        there: Arc<There>,
        known: Mutex<u64>,
        away: Mutex<bool>,
        /// What another node does just before this one writes.
        overtaken_by: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl SharedUsers for Place {
        fn news(&self) -> Result<Option<Vec<u8>>, String> {
            if *self.away.lock().expect("a lock") {
                return Err("away".into());
            }
            let there = self.there.0.lock().expect("a lock");
            let mut known = self.known.lock().expect("a lock");
            if *known == there.0 {
                return Ok(None);
            }
            *known = there.0;
            Ok(Some(there.1.clone()))
        }

        fn forget(&self) {
            *self.known.lock().expect("a lock") = u64::MAX;
        }

        fn is_empty(&self) -> bool {
            *self.known.lock().expect("a lock") == 0
        }

        fn replace(&self, sealed: Vec<u8>) -> Result<bool, String> {
            let overtaken = self.overtaken_by.lock().expect("a lock").take();
            if let Some(other) = overtaken {
                other();
            }
            let mut there = self.there.0.lock().expect("a lock");
            let mut known = self.known.lock().expect("a lock");
            if *known != there.0 {
                return Ok(false);
            }
            *there = (there.0 + 1, sealed);
            *known = there.0;
            Ok(true)
        }

        fn blocking(&self, work: &mut dyn FnMut()) {
            work();
        }
    }

    fn node(dir: &std::path::Path, there: &Arc<There>) -> (Users, Arc<Place>) {
        let files = Files::in_directory(dir);
        let clock = Arc::new(SystemClock::new());
        let users = Users::open(files, Policy::default(), clock, Arc::new(SystemEntropy)).expect("opened");
        let place = Arc::new(Place {
            there: there.clone(),
            known: Mutex::new(0),
            away: Mutex::new(false),
            overtaken_by: Mutex::default(),
        });
        users.share(SealingKey::new([1; 8], [7; 32]), place.clone());
        (users, place)
    }

    fn user(name: &str) -> NewUser {
        NewUser {
            name: name.into(),
            full_name: String::new(),
            comment: String::new(),
            disabled: false,
            groups: Vec::new(),
            secret: Secret::Password("a long password".into()),
        }
    }

    #[test]
    fn all_nodes_have_the_users_and_the_machine_of_the_first() {
        let dirs = [tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir")];
        let there = Arc::new(There::default());
        let (first, _) = node(dirs[0].path(), &there);
        first.create_user(user("before")).expect("made");
        assert!(!first.catch_up().expect("it gives what it has"));
        let (second, place) = node(dirs[1].path(), &there);
        assert_ne!(second.snapshot().machine(), first.snapshot().machine());
        assert!(second.catch_up().expect("readable"));
        assert_eq!(second.snapshot().machine(), first.snapshot().machine());
        assert!(second.snapshot().user("before").is_some());
        // A change by what another node has changed meanwhile.
        second.create_user(user("second")).expect("made");
        first.create_user(user("first")).expect("made");
        assert!(first.snapshot().user("second").is_some());
        assert!(second.catch_up().expect("readable") && second.snapshot().user("first").is_some());
        // What nobody can be told of is not changed.
        *place.away.lock().expect("a lock") = true;
        assert!(matches!(second.create_user(user("away")), Err(UsersError::Shared(_))));
        assert!(second.snapshot().user("away").is_none());
        drop(second);
        let (again, place) = node(dirs[1].path(), &there);
        *place.away.lock().expect("a lock") = true;
        assert!(again.catch_up().is_err());
        assert!(again.snapshot().user("first").is_some(), "what was known last");
        // What cannot be opened is not replaced by what a node happens to know.
        *there.0.lock().expect("a lock") = (99, b"nothing that was sealed".to_vec());
        for _ in 0..2 {
            assert!(matches!(first.create_user(user("more")), Err(UsersError::Shared(_))));
        }
        assert_eq!(there.0.lock().expect("a lock").0, 99);
    }

    #[test]
    fn two_nodes_that_change_users_at_the_same_time_both_do() {
        let dirs = [tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir")];
        let there = Arc::new(There::default());
        let (first, place) = node(dirs[0].path(), &there);
        first.catch_up().expect("it gives what it has");
        let (second, _) = node(dirs[1].path(), &there);
        second.catch_up().expect("readable");
        let second = Arc::new(second);
        let other = second.clone();
        *place.overtaken_by.lock().expect("a lock") =
            Some(Box::new(move || drop(other.create_user(user("theirs")).expect("made"))));
        first.create_user(user("ours")).expect("made on what the other one has made");
        assert!(first.snapshot().user("theirs").is_some() && first.snapshot().user("ours").is_some());
        // Of two that make the same, one is told that it is there.
        let other = second.clone();
        *place.overtaken_by.lock().expect("a lock") =
            Some(Box::new(move || drop(other.create_user(user("same")).expect("made"))));
        assert!(matches!(first.create_user(user("same")), Err(UsersError::Exists(_))));
    }

    #[test]
    fn a_change_is_not_made_to_another_one_who_has_the_name_meanwhile() {
        let dirs = [tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir")];
        let there = Arc::new(There::default());
        let (first, place) = node(dirs[0].path(), &there);
        let bob = first.create_user(user("bob")).expect("made").sid;
        let staff = first.change(|all| all.add_group("staff", "").map(|group| group.sid)).expect("made");
        let (second, _) = node(dirs[1].path(), &there);
        second.catch_up().expect("readable");
        let second = Arc::new(second);
        // Before each of these changes another node takes the name away and gives it to another user, or group.
        let overtake = |with: fn(&Users)| {
            let other = second.clone();
            *place.overtaken_by.lock().expect("a lock") = Some(Box::new(move || with(&other)));
        };
        overtake(|other| {
            let bob = other.snapshot().user("bob").expect("there").sid;
            other.remove_user(bob).expect("there");
            drop(other.create_user(user("bob")).expect("another one"));
        });
        assert!(matches!(first.remove_user(bob), Err(UsersError::NoPrincipal(_))));
        overtake(|other| {
            let swap = |all: &mut Directory| {
                all.change_group("staff", Some("former"), None)?;
                all.add_group("staff", "").map(drop)
            };
            other.change(swap).expect("changed");
        });
        let bob = first.snapshot().user("bob").expect("the other one").sid;
        let join = |all: &mut Directory| {
            let name = all.name_of(staff)?;
            all.add_member(&name, bob)
        };
        first.change(join).expect("changed");
        let now = first.snapshot();
        assert_eq!(now.group("former").expect("renamed").members, [bob]);
        assert!(now.group("staff").expect("another one").members.is_empty());
    }
}
