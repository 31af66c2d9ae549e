//! A node's past over its API: what an earlier life has left is there, goes on, and says when a pool will be full.
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::{ask, get, start};
use control_api::{CounterKind, Counters, ObjectCounters, OperationCounters};
use counter_history::CounterHistory;
use serde_json::json;

const GIB: u64 = 1 << 30;

#[allow(clippy::disallowed_methods, reason = "the node that is asked has the machine's clock")]
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Three days in which pool `p` grew by 1 GiB an hour and LUN `busy` did 600 writes in each minute; the last five minutes the node was down.
fn leave_history(dir: &std::path::Path) {
    std::fs::create_dir_all(dir).expect("made");
    let (mut history, told) = CounterHistory::open(dir).expect("opens");
    assert!(told.is_empty(), "{told:?}");
    let minutes = 72 * 60;
    let start = now_ms() - (minutes + 5) * 60_000;
    for minute in 0..=minutes {
        let write =
            OperationCounters { operations: 600 * minute, bytes: 600 * 4096 * minute, ..Default::default() };
        let pool = ObjectCounters {
            used_bytes: Some(GIB * minute / 60),
            size_bytes: Some(1000 * GIB),
            ..ObjectCounters::new(CounterKind::Pool, "p")
        };
        let lun = ObjectCounters { write: Some(write), ..ObjectCounters::new(CounterKind::Lun, "busy") };
        let look = Counters {
            node: "n".into(),
            process: 1,
            monotonic_ns: minute * 60_000_000_000,
            items: vec![lun, pool],
        };
        history.take(&look, start + minute * 60_000).expect("written");
    }
    history.close().expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_kept_over_lives_and_tells_when_a_pool_is_full() {
    let dir = tempfile::tempdir().expect("a directory");
    leave_history(&dir.path().join("data/history"));
    let disks: Vec<_> = (0..2)
        .map(|number| {
            let path = dir.path().join(format!("disk{number}"));
            std::fs::File::create(&path).and_then(|file| file.set_len(2 * GIB)).expect("a disk");
            path
        })
        .collect();
    let node = start(dir.path()).await;
    let create = json!({ "name": "p", "disks": disks, "confirm": "p" });
    common::send(&node, "POST", "/v1/pools", &create).await;
    let from = now_ms() - 3 * 86_400_000;
    let path = format!("/v1/history?from_unix_ms={from}&kind=lun&sum=true&step_seconds=3600");
    let history = get(&node, &path).await;
    let steps = history["steps"].as_array().expect("steps");
    assert!((71..=74).contains(&steps.len()), "{} steps", steps.len());
    let writes: u64 = steps.iter().filter_map(|step| step["items"][0]["write"]["operations"].as_u64()).sum();
    assert!((600 * 71 * 60..=600 * 72 * 60).contains(&writes), "{writes} writes");
    assert_eq!(steps[1]["items"][0]["name"], "_Total");

    let (done, problem) =
        ask(&node, "GET", &format!("/v1/history?from_unix_ms={from}&step_seconds=1"), "").await;
    assert!(!done && problem["detail"].to_string().contains("about an hour"), "{problem}");
    for wrong in ["kind=chair", "step_seconds=0", "from_unix_ms=5&to_unix_ms=4", "what=ever"] {
        let (done, problem) = ask(&node, "GET", &format!("/v1/history?{wrong}"), "").await;
        assert!(!done && problem["code"] == "invalid-request", "{wrong}: {problem}");
    }

    // 24 GiB a day, and less than 2 GiB are free.
    let pools = get(&node, "/v1/pools").await;
    let forecast = &pools["items"][0]["forecast"];
    assert_eq!(forecast["full_in_days"], 0, "{pools}");
    let growth = forecast["growth_bytes_per_day"].as_u64().expect("it grows");
    assert!((23 * GIB..25 * GIB).contains(&growth), "{growth}");
    let status = get(&node, "/v1/status").await;
    let told = status["issues"].to_string();
    assert!(told.contains("it will be full in about 0 days"), "{told}");

    // What this life sees is there in the next one.
    node.stop().await.expect("stops");
    let node = start(dir.path()).await;
    let minute = format!("/v1/history?from_unix_ms={}&kind=pool&step_seconds=60", now_ms() - 60_000);
    let steps = get(&node, &minute).await;
    assert!(!steps["steps"].as_array().expect("steps").is_empty(), "{steps}");
    node.stop().await.expect("stops");
}
