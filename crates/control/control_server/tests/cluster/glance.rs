//! The cluster at a glance while pools change nodes: whenever it is asked, and whichever node, the status is of one picture, and not better than that.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

/// A pool `q` with a volume `w`, on the disks that `make` has left.
fn make_other(node: &Member) {
    node.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    node.send("POST", "/v1/volumes", &json!({ "name": "w", "pool": "q", "size_bytes": 1 << 30 }));
}

fn list<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_default()
}

/// What holds of a status at any moment.
fn sound(status: &Value) {
    let (verdict, summary) = (text(status, "verdict"), text(status, "summary"));
    let (pools, nodes) = (list(&status["cluster"], "pools"), list(&status["cluster"], "nodes"));
    let issues = list(status, "issues");
    let names =
        |field: &str| -> BTreeSet<&str> { list(status, field).iter().map(|of| text(of, "pool")).collect() };
    let (counted, without) = (names("counted"), names("not_counted"));
    let mut capacity = 0;
    for pool in pools {
        let (name, state) = (text(pool, "name"), text(pool, "state"));
        let (unserved, unknown) = (matches!(state, "unowned" | "silent" | "moving"), state == "unknown");
        assert!(!unserved || verdict == "unavailable", "{status}");
        assert!(!(unserved || unknown) || verdict != "fully-redundant", "{status}");
        let named = summary.contains(&format!("{name} ")) || summary.contains(&format!("{name},"));
        assert!(!(unserved || unknown) || named, "it is said which: {status}");
        assert!(
            counted.contains(name) != without.contains(name),
            "totals are with it, or say that they are not: {status}"
        );
        assert!(!counted.contains(name) || state == "online", "{status}");
        let owner = nodes.iter().find(|node| node["name"] == pool["owner"]);
        let is_up = owner.is_some_and(|node| !matches!(text(node, "state"), "away" | "silent"));
        assert!(state != "online" || is_up, "{status}");
        let of = |code: &str, subject: &str| {
            issues.iter().filter(|issue| issue["code"] == code && issue["subject"] == subject).count()
        };
        assert_eq!(of("pool-unserved", &format!("pool {name}")), usize::from(unserved), "{status}");
        for volume in list(pool, "volumes") {
            let volume = format!("volume {}", volume.as_str().unwrap_or_default());
            assert_eq!(of("volume-closed", &volume), 1, "{status}");
        }
        capacity += list(status, "counted")
            .iter()
            .filter(|of| text(of, "pool") == name)
            .map(|of| of["capacity_bytes"].as_u64().unwrap_or(0))
            .sum::<u64>();
    }
    assert_eq!(status["capacity_bytes"].as_u64(), Some(capacity), "{status}");
    for issue in issues {
        assert!(!text(issue, "todo").contains("disk"), "advice of another case: {status}");
        let first_word = summary.split(':').next().unwrap_or_default();
        let as_bad = match text(issue, "severity") {
            "critical" => matches!(first_word, "UNAVAILABLE"),
            "error" => matches!(first_word, "UNAVAILABLE" | "REDUCED" | "FAULT" | "UNKNOWN"),
            "warning" => first_word != "OK",
            _ => true,
        };
        assert!(as_bad, "{status}");
        if issue["code"] == "node-silent" {
            let node =
                nodes.iter().find(|node| format!("node {}", text(node, "name")) == text(issue, "subject"));
            assert!(node.is_some_and(|node| node["state"] != "up"), "{status}");
            let up = format!("Node {} is up", node.map_or("", |node| text(node, "name")));
            assert!(!status["cluster"]["summary"].to_string().contains(&up), "{status}");
        }
    }
}

/// Asks these nodes in turn until it is so, and looks at each answer. `serves` says whether any node serves the pool `p` now.
fn sample(
    what: &str,
    nodes: &[&Member],
    serves: impl Fn() -> bool,
    is_over: impl Fn(&Value) -> bool,
) -> usize {
    let (mut turn, mut unserved) = (0, 0);
    comes(what, || {
        let node = nodes[turn % nodes.len()];
        turn += 1;
        let before = serves();
        let status = node.get("/v1/status");
        sound(&status);
        // Nobody served it before nor after: nobody did meanwhile.
        if !before && !serves() {
            unserved += 1;
            assert_ne!(status["verdict"], "fully-redundant", "{status}");
            assert!(!text(&status, "summary").contains("all data is"), "{status}");
            let is_counted = list(&status, "counted").iter().any(|pool| pool["pool"] == "p");
            assert!(!is_counted, "{status}");
        }
        is_over(&status)
    });
    unserved
}

/// Whether the status says that all is well with both pools.
fn is_well(status: &Value) -> bool {
    status["verdict"] == "fully-redundant" && list(status, "counted").len() == 2
}

#[test]
fn a_status_during_a_takeover_is_of_one_picture_and_never_too_good() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    make_other(&second);
    comes("all know", || [&first, &second, &third].iter().all(|node| is_well(&node.get("/v1/status"))));

    // Moved: who opens it is held up, so that there is something to see.
    let serves = || [&first, &second, &third].iter().any(|node| node.serves("l", "s"));
    let smb = third.smb.clone();
    let mut held = Some(smb.hold.blocking_write());
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| second.send("POST", "/v1/pools/p/move", &json!({ "node": "n3" })));
        let waits = |status: &Value| {
            text(status, "summary").contains("pool p is on its way from n1 to n3: its volumes wait")
        };
        sample("it is said where it is", &[&second], serves, waits);
        let status = second.get("/v1/status");
        let of = |code: &str, subject: &str| {
            list(&status, "issues")
                .iter()
                .find(|issue| issue["code"] == code && issue["subject"] == subject)
                .cloned()
        };
        let pool = of("pool-unserved", "pool p").expect("said");
        assert!(text(&pool, "todo").starts_with("Nothing needs to be done"), "{status}");
        assert!(
            of("volume-closed", "volume v").is_some() && of("volume-closed", "volume w").is_none(),
            "{status}"
        );
        drop(held.take());
        sample("it has moved", &[&first, &second, &third], serves, is_well);
        moving.join().expect("moved");
    });

    // Killed: n3 has it.
    third.kill();
    let serves = || [&first, &second].iter().any(|node| node.serves("l", "s"));
    let is_over = |status: &Value| is_well(status) && serves();
    assert!(sample("another node has it", &[&first, &second], serves, is_over) > 0, "it was asked meanwhile");

    // It stands still.
    let (owner, other) = if first.serves("l", "s") { (&first, &second) } else { (&second, &first) };
    owner.freeze();
    let serves = || other.serves("l", "s");
    sample("the last node has it", &[other], serves, |status| is_well(status) && serves());
    owner.thaw();
    comes("it takes part again", || owner.takes_part());
    for node in [first, second] {
        node.stop();
    }
}

/// A volume of the other node does not answer, and so its status takes long: what that node knows without waiting is told all the same.
#[test]
fn a_node_whose_status_takes_long_tells_of_the_disk_that_does_not_answer() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    let second = world.start(2);
    comes("the other node takes part", || second.takes_part());
    make(&second);
    comes("the first node knows", || {
        first.get("/v1/status")["verdict"] == "fully-redundant" && first.pool("p").1 == "online"
    });
    world.machine.mute(&["a"]);
    world.machine.silence("v", true);
    let has = |status: &Value, code: &str| list(status, "issues").iter().any(|issue| issue["code"] == code);
    comes("it is said which disk is silent", || has(&first.get("/v1/status"), "disk-silent"));
    for _ in 0..5 {
        let status = first.get("/v1/status");
        assert!(has(&status, "disk-silent"), "{status}");
        assert!(text(&status, "summary").starts_with("FAULT"), "{status}");
        assert!(status.to_string().contains("as it was"), "it is said that it takes long: {status}");
        assert_eq!(status["cluster"]["nodes"][1]["state"], "up", "{status}");
        assert_eq!(list(&status, "counted").len(), 1, "{status}");
    }
    world.machine.silence("v", false);
    world.machine.mute(&[]);
    comes("all is well again", || first.get("/v1/status")["issues"] == json!([]));
    for node in [first, second] {
        node.stop();
    }
}
