//! Copies as a load, from and to what a node serves: files of this machine, of its share, its LUN.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::Write as _;
use std::process::{Output, Stdio};

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

#[test]
fn each_end_of_a_copy_has_its_own_user() {
    let mut node = Demo::new("2");
    let local = |name: &str| node.dir.path().join(name).to_string_lossy().into_owned();
    let [from, back, word, bobs_word] = ["from", "back", "word", "bobs-word"].map(local);
    let content: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(&from, &content).expect("written");
    std::fs::write(&back, vec![0xff; SIZE]).expect("written");
    std::fs::write(&word, node.text("smb_password")).expect("written");
    std::fs::write(&bobs_word, "battery staple\n").expect("written");
    // A share that only bob uses.
    let mut command = program(&["user", "create", "bob", "--password-stdin"]);
    let command = command.env("HOLDFAST_SOCKET", node.text("api_socket"));
    let mut made = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    made.stdin.take().expect("piped").write_all(b"battery staple\n").expect("taken");
    assert!(made.wait().expect("ends").success());
    node.json(&["share", "create", "bobs", "--volume", "vm", "--full", "bob"]);
    // Addresses that name nobody.
    let user = node.text("smb_user");
    let url = node.text("smb_url").replace(&format!("{user}@"), "");
    let (server, _) = url.trim_end_matches('/').rsplit_once('/').expect("server and share");
    let (first, bobs) = (format!("{}/first", url.trim_end_matches('/')), format!("{server}/bobs/second"));
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = program(&["spd", "--json", "--quiet", "--yes"]);
        command.args(words).envs(variables.iter().copied()).output().expect("runs")
    };
    let demos = ["--user", &user, "--password-file", &word];
    let make = format!("-c{SIZE}");
    json(&run(&[&demos[..], &[&make, "-d1", "-W0", &first]].concat(), &[]));
    json(&run(&["--user", "bob", "--password-file", &bobs_word, &make, "-d1", "-W0", &bobs], &[]));
    json(&run(&[&demos[..], &["--copy", &from, &first]].concat(), &[]));

    // Options, over one kind of target.
    let copy = [&demos[..], &["--copy"]].concat();
    let said = run(&[&copy[..], &[&first, &bobs]].concat(), &[]);
    assert_eq!(said.status.code(), Some(1), "who may read there may not write here");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains(&format!("user '{user}' may not")), "{said}");
    let bob = ["--to-user", "bob", "--to-password-file", &bobs_word];
    json(&run(&[&copy[..], &bob, &[&first, &bobs]].concat(), &[]));
    // The environment, the other way round, and a LUN that asks for nobody.
    let variables = [
        ("HOLDFAST_SPD_USER", "bob"),
        ("HOLDFAST_SPD_PASSWORD", "battery staple"),
        ("HOLDFAST_SPD_TO_USER", ""),
    ];
    let size = SIZE.to_string();
    node.json(&["lun", "create", "small", "--size", &size, "--group", "everyone", "--number", "1"]);
    let large = node.text("iscsi_url");
    let small = format!("{}/1", large.strip_suffix("/0").expect("the first unit"));
    json(&run(&["--copy", &bobs, &small], &variables));
    json(&run(&["--copy", &small, &back], &[]));
    assert!(std::fs::read(&back).expect("there") == content, "over two shares and a LUN");
    node.check_all();
    node.end("TERM");
}
