//! Disks beside copies of themselves, and files that are put at the path of a disk while the node runs. Disks are files, and the node
//! is as it runs for users.
#![cfg(feature = "memory")]
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{get, send, start};
use control_server::Running;
use serde_json::{Value, json};

/// A node with a pool, `p`, on two files.
struct Node {
    dir: tempfile::TempDir,
    running: Option<Running>,
}

impl Node {
    async fn new() -> Self {
        let mut node = Self { dir: tempfile::tempdir().expect("temp dir"), running: None };
        node.start().await;
        for name in ["one", "two"] {
            let file = std::fs::File::create(node.path(name)).expect("made");
            file.set_len(512 << 20).expect("sparse");
        }
        let disks = [node.path("one"), node.path("two")];
        node.send("POST", "/v1/pools", json!({ "name": "p", "disks": disks, "confirm": "p" })).await;
        node
    }

    fn path(&self, name: &str) -> String {
        let dir = self.dir.path().canonicalize().expect("there");
        dir.join(name).to_string_lossy().into_owned()
    }

    async fn start(&mut self) {
        self.running = Some(start(self.dir.path()).await);
    }

    async fn end(&mut self) {
        self.running.take().expect("it runs").stop().await.expect("stops");
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    async fn get(&self, path: &str) -> Value {
        get(self.running(), path).await
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        send(self.running(), method, path, &body).await
    }

    async fn rescan(&self) {
        self.send("POST", "/v1/disks/rescan", json!({})).await;
    }

    /// Looks again until it is as wanted. The test runner's deadline is the only one.
    async fn until(&self, wanted: impl AsyncFn() -> bool) {
        while !wanted().await {
            self.rescan().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Copies a disk, holes as holes.
    fn copy(&self, from: &str, to: &str) {
        let copied =
            Command::new("cp").arg("--sparse=always").args([self.path(from), self.path(to)]).status();
        assert!(copied.expect("cp runs").success());
    }

    fn put_at(&self, from: &str, to: &str) {
        std::fs::rename(self.path(from), self.path(to)).expect("moved");
    }

    /// Makes a file known as a disk.
    async fn know(&self, name: &str) {
        let path = format!("/v1/disks?disk={}", self.path(name).replace('/', "%2F"));
        self.send("PATCH", &path, json!({ "model": "copy" })).await;
    }

    /// What lists say of a disk.
    async fn disk(&self, name: &str) -> Value {
        let list = self.get("/v1/disks").await;
        let disks = list["items"].as_array().expect("a list");
        disks.iter().find(|disk| disk["id"] == self.path(name)).cloned().expect("it is listed")
    }

    /// The names of the members of the pool, each with its state.
    async fn members(&self) -> Vec<(String, String)> {
        let shown = self.get("/v1/pools/p").await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = |path: String| {
            Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into())
        };
        let members = shown["members"].as_array().expect("a list").iter();
        let mut members: Vec<_> =
            members.map(|member| (name(text(&member["disk"])), text(&member["state"]))).collect();
        members.sort();
        members
    }

    async fn issues(&self) -> Vec<(String, String)> {
        let status = self.get("/v1/status").await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let issues = status["issues"].as_array().expect("a list").iter();
        issues.map(|issue| (text(&issue["subject"]), text(&issue["detail"]))).collect()
    }

    async fn make_volume(&self) {
        self.send("POST", "/v1/volumes", json!({ "name": "v", "size_bytes": 64 << 20, "pool": "p" })).await;
    }
}

fn online(names: [&str; 2]) -> Vec<(String, String)> {
    names.map(|name| (name.to_owned(), "online".to_owned())).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_disk_is_told_from_the_one_in_use() {
    let mut node = Node::new().await;
    // One whose name comes before that of the original, and one whose name comes after it.
    for copy in ["a-copy", "z-copy"] {
        node.copy("one", copy);
        node.know(copy).await;
        assert_eq!(node.members().await, online(["one", "two"]), "beside {copy}");
        let listed = node.disk(copy).await;
        assert_eq!(listed["state"], "foreign", "{listed}");
        let reason = listed["reason"].as_str().unwrap_or_default();
        assert_eq!(reason, format!("it is a copy of disk {}, and not used", node.path("one")));
        assert_eq!(node.disk("one").await["state"], "online");
        let issues = node.issues().await;
        let told = |(subject, detail): &(String, String)| {
            *subject == format!("disk {}", node.path(copy)) && detail.contains(&node.path("one"))
        };
        assert!(issues.iter().any(told), "{issues:?}");
    }
    // The copy goes: nothing happens to the member.
    std::fs::remove_file(node.path("a-copy")).expect("removed");
    node.rescan().await;
    assert_eq!(node.members().await, online(["one", "two"]));
    let listed = node.get("/v1/disks").await;
    assert!(!listed.to_string().contains("a-copy"), "nobody misses it: {listed}");
    // What was written after the copy was made decides at the next start, not the name.
    node.make_volume().await;
    node.copy("z-copy", "a-copy");
    node.end().await;
    node.start().await;
    assert_eq!(node.members().await, online(["one", "two"]));
    assert_eq!(node.disk("a-copy").await["state"], "foreign");
    // The one in use goes: one of the copies comes in its place, and is told from the other.
    std::fs::remove_file(node.path("one")).expect("removed");
    // (Between the look that finds it gone and what the pool is told of that, nothing tells the copies apart.)
    node.until(async || {
        let members = node.members().await;
        let other = match members.as_slice() {
            all if *all == online(["a-copy", "two"]) => "z-copy",
            all if *all == online(["two", "z-copy"]) => "a-copy",
            _ => return false,
        };
        node.disk(other).await["state"] == "foreign"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_disks_that_are_put_back_while_the_node_runs_are_used() {
    let mut node = Node::new().await;
    node.end().await;
    for disk in ["one", "two"] {
        node.copy(disk, &format!("{disk}.old"));
    }
    // An opening raises the epoch, which the node remembers: a whole set of disks that is older by less is not noticed.
    node.start().await;
    node.make_volume().await;
    node.end().await;
    for disk in ["one", "two"] {
        node.put_at(disk, &format!("{disk}.right"));
        node.put_at(&format!("{disk}.old"), disk);
    }
    node.start().await;
    let closed = node.get("/v1/pools").await;
    assert_eq!(closed["items"][0]["state"], "closed", "older disks are not believed: {closed}");
    for disk in ["one", "two"] {
        node.put_at(&format!("{disk}.right"), disk);
    }
    node.until(async || node.get("/v1/pools").await["items"][0]["state"] == "online").await;
    node.until(async || node.get("/v1/volumes").await["items"][0]["online"] == true).await;
}

/// The node does not let go of a disk in use because of what is at its path, and says that it will be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_use_that_another_was_put_over_is_told_of() {
    let node = Node::new().await;
    node.copy("one", "other");
    node.put_at("other", "one");
    node.rescan().await;
    assert_eq!(node.members().await, online(["one", "two"]));
    let issues = node.issues().await;
    let told = |(subject, detail): &(String, String)| {
        *subject == format!("disk {} of pool p", node.path("one")) && detail.contains("another file")
    };
    assert!(issues.iter().any(told), "{issues:?}");
}
