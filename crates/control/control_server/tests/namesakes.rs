//! Two pools with volumes of one name, and two nodes with one pool, with real parts: a LUN or share is on the volume that it was made
//! on, and never on the other one; a pool is with the node that has it.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use std::path::Path;

use control_server::{NodeOptions, Running};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The answer to a request, and whether it was done.
async fn ask(node: &Running, method: &str, path: &str, body: &str) -> (bool, Value) {
    let len = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n{body}"
    );
    let mut stream = UnixStream::connect(node.socket()).await.expect("listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    (head.starts_with("HTTP/1.1 2"), serde_json::from_str(body).unwrap_or_default())
}

async fn send(node: &Running, method: &str, path: &str, body: &Value) -> Value {
    let (done, answer) = ask(node, method, path, &body.to_string()).await;
    assert!(done, "{method} {path}: {answer}");
    answer
}

async fn get(node: &Running, path: &str) -> Value {
    send(node, "GET", path, &Value::Null).await
}

async fn start(dir: &Path) -> Running {
    let options = NodeOptions { data_dir: dir.join("data"), socket: None, shards: Some(1) };
    let node = Running::start(options).await.expect("starts");
    node.wait_ready().await;
    node
}

/// A pool of two disks, with the volume `v`.
async fn pool(node: &Running, dir: &Path, name: &str) {
    let disk = |number: u32| {
        let path = dir.join(format!("{name}{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    send(node, "POST", "/v1/pools", &json!({ "name": name, "disks": disks, "confirm": name })).await;
    send(node, "POST", "/v1/volumes", &json!({ "name": "v", "pool": name, "size_bytes": 256 << 20 })).await;
}

async fn export(node: &Running, name: &str) {
    send(node, "POST", &format!("/v1/pools/{name}/export"), &json!({ "confirm": name })).await;
}

async fn apply(node: &Running, config: &Value) -> Value {
    send(node, "PUT", "/v1/config", &json!({ "config": config, "confirm": "apply" })).await
}

/// Makes the LUN `l` of 1 MiB and the share `s`.
async fn serve(node: &Running) {
    send(node, "POST", "/v1/luns", &json!({ "name": "l", "size_bytes": 1 << 20 })).await;
    send(node, "POST", "/v1/shares", &json!({ "name": "s" })).await;
}

/// What is said of the LUN and the share: whether they are served, and why not.
async fn served(node: &Running) -> [(bool, String); 2] {
    let (lun, share) = (get(node, "/v1/luns/l").await, get(node, "/v1/shares/s").await);
    let why = |of: &Value| of["problem"].as_str().unwrap_or_default().to_owned();
    [(lun["serving"] == "online", why(&lun)), (share["online"] == true, why(&share))]
}

/// A node with pool `b`, whose `v` has a file of 2 MiB by the name of the LUN and a folder by that of the share, and with the LUN
/// and the share of pool `a`, which is away. Returns the configuration in which both pools are.
async fn with_a_away(dir: &Path) -> (Running, Value) {
    let node = start(dir).await;
    pool(&node, dir, "a").await;
    serve(&node).await;
    let mut config = get(&node, "/v1/config").await;
    export(&node, "a").await;
    pool(&node, dir, "b").await;
    let file = json!({ "path": "/luns/l", "kind": "file", "size_bytes": 2 << 20, "parents": true });
    send(&node, "POST", "/v1/volumes/v/files", &file).await;
    let folder = json!({ "path": "/shares/s", "kind": "directory", "parents": true });
    send(&node, "POST", "/v1/volumes/v/files", &folder).await;
    let with_b = get(&node, "/v1/config").await;
    config["pool"] = with_b["pool"].clone();
    config["disk"] = with_b["disk"].clone();
    (node, config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_on_a_volume_is_never_served_from_another_of_its_name() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, config) = with_a_away(dir.path()).await;
    let applied = apply(&node, &config).await;
    assert!(applied["warnings"].to_string().contains("lun l"), "{applied}");
    for (online, why) in served(&node).await {
        assert!(!online && why.contains("another volume"), "{why}");
    }
    // The same when the node starts.
    node.stop().await.expect("stops");
    let node = start(dir.path()).await;
    for (online, why) in served(&node).await {
        assert!(!online && why.contains("another volume"), "{why}");
    }
    let status = get(&node, "/v1/status").await;
    let todo = |subject: &str| {
        let issues = status["issues"].as_array().cloned().unwrap_or_default();
        issues.iter().find(|issue| issue["subject"] == subject).map(|issue| issue["todo"].to_string())
    };
    assert!(todo("LUN l").is_some_and(|todo| todo.contains("volume_guid")), "{status}");
    assert!(todo("share s").is_some_and(|todo| todo.contains("volume_guid")), "{status}");
    // Nothing of the other volume is taken for theirs.
    let (done, problem) = ask(&node, "DELETE", "/v1/luns/l?keep_file=false", "{\"confirm\":\"l\"}").await;
    assert!(!done && problem["todo"].to_string().contains("--keep-file"), "{problem}");
    let (done, problem) = ask(&node, "PATCH", "/v1/luns/l", "{\"size_bytes\":4194304}").await;
    assert!(!done, "{problem}");
    let (done, problem) = ask(&node, "PATCH", "/v1/shares/s", "{\"preset_folder\":true}").await;
    assert!(!done, "{problem}");
    assert_eq!(get(&node, "/v1/volumes/v/stat?path=/luns/l").await["size_bytes"], 2 << 20);
    // Both pools are here: the volume of the one that was first is served, the other one waits.
    let disks: Vec<String> =
        (0..2).map(|disk| dir.path().join(format!("a{disk}.img")).display().to_string()).collect();
    send(&node, "POST", "/v1/pools/import", &json!({ "pool": "a", "disks": disks })).await;
    assert!(served(&node).await.iter().all(|(online, _)| !online));
    // What is on the volume of the pool that stays is not taken away with the other pool.
    export(&node, "b").await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    assert_eq!(get(&node, "/v1/luns/l").await["size_bytes"], 1 << 20);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_of_an_earlier_release_is_completed_where_the_name_says_enough() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a").await;
    serve(&node).await;
    let of_a = get(&node, "/v1/config").await["lun"][0]["volume_guid"].clone();
    assert!(of_a.is_string());
    node.stop().await.expect("stops");
    let path = dir.path().join("data/config.toml");
    let text = std::fs::read_to_string(&path).expect("there");
    let older: Vec<&str> = text.lines().filter(|line| !line.starts_with("volume_guid")).collect();
    assert_eq!(text.lines().count() - older.len(), 2);
    std::fs::write(&path, older.join("\n")).expect("written");
    let node = start(dir.path()).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    let config = get(&node, "/v1/config").await;
    assert_eq!([&config["lun"][0]["volume_guid"], &config["share"][0]["volume_guid"]], [&of_a, &of_a]);
    // A file of an earlier release changes nothing of that.
    let mut older = config.clone();
    for kind in ["lun", "share"] {
        older[kind][0].as_object_mut().expect("an item").remove("volume_guid");
    }
    assert_eq!(apply(&node, &older).await["items"], json!([]));
    assert_eq!(get(&node, "/v1/config").await, config);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_name_does_not_say_which_nothing_is_served_until_it_is_said() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, mut config) = with_a_away(dir.path()).await;
    let disks: Vec<String> =
        (0..2).map(|disk| dir.path().join(format!("a{disk}.img")).display().to_string()).collect();
    send(&node, "POST", "/v1/pools/import", &json!({ "pool": "a", "disks": disks })).await;
    let now = get(&node, "/v1/config").await;
    config["pool"] = now["pool"].clone();
    config["disk"] = now["disk"].clone();
    let of_a = config["lun"][0]["volume_guid"].clone();
    for kind in ["lun", "share"] {
        config[kind][0].as_object_mut().expect("an item").remove("volume_guid");
    }
    apply(&node, &config).await;
    for (online, why) in served(&node).await {
        assert!(!online && why.contains("several pools"), "{why}");
    }
    let of_b = get(&node, "/v1/volumes/v").await["guid"].clone();
    assert!(of_b.is_string() && of_b != of_a);
    for kind in ["lun", "share"] {
        config[kind][0]["volume_guid"] = of_b.clone();
    }
    apply(&node, &config).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    assert_eq!(get(&node, "/v1/luns/l").await["size_bytes"], 2 << 20);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_not_have_a_pool_leaves_its_disks_to_the_one_that_has_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    std::fs::create_dir_all(&first).expect("made");
    std::fs::create_dir_all(&second).expect("made");
    let node = start(&first).await;
    pool(&node, dir.path(), "a").await;
    let mark = get(&node, "/v1/status").await["machine"].clone();
    let config = get(&node, "/v1/config").await;
    node.stop().await.expect("stops");
    let other = start(&second).await;
    // It is another one's, on the same machine, with the same name.
    let name = get(&other, "/v1/status").await["node"].clone();
    if mark.is_string() {
        let asked = json!({ "config": config, "of_node": name, "of_machine": mark });
        let (done, problem) = ask(&other, "PUT", "/v1/config", &asked.to_string()).await;
        assert!(!done && problem["code"] == "confirmation-required", "{problem}");
        assert!(problem["destroys"].to_string().contains("another data directory"), "{problem}");
    }
    let applied = apply(&other, &config).await;
    assert!(applied["warnings"].to_string().contains("pool a: it is not open"), "{applied}");
    let node = start(&first).await;
    let pools = get(&node, "/v1/pools").await;
    assert_eq!(pools["items"][0]["state"], "online", "{pools}");
    let pools = get(&other, "/v1/pools").await;
    assert_eq!(pools["items"][0]["state"], "closed", "{pools}");
    other.stop().await.expect("stops");
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_name_is_taken_is_imported_under_another_one() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a").await;
    let exported = send(&node, "POST", "/v1/pools/a/export", &json!({ "confirm": "a" })).await;
    let old = dir.path().join("old");
    std::fs::create_dir_all(&old).expect("made");
    for disk in ["a0.img", "a1.img"] {
        std::fs::rename(dir.path().join(disk), old.join(disk)).expect("moved");
    }
    pool(&node, dir.path(), "a").await;
    let disks: Vec<String> =
        (0..2).map(|disk| old.join(format!("a{disk}.img")).display().to_string()).collect();
    let guid = exported["message"]
        .as_str()
        .and_then(|said| Some(said.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let guid = guid.expect("a GUID");
    let import = |name: Option<&str>| json!({ "pool": guid, "disks": disks, "name": name }).to_string();
    let (done, problem) = ask(&node, "POST", "/v1/pools/import", &import(None)).await;
    assert!(!done && problem["todo"].to_string().contains("--name"), "{problem}");
    let (done, problem) = ask(&node, "POST", "/v1/pools/import", &import(Some("a"))).await;
    assert!(!done && problem["code"] == "already-exists", "{problem}");
    let (done, pool) = ask(&node, "POST", "/v1/pools/import", &import(Some("b"))).await;
    assert!(done && pool["name"] == "b" && pool["spaces"][0]["name"] == "v", "{pool}");
    node.stop().await.expect("stops");
    // It stays so, and nothing on the disks says so.
    let node = start(dir.path()).await;
    let pools = get(&node, "/v1/pools").await;
    let names: Vec<&str> =
        pools["items"].as_array().into_iter().flatten().filter_map(|pool| pool["name"].as_str()).collect();
    assert!(names.len() == 2 && names.contains(&"a") && names.contains(&"b"), "{pools}");
    assert_eq!(get(&node, "/v1/volumes/v?pool=b").await["online"], false);
    export(&node, "a").await;
    assert_eq!(get(&node, "/v1/volumes/v?pool=b").await["online"], true);
    node.stop().await.expect("stops");
}
