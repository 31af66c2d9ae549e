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

#[test]
fn what_a_refusal_has_looked_at_is_free_again() {
    let demo = Demo::new("1");
    let disks = ["one", "two"].map(|name| {
        let path = demo.dir.path().join(name);
        std::fs::File::create(&path).expect("made").set_len(1 << 30).expect("sparse");
        path.to_string_lossy().into_owned()
    });
    let create = ["pool", "create", "p", &disks[0], &disks[1]];
    assert_eq!(demo.run(&create).status.code(), Some(1), "not confirmed");
    let list = demo.json(&["disk", "list"]);
    let named = |disk: &&serde_json::Value| disks.iter().any(|path| disk["id"] == *path);
    let left: Vec<_> = list["items"].as_array().expect("list").iter().filter(named).collect();
    assert!(left.is_empty(), "files that came with a request which was refused are not the node's: {left:?}");
    // What somebody else has says who.
    let held = std::fs::File::open(&disks[1]).expect("there");
    held.lock().expect("locked");
    let output = demo.run(&[&create[..], &["--yes"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    drop(held);
    // Paths are those of whoever asks, and slabs are whole.
    let here = |words: &[&str]| {
        let mut command = common::program(words);
        command.current_dir(demo.dir.path()).env("HOLDFAST_SOCKET", demo.data());
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    here(&["pool", "create", "p", "one", "./two", "--slab", "512M", "--yes"]);
    let pool = demo.json(&["pool", "show", "p"]);
    assert_eq!(
        (&pool["capacity_bytes"], &pool["free_bytes"]),
        (&(1_u64 << 30).into(), &(1_u64 << 30).into())
    );
    here(&["disk", "set", "one", "--slot", "7"]);
    here(&["pool", "retire", "p", "./demo/../one"]);
    here(&["pool", "keep-disk", "p", "one"]);
    here(&["disk", "fault", "two", "vanish"]);
    // Also of a disk at whose path nothing is.
    here(&["disk", "fault", "./two", "return"]);
}

#[test]
fn lists_tell_that_all_disks_of_a_pool_are_gone() {
    let demo = Demo::new("1");
    for number in 1..=4 {
        let disk = demo.data().join(format!("disks/disk{number}.img"));
        assert!(demo.run(&["disk", "fault", &disk.to_string_lossy(), "vanish"]).status.success());
    }
    for (list, state, wanted) in [
        ("volume", "online", serde_json::Value::Bool(false)),
        ("lun", "serving", "offline".into()),
        ("share", "online", false.into()),
    ] {
        let item = demo.json(&[list, "list"])["items"][0].clone();
        assert_eq!(item[state], wanted, "{item}");
        let why = item["reason"].as_str().filter(|why| !why.is_empty()).or(item["problem"].as_str());
        assert!(why.is_some_and(|why| why.contains("all disks of pool demo are missing")), "{item}");
    }
    let status = demo.json(&["status"]);
    assert_eq!((&status["counts"]["luns_online"], &status["verdict"]), (&0.into(), &"unavailable".into()));
}

#[test]
fn an_address_that_is_taken_is_told_with_the_option_for_another() {
    let taken = std::net::TcpListener::bind(ANY).expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let dir = tempfile::tempdir().expect("temp dir");
    for (iscsi, smb, option) in [(&*taken, ANY, "--iscsi"), (ANY, &*taken, "--smb")] {
        let mut demo = common::program(&["demo", "--iscsi", iscsi, "--smb", smb, "--shards", "1", "--dir"]);
        let output = demo.arg(dir.path()).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(&taken), "{said}");
        assert!(said.contains(&format!("Choose another address with {option}")), "{said}");
    }
}
