//! What a dry run shows is what the command does: what the command refuses, its dry run refuses in the same words. Parts are in memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use common::{get, refused, send};
use control_server::memory::Machine;
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::{Value, json};
use shard_runtime::SystemClock;

/// A node with the pool `p` on the disks `a` and `b`, and with the disks `c` and `d` free.
async fn world() -> (tempfile::TempDir, Running) {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b", "c", "d"].map(disk).to_vec();
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let node =
        Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| Ok(machine.backends(data)));
    let node = node.await.expect("starts");
    node.wait_ready().await;
    send(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" })).await;
    (dir, node)
}

/// A request, and what asks for it as a dry run.
struct Row {
    verb: &'static str,
    code: &'static str,
    dry: (&'static str, &'static str, Value),
    real: (&'static str, &'static str, Value),
}

fn create(code: &'static str, name: &str, more: Value) -> Row {
    let (mut dry, mut real) = (json!({ "new_pool": name }), json!({ "name": name, "confirm": name }));
    for (key, value) in more.as_object().expect("a table") {
        dry[if key == "spares" { "except" } else { key }] = value.clone();
        real[key] = value.clone();
    }
    Row { verb: "pool create", code, dry: ("POST", SELECT, dry), real: ("POST", "/v1/pools", real) }
}

fn add(code: &'static str, pool: &'static str, path: &'static str, more: Value) -> Row {
    let (mut dry, mut real) = (json!({ "pool": pool }), json!({ "confirm": pool }));
    for (key, value) in more.as_object().expect("a table") {
        match key.as_str() {
            "disk" => dry["disks"] = json!([value]),
            key => dry[key] = value.clone(),
        }
        real[key] = value.clone();
    }
    Row { verb: "pool add-disk", code, dry: ("POST", SELECT, dry), real: ("POST", path, real) }
}

fn apply(config: &Value, code: &'static str, wrong: impl Fn(&mut Value)) -> Row {
    let mut config = config.clone();
    wrong(&mut config);
    let real = json!({ "config": config, "confirm": "apply" });
    let mut dry = real.clone();
    dry["dry_run"] = true.into();
    Row { verb: "config apply", code, dry: ("PUT", "/v1/config", dry), real: ("PUT", "/v1/config", real) }
}

fn rebalance(code: &'static str, path: &'static str) -> Row {
    let of = |dry_run: bool| ("POST", path, json!({ "dry_run": dry_run }));
    Row { verb: "pool rebalance", code, dry: of(true), real: of(false) }
}

const SELECT: &str = "/v1/disks/select";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_refuses_what_its_command_refuses() {
    let (_dir, node) = world().await;
    let config = get(&node, "/v1/config").await;
    for Row { verb, code, dry, real } in [
        create("invalid-request", "no/name", json!({ "disks": ["c"] })),
        create("invalid-request", "", json!({ "disks": ["c"] })),
        create("already-exists", "p", json!({ "disks": ["c"] })),
        create("invalid-request", "q", json!({ "disks": ["c"], "slab_bytes": 12345 })),
        create("invalid-request", "q", json!({ "disks": [] })),
        create("invalid-request", "q", json!({ "disks": ["c", "c"] })),
        create("invalid-request", "q", json!({ "disks": ["c"], "spares": ["c"] })),
        create("not-found", "q", json!({ "disks": ["none"] })),
        create("in-use", "q", json!({ "disks": ["c", "a"] })),
        create("in-use", "q", json!({ "disks": ["c"], "spares": ["a"] })),
        create("invalid-request", "q", json!({ "disks": ["c"], "select": ["state=online"] })),
        add("not-found", "none", "/v1/pools/none/disks", json!({ "disk": "c" })),
        add("in-use", "p", "/v1/pools/p/disks", json!({ "disk": "a" })),
        add("not-found", "p", "/v1/pools/p/disks", json!({ "disk": "none" })),
        add("invalid-request", "p", "/v1/pools/p/disks", json!({ "select": [] })),
        rebalance("not-found", "/v1/pools/none/rebalance"),
        apply(&config, "invalid-request", |config| config["target"] = json!([{ "name": "no iqn" }])),
        apply(&config, "invalid-request", |config| config["smb"] = json!({ "listen": ["nowhere"] })),
    ] {
        let said_dry = refused(&node, dry.0, dry.1, &dry.2, code).await;
        let said = refused(&node, real.0, real.1, &real.2, code).await;
        assert_eq!(said_dry, said, "{verb}: {}", real.2);
    }
    // And what it shows is what would be done, and nothing is.
    send(&node, "POST", SELECT, &json!({ "new_pool": "q", "disks": ["c"], "except": ["d"] })).await;
    send(&node, "POST", SELECT, &json!({ "pool": "p", "disks": ["c"] })).await;
    assert_eq!(get(&node, "/v1/config").await, config);
    node.stop().await.expect("stops");
}
