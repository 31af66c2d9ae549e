//! Nodes that are paused and drained, and where pools go then: to their homes, and never to nobody.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

fn state(seen_by: &Member, node: usize) -> String {
    seen_by.get("/v1/cluster")["nodes"][node]["state"].as_str().unwrap_or_default().to_owned()
}

fn pause(asked: &Member, node: &str, drain: bool) {
    asked.send("POST", &format!("/v1/cluster/nodes/{node}/pause"), &json!({ "drain": drain }));
}

#[test]
fn the_last_node_that_takes_pools_is_not_drained() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let told = first.refused("POST", "/v1/cluster/nodes/n1/pause", &json!({ "drain": true }), "wrong-state");
    assert!(told.contains("No other node takes pools"), "{told}");
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("each knows the other", || state(&first, 1) == "up" && state(&second, 0) == "up");
    comes("it may be given pools", || first.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(2));

    // The second one is asked while the pool is on its way to it.
    pause(&first, "n1", true);
    comes("the second node knows", || state(&second, 0) == "draining");
    second.refused("POST", "/v1/cluster/nodes/n2/pause", &json!({ "drain": true }), "wrong-state");
    comes("it has the pool", || second.serves("l", "s"));
    // What it has it keeps, and nothing is on its way any more.
    comes("it is known that it has it", || first.pool("p").0 == "n2" && second.pool("p").0 == "n2");
    pause(&first, "n2", false);
    assert_eq!(state(&second, 1), "paused");
    assert!(second.serves("l", "s"));
    first.send("POST", "/v1/cluster/nodes/n2/resume", &Value::Null);
    assert_eq!(state(&second, 1), "up", "when it is answered, it is so");
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn a_paused_node_that_is_started_again_takes_no_pools() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("it is known", || state(&first, 1) == "up");
    pause(&first, "n2", false);
    second.stop();
    let second = world.start(2);
    comes("it takes part again", || second.takes_part() && state(&second, 1) == "paused");
    comes("the other one knows", || state(&first, 1) == "paused");
    first.send("POST", "/v1/cluster/nodes/n2/resume", &Value::Null);
    second.stop();
    let second = world.start(2);
    comes("it takes pools", || second.takes_part() && state(&second, 1) == "up");
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn a_pool_is_taken_over_by_its_home() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    comes("all are known", || first.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(3));
    second.send("PATCH", "/v1/pools/p", &json!({ "home": ["n3", "n1"] }));
    first.kill();
    // Without a home the node with the lowest number would take it.
    comes("somebody has it", || second.serves("l", "s") || third.serves("l", "s"));
    assert!(third.serves("l", "s") && !second.serves("l", "s"));
    for node in [second, third] {
        node.stop();
    }
}
