//! Nodes that are there or not, pools wherever they may be, volumes open or closed: the sentence above all lines is never better than any of them.

use control_api::{ClusterMember, RedundancyState, Verdict};

use super::*;
use crate::headline::tests::severity_of;
use crate::{Known, headline, of_nodes, of_volumes};

fn node(name: &str, state: ClusterMemberState) -> ClusterMember {
    ClusterMember {
        name: name.into(),
        number: 1,
        state,
        beat_age_ms: None,
        pools: 0,
        addresses: Vec::new(),
        api: String::new(),
        release: String::new(),
        trouble: None,
    }
}

fn pool(state: ClusterPoolState, owner: Option<&str>) -> ClusterPool {
    ClusterPool {
        name: "p".into(),
        guid: uuid::Uuid::from_u128(1),
        owner: owner.map(str::to_owned),
        epoch: 2,
        state,
        address: None,
        reason: None,
        from: None,
        waits_seconds: None,
        can_serve: None,
        with_away: Vec::new(),
        disk_nodes: Vec::new(),
        volumes: vec!["v".into(), "w".into()],
    }
}

fn cluster(nodes: &[(&str, ClusterMemberState)], pools: Vec<ClusterPool>) -> ClusterStatus {
    ClusterStatus {
        cluster: "c".into(),
        node: "n1".into(),
        takes_part: true,
        trouble: None,
        store_went_back: None,
        store_unreadable: false,
        removed: false,
        cut_off: Vec::new(),
        etcd: Vec::new(),
        etcd_voters: None,
        etcd_alarms: Vec::new(),
        summary: Vec::new(),
        pools,
        nodes: nodes.iter().map(|(name, state)| node(name, *state)).collect(),
    }
}

const POOLS: [ClusterPoolState; 5] = [
    ClusterPoolState::Unowned,
    ClusterPoolState::Silent,
    ClusterPoolState::Moving,
    ClusterPoolState::Unknown,
    ClusterPoolState::Online,
];

#[test]
fn the_sentence_is_never_better_than_what_is_known_or_not_known() {
    use ClusterMemberState::{Away, Draining, Paused, Silent, Up};
    let redundancies = crate::headline::tests::REDUNDANCIES.map(Some).into_iter().chain([None]);
    let mut seen = 0;
    for redundancy in redundancies {
        for other in [Away, Silent, Draining, Paused, Up] {
            for state in POOLS {
                // No pool at all, and one of which more or less is known.
                for (owner, from, reason) in [
                    (None, None, None),
                    (Some("n2"), None, None),
                    (Some("n2"), Some("n1"), None),
                    (Some("n1"), Some("n2"), Some("no disk is here")),
                ] {
                    for (ready, unreadable, waits_seconds) in [
                        (true, false, None),
                        (true, true, Some(0)),
                        (true, false, Some(TAKES_AT_MOST)),
                        (false, false, None),
                    ] {
                        for open in [true, false] {
                            let waiting = ClusterPool {
                                from: from.map(str::to_owned),
                                reason: reason.map(str::to_owned),
                                waits_seconds,
                                ..pool(state, owner)
                            };
                            let mut all = cluster(&[("n1", Up), ("n2", other)], vec![waiting]);
                            all.store_unreadable = unreadable;
                            let volume =
                                crate::parts::tests::volume(open, (!open).then_some("it had stopped"), None);
                            let mut issues = of_nodes(&all);
                            issues.extend(of_waiting_volumes(&all));
                            issues.extend(of_volumes(&[volume], ready, &|_| None));
                            let mute = ["n2".to_owned()];
                            let (waits, not_known) = (waits(&all), not_known(&all, &all.pools, &mute));
                            let known = Known {
                                ready,
                                empty: false,
                                removed: false,
                                redundancy,
                                waits: &waits,
                                not_known: &not_known,
                            };
                            let (verdict, sentence) = headline(&known, &issues);
                            let about = || format!("{sentence:?} ({verdict:?}) of {all:?} and {issues:?}");
                            let worst = issues.iter().map(|issue| issue.severity).min();
                            assert!(severity_of(&sentence) <= worst.unwrap_or(Severity::Info), "{}", about());
                            // Whoever is not known to serve it: nobody says that all is well.
                            let is_served = state == ClusterPoolState::Online;
                            assert!(is_served || verdict != Verdict::FullyRedundant, "{}", about());
                            assert!(is_served || !sentence.contains("all data is"), "{}", about());
                            assert!(is_served || sentence.contains(" p "), "it says which: {}", about());
                            let unserved = state < ClusterPoolState::Unknown;
                            assert_eq!(
                                verdict == Verdict::Unavailable,
                                unserved || !open || redundancy == Some(RedundancyState::Unavailable),
                                "{}",
                                about()
                            );
                            let closed =
                                |issue: &&Issue| issue.code == "volume-closed" && is_of_unserved(issue);
                            assert_eq!(
                                issues.iter().filter(closed).count(),
                                if unserved { 2 } else { 0 },
                                "{}",
                                about()
                            );
                            // Advice of another case is none of this one.
                            let advice = issues.iter().filter(|issue| is_of_unserved(issue));
                            assert!(advice.clone().all(|issue| !issue.todo.contains("disk")), "{}", about());
                            assert!(advice.clone().all(|issue| !issue.todo.is_empty()), "{}", about());
                            seen += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, 5 * 5 * 5 * 4 * 4 * 2);
}

fn told(of: ClusterPool, nodes: &[(&str, ClusterMemberState)]) -> (String, String) {
    let all = cluster(nodes, vec![of]);
    let issues = of_unserved(&all);
    assert_eq!(issues.len(), 1);
    assert_eq!(issues[0].subject, "pool p");
    // What is merely on its way is nothing that somebody has to be woken for.
    let is_over_soon = issues[0].todo.starts_with("Nothing needs to be done");
    let severity = if is_over_soon { Severity::Warning } else { Severity::Critical };
    assert_eq!(issues[0].severity, severity, "{issues:?}");
    let known = Known { ready: true, waits: &waits(&all), ..Known::default() };
    (headline(&known, &issues).1, issues[0].todo.clone())
}

#[test]
fn a_pool_on_its_way_is_said_to_be_and_needs_nothing() {
    use ClusterMemberState::{Silent, Up};
    let both = [("n1", Up), ("n2", Up), ("n3", Up)];
    let from = |from: &str, of| ClusterPool { from: Some(from.to_owned()), ..of };
    let cases = [
        (from("n1", pool(ClusterPoolState::Moving, Some("n3"))), "is on its way from n1 to n3"),
        (from("n1", pool(ClusterPoolState::Unowned, None)), "is on its way from n1 to another node"),
        (pool(ClusterPoolState::Unowned, None), "has no node now, and is on its way to one"),
        (pool(ClusterPoolState::Moving, Some("n1")), "is being opened or closed by node n1"),
        (
            pool(ClusterPoolState::Silent, Some("n2")),
            "was with a process of node n2 that has ended, and goes to that node or another one",
        ),
    ];
    for (of, place) in cases {
        let (sentence, todo) = told(of.clone(), &both);
        assert_eq!(sentence, format!("UNAVAILABLE: pool p {place}: its volumes wait."));
        assert!(todo.starts_with("Nothing needs to be done"), "{todo}");
        let (_, todo) = told(ClusterPool { waits_seconds: Some(TAKES_AT_MOST - 1), ..of.clone() }, &both);
        assert!(todo.starts_with("Nothing needs to be done"), "{todo}");
        let (_, todo) = told(ClusterPool { waits_seconds: Some(TAKES_AT_MOST), ..of }, &both);
        assert!(todo.contains("longer") && todo.contains("log"), "{todo}");
    }
    let silent = pool(ClusterPoolState::Silent, Some("n2"));
    let (sentence, todo) = told(silent.clone(), &[("n1", Up), ("n2", Silent)]);
    assert_eq!(sentence, "UNAVAILABLE: pool p is on its way from n2 to another node: its volumes wait.");
    assert!(todo.starts_with("Nothing needs to be done"), "{todo}");
    // It goes nowhere: who is to take it?
    let (sentence, todo) = told(silent.clone(), &[("n1", ClusterMemberState::Paused), ("n2", Silent)]);
    assert!(
        sentence.contains("no other one can take it now") && todo.starts_with("Start the nodes"),
        "{sentence} {todo}"
    );
    // Somebody has tried, and says why not.
    let refused = ClusterPool { reason: Some("disk b keeps no reservations".into()), ..silent };
    let all = cluster(&both, vec![refused]);
    assert!(of_unserved(&all)[0].detail.contains("disk b keeps no reservations"));
}

/// Whose disks are with a node that is away lacks nothing but that node: nothing is said that would cost data.
#[test]
fn a_pool_whose_disks_are_with_a_node_that_is_away_waits_for_that() {
    use ClusterMemberState::{Away, Silent, Up};
    for (state, owner, reason) in [
        (ClusterPoolState::Silent, Some("n1"), None),
        (ClusterPoolState::Unowned, None, None),
        (ClusterPoolState::Moving, Some("n2"), Some("none of its disks is on this machine")),
    ] {
        let of = ClusterPool {
            can_serve: Some(Vec::new()),
            with_away: vec!["n1".into()],
            reason: reason.map(str::to_owned),
            waits_seconds: Some(3),
            ..pool(state, owner)
        };
        for away in [Away, Silent] {
            let (sentence, todo) = told(of.clone(), &[("n1", away), ("n2", Up), ("n3", Up)]);
            let place = "UNAVAILABLE: pool p is served by no node: its disks are with node n1, which is away";
            assert!(sentence.starts_with(place), "{sentence}");
            assert!(todo.starts_with("Bring n1 back"), "{todo}");
            assert!(!todo.contains("forget") && !todo.contains("loss"), "{todo}");
        }
    }
    // Its process was started again, and looks for the disks: it is on its way.
    let of = ClusterPool { can_serve: Some(Vec::new()), ..pool(ClusterPoolState::Silent, Some("n1")) };
    let (sentence, todo) = told(of, &[("n1", Up), ("n2", Up)]);
    assert!(sentence.contains("a process of node n1 that has ended"), "{sentence}");
    assert!(todo.starts_with("Nothing needs to be done"), "{todo}");
    // Nobody sees it, and nobody is away.
    let of = ClusterPool { can_serve: Some(Vec::new()), ..pool(ClusterPoolState::Unowned, None) };
    let (sentence, _) = told(of, &[("n1", Up), ("n2", Up)]);
    assert!(sentence.contains("none can open it"), "{sentence}");
}

#[test]
fn what_is_critical_besides_is_said_besides() {
    let all = cluster(&[("n1", ClusterMemberState::Up)], vec![pool(ClusterPoolState::Unowned, None)]);
    let mut issues = of_unserved(&all);
    issues.extend(of_waiting_volumes(&all));
    let waits = waits(&all);
    let unknown = ["node n3 does not answer: how it is with q is not known".to_owned()];
    let known = Known { ready: true, waits: &waits, not_known: &unknown, ..Known::default() };
    let sentence = headline(&known, &issues).1;
    assert!(
        sentence.starts_with("UNAVAILABLE: pool p") && sentence.contains("with q is not known"),
        "{sentence}"
    );
    issues.push(issue(
        FindingCode::VolumeClosed,
        Severity::Critical,
        "volume x",
        "it is not open: it had stopped",
        "",
    ));
    let sentence = headline(&known, &issues).1;
    assert!(
        sentence.starts_with("UNAVAILABLE: some data cannot be read or written now; pool p"),
        "{sentence}"
    );
    let known = Known { waits: &[], redundancy: Some(RedundancyState::Reduced), ..known };
    let (verdict, sentence) = headline(&known, &[]);
    assert_eq!(verdict, Verdict::Reduced);
    assert!(sentence.starts_with("UNKNOWN: node n3") && sentence.contains("fewer copies"), "{sentence}");
}

#[test]
fn pools_of_one_silent_node_are_one_part_of_the_sentence() {
    let of = |name: &str, owner: Option<&str>| ClusterPool {
        name: name.into(),
        ..pool(ClusterPoolState::Unknown, owner)
    };
    let all = [of("a", Some("n2")), of("b", None), of("c", Some("n2")), of("d", Some("n3"))];
    let told = not_known(&cluster(&[], Vec::new()), &all, &["n2".into()]);
    let expected = [
        "node n2 does not answer: how it is with a, c is not known",
        "how it is with b is not known",
        "how it is with d is not known",
    ];
    assert_eq!(told, expected);
}

/// A process that has just been killed lends no disks any more, which its pools have not noticed yet.
#[test]
fn of_disks_of_a_node_that_does_not_answer_it_is_not_said_that_they_are_there() {
    let of = ClusterPool {
        disk_nodes: vec!["n1".into(), "n2".into()],
        ..pool(ClusterPoolState::Online, Some("n1"))
    };
    let told = |mute: &[String]| not_known(&cluster(&[], Vec::new()), [&of], mute);
    assert!(told(&[]).is_empty() && told(&["n3".into()]).is_empty());
    let told = told(&["n2".into()]);
    let expected = "node n2 does not answer: whether the disks that it has of p are there is not known";
    assert_eq!(told, [expected]);
    let full = Some(RedundancyState::Full);
    let known = Known { ready: true, redundancy: full, not_known: &told, ..Known::default() };
    assert_eq!(headline(&known, &[]).0, Verdict::Reduced);
}

#[test]
fn who_served_a_pool_last_and_since_when_none_does_is_remembered() {
    let mut watch = UnservedWatch::default();
    let mut look = |now, of: ClusterPool| {
        let mut pools = [of];
        watch.look(now, &mut pools);
        (pools[0].from.clone(), pools[0].waits_seconds)
    };
    let n1 = || Some("n1".to_owned());
    assert_eq!(
        look(0, pool(ClusterPoolState::Moving, Some("n1"))),
        (None, Some(0)),
        "nothing was seen before"
    );
    assert_eq!(look(5, pool(ClusterPoolState::Online, Some("n1"))), (None, None));
    assert_eq!(look(10, pool(ClusterPoolState::Moving, Some("n1"))), (None, Some(0)));
    assert_eq!(look(12, pool(ClusterPoolState::Unowned, None)), (n1(), Some(2)));
    assert_eq!(look(13, pool(ClusterPoolState::Unknown, Some("n2"))), (None, None));
    assert_eq!(look(14, pool(ClusterPoolState::Moving, Some("n2"))), (n1(), Some(4)));
    assert_eq!(look(15, pool(ClusterPoolState::Online, Some("n2"))), (None, None));
    assert_eq!(look(90, pool(ClusterPoolState::Silent, Some("n2"))), (None, Some(0)), "each time anew");
    watch.look(100, &mut []);
    let mut again = [pool(ClusterPoolState::Unowned, None)];
    watch.look(200, &mut again);
    assert_eq!(
        (again[0].from.clone(), again[0].waits_seconds),
        (None, Some(0)),
        "pools that are gone are forgotten"
    );
}

/// Who hears of nobody says so of itself, and nothing of the others that may well serve.
#[test]
fn a_node_that_is_cut_off_says_so_and_nothing_of_the_others() {
    use ClusterMemberState::{Silent, Up};
    let nodes = [("n1", Up), ("n2", Silent), ("n3", Silent)];
    let mut all = cluster(&nodes, vec![pool(ClusterPoolState::Unknown, Some("n2"))]);
    (all.store_unreadable, all.cut_off) = (true, vec!["n2".into(), "n3".into()]);
    let issues = of_nodes(&all);
    let codes: Vec<&str> = issues.iter().map(|issue| issue.code.as_str()).collect();
    assert_eq!(codes, ["node-cut-off"]);
    assert_eq!((issues[0].subject.as_str(), issues[0].severity), ("node n1", Severity::Error));
    assert!(
        issues[0].detail.starts_with("it reaches neither etcd nor nodes n2, n3: what they serve"),
        "{issues:?}"
    );
    // Whoever asks the others counts those for mute, which they are not.
    let told = not_known(&all, &all.pools, &["n2".into(), "n3".into()]);
    assert_eq!(told, ["this node, n1, reaches neither etcd nor nodes n2, n3: how it is with p is not known"]);
    let known = Known { ready: true, not_known: &told, ..Known::default() };
    let (verdict, sentence) = headline(&known, &issues);
    assert_eq!(verdict, Verdict::Reduced);
    assert!(sentence.starts_with("UNKNOWN: this node, n1, reaches neither"), "{sentence}");
}

#[test]
fn a_node_that_was_removed_says_so_and_what_to_do() {
    let mut all = cluster(&[], Vec::new());
    (all.takes_part, all.removed) = (false, true);
    let issues = of_nodes(&all);
    assert_eq!((issues.len(), issues[0].code.as_str()), (1, "node-removed"));
    assert!(issues[0].todo.contains("`holdfast cluster leave`"), "{issues:?}");
    let known = Known { ready: true, removed: true, ..Known::default() };
    let (verdict, sentence) = headline(&known, &issues);
    assert_ne!(verdict, Verdict::FullyRedundant);
    assert!(sentence.starts_with("REMOVED: the cluster has removed this node"), "{sentence}");
}
