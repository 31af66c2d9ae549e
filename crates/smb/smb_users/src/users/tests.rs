//! Users over their life, with real files and authentications.

use std::sync::atomic::{AtomicU64, Ordering};

use shard_runtime::{Monotonic, SeededEntropy, WallTime};
use smb_auth::ntlm::client::{Credentials, Randomness};
use smb_auth::{
    Acceptor, AuthError, Authenticated, Identity, Initiator, NtlmAcceptor, NtlmServer, Step,
    initiator::Answer,
};
use smb_protocol::FileTime;

use super::*;

#[derive(Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed) * 1_000_000_000)
    }
    fn wall(&self) -> WallTime {
        WallTime(1_700_000_000_000_000_000 + self.now().0)
    }
}

struct Node {
    dir: tempfile::TempDir,
    clock: Arc<TestClock>,
    users: Users,
}

fn open(dir: &tempfile::TempDir, clock: &Arc<TestClock>) -> Result<Users, UsersError> {
    let files = Files::in_directory(dir.path());
    Users::open(files, Policy::default(), Arc::clone(clock) as _, Arc::new(SeededEntropy::new(5)))
}

fn node() -> Node {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let users = open(&dir, &clock).unwrap();
    Node { dir, clock, users }
}

fn bob(password: &str) -> NewUser {
    NewUser {
        name: "Bob".into(),
        full_name: "Robert".into(),
        comment: String::new(),
        disabled: false,
        groups: Vec::new(),
        secret: Secret::Password(password.into()),
    }
}

fn log_on(users: &Users, name: &str, password: &str) -> Result<Authenticated, AuthError> {
    let server = NtlmServer { computer: "SERVER".into(), domain: "SERVER".into(), ..NtlmServer::default() };
    let mut acceptor =
        Acceptor::new(vec![Box::new(NtlmAcceptor::new(Arc::new(server), [1; 8], FileTime(1 << 56)))]);
    let credentials = Credentials {
        user: name.into(),
        domain: "WORKGROUP".into(),
        nt_hash: NtHash::of_password(password),
        workstation: "CLIENT".into(),
        target_name: "cifs/server".into(),
    };
    let random = Randomness { challenge: [2; 8], session_key: [3; 16], now: FileTime(0) };
    let mut client = Initiator::new(credentials, random, None);
    let mut token = client.first();
    loop {
        match acceptor.step(&token, users) {
            Step::Continue(answer) => match client.step(&answer)? {
                Answer::Continue(next) => token = next,
                Answer::Done => return Err(AuthError::OutOfTurn),
            },
            Step::Done(_, who) => return Ok(who),
            Step::Failed(failure) => return Err(failure.error),
        }
    }
}

#[test]
fn a_users_life() {
    let Node { dir, clock, users } = node();
    let made = users.create_user(bob("correct horse")).unwrap();
    users.change(|all| all.add_member("Administrators", made.sid)).unwrap();
    let who = log_on(&users, "bOB", "correct horse").unwrap();
    assert_eq!(
        who.identity,
        Identity::User { name: "Bob".into(), domain: "WORKGROUP".into(), sid: made.sid }
    );
    assert!(users.token(made.sid).unwrap().is_administrator());
    assert_eq!(log_on(&users, "Bob", "wrong horse"), Err(AuthError::WrongPassword));
    assert_eq!(log_on(&users, "Alice", "wrong horse"), Err(AuthError::UnknownUser));

    // All of it is there after a restart, under the same SIDs.
    drop(users);
    let users = open(&dir, &clock).unwrap();
    assert_eq!(users.snapshot().user("bob"), Some(&made));
    assert!(users.token(made.sid).unwrap().is_administrator());
    users.set_password(made.sid, &Secret::Password("battery staple".into())).unwrap();
    assert_eq!(log_on(&users, "Bob", "correct horse"), Err(AuthError::WrongPassword));
    log_on(&users, "Bob", "battery staple").unwrap();

    let change = UserChange { disabled: Some(true), name: Some("Rob".into()), ..UserChange::default() };
    users.change_user(made.sid, &change).unwrap();
    assert_eq!(log_on(&users, "Rob", "battery staple"), Err(AuthError::Account(AccountState::Disabled)));
    users.remove_user(made.sid).unwrap();
    assert_eq!(log_on(&users, "Rob", "battery staple"), Err(AuthError::UnknownUser));
    assert!(users.token(made.sid).is_none());
    assert!(users.snapshot().group("Administrators").unwrap().members.is_empty());
}

#[test]
fn guessing_locks_out_for_a_time() {
    let Node { clock, users, .. } = node();
    let sid = users.create_user(bob("correct horse")).unwrap().sid;
    let locked = Err(AuthError::Account(AccountState::LockedOut));
    for _ in 0..10 {
        assert_eq!(users.locked_for(sid), None);
        assert_eq!(log_on(&users, "Bob", "guess"), Err(AuthError::WrongPassword));
    }
    // The right one does not help, and says nothing about itself.
    assert_eq!(log_on(&users, "Bob", "correct horse"), locked);
    assert_eq!(log_on(&users, "Bob", "guess"), locked);
    assert_eq!(users.locked_for(sid), Some(Duration::from_secs(600)));
    clock.0.store(600, Ordering::Relaxed);
    log_on(&users, "Bob", "correct horse").unwrap();
    for _ in 0..10 {
        let _ = log_on(&users, "Bob", "guess");
    }
    assert_eq!(log_on(&users, "Bob", "correct horse"), locked);
    users.unlock("bob").unwrap();
    log_on(&users, "Bob", "correct horse").unwrap();
    let strict = Lockout { failures: 1, ..Lockout::default() };
    users.set_policy(Policy { lockout: strict, ..Policy::default() });
    let _ = log_on(&users, "Bob", "guess");
    assert_eq!(log_on(&users, "Bob", "correct horse"), locked);
    users.set_password(sid, &Secret::Password("battery staple".into())).unwrap();
    log_on(&users, "Bob", "battery staple").unwrap();
}

#[test]
fn a_user_changes_the_password() {
    let Node { users, .. } = node();
    users.create_user(bob("correct horse")).unwrap();
    let new = Secret::Password("battery staple".into());
    assert!(matches!(users.change_password("Alice", "x", &new), Err(UsersError::Refused)));
    assert!(matches!(users.change_password("Bob", "x", &new), Err(UsersError::Refused)));
    let short = Secret::Password("short".into());
    assert!(matches!(users.change_password("Bob", "correct horse", &short), Err(UsersError::Password(_))));
    users.change_password("bob", "correct horse", &new).unwrap();
    log_on(&users, "Bob", "battery staple").unwrap();
    // Trying old passwords is guessing.
    for _ in 0..10 {
        let _ = users.change_password("Bob", "x", &new);
    }
    assert!(matches!(users.change_password("Bob", "battery staple", &new), Err(UsersError::Refused)));
}

/// Nodes tell by it which password another one knows, in seconds, and their clocks differ.
#[test]
fn a_password_is_later_than_the_one_before() {
    let Node { clock, users, .. } = node();
    clock.0.store(300, Ordering::Relaxed);
    let user = users.create_user(bob("correct horse")).unwrap();
    for seconds in [300, 10] {
        clock.0.store(seconds, Ordering::Relaxed);
        let before = users.snapshot().user_by_sid(user.sid).unwrap().password_set / 1_000_000_000;
        users.set_password(user.sid, &Secret::Password("battery staple".into())).unwrap();
        let after = users.snapshot().user_by_sid(user.sid).unwrap().password_set / 1_000_000_000;
        assert!(after > before, "{before} {after}");
    }
}

#[test]
fn passwords_that_cannot_be() {
    let Node { users, .. } = node();
    for bad in ["", "1234567", "with\0a zero in it", "x".repeat(257).as_str()] {
        assert!(matches!(users.create_user(bob(bad)), Err(UsersError::Password(_))), "{}", bad.len());
    }
    users.set_policy(Policy { min_password_chars: 0, ..Policy::default() });
    assert!(matches!(users.create_user(bob("")), Err(UsersError::Password(_))), "an empty one never");
    let hash = NewUser { secret: Secret::Hash(NtHash::of_password("imported")), ..bob("") };
    users.create_user(hash).unwrap();
    log_on(&users, "Bob", "imported").unwrap();
}

#[test]
fn what_cannot_be_written_does_not_take_effect() {
    let Node { dir, clock, users } = node();
    let bob = users.create_user(bob("correct horse")).unwrap().sid;
    // A directory is in the way of the file that is written beside.
    let aside = dir.path().join("users.db.new");
    std::fs::create_dir(&aside).unwrap();
    assert!(matches!(users.remove_user(bob), Err(UsersError::Io { .. })));
    assert!(users.snapshot().user("Bob").is_some());
    std::fs::remove_dir(&aside).unwrap();
    users.change(|all| all.add_group("staff", "").map(drop)).unwrap();
    users.change(|all| all.change_group("staff", None, Some("here")).map(drop)).unwrap();
    assert_eq!(*open(&dir, &clock).unwrap().snapshot(), *users.snapshot());
    users.change(|all| all.remove_group("staff")).unwrap();
    assert!(matches!(
        users.change(|all| all.remove_member("Users", Sid::SYSTEM)),
        Err(UsersError::NotMember { .. })
    ));
}

#[test]
fn machines_differ() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::<TestClock>::default());
    let files = Files::in_directory(dir.path());
    let other = Users::open(files, Policy::default(), clock, Arc::new(SeededEntropy::new(6))).unwrap();
    assert_ne!(other.snapshot().machine(), node().users.snapshot().machine());
    assert!(format!("{other:?}").contains("S-1-5-21-"));
}
