//! Names of volumes are given once in the whole cluster; pools of strangers are not taken from them.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::world::{World, comes, make};

#[test]
fn a_volume_has_its_name_in_the_whole_cluster() {
    let world = World::new();
    let (first, second) = (world.start(1), world.start(2));
    comes("both take part", || first.takes_part() && second.takes_part());
    make(&first);
    comes("the other node knows the pool", || second.pool("p") == ("n1".into(), "online".into()));
    second.send("POST", "/v1/pools", &json!({ "name": "q", "disks": ["c", "d"], "confirm": "q" }));
    let volume = |name: &str| json!({ "name": name, "pool": "q", "size_bytes": 1 << 30 });
    let told = second.refused("POST", "/v1/volumes", &volume("v"), "already-exists");
    assert!(told.contains("in pool p"), "{told}");
    second.send("POST", "/v1/volumes", &volume("w"));
    let told = second.refused("PUT", "/v1/volumes/w/name", &json!({ "name": "v" }), "already-exists");
    assert!(told.contains("in pool p"), "{told}");
    assert_eq!(second.get("/v1/volumes/w")["name"], "w", "nothing was changed");
    // A name that is given up is free, and one that was refused is not kept.
    first.send("PUT", "/v1/volumes/v/name", &json!({ "name": "x" }));
    second.send("PUT", "/v1/volumes/w/name", &json!({ "name": "v" }));
    second.send("POST", "/v1/volumes", &volume("w"));
    second.send("DELETE", "/v1/volumes/w", &json!({ "confirm": "w" }));
    first.send("POST", "/v1/volumes", &json!({ "name": "w", "pool": "p", "size_bytes": 1 << 30 }));
    for node in [first, second] {
        node.stop();
    }
}

#[test]
fn a_pool_that_a_stranger_had_last_is_taken_by_nobody_until_somebody_says_so() {
    let world = World::new();
    let (first, second) = (world.start(1), world.start(2));
    comes("both take part", || first.takes_part() && second.takes_part());
    make(&first);
    comes("the other node knows the pool", || second.pool("p") == ("n1".into(), "online".into()));
    let pools = first.get("/v1/cluster")["pools"].clone();
    let guid: Uuid = pools[0]["guid"].as_str().and_then(|guid| guid.parse().ok()).expect("a GUID");
    // A machine that is none of the cluster's has imported it.
    world.machine.strangers.lock().insert(guid, (Uuid::from_u128(9), "elsewhere".into()));
    first.kill();
    comes("it is said why nobody has it", || {
        second.get("/v1/status").to_string().contains("none of this cluster's")
    });
    assert!(!second.serves("l", "s"));
    second.send("POST", "/v1/pools/import", &json!({ "pool": "p" }));
    world.machine.strangers.lock().clear();
    comes("it is served", || second.serves("l", "s"));
    assert_eq!(
        second.get("/v1/status")["issues"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|issue| issue["subject"] == "pool p")
            .count(),
        0
    );
    let _: Value = second.get("/v1/pools/p");
    second.stop();
}
