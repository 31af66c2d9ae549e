//! Pools that go their own ways: one that does not answer holds up nothing of the others. Parts are in memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{get, send};
use control_server::memory::{Machine, MemoryIscsi, MemorySmb};
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::{Value, json};
use shard_runtime::SystemClock;

const TARGET: &str = "iqn.2026-11.example:t";

struct World {
    node: Running,
    iscsi: Arc<MemoryIscsi>,
    smb: Arc<MemorySmb>,
}

async fn start(dir: &Path, machine: &Arc<Machine>) -> World {
    let (iscsi, smb) = (Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
    let options = NodeOptions { data_dir: dir.join("data"), socket: None, shards: None, http: None };
    let (machine, parts) = (machine.clone(), (iscsi.clone(), smb.clone()));
    let node = Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| {
        let mut backends = machine.backends(data);
        (backends.iscsi, backends.smb) = parts;
        Ok(backends)
    });
    World { node: node.await.expect("starts"), iscsi, smb }
}

/// Two pools, `p` on the disks a and b, `q` on c and d, each with a volume, a LUN and a share of its letter.
async fn two_pools(dir: &Path) -> (Arc<Machine>, World) {
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b", "c", "d"].map(disk).to_vec();
    let world = start(dir, &machine).await;
    let node = &world.node;
    node.wait_ready().await;
    send(node, "POST", "/v1/targets", &json!({ "name": TARGET })).await;
    for (pool, disks) in [("p", ["a", "b"]), ("q", ["c", "d"])] {
        send(node, "POST", "/v1/pools", &json!({ "name": pool, "disks": disks, "confirm": pool })).await;
        let volume = format!("v{pool}");
        let new = json!({ "name": volume, "pool": pool, "size_bytes": 1 << 30 });
        send(node, "POST", "/v1/volumes", &new).await;
        make_lun(node, &format!("l{pool}"), &volume).await;
        send(node, "POST", "/v1/shares", &json!({ "name": format!("s{pool}"), "volume": volume })).await;
    }
    (machine, world)
}

async fn make_lun(node: &Running, name: &str, volume: &str) {
    let lun = json!({ "name": name, "volume": volume, "size_bytes": 8192, "map": [{ "everyone": true }] });
    send(node, "POST", "/v1/luns", &lun).await;
}

/// Waits for something that has to come, for as long as a busy machine may take.
async fn comes(what: &str, is_there: impl AsyncFn() -> bool) {
    for _ in 0..1200 {
        if is_there().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what} does not come");
}

fn lists(list: &Value, name: &str) -> bool {
    list["items"].as_array().into_iter().flatten().any(|item| item["name"] == name)
}

async fn pool_state(node: &Running, pool: &str) -> String {
    let pools = get(node, "/v1/pools").await;
    let items = pools["items"].as_array().cloned().unwrap_or_default();
    let found = items.into_iter().find(|item| item["name"] == pool);
    found.map(|pool| pool["state"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_disk_hangs_holds_up_nothing_of_the_others() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (machine, world) = two_pools(dir.path()).await;
    assert_eq!(world.iscsi.served.lock().len(), 2);
    world.node.stop().await.expect("stops");

    machine.hang(&["d"]);
    let World { node, iscsi, smb } = start(dir.path(), &machine).await;
    let is_served = |lun: &str| iscsi.served.lock().contains(lun);
    let is_shared = |share: &str| smb.served.lock().contains_key(share);
    comes("what lies in the other pool", async || is_served("lp") && is_shared("sp")).await;
    // The start does not wait for it for ever either.
    node.wait_ready().await;
    assert!(!is_served("lq") && !is_shared("sq"));
    assert_eq!(pool_state(&node, "q").await, "opening");

    // Published, changed, and withdrawn, as if there was no other pool.
    make_lun(&node, "new", "vp").await;
    assert!(is_served("new"));
    send(&node, "PATCH", "/v1/luns/new", &json!({ "size_bytes": 16384 })).await;
    send(&node, "POST", "/v1/shares", &json!({ "name": "more", "volume": "vp" })).await;
    assert!(is_shared("more"));
    send(&node, "DELETE", "/v1/luns/new", &json!({ "confirm": "new" })).await;
    assert!(!is_served("new"));
    send(&node, "POST", "/v1/pools/p/export", &json!({ "confirm": "p" })).await;
    assert!(!is_served("lp") && !is_shared("sp") && !is_shared("more"));
    assert!(!lists(&get(&node, "/v1/pools").await, "p"));
    send(&node, "POST", "/v1/pools/import", &json!({ "pool": "p" })).await;
    assert_eq!(pool_state(&node, "p").await, "online");
    assert!(lists(&get(&node, "/v1/volumes").await, "vp"));
    assert_eq!(pool_state(&node, "q").await, "opening");

    // When it answers, it goes on by itself.
    machine.hang(&[]);
    comes("what lies in the pool that hung", async || is_served("lq") && is_shared("sq")).await;
    node.stop().await.expect("stops");
}

/// A disk that does not even say what is on it is left out for now, and its pool goes on without it where it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_says_nothing_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (machine, world) = two_pools(dir.path()).await;
    world.node.stop().await.expect("stops");
    machine.mute(&["d"]);
    let World { node, iscsi, .. } = start(dir.path(), &machine).await;
    let is_served = |lun: &str| iscsi.served.lock().contains(lun);
    node.wait_ready().await;
    assert!(is_served("lp") && !is_served("lq"), "one disk of two is no majority");
    machine.mute(&[]);
    comes("the pool with all its disks", async || is_served("lq")).await;
    node.stop().await.expect("stops");
}

/// What came to nothing once, as a disk went away just then, is tried again by itself while its pool stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_could_not_be_opened_is_tried_again() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (machine, world) = two_pools(dir.path()).await;
    world.node.stop().await.expect("stops");
    machine.refuse_openings("vq", 2);
    let World { node, iscsi, smb } = start(dir.path(), &machine).await;
    node.wait_ready().await;
    assert_eq!(pool_state(&node, "q").await, "online");
    comes("the volume", async || iscsi.served.lock().contains("lq") && smb.served.lock().contains_key("sq"))
        .await;
    node.stop().await.expect("stops");
}
