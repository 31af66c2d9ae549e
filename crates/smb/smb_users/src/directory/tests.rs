//! Names, numbers and members.

use proptest::prelude::*;

use super::*;
use crate::token::Token;
use crate::well_known::{local_account, local_administrator};

fn user(name: &str) -> User {
    User {
        sid: Sid::ANONYMOUS,
        name: name.to_owned(),
        full_name: String::new(),
        comment: String::new(),
        disabled: false,
        password_set: 0,
        nt_hash: NtHash::new([0; 16]),
    }
}

fn directory() -> Directory {
    Directory::new([11, 12, 13])
}

#[test]
fn accounts_have_numbers_of_their_own_for_ever() {
    let mut all = directory();
    let bob = all.add_user(user("Bob")).unwrap().sid;
    assert_eq!(bob.to_string(), "S-1-5-21-11-12-13-1000");
    let staff = all.add_group("staff", "").unwrap().sid;
    assert_eq!(staff.rid(), Some(1001));
    all.remove_user("bOB").unwrap();
    assert!(all.user("Bob").is_none() && all.find_sid(bob).is_none());
    assert_eq!(all.add_user(user("Bob")).unwrap().sid.rid(), Some(1002));
}

#[test]
fn one_name_for_one_principal() {
    let mut all = directory();
    all.add_user(user("Bob")).unwrap();
    all.add_group("Staff", "").unwrap();
    for taken in ["BOB", "staff", "Users", "EVERYONE", "none", "authenticated users"] {
        assert!(
            matches!(all.add_user(user(taken)), Err(UsersError::Exists(_) | UsersError::Name { .. })),
            "{taken}"
        );
        assert!(all.add_group(taken, "").is_err(), "{taken}");
        assert!(all.clone().change_group("Staff", Some(taken), None).is_err() || taken == "staff");
    }
    // Another spelling of its own name is no other name.
    all.change_user("bob", |user| user.name = "BOB".into()).unwrap();
    assert_eq!(all.user("bob").unwrap().name, "BOB");
    all.change_user("bob", |user| user.name = "Rob".into()).unwrap();
    assert!(all.user("bob").is_none() && all.user("rob").is_some());
    all.add_user(user("bob")).unwrap();
    let before = all.clone();
    assert!(all.change_user("bob", |user| user.name = "a/b".into()).is_err());
    assert!(all.change_user("bob", |user| user.comment = "x".repeat(2000)).is_err());
    assert_eq!(all, before, "what is refused changes nothing");
}

#[test]
fn names_and_sids_of_all_kinds() {
    let mut all = directory();
    let bob = all.add_user(user("bob")).unwrap().sid;
    for (name, sid, kind) in [
        ("bob", bob, PrincipalKind::User),
        ("SERVER\\Bob", bob, PrincipalKind::User),
        (".\\bob", bob, PrincipalKind::User),
        ("administrators", Sid::ADMINISTRATORS, PrincipalKind::Alias),
        ("builtin\\Users", Sid::USERS, PrincipalKind::Alias),
        ("everyone", Sid::EVERYONE, PrincipalKind::WellKnown),
        ("NT Authority\\system", Sid::SYSTEM, PrincipalKind::WellKnown),
        ("S-1-5-11", Sid::AUTHENTICATED_USERS, PrincipalKind::WellKnown),
        ("none", all.machine().child(513).unwrap(), PrincipalKind::Group),
    ] {
        let found = all.find_name(name, "server").unwrap_or_else(|| panic!("{name}"));
        assert_eq!((found.sid, found.kind), (sid, kind), "{name}");
        assert_eq!(all.find_sid(sid), Some(found));
    }
    for nobody in ["alice", "OTHER\\bob", "BUILTIN\\bob", "SERVER\\Users", "S-1-5-21-1-2-3-1000", "", "\\"] {
        assert_eq!(all.find_name(nobody, "server"), None, "{nobody}");
    }
    assert_eq!(all.find_sid(all.machine()).unwrap().kind, PrincipalKind::Domain);
    assert_eq!(Authority::Machine.name("SRV"), "SRV");
}

#[test]
fn members_make_tokens() {
    let mut all = directory();
    let bob = all.add_user(user("bob")).unwrap().sid;
    let staff = all.add_group("staff", "").unwrap().sid;
    let heads = all.add_group("heads", "").unwrap().sid;
    let token = Token::of_user(&all, bob);
    assert!(token.is(bob) && token.is(Sid::EVERYONE) && token.is(Sid::AUTHENTICATED_USERS));
    assert!(token.is(Sid::USERS), "by way of Authenticated Users");
    assert!(token.is(local_account()) && !token.is(local_administrator()) && !token.is(staff));
    assert!(token.is(token.primary_group) && token.groups.is_sorted());
    all.add_member("heads", bob).unwrap();
    all.add_member("staff", heads).unwrap();
    // A circle, which earlier releases have let in, ends.
    let members = &mut all.groups.get_mut(&heads).unwrap().members;
    members.push(staff);
    members.sort();
    all.add_member("Administrators", staff).unwrap();
    let token = Token::of_user(&all, bob);
    assert!(
        token.is(staff) && token.is(heads) && token.is_administrator() && token.is(local_administrator())
    );
    assert!(!token.is_backup_operator());
    assert!(matches!(all.add_member("heads", bob), Err(UsersError::Member { .. })));
    let ghost = all.machine().child(4000).unwrap();
    assert!(matches!(all.add_member("heads", ghost), Err(UsersError::NoPrincipal(_))));
    assert!(matches!(all.add_member("nobody", bob), Err(UsersError::NoGroup(_))));
    all.remove_member("heads", bob).unwrap();
    assert!(matches!(all.remove_member("heads", bob), Err(UsersError::NotMember { .. })));
    assert!(!Token::of_user(&all, bob).is_administrator());
    // Whom a directory service knows may be a member here, too.
    let foreign: Sid = "S-1-5-21-7-8-9-1105".parse().unwrap();
    let domain_users: Sid = "S-1-5-21-7-8-9-513".parse().unwrap();
    all.add_member("staff", domain_users).unwrap();
    let token = Token::of_foreigner(&all, foreign, domain_users, &[]);
    assert!(token.is(staff) && token.is_administrator() && !token.is(local_account()));
    let nobody = Token::anonymous();
    assert!(nobody.is_anonymous() && !nobody.is(Sid::EVERYONE) && !nobody.is(Sid::AUTHENTICATED_USERS));
}

#[test]
fn built_in_groups_stay() {
    let mut all = directory();
    assert!(matches!(all.remove_group("users"), Err(UsersError::BuiltIn(_))));
    assert!(matches!(all.change_group("users", Some("people"), None), Err(UsersError::BuiltIn(_))));
    all.change_group("users", None, Some("everybody here")).unwrap();
    assert_eq!(all.group("Users").unwrap().comment, "everybody here");
    let staff = all.add_group("staff", "").unwrap().sid;
    all.add_member("Users", staff).unwrap();
    all.remove_group("Staff").unwrap();
    assert_eq!(all.groups_of(staff).count(), 0);
}

#[derive(Clone, Debug)]
enum Act {
    AddUser(u8),
    AddGroup(u8),
    RemoveUser(u8),
    RemoveGroup(u8),
    Rename(u8, u8),
    Join(u8, u8),
    Leave(u8, u8),
}

fn act() -> impl Strategy<Value = Act> {
    let one = 0..8_u8;
    prop_oneof![
        one.clone().prop_map(Act::AddUser),
        one.clone().prop_map(Act::AddGroup),
        one.clone().prop_map(Act::RemoveUser),
        one.clone().prop_map(Act::RemoveGroup),
        (one.clone(), one.clone()).prop_map(|(a, b)| Act::Rename(a, b)),
        (one.clone(), one.clone()).prop_map(|(a, b)| Act::Join(a, b)),
        (one.clone(), one).prop_map(|(a, b)| Act::Leave(a, b)),
    ]
}

proptest! {
    /// Whatever happens in whatever order: names lead to what has them, members exist, and a copy through bytes is equal.
    #[test]
    fn it_stays_consistent(acts in proptest::collection::vec(act(), 0..60)) {
        let mut all = directory();
        let name = |n: u8| format!("n{n}");
        let sid = |all: &Directory, n: u8| all.find_name(&name(n), "").map_or(Sid::EVERYONE, |found| found.sid);
        for act in acts {
            let _ = match act {
                Act::AddUser(n) => all.add_user(user(&name(n))).map(|_| ()),
                Act::AddGroup(n) => all.add_group(&name(n), "").map(|_| ()),
                Act::RemoveUser(n) => all.remove_user(&name(n)).map(|_| ()),
                Act::RemoveGroup(n) => all.remove_group(&name(n)).map(|_| ()),
                Act::Rename(a, b) => all
                    .change_user(&name(a), |user| user.name = name(b))
                    .map(|_| ())
                    .or_else(|_| all.change_group(&name(a), Some(&name(b)), None).map(|_| ())),
                Act::Join(a, b) => { let member = sid(&all, b); all.add_member(&name(a), member) }
                Act::Leave(a, b) => { let member = sid(&all, b); all.remove_member(&name(a), member) }
            };
            let named = all.users().map(|user| (&user.name, user.sid)).chain(all.groups().map(|g| (&g.name, g.sid)));
            let mut count = 0;
            for (name, sid) in named {
                count += 1;
                prop_assert_eq!(all.names.get(&upper(name)), Some(&sid));
            }
            prop_assert_eq!(all.names.len(), count);
            for member in all.groups().flat_map(|group| &group.members) {
                prop_assert!(all.find_sid(*member).is_some());
            }
        }
        prop_assert_eq!(crate::format::decode(&crate::format::encode(&all)), Ok(all));
    }
}

#[test]
fn groups_are_in_no_circle() {
    let mut all = directory();
    let sids: Vec<Sid> =
        ["a", "b", "c", "d"].iter().map(|name| all.add_group(name, "").unwrap().sid).collect();
    all.add_member("a", sids[1]).unwrap();
    all.add_member("b", sids[2]).unwrap();
    all.add_member("a", sids[2]).unwrap();
    let refused = |all: &mut Directory, group: &str, member: Sid| {
        let before = all.clone();
        let error = all.add_member(group, member).expect_err("a circle");
        assert!(matches!(error, UsersError::Circle { .. }) && *all == before, "{error}");
        error.to_string()
    };
    assert_eq!(refused(&mut all, "a", sids[0]), "group a cannot be a member of itself");
    assert_eq!(
        refused(&mut all, "b", sids[0]),
        "group a cannot be a member of b, which is in it already: b in a"
    );
    all.remove_member("a", sids[2]).unwrap();
    let over = refused(&mut all, "C", sids[0]);
    assert_eq!(over, "group a cannot be a member of C, which is in it already: c in b, b in a");
    // Several ways down to one group are none.
    all.add_member("a", sids[3]).unwrap();
    all.add_member("c", sids[3]).unwrap();
    // A circle that is there already keeps nobody from anything else.
    let members = &mut all.groups.get_mut(&sids[2]).unwrap().members;
    members.push(sids[0]);
    members.sort();
    let other = all.add_group("e", "").unwrap().sid;
    all.add_member("c", other).unwrap();
    all.add_member("e", sids[3]).unwrap();
    all.remove_member("c", sids[0]).unwrap();
}
