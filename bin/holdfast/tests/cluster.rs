//! Nodes as processes, with the real etcd: a node becomes a cluster, others join it, and one leaves.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use test_etcd::{is_installed, own_address, own_ports, wait_for};

struct Node {
    dir: tempfile::TempDir,
    process: Option<Child>,
    address: String,
}

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(words).stdin(Stdio::null());
    command
}

impl Node {
    fn start() -> Self {
        let port = own_ports(6);
        let address: IpAddr = own_address();
        let mut node = Self {
            dir: tempfile::tempdir().expect("temp dir"),
            process: None,
            address: format!("{address}:{port}"),
        };
        node.start_again();
        node
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn start_again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log"));
        let mut command = program(&["serve", "--shards", "1", "--data-dir"]);
        command.arg(self.data()).stdout(Stdio::null()).stderr(log.expect("a log"));
        self.process = Some(command.spawn().expect("starts"));
        wait_for("the node answers", || self.ask(&["cluster", "place"]).status.success());
    }

    fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("killed");
        process.wait().expect("gone");
    }

    fn ask(&self, words: &[&str]) -> Output {
        program(words).env("HOLDFAST_SOCKET", self.data().join("holdfast.sock")).output().expect("runs")
    }

    /// What must succeed, in JSON.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.ask(&[words, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        assert!(output.status.success(), "{words:?}: {said}\n{}", log());
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// What must fail: the code.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.ask(&[words, &["--json"]].concat());
        assert!(!output.status.success(), "{words:?}");
        let told: Value = serde_json::from_slice(&output.stderr).expect("JSON");
        assert!(told["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{told}");
        told["code"].as_str().expect("a code").to_owned()
    }

    fn token(&self) -> String {
        self.json(&["cluster", "token"])["token"].as_str().expect("a token").to_owned()
    }

    fn join(&self, token: &str, name: &str) -> Value {
        self.json(&["cluster", "join", token, "--address", &self.address, "--node-name", name])
    }

    /// The address without the port.
    fn host(&self) -> String {
        self.address.rsplit_once(':').map_or_else(String::new, |(host, _)| host.to_owned())
    }

    fn groups(&self) -> usize {
        self.json(&["initiator-group", "list"])["items"].as_array().expect("a list").len()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            println!("--- node at {}:\n{log}", self.address);
        }
    }
}

fn disk(folder: &Path, number: u32) -> String {
    let path = folder.join(format!("disk{number}"));
    std::fs::File::create(&path).and_then(|file| file.set_len(2 << 30)).expect("a disk");
    path.display().to_string()
}

#[test]
fn a_node_becomes_a_cluster_others_join_and_one_leaves() {
    if !is_installed() {
        return;
    }
    let mut alpha = Node::start();
    // What it has before: disks, a pool, a volume, a group, a user.
    let disks: Vec<String> = (1..=2).map(|number| disk(alpha.dir.path(), number)).collect();
    let config = alpha.dir.path().join("config.toml");
    let lines: Vec<String> = disks.iter().map(|path| format!("[[disk]]\nid = {path:?}\n")).collect();
    std::fs::write(&config, format!("schema = 1\n{}", lines.concat())).expect("written");
    alpha.json(&["config", "apply", config.to_str().expect("text"), "--yes"]);
    alpha.json(&["pool", "create", "p", &disks[0], &disks[1], "--yes"]);
    alpha.json(&[
        "volume",
        "create",
        "v",
        "--resiliency",
        "mirror2",
        "--size",
        "256M",
        "--thin",
        "--pool",
        "p",
    ]);
    alpha.json(&["initiator-group", "create", "vmhosts", "--any"]);
    // It cannot be shown while it is being opened.
    let pool = |node: &Node| {
        let told = serde_json::from_slice::<Value>(&node.ask(&["pool", "show", "p", "--json"]).stdout);
        told.ok().and_then(|told| told["state"].as_str().map(str::to_owned)).unwrap_or_default()
    };
    assert_eq!(pool(&alpha), "online");

    // Nothing that is wrong changes anything.
    assert_eq!(alpha.refused(&["cluster", "token"]), "wrong-state");
    assert_eq!(alpha.refused(&["cluster", "leave"]), "wrong-state");
    assert_eq!(
        alpha.refused(&["cluster", "init", "--name", "a/b", "--address", &alpha.address]),
        "invalid-request"
    );
    assert_eq!(alpha.refused(&["cluster", "init", "--name", "s", "--address", "192.0.2.1"]), "in-use");
    let place = alpha.json(&[
        "cluster",
        "init",
        "--name",
        "store1",
        "--address",
        &alpha.address,
        "--node-name",
        "alpha",
    ]);
    assert_eq!((place["cluster"].as_str(), place["number"].as_u64()), (Some("store1"), Some(1)), "{place}");
    wait_for("the pool is online again", || pool(&alpha) == "online");
    assert_eq!(alpha.groups(), 1);
    assert_eq!(
        alpha.refused(&["cluster", "init", "--name", "x", "--address", &alpha.address]),
        "wrong-state"
    );

    let beta = Node::start();
    assert_eq!(beta.refused(&["cluster", "join", "x", "--address", &beta.address]), "invalid-request");
    let token = alpha.token();
    let here = |name: &'static str| -> [String; 4] {
        ["--address".into(), beta.address.clone(), "--node-name".into(), name.into()]
    };
    let join = |name: &'static str, token: &str| {
        let here = here(name);
        let mut words = vec!["cluster", "join", token];
        words.extend(here.iter().map(String::as_str));
        beta.refused(&words)
    };
    assert_eq!(join("alpha", &token), "already-exists", "the name is taken, and the token counts still");
    // With something of its own it would lose that.
    beta.json(&["initiator-group", "create", "mine", "--any"]);
    assert_eq!(join("beta", &token), "wrong-state");
    beta.json(&["initiator-group", "delete", "mine", "--yes"]);
    let place = beta.join(&token, "beta");
    assert_eq!((place["cluster"].as_str(), place["number"].as_u64()), (Some("store1"), Some(2)), "{place}");
    wait_for("beta has the cluster's configuration", || beta.groups() == 1);

    let gamma = Node::start();
    assert_eq!(
        gamma.refused(&["cluster", "join", &token, "--address", &gamma.address, "--node-name", "gamma"]),
        "forbidden"
    );
    let place = gamma.join(&alpha.token(), "gamma");
    assert_eq!(place["number"].as_u64(), Some(3), "{place}");

    // Killed, the first one comes back as what it was.
    alpha.kill();
    alpha.start_again();
    wait_for("alpha is in its cluster again", || {
        alpha.ask(&["cluster", "token"]).status.success() && pool(&alpha) == "online"
    });
    assert_eq!(alpha.refused(&["cluster", "leave"]), "wrong-state", "it has a pool");
    assert_eq!(alpha.refused(&["node", "remove", "gamma", "--yes"]), "in-use", "it is up");

    let place = gamma.json(&["cluster", "leave"]);
    assert_eq!(place["cluster"], Value::Null);
    assert_eq!(gamma.groups(), 0, "it has nothing of the cluster's");
    assert_eq!(alpha.refused(&["node", "remove", "gamma", "--yes"]), "not-found");
    // It may come again, as another one.
    assert_eq!(gamma.join(&alpha.token(), "gamma")["number"].as_u64(), Some(4));
}

/// A node that is killed while it joins asks again with the same token, and gets in.
#[test]
fn a_join_that_was_killed_is_finished_by_the_same_token() {
    if !is_installed() {
        return;
    }
    let alpha = Node::start();
    alpha.json(&["cluster", "init", "--name", "store1", "--address", &alpha.address, "--node-name", "alpha"]);
    let token = alpha.token();
    let mut beta = Node::start();
    // At moments that are spread over the whole of it.
    for wait in [5, 40, 80, 160, 320, 640] {
        let socket = beta.data().join("holdfast.sock");
        let mut joining =
            program(&["cluster", "join", &token, "--address", &beta.address, "--node-name", "beta"]);
        joining.env("HOLDFAST_SOCKET", socket).stdout(Stdio::null()).stderr(Stdio::null());
        let mut joining = joining.spawn().expect("runs");
        pause(wait);
        beta.kill();
        let _ = joining.kill();
        let _ = joining.wait();
        beta.start_again();
        let place = beta.json(&["cluster", "place"]);
        if place["cluster"] == "store1" {
            assert_eq!(place["number"].as_u64(), Some(2), "{place}");
            return;
        }
    }
    let place = beta.join(&token, "beta");
    assert_eq!((place["cluster"].as_str(), place["number"].as_u64()), (Some("store1"), Some(2)), "{place}");
}

/// A node that would be refused by etcd goes on as if it had not asked. One that was removed says so when it comes back, and leaves.
#[test]
fn a_removed_node_leaves_and_a_leave_that_is_refused_stops_nothing() {
    if !is_installed() {
        return;
    }
    let alpha = Node::start();
    alpha.json(&["cluster", "init", "--name", "store1", "--address", &alpha.address, "--node-name", "alpha"]);
    alpha.json(&["initiator-group", "create", "vmhosts", "--any"]);
    let (beta, mut gamma) = (Node::start(), Node::start());
    // What is gamma's own, before and after.
    let portal = format!("{}:{}", gamma.host(), own_ports(1));
    beta.join(&alpha.token(), "beta");
    gamma.join(&alpha.token(), "gamma");
    gamma.json(&["portal", "create", &portal]);
    wait_for("each node has a member of etcd with a vote", || {
        let etcd = alpha.json(&["cluster", "status"])["etcd"].as_array().cloned().unwrap_or_default();
        etcd.len() == 3 && etcd.iter().all(|member| member["state"] == "serving")
    });

    gamma.kill();
    let starts = |node: &Node| {
        let log = std::fs::read_to_string(node.dir.path().join("log")).unwrap_or_default();
        log.matches("node is running").count()
    };
    let before = starts(&beta);
    // Of two other members one answers, which is no majority.
    assert_eq!(beta.refused(&["cluster", "leave"]), "wrong-state");
    assert_eq!(starts(&beta), before, "it has not stopped for that");
    assert_eq!(beta.json(&["cluster", "place"])["failed"], Value::Null);

    wait_for("gamma can be removed", || alpha.ask(&["node", "remove", "gamma", "--yes"]).status.success());
    gamma.start_again();
    wait_for("it says that it was removed", || gamma.json(&["status"])["cluster"]["removed"] == true);
    let status = gamma.json(&["status"]);
    assert!(status["summary"].as_str().is_some_and(|told| told.starts_with("REMOVED")), "{status}");
    assert!(!status.to_string().contains("cannot be read"), "{status}");
    assert!(status["issues"].to_string().contains("node-removed"), "{status}");
    let place = gamma.json(&["cluster", "leave"]);
    assert_eq!((&place["cluster"], &place["failed"]), (&Value::Null, &Value::Null), "{place}");
    assert_eq!(gamma.groups(), 0, "it has nothing of the cluster's");
    let portals = gamma.json(&["portal", "list"]);
    assert!(portals.to_string().contains(&portal), "what is its own stays: {portals}");
    // And also over a start; then it may come again, as another one.
    gamma.kill();
    gamma.start_again();
    assert_eq!(gamma.json(&["cluster", "place"])["cluster"], Value::Null);
    gamma.json(&["portal", "delete", &portal, "--yes"]);
    assert_eq!(gamma.join(&alpha.token(), "gamma")["number"].as_u64(), Some(4));
}

#[expect(clippy::disallowed_methods, reason = "the moment of a kill: each is right")]
fn pause(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}
