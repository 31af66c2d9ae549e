//! The shared state is restored from a backup: what is on the disks is newer.

use crate::world::{World, comes, make};

/// An epoch to which nobody comes by trying one after the other.
const FAR: u64 = 3_000_000;

#[test]
fn a_pool_is_served_above_the_epoch_of_its_disks_when_the_store_was_restored() {
    let mut world = World::new();
    let first = world.start(1);
    comes("the node takes part", || first.takes_part());
    make(&first);
    first.stop();
    world.back_up();
    let first = world.start(1);
    comes("it is served", || first.serves("l", "s"));
    assert_eq!(first.get("/v1/cluster")["store_went_back"], serde_json::Value::Null);
    first.stop();
    world.machine.set_epochs(FAR);
    world.restore();
    let first = world.start(1);
    comes("it is served", || first.serves("l", "s"));
    let cluster = first.get("/v1/cluster");
    assert!(cluster["pools"][0]["epoch"].as_u64() > Some(FAR), "{cluster}");
    let told = cluster["store_went_back"].as_str().unwrap_or_default();
    assert!(told.contains("revision"), "{cluster}");
    assert!(first.get("/v1/status").to_string().contains("store-went-back"));
    assert!(world.store.holds("store/back", "up_to"), "votes of before are told apart");
    // Once more, and nothing has gone back.
    first.stop();
    let first = world.start(1);
    comes("it is served", || first.serves("l", "s"));
    assert_eq!(first.get("/v1/cluster")["store_went_back"], serde_json::Value::Null);
    first.stop();
}
