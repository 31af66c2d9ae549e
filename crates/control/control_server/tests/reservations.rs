//! What initiators have reserved of LUNs: shown, warned of where nobody is left to end it, and ended by whoever confirms it. Parts are in
//! memory.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use common::{get, refused, send};
use control_api::{LunReservations, Registrant, ReservationKind, Session};
use control_server::memory::{Machine, MemoryIscsi};
use control_server::{FoundDisk, NodeOptions, Running};
use serde_json::json;
use shard_runtime::SystemClock;

const HOLDER: &str = "iqn.2026-11.example:holder";
const OTHER: &str = "iqn.2026-11.example:other";
const TARGET: &str = "iqn.2026-11.example:t";

/// A node with the LUN `l`, which each of two hosts sees by a group of its own, and the first has reserved.
async fn world(dir: &tempfile::TempDir) -> (Running, Arc<MemoryIscsi>) {
    let machine = Arc::new(Machine::default());
    let disk = |id: &str| FoundDisk { id: id.into(), path: format!("/dev/{id}"), ..FoundDisk::default() };
    *machine.found.lock() = ["a", "b"].map(disk).to_vec();
    let iscsi = Arc::new(MemoryIscsi::default());
    let options = NodeOptions { data_dir: dir.path().join("data"), socket: None, shards: None, http: None };
    let part = iscsi.clone();
    let node = Running::start_with(options, Arc::new(SystemClock::new()), move |data, _| {
        let mut backends = machine.backends(data);
        backends.iscsi = part;
        Ok(backends)
    });
    let node = node.await.expect("starts");
    node.wait_ready().await;
    send(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": ["a", "b"], "confirm": "p" })).await;
    send(&node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 1 << 30 })).await;
    send(&node, "POST", "/v1/targets", &json!({ "name": TARGET })).await;
    for (group, host) in [("a", HOLDER), ("b", OTHER)] {
        send(&node, "POST", "/v1/initiator-groups", &json!({ "name": group, "initiators": [host] })).await;
    }
    let map = json!([{ "group": "a" }, { "group": "b" }]);
    send(&node, "POST", "/v1/luns", &json!({ "name": "l", "volume": "v", "size_bytes": 8192, "map": map }))
        .await;
    let registrant = Registrant {
        initiator: HOLDER.into(),
        port: format!("{HOLDER},i,0x800000000001"),
        target: TARGET.into(),
        target_port: 1,
        key: "0x000000000000000a".into(),
        holds: true,
        connected: false,
    };
    let held = LunReservations {
        kind: Some(ReservationKind::WriteExclusive),
        holders: vec![HOLDER.into()],
        registrants: vec![registrant],
        generation: 2,
        aptpl: true,
    };
    iscsi.reserved.lock().insert("l".into(), held);
    (node, iscsi)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_host_has_reserved_is_shown_and_ended() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, iscsi) = world(&dir).await;
    let shown = get(&node, "/v1/luns/l").await;
    let held = &shown["reservations"];
    assert_eq!((&held["kind"], &held["holders"]), (&json!("write-exclusive"), &json!([HOLDER])), "{shown}");
    assert_eq!(held["registrants"][0]["key"], "0x000000000000000a");
    assert_eq!(get(&node, "/v1/luns").await["items"][0]["reservations"], *held);
    // Whoever ends it confirms it, and is told who is fenced.
    *iscsi.connected.lock() = vec![Session {
        initiator: OTHER.into(),
        target: TARGET.into(),
        address: "192.0.2.2:999".into(),
        ..Session::default()
    }];
    let path = "/v1/luns/l/clear-reservations";
    let text = refused(&node, "POST", path, &json!({}), "confirmation-required").await;
    assert!(
        text.contains("write exclusive") && text.contains(HOLDER) && text.contains("0x000000000000000a"),
        "{text}"
    );
    assert!(text.contains(&format!("Fenced off now, and free then: {OTHER} (kept from writing)")), "{text}");
    refused(&node, "POST", path, &json!({ "confirm": "m" }), "invalid-request").await;
    assert!(iscsi.reserved.lock().contains_key("l"), "nothing was done");
    let done = send(&node, "POST", path, &json!({ "confirm": "l" })).await;
    assert!(done["message"].as_str().is_some_and(|said| said.contains(HOLDER)), "{done}");
    assert!(get(&node, "/v1/luns/l").await.get("reservations").is_none());
    refused(&node, "POST", path, &json!({ "confirm": "l" }), "wrong-state").await;
    refused(&node, "POST", "/v1/luns/m/clear-reservations", &json!({ "confirm": "m" }), "not-found").await;
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_stays_behind_is_named_and_warned_of() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, iscsi) = world(&dir).await;
    let stale = async || {
        let status = get(&node, "/v1/status").await;
        let issues = status["issues"].as_array().expect("issues").clone();
        issues.iter().any(|issue| issue["code"] == "lun-reserved-away" && issue["subject"] == "LUN l")
    };
    assert!(!stale().await, "its holder sees it");
    // The other one may lose it without a word: nobody is connected, and it holds nothing.
    send(&node, "POST", "/v1/luns/l/unmap", &json!({ "group": "b" })).await;
    // Not connected either, and still asked about.
    let whom = json!({ "group": "a" });
    let text = refused(&node, "POST", "/v1/luns/l/unmap", &whom, "confirmation-required").await;
    assert!(text.contains("stays reserved by") && text.contains("clear-reservations l"), "{text}");
    let members = json!({ "remove": [HOLDER] });
    let text = refused(&node, "PATCH", "/v1/initiator-groups/a", &members, "confirmation-required").await;
    assert!(text.contains("stays reserved by"), "{text}");
    let text = refused(&node, "DELETE", "/v1/initiator-groups/a", &json!({}), "confirmation-required").await;
    assert!(text.contains("stays reserved by"), "{text}");
    assert!(!stale().await, "nothing was done");
    send(&node, "POST", "/v1/luns/l/unmap", &json!({ "group": "a", "confirm": "l" })).await;
    assert!(stale().await);
    iscsi.reserved.lock().clear();
    assert!(!stale().await);
    node.stop().await.expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_do_not_come_back_are_forgotten() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (node, iscsi) = world(&dir).await;
    iscsi.lost_writes.lock().insert("l".into(), vec![HOLDER.into(), OTHER.into()]);
    let session = |initiator: &str, target: &str| Session {
        initiator: initiator.into(),
        target: target.into(),
        ..Session::default()
    };
    // Who is connected to another target only is not told there.
    *iscsi.connected.lock() = vec![session(OTHER, TARGET), session(HOLDER, "iqn.2026-11.example:other")];
    let status = get(&node, "/v1/status").await.to_string();
    assert!(status.contains("lun-lost-writes") && status.contains("forget-lost-writes l"), "{status}");
    let path = "/v1/luns/l/forget-lost-writes";
    let text = refused(&node, "POST", path, &json!({}), "confirmation-required").await;
    assert!(text.contains(HOLDER) && !text.contains(OTHER), "who is connected is told: {text}");
    let connected = json!({ "host": OTHER, "confirm": "l" });
    refused(&node, "POST", path, &connected, "wrong-state").await;
    let done = send(&node, "POST", path, &json!({ "host": HOLDER, "confirm": "l" })).await;
    assert!(done["message"].as_str().is_some_and(|said| said.contains(HOLDER)), "{done}");
    assert_eq!(get(&node, "/v1/luns/l").await["lost_writes"], json!([OTHER]));
    refused(&node, "POST", path, &json!({ "confirm": "l" }), "wrong-state").await;
    refused(&node, "POST", "/v1/luns/m/forget-lost-writes", &json!({ "confirm": "m" }), "not-found").await;
    node.stop().await.expect("stops");
}
