//! A volume whose log lies in another pool, as its user sees it: what lists and `status` say while the pool of the log is there,
//! while it is away, and at a start without it, and that nothing of the log stays where it cannot be got rid of.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

#[allow(dead_code, reason = "not every test needs all of it")]
mod common;

use std::process::{Child, Output, Stdio};

use common::{Demo, json, program};
use serde_json::Value;

/// A demo node with a second pool, `fast`, on two files, in which the log of its volume lies.
struct Logged {
    demo: Demo,
    disks: [String; 2],
    /// The node on the data of the demo, when it runs as any other node does.
    served: Option<Child>,
}

impl Drop for Logged {
    fn drop(&mut self) {
        if let Some(mut child) = self.served.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Logged {
    fn new() -> Self {
        let demo = Demo::new("1");
        let disks = ["one", "two"].map(|name| {
            let path = demo.dir.path().join(name);
            let file = std::fs::File::create(&path).expect("made");
            file.set_len(2 << 30).expect("sparse");
            path.to_string_lossy().into_owned()
        });
        let logged = Self { demo, disks, served: None };
        logged.ok(&["pool", "create", "fast", &logged.disks[0], &logged.disks[1], "--yes"]);
        logged.ok(&["volume", "log", "add", "vm", "--size", "128M", "--pool", "fast"]);
        logged
    }

    fn run(&self, words: &[&str]) -> Output {
        program(words).env("HOLDFAST_SOCKET", self.demo.data()).output().expect("runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        json(&self.run(&[words, &["--json"]].concat()))
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn fault(&self, what: &str) {
        self.disks.iter().for_each(|disk| {
            self.ok(&["disk", "fault", disk, what]);
        });
    }

    /// Starts the node on its data without what the demo asks for, and waits until it has opened what it can.
    fn serve(&mut self) {
        let mut command = program(&["serve", "--shards", "1", "--data-dir"]);
        command.arg(self.demo.data()).stdout(Stdio::null()).stderr(Stdio::null());
        self.served = Some(command.spawn().expect("starts"));
        while !self.run(&["status"]).status.success() {
            std::thread::yield_now();
        }
        self.until(&["status"], |status| status["ready"] == true);
    }

    /// Ends the node and starts it again while these files are away.
    fn serve_without(&mut self, files: &[String]) {
        self.demo.end("TERM");
        files.iter().for_each(|file| std::fs::rename(file, hidden(file)).expect("moved"));
        self.serve();
    }

    /// The files that a pool lies on.
    fn files_of(&self, pool: &str) -> Vec<String> {
        let shown = self.json(&["pool", "show", pool]);
        let members = shown["members"].as_array().expect("a list");
        members.iter().map(|member| member["disk"].as_str().expect("there").to_owned()).collect()
    }

    /// Asks until the answer is as wanted. The test runner's deadline is the only one.
    fn until(&self, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.json(words);
            if wanted(&answer) {
                return answer;
            }
            std::thread::yield_now();
        }
    }

    /// The worst that `status` lists, and its first sentence.
    fn status(&self) -> (String, String) {
        let status = self.json(&["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&status["issues"][0]["severity"]), text(&status["summary"]))
    }
}

/// Where a file is while it is away.
fn hidden(file: &String) -> String {
    format!("{file}.hidden")
}

fn pool<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["items"].as_array().expect("list").iter().find(|pool| pool["name"] == name).expect("there")
}

#[test]
fn a_log_is_shown_and_leaves_nothing_behind() {
    let logged = Logged::new();
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("128 MiB in fast: logging"), "{list}");
    let shown = logged.json(&["volume", "show", "vm"]);
    let place = &shown["log_place"];
    assert_eq!((&place["pool"], &place["size_bytes"]), (&"fast".into(), &(128_u64 << 20).into()), "{shown}");
    assert_eq!(pool(&logged.json(&["pool", "list"]), "fast")["volumes"], 0, "a log is no volume");

    let said = logged.refused(&["pool", "delete", "fast", "--yes"]);
    assert!(said.contains("holdfast volume log remove vm"), "{said}");
    let said = logged.refused(&["pool", "export", "fast", "--yes"]);
    assert!(said.contains("holdfast volume log remove vm"), "{said}");

    // All its disks go while nobody writes: the volume is served, and the sentence says neither more nor less.
    logged.fault("vanish");
    let (worst, summary) = logged.status();
    assert_eq!(worst, "error", "{summary}");
    assert!(summary.starts_with("FAULT: all data is as redundant as promised"), "{summary}");
    let status = logged.ok(&["status"]);
    assert!(status.contains("log of volume vm in pool fast"), "{status}");
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("its disks are missing"), "{list}");

    // Taken away meanwhile, nothing of it stays in the pool once that is back.
    logged.ok(&["volume", "log", "remove", "vm"]);
    logged.until(&["pool", "list"], |list| pool(list, "fast")["state"] != "degraded");
    let (worst, summary) = logged.status();
    assert_eq!(worst, "error", "{summary}");
    logged.fault("return");
    logged.until(&["pool", "list"], |list| pool(list, "fast")["state"] == "online");
    logged.until(&["pool", "list"], |list| pool(list, "fast")["allocated_bytes"] == 0);
    logged.ok(&["pool", "delete", "fast", "--yes"]);
    assert!(logged.status().1.starts_with("OK: "));
    assert_eq!(logged.json(&["volume", "check", "vm"])["clean"], true);
}

#[test]
fn a_start_without_the_pool_of_a_log_says_which_it_is() {
    let mut logged = Logged::new();
    logged.serve_without(&logged.disks.clone());
    let wanted = |said: &str| said.contains("pool fast") && said.contains("holdfast volume give-up-log vm");
    let status = logged.ok(&["status"]);
    assert!(wanted(&status) && status.contains("holdfast pool import fast --accept-loss"), "{status}");
    for words in [&["volume", "reopen", "vm"][..], &["volume", "log", "remove", "vm"]] {
        let said = logged.refused(words);
        assert!(wanted(&said), "{words:?}: {said}");
    }
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("128 MiB in fast: missing"), "{list}");

    logged.disks.iter().for_each(|disk| std::fs::rename(hidden(disk), disk).expect("moved"));
    logged.ok(&["disk", "rescan"]);
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("128 MiB in fast: logging"), "{list}");
    logged.ok(&["volume", "log", "remove", "vm"]);
    logged.ok(&["pool", "delete", "fast", "--yes"]);
    assert_eq!(logged.json(&["volume", "check", "vm"])["clean"], true);
}

#[test]
fn a_log_goes_with_its_volume_though_its_pool_is_away() {
    let logged = Logged::new();
    logged.ok(&["volume", "create", "gone", "--pool", "demo", "--size", "1G"]);
    logged.ok(&["volume", "log", "add", "gone", "--size", "128M", "--pool", "fast"]);
    let taken = pool(&logged.json(&["pool", "list"]), "fast")["allocated_bytes"].clone();
    logged.fault("vanish");
    // Somebody has noticed: the pool is closed.
    logged.ok(&["volume", "log", "remove", "vm"]);
    logged.until(&["pool", "list"], |list| pool(list, "fast")["state"] != "degraded");
    logged.ok(&["volume", "delete", "gone", "--yes"]);
    logged.fault("return");
    logged.until(&["pool", "list"], |list| pool(list, "fast")["state"] == "online");
    let left = logged.until(&["pool", "list"], |list| pool(list, "fast")["allocated_bytes"] == 0);
    assert_ne!(pool(&left, "fast")["allocated_bytes"], taken);
    logged.ok(&["pool", "delete", "fast", "--yes"]);
}

/// The log may hold acknowledged data that the pool does not have: whoever imports the pool elsewhere would not find it.
#[test]
fn a_pool_is_kept_while_the_log_of_its_volume_is_away() {
    let mut logged = Logged::new();
    logged.serve_without(&logged.disks.clone());
    let said = logged.refused(&["pool", "export", "demo", "--yes"]);
    assert!(said.contains("volume vm") && said.contains("pool fast"), "{said}");
    assert!(said.contains("holdfast volume give-up-log vm"), "{said}");

    logged.ok(&["volume", "give-up-log", "vm", "--yes"]);
    let (worst, summary) = logged.status();
    assert_eq!(worst, "error", "{summary}");
    assert!(summary.starts_with("FAULT: "), "{summary}");

    // Lost for good: nobody has to look at it for ever.
    let said = logged.refused(&["pool", "delete", "fast", "--yes"]);
    assert!(said.contains("holdfast pool forget fast"), "{said}");
    let said = logged.refused(&["pool", "forget", "demo", "--yes"]);
    assert!(said.contains("is open"), "{said}");
    logged.ok(&["pool", "forget", "fast", "--yes"]);
    let status = logged.ok(&["status"]);
    assert!(status.starts_with("OK: "), "{status}");
    assert_eq!(logged.json(&["pool", "list"])["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_pool_of_a_log_is_kept_while_its_volume_is_away() {
    let mut logged = Logged::new();
    let files = logged.files_of("demo");
    logged.serve_without(&files);
    let status = logged.ok(&["status"]);
    assert!(status.contains("log of volume vm in pool fast"), "{status}");
    for verb in ["export", "delete"] {
        let said = logged.refused(&["pool", verb, "fast", "--yes"]);
        assert!(said.contains("log of volume vm") && said.contains("pool demo"), "{verb}: {said}");
    }

    // Lost for good. It says what goes, and asks.
    let said = logged.refused(&["pool", "forget", "demo"]);
    for what in ["vm", "LUN", "share"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(logged.json(&["lun", "list"])["items"].as_array().map(Vec::len), Some(1));
    logged.ok(&["pool", "forget", "demo", "--yes"]);
    for list in ["lun", "share", "volume"] {
        assert_eq!(logged.json(&[list, "list"])["items"], serde_json::json!([]), "{list}");
    }
    let status = logged.ok(&["status"]);
    assert!(status.contains("holdfast volume give-up-log vm"), "{status}");
    assert!(logged.status().1.starts_with("WARNING: "), "{status}");
    let said = logged.refused(&["volume", "give-up-log", "vm"]);
    assert!(said.contains("is lost"), "{said}");
    logged.ok(&["volume", "give-up-log", "vm", "--yes"]);
    assert_eq!(pool(&logged.json(&["pool", "list"]), "fast")["allocated_bytes"], 0);
    assert!(logged.status().1.starts_with("OK: "));
}

/// Two pools may have volumes of one name, and a third one the logs of both: none is taken for the other's.
#[test]
fn volumes_of_one_name_in_two_pools_are_told_apart() {
    let mut logged = Logged::new();
    let files = logged.files_of("demo");
    let third = logged.demo.dir.path().join("three");
    std::fs::File::create(&third).expect("made").set_len(4 << 30).expect("sparse");
    let third = third.to_string_lossy().into_owned();
    logged.ok(&["pool", "create", "third", &third, "--yes"]);
    logged.serve_without(&files);
    let new = ["volume", "create", "vm", "--pool", "third", "--size", "1G", "--resiliency", "simple"];
    let said = logged.refused(&new);
    assert!(said.contains("pool demo, which is not open"), "{said}");
    logged.ok(&["pool", "forget", "demo", "--yes"]);
    logged.ok(&new);
    let old = pool(&logged.json(&["pool", "list"]), "fast")["allocated_bytes"].as_u64().expect("bytes");
    assert!(old > 0);
    let shown = logged.json(&["volume", "show", "vm"]);
    assert_eq!(shown["log_place"], Value::Null, "the log of the other one");
    logged.ok(&["volume", "log", "add", "vm", "--size", "192M", "--pool", "fast"]);
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("192 MiB in fast: logging"), "{list}");
    let status = logged.ok(&["status"]);
    assert!(status.contains("holdfast volume give-up-log vm"), "{status}");

    // The one that comes back stays closed beside the one that is served, and goes without it.
    files.iter().for_each(|file| std::fs::rename(hidden(file), file).expect("moved"));
    logged.ok(&["disk", "rescan"]);
    logged.ok(&["pool", "import", "demo"]);
    let both = logged.json(&["volume", "list"]);
    let both: Vec<(&str, bool)> = both["items"]
        .as_array()
        .expect("list")
        .iter()
        .map(|volume| (volume["pool"].as_str().unwrap_or_default(), volume["online"] == true))
        .collect();
    assert_eq!(both, [("demo", false), ("third", true)]);
    logged.refused(&["pool", "export", "demo", "--yes"]);
    logged.ok(&["volume", "log", "remove", "vm"]);
    assert_eq!(pool(&logged.json(&["pool", "list"]), "fast")["allocated_bytes"], old, "the other log stays");
    let said = logged.refused(&["volume", "delete", "vm", "--yes"]);
    assert!(said.contains("in each of the pools demo, third"), "{said}");
    logged.ok(&["volume", "delete", "vm", "--pool", "third", "--yes"]);
    let list = logged.until(&["volume", "list"], |list| list["items"][0]["online"] == true);
    assert_eq!(
        (&list["items"][0]["pool"], list["items"].as_array().map(Vec::len)),
        (&"demo".into(), Some(1))
    );
    let list = logged.ok(&["volume", "list"]);
    assert!(list.contains("128 MiB in fast: logging"), "{list}");
    assert_eq!(logged.json(&["volume", "check", "vm"])["clean"], true);
}
