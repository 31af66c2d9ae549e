//! CHAP users of targets: which initiators they may be, and which sessions end when that changes.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{
    AuthConfig, ChapUser, ChapUserUpdate, Code, Config, Issue, Problem, Session, Severity, TargetConfig,
    TargetUpdate, many,
};
use health_rules::{FindingCode, of_rule};

use super::all_sessions::{AllSessions, first};

/// The initiators that a CHAP user may be, in lower case; `None` for any.
pub(crate) fn bound_to(config: &Config, user: &ChapUser) -> Option<BTreeSet<String>> {
    let groups = || config.groups.iter().filter(|group| user.groups.contains(&group.name));
    if user.groups.is_empty() || groups().any(|group| group.any) {
        return None;
    }
    Some(groups().flat_map(|group| &group.initiators).map(|name| name.to_lowercase()).collect())
}

/// Refuses to take an initiator group away while CHAP users are bound to it: without it they could be other initiators, or none.
pub(super) fn refuse_bound(config: &Config, group: &str) -> Result<(), Problem> {
    let users =
        config.targets.iter().flat_map(|target| target.auth.chap.iter().map(move |user| (target, user)));
    let bound: Vec<_> = users.filter(|(_, user)| user.groups.iter().any(|bound| bound == group)).collect();
    if bound.is_empty() {
        return Ok(());
    }
    let named: Vec<String> =
        bound.iter().map(|(target, user)| format!("{} of target {}", user.user, target.name)).collect();
    let todo: Vec<String> = bound.iter().map(|(target, user)| unbind(&target.name, user, group)).collect();
    let detail = format!(
        "CHAP {} bound to the initiator group {group}: {}.",
        if bound.len() == 1 { "user is" } else { "users are" },
        named.join(", ")
    );
    Err(Problem::new(Code::InUse, detail).todo(format!("{} Nothing was changed.", todo.join(" "))))
}

/// The command that ends a CHAP user's being bound to a group.
fn unbind(target: &str, user: &ChapUser, group: &str) -> String {
    let name = &user.user;
    let others: Vec<String> =
        user.groups.iter().filter(|other| *other != group).map(|other| format!("--group {other}")).collect();
    if others.is_empty() {
        format!(
            "`holdfast target set-user {target} {name} --group OTHER` binds {name} to another one, `holdfast target remove-user {target} {name}` takes it away."
        )
    } else {
        format!("`holdfast target set-user {target} {name} {}` unbinds {name}.", others.join(" "))
    }
}

/// Carries out what an update says about who may log in.
pub(super) fn update_auth(target: &mut TargetConfig, update: &TargetUpdate) -> Result<(), Problem> {
    if let Some(auth) = &update.auth {
        target.auth = auth.clone();
    }
    if let Some(on) = update.chap {
        if on && target.auth.chap.is_empty() {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("target {} has no CHAP users, so nobody could log in.", target.name),
            )
            .todo(format!("Make one: `holdfast target set-user {} USER --secret-file FILE`.", target.name)));
        }
        target.auth.chap_off = !on;
    }
    if let Some(wanted) = &update.set_user {
        set_user(&target.name, &mut target.auth, wanted)?;
    }
    if let Some(mutual) = &update.set_mutual {
        target.auth.mutual = Some(mutual.clone());
    }
    if let Some(user) = &update.remove_user {
        let before = target.auth.chap.len();
        target.auth.chap.retain(|there| there.user != *user);
        if target.auth.chap.len() == before {
            return Err(Problem::new(
                Code::NotFound,
                format!("Target {} has no CHAP user {user}.", target.name),
            )
            .todo("`holdfast target list` shows what there is."));
        }
        if target.auth.chap.is_empty() && !target.auth.chap_off {
            // Without a user everybody would be let in, which is not what taking one away means.
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("{user} is the only CHAP user of {}.", target.name),
            )
            .todo(
                "Make another one first, or let initiators in without CHAP: `holdfast target set --no-chap`.",
            ));
        }
        // Without any there is nothing to turn on again.
        target.auth.chap_off &= !target.auth.chap.is_empty();
    }
    Ok(())
}

fn set_user(target: &str, auth: &mut AuthConfig, wanted: &ChapUserUpdate) -> Result<(), Problem> {
    if let Some(user) = auth.chap.iter_mut().find(|user| user.user == wanted.user) {
        if let Some(secret) = &wanted.secret {
            user.secret.clone_from(secret);
        }
        if let Some(groups) = &wanted.groups {
            user.groups.clone_from(groups);
        }
        return Ok(());
    }
    let refuse = |why: &str, todo: &str| {
        Err(Problem::new(Code::InvalidRequest, format!("CHAP user {} of {target}: {why}", wanted.user))
            .todo(todo))
    };
    let Some(secret) = wanted.secret.clone() else {
        return refuse(
            "there is none of this name yet, and a new one needs a secret.",
            "Say it with --secret-file.",
        );
    };
    let groups = match &wanted.groups {
        Some(groups) => groups.clone(),
        None if auth.chap.is_empty() => Vec::new(),
        None => {
            return refuse(
                "the target has other users, and this one could log in as any initiator that none of them is bound to.",
                "Bind it with --group, or say --any-initiator.",
            );
        }
    };
    auth.chap.push(ChapUser { user: wanted.user.clone(), secret, groups });
    Ok(())
}

/// The sessions of a target that its next configuration would not let in, in sentences. `before` is what they were let
/// in with.
pub(super) fn ending(before: &Config, after: &Config, target: &str, all: &AllSessions) -> Vec<String> {
    let auth = |config: &Config| {
        let target = config.targets.iter().find(|there| there.name == target);
        target.map(|target| target.auth.clone()).unwrap_or_default()
    };
    // Also while nobody is asked for CHAP, a session has proved what it proved when it logged in.
    let (old, new) = (auth(before).chap, auth(after).asked_for().to_vec());
    let stays = |session: &Session| {
        let name = session.initiator.to_lowercase();
        let bound = |user: &ChapUser| bound_to(after, user).map(|initiators| initiators.contains(&name));
        let taken = new.iter().any(|user| bound(user) == Some(true));
        let proved = old.iter().find(|user| Some(&user.user) == session.chap_user.as_ref());
        new.is_empty()
            || new.iter().any(|user| {
                let may = if taken { bound(user) == Some(true) } else { bound(user).is_none() };
                may && proved.is_some_and(|old| old.user == user.user && old.secret == user.secret)
            })
    };
    let ending = all.items.iter().filter(|session| session.target == target && !stays(session));
    let one = |session: &Session| {
        let user = session.chap_user.as_ref().map_or("without CHAP".to_owned(), |user| format!("as {user}"));
        format!(
            "The session of {} from {}, logged in {user}, ends: it would not be let in any more. \
             Its host's requests fail until it logs in as it is asked then.",
            session.initiator, session.address
        )
    };
    let more = |left| {
        format!("So {} {} more of {target}.", if left == 1 { "does" } else { "do" }, many(left, "session"))
    };
    let mut told = first(ending.map(one).collect(), more);
    // Who may be whom, by what proof.
    let asked = |config: &Config| -> Vec<(ChapUser, Option<BTreeSet<String>>)> {
        let auth = auth(config);
        auth.asked_for().iter().map(|user| (user.clone(), bound_to(config, user))).collect()
    };
    if !new.is_empty() && asked(before) != asked(after) {
        told.extend(all.unknown());
    }
    told
}

/// The initiators that are logged in without CHAP and are told of no target any more where discovery asks for it from now on, in sentences.
/// Their sessions go on, and are not found again.
pub(super) fn undiscovered(before: &Config, after: &Config, all: &AllSessions) -> Vec<String> {
    if before.iscsi.discovery_chap || !after.iscsi.discovery_chap {
        return Vec::new();
    }
    let without =
        all.items.iter().filter(|session| session.chap_user.is_none() && !session.target.is_empty());
    let initiators: BTreeMap<&str, &str> =
        without.map(|session| (session.initiator.as_str(), session.address.as_str())).collect();
    let told = |(initiator, address)| {
        format!(
            "{initiator} from {address} is logged in without CHAP, and is told of no target any more when it looks for them next, as after \
             a restart. The sessions that it has go on."
        )
    };
    let more = |left| format!("The same holds for {}.", many(left, "more initiator"));
    let mut told = first(initiators.into_iter().map(told).collect(), more);
    told.extend(all.unknown());
    told
}

/// Whether discovery asks for a proof that nobody can give: no initiator is told of any target.
fn nobody_discovers(config: &Config) -> bool {
    config.iscsi.discovery_chap && config.targets.iter().all(|target| target.auth.asked_for().is_empty())
}

/// What it means that a target asks for CHAP no more, or forgets users, in sentences; none if it does neither.
pub(super) fn opening(before: &Config, after: &Config, target: &str) -> Vec<String> {
    let auth = |config: &Config| {
        let target = config.targets.iter().find(|there| there.name == target);
        target.map(|target| target.auth.clone()).unwrap_or_default()
    };
    let (old, new) = (auth(before), auth(after));
    let listed = |users: Vec<&ChapUser>| {
        let names: Vec<&str> = users.iter().map(|user| user.user.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let stays = |user: &ChapUser| new.chap.iter().any(|there| there.user == user.user);
    let gone = listed(old.chap.iter().filter(|user| !stays(user)).collect());
    let gone =
        gone.map(|names| format!("CHAP users of target {target} ({names}) and their secrets are forgotten."));
    if old.asked_for().is_empty() || !new.asked_for().is_empty() {
        return gone.into_iter().collect();
    }
    let mut told = vec![format!(
        "Target {target} lets initiators in without CHAP: whoever gives a name that sees a LUN may read and write it."
    )];
    told.extend(gone);
    if let Some(names) = listed(new.chap.iter().collect()) {
        told.push(format!(
            "Its CHAP users ({names}) are kept; `holdfast target set {target} --chap` asks for them again."
        ));
    }
    if nobody_discovers(after) {
        told.push(
            "Discovery asks for CHAP all the same, and no target has a user then: no initiator is told which targets there are. \
             `holdfast target discovery --chap off` changes that."
                .to_owned(),
        );
    }
    told
}

/// Users that could stand in for each other's hosts, and proofs that nobody asks for or nobody can give.
pub(super) fn issues(config: &Config) -> Vec<Issue> {
    let mut issues = Vec::new();
    if nobody_discovers(config) && !config.targets.is_empty() {
        let (detail, todo) = match config.targets.iter().find(|target| target.auth.chap_off) {
            Some(target) => (
                "it asks for CHAP, and no target does, though there are CHAP users: no initiator is told of any target",
                format!(
                    "`holdfast target set {} --chap` asks for its users again; or `holdfast target discovery --chap off`.",
                    target.name
                ),
            ),
            None => (
                "it asks for CHAP, and no target has a CHAP user: no initiator is told of any target",
                "`holdfast target discovery --chap off`, or make users: `holdfast target set-user`."
                    .to_owned(),
            ),
        };
        issues.push(Issue {
            severity: Severity::Warning,
            subject: "iSCSI discovery".into(),
            detail: detail.into(),
            todo,
            ..of_rule(FindingCode::ChapNobody)
        });
    }
    for target in config.targets.iter().filter(|target| target.auth.chap_off) {
        issues.push(Issue {
            severity: Severity::Info,
            subject: format!("target {}", target.name),
            detail: "it has CHAP users and asks nobody for CHAP".into(),
            todo: format!("`holdfast target set {} --chap` asks for it again.", target.name),
            ..of_rule(FindingCode::ChapOff)
        });
    }
    for target in config.targets.iter().filter(|target| target.auth.asked_for().len() > 1) {
        let loose = target.auth.chap.iter().filter(|user| bound_to(config, user).is_none());
        let names: Vec<&str> = loose.map(|user| user.user.as_str()).collect();
        if names.is_empty() {
            continue;
        }
        issues.push(Issue {
            severity: Severity::Warning,
            subject: format!("target {}", target.name),
            detail: format!(
                "it has several CHAP users, and may be reached by {} as any initiator that no other user is bound to",
                names.join(", ")
            ),
            todo: format!(
                "Bind each to its initiators: `holdfast target set-user {} {} --group GROUP`.",
                target.name, names[0]
            ), ..of_rule(FindingCode::ChapLoose) });
    }
    issues
}

#[cfg(test)]
mod tests {
    use control_api::GroupConfig;

    use super::*;

    const TARGET: &str = "iqn.2026-01.org.example:t";

    fn user(name: &str, secret: &str, groups: &[&str]) -> ChapUser {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        ChapUser { user: name.into(), secret: secret.into(), groups }
    }

    fn config(chap: Vec<ChapUser>) -> Config {
        let group = |name: &str| GroupConfig {
            name: name.into(),
            initiators: vec![format!("iqn.2026-01.org.example:{name}")],
            any: false,
        };
        let target = TargetConfig {
            name: TARGET.into(),
            alias: String::new(),
            portal_groups: vec![],
            auth: AuthConfig { chap, ..AuthConfig::default() },
        };
        Config { groups: vec![group("a"), group("b")], targets: vec![target], ..Config::default() }
    }

    fn session(host: &str, user: Option<&str>) -> Session {
        Session {
            initiator: format!("iqn.2026-01.org.example:{host}"),
            target: TARGET.into(),
            chap_user: user.map(str::to_owned),
            ..Session::default()
        }
    }

    #[test]
    fn who_has_logged_in_by_chap_stays_when_it_is_asked_for_again() {
        let after = config(vec![user("a", "secret of a!", &["a"])]);
        let mut before = after.clone();
        before.targets[0].auth.chap_off = true;
        let ends = |session| !ending(&before, &after, TARGET, &AllSessions::known(vec![session])).is_empty();
        assert!(!ends(session("a", Some("a"))), "the server keeps it");
        assert!(ends(session("a", None)));
    }

    fn ends(before: Vec<ChapUser>, after: Vec<ChapUser>, session: Session) -> bool {
        !ending(&config(before), &config(after), TARGET, &AllSessions::known(vec![session])).is_empty()
    }

    #[test]
    fn what_ends_sessions() {
        let (a, b) = (|| user("a", "secret of a!", &["a"]), || user("b", "secret of b!", &["b"]));
        assert!(ends(vec![], vec![a()], session("a", None)), "CHAP is turned on");
        assert!(!ends(vec![a()], vec![], session("a", Some("a"))), "and off");
        assert!(!ends(vec![a()], vec![a(), b()], session("a", Some("a"))), "another user comes");
        assert!(ends(vec![a(), b()], vec![a()], session("b", Some("b"))), "a user goes");
        assert!(
            ends(vec![a()], vec![user("a", "another one!", &["a"])], session("a", Some("a"))),
            "its secret"
        );
        assert!(
            ends(vec![a()], vec![user("a", "secret of a!", &["b"])], session("a", Some("a"))),
            "its hosts"
        );
        let loose = || user("l", "secret of l!", &[]);
        assert!(
            ends(vec![loose()], vec![loose(), a()], session("a", Some("l"))),
            "its name is another's now"
        );
        assert!(!ends(vec![loose()], vec![loose(), a()], session("c", Some("l"))));
    }

    #[test]
    fn users_come_change_and_go() {
        let mut target = config(vec![]).targets.remove(0);
        let set = |user: &str, secret: Option<&str>, groups: Option<&[&str]>| TargetUpdate {
            set_user: Some(ChapUserUpdate {
                user: user.into(),
                secret: secret.map(str::to_owned),
                groups: groups.map(|groups| groups.iter().map(|group| (*group).to_owned()).collect()),
            }),
            ..TargetUpdate::default()
        };
        let remove = |user: &str| TargetUpdate { remove_user: Some(user.into()), ..TargetUpdate::default() };
        assert!(update_auth(&mut target, &set("a", None, None)).is_err(), "without a secret");
        update_auth(&mut target, &set("a", Some("secret of a!"), None)).expect("the first");
        assert!(update_auth(&mut target, &set("b", Some("secret of b!"), None)).is_err(), "as whom?");
        update_auth(&mut target, &set("b", Some("secret of b!"), Some(&["b"]))).expect("the second");
        update_auth(&mut target, &set("a", None, Some(&["a"]))).expect("bound");
        assert_eq!(target.auth.chap, [user("a", "secret of a!", &["a"]), user("b", "secret of b!", &["b"])]);
        assert!(update_auth(&mut target, &remove("c")).is_err());
        let mutual = user("t", "the target's own", &[]);
        let set_mutual = TargetUpdate { set_mutual: Some(mutual.clone()), ..TargetUpdate::default() };
        update_auth(&mut target, &set_mutual).expect("set");
        assert_eq!((target.auth.chap.len(), &target.auth.mutual), (2, &Some(mutual)), "the users stay");
        let nobody = update_auth(&mut target, &remove("nobody")).expect_err("not there").detail;
        assert!(nobody.ends_with("has no CHAP user nobody."), "{nobody}");
        update_auth(&mut target, &remove("a")).expect("gone");
        assert!(update_auth(&mut target, &remove("b")).is_err(), "would let everybody in");
    }

    #[test]
    fn users_that_may_be_anybody_are_named() {
        let bound = user("a", "secret of a!", &["a"]);
        assert!(issues(&config(vec![user("l", "secret of l!", &[])])).is_empty(), "one alone");
        assert!(issues(&config(vec![bound.clone(), user("b", "secret of b!", &["b"])])).is_empty());
        let found = issues(&config(vec![bound, user("l", "secret of l!", &[])]));
        assert!(found.len() == 1 && found[0].detail.contains("by l as any"), "{found:?}");
    }
}
