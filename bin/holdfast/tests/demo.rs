//! The real binary with real disks (files), pools and volumes: what is written survives kill -9, the loss of a
//! disk and a clean restart, and `status` says when everything is redundant again.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How often `status` is asked before a test gives up: a minute, on the slowest machine.
const TRIES: u32 = 600;

struct Demo {
    dir: tempfile::TempDir,
    child: Child,
    line: Value,
}

fn start(dir: &tempfile::TempDir) -> (Child, Value) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["demo", "--iscsi", "127.0.0.1:0", "--smb", "127.0.0.1:0", "--shards", "2", "--json", "--dir"])
        .arg(dir.path().join("demo"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("not ready: {error}: {line}"));
    (child, line)
}

impl Demo {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let (child, line) = start(&dir);
        Self { dir, child, line }
    }

    /// Ends the process and starts another one on the same data.
    fn restart(&mut self, kill: bool) {
        if kill {
            self.child.kill().expect("killed");
        } else {
            let pid = self.child.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        }
        let ended = self.child.wait().expect("ended");
        assert_eq!(ended.success(), !kill, "{ended}");
        (self.child, self.line) = start(&self.dir);
    }

    fn text(&self, key: &str) -> &str {
        self.line[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.line))
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(args).env("HOLDFAST_SOCKET", self.text("api_socket")).stdin(Stdio::null());
        command.output().expect("runs")
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn verdict(&self) -> String {
        self.json(&["status"])["verdict"].as_str().expect("a verdict").to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the test blocks its own thread, not a shard")]
    fn wait_redundant(&self) {
        for _ in 0..TRIES {
            if self.verdict() == "fully-redundant" {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("not redundant again: {}", self.json(&["status"]));
    }

    fn put(&self, name: &str, content: &[u8]) {
        let local = self.dir.path().join(name);
        std::fs::write(&local, content).expect("written");
        let output = self.run(&["file", "put", &local.to_string_lossy(), &format!("vm:/{name}")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let local = self.dir.path().join("got");
        let _ = std::fs::remove_file(&local);
        let output = self.run(&["file", "get", &format!("vm:/{name}"), &local.to_string_lossy()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read(&local).expect("there")
    }

    fn check(&self) {
        for args in [&["pool", "check", "demo", "--deep"][..], &["volume", "check", "vm"]] {
            let report = self.json(args);
            assert_eq!(report["clean"], true, "{args:?}: {report}");
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn content(seed: u8) -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

#[test]
fn data_survives_kill_loss_and_restart() {
    let mut demo = Demo::new();
    let luns = demo.json(&["lun", "list"]);
    assert_eq!(luns["items"][0]["serving"], "online", "{luns}");
    TcpStream::connect(demo.text("iscsi_address")).expect("iSCSI listens");
    TcpStream::connect(demo.text("smb_address")).expect("SMB listens");
    let shares = demo.json(&["share", "list"]);
    let share = &shares["items"][0];
    assert_eq!(
        (&share["name"], &share["online"], &share["ca"]),
        (&"vmstore".into(), &true.into(), &true.into())
    );
    let password = demo.text("smb_password").to_owned();
    demo.put("a", &content(1));
    demo.restart(true);
    assert_eq!(demo.text("smb_password"), password, "clients keep theirs");
    assert_eq!(demo.get("a"), content(1), "after kill -9");
    demo.wait_redundant();

    let disk = demo.line["disks"][0].as_str().expect("a disk").to_owned();
    let shown = demo.json(&["disk", "fault", &disk, "vanish"]);
    assert_eq!(shown["state"], "missing", "{shown}");
    demo.put("b", &content(2));
    assert_eq!(demo.get("a"), content(1), "without a disk");
    assert_ne!(demo.verdict(), "fully-redundant");
    let shown = demo.json(&["disk", "fault", &disk, "return"]);
    assert_eq!(shown["state"], "online", "{shown}");
    demo.wait_redundant();
    demo.check();

    demo.restart(false);
    assert_eq!((demo.get("a"), demo.get("b")), (content(1), content(2)), "after a clean restart");
    assert_eq!(demo.verdict(), "fully-redundant", "a clean stop leaves nothing to do");
    demo.check();
}
