//! Pools go to nodes that have less to do, and home: shown, refused, moved, and by themselves.

use serde_json::{Value, json};

use crate::world::{Member, World, comes, make};

fn moves(node: &Member) -> Vec<(String, String, String, String)> {
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let plan = node.get("/v1/cluster/balance");
    let moves = plan["moves"].as_array().cloned().unwrap_or_default();
    moves
        .iter()
        .map(|step| (text(step, "pool"), text(step, "from"), text(step, "to"), text(step, "reason")))
        .collect()
}

fn step(pool: &str, from: &str, to: &str, reason: &str) -> Vec<(String, String, String, String)> {
    vec![(pool.into(), from.into(), to.into(), reason.into())]
}

#[test]
fn pools_are_spread_and_go_home_by_themselves() {
    let world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    first.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    assert!(moves(&first).is_empty(), "there is no other node");
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("it is known", || first.get("/v1/cluster")["nodes"].as_array().map(Vec::len) == Some(2));

    // The same from each node: one pool for each.
    comes("one should move", || moves(&first) == step("p", "n1", "n2", "load"));
    comes("the other node says so, too", || moves(&second) == step("p", "n1", "n2", "load"));
    second.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" }));
    comes("it has moved", || first.pool("p") == ("n2".into(), "online".into()));
    comes("that is even", || moves(&first).is_empty());

    // A home is of nodes that there are; any node is asked.
    let told = first.refused("PATCH", "/v1/pools/p", &json!({ "home": ["n7"] }), "not-found");
    assert!(told.contains("n7"), "{told}");
    first.refused("PATCH", "/v1/pools/p", &json!({ "home": ["n1", "n1"] }), "invalid-request");
    // By its number it would be found, and nobody else would know it.
    first.refused("PATCH", "/v1/pools/p", &json!({ "home": ["1"] }), "invalid-request");
    let detail = first.send("PATCH", "/v1/pools/p", &json!({ "home": ["n1"] }));
    assert_eq!(detail["home"], json!(["n1"]), "{detail}");
    // And the other one makes room for it.
    let both = [step("p", "n2", "n1", "home"), step("q", "n1", "n2", "load")].concat();
    comes("it should go home", || moves(&second) == both);
    first.send("POST", "/v1/cluster/nodes/n1/pause", &json!({}));
    comes("home takes none", || {
        let plan = second.get("/v1/cluster/balance");
        plan["moves"] == json!([]) && plan["stay"].to_string().contains("No node of its home takes pools now")
    });
    first.send("POST", "/v1/cluster/nodes/n1/resume", &Value::Null);
    assert_eq!(first.pool("p").0, "n2", "nothing moves before no node has changed for a while");

    // By itself.
    let mut config = first.get("/v1/config");
    config["policy"]["pool_moves_after_seconds"] = 1.into();
    first.send("PUT", "/v1/config", &json!({ "config": config }));
    comes("it goes home", || first.pool("p") == ("n1".into(), "online".into()));
    comes("it is written down", || first.get("/v1/audit").to_string().contains("\"who\":\"balance\""));
    assert_eq!(first.pool("q").0, "n1", "what has no home is moved when it is asked for");
    assert_eq!(moves(&first), step("q", "n1", "n2", "load"));
    second.send("PATCH", "/v1/pools/p", &json!({ "home": [] }));
    comes("it may be anywhere", || moves(&first) == step("p", "n1", "n2", "load"));
    for node in [first, second] {
        node.stop();
    }
}
