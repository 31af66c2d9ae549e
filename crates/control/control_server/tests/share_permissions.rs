//! Permissions of shares, with real parts: they are for who was meant, whatever becomes of the name.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;

use common::{get, refused, send, start};
use control_server::Running;
use serde_json::{Value, json};

async fn volume(node: &Running, dir: &Path) {
    let disk = |number: u32| {
        let path = dir.join(format!("p{number}.img"));
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.display().to_string()
    };
    let disks: Vec<String> = (0..2).map(disk).collect();
    send(node, "POST", "/v1/pools", &json!({ "name": "p", "disks": disks, "confirm": "p" })).await;
    send(node, "POST", "/v1/volumes", &json!({ "name": "v", "size_bytes": 256 << 20 })).await;
}

async fn user(node: &Running, name: &str) -> String {
    let made = send(node, "POST", "/v1/users", &json!({ "name": name, "password": "correct horse" })).await;
    made["sid"].as_str().expect("a SID").to_owned()
}

/// Who has permissions, as people read it.
async fn permissions(node: &Running) -> Value {
    get(node, "/v1/shares/s").await["permission"].clone()
}

fn file(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("data/config.toml")).expect("the configuration")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permissions_are_kept_by_sids_and_shown_by_names() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    volume(&node, dir.path()).await;
    let bob = user(&node, "bob").await;
    let share = json!({ "name": "s", "volume": "v", "permissions": [{ "who": "BOB", "right": "change" }] });
    send(&node, "POST", "/v1/shares", &share).await;
    assert!(file(dir.path()).contains(&bob), "{}", file(dir.path()));
    assert_eq!(permissions(&node).await, json!([{ "who": "bob", "right": "change" }]));
    // By its name or its SID it is the same one.
    let grant = json!({ "grant": [{ "who": bob, "right": "read" }, { "who": "Everyone", "right": "read" }] });
    send(&node, "PATCH", "/v1/shares/s", &grant).await;
    let both = json!([{ "who": "bob", "right": "read" }, { "who": "Everyone", "right": "read" }]);
    assert_eq!(permissions(&node).await, both);
    let twice = json!({ "grant": [{ "who": "bob", "right": "read" }, { "who": bob, "right": "full" }] });
    refused(&node, "PATCH", "/v1/shares/s", &twice, "invalid-request").await;
    send(&node, "PATCH", "/v1/shares/s", &json!({ "revoke": ["everyone"] })).await;

    // What is shown can be put back, and says nothing new; who is not there has no permission.
    let shown = get(&node, "/v1/config").await;
    let apply = json!({ "config": shown, "confirm": "apply" });
    assert_eq!(send(&node, "PUT", "/v1/config", &apply).await["items"], json!([]));
    let mut wrong = shown.clone();
    wrong["share"][0]["permission"][0]["who"] = json!("nobody at all");
    let said =
        refused(&node, "PUT", "/v1/config", &json!({ "config": wrong, "confirm": "apply" }), "not-found")
            .await;
    assert!(said.contains("nobody at all"), "{said}");

    // Another one of the name has nothing of it.
    send(&node, "DELETE", "/v1/users/bob", &json!({ "confirm": "bob" })).await;
    assert!(!file(dir.path()).contains(&bob), "{}", file(dir.path()));
    let other = user(&node, "bob").await;
    assert!(other != bob && permissions(&node).await == json!([]));
    // Nor of what was saved before: who is gone has it, whom nobody will ever be again.
    send(&node, "PUT", "/v1/config", &json!({ "config": shown, "confirm": "apply" })).await;
    assert_eq!(permissions(&node).await, json!([{ "who": bob, "right": "read" }]));
    send(&node, "DELETE", "/v1/shares/s", &json!({ "confirm": "s" })).await;
    node.stop().await.expect("stops");
}

/// What earlier releases have written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_earlier_releases_become_those_who_have_them_when_the_node_starts() {
    let dir = tempfile::tempdir().expect("temp dir");
    let node = start(dir.path()).await;
    volume(&node, dir.path()).await;
    let bob = user(&node, "bob").await;
    let share = json!({ "name": "s", "volume": "v", "permissions": [{ "who": "bob", "right": "full" }] });
    send(&node, "POST", "/v1/shares", &share).await;
    node.stop().await.expect("stops");

    let row = |who: &str, right: &str| format!("[[share.permission]]\nwho = {who:?}\nright = {right:?}\n");
    let old = file(dir.path()).replace(&bob, "Bob");
    let old = format!("{old}\n{}{}", row("ghost", "full"), row("hosts\\\\bob", "read"));
    std::fs::write(dir.path().join("data/config.toml"), old).expect("written");
    let node = start(dir.path()).await;
    assert_eq!(permissions(&node).await, json!([{ "who": "bob", "right": "full" }]));
    let kept = file(dir.path());
    assert!(kept.contains(&bob) && !kept.contains("ghost"), "{kept}");
    // What the name of nobody gave, nobody gets later.
    user(&node, "ghost").await;
    assert_eq!(permissions(&node).await, json!([{ "who": "bob", "right": "full" }]));
    assert!(get(&node, "/v1/shares/s").await["online"] == true);
    node.stop().await.expect("stops");
}
