//! A pool on disks that other nodes may reach, and that nobody can be kept from: it stays with who had it last.

use serde_json::json;

use crate::world::{Member, World, comes, make};

/// Two nodes, the first of which has the pool; nobody can be kept from this disk.
fn two(world: &World, unfenced: &str) -> [Member; 2] {
    world.machine.unfenced.lock().insert(unfenced.into());
    world.know(1);
    world.know(2);
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    let second = world.start(2);
    comes("the second node takes part", || second.takes_part());
    comes("the second node knows", || second.pool("p") == ("n1".into(), "online".into()));
    [first, second]
}

#[test]
fn a_pool_whose_owner_cannot_be_kept_from_its_disks_is_not_taken_by_itself() {
    let world = World::new();
    let [first, second] = two(&world, "b");

    // Who closes it cleanly lets go of it.
    second.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" }));
    comes("it is served by the other node", || second.serves("l", "s"));
    second.send("POST", "/v1/pools/p/move", &json!({ "node": "n1" }));
    comes("it is back", || first.serves("l", "s"));

    // Who is dead, or only stands still, may have writes under way.
    first.freeze();
    let reason = || {
        let cluster = second.get("/v1/cluster");
        let pools = cluster["pools"].as_array().cloned().unwrap_or_default();
        let found = pools.into_iter().find(|pool| pool["name"] == "p").unwrap_or_default();
        found["reason"].as_str().unwrap_or_default().to_owned()
    };
    comes("it is said why it is not taken", || {
        assert!(!second.serves("l", "s"), "its former owner may still write");
        let reason = reason();
        reason.contains("n1") && reason.contains("reservations") && reason.contains('b')
    });
    let status = second.get("/v1/status").to_string();
    assert!(status.contains("pool import p"), "{status}");

    // It is back, and takes the pool again, or has let go of it.
    first.thaw();
    let online = |node: &Member| node.pool("p").1 == "online";
    comes("it is served again", || online(&first) && online(&second));
    let owner = first.pool("p").0;
    let (owner, other) =
        if owner == "n1" { ((&first, "n1"), (&second, "n2")) } else { ((&second, "n2"), (&first, "n1")) };

    // A person who knows that the machine is off may have it elsewhere, and says so.
    owner.0.freeze();
    comes("its owner is away", || other.0.pool("p").0 != owner.1);
    let import = json!({ "pool": "p" });
    let told = other.0.refused("POST", "/v1/pools/import", &import, "confirmation-required");
    assert!(told.contains(owner.1) && told.contains("off"), "{told}");
    // Also beside another question, which is not taken for this one.
    let import = json!({ "pool": "p", "accept_loss": true });
    let told = other.0.refused("POST", "/v1/pools/import", &import, "confirmation-required");
    assert!(told.contains(owner.1) && told.contains("given up"), "{told}");
    assert!(!other.0.serves("l", "s"));
    other.0.send("POST", "/v1/pools/import", &json!({ "pool": "p", "confirm": "p" }));
    comes("it is served by the other node", || other.0.serves("l", "s"));
    owner.0.thaw();
    comes("the former owner has let go of it", || !owner.0.serves("l", "s"));
    comes("all agree", || {
        [first.pool("p"), second.pool("p")].iter().all(|seen| *seen == (other.1.into(), "online".into()))
    });
    for node in [first, second] {
        node.stop();
    }
}

/// The pool was fenced whole when it was opened, and gets such a disk only then.
#[test]
fn a_disk_that_comes_later_and_cannot_be_fenced_goes_with_its_pool() {
    let world = World::new();
    let [first, second] = two(&world, "c");
    first.send("POST", "/v1/pools/p/disks", &json!({ "disk": "c", "confirm": "c" }));
    second.send("POST", "/v1/pools/p/move", &json!({ "node": "n2" }));
    comes("it is served by the other node", || second.serves("l", "s"));
}
