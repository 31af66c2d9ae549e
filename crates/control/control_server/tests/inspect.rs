//! What a node tells of itself for diagnosis, with real parts: pools on files.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use control_server::{NodeOptions, Running};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

async fn send(node: &Running, method: &str, path: &str, body: &str) -> serde_json::Value {
    let len = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    assert!(head.starts_with("HTTP/1.1 2"), "{path}: {answer}");
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_tell_what_they_count() {
    let dir = tempfile::tempdir().expect("temp dir");
    let disk = |number: u32| {
        let path = dir.path().join(format!("disk{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: Some(1) };
    let node = Running::start(options).await.expect("starts");
    node.wait_ready().await;
    let request = serde_json::json!({ "name": "p", "disks": disks, "confirm": "p" });
    send(&node, "POST", "/v1/pools", &request.to_string()).await;
    let told = send(&node, "GET", "/v1/inspect", "").await;
    let inside = &told["pools_inside"]["p"];
    assert!(inside["metadata_commits"].is_u64(), "{inside}");
    assert_eq!(inside["disks"].as_array().map(Vec::len), Some(2), "{inside}");
    node.stop().await.expect("stops");
}
