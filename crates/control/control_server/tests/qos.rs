//! Storage QoS of a node with real parts: as many policies as there may be, made, given, listed, changed, taken away, there after a restart; what
//! pools do in the background.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use common::{ask, get, refused, send, start};
use control_server::Running;
use serde_json::{Value, json};

const MANY: usize = 10_000;

fn guid(number: usize) -> String {
    format!("00000000-0000-0000-0000-{:012}", number + 1)
}

/// Policies of both kinds.
fn policies() -> Value {
    let kind = |number: usize| if number.is_multiple_of(2) { "dedicated" } else { "aggregated" };
    let of = |number: usize| json!({ "guid": guid(number), "name": format!("p{number}"), "kind": kind(number), "max_iops": 100 + number });
    (0..MANY).map(of).collect()
}

/// A folder for each of them.
fn places() -> Value {
    let of = |number: usize| json!({ "volume": "v", "path": format!("/vms/{number}"), "kind": "folder", "policy": guid(number) });
    (0..MANY).map(of).collect()
}

async fn listed(node: &Running) -> Vec<Value> {
    get(node, "/v1/qos/policies").await["items"].as_array().expect("a list").clone()
}

fn named<'a>(policies: &'a [Value], name: &str) -> &'a Value {
    policies.iter().find(|policy| policy["name"] == name).expect("it is listed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_policies_are_in_use_and_no_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path()).await;
    let mut config = get(&node, "/v1/config").await;
    (config["qos_policy"], config["qos_place"]) = (policies(), places());
    send(&node, "PUT", "/v1/config", &json!({ "config": config, "confirm": "apply" })).await;
    let all = listed(&node).await;
    assert_eq!(all.len(), MANY);
    let one = named(&all, "p7777");
    assert_eq!((&one["max_iops"], &one["places"]), (&json!(7877), &json!(["folder v:/vms/7777"])));

    // One more is one too many, also by a configuration, and nothing of it stays.
    let more = json!({ "name": "more", "max_iops": 100 });
    let why = refused(&node, "POST", "/v1/qos/policies", &more, "invalid-request").await;
    assert!(why.contains("there are more than 10000 policies"), "{why}");
    let mut too_many = config.clone();
    let row = json!({ "guid": guid(MANY), "name": "more", "kind": "dedicated" });
    too_many["qos_policy"].as_array_mut().expect("policies").push(row);
    let too_many = json!({ "config": too_many, "confirm": "apply" });
    refused(&node, "PUT", "/v1/config", &too_many, "invalid-request").await;
    assert_eq!(listed(&node).await.len(), MANY);

    // One is changed, one is removed and another one comes.
    let changed = send(&node, "PATCH", "/v1/qos/policies/p5000", &json!({ "max_iops": 77 })).await;
    assert_eq!(changed["max_iops"], 77);
    let in_use = json!({ "confirm": "p9999" });
    let why = refused(&node, "DELETE", "/v1/qos/policies/p9999", &in_use, "in-use").await;
    assert!(why.contains("folder v:/vms/9999"), "{why}");
    send(&node, "DELETE", "/v1/qos/assignments?folder=v:/vms/9999", &Value::Null).await;
    send(&node, "DELETE", "/v1/qos/policies/p9999", &in_use).await;
    send(&node, "POST", "/v1/qos/policies", &more).await;
    node.stop().await.expect("stops");

    let node = start(dir.path()).await;
    let all = listed(&node).await;
    assert_eq!(all.len(), MANY);
    assert_eq!(named(&all, "p5000")["max_iops"], 77);
    assert!(all.iter().all(|policy| policy["name"] != "p9999"));
    // What nobody uses is not counted: looks each second stay small.
    let counters = get(&node, "/v1/counters?flows=true").await.to_string();
    assert!(!counters.contains("qos-policy"), "{counters}");
    let (done, _) = ask(&node, "GET", "/v1/qos/policies/more", "").await;
    assert!(done);
    config["qos_policy"] = json!([]);
    config["qos_place"] = json!([]);
    send(&node, "PUT", "/v1/config", &json!({ "config": config, "confirm": "apply" })).await;
    assert!(listed(&node).await.is_empty());
    node.stop().await.expect("stops");
}

/// What shares the disks with clients is told beside what volumes can do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_tell_what_their_pool_does_in_the_background() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path()).await;
    let disk = |number: u32| {
        let path = dir.path().join(format!("disk{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    send(&node, "POST", "/v1/pools", &json!({ "name": "p", "disks": disks, "confirm": "p" })).await;
    send(&node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 256 << 20 })).await;
    send(&node, "POST", "/v1/luns", &json!({ "name": "l", "size_bytes": 1 << 20 })).await;
    let background = async || get(&node, "/v1/qos/volumes").await["items"][0]["background"].clone();
    let quiet = background().await;
    assert_eq!((&quiet["pool"], &quiet["floor"]), (&json!("p"), &json!(16 << 20)), "{quiet}");
    assert_eq!(quiet["scrub_limit"], 64 << 20);
    // A scrub of next to nothing takes a moment, and is told of for some seconds; what was before the first look at the pool is not.
    let mut tries = 0;
    while background().await["scrubbing"] == 0 {
        tries += 1;
        assert!(tries < 1000, "nothing is told of the scrub");
        send(&node, "POST", "/v1/pools/p/scrub", &Value::Null).await;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let busy = background().await;
    assert_eq!((&busy["restoring"], &busy["destaging"]), (&json!(0), &json!(0)), "{busy}");
    node.stop().await.expect("stops");
}
