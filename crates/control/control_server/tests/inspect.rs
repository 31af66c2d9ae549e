//! What a node tells of itself for diagnosis, and of a full pool, with real parts: pools on files.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;

use common::{ask, start};
use control_server::Running;

async fn send(node: &Running, method: &str, path: &str, body: &str) -> serde_json::Value {
    let (done, answer) = ask(node, method, path, body).await;
    assert!(done, "{path}: {answer}");
    answer
}

/// A node with the pool `p` of two disks of 1 GiB.
async fn node_with_a_pool(dir: &Path) -> Running {
    let disk = |number: u32| {
        let path = dir.join(format!("disk{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    let node = start(dir).await;
    let request = serde_json::json!({ "name": "p", "disks": disks, "confirm": "p" });
    send(&node, "POST", "/v1/pools", &request.to_string()).await;
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_tell_what_they_count() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node_with_a_pool(dir.path()).await;
    let told = send(&node, "GET", "/v1/inspect", "").await;
    let inside = &told["pools_inside"]["p"];
    assert!(inside["metadata_commits"].is_u64(), "{inside}");
    assert_eq!(inside["disks"].as_array().map(Vec::len), Some(2), "{inside}");
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_finds_no_room_is_refused_with_numbers_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node_with_a_pool(dir.path()).await;
    let create = async |name: &str, provisioning: &str| {
        let request =
            serde_json::json!({ "name": name, "size_bytes": 64 << 20, "provisioning": provisioning });
        ask(&node, "POST", "/v1/volumes", &request.to_string()).await
    };
    let mut made = 0;
    let refused = loop {
        let (done, answer) = create(&format!("v{made}"), "fixed").await;
        if !done {
            break answer;
        }
        made += 1;
    };
    assert!(made > 3, "{refused}");
    let (_, thin) = create("thin", "thin").await;
    for answer in [refused, thin] {
        let (code, detail) = (&answer["code"], answer["detail"].as_str().unwrap_or_default());
        assert_eq!(code, "no-space", "{answer}");
        // A slab on each of two disks.
        assert!(
            detail.starts_with("Pool p has no room for ") && detail.contains("it takes at least 128 MiB"),
            "{answer}"
        );
        assert!(answer["todo"].as_str().is_some_and(|todo| todo.contains("add-disk")), "{answer}");
    }
    let there = send(&node, "GET", "/v1/volumes", "").await;
    assert_eq!(there["items"].as_array().map(Vec::len), Some(made), "{there}");
    // What was refused has left its name, and no space is taken by what is not there.
    send(&node, "DELETE", "/v1/volumes/v0", r#"{ "confirm": "v0" }"#).await;
    let (done, answer) = create("thin", "thin").await;
    assert!(done, "{answer}");
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_reserved_is_refused_with_numbers_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node_with_a_pool(dir.path()).await;
    send(&node, "POST", "/v1/volumes", r#"{ "name": "v", "size_bytes": 68719476736 }"#).await;
    for (path, body) in [
        ("/v1/luns", r#"{ "name": "l", "size_bytes": 10737418240, "reserve": true }"#),
        (
            "/v1/volumes/v/files",
            r#"{ "path": "/luns/l", "kind": "file", "size_bytes": 10737418240, "reserve": true, "parents": true }"#,
        ),
    ] {
        let (done, answer) = ask(&node, "POST", path, body).await;
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(!done && answer["code"] == "no-space", "{path}: {answer}");
        assert!(detail.starts_with("10.0 GiB cannot be reserved in volume v: of its "), "{detail}");
        assert!(detail.contains("its pool has room for ") && detail.ends_with(" MiB more."), "{detail}");
        assert!(answer["todo"].as_str().is_some_and(|todo| todo.contains("add-disk")), "{answer}");
    }
    assert_eq!(send(&node, "GET", "/v1/luns", "").await["items"], serde_json::json!([]));
    assert_eq!(send(&node, "GET", "/v1/volumes/v/files?path=/", "").await["items"], serde_json::json!([]));
    // What there is room for is made, and so is what is not to be reserved.
    let small = r#"{ "name": "small", "size_bytes": 1048576, "reserve": true }"#;
    send(&node, "POST", "/v1/luns", small).await;
    send(&node, "POST", "/v1/luns", r#"{ "name": "thin", "size_bytes": 10737418240 }"#).await;
    node.stop().await.expect("stops");
}

/// The volume is thin: what is reserved in it must be taken from its pool, or others take it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_is_taken_from_the_pool() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = node_with_a_pool(dir.path()).await;
    send(&node, "POST", "/v1/volumes", r#"{ "name": "v", "size_bytes": 68719476736 }"#).await;
    let allocated = async || {
        let pool = send(&node, "GET", "/v1/pools/p", "").await;
        pool["allocated_bytes"].as_u64().unwrap_or_else(|| panic!("{pool}"))
    };
    let before = allocated().await;
    send(&node, "POST", "/v1/luns", r#"{ "name": "thin", "size_bytes": 67108864 }"#).await;
    let thin = allocated().await - before;
    send(&node, "POST", "/v1/luns", r#"{ "name": "l", "size_bytes": 67108864, "reserve": true }"#).await;
    let reserved = allocated().await - before;
    // On two disks.
    assert!(thin < 67108864 && reserved >= 2 * 67108864, "{thin}, {reserved}");
    node.stop().await.expect("stops");
}
