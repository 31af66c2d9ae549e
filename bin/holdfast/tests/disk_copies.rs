//! Disks beside copies of themselves, and files that are put at the path of a disk while the node runs, as an administrator meets them.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

#[allow(dead_code, reason = "not every test needs all of it")]
mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{json, program, signal};
use serde_json::Value;

/// A node with a pool, `p`, on two files.
struct Node {
    dir: tempfile::TempDir,
    running: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Node {
    fn new() -> Self {
        let mut node = Self { dir: tempfile::tempdir().expect("temp dir"), running: None };
        node.start();
        let disks = ["one", "two"].map(|name| {
            let file = std::fs::File::create(node.path(name)).expect("made");
            file.set_len(512 << 20).expect("sparse");
            node.path(name)
        });
        node.ok(&["pool", "create", "p", &disks[0], &disks[1], "--yes"]);
        node
    }

    fn path(&self, name: &str) -> String {
        let dir = self.dir.path().canonicalize().expect("there");
        dir.join(name).to_string_lossy().into_owned()
    }

    fn start(&mut self) {
        let mut command = program(&["serve", "--shards", "1", "--data-dir", &self.path("node")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.running = Some(command.spawn().expect("starts"));
        while !self.run(&["status"]).status.success() {
            std::thread::yield_now();
        }
        self.until(&["status"], |status| status["ready"] == true);
    }

    fn end(&mut self) {
        let mut child = self.running.take().expect("it runs");
        signal(&child, "TERM");
        assert!(child.wait().expect("ended").success());
    }

    fn run(&self, words: &[&str]) -> Output {
        program(words).env("HOLDFAST_SOCKET", self.path("node")).output().expect("runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        json(&self.run(&[words, &["--json"]].concat()))
    }

    fn ok(&self, words: &[&str]) {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Asks until the answer is as wanted. The test runner's deadline is the only one.
    fn until(&self, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.json(words);
            if wanted(&answer) {
                return answer;
            }
            std::thread::yield_now();
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

    /// What lists say of a disk.
    fn disk(&self, name: &str) -> Value {
        let list = self.json(&["disk", "list"]);
        let disks = list["items"].as_array().expect("a list");
        disks.iter().find(|disk| disk["id"] == self.path(name)).cloned().expect("it is listed")
    }

    /// The names of the members of the pool, each with its state.
    fn members(&self) -> Vec<(String, String)> {
        let shown = self.json(&["pool", "show", "p"]);
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

    fn issues(&self) -> Vec<(String, String)> {
        let status = self.json(&["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let issues = status["issues"].as_array().expect("a list").iter();
        issues.map(|issue| (text(&issue["subject"]), text(&issue["detail"]))).collect()
    }
}

fn online(names: [&str; 2]) -> Vec<(String, String)> {
    names.map(|name| (name.to_owned(), "online".to_owned())).to_vec()
}

#[test]
fn a_copy_of_a_disk_is_told_from_the_one_in_use() {
    let mut node = Node::new();
    // One whose name comes before that of the original, and one whose name comes after it.
    for copy in ["a-copy", "z-copy"] {
        node.copy("one", copy);
        node.ok(&["disk", "set", &node.path(copy), "--model", "copy"]);
        assert_eq!(node.members(), online(["one", "two"]), "beside {copy}");
        let listed = node.disk(copy);
        assert_eq!(listed["state"], "foreign", "{listed}");
        let reason = listed["reason"].as_str().unwrap_or_default();
        assert_eq!(reason, format!("it is a copy of disk {}, and not used", node.path("one")));
        assert_eq!(node.disk("one")["state"], "online");
        let issues = node.issues();
        let told = |(subject, detail): &(String, String)| {
            *subject == format!("disk {}", node.path(copy)) && detail.contains(&node.path("one"))
        };
        assert!(issues.iter().any(told), "{issues:?}");
    }
    // The copy goes: nothing happens to the member.
    std::fs::remove_file(node.path("a-copy")).expect("removed");
    node.ok(&["disk", "rescan"]);
    assert_eq!(node.members(), online(["one", "two"]));
    let listed = node.json(&["disk", "list"]);
    assert!(!listed.to_string().contains("a-copy"), "nobody misses it: {listed}");
    // What was written after the copy was made decides at the next start, not the name.
    node.ok(&["volume", "create", "v", "--size", "64M", "--pool", "p"]);
    node.copy("z-copy", "a-copy");
    node.end();
    node.start();
    assert_eq!(node.members(), online(["one", "two"]));
    assert_eq!(node.disk("a-copy")["state"], "foreign");
    // The one in use goes: one of the copies comes in its place, and is told from the other.
    std::fs::remove_file(node.path("one")).expect("removed");
    node.until(&["pool", "show", "p"], |_| node.members() == online(["a-copy", "two"]));
    assert_eq!(node.disk("z-copy")["state"], "foreign");
}

#[test]
fn right_disks_that_are_put_back_while_the_node_runs_are_used() {
    let mut node = Node::new();
    for disk in ["one", "two"] {
        node.copy(disk, &format!("{disk}.old"));
    }
    node.ok(&["volume", "create", "v", "--size", "64M", "--pool", "p"]);
    node.end();
    for disk in ["one", "two"] {
        node.put_at(disk, &format!("{disk}.right"));
        node.put_at(&format!("{disk}.old"), disk);
    }
    node.start();
    let closed = node.json(&["pool", "list"]);
    assert_eq!(closed["items"][0]["state"], "closed", "older disks are not believed: {closed}");
    for disk in ["one", "two"] {
        node.put_at(&format!("{disk}.right"), disk);
    }
    node.until(&["pool", "list"], |list| list["items"][0]["state"] == "online");
    node.until(&["volume", "list"], |list| list["items"][0]["online"] == true);
}

/// The node does not let go of a disk in use because of what is at its path, and says that it will be gone.
#[test]
fn a_file_in_use_that_another_was_put_over_is_told_of() {
    let node = Node::new();
    node.copy("one", "other");
    node.put_at("other", "one");
    node.ok(&["disk", "rescan"]);
    assert_eq!(node.members(), online(["one", "two"]));
    let issues = node.issues();
    let told = |(subject, detail): &(String, String)| {
        *subject == format!("disk {} of pool p", node.path("one")) && detail.contains("another file")
    };
    assert!(issues.iter().any(told), "{issues:?}");
}
