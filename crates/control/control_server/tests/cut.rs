//! A change whose asker goes away comes to its end: it is not left between what is configured and what is served.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use common::get;
use control_server::memory::{Machine, MemorySmb};
use control_server::{NodeOptions, Running};
use serde_json::json;
use shard_runtime::SystemClock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

const ADDRESS: &str = "127.0.0.1:4460";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_configured_is_served_though_the_connection_is_cut() {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let smb = Arc::new(MemorySmb::default());
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let part = smb.clone();
    let node = Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| {
        let mut backends = machine.backends(data);
        backends.smb = part;
        Ok(backends)
    });
    let node = node.await.expect("starts");
    node.wait_ready().await;

    let held = smb.hold.write().await;
    let body = json!({ "listen": [ADDRESS] }).to_string();
    let length = body.len();
    let request = format!("PATCH /v1/smb HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut cut = UnixStream::connect(node.socket()).await.expect("listens");
    cut.write_all(request.as_bytes()).await.expect("sent");
    while get(&node, "/v1/config").await["smb"]["listen"] != json!([ADDRESS]) {}
    drop(cut);
    // The node hears of the end of that connection before the answers to these.
    for _ in 0..50 {
        get(&node, "/v1/me").await;
    }
    drop(held);
    // The record has a change when it has ended, however that was.
    let ended = loop {
        let record = get(&node, "/v1/audit").await;
        let entry =
            record["items"].as_array().expect("a list").iter().find(|e| e["operation"] == "smb_update");
        if let Some(entry) = entry {
            break entry["result"].clone();
        }
    };
    assert_eq!(ended, "done");
    assert_eq!(get(&node, "/v1/smb").await["listeners"][0]["listening"], ADDRESS);
    node.stop().await.expect("stops");
}
