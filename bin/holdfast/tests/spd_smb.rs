//! The load generator on a share of a real node: by UNC path and URL, refusals, and verification while the node is killed.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Demo, json, program};
use serde_json::Value;

mod common;

/// The UNC path of a file of the node's share, with the port that the node took.
fn unc(node: &Demo, file: &str) -> String {
    format!(r"\\127.0.0.1@{}\{}\{file}", node.line()["smb_port"], node.text("smb_share"))
}

/// A load on the node, by its user.
fn spd(node: &Demo, words: &[&str]) -> Command {
    let mut command = program(&["spd"]);
    command.args(words);
    command.env("HOLDFAST_SPD_USER", node.text("smb_user"));
    command.env("HOLDFAST_SPD_PASSWORD", node.text("smb_password"));
    command
}

fn run(node: &Demo, words: &[&str]) -> Output {
    spd(node, words).output().expect("runs")
}

#[test]
fn a_share_is_measured_without_a_mount() {
    let node = Demo::new("1");
    let path = unc(&node, "t.dat");
    let made =
        json(&run(&node, &["--json", "-c4M", "-d1", "-W0", "-b64K", "-w100", "-t2", "-o4", "-h", &path]));
    assert!(made["spans"][0]["write"]["count"].as_u64().expect("count") > 0);
    assert_eq!(made["spans"][0]["threads"][0]["targets"][0]["size_bytes"], 4 << 20);
    // By URL, which names the user; what is read is in the file.
    let url = format!("{}/t.dat", node.text("smb_url").trim_end_matches('/'));
    let read = json(&run(&node, &["--json", "-d1", "-W0", "-r", "-b8K", "-o16", &url]));
    assert!(read["spans"][0]["read"]["count"].as_u64().expect("count") > 0);
    assert_eq!(read["spans"][0]["read"]["errors"], 0);
    // A larger queue than the server grants credits for at once.
    let deep = json(&run(&node, &["--json", "-d1", "-W0", "-r", "-b256K", "-o512", &path]));
    assert_eq!(deep["spans"][0]["read"]["errors"], 0);
    for (words, part) in [
        (vec!["-d1", "-w1", &path], "say --yes"),
        (vec!["-d1", "-c1M", &path], "say --yes"),
        (vec!["-d1", &unc(&node, "missing")], "make it with -c"),
        (vec!["-d1", &path.replace("vmstore", "nowhere")], "has no share"),
        (vec!["-d1", "-b16M", &path], "lower -b"),
        (vec!["-d1", "-F2", &path, &url], "-t (threads per target) instead of -F"),
        (vec!["-d1", &path, "local"], "one kind of them"),
    ] {
        let output = run(&node, &words);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {message}");
        assert!(message.contains(part), "{words:?}: {message}");
    }
    let wrong = spd(&node, &["-d1", &path]).env("HOLDFAST_SPD_PASSWORD", "wrong").output().expect("runs");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("password is wrong"));
    let nobody = spd(&node, &["-d1", &path]).env_remove("HOLDFAST_SPD_PASSWORD").output().expect("runs");
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("who logs in?"));
}

/// How often counters are looked at before a test gives up on seeing load in them: a minute, on the slowest machine.
const LOOKS: u32 = 120;

/// The value of a counter of the only thing of a kind that matches.
fn counter(sample: &Value, kind: &str, name: &str) -> f64 {
    let items = sample["items"].as_array().expect("items");
    let of_kind = items.iter().filter(|item| item["kind"] == kind && item["name"] != "_Total");
    of_kind.map(|item| item["counters"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {item}"))).sum()
}

#[test]
fn live_counters_show_the_load() {
    let node = Demo::new("1");
    let perf = |words: &[&str]| {
        let output = node.run(&[&["perf"], words].concat());
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let path = unc(&node, "t.dat");
    json(&run(&node, &["--json", "-c4M", "-d1", "-W0", "-b64K", "-w100", &path]));
    let mut load = spd(&node, &["--yes", "-d600", "-W0", "-r", "-b4K", "-o8", "-w50", "-Sh", &path])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let mut looks = 0;
    let sample = loop {
        let text = perf(&["--json", "--samples", "1", "--interval", "0.5"]);
        let sample: Value = serde_json::from_str(&text).expect("one line of JSON");
        if counter(&sample, "share", "Data Requests/sec") > 0.0
            && counter(&sample, "disk", "Disk Writes/sec") > 0.0
            // It has a rate only once it was there at the begin of an interval.
            && counter(&sample, "smb-session", "Requests/sec") > 0.0
        {
            break sample;
        }
        looks += 1;
        assert!(looks < LOOKS, "no load in {sample}");
    };
    for (kind, name) in [
        ("share", "Data Bytes/sec"),
        ("share", "Avg. Data Queue Length"),
        ("share", "Avg. Sec/Data Request"),
        ("smb-session", "Requests/sec"),
        ("smb-session", "Sent Bytes/sec"),
        ("smb-session", "Read Requests/sec"),
        ("smb-session", "Write Requests/sec"),
        ("smb-session", "Avg. sec/Read"),
        ("smb-session", "Avg. sec/Write"),
        ("smb-session", "Avg. Data Queue Length"),
        ("volume", "reads/sec"),
        ("volume", "writes/sec"),
        ("volume", "write latency"),
        ("space", "Disk Writes/sec"),
        ("space", "Avg. Disk sec/Write"),
        ("disk", "Disk Bytes/sec"),
        ("processor", "% Processor Time"),
        ("processor", "% Privileged Time"),
        ("processor", "% User Time"),
    ] {
        assert!(counter(&sample, kind, name) > 0.0, "{kind} {name} in {sample}");
    }
    assert!((counter(&sample, "share", "Avg. Data Bytes/Request") - 4096.0).abs() < 1e-6, "{sample}");
    assert!(counter(&sample, "lun", "Disk Transfers/sec").abs() < 1e-9, "nobody uses it: {sample}");
    // Policies and flows of QoS only for who asks for them.
    let items = sample["items"].as_array().expect("items");
    assert!(items.iter().all(|item| item["kind"] != "qos-flow" && item["kind"] != "qos-policy"), "{sample}");
    let mut looks = 0;
    loop {
        let text = perf(&["--json", "--kind", "flow", "--samples", "1", "--interval", "0.5"]);
        let sample: Value = serde_json::from_str(&text).expect("one line of JSON");
        if counter(&sample, "qos-flow", "Normalized IOPS") > 0.0 {
            break;
        }
        looks += 1;
        assert!(looks < LOOKS, "no load in {sample}");
    }

    let total = |kind: &str, name: &str| {
        let items = sample["items"].as_array().expect("items");
        let total = items.iter().find(|item| item["kind"] == kind && item["name"] == "_Total");
        total.and_then(|item| item["counters"][name].as_f64()).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let (sum, all) = (total("disk", "Disk Bytes/sec"), counter(&sample, "disk", "Disk Bytes/sec"));
    assert!((sum - all).abs() <= all * 1e-9, "{sum} of {all}");
    let busy = total("processor", "% Processor Time");
    assert!(busy > 0.0 && busy <= 100.0 + 1e-9, "{busy}");

    // On a busy machine nothing may end within an interval.
    let mut looks = 0;
    loop {
        let csv = perf(&["--csv", "--kind", "share,disk", "--samples", "2", "--interval", "0.2"]);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 3, "{csv}");
        let fields: Vec<&str> = lines[0].trim_matches('"').split("\",\"").collect();
        assert_eq!(fields[0], "(PDH-CSV 4.0) (UTC)(0)");
        let at =
            fields.iter().position(|field| field.ends_with(r"\SMB Server Shares(vmstore)\Data Bytes/sec"));
        let at = at.unwrap_or_else(|| panic!("{}", lines[0]));
        assert!(fields.iter().all(|field| !field.contains("LogicalDisk")), "{}", lines[0]);
        let rate = |line: &&str| {
            let values: Vec<&str> = line.trim_matches('"').split("\",\"").collect();
            assert_eq!(values.len(), fields.len(), "{line}");
            values[at].parse::<f64>().expect("a number")
        };
        if lines[1..].iter().map(rate).all(|rate| rate > 0.0) {
            break;
        }
        looks += 1;
        assert!(looks < LOOKS, "no load in {csv}");
    }

    let table = perf(&["--object", "vmst*", "--interval", "0.2"]);
    assert!(table.contains("REQUESTS/s") && table.contains("vmstore"), "{table}");
    assert!(!table.contains('\u{1b}'), "no screen is cleared that is not a terminal: {table:?}");
    assert!(table.contains("processor _Total") || !table.contains("processor"), "{table}");
    load.kill().expect("killed");
    load.wait().expect("ended");

    // A LUN, by its own initiator.
    let mut load =
        spd(&node, &["--yes", "-f16M", "-d600", "-W0", "-r", "-b4K", "-o8", "-w50", &node.text("iscsi_url")])
            .env_remove("HOLDFAST_SPD_USER")
            .env_remove("HOLDFAST_SPD_PASSWORD")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
    for looks in 0.. {
        let text = perf(&["--json", "--kind", "lun,session", "--samples", "1", "--interval", "0.5"]);
        let sample: Value = serde_json::from_str(&text).expect("one line of JSON");
        if counter(&sample, "lun", "Disk Writes/sec") > 0.0
            && counter(&sample, "iscsi-session", "Requests/sec") > 0.0
        {
            let of = |name| counter(&sample, "lun", name);
            assert!((of("Avg. Disk Bytes/Transfer") - 4096.0).abs() < 1e-6, "{sample}");
            assert!(of("Avg. Disk sec/Read") > 0.0 && of("Avg. Disk Queue Length") > 0.0, "{sample}");
            let of = |name| counter(&sample, "iscsi-session", name);
            assert!(of("Avg. sec/Read") > 0.0 && of("Avg. sec/Write") > 0.0, "{sample}");
            // Few requests are something else than reads and writes.
            assert!(of("Data Requests/sec") > 0.5 * of("Requests/sec"), "{sample}");
            break;
        }
        assert!(looks < LOOKS, "no load in {sample}");
    }
    load.kill().expect("killed");
    load.wait().expect("ended");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test blocks its own thread, not a shard")]
fn verification_passes_while_the_node_is_killed() {
    let mut node = Demo::new("1");
    let path = unc(&node, "t.dat");
    let words = ["--json", "--verify", "-c8M", "-d8", "-W0", "-r", "-b8K", "-w60", "-t2", "-o8", "-h", &path];
    let load = spd(&node, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(2));
        let address = node.text("smb_address");
        node.end("KILL");
        node.start(&address);
    }
    let output = load.wait_with_output().expect("ends");
    let result = json(&output);
    let verify = &result["spans"][0]["verify"];
    assert!(verify["checked"].as_u64().expect("checked") > 1000, "{verify}");
    for wrong in ["stale", "lost", "misplaced", "torn"] {
        assert_eq!(verify[wrong], 0, "{verify}");
    }
    assert_eq!(result["spans"][0]["ended_early"], Value::Null);
    node.check_all();
}
