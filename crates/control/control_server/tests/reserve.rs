//! Reserving takes as long as disks need: nothing else waits for it, and a node that stops meanwhile leaves nothing of it behind.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{ask, get, send, start};
use control_server::Running;
use serde_json::json;

const MIB: u64 = 1 << 20;

/// A node with the pool `p` of two disks of 2 GiB, and the volume `v`; and the disks.
async fn node_with_a_volume(dir: &Path) -> (Running, Vec<String>) {
    let disk = |number: u32| {
        let path = dir.join(format!("disk{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(2 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    let node = start(dir).await;
    send(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": disks, "confirm": "p" })).await;
    send(&node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 64u64 << 30 })).await;
    (node, disks)
}

async fn allocated(node: &Running) -> u64 {
    let pool = get(node, "/v1/pools/p").await;
    pool["allocated_bytes"].as_u64().expect("a size")
}

/// What is reserved of a LUN that there is: of a file that is kept, and of what it grows by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_there_is_reserved_and_so_is_what_it_grows_by() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, _) = node_with_a_volume(dir.path()).await;
    send(&node, "POST", "/v1/luns", &json!({ "name": "l", "size_bytes": 128 * MIB })).await;
    send(&node, "DELETE", "/v1/luns/l?keep_file=true", &json!({ "confirm": "l" })).await;
    let thin = allocated(&node).await;
    send(&node, "POST", "/v1/luns", &json!({ "name": "l", "reserve": true })).await;
    let kept = allocated(&node).await;
    // On two disks.
    assert!(kept >= thin + 2 * 128 * MIB, "{thin}, {kept}");
    let lun = send(&node, "PATCH", "/v1/luns/l", &json!({ "size_bytes": 256 * MIB, "reserve": true })).await;
    assert_eq!(lun["allocated_bytes"].as_u64(), Some(256 * MIB), "{lun}");
    assert!(allocated(&node).await >= kept + 2 * 128 * MIB);
    // More than there is: not even the size changes.
    let grown = json!({ "size_bytes": 16u64 << 30, "reserve": true });
    let (done, answer) = ask(&node, "PATCH", "/v1/luns/l", &grown.to_string()).await;
    assert!(!done && answer["code"] == "no-space", "{answer}");
    assert_eq!(get(&node, "/v1/luns/l").await["size_bytes"].as_u64(), Some(256 * MIB));
    send(&node, "DELETE", "/v1/luns/l?keep_file=true", &json!({ "confirm": "l" })).await;
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_holds_up_no_other_change_and_not_the_end() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, disks) = node_with_a_volume(dir.path()).await;
    let node = Arc::new(node);
    let before = allocated(&node).await;
    let delay =
        |delay_ms: u64| json!({ "rules": [{ "kind": "delay", "operation": "write", "delay_ms": delay_ms }] });
    for disk in &disks {
        send(&node, "PUT", &format!("/v1/disks/faults?disk={disk}"), &delay(300)).await;
    }
    let making = {
        let node = Arc::clone(&node);
        let lun = json!({ "name": "l", "size_bytes": 1536 * MIB, "reserve": true });
        tokio::spawn(async move { ask(&node, "POST", "/v1/luns", &lun.to_string()).await })
    };
    while allocated(&node).await < before + 2 * 64 * MIB {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    send(&node, "POST", "/v1/qos/policies", &json!({ "name": "gold", "kind": "dedicated", "max_iops": 100 }))
        .await;
    assert!(!making.is_finished(), "another change waited for the LUN");
    // Its name is taken, and nobody sees a half of it.
    let again = json!({ "name": "l", "size_bytes": MIB });
    let (done, answer) = ask(&node, "POST", "/v1/luns", &again.to_string()).await;
    assert!(!done && answer["code"] == "in-use", "{answer}");
    assert_eq!(get(&node, "/v1/luns").await["items"], json!([]));
    assert!(!making.is_finished());
    let (socket, data) = (node.socket().to_owned(), dir.path().to_owned());
    making.abort();
    let _ = making.await;
    let node = Arc::into_inner(node).expect("nobody else has it");
    node.stop().await.expect("stops");
    assert!(!socket.exists());
    let node = start(&data).await;
    assert_eq!(get(&node, "/v1/luns").await["items"], json!([]));
    let left = get(&node, "/v1/volumes/v/files?path=/luns").await;
    assert_eq!(left["items"], json!([]), "nothing is left of it");
    node.stop().await.expect("stops");
}

/// A file that was named for a pool that was not made is not the node's from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pool_that_was_not_made_would_have_taken_is_forgotten() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, _) = node_with_a_volume(dir.path()).await;
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (name, bytes) in [("whole.img", 2u64 << 30), ("tiny.img", MIB)] {
        std::fs::File::create(path(name)).expect("made").set_len(bytes).expect("sparse");
    }
    let config = || async { get(&node, "/v1/config").await.to_string() };
    let before = config().await;
    let (whole, tiny) = (path("whole.img"), path("tiny.img"));
    for (method, at, body) in [
        ("POST", "/v1/pools", json!({ "name": "q", "disks": [whole, tiny], "confirm": "q" })),
        ("POST", "/v1/pools", json!({ "name": "q", "disks": [whole] })),
        ("POST", "/v1/pools", json!({ "name": "q", "disks": [whole, path("none.img")], "confirm": "q" })),
        ("POST", "/v1/pools/p/disks", json!({ "disk": tiny, "confirm": tiny })),
    ] {
        let (done, answer) = ask(&node, method, at, &body.to_string()).await;
        assert!(!done, "{at} {body}: {answer}");
        assert_eq!(config().await, before, "{at} {body}");
    }
    send(&node, "POST", "/v1/pools", &json!({ "name": "q", "disks": [whole], "confirm": "q" })).await;
    assert!(config().await.contains("whole.img"));
    node.stop().await.expect("stops");
}
