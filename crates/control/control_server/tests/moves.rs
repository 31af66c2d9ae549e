//! LUNs and shares that are moved to what lies elsewhere already, and what a configuration ends: who uses it is said first. Parts are
//! in memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use common::{get, refused, send};
use control_api::{Session, SmbOpen, SmbSession};
use control_server::memory::{Machine, MemoryIscsi, MemorySmb};
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::json;
use shard_runtime::SystemClock;

const HOST: &str = "iqn.2026-11.example:host";
const TARGET: &str = "iqn.2026-11.example:t";

struct World {
    _dir: tempfile::TempDir,
    node: Running,
    iscsi: Arc<MemoryIscsi>,
    smb: Arc<MemorySmb>,
}

/// A node with the LUN `l` and the share `s` on the volume `v`, and the same file and folder on the volume `w`.
async fn world() -> World {
    let dir = tempfile::tempdir().expect("temp dir");
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let (iscsi, smb) = (Arc::new(MemoryIscsi::default()), Arc::new(MemorySmb::default()));
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let parts = (iscsi.clone(), smb.clone());
    let node = Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| {
        let mut backends = machine.backends(data);
        (backends.iscsi, backends.smb) = parts;
        Ok(backends)
    });
    let node = node.await.expect("starts");
    node.wait_ready().await;
    send(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" })).await;
    for volume in ["v", "w"] {
        send(&node, "POST", "/v1/volumes", &json!({ "name": volume, "size_bytes": 1 << 30 })).await;
    }
    send(&node, "POST", "/v1/targets", &json!({ "name": TARGET })).await;
    send(&node, "POST", "/v1/initiator-groups", &json!({ "name": "g", "initiators": [HOST] })).await;
    let lun = json!({ "name": "l", "volume": "v", "size_bytes": 8192, "map": [{ "group": "g" }] });
    send(&node, "POST", "/v1/luns", &lun).await;
    send(&node, "POST", "/v1/shares", &json!({ "name": "s", "volume": "v" })).await;
    for (path, size) in [("/luns/l", 4096), ("/luns/odd", 4000), ("/luns/m", 4096)] {
        let file = json!({ "path": path, "kind": "file", "size_bytes": size, "parents": true });
        send(&node, "POST", "/v1/volumes/w/files", &file).await;
    }
    for folder in ["/shares/s", "/else"] {
        let folder = json!({ "path": folder, "kind": "directory", "parents": true });
        send(&node, "POST", "/v1/volumes/w/files", &folder).await;
    }
    World { _dir: dir, node, iscsi, smb }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lun_of_another_file_is_a_new_disk_under_its_number() {
    let World { node, iscsi, _dir, .. } = world().await;
    send(&node, "POST", "/v1/luns", &json!({ "name": "m", "volume": "w", "path": "/luns/m" })).await;
    let before = get(&node, "/v1/luns/l").await;
    for (change, code, said) in [
        (json!({ "volume": "x" }), "not-found", "x"),
        (json!({ "volume": "w", "path": "/luns/none" }), "not-found", "none"),
        (json!({ "volume": "w", "path": "/luns" }), "invalid-request", "directory"),
        (json!({ "volume": "w", "path": "/luns/odd" }), "invalid-request", "whole blocks of 512"),
        (json!({ "volume": "w", "path": "/luns/m" }), "in-use", "LUN m"),
        (json!({ "volume": "w", "size_bytes": 4096 }), "invalid-request", "one after the other"),
        (json!({ "keep_identity": true }), "invalid-request", "--volume"),
    ] {
        let text = refused(&node, "PATCH", "/v1/luns/l", &change, code).await;
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(get(&node, "/v1/luns/l").await, before);
    // The same once more is nothing.
    assert_eq!(send(&node, "PATCH", "/v1/luns/l", &json!({ "volume": "v" })).await, before);
    *iscsi.connected.lock() = vec![Session {
        initiator: HOST.into(),
        target: TARGET.into(),
        address: "192.0.2.1:999".into(),
        ..Session::default()
    }];
    let text =
        refused(&node, "PATCH", "/v1/luns/l", &json!({ "volume": "w" }), "confirmation-required").await;
    assert!(text.contains("becomes a new disk") && text.contains(HOST), "{text}");
    let kept = json!({ "volume": "w", "keep_identity": true });
    let text = refused(&node, "PATCH", "/v1/luns/l", &kept, "confirmation-required").await;
    assert!(text.contains("stays the disk that its initiators know: unless it has the same bytes"), "{text}");
    assert_eq!(get(&node, "/v1/luns/l").await, before);
    let moved = send(&node, "PATCH", "/v1/luns/l", &json!({ "volume": "w", "confirm": "l" })).await;
    assert_eq!((&moved["volume"], &moved["size_bytes"]), (&json!("w"), &json!(4096)), "{moved}");
    assert!(moved["guid"] != before["guid"] && moved["map"] == before["map"], "{moved}");
    assert!(moved["volume_guid"] != before["volume_guid"] && moved["serving"] == "online", "{moved}");
    // Nobody is asked where nobody has it.
    iscsi.connected.lock().clear();
    let back = json!({ "volume": "v", "keep_identity": true });
    let back = send(&node, "PATCH", "/v1/luns/l", &back).await;
    assert_eq!((&back["guid"], &back["volume_guid"]), (&moved["guid"], &before["volume_guid"]));
    // What was its file is nobody's any more, and was not touched.
    assert_eq!(get(&node, "/v1/volumes/w/stat?path=/luns/l").await["size_bytes"], 4096);
    send(&node, "DELETE", "/v1/volumes/w/files?path=/luns/l", &json!({ "confirm": "/luns/l" })).await;
    node.stop().await.expect("stops");
}

fn client() -> (Session, SmbOpen) {
    let smb =
        SmbSession { user: "alice".into(), shares: vec!["S".into()], opens: 1, ..SmbSession::default() };
    let open = SmbOpen { share: "s".into(), ..SmbOpen::default() };
    (Session { smb: Some(smb), ..Session::default() }, open)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_shows_another_folder_and_keeps_the_rest() {
    let World { node, smb, _dir, .. } = world().await;
    send(&node, "POST", "/v1/users", &json!({ "name": "alice", "password": "correct horse" })).await;
    let grant = json!({ "grant": [{ "who": "alice", "right": "full" }], "comment": "kept" });
    let before = send(&node, "PATCH", "/v1/shares/s", &grant).await;
    for (change, code) in [
        (json!({ "volume": "x" }), "not-found"),
        (json!({ "volume": "w", "folder": "/none" }), "not-found"),
        (json!({ "volume": "w", "folder": "/luns/l" }), "invalid-request"),
    ] {
        refused(&node, "PATCH", "/v1/shares/s", &change, code).await;
    }
    let (session, open) = client();
    (*smb.connected.lock(), *smb.open.lock()) = (vec![session], vec![open]);
    let text =
        refused(&node, "PATCH", "/v1/shares/s", &json!({ "volume": "w" }), "confirmation-required").await;
    assert!(text.contains("w:/shares/s from now on: 1 session and 1 open file on it end"), "{text}");
    assert_eq!(get(&node, "/v1/shares/s").await["volume"], "v");
    let moved = send(&node, "PATCH", "/v1/shares/s", &json!({ "volume": "w", "confirm": "s" })).await;
    assert!(moved["volume"] == "w" && moved["online"] == true, "{moved}");
    assert_eq!((&moved["permissions"], &moved["comment"]), (&before["permissions"], &before["comment"]));
    assert!(moved["volume_guid"] != before["volume_guid"], "{moved}");
    smb.connected.lock().clear();
    smb.open.lock().clear();
    let moved = send(&node, "PATCH", "/v1/shares/s", &json!({ "folder": "/else" })).await;
    assert_eq!(moved["folder"], "/else");
    node.stop().await.expect("stops");
}

/// A node looks at itself all the time: what there may be a hundred thousand of is not listed for each share and each LUN.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_look_costs_does_not_grow_with_the_square_of_what_there_is() {
    let World { node, smb, iscsi, _dir } = world().await;
    for number in 0..10 {
        send(&node, "POST", "/v1/shares", &json!({ "name": format!("s{number}"), "volume": "v" })).await;
        let lun = json!({ "name": format!("l{number}"), "volume": "v", "size_bytes": 8192 });
        send(&node, "POST", "/v1/luns", &lun).await;
    }
    // LUNs of images, as far as the configuration says; that the memory has none in the files, each tells for itself.
    let mut images = get(&node, "/v1/config").await;
    for lun in images["lun"].as_array_mut().expect("LUNs") {
        lun["format"] = json!("vhdx");
    }
    send(&node, "PUT", "/v1/config", &json!({ "config": images, "confirm": "apply" })).await;
    let (session, open) = client();
    let other = SmbOpen { share: "S3".into(), ..SmbOpen::default() };
    (*smb.connected.lock(), *smb.open.lock()) = (vec![session], vec![open.clone(), other, open]);
    // What the node does by itself may come in between: it is counted, too.
    let count = async |path: &str| {
        (*smb.listed.lock(), *iscsi.asked.lock()) = ((0, 0), (0, 0));
        let answer = get(&node, path).await;
        let (sessions, opens) = *smb.listed.lock();
        let (caches, images) = *iscsi.asked.lock();
        assert!(
            sessions < 10 && opens == 0 && caches < 10 && images < 10,
            "{path}: {sessions} {opens} {caches} {images}"
        );
        answer
    };
    assert_eq!(count("/v1/status").await["counts"]["sessions"], 1);
    let shares = count("/v1/shares").await;
    let used = |name: &str| {
        let share = shares["items"].as_array().and_then(|all| all.iter().find(|share| share["name"] == name));
        share.map(|share| (share["sessions"].as_u64(), share["opens"].as_u64()))
    };
    assert_eq!(used("s"), Some((Some(1), Some(2))), "names of shares have no case: {shares}");
    assert_eq!(used("s3"), Some((Some(0), Some(1))));
    assert_eq!(count("/v1/smb").await["opens"], 3);
    count("/v1/luns").await;
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_says_first_what_its_clients_lose() {
    let World { node, smb, iscsi, _dir } = world().await;
    send(&node, "PATCH", "/v1/smb", &json!({ "listen": ["127.0.0.1:4450"] })).await;
    let have = get(&node, "/v1/config").await;
    let (session, open) = client();
    (*smb.connected.lock(), *smb.open.lock()) = (vec![session], vec![open]);
    *iscsi.connected.lock() =
        vec![Session { initiator: HOST.into(), target: TARGET.into(), ..Session::default() }];
    let mut without = have.clone();
    without.as_object_mut().expect("a table").remove("smb");
    let mut elsewhere = have.clone();
    (elsewhere["share"][0]["folder"], elsewhere["share"][0]["volume"]) = (json!("/else"), json!("w"));
    let mut other_bytes = have.clone();
    (other_bytes["lun"][0]["volume"], other_bytes["lun"][0]["path"]) = (json!("w"), json!("/luns/m"));
    for (config, said) in [
        (
            &without,
            "SMB is not served any more, as no address is given for it (127.0.0.1:4450 until now): 1 session and 1 open file",
        ),
        (&elsewhere, "Share s shows w:/else from now on: 1 session and 1 open file on it end."),
        (&other_bytes, "LUN l is made of w:/luns/m and stays the disk that initiators know"),
    ] {
        let shown = send(&node, "PUT", "/v1/config", &json!({ "config": config, "dry_run": true })).await;
        assert!(shown["warnings"].to_string().contains(said), "{shown}");
        let asked =
            refused(&node, "PUT", "/v1/config", &json!({ "config": config }), "confirmation-required").await;
        assert!(asked.contains(said), "{asked}");
    }
    assert_eq!(get(&node, "/v1/config").await, have);
    // Another address is more, and takes nothing away.
    let mut more = have.clone();
    more["smb"]["listen"] = json!(["127.0.0.1:4450", "127.0.0.1:4451"]);
    send(&node, "PUT", "/v1/config", &json!({ "config": more })).await;
    let asked =
        refused(&node, "PUT", "/v1/config", &json!({ "config": have }), "confirmation-required").await;
    assert!(asked.contains("SMB is not served on 127.0.0.1:4451 any more"), "{asked}");
    send(&node, "PUT", "/v1/config", &json!({ "config": without, "confirm": "apply" })).await;
    node.stop().await.expect("stops");
}
