//! Pools whose disks only one node reaches: they stay there, and nobody else is promised to have them.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

/// Three nodes with the pool `p` on disks that only the first one reaches.
fn local() -> (World, [Member; 3]) {
    let world = World::new();
    for number in [2, 3] {
        world.machine.hide(&world.data(number), &["a", "b"]);
    }
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let nodes = [first, world.start(2), world.start(3)];
    for node in &nodes {
        comes("it takes part", || node.takes_part());
        comes("it knows who sees the disks", || pool(node)["can_serve"] == json!(["n1"]));
        comes("it is served", || node.pool("p") == ("n1".into(), "online".into()));
    }
    (world, nodes)
}

fn pool(seen_by: &Member) -> Value {
    seen_by.get("/v1/cluster")["pools"][0].clone()
}

/// What is said of the pool and its volume in the status of all nodes.
fn issues(seen_by: &Member) -> Vec<Value> {
    let status = seen_by.get("/v1/status");
    let all = status["issues"].as_array().cloned().unwrap_or_default();
    let about = |issue: &Value| {
        let subject = issue["subject"].as_str().unwrap_or_default().to_owned();
        subject.ends_with("pool p") || subject.ends_with("volume v") || subject.ends_with("lun l")
    };
    all.into_iter().filter(about).collect()
}

#[test]
fn a_pool_on_disks_of_one_node_is_given_to_nobody() {
    let (_world, nodes) = local();
    let [first, second, _] = &nodes;
    let epoch = pool(first)["epoch"].clone();
    for asked in [first, second] {
        let told = asked.refused("POST", "/v1/pools/p/move", &json!({ "node": "n2" }), "wrong-state");
        assert!(told.contains("Node n2 cannot open pool p: it sees 0 of 2 disks"), "{told}");
        assert!(told.contains("It does not see a, b"), "{told}");
        let plan = asked.get("/v1/cluster/balance");
        assert_eq!(plan["moves"], json!([]), "{plan}");
        assert!(plan["stay"].to_string().contains("No other node that takes pools can open it"), "{plan}");
        let summary = asked.get("/v1/cluster")["summary"].to_string();
        assert!(summary.contains("Only node n1 can serve p"), "{summary}");
        assert!(!summary.contains("take its pools over: 2"), "{summary}");
    }
    let drained = second.send("POST", "/v1/cluster/nodes/n1/pause", &json!({ "drain": true }));
    assert!(drained.to_string().contains("It keeps p: no other node"), "{drained}");
    for node in &nodes {
        comes("it is told why it stays", || {
            node.get("/v1/cluster")["summary"].to_string().contains("Node n1 is drained, and keeps p")
        });
    }
    first.send("POST", "/v1/cluster/nodes/n1/resume", &Value::Null);
    assert!(first.serves("l", "s"));
    assert_eq!(pool(first)["epoch"], epoch, "it has not left for a moment");
    for node in nodes {
        node.stop();
    }
}

/// A home that does not see the disks is no home for now.
#[test]
fn a_pool_does_not_go_home_by_itself_to_where_its_disks_are_not() {
    let (_world, nodes) = local();
    let [first, second, _] = &nodes;
    let epoch = pool(first)["epoch"].clone();
    first.send("PATCH", "/v1/pools/p", &json!({ "home": ["n2"] }));
    let mut config = first.get("/v1/config");
    config["policy"]["pool_moves_after_seconds"] = 1.into();
    first.send("PUT", "/v1/config", &json!({ "config": config }));
    let plan = second.get("/v1/cluster/balance");
    assert_eq!(plan["moves"], json!([]), "{plan}");
    assert!(first.serves("l", "s"));
    assert_eq!(pool(first)["epoch"], epoch);
    for node in nodes {
        node.stop();
    }
}

#[test]
fn a_pool_whose_only_node_is_away_waits_for_it_and_loses_nothing() {
    let (world, [first, second, third]) = local();
    // What lists have told once is known to whoever asked.
    assert_eq!(third.get("/v1/volumes")["items"][0]["online"], true);
    first.stop();
    for node in [&second, &third] {
        comes("it is told where the disks are", || pool(node)["with_away"] == json!(["n1"]));
        comes("nobody is said to serve it", || {
            issues(node).iter().any(|issue| issue["code"] == "pool-unserved")
        });
        let told = issues(node);
        let text = Value::from(told.clone()).to_string();
        assert!(text.contains("its disks are with node n1, which is away"), "{text}");
        assert!(text.contains("Bring n1 back"), "{text}");
        assert!(!text.contains("accept-loss") && !text.contains("pool forget"), "{text}");
        assert!(!text.contains("on its way"), "{text}");
        let status = node.get("/v1/status");
        assert_eq!(
            (&status["counts"]["luns_online"], &status["counts"]["shares_online"]),
            (&json!(0), &json!(0))
        );
        assert_eq!((&status["counts"]["luns"], &status["counts"]["shares"]), (&json!(1), &json!(1)));
        let volumes = node.get("/v1/volumes");
        let volume = &volumes["items"][0];
        assert_eq!((&volume["name"], &volume["online"]), (&json!("v"), &json!(false)), "{volumes}");
        let luns = node.get("/v1/luns");
        let lun = &luns["items"][0];
        assert_eq!((&lun["serving"], lun["problem"].is_null()), (&json!("offline"), false), "{luns}");
        assert_eq!(node.get("/v1/shares")["items"][0]["online"], false);
    }
    // Nobody has taken it meanwhile, and nobody tried.
    assert_eq!(pool(&second)["owner"], "n1");
    let first = world.start(1);
    comes("it is served again", || first.serves("l", "s"));
    comes("the others know", || second.pool("p") == ("n1".into(), "online".into()));
    for node in [first, second, third] {
        node.stop();
    }
}

/// That a node sees the disks does not say that it can open the pool.
#[test]
fn a_pool_that_its_new_node_cannot_open_goes_back() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    world.machine.refuse(&world.data(2), true);
    let second = world.start(2);
    comes("it takes part", || second.takes_part());
    comes("both see the disks", || pool(&first)["can_serve"] == json!(["n1", "n2"]));
    let epoch = pool(&first)["epoch"].as_u64();
    first.send("POST", "/v1/cluster/nodes/n1/pause", &json!({ "drain": true }));
    comes("it was given away", || pool(&first)["epoch"].as_u64() > epoch);
    comes("it is back", || first.serves("l", "s"));
    comes("it is known who cannot", || pool(&first)["can_serve"] == json!(["n1"]));
    let told = first.refused("POST", "/v1/pools/p/move", &json!({ "node": "n2" }), "wrong-state");
    assert!(told.contains("could not open pool p when it last tried"), "{told}");
    for node in [first, second] {
        node.stop();
    }
}

/// What kept a node from reading disks is over some time, and nobody tells it so.
#[test]
fn a_node_sees_disks_again_that_it_could_not_read_for_a_while() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("both see the disks", || pool(&first)["can_serve"] == json!(["n1", "n2"]));
    world.machine.spoil(&world.data(2), &["a", "b"]);
    // It looks at all disks anew when a configuration is applied.
    let mut config = second.get("/v1/config");
    config["policy"]["pool_moves_after_seconds"] = 3600.into();
    second.send("PUT", "/v1/config", &json!({ "config": config }));
    comes("it is known who cannot read them", || pool(&first)["can_serve"] == json!(["n1"]));
    world.machine.spoil(&world.data(2), &[]);
    second.send("POST", "/v1/disks/rescan", &Value::Null);
    comes("both see them again", || pool(&first)["can_serve"] == json!(["n1", "n2"]));
    for node in [first, second] {
        node.stop();
    }
}

/// The pool is made on a disk that had something else on it when the other node looked.
#[test]
fn a_node_sees_a_pool_on_a_disk_that_had_something_else_on_it() {
    let world = World::new();
    world.machine.write_foreign("a", "GPT partition table");
    world.machine.write_foreign("b", "GPT partition table");
    let (first, second) = (world.start(1), world.start(2));
    for node in [&first, &second] {
        comes("it takes part", || node.takes_part());
    }
    let new = json!({ "name": "p", "disks": ["a", "b"], "confirm": "p", "overwrite_foreign": true });
    first.send("POST", "/v1/pools", &new);
    comes("both see it", || pool(&first)["can_serve"] == json!(["n1", "n2"]));
    for node in [first, second] {
        node.stop();
    }
}

/// Nodes that reach a disk themselves would use it past the one that lends it.
#[test]
fn disks_that_other_nodes_reach_are_not_lent() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("both see the disks", || pool(&first)["can_serve"] == json!(["n1", "n2"]));
    let epoch = pool(&first)["epoch"].clone();
    let new = json!({ "disk": "n1:/dev/x", "confirm": "n1:/dev/x" });
    let told = first.refused("POST", "/v1/pools/p/disks", &new, "wrong-state");
    assert!(told.contains("other nodes reach disks a, b themselves"), "{told}");
    assert_eq!(pool(&first)["epoch"], epoch, "it has not been closed");
    for node in [first, second] {
        node.stop();
    }
}

/// Clients do not wait for a pool to be closed and opened again for a disk that cannot come to it.
#[test]
fn a_pool_is_not_closed_for_a_disk_that_cannot_come() {
    let (_world, nodes) = local();
    let [first, second, _] = &nodes;
    let epoch = pool(first)["epoch"].clone();
    let new = json!({ "disk": "n1:/dev/typo", "confirm": "n1:/dev/typo" });
    first.refused("POST", "/v1/pools/p/disks", &new, "unsupported");
    let replace = json!({ "with": "n1:/dev/typo", "confirm": "a" });
    first.refused("POST", "/v1/pools/p/replace?disk=a", &replace, "unsupported");
    let replace = json!({ "with": "n1:/dev/typo", "confirm": "c" });
    first.refused("POST", "/v1/pools/p/replace?disk=c", &replace, "not-found");
    assert_eq!(pool(first)["epoch"], epoch, "it has not been closed");
    assert!(first.serves("l", "s"));
    for node in [first, second] {
        comes("it is forgotten again", || !node.get("/v1/config")["disk"].to_string().contains("typo"));
    }
    for node in nodes {
        node.stop();
    }
}
