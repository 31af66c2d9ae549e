//! Volumes that get another name, with real parts: what is on them goes on, whenever the name changes and whoever knows the former one.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;

use common::{get, refused, send, start};
use control_server::Running;
use serde_json::{Value, json};

/// A pool of two disks, with a volume.
async fn pool(node: &Running, dir: &Path, name: &str, volume: &str) {
    let disk = |number: u32| {
        let path = dir.join(format!("{name}{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    send(node, "POST", "/v1/pools", &json!({ "name": name, "disks": disks, "confirm": name })).await;
    let volume = json!({ "name": volume, "pool": name, "size_bytes": 256 << 20 });
    send(node, "POST", "/v1/volumes", &volume).await;
}

async fn import(node: &Running, dir: &Path, name: &str) {
    let disks: Vec<String> =
        (0..2).map(|disk| dir.join(format!("{name}{disk}.img")).display().to_string()).collect();
    send(node, "POST", "/v1/pools/import", &json!({ "pool": name, "disks": disks })).await;
}

async fn apply(node: &Running, config: &Value) -> Value {
    send(node, "PUT", "/v1/config", &json!({ "config": config, "confirm": "apply" })).await
}

/// On the volume `v`: the LUN `l`, the share `s`, a cache policy and a schedule.
async fn serve(node: &Running) {
    send(node, "POST", "/v1/luns", &json!({ "name": "l", "volume": "v", "size_bytes": 1 << 20 })).await;
    send(node, "POST", "/v1/shares", &json!({ "name": "s", "volume": "v" })).await;
    send(node, "PATCH", "/v1/volumes/v", &json!({ "cache": { "read_cache": true } })).await;
    let plan = json!({ "name": "plan", "path": "/luns", "daily": 3 });
    send(node, "POST", "/v1/volumes/v/snapshot-schedules", &plan).await;
}

/// That all of it is on this volume, and served.
async fn is_on(node: &Running, volume: &str) {
    let (lun, share) = (get(node, "/v1/luns/l").await, get(node, "/v1/shares/s").await);
    assert!(lun["serving"] == "online" && lun["volume"] == volume, "{lun}");
    assert!(share["online"] == true && share["volume"] == volume, "{share}");
    let shown = get(node, &format!("/v1/volumes/{volume}")).await;
    assert_eq!(shown["cache"]["read_cache"], true, "{shown}");
    let plans = get(node, &format!("/v1/volumes/{volume}/snapshot-schedules")).await;
    assert_eq!(plans["items"][0]["name"], "plan", "{plans}");
    let config = get(node, "/v1/config").await;
    let guids = [&config["lun"][0], &config["share"][0], &config["volume"][0]];
    assert!(guids.iter().all(|item| item["volume_guid"] == shown["guid"]), "{config}");
    assert_eq!(config["volume"].as_array().map(Vec::len), Some(1), "{config}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_a_volume_goes_on_when_it_gets_another_name() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a", "v").await;
    send(&node, "POST", "/v1/volumes", &json!({ "name": "x", "size_bytes": 64 << 20 })).await;
    serve(&node).await;
    is_on(&node, "v").await;
    let before = get(&node, "/v1/config").await;
    for (to, code) in [("x", "already-exists"), ("v", "already-exists"), ("a b", "invalid-request")] {
        refused(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": to }), code).await;
    }
    refused(&node, "PUT", "/v1/volumes/nothing/name", &json!({ "name": "w" }), "not-found").await;
    let made = send(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" })).await;
    assert!(made["name"] == "w" && made["online"] == true, "{made}");
    is_on(&node, "w").await;
    refused(&node, "GET", "/v1/volumes/v", &Value::Null, "not-found").await;
    assert_eq!(send(&node, "POST", "/v1/volumes/w/check", &json!({})).await["clean"], true);
    // A document from before means the same volume, and changes nothing.
    let applied = apply(&node, &before).await;
    assert_eq!(applied["items"], json!([]), "{applied}");
    assert!(
        applied["warnings"]
            .to_string()
            .contains("lun l: there is no volume v; by its `volume_guid` it is on volume w"),
        "{applied}"
    );
    is_on(&node, "w").await;
    // One that names another volume moves the LUN there, and one that says both is not understood.
    let mut both = get(&node, "/v1/config").await;
    both["lun"][0]["volume"] = json!("x");
    both["lun"][0]["name"] = json!("m");
    let asked = json!({ "config": both, "confirm": "apply" });
    let said = refused(&node, "PUT", "/v1/config", &asked, "invalid-request").await;
    assert!(said.contains("lun m is on volume x, and its `volume_guid` is that of volume w"), "{said}");
    node.stop().await.expect("stops");
    let node = start(dir.path()).await;
    is_on(&node, "w").await;
    // Under the former name there may be another volume.
    send(&node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 64 << 20 })).await;
    assert_eq!(get(&node, "/v1/volumes/v").await["cache"]["read_cache"], false);
    is_on(&node, "w").await;
    send(&node, "DELETE", "/v1/volumes/v", &json!({ "confirm": "v" })).await;
    is_on(&node, "w").await;
    node.stop().await.expect("stops");
}

/// The node stops between the change of the pool and that of its configuration, or the pool got it on another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_follows_a_name_that_changed_without_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a", "v").await;
    serve(&node).await;
    let path = dir.path().join("data/config.toml");
    let before = std::fs::read_to_string(&path).expect("there");
    send(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" })).await;
    node.stop().await.expect("stops");
    std::fs::write(&path, &before).expect("written");
    let node = start(dir.path()).await;
    is_on(&node, "w").await;
    node.stop().await.expect("stops");
    // An earlier release did not take down which volume a cache policy is of.
    let text = std::fs::read_to_string(&path).expect("there");
    let older: Vec<&str> = text.lines().filter(|line| !line.starts_with("volume_guid")).collect();
    assert_eq!(text.lines().count() - older.len(), 3);
    std::fs::write(&path, older.join("\n")).expect("written");
    let node = start(dir.path()).await;
    is_on(&node, "w").await;
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_volumes_of_one_name_either_gets_another_one_and_both_are_served() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a", "v").await;
    serve(&node).await;
    let first = get(&node, "/v1/config").await;
    send(&node, "POST", "/v1/pools/a/export", &json!({ "confirm": "a" })).await;
    pool(&node, dir.path(), "b", "v").await;
    import(&node, dir.path(), "a").await;
    let mut both = get(&node, "/v1/config").await;
    for kind in ["lun", "share", "volume"] {
        both[kind] = first[kind].clone();
    }
    apply(&node, &both).await;
    is_on(&node, "v").await;
    let said = refused(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" }), "invalid-request").await;
    assert!(said.contains("--pool"), "{said}");
    // That of `b` is closed.
    let made = send(&node, "PUT", "/v1/volumes/v/name?pool=b", &json!({ "name": "w" })).await;
    assert!(made["pool"] == "b" && made["online"] == true && made["cache"]["read_cache"] == false, "{made}");
    is_on(&node, "v").await;
    send(&node, "PUT", "/v1/volumes/w/name", &json!({ "name": "z" })).await;
    send(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" })).await;
    is_on(&node, "w").await;
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_with_a_log_keeps_its_name() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a", "v").await;
    send(&node, "POST", "/v1/volumes/v/log", &json!({ "size_bytes": 64 << 20 })).await;
    let said = refused(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" }), "wrong-state").await;
    assert!(said.contains("holdfast volume log remove v"), "{said}");
    send(&node, "DELETE", "/v1/volumes/v/log", &Value::Null).await;
    send(&node, "PUT", "/v1/volumes/v/name", &json!({ "name": "w" })).await;
    send(&node, "POST", "/v1/volumes/w/log", &json!({ "size_bytes": 64 << 20 })).await;
    node.stop().await.expect("stops");
    let node = start(dir.path()).await;
    assert_eq!(get(&node, "/v1/volumes/w").await["online"], true);
    node.stop().await.expect("stops");
}
