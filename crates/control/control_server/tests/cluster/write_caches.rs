//! What hosts have written to write caches is given up when somebody agrees to that, and by no pool that moves by itself.

use control_api::LunWriteCacheNow;
use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

/// Its LUN is taken to hold what these hosts have written.
fn holds(node: &Member, hosts: &[&str]) {
    let wrote = hosts.iter().map(|host| (*host).to_owned()).collect();
    node.iscsi.caches.lock().insert("l".into(), LunWriteCacheNow { wrote, ..LunWriteCacheNow::default() });
}

fn move_to(node: &str, confirm: Option<&str>) -> Value {
    json!({ "node": node, "confirm": confirm })
}

fn drain(confirm: Option<&str>) -> Value {
    json!({ "drain": true, "confirm": confirm })
}

/// Two nodes, the first of which has the pools.
fn two(world: &World) -> [Member; 2] {
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("it is known", || first.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(2));
    comes("who has the pool is known", || second.pool("p") == ("n1".into(), "online".into()));
    [first, second]
}

#[test]
fn what_is_lost_is_said_and_asked_about_whichever_node_is_told_to() {
    let world = World::new();
    let [first, second] = two(&world);
    holds(&first, &["iqn.h", "iqn.i"]);
    let lost = "LUN l loses all that iqn.h, iqn.i had written to its write cache";
    let (path, pause) = ("/v1/pools/p/move", "/v1/cluster/nodes/n1/pause");
    for node in [&first, &second] {
        for (path, wanted, other) in
            [(path, move_to("n2", None), move_to("n2", Some("q"))), (pause, drain(None), drain(Some("n2")))]
        {
            let told = node.refused("POST", path, &wanted, "confirmation-required");
            assert!(told.contains(lost), "{told}");
            node.refused("POST", path, &other, "invalid-request");
        }
    }
    assert_eq!(first.pool("p"), ("n1".into(), "online".into()));
    assert_eq!(first.get("/v1/cluster")["nodes"][0]["state"], "up", "it is not paused either");
    assert!(first.get("/v1/pools/p")["discards"].to_string().contains(lost));
    comes("the plan says so", || {
        second.get("/v1/cluster/balance").to_string().contains(lost) || {
            // One pool alone stays where it is: it gets a home.
            second.send("PATCH", "/v1/pools/p", &json!({ "home": ["n2"] }));
            false
        }
    });
    // Nothing is lost by these.
    second.send("POST", path, &move_to("n1", None));
    second.send("POST", pause, &json!({}));
    second.send("POST", "/v1/cluster/nodes/n1/resume", &Value::Null);

    second.send("POST", path, &move_to("n2", Some("p")));
    comes("it has moved", || second.serves("l", "s"));
    holds(&first, &[]);
    first.send("POST", path, &move_to("n1", None));
    comes("it goes back", || first.serves("l", "s"));
    holds(&first, &["iqn.h"]);
    first.send("POST", pause, &drain(Some("n1")));
    comes("it is given away", || second.serves("l", "s"));
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn a_pool_that_holds_something_does_not_go_home_by_itself() {
    let world = World::new();
    let [first, second] = two(&world);
    first.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    holds(&first, &["iqn.h"]);
    for pool in ["p", "q"] {
        second.send("PATCH", &format!("/v1/pools/{pool}"), &json!({ "home": ["n2"] }));
    }
    let mut config = first.get("/v1/config");
    config["policy"]["pool_moves_after_seconds"] = 1.into();
    first.send("PUT", "/v1/config", &json!({ "config": config }));
    // It would be the first to go.
    comes("the other one goes home", || first.pool("q") == ("n2".into(), "online".into()));
    assert_eq!(first.pool("p"), ("n1".into(), "online".into()));
    comes("somebody says why", || {
        let issues = first.get("/v1/status")["issues"].as_array().cloned().unwrap_or_default();
        let is_it =
            |issue: &Value| issue["code"] == "pool-away-from-home" && issue.to_string().contains("iqn.h");
        issues.iter().any(is_it)
    });
    let recorded = first.get("/v1/audit").to_string();
    assert!(!recorded.contains("confirmation-required"), "it was not even tried: {recorded}");
    // The cache is empty, as after its host was shut down and the LUN made anew.
    holds(&first, &[]);
    comes("it goes home", || first.pool("p") == ("n2".into(), "online".into()));
    for node in [first, second] {
        node.stop();
    }
}
