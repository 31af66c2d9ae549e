//! The real binary with real disks (files), pools and volumes: what is written survives kill -9, the loss of a
//! disk and a clean restart, and `status` says when everything is redundant again.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::net::TcpStream;
use std::time::Duration;

use common::{ANY, Demo};

mod common;

/// How often `status` is asked before a test gives up: a minute, on the slowest machine.
const TRIES: u32 = 600;

fn verdict(demo: &Demo) -> String {
    demo.json(&["status"])["verdict"].as_str().expect("a verdict").to_owned()
}

#[expect(clippy::disallowed_methods, reason = "the test blocks its own thread, not a shard")]
fn wait_redundant(demo: &Demo) {
    for _ in 0..TRIES {
        if verdict(demo) == "fully-redundant" {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not redundant again: {}", demo.json(&["status"]));
}

fn put(demo: &Demo, name: &str, content: &[u8]) {
    let local = demo.dir.path().join(name);
    std::fs::write(&local, content).expect("written");
    let output = demo.run(&["file", "put", &local.to_string_lossy(), &format!("vm:/{name}")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn get(demo: &Demo, name: &str) -> Vec<u8> {
    let local = demo.dir.path().join("got");
    let _ = std::fs::remove_file(&local);
    let output = demo.run(&["file", "get", &format!("vm:/{name}"), &local.to_string_lossy()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(&local).expect("there")
}

fn content(seed: u8) -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

#[test]
fn data_survives_kill_loss_and_restart() {
    let mut demo = Demo::new("2");
    let luns = demo.json(&["lun", "list"]);
    assert_eq!(luns["items"][0]["serving"], "online", "{luns}");
    TcpStream::connect(demo.text("iscsi_address")).expect("iSCSI listens");
    TcpStream::connect(demo.text("smb_address")).expect("SMB listens");
    let shares = demo.json(&["share", "list"]);
    let share = &shares["items"][0];
    assert_eq!(
        (&share["name"], &share["online"], &share["kind"]),
        (&"vmstore".into(), &true.into(), &"scale-out".into())
    );
    let password = demo.text("smb_password");
    put(&demo, "a", &content(1));
    demo.end("KILL");
    demo.start(ANY);
    assert_eq!(demo.text("smb_password"), password, "clients keep theirs");
    assert_eq!(get(&demo, "a"), content(1), "after kill -9");
    wait_redundant(&demo);

    let disk = demo.line()["disks"][0].as_str().expect("a disk").to_owned();
    let shown = demo.json(&["disk", "fault", &disk, "vanish"]);
    assert_eq!(shown["state"], "missing", "{shown}");
    put(&demo, "b", &content(2));
    assert_eq!(get(&demo, "a"), content(1), "without a disk");
    assert_ne!(verdict(&demo), "fully-redundant");
    let shown = demo.json(&["disk", "fault", &disk, "return"]);
    assert_eq!(shown["state"], "online", "{shown}");
    wait_redundant(&demo);
    demo.check_all();

    demo.end("TERM");
    demo.start(ANY);
    assert_eq!((get(&demo, "a"), get(&demo, "b")), (content(1), content(2)), "after a clean restart");
    assert_eq!(verdict(&demo), "fully-redundant", "a clean stop leaves nothing to do");
    demo.check_all();
}
