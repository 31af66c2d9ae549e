//! Copies as a load, from and to what a node serves: files of this machine, of its share, its LUN.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::process::Output;

use common::{Demo, json, program};

mod common;

/// Bytes of what is copied: not whole pieces.
const SIZE: usize = (9 << 20) + 512;

fn load(node: &Demo, words: &[&str]) -> Output {
    let mut command = program(&["spd", "--json", "--quiet", "--yes"]);
    command.args(words);
    // The LUN asks for nobody; the share does.
    if words.iter().any(|word| word.starts_with("smb://")) {
        command.env("HOLDFAST_SPD_PASSWORD", node.text("smb_password"));
    }
    command.output().expect("runs")
}

fn copy(node: &Demo, words: &[&str]) -> Output {
    load(node, &[&["--copy"], words].concat())
}

/// Copies, and looks whether it was counted.
fn copied(node: &Demo, words: &[&str]) {
    let span = &json(&copy(node, words))["spans"][0];
    assert_eq!(span["ended_early"], serde_json::Value::Null, "{words:?}: {span}");
    for kind in ["read", "write"] {
        assert_eq!(span[kind]["bytes"], SIZE, "{words:?}: {span}");
        assert_eq!((&span[kind]["count"], &span[kind]["errors"]), (&10.into(), &0.into()), "{span}");
    }
}

#[test]
fn a_copy_goes_from_and_to_whatever_a_node_serves() {
    let mut node = Demo::new("2");
    let local = |name: &str| node.dir.path().join(name).to_string_lossy().into_owned();
    let content: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let [from, back] = ["from", "back"].map(local);
    std::fs::write(&from, &content).expect("written");
    let url = node.text("smb_url");
    let share = |name: &str| format!("{}/{name}", url.trim_end_matches('/'));
    let [first, second] = ["first", "second"].map(share);
    for file in [&first, &second] {
        json(&load(&node, &[&format!("-c{SIZE}"), "-d1", "-W0", file]));
    }
    let read_back = || {
        let all = std::fs::read(&back).expect("there");
        std::fs::write(&back, vec![0xff; SIZE]).expect("written");
        all
    };
    std::fs::write(&back, vec![0xff; SIZE]).expect("written");

    // To the share, from file to file of it, and from it.
    copied(&node, &[&from, &first]);
    copied(&node, &[&first, &second]);
    copied(&node, &[&second, &back]);
    assert!(read_back() == content, "over the share");
    // To a LUN and from it.
    let size = SIZE.to_string();
    node.json(&["lun", "create", "small", "--size", &size, "--group", "everyone", "--number", "1"]);
    let large = node.text("iscsi_url");
    let small = format!("{}/1", large.strip_suffix("/0").expect("the first unit"));
    copied(&node, &["-o4", &second, &small]);
    copied(&node, &[&small, &back]);
    assert!(read_back() == content, "over a LUN");
    copied(&node, &[&small, &large]);

    let larger = copy(&node, &[&large, &back]);
    assert_eq!(larger.status.code(), Some(1));
    let said = String::from_utf8_lossy(&larger.stderr).into_owned();
    assert!(said.contains("bytes and") && said.contains(" only "), "{said}");
    assert!(read_back() == vec![0xff; SIZE], "nothing was begun");

    let said = copy(&node, &[&from, "holdfast://vm/first"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("takes two holdfast:// targets"), "{said}");
    node.check_all();
    node.end("TERM");
}
