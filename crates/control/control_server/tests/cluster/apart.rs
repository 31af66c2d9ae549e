//! Nodes that are apart from their cluster: removed, cut off, or without a link to one other node. What they say is true, of themselves and of the others.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

fn text(of: &Value, field: &str) -> String {
    of[field].as_str().unwrap_or_default().to_owned()
}

fn codes(status: &Value) -> Vec<String> {
    let issues = status["issues"].as_array().cloned().unwrap_or_default();
    issues.iter().map(|issue| text(issue, "code")).collect()
}

fn issue(status: &Value, code: &str) -> Option<Value> {
    let issues = status["issues"].as_array().cloned().unwrap_or_default();
    issues.into_iter().find(|issue| issue["code"] == code)
}

fn is_well(node: &Member) -> bool {
    node.get("/v1/status")["verdict"] == "fully-redundant"
}

/// It says what it is, also over restarts, and touches nothing of the cluster.
#[test]
fn a_removed_node_says_so_and_has_nothing_of_the_cluster() {
    let world = World::new();
    world.enter(&[(1, false), (2, false)]);
    let (first, second) = (world.start(1), world.start(2));
    comes("both take part", || [&first, &second].iter().all(|node| node.takes_part()));
    make(&first);
    comes("both know", || [&first, &second].iter().all(|node| is_well(node)));
    second.stop();
    world.enter(&[(2, true)]);

    for _ in 0..2 {
        let second = world.start(2);
        comes("it says so", || second.get("/v1/status")["cluster"]["removed"] == true);
        let status = second.get("/v1/status");
        assert!(
            text(&status, "summary").starts_with("REMOVED: the cluster has removed this node"),
            "{status}"
        );
        assert_ne!(status["verdict"], "fully-redundant", "{status}");
        assert_eq!(codes(&status), ["node-removed"], "{status}");
        assert!(text(&status["issues"][0], "todo").contains("holdfast cluster leave"), "{status}");
        assert!(!status.to_string().contains("cannot be read"), "{status}");
        assert_eq!((&status["cluster"]["pools"], &status["cluster"]["nodes"]), (&json!([]), &json!([])));
        assert!(!second.serves("l", "s") && !second.takes_part());
        // What is the cluster's it does not change.
        let group = json!({ "name": "g", "initiators": [], "any": true });
        let why = second.refused("POST", "/v1/initiator-groups", &group, "wrong-state");
        assert!(why.contains("has removed this node"), "{why}");
        let user = json!({ "name": "eve", "password": "correct horse" });
        let (done, why) = second.ask("POST", "/v1/users", &user);
        assert!(!done && why.to_string().contains("has removed this node"), "{why}");
        for (method, path) in [("POST", "/v1/cluster/tokens"), ("DELETE", "/v1/cluster/nodes/n1")] {
            let why = second.refused(method, path, &json!({ "confirm": "n1" }), "wrong-state");
            assert!(why.contains("has removed this node"), "{why}");
        }
        let pools = second.get("/v1/pools");
        assert_eq!(pools["items"][0]["state"], "elsewhere", "{pools}");
        second.stop();
    }
    assert!(is_well(&first) && first.serves("l", "s"), "the others go on");
    let groups = first.get("/v1/initiator-groups");
    assert!(!groups.to_string().contains("\"g\""), "{groups}");
    let users = first.get("/v1/users");
    assert!(!users.to_string().contains("eve"), "{users}");
    first.stop();
}

/// It hears of nobody, and what it had is with the other node by now: it claims nothing of that.
#[test]
fn a_node_that_is_cut_off_says_so_and_does_not_bury_the_others() {
    let world = World::with_ways();
    let (first, second) = (world.start(1), world.start(2));
    comes("both take part", || [&first, &second].iter().all(|node| node.takes_part()));
    make(&first);
    comes("both know", || [&first, &second].iter().all(|node| is_well(node)));

    let cut = |cut| {
        world.way(1).cut_store(cut);
        world.way(1).cut_links(cut);
        world.way(2).cut_links(cut);
    };
    cut(true);
    comes("the other node serves it", || second.serves("l", "s") && second.pool("p").1 == "online");
    comes("it says that it is cut off", || {
        let status = first.get("/v1/status");
        codes(&status).contains(&"node-cut-off".to_owned()) && !first.serves("l", "s")
    });
    for _ in 0..3 {
        let status = first.get("/v1/status");
        let summary = text(&status, "summary");
        let expected =
            "UNKNOWN: this node, n1, reaches neither etcd nor node n2: how it is with p is not known.";
        assert_eq!(summary, expected, "{status}");
        assert_eq!(codes(&status), ["node-cut-off"], "{status}");
        assert_eq!(status["cluster"]["cut_off"], json!(["n2"]), "{status}");
        assert_eq!(status["cluster"]["pools"][0]["state"], "unknown", "{status}");
        let told = status.to_string();
        for untruth in ["process", "by no node", "gives no sign of life", "is up", "on its way"] {
            assert!(!told.contains(untruth), "{untruth}: {status}");
        }
    }
    // The other one is right about it.
    assert!(codes(&second.get("/v1/status")).contains(&"node-away".to_owned()));

    cut(false);
    comes("all is well again", || {
        [&first, &second]
            .iter()
            .all(|node| node.takes_part() && node.get("/v1/status")["issues"] == json!([]))
    });
    first.stop();
    second.stop();
}

/// Both take part by the store: it is said by both, of both, and goes when the link is back.
#[test]
fn a_broken_link_between_two_nodes_is_a_finding_for_as_long_as_it_is_so() {
    let world = World::with_ways();
    let (first, second) = (world.start(1), world.start(2));
    comes("both take part", || [&first, &second].iter().all(|node| node.takes_part()));
    comes("all is well", || {
        [&first, &second].iter().all(|node| node.get("/v1/status")["issues"] == json!([]))
    });
    world.way(1).cut_links(true);
    world.way(2).cut_links(true);
    for node in [&first, &second] {
        comes("it is said", || issue(&node.get("/v1/status"), "node-link-broken").is_some());
        let told = issue(&node.get("/v1/status"), "node-link-broken").expect("said");
        assert_eq!(
            (text(&told, "subject"), text(&told, "severity")),
            ("nodes n1 and n2".into(), "warning".into())
        );
        assert!(told["since"].as_u64().is_some_and(|since| since > 0), "{told}");
        assert!(
            text(&told, "detail").contains("mirrors") && text(&told, "detail").contains("LostCommunication")
        );
        assert!(node.takes_part(), "they hear of each other all the same");
    }
    // Both see it: it is said once.
    comes("it is said once", || {
        let said = codes(&first.get("/v1/status"));
        said.iter().filter(|code| *code == "node-link-broken").count() == 1
    });
    world.way(1).cut_links(false);
    world.way(2).cut_links(false);
    comes("it is over", || {
        [&first, &second].iter().all(|node| node.get("/v1/status")["issues"] == json!([]))
    });
    first.stop();
    second.stop();
}
