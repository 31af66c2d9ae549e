//! A pool goes from node to node: by order, when its owner is killed, when its owner stands still.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

fn one_serves<'a>(what: &str, nodes: &[&'a Member]) -> &'a Member {
    let mut found = None;
    comes(what, || {
        found = nodes.iter().copied().find(|node| node.serves("l", "s"));
        found.is_some()
    });
    found.expect("there is one")
}

#[test]
fn a_pool_that_is_made_comes_up_by_orders_and_others_say_who_has_it() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    assert!(first.serves("l", "s"));
    assert_eq!(first.pool("p"), ("n1".into(), "online".into()));
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("the second node knows", || second.pool("p") == ("n1".into(), "online".into()));
    assert!(!second.serves("l", "s"), "it is not its own");
    let status = second.get("/v1/status");
    assert_eq!(status["issues"], json!([]), "what another node has is not missing: {status}");

    // Any node is asked; the one that has it does it, and writes down who asked.
    second.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" }));
    comes("it is served by the other node", || second.serves("l", "s"));
    assert!(!first.serves("l", "s"));
    let recorded = first.get("/v1/audit").to_string();
    assert!(recorded.contains("node n2") && recorded.contains("pool_move"), "{recorded}");
    comes("the first one knows", || first.pool("p") == ("n2".into(), "online".into()));
    first.send("POST", "/v1/cluster/nodes/n2/pause", &json!({ "drain": true }));
    comes("it goes back", || first.serves("l", "s") && !second.serves("l", "s"));
    first.send("POST", "/v1/cluster/nodes/n2/resume", &Value::Null);
    let told = second.refused("POST", "/v1/pools/p/move", &json!({ "node": "n7" }), "not-found");
    assert!(told.contains("n7"), "{told}");
    assert_eq!(second.get("/v1/cluster")["nodes"][1]["state"], "up");
    let told = first.refused("POST", "/v1/pools/p/move", &json!({ "node": "n7" }), "not-found");
    assert!(told.contains("n7"), "{told}");

    // What is destroyed is nobody's any more.
    first.send("DELETE", "/v1/luns/l", &json!({ "confirm": "l" }));
    first.send("DELETE", "/v1/shares/s", &json!({ "confirm": "s" }));
    first.send("DELETE", "/v1/volumes/v", &json!({ "confirm": "v" }));
    first.send("DELETE", "/v1/pools/p", &json!({ "confirm": "p" }));
    comes("nobody knows it", || first.pool("p").0.is_empty());
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn who_is_killed_or_stands_still_loses_its_pools_to_others() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    comes("all know all", || second.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(3));

    first.kill();
    let owner = one_serves("what the dead node had", &[&second, &third]);
    let other = if std::ptr::eq(owner, &second) { &third } else { &second };
    assert!(!other.serves("l", "s"));
    comes("the dead one is away", || {
        let nodes = other.get("/v1/cluster")["nodes"].clone();
        nodes.as_array().into_iter().flatten().any(|node| node["number"] == 1 && node["state"] == "away")
    });

    owner.freeze();
    comes("what the frozen node had", || other.serves("l", "s"));
    owner.thaw();
    comes("the former owner has let go of it", || !owner.serves("l", "s"));
    comes("it takes part again", || owner.takes_part());
    comes("all agree", || owner.pool("p") == other.pool("p") && owner.pool("p").1 == "online");
    assert!(other.serves("l", "s"), "it stays where it is");
    for node in [second, third] {
        node.stop();
    }
}

#[test]
fn clients_wait_for_the_shares_of_a_pool_that_comes_where_it_comes() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let (second, third) = (world.start(2), world.start(3));
    comes("all take part", || [&second, &third].iter().all(|node| node.takes_part()));
    let expects = |node: &Member| node.smb.expected.lock().contains(&"s".to_owned());
    comes("nothing is on its way", || [&first, &second, &third].iter().all(|node| !expects(node)));
    comes("the second node knows", || second.pool("p") == ("n1".into(), "online".into()));

    // One of them is to have it, and does not get beyond bringing back what clients had open.
    let (at_second, at_third) = (second.smb.hold.blocking_write(), third.smb.hold.blocking_write());
    first.kill();
    comes("it is on its way", || expects(&second) || expects(&third));
    let (owner, other) = if expects(&second) { (&second, &third) } else { (&third, &second) };
    assert!(!owner.serves("l", "s") && !expects(other), "the other one has nothing to wait for");
    drop((at_second, at_third));
    comes("it is served", || owner.serves("l", "s"));
    comes("it is not on its way any more", || !expects(owner));
    assert!(!expects(other));
    for node in [second, third] {
        node.stop();
    }
}
