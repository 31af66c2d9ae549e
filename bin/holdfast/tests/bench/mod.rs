//! A node in this process, whose disks, pools, targets and SMB server are in memory, and the real command line.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "shared by test binaries")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use control_server::memory::Machine;
use control_server::{NodeOptions, Running};
use serde_json::Value;
use shard_runtime::SystemClock;
use tokio::runtime::Runtime;

pub const TARGET: &str = "iqn.2026-01.io.holdfast:t";

/// A node, its machine, its directory.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub machine: Arc<Machine>,
    runtime: Runtime,
    node: Option<Running>,
}

impl Bench {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let mut bench = Self {
            dir: tempfile::tempdir().expect("temp dir"),
            machine: Arc::new(Machine::default()),
            runtime: runtime.expect("runtime"),
            node: None,
        };
        for i in 1..=5 {
            let file = std::fs::File::create(bench.disk(i)).expect("file disk");
            file.set_len(1 << 30).expect("sparse");
        }
        bench.start();
        bench
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn disk(&self, i: u32) -> String {
        self.dir.path().canonicalize().expect("there").join(format!("disk{i}")).to_string_lossy().into_owned()
    }

    pub fn try_start(&self) -> Result<Running, control_api::Problem> {
        let options = NodeOptions { data_dir: self.data(), socket: None, shards: None, http: None };
        let clock = Arc::new(SystemClock::new());
        self.runtime.block_on(async {
            let node = Running::start_with(options, clock, |data, _| Ok(self.machine.backends(data))).await?;
            node.wait_ready().await;
            Ok(node)
        })
    }

    pub fn start(&mut self) {
        self.node = Some(self.try_start().expect("node starts"));
    }

    pub fn stop(&mut self) {
        let node = self.node.take().expect("running");
        self.runtime.block_on(node.stop()).expect("stops cleanly");
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, "")
    }

    /// Runs a command that reads `input`.
    pub fn run_with(&self, args: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(args)
            .env("HOLDFAST_SOCKET", self.data())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        // Most commands read nothing and may have ended.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("runs")
    }

    pub fn ok(&self, line: &str) -> String {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn json(&self, line: &str) -> Value {
        let text = self.ok(&format!("{line} --json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    /// Runs what must fail, and returns its exit code and message.
    pub fn refused(&self, line: &str) -> (i32, String) {
        let output = self.run(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "{line} was not refused");
        (output.status.code().expect("exit code"), String::from_utf8(output.stderr).expect("text"))
    }

    pub fn items(&self, line: &str) -> Vec<Value> {
        self.json(line)["items"].as_array().unwrap_or_else(|| panic!("{line}: no items")).clone()
    }

    pub fn names(&self, line: &str) -> Vec<String> {
        self.items(line).iter().map(|item| item["name"].as_str().expect("name").to_owned()).collect()
    }

    /// Pool, volume, LUN, target, group.
    pub fn furnish(&self) {
        let [a, b, c, d, _] = [1, 2, 3, 4, 5].map(|i| self.disk(i));
        self.ok(&format!("disk set {a} --enclosure shelf-a --slot 1 --media ssd"));
        self.ok(&format!("pool create p {a} {b} {c} {d} --yes"));
        self.ok("volume create v --size 2G");
        self.ok(&format!("target create {TARGET}"));
        self.ok("initiator-group create g --any");
        self.ok("lun create l --size 1G --group g");
        self.ok("portal create 127.0.0.1:3260");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.node.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}
