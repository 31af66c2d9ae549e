//! The load generator on volumes of a node that does not run: verified, interrupted, refused; the node finds all in order.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The target of all loads.
const TARGET: &str = "holdfast://vm/load/t.dat";
/// Its bytes.
const SIZE: u64 = 16 << 20;

/// The data of a node, and the node while it runs.
struct Data {
    dir: tempfile::TempDir,
    node: Option<(Child, Value)>,
}

impl Data {
    fn new() -> Self {
        let mut data = Self { dir: tempfile::tempdir().expect("temp dir"), node: None };
        data.start();
        data
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("demo")
    }

    fn start(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args([
                "demo",
                "--iscsi",
                "127.0.0.1:0",
                "--smb",
                "127.0.0.1:0",
                "--shards",
                "2",
                "--json",
                "--dir",
            ])
            .arg(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not ready: {error}: {line}"));
        self.node = Some((child, line));
    }

    fn stop(&mut self) {
        let Some((mut child, _)) = self.node.take() else { return };
        signal(&child, "TERM");
        assert!(child.wait().expect("ended").success());
    }

    fn spd(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["spd", "--json", "--quiet", "--data"]).arg(self.path()).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn load(&self, words: &[&str]) -> Value {
        span(&self.spd(words).output().expect("runs"))
    }

    fn refused(&self, words: &[&str], why: &str) {
        let output = self.spd(words).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && said.contains(why),
            "{words:?}: {}: {said}",
            output.status
        );
        assert!(output.stdout.is_empty(), "a report of nothing");
    }

    fn ask(&self, words: &[&str]) -> Value {
        let (_, line) = self.node.as_ref().expect("it runs");
        let socket = line["api_socket"].as_str().expect("a socket");
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(words)
            .arg("--json")
            .env("HOLDFAST_SOCKET", socket)
            .output()
            .expect("runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.node {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn span(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["spans"][0].clone()
}

fn count(span: &Value, kind: &str) -> u64 {
    assert_eq!(span[kind]["errors"], 0, "{span}");
    span[kind]["count"].as_u64().expect("a count")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test blocks its own thread, not a shard")]
fn a_volume_is_measured_without_its_node_and_is_in_order_afterwards() {
    let mut data = Data::new();
    data.refused(&["-d1", "-c16M", TARGET], "Stop the node first");
    data.stop();
    data.refused(&["-d1", TARGET], "make it with -c");
    data.refused(&["-d1", "-c1M", "holdfast://other/f"], "no volume other");
    data.refused(&["-d1", "-c1M", "--yes", "holdfast://vm/luns/disk1"], "LUN disk1");
    data.refused(&["-d1", "holdfast://vm"], "names no file of a volume");

    // All kinds of blocks and depths; durable, too.
    let made = data.load(&["-c16M", "-d1", "-W0", "-w100", "-b64K", "-r", "-o8", "-t3", "-Sh", TARGET]);
    assert!(count(&made, "write") > 0 && made["threads"][0]["targets"][0]["size_bytes"] == SIZE, "{made}");
    data.refused(&["-d1", "-w30", TARGET], "say --yes");
    data.refused(&["-d1", "-c1M", TARGET], "say --yes");
    let mixed = data.load(&["--yes", "-d1", "-W0", "--mix", "4K:50,64K:50:100", "-r", "-o4", TARGET]);
    assert!(count(&mixed, "read") > 0 && count(&mixed, "write") > 0, "{mixed}");
    let verified = data.load(&["--yes", "-d1", "-W0", "-w30", "-r", "-b4K", "-o8", "--verify", TARGET]);
    assert!(verified["verify"]["checked"].as_u64().expect("a number") > 0, "{verified}");

    // Interrupted under load: a report, and what was written is where it belongs.
    let load = data.spd(&["--yes", "-d3600", "-W0", "-w50", "-r", "-b4K", "-o8", "--verify", TARGET]);
    let mut load = { load }.spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(3));
    assert!(load.try_wait().expect("known").is_none(), "it runs");
    let second = data.spd(&["-d1", TARGET]).output().expect("runs");
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by process"), "{second:?}");
    signal(&load, "INT");
    let ended = span(&load.wait_with_output().expect("ended"));
    assert_eq!(ended["ended_early"], "interrupted");
    assert!(count(&ended, "write") > 0, "{ended}");

    data.start();
    for words in [&["pool", "check", "demo", "--deep"][..], &["volume", "check", "vm"]] {
        let report = data.ask(words);
        assert_eq!(report["clean"], true, "{words:?}: {report}");
    }
    let file = data.ask(&["file", "stat", "vm:/load/t.dat"]);
    assert_eq!(file["size_bytes"], SIZE, "{file}");
}

#[test]
fn what_is_no_data_directory_stays_untouched() {
    let dir = tempfile::tempdir().expect("temp dir");
    let missing = dir.path().join("no-node");
    let spd = |data: Option<&std::path::Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["spd", "-d1", TARGET]).stdin(Stdio::null()).env_remove("HOLDFAST_SPD_DATA");
        if let Some(data) = data {
            command.env("HOLDFAST_SPD_DATA", data);
        }
        let output = command.output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = spd(Some(&missing));
    assert!(code == Some(1) && said.contains("no node's data directory"), "{said}");
    assert!(!missing.exists());
    let (code, said) = spd(None);
    assert!(code == Some(1) && said.contains("--data=DIRECTORY"), "{said}");
}
