//! The load generator on volumes of a node that does not run: verified, interrupted, refused; the node finds all in order.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{ANY, Demo, json, program, signal};
use serde_json::Value;

mod common;

/// The target of all loads.
const TARGET: &str = "holdfast://vm/load/t.dat";
/// Its bytes.
const SIZE: u64 = 16 << 20;

fn spd(node: &Demo, words: &[&str]) -> Command {
    let mut command = program(&["spd", "--json", "--quiet", "--data"]);
    command.arg(node.data()).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn load(node: &Demo, words: &[&str]) -> Value {
    span(&spd(node, words).output().expect("runs"))
}

fn refused(node: &Demo, words: &[&str], why: &str) {
    let output = spd(node, words).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(why), "{words:?}: {}: {said}", output.status);
    assert!(output.stdout.is_empty(), "a report of nothing");
}

fn span(output: &Output) -> Value {
    json(output)["spans"][0].clone()
}

fn count(span: &Value, kind: &str) -> u64 {
    assert_eq!(span[kind]["errors"], 0, "{span}");
    span[kind]["count"].as_u64().expect("a count")
}

/// Measures for a second, and longer on a machine that is so busy that too little ends within it.
fn load_until(node: &Demo, words: &[&str], enough: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for seconds in ["-d1", "-d10", "-d60"] {
        last = load(node, &[words, &[seconds, TARGET]].concat());
        if enough(&last) {
            break;
        }
    }
    last
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test blocks its own thread, not a shard")]
fn a_volume_is_measured_without_its_node_and_is_in_order_afterwards() {
    let mut node = Demo::new("2");
    refused(&node, &["-d1", "-c16M", TARGET], "Stop the node first");
    node.end("TERM");
    refused(&node, &["-d1", TARGET], "make it with -c");
    refused(&node, &["-d1", "-c1M", "holdfast://other/f"], "no volume other");
    refused(&node, &["-d1", "-c1M", "--yes", "holdfast://vm/luns/disk1"], "LUN disk1");
    refused(&node, &["-d1", "holdfast://vm"], "names no file of a volume");

    // All kinds of blocks and depths; durable, too.
    let made = ["--yes", "-c16M", "-W0", "-w100", "-b64K", "-r", "-o8", "-t3", "-Sh"];
    let made = load_until(&node, &made, |made| count(made, "write") > 0);
    assert!(count(&made, "write") > 0 && made["threads"][0]["targets"][0]["size_bytes"] == SIZE, "{made}");
    refused(&node, &["-d1", "-w30", TARGET], "say --yes");
    refused(&node, &["-d1", "-c1M", TARGET], "say --yes");
    let both = |mixed: &Value| count(mixed, "read") > 0 && count(mixed, "write") > 0;
    let mixed = load_until(&node, &["--yes", "-W0", "--mix", "4K:50,64K:50:100", "-r", "-o4"], both);
    assert!(both(&mixed), "{mixed}");
    let checked = |verified: &Value| verified["verify"]["checked"].as_u64().expect("a number") > 0;
    let verified = load_until(&node, &["--yes", "-W0", "-w30", "-r", "-b4K", "-o8", "--verify"], checked);
    assert!(checked(&verified), "{verified}");

    // Interrupted under load: a report, and what was written is where it belongs.
    let load = spd(&node, &["--yes", "-d3600", "-W0", "-w50", "-r", "-b4K", "-o8", "--verify", TARGET]);
    let mut load = { load }.spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(3));
    assert!(load.try_wait().expect("known").is_none(), "it runs");
    let second = spd(&node, &["-d1", TARGET]).output().expect("runs");
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use by process"), "{second:?}");
    signal(&load, "INT");
    let ended = span(&load.wait_with_output().expect("ended"));
    assert_eq!(ended["ended_early"], "interrupted");
    assert!(count(&ended, "write") > 0, "{ended}");

    // Interrupted while a file is made: it is not taken for a whole one afterwards.
    let half = "holdfast://vm/load/half.dat";
    let mut make = spd(&node, &["-d1", "-c12G", half]).spawn().expect("starts");
    std::thread::sleep(Duration::from_secs(3));
    assert!(make.try_wait().expect("known").is_none(), "it runs");
    signal(&make, "INT");
    let said = String::from_utf8_lossy(&make.wait_with_output().expect("ended").stderr).into_owned();
    assert!(said.contains("was interrupted; it is empty now"), "{said}");
    refused(&node, &["-d1", half], "too small");

    node.start(ANY);
    node.check_all();
    let file = node.json(&["file", "stat", "vm:/load/t.dat"]);
    assert_eq!(file["size_bytes"], SIZE, "{file}");
}

/// What the tests' agents and coordinators share.
const SECRET: &str = "the secret of these tests";

/// An agent on a port of its own, until dropped.
struct Agent {
    child: Child,
    name: String,
}

impl Agent {
    /// With the data of this node, or of none.
    fn new(node: Option<&Demo>) -> Self {
        let mut command = program(&["spd", "agent", "--yes", "--listen", ANY]);
        command.env("HOLDFAST_SPD_SECRET", SECRET).env_remove("HOLDFAST_SPD_DATA");
        if let Some(node) = node {
            command.arg("--data").arg(node.data());
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let name = line.trim().strip_prefix("agent listening on ").unwrap_or_else(|| panic!("{line}"));
        Self { name: name.to_owned(), child }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn coordinate(agents: &[&Agent], words: &[&str]) -> Output {
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let mut command = program(&["spd", "--json", "--quiet", "--yes", "--agents", &names.join(",")]);
    command.args(words).env("HOLDFAST_SPD_SECRET", SECRET).env_remove("HOLDFAST_SPD_DATA");
    command.output().expect("runs")
}

/// Two machines measure the volumes of their own nodes together; who has no volume, or not for itself, ends it for all.
#[test]
fn agents_measure_their_own_volumes_together_or_say_why_not() {
    let mut nodes = [Demo::new("1"), Demo::new("1")];
    let words = ["-c16M", "-d1", "-W0", "-w50", "-r", "-b4K", "-o4", TARGET];
    let [first, second] = &nodes.each_ref().map(|node| Agent::new(Some(node)));
    let without = Agent::new(None);
    let again = Agent::new(Some(&nodes[0]));
    let refused = |agents: &[&Agent], by: &Agent, why: &str| {
        let output = coordinate(agents, &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{}: {said}", output.status);
        assert!(said.contains(&format!("agent {}: ", by.name)) && said.contains(why), "{said}");
    };
    nodes[0].end("TERM");
    refused(&[first, second], second, "Stop the node first");
    nodes[1].end("TERM");
    refused(&[first, &without], &without, "which one? --data=DIRECTORY");

    // Nothing of what was refused is left open.
    let measured = span(&coordinate(&[first, second], &words));
    assert!(count(&measured, "read") > 0 && count(&measured, "write") > 0, "{measured}");
    let rows = measured["agents"].as_array().expect("a row for each");
    assert_eq!(rows.len(), 2, "{measured}");
    assert!(rows.iter().all(|row| row["write"]["count"].as_u64() > Some(0)), "{measured}");

    // Two that have the same volume: whoever comes second is refused.
    let both = coordinate(&[first, &again], &words);
    let said = String::from_utf8_lossy(&both.stderr).into_owned();
    assert!(both.status.code() == Some(1) && said.contains("in use by process"), "{said}");
    for (at, node) in nodes.iter_mut().enumerate() {
        node.start(ANY);
        node.check_all();
        // Whoever came first may have been interrupted while the file was made anew: then it is empty.
        let file = node.json(&["file", "stat", "vm:/load/t.dat"]);
        assert!(file["size_bytes"] == SIZE || at == 0 && file["size_bytes"] == 0, "{file}");
    }
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
