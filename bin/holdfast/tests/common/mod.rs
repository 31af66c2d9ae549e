//! A demo node as a process of its own, with data that outlives it: what tests of the program start, ask, end and start again.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// An address with a port that the system chooses.
pub(crate) const ANY: &str = "127.0.0.1:0";

/// The data of a node, and the node while it runs.
pub(crate) struct Demo {
    /// For files of the test; the node's data lies in it.
    pub(crate) dir: tempfile::TempDir,
    shards: &'static str,
    /// The node, and the line in which it said that it is ready.
    running: Option<(Child, Value)>,
}

/// The program with these words, which can ask nobody anything.
pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Sends a signal, named without `SIG`, to a process.
pub(crate) fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

impl Demo {
    /// A new node that runs.
    pub(crate) fn new(shards: &'static str) -> Self {
        let mut demo = Self { dir: tempfile::tempdir().expect("temp dir"), shards, running: None };
        demo.start(ANY);
        demo
    }

    /// Where the node's data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("demo")
    }

    /// Starts the node on its data, and waits until it serves SMB at `smb`.
    pub(crate) fn start(&mut self, smb: &str) {
        let words = ["demo", "--iscsi", ANY, "--smb", smb, "--shards", self.shards, "--json", "--dir"];
        let mut command = program(&words);
        command.arg(self.data()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not ready: {error}: {line}"));
        self.running = Some((child, line));
    }

    /// Ends the node if it runs: in order with `TERM`, without a warning with `KILL`.
    pub(crate) fn end(&mut self, name: &str) {
        let Some((mut child, _)) = self.running.take() else { return };
        signal(&child, name);
        let ended = child.wait().expect("ended");
        assert_eq!(ended.success(), name == "TERM", "{ended}");
    }

    /// What the node said when it was ready.
    pub(crate) fn line(&self) -> &Value {
        &self.running.as_ref().expect("it runs").1
    }

    /// A text of that.
    pub(crate) fn text(&self, key: &str) -> String {
        let line = self.line();
        line[key].as_str().unwrap_or_else(|| panic!("no {key} in {line}")).to_owned()
    }

    /// Asks the node something, over its own socket.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        program(words).env("HOLDFAST_SOCKET", self.text("api_socket")).output().expect("runs")
    }

    /// Asks it something that it must answer, in JSON.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        json(&self.run(&[words, &["--json"]].concat()))
    }

    /// Checks pool and volume: all must be in order.
    pub(crate) fn check_all(&self) {
        for words in [&["pool", "check", "demo", "--deep"][..], &["volume", "check", "vm"]] {
            let report = self.json(words);
            assert_eq!(report["clean"], true, "{words:?}: {report}");
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What a program that must have succeeded said in JSON.
pub(crate) fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}
