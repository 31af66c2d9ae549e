//! Who is let in, and who is not any more.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderValue;
use shard_runtime::{SystemClock, SystemEntropy, WallTime};
use smb_protocol::security::Sid;
use smb_users::{Files, NewUser, Policy, Secret, UserChange};

use super::*;

/// A clock that is moved by hand.
struct Moved(AtomicU64);

impl Clock for Moved {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime(1_800_000_000_000_000_000 + self.0.load(Ordering::Relaxed))
    }
}

struct World {
    access: Access,
    users: Users,
    config: HttpConfig,
    clock: Arc<Moved>,
    _dir: tempfile::TempDir,
}

const PASSWORD: &str = "correct horse";

fn world() -> World {
    let dir = tempfile::tempdir().expect("temp dir");
    let clock = Arc::new(Moved(AtomicU64::new(1)));
    let files = Files::in_directory(dir.path());
    let real: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let users = Users::open(files, Policy::default(), real, Arc::new(SystemEntropy)).expect("opened");
    for name in ["alice", "bob", "carol", "dave"] {
        let secret = Secret::Password(PASSWORD.into());
        let new = NewUser {
            name: name.into(),
            full_name: String::new(),
            comment: String::new(),
            disabled: false,
            groups: Vec::new(),
            secret,
        };
        users.create_user(new).expect("made");
    }
    users.change(|all| all.add_group("staff", "").map(drop)).expect("made");
    users.change(|all| all.add_group("watchers", "").map(drop)).expect("made");
    for (group, member) in [("Administrators", "alice"), ("staff", "bob"), ("watchers", "carol")] {
        let sid = users.snapshot().user(member).expect("there").sid;
        users.change(|all| all.add_member(group, sid)).expect("added");
    }
    let directory = users.snapshot();
    let group = |name: &str| directory.group(name).expect("there").sid.to_string();
    let dave = directory.user("dave").expect("there").sid.to_string();
    let config = HttpConfig {
        operators: vec![group("staff"), "dave".into(), dave],
        viewers: vec![group("watchers"), "no such".into()],
        ..HttpConfig::default()
    };
    let access = Access::open(dir.path().join("tokens.json"), clock.clone());
    World { access, users, config, clock, _dir: dir }
}

impl World {
    fn sid(&self, user: &str) -> Sid {
        self.users.snapshot().user(user).expect("there").sid
    }

    fn known(&self) -> Known<'_> {
        Known { users: Some(&self.users), config: &self.config }
    }

    fn log_in(&self, user: &str, password: &str) -> Result<(Asker, String), Problem> {
        self.log_in_from("192.0.2.1", user, password)
    }

    fn log_in_from(&self, from: &str, user: &str, password: &str) -> Result<(Asker, String), Problem> {
        self.access.log_in(user, password, from.parse().expect("an address"), &self.known())
    }

    fn of_session(&self, secret: &str) -> Result<Asker, Problem> {
        self.access.identify(&cookies(&format!("a=b; {SESSION_COOKIE}={secret}")), &self.known(), true)
    }

    fn of_token(&self, secret: &str) -> Result<Asker, Problem> {
        let mut headers = HeaderMap::new();
        headers
            .insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {secret}")).expect("text"));
        self.access.identify(&headers, &self.known(), true)
    }

    fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
    }
}

fn cookies(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::COOKIE, HeaderValue::from_str(value).expect("text"));
    headers
}

#[test]
fn groups_give_roles() {
    let world = world();
    for (user, role) in [("alice", Role::Administrator), ("BOB", Role::Operator), ("carol", Role::Viewer)] {
        let (asker, secret) = world.log_in(user, PASSWORD).expect("let in");
        assert_eq!(asker.role, role);
        assert_eq!(world.of_session(&secret).expect("known").role, role);
        assert_eq!(world.of_session(&secret).expect("known").name, user.to_lowercase());
    }
    // A user who stands where a group should is none of its members.
    assert_eq!(world.log_in("dave", PASSWORD).expect_err("in no group").code, Code::Forbidden);
    // A name that stands in the configuration gives nothing to a group that gets it.
    world.users.change(|all| all.add_group("no such", "").map(drop)).expect("made");
    let dave = world.sid("dave");
    world.users.change(|all| all.add_member("no such", dave)).expect("added");
    assert_eq!(world.log_in("dave", PASSWORD).expect_err("by a name").code, Code::Forbidden);
}

#[test]
fn what_was_wrong_is_not_told() {
    let world = world();
    let wrong = world.log_in("alice", "battery staple").expect_err("wrong");
    let nobody = world.log_in("mallory", PASSWORD).expect_err("nobody");
    let disabled = UserChange { disabled: Some(true), ..UserChange::default() };
    world.users.change_user(world.sid("bob"), &disabled).expect("disabled");
    let not_any_more = world.log_in("bob", PASSWORD).expect_err("disabled");
    assert_eq!(wrong.code, Code::Unauthenticated);
    assert!(wrong == nobody && wrong == not_any_more, "{wrong} {nobody} {not_any_more}");
}

#[test]
fn guessing_locks_out_the_user_and_the_address() {
    let world = world();
    let (_, before) = world.log_in("alice", PASSWORD).expect("let in");
    for n in 0..10 {
        let from = format!("192.0.2.{}", 10 + n);
        assert!(world.log_in_from(&from, "alice", "wrong").is_err());
    }
    assert!(world.log_in("alice", PASSWORD).is_err(), "locked out");
    assert!(world.of_session(&before).is_err(), "what it had has ended");
    world.users.unlock("alice").expect("there");
    world.log_in("alice", PASSWORD).expect("let in again");
    assert!(world.of_session(&before).is_err(), "and does not come back");
    // One address that tries many users.
    for n in 0..20 {
        let problem = world.log_in_from("198.51.100.1", &format!("u{n}"), "wrong").expect_err("wrong");
        assert_eq!(problem.code, Code::Unauthenticated);
    }
    let refused = world.log_in_from("198.51.100.1", "bob", PASSWORD).expect_err("not listened to");
    assert_eq!(refused.code, Code::TooMany);
    world.log_in_from("198.51.100.2", "bob", PASSWORD).expect("another address");
    world.pass(601);
    world.log_in_from("198.51.100.1", "bob", PASSWORD).expect("later");
}

#[test]
fn who_may_not_come_any_more_has_no_access_at_once() {
    let disable = |world: &World| {
        let change = UserChange { disabled: Some(true), ..UserChange::default() };
        world.users.change_user(world.sid("bob"), &change).expect("disabled");
    };
    let enable = |world: &World| {
        let change = UserChange { disabled: Some(false), ..UserChange::default() };
        world.users.change_user(world.sid("bob"), &change).expect("enabled");
    };
    type Change<'a> = &'a dyn Fn(&World);
    let changes: [(&str, Change<'_>); 4] = [
        ("disabled", &disable),
        ("deleted", &|world| drop(world.users.remove_user(world.sid("bob")).expect("removed"))),
        ("in no group", &|world| {
            let bob = world.sid("bob");
            world.users.change(|all| all.remove_member("staff", bob)).expect("removed");
        }),
        ("the group is gone", &|world| {
            drop(world.users.change(|all| all.remove_group("staff")).expect("removed"))
        }),
    ];
    for (how, change) in changes {
        let world = world();
        let (asker, session) = world.log_in("bob", PASSWORD).expect("let in");
        let new = NewToken { name: String::new(), role: Role::Viewer, expires: None };
        let token = world.access.token_create(new, &asker, &world.known()).expect("made");
        assert!(world.of_token(&token.secret).is_ok() && world.of_session(&session).is_ok());
        change(&world);
        assert!(world.of_session(&session).is_err(), "{how}");
        assert!(world.of_token(&token.secret).is_err(), "{how}");
        assert!(!world.access.token_list(&world.known())[0].valid, "{how}");
    }
    // One that is swept away meanwhile does not come back either.
    let world = world();
    let (_, session) = world.log_in("bob", PASSWORD).expect("let in");
    disable(&world);
    world.access.sweep(&world.known());
    enable(&world);
    assert!(world.of_session(&session).is_err());
}

#[test]
fn another_password_ends_sessions_and_another_role_counts_at_once() {
    let world = world();
    let (asker, session) = world.log_in("alice", PASSWORD).expect("let in");
    let new = NewToken { name: String::new(), role: Role::Administrator, expires: None };
    let token = world.access.token_create(new, &asker, &world.known()).expect("made");
    let alice = world.sid("alice");
    world.users.change(|all| all.remove_member("Administrators", alice)).expect("removed");
    world.users.change(|all| all.add_member("watchers", alice)).expect("added");
    assert_eq!(world.of_session(&session).expect("a viewer now").role, Role::Viewer);
    assert_eq!(world.of_token(&token.secret).expect("a viewer now").role, Role::Viewer);
    world.users.set_password(alice, &Secret::Password("battery staple".into())).expect("set");
    assert!(world.of_session(&session).is_err());
    world
        .users
        .change(|all| all.change_group("watchers", Some("visitors"), None).map(drop))
        .expect("renamed");
    assert_eq!(world.of_token(&token.secret).expect("the same group").role, Role::Viewer);
    world.users.change(|all| all.remove_group("visitors")).expect("removed");
    world.users.change(|all| all.add_group("watchers", "").map(drop)).expect("made");
    world.users.change(|all| all.add_member("watchers", alice)).expect("added");
    assert!(world.of_token(&token.secret).is_err(), "another group of that name gives no role");
}

#[test]
fn sessions_end_by_themselves_and_when_asked_to() {
    let world = world();
    let (_, session) = world.log_in("alice", PASSWORD).expect("let in");
    world.pass(1799);
    assert!(world.of_session(&session).is_ok());
    world.pass(1800);
    assert!(world.of_session(&session).is_err());
    let (asker, session) = world.log_in("alice", PASSWORD).expect("let in");
    assert!(world.access.log_out(&asker));
    assert!(!world.access.log_out(&asker));
    assert!(world.of_session(&session).is_err());
    assert_eq!(world.access.session_count(), 0);
}

#[test]
fn tokens_end_and_make_no_others() {
    let world = world();
    let local = Asker::local(0);
    let end = world.access.wall() + 100;
    let new = |role, expires| NewToken { name: "n".into(), role, expires };
    let make = |asker: &Asker, new| world.access.token_create(new, asker, &world.known());
    let first = make(&local, new(Role::Administrator, Some(end))).expect("made");
    let asker = world.of_token(&first.secret).expect("known");
    // Revoking the first would leave the other.
    assert_eq!(make(&asker, new(Role::Viewer, None)).expect_err("a token").code, Code::Forbidden);
    let (operator, _) = world.log_in("bob", PASSWORD).expect("let in");
    assert_eq!(make(&operator, new(Role::Administrator, None)).expect_err("more").code, Code::Forbidden);
    world.pass(100);
    assert!(world.of_token(&first.secret).is_err(), "it has ended");
}

#[test]
fn what_is_no_token_or_session_is_refused() {
    let world = world();
    let (_, session) = world.log_in("alice", PASSWORD).expect("let in");
    let refused = |headers: &HeaderMap| {
        let problem = world.access.identify(headers, &world.known(), true).expect_err("refused");
        assert_eq!(problem.code, Code::Unauthenticated);
        assert!(!problem.to_string().contains(&session), "{problem}");
    };
    for value in
        ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer holdfast_x_y", "holdfast_x_y", "Bearer \u{ff}"]
    {
        let mut headers = cookies(&format!("{SESSION_COOKIE}={session}"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        refused(&headers);
    }
    for value in [
        "",
        "x",
        &session,
        &format!("{SESSION_COOKIE}="),
        &format!("holdfast-session={session}"),
        &format!("{SESSION_COOKIE}={session}x"),
        // One of them was set by somebody else.
        &format!("{SESSION_COOKIE}={session}; {SESSION_COOKIE}=x"),
        &format!("{SESSION_COOKIE}=x; {SESSION_COOKIE}={session}"),
    ] {
        refused(&cookies(value));
    }
}
