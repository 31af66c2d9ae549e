//! One verdict over all nodes, of one picture.

use serde_json::json;

use super::*;

fn status(node: &str, verdict: &str, issues: Value) -> Status {
    serde_json::from_value(json!({
        "node": node, "version": "1", "uptime_seconds": 1, "ready": true, "verdict": verdict, "summary": "",
        "issues": issues, "jobs": [], "capacity_bytes": 10, "free_bytes": 5, "io_engine": "", "pid": 1, "data_dir": "",
        "counts": { "pools": 2, "disks": 2, "volumes": 1, "targets": 1, "luns": 3, "luns_online": 1, "sessions": 2 },
    }))
    .expect("a status")
}

fn all(own: Status, others: Vec<(String, Status)>, mute: &[&str]) -> Status {
    let mute: Vec<String> = mute.iter().map(|name| (*name).to_owned()).collect();
    together(own, others, &mute, &|cluster| cluster.summary = vec!["summed up".into()])
}

/// A pool of the cluster, as a node sees it.
fn pool(name: &str, owner: &str, epoch: u64, state: &str) -> Value {
    let guid = format!("00000000-0000-0000-0000-{:012}", name.len() + usize::from(name.as_bytes()[1]));
    json!({ "name": name, "guid": guid, "owner": owner, "epoch": epoch, "state": state, "address": null, "reason": null, "volumes": [format!("v{name}")] })
}

/// A node's status with what it sees of the cluster, of three nodes that are up but for these, and the pools that it counts.
fn seen(node: &str, silent: &[&str], pools: &[Value], counted: &[(&str, u64)], issues: Value) -> Status {
    let member = |number: u16| {
        let name = format!("n{number}");
        let state = if silent.contains(&name.as_str()) { "silent" } else { "up" };
        json!({ "name": name, "number": number, "state": state, "beat_age_ms": 20, "pools": 1, "addresses": [] })
    };
    let nodes: Vec<Value> = (1..=3).map(member).collect();
    let cluster = json!({ "cluster": "c", "node": node, "takes_part": true, "summary": [], "pools": pools, "nodes": nodes });
    let counted: Vec<Value> = counted
        .iter()
        .map(|(pool, epoch)| json!({ "pool": pool, "epoch": epoch, "disks": 2, "volumes": 1, "capacity_bytes": 10, "free_bytes": 5 }))
        .collect();
    let mut status = serde_json::to_value(status(node, "fully-redundant", issues)).expect("a value");
    status["cluster"] = cluster;
    status["counts"]["disks"] = json!(0);
    status["redundancy"] = json!("full");
    status["counted"] = json!(counted);
    serde_json::from_value(status).expect("a status")
}

#[test]
fn the_first_line_is_never_better_than_the_worst_node() {
    let fine = || status("n1", "fully-redundant", json!([]));
    let reduced = |severity: &str| {
        let issue = json!([{ "severity": severity, "subject": "pool p2", "detail": "d", "todo": "" }]);
        ("n2".to_owned(), status("n2", "reduced", issue))
    };
    let told = all(fine(), vec![reduced("error")], &[]);
    assert_eq!(told.verdict, Verdict::Reduced);
    assert!(told.summary.starts_with("REDUCED"), "{}", told.summary);
    assert_eq!((told.counts.luns, told.counts.luns_online, told.counts.sessions), (3, 2, 4));
    assert_eq!(told.capacity_bytes, 20);
    let told = all(fine(), vec![reduced("critical")], &[]);
    assert!(told.summary.starts_with("UNAVAILABLE"), "{}", told.summary);
    let told = all(fine(), vec![("n2".into(), status("n2", "fully-redundant", json!([])))], &[]);
    assert!(told.summary.starts_with("OK"), "{}", told.summary);
}

/// What holds of any status, whatever the nodes have told.
fn sound(told: &Status) {
    let about = || format!("{told:?}");
    let cluster = told.cluster.as_ref().expect("of a cluster");
    let unserved = cluster.pools.iter().any(|pool| pool.is_unserved());
    let unknown = cluster.pools.iter().any(|pool| pool.state == ClusterPoolState::Unknown);
    assert!(!unserved || told.verdict == Verdict::Unavailable, "{}", about());
    assert!(!unknown || told.verdict != Verdict::FullyRedundant, "{}", about());
    for pool in &cluster.pools {
        let counted = told.counted.iter().any(|counted| counted.pool == pool.name);
        let without = told.not_counted.iter().any(|without| without.pool == pool.name);
        assert!(counted != without, "the totals are with it, or say that they are without: {}", about());
        assert!(!counted || pool.state == ClusterPoolState::Online, "{}", about());
        let owner = cluster.nodes.iter().find(|node| Some(&node.name) == pool.owner.as_ref());
        let is_up = owner.is_some_and(|node| node.state > ClusterMemberState::Silent);
        assert!(pool.state != ClusterPoolState::Online || is_up, "{}", about());
        let said = told
            .issues
            .iter()
            .filter(|issue| issue.code == "pool-unserved" && issue.subject.ends_with(&pool.name));
        assert_eq!(said.count(), usize::from(pool.is_unserved()), "{}", about());
    }
    assert_eq!(told.capacity_bytes, told.counted.len() as u64 * 10, "{}", about());
    assert!(told.issues.iter().all(|issue| !issue.todo.contains("disk")), "{}", about());
    assert_eq!(cluster.summary, ["summed up"]);
}

#[test]
fn a_takeover_is_told_as_one_picture_at_each_of_its_moments() {
    let p1 = || pool("p1", "n1", 4, "online");
    let (p2, moving, next) = (
        || pool("p2", "n2", 5, "online"),
        || pool("p2", "n3", 6, "moving"),
        || pool("p2", "n3", 6, "online"),
    );
    let first = |silent: &[&str], p2: Value, issues| seen("n1", silent, &[p1(), p2], &[("p1", 4)], issues);
    let third = |silent: &[&str], p2: Value, counted: &[(&str, u64)]| {
        ("n3".to_owned(), seen("n3", silent, &[p1(), p2], counted, json!([])))
    };
    // All is well.
    let second = ("n2".to_owned(), seen("n2", &[], &[p1(), p2()], &[("p2", 5)], json!([])));
    let told = all(first(&[], p2(), json!([])), vec![second, third(&[], p2(), &[])], &[]);
    sound(&told);
    assert!(
        told.summary.starts_with("OK") && told.issues.is_empty() && told.not_counted.is_empty(),
        "{told:?}"
    );
    assert_eq!((told.capacity_bytes, told.counts.volumes, told.counts.disks), (20, 2, 4));

    // n2 was killed just now, and its last signs of life are not past: nobody says that it is up and has p2.
    let told = all(first(&[], p2(), json!([])), vec![third(&[], p2(), &[])], &["n2"]);
    sound(&told);
    assert_eq!(told.summary, "UNKNOWN: node n2 does not answer: how it is with p2 is not known.");
    assert_eq!(told.verdict, Verdict::Reduced);
    let codes = |told: &Status| told.issues.iter().map(|issue| issue.code.clone()).collect::<Vec<_>>();
    assert_eq!(codes(&told), ["node-silent", "quorum-thin"]);
    assert_eq!(told.not_counted[0].why, "node n2 does not answer");

    // They are past.
    let away = json!([
        { "code": "node-away", "id": "12", "severity": "warning", "subject": "node n2", "detail": "d", "todo": "", "since": 70 },
        { "code": "pool-unserved", "id": "34", "severity": "critical", "subject": "pool p2", "detail": "earlier words", "todo": "", "since": 80 },
    ]);
    let silent = || pool("p2", "n2", 5, "silent");
    let told = all(first(&["n2"], silent(), away), vec![third(&["n2"], silent(), &[])], &["n2"]);
    sound(&told);
    assert_eq!(told.summary, "UNAVAILABLE: pool p2 is on its way from n2 to another node: its volumes wait.");
    // On its way it is nothing that somebody has to be woken for.
    assert_eq!(codes(&told), ["quorum-thin", "node-away", "pool-unserved", "volume-closed"]);
    // What is in the book of it is kept.
    assert_eq!((told.issues[2].since, told.issues[2].id.as_str()), (Some(80), "34"));
    assert_eq!(told.issues[1].since, Some(70));
    assert_eq!(told.not_counted[0].why, "no node serves it now");

    // n3 has taken it, and n1 has not heard of that; then it has, and n3 has opened it meanwhile.
    let told = all(first(&["n2"], silent(), json!([])), vec![third(&["n2"], moving(), &[])], &[]);
    sound(&told);
    assert!(told.summary.contains("pool p2"), "{}", told.summary);
    let behind = json!([{ "code": "pool-unserved", "severity": "critical", "subject": "pool p2", "detail": "d", "todo": "" }]);
    let told = all(first(&["n2"], moving(), behind), vec![third(&["n2"], next(), &[("p2", 6)])], &[]);
    sound(&told);
    assert_eq!(codes(&told), ["quorum-thin", "node-away"], "it is served: {told:?}");
    assert!(told.summary.starts_with("WARNING"), "{}", told.summary);
}

#[test]
fn a_pool_is_counted_once_wherever_it_was_looked_into() {
    let views = |state| [pool("p1", "n2", 7, state)];
    let told = |state| {
        let own = seen("n1", &[], &[pool("p1", "n1", 6, "online")], &[("p1", 6)], json!([]));
        all(own, vec![("n2".into(), seen("n2", &[], &views(state), &[("p1", 7)], json!([])))], &["n3"])
    };
    let online = told("online");
    sound(&online);
    assert_eq!((online.capacity_bytes, online.counted[0].epoch), (10, 7));
    let moving = told("moving");
    sound(&moving);
    assert_eq!((moving.capacity_bytes, moving.not_counted.len()), (0, 1));
}

#[test]
fn what_is_not_known_is_not_called_fine() {
    let fine = || seen("n1", &[], &[pool("p1", "n1", 4, "online")], &[("p1", 4)], json!([]));
    let told = all(fine(), Vec::new(), &["n3"]);
    sound(&told);
    assert!(told.summary.starts_with("WARNING"), "{}", told.summary);
    // Who is asked has just started, and knows nothing of any pool.
    let starts = seen("n1", &[], &[pool("p1", "n1", 0, "unknown")], &[], json!([]));
    let told = all(starts, Vec::new(), &[]);
    sound(&told);
    assert!(told.summary.starts_with("UNKNOWN"), "{}", told.summary);
}

#[test]
fn what_both_say_is_said_once() {
    let issues = json!([
        { "severity": "warning", "subject": "pool p", "detail": "d", "todo": "" },
        { "severity": "warning", "subject": "portal a", "detail": "e", "todo": "" },
    ]);
    let same = json!([{ "severity": "warning", "subject": "pool p", "detail": "d", "todo": "" }]);
    let told = all(
        status("n1", "fully-redundant", same),
        vec![("n2".into(), status("n2", "fully-redundant", issues))],
        &[],
    );
    let subjects: Vec<&str> = told.issues.iter().map(|issue| issue.subject.as_str()).collect();
    assert_eq!(subjects, ["node n2, portal a", "pool p"]);
}

#[test]
fn an_acknowledgement_of_another_node_is_taken_back_there() {
    let line = |known: bool, severity: &str| {
        let who = known.then(|| json!({ "by": "a", "time": 5 }));
        json!([{ "code": "node-away", "id": "1234", "severity": severity, "subject": "node n3", "detail": "d", "todo": "", "acknowledged": who }])
    };
    let status = |node: &str, issues| status(node, "fully-redundant", issues);
    let told = |own, other| all(status("n1", own), vec![("n2".into(), status("n2", other))], &[]);
    let said = |told: Status| (told.issues[0].id.clone(), told.issues[0].acknowledged.is_some());
    let (open, known) = (line(false, "warning"), line(true, "warning"));
    assert_eq!(said(told(open.clone(), open.clone())), ("1234".into(), false));
    assert_eq!(said(told(open.clone(), known.clone())), ("n2:1234".into(), true));
    assert_eq!(said(told(known.clone(), open.clone())), ("1234".into(), true));
    assert_eq!(said(told(known.clone(), known)), ("1234".into(), true));
    // Whichever of the two says it: it is as bad as the worse of them.
    assert_eq!(told(open, line(false, "error")).issues[0].severity, Severity::Error);
    for (own, other) in [("error", "warning"), ("warning", "error")] {
        let told = told(line(own == "warning", own), line(other == "warning", other));
        assert_eq!((told.issues[0].severity, &told.issues[0].acknowledged), (Severity::Error, &None));
    }
}
