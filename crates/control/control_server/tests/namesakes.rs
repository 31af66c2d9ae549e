//! Two pools with volumes of one name, and two nodes with one pool, with real parts: a LUN or share is on the volume that it was made
//! on, and never on the other one; a pool is with the node that has it.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;

use common::{ask, get, send, start};
use control_server::Running;
use serde_json::{Value, json};

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

async fn import(node: &Running, dir: &Path, name: &str) {
    let disks: Vec<String> =
        (0..2).map(|disk| dir.join(format!("{name}{disk}.img")).display().to_string()).collect();
    send(node, "POST", "/v1/pools/import", &json!({ "pool": name, "disks": disks })).await;
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
    // Both pools are here: the volume that something is on is served, and the other one makes way for it.
    import(&node, dir.path(), "a").await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
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
    import(&node, dir.path(), "a").await;
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
    // By their name it is not clear which is meant.
    let by_name = json!({ "pool": "a", "disks": disks }).to_string();
    let (done, problem) = ask(&node, "POST", "/v1/pools/import", &by_name).await;
    let said = problem["detail"].to_string();
    assert!(!done && problem["code"] == "invalid-request", "{problem}");
    assert!(
        said.contains("is open on this node as a (")
            && said.contains(&format!("{guid} is not this node's (")),
        "{said}"
    );
    assert!(said.contains("old/a0.img") && problem["todo"].to_string().contains("--name NEW"), "{problem}");
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

/// What `status` advises about something.
async fn advice(node: &Running, subject: &str) -> String {
    let status = get(node, "/v1/status").await;
    let issues = status["issues"].as_array().cloned().unwrap_or_default();
    let found = issues.iter().find(|issue| issue["subject"] == subject);
    assert!(found.is_some(), "nothing about {subject}: {status}");
    found.map(|issue| issue["todo"].to_string()).unwrap_or_default()
}

/// Waits until a pool is open, or closed.
async fn until(node: &Running, pool: &str, state: &str) {
    for _ in 0..600 {
        let pools = get(node, "/v1/pools").await;
        let mut items = pools["items"].as_array().into_iter().flatten();
        if items.any(|item| item["name"] == pool && item["state"] == state) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let status = get(node, "/v1/status").await;
    assert!(status.is_null(), "pool {pool} does not become {state}: {status}");
}

/// Takes the disks of a pool out of a running node.
async fn pull(node: &Running, dir: &Path, name: &str) {
    for disk in 0..2 {
        let path = format!("/v1/disks/faults?disk={}", dir.join(format!("{name}{disk}.img")).display());
        send(node, "PUT", &path, &json!({ "rules": [{ "kind": "vanish" }] })).await;
    }
    // It stops when it finds that it cannot write.
    ask(node, "PATCH", "/v1/volumes/v", &json!({ "size_bytes": 512 << 20 }).to_string()).await;
    until(node, name, "closed").await;
}

/// A node with both pools: the LUN and the share are on the volume of `a`, and another share is on that of `b`, which is served;
/// then the disks of `b` go.
async fn with_b_gone(dir: &Path) -> Running {
    let (node, config) = with_a_away(dir).await;
    send(&node, "POST", "/v1/shares", &json!({ "name": "t" })).await;
    import(&node, dir, "a").await;
    let mut both = get(&node, "/v1/config").await;
    both["lun"] = config["lun"].clone();
    let shares = both["share"].as_array_mut().expect("shares");
    shares.push(config["share"][0].clone());
    apply(&node, &both).await;
    assert_eq!(get(&node, "/v1/shares/t").await["online"], true);
    assert!(served(&node).await.iter().all(|(online, _)| !online));
    pull(&node, dir, "b").await;
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_verb_takes_another_volume_for_one_whose_pool_is_away() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = with_b_gone(dir.path()).await;
    for (method, path, body) in [
        ("DELETE", "/v1/volumes/v", json!({ "confirm": "v" })),
        ("PATCH", "/v1/volumes/v", json!({ "size_bytes": 320 << 20 })),
        ("POST", "/v1/volumes/v/log", json!({ "size_bytes": 64 << 20 })),
        ("DELETE", "/v1/volumes/v/log", Value::Null),
        ("POST", "/v1/volumes/v/check", json!({})),
    ] {
        let (done, problem) = ask(&node, method, path, &body.to_string()).await;
        assert!(!done && problem["code"] == "wrong-state", "{method} {path}: {problem}");
        assert!(problem["detail"].to_string().contains("pool b, which is not open"), "{problem}");
        assert!(problem["todo"].to_string().contains("holdfast pool forget b"), "{problem}");
    }
    // A volume of this name is there, whoever has it.
    let again = json!({ "name": "v", "pool": "a", "size_bytes": 256 << 20 }).to_string();
    let (done, problem) = ask(&node, "POST", "/v1/volumes", &again).await;
    assert!(!done && problem["code"] == "already-exists", "{problem}");
    assert_eq!(get(&node, "/v1/volumes/v?pool=a").await["size_bytes"], 256 << 20);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_waits_no_more_when_the_pool_of_its_namesake_is_forgotten() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = with_b_gone(dir.path()).await;
    assert!(advice(&node, "LUN l").await.contains("holdfast pool forget b"));
    assert!(advice(&node, "share s").await.contains("holdfast pool forget b"));
    let of_a = get(&node, "/v1/status").await["issues"].to_string();
    assert!(!of_a.contains("pool export b"), "{of_a}");
    send(&node, "POST", "/v1/pools/b/forget", &json!({ "confirm": "b" })).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    // Nothing is on the volume whose pool is gone, and it is this one from now on that is destroyed by its name.
    let (done, problem) = ask(&node, "DELETE", "/v1/volumes/v", "{\"confirm\":\"v\"}").await;
    assert!(!done && problem["detail"].to_string().contains("LUNs l"), "{problem}");
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_nothing_is_on_leaves_its_name_to_the_one_that_something_is_on() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, config) = with_a_away(dir.path()).await;
    import(&node, dir.path(), "a").await;
    let mut both = get(&node, "/v1/config").await;
    (both["lun"], both["share"]) = (config["lun"].clone(), config["share"].clone());
    apply(&node, &both).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    node.stop().await.expect("stops");
    // Both are there when the node starts; that of `b` is the first in the configuration.
    let node = start(dir.path()).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    node.stop().await.expect("stops");
    // The disks of `a` come late.
    let names =
        ["a0.img", "a1.img"].map(|disk| (dir.path().join(disk), dir.path().join(format!("{disk}.away"))));
    names.iter().for_each(|(here, away)| std::fs::rename(here, away).expect("moved"));
    let node = start(dir.path()).await;
    assert_eq!(get(&node, "/v1/volumes/v?pool=b").await["online"], false);
    let [(online, why), _] = served(&node).await;
    assert!(!online && why.contains("pool a"), "{why}");
    assert!(advice(&node, "volume v").await.contains("holdfast pool forget a"));
    let (done, problem) = ask(&node, "DELETE", "/v1/volumes/v", "{\"confirm\":\"v\"}").await;
    assert!(!done && problem["detail"].to_string().contains("pool a"), "{problem}");
    names.iter().for_each(|(here, away)| std::fs::rename(away, here).expect("moved"));
    until(&node, "a", "online").await;
    while served(&node).await.iter().any(|(online, _)| !online) {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(get(&node, "/v1/luns/l").await["size_bytes"], 1 << 20);
    // Whose pool is lost for good leaves the name, too.
    node.stop().await.expect("stops");
    names.iter().for_each(|(here, away)| std::fs::rename(here, away).expect("moved"));
    let node = start(dir.path()).await;
    assert_eq!(get(&node, "/v1/volumes/v?pool=b").await["online"], false);
    send(&node, "POST", "/v1/pools/a/forget", &json!({ "confirm": "a" })).await;
    assert_eq!(get(&node, "/v1/volumes/v").await["online"], true);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_was_never_here_is_named_where_it_keeps_what_a_name_means_unknown() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a").await;
    serve(&node).await;
    node.stop().await.expect("stops");
    let path = dir.path().join("data/config.toml");
    let text = std::fs::read_to_string(&path).expect("there");
    let older: Vec<&str> = text.lines().filter(|line| !line.starts_with("volume_guid")).collect();
    let other = "[[pool]]\nname = \"x\"\nguid = \"01234567-89ab-cdef-0123-456789abcdef\"";
    std::fs::write(&path, format!("{}\n\n{other}\n", older.join("\n"))).expect("written");
    let node = start(dir.path()).await;
    for (online, why) in served(&node).await {
        assert!(!online && why.contains("pool x, which this node has never had open"), "{why}");
    }
    for subject in ["LUN l", "share s"] {
        let todo = advice(&node, subject).await;
        assert!(todo.contains("holdfast pool forget x") && todo.contains("disks of pool x"), "{todo}");
    }
    send(&node, "POST", "/v1/pools/x/forget", &json!({ "confirm": "x" })).await;
    assert_eq!(served(&node).await, [(true, String::new()), (true, String::new())]);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_two_pools_have_a_volume_of_a_name_it_is_said_which_one_is_destroyed() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    pool(&node, dir.path(), "a").await;
    export(&node, "a").await;
    pool(&node, dir.path(), "b").await;
    import(&node, dir.path(), "a").await;
    let (done, problem) = ask(&node, "DELETE", "/v1/volumes/v", "{\"confirm\":\"v\"}").await;
    assert!(!done && problem["detail"] == "There is a volume v in each of the pools a, b.", "{problem}");
    assert!(problem["todo"].to_string().contains("--pool"), "{problem}");
    let (done, problem) = ask(&node, "DELETE", "/v1/volumes/v?pool=c", "{\"confirm\":\"v\"}").await;
    assert!(!done && problem["code"] == "not-found", "{problem}");
    send(&node, "DELETE", "/v1/volumes/v?pool=a", &json!({ "confirm": "v" })).await;
    let left = get(&node, "/v1/volumes").await;
    let left: Vec<_> = left["items"].as_array().expect("list").iter().map(|volume| &volume["pool"]).collect();
    assert_eq!(left, ["b"]);
    // Whoever asks again destroys no other one.
    let (done, problem) = ask(&node, "DELETE", "/v1/volumes/v?pool=a", "{\"confirm\":\"v\"}").await;
    assert!(!done && problem["code"] == "not-found", "{problem}");
    send(&node, "DELETE", "/v1/volumes/v", &json!({ "confirm": "v" })).await;
    node.stop().await.expect("stops");
}

/// What hangs on a LUN goes with it, however it goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_lun_has_a_policy_is_exported_and_forgotten() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    send(&node, "POST", "/v1/qos/policies", &json!({ "name": "gold", "max_iops": 500 })).await;
    let assign = json!({ "policy": "gold", "lun": "l" });
    for name in ["a", "b"] {
        pool(&node, dir.path(), name).await;
        serve(&node).await;
        send(&node, "POST", "/v1/qos/assignments", &assign).await;
        if name == "a" {
            export(&node, "a").await;
            let config = get(&node, "/v1/config").await;
            assert_eq!((&config["lun"], &config["qos_assignment"]), (&Value::Null, &Value::Null));
        }
    }
    node.stop().await.expect("stops");
    for disk in ["b0.img", "b1.img"] {
        std::fs::rename(dir.path().join(disk), dir.path().join(format!("{disk}.away"))).expect("moved");
    }
    let node = start(dir.path()).await;
    send(&node, "POST", "/v1/pools/b/forget", &json!({ "confirm": "b" })).await;
    let config = get(&node, "/v1/config").await;
    assert_eq!((&config["lun"], &config["qos_assignment"]), (&Value::Null, &Value::Null));
    node.stop().await.expect("stops");
}
