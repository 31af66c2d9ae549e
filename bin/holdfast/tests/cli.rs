//! The real command line against a node in this process, whose disks, pools and targets are in memory: who is
//! asked, told and refused what, and what survives a restart.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod bench;

use std::path::Path;

use bench::{Bench, TARGET};

#[test]
fn pools_are_made_only_when_confirmed() {
    let bench = Bench::new();
    let line = format!("pool create p {} {}", bench.disk(1), bench.disk(2));
    let (code, message) = bench.refused(&line);
    assert_eq!(code, 1);
    assert!(message.contains("entirely") && message.contains("--yes"), "{message}");
    assert_eq!(bench.items("pool list").len(), 0);
    bench.ok(&format!("{line} --yes"));
    assert_eq!(bench.names("pool list"), ["p"]);
    let (_, message) = bench.refused(&format!("pool create q {} --yes", bench.disk(1)));
    assert!(message.contains("belongs to pool p"), "{message}");
}

#[test]
fn foreign_data_is_refused_until_told_twice() {
    let bench = Bench::new();
    bench.machine.write_foreign(&bench.disk(1), "ext4 file system \"home\"");
    let line = format!("pool create p {} {}", bench.disk(1), bench.disk(2));
    let (_, message) = bench.refused(&format!("{line} --yes"));
    assert!(message.contains("ext4") && message.contains("--overwrite-foreign"), "{message}");
    let (_, message) = bench.refused(&format!("{line} --overwrite-foreign"));
    assert!(message.contains("entirely"), "{message}");
    bench.ok(&format!("{line} --overwrite-foreign --yes"));
}

#[test]
fn a_lost_disk_shows_and_heals() {
    let bench = Bench::new();
    bench.furnish();
    assert_eq!(bench.json("status")["verdict"], "fully-redundant");
    assert!(bench.ok("status").starts_with("OK: all data is as redundant as promised."));
    let disk = bench.disk(2);
    bench.ok(&format!("disk fault {disk} vanish"));
    let status = bench.json("status");
    assert_eq!(status["verdict"], "reduced");
    assert!(status["issues"][0]["subject"].as_str().expect("text").contains(&disk), "{status}");
    assert_eq!(bench.items("disk list")[0]["state"], "missing", "what hurts comes first");
    bench.ok(&format!("disk fault {disk} return"));
    assert_eq!(bench.json("status")["verdict"], "fully-redundant");
}

#[test]
fn a_spare_takes_the_place_of_a_lost_disk() {
    let bench = Bench::new();
    let [a, b, c] = [1, 2, 3].map(|i| bench.disk(i));
    bench.ok(&format!("pool create p {a} {b} --spare {c} --yes"));
    bench.ok("volume create v --size 1G");
    let file = bench.dir.path().join("config.json");
    let mut config = bench.json("config show");
    config["policy"]["spare_after_seconds"] = 1.into();
    config["policy"]["rescan_seconds"] = 1.into();
    std::fs::write(&file, config.to_string()).expect("written");
    bench.ok(&format!("config apply {}", file.display()));
    bench.ok(&format!("disk fault {a} vanish"));
    assert_eq!(bench.json("status")["verdict"], "reduced");
    // No deadline: the test runner's own is the limit.
    while bench.json("status")["verdict"] != "fully-redundant" {
        std::thread::yield_now();
    }
    let members = bench.json("pool show p")["members"].clone();
    assert_eq!(members.as_array().expect("members").len(), 2, "{members}");
}

#[test]
fn a_restart_finds_everything_again() {
    let mut bench = Bench::new();
    bench.furnish();
    let before = (bench.names("lun list"), bench.items("target list"), bench.json("config show"));
    match bench.try_start() {
        Ok(_) => panic!("a second node on the same data directory must be refused"),
        Err(problem) => assert!(problem.detail.contains(&std::process::id().to_string()), "{problem}"),
    }
    bench.stop();
    let (code, message) = bench.refused("status");
    assert_eq!(code, 1);
    assert!(message.contains("holdfast serve"), "{message}");
    bench.start();
    assert_eq!((bench.names("lun list"), bench.items("target list"), bench.json("config show")), before);
    assert_eq!(bench.json("lun list")["items"][0]["serving"], "online");
}

#[test]
fn configuration_goes_round() {
    let bench = Bench::new();
    bench.furnish();
    let secret = bench.dir.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef\n").expect("written");
    bench.ok(&format!("target set {TARGET} --chap-user u --chap-secret-file {}", secret.display()));
    assert!(!bench.ok("config show --redact").contains("0123456789abcdef"));
    let saved = bench.ok("config show");
    let full = bench.dir.path().join("full.toml");
    let empty = bench.dir.path().join("empty.toml");
    std::fs::write(&full, &saved).expect("written");
    std::fs::write(&empty, "schema = 1\n").expect("written");
    let (_, message) = bench.refused(&format!("config apply {}", empty.display()));
    assert!(message.contains("lun l is taken away"), "{message}");
    assert!(bench.ok(&format!("config apply {} --dry-run", empty.display())).contains("- lun l"));
    bench.ok(&format!("config apply {} --yes", empty.display()));
    for list in ["lun list", "target list", "pool list", "volume list", "initiator-group list", "portal list"]
    {
        assert_eq!(bench.items(list).len(), 0, "{list}");
    }
    assert!(bench.ok(&format!("config apply {}", full.display())).contains("+ lun l"));
    assert_eq!(bench.ok("config show"), saved);
    assert_eq!(bench.json("lun list")["items"][0]["serving"], "online");
    assert!(bench.ok(&format!("config apply {}", full.display())).contains("already"));
    // Another node's is asked about, though nothing is taken away.
    let other = bench.dir.path().join("other.toml");
    let (first, rest) = saved.split_once('\n').expect("lines");
    assert!(first.starts_with("# Configuration of node "), "{first}");
    let rest = rest.replace("rescan_seconds = 5", "rescan_seconds = 6");
    std::fs::write(&other, format!("# Configuration of node elsewhere\n{rest}")).expect("written");
    let apply = format!("config apply {}", other.display());
    let (_, message) = bench.refused(&apply);
    assert!(message.contains("This is node elsewhere's configuration"), "{message}");
    assert!(bench.ok(&format!("{apply} --dry-run")).contains("This is node elsewhere's configuration"));
    assert_eq!(bench.ok("config show"), saved, "nothing was done");
    // Where machines are known: one with the same name may be another one, and one with another name this one, renamed or cloned.
    if let Some((name, machine)) = first.split_once(" (machine ") {
        std::fs::write(&other, format!("# Configuration of node elsewhere (machine {machine}\n{rest}"))
            .expect("written");
        let (_, message) = bench.refused(&apply);
        assert!(message.contains("this machine had that name, or one of the two is a copy"), "{message}");
        std::fs::write(&other, format!("{name} (machine 0123456789abcdef0123456789abcdef)\n{rest}"))
            .expect("written");
        let (_, message) = bench.refused(&apply);
        assert!(message.contains("another machine of the same name"), "{message}");
    } else {
        assert!(!std::path::Path::new("/etc/machine-id").exists(), "{first}");
    }
    assert!(bench.ok(&format!("{apply} --yes")).contains("1 change made."));
}

#[test]
fn files_go_in_and_come_out() {
    let bench = Bench::new();
    bench.furnish();
    let path = |name: &str| bench.dir.path().join(name);
    let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
    std::fs::write(path("in"), &content).expect("written");
    bench.ok("file mkdir v:/a/b");
    let put = format!("file put {} v:/a/b/f", path("in").display());
    bench.ok(&put);
    let (_, message) = bench.refused(&put);
    assert!(message.contains("already") && message.contains("--replace"), "{message}");
    bench.ok(&format!("file get v:/A/B/F {}", path("out").display()));
    assert_eq!(std::fs::read(path("out")).expect("there"), content);
    bench.ok(&format!("file get v:/a/b/f {} --offset 1000 --len 10", path("part").display()));
    assert_eq!(std::fs::read(path("part")).expect("there"), content[1000..1010]);
    bench.ok("file clone v:/a/b/f v:/g");
    bench.ok("file mv v:/a/b/f v:/a/h");
    assert_eq!(bench.names("file ls v:/a"), ["b", "h"]);
    assert_eq!(bench.json("file stat v:/g")["size_bytes"], 3_000_000);
    let (_, message) = bench.refused("file rm v:/g");
    assert!(message.contains("3000000 bytes"), "{message}");
    bench.ok("file rm v:/g --yes");
    assert_eq!(bench.names("file ls v:/"), ["a", "luns"]);
}

#[test]
fn luns_protect_their_files_and_keep_their_reasons() {
    let bench = Bench::new();
    bench.furnish();
    for line in
        ["file rm v:/LUNS/l --yes", "file mv v:/luns v:/x", "volume delete v --yes", "pool delete p --yes"]
    {
        bench.refused(line);
    }
    bench.ok("lun read-only l --reason migration");
    let lun = &bench.items("lun list")[0];
    assert_eq!((&lun["serving"], &lun["reason"]), (&"read-only".into(), &"migration".into()));
    assert!(bench.ok("status").contains("migration"));
    bench.ok("lun online l");
    assert_eq!(bench.json("lun resize l 2G")["size_bytes"], 2_u64 << 30);
    let (_, message) = bench.refused("lun resize l 1G");
    let words = "shrinks from 2.00 GiB to 1.00 GiB: its last 1.00 GiB (1073741824 bytes) are lost.";
    assert!(message.contains(words) && message.contains("No initiator is connected"), "{message}");
    bench.refused("lun resize l 1000");
    bench.refused("lun create m --size 1G --group nobody");
    assert_eq!(bench.names("file ls v:/luns"), ["l"], "a refused LUN leaves no file");
    bench.ok("lun unmap l --group g");
    bench.ok("lun map l --group g --number 16383 --read-only");
    bench.refused("lun map l --group g --number 5");
    bench.ok("lun delete l --yes");
    assert_eq!(bench.names("file ls v:/luns"), [] as [&str; 0]);
    bench.ok("volume delete v --yes");
    bench.ok("pool delete p --yes");
    assert!(bench.items("disk list").iter().all(|disk| disk["state"] == "free"));
}

#[test]
fn a_damaged_volume_is_repaired_when_confirmed() {
    let bench = Bench::new();
    bench.furnish();
    bench.ok("volume create damaged --size 2G");
    bench.ok("lun create d --size 1G --group g --volume damaged");
    let output = bench.run(&["volume", "check", "damaged"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("superblock at the second copy: is damaged"), "{text}");
    // Nobody's disk is taken away for it.
    let (code, message) = bench.refused("volume check damaged --repair --yes");
    assert_eq!(code, 1);
    assert!(
        message.contains("while its LUNs are served: d") && message.contains("lun offline d"),
        "{message}"
    );
    bench.ok("lun offline d --reason repair");
    // Each change is explained before anything is done.
    let (code, message) = bench.refused("volume check damaged --repair");
    assert_eq!(code, 1);
    assert!(message.contains("Volume damaged is repaired: 1 change."), "{message}");
    assert!(message.contains("is damaged - it is written anew"), "{message}");
    assert!(message.contains("--yes"), "{message}");
    assert_eq!(bench.run(&["volume", "check", "damaged"]).status.code(), Some(1), "nothing was done");
    let text = bench.ok("volume check damaged --repair --yes");
    assert!(text.contains("1 repaired, nothing else is wrong"), "{text}");
    bench.ok("volume check damaged");
    bench.ok("lun online d");
    assert!(bench.items("lun list").iter().any(|lun| lun["name"] == "d" && lun["serving"] == "online"));
    // What nobody can repair is said to be so, and fails.
    bench.ok("volume create damaged-hopeless --size 2G");
    let output = bench.run(&["volume", "check", "damaged-hopeless", "--repair", "--yes"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("1 repaired, 1 cannot be repaired"), "{text}");
    let output = bench.run(&["volume", "check", "damaged-hopeless", "--repair", "--yes", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["clean"], false);
    assert!(report["items"][0]["action"].as_str().is_some_and(|text| text.contains("cannot be repaired")));
    assert_eq!(bench.run(&["volume", "check"]).status.code(), Some(2), "no volume is named");
    // A sound volume is not taken away from anybody.
    let text = bench.ok("volume check v --repair");
    assert!(text.contains("all structures are sound"), "{text}");
}

#[test]
fn a_disk_leaves_and_another_one_comes() {
    let bench = Bench::new();
    bench.furnish();
    bench.ok(&format!("pool add-disk p {} --yes", bench.disk(5)));
    bench.ok(&format!("pool remove-disk p {} --yes", bench.disk(1)));
    let members = bench.json("pool show p")["members"].clone();
    let ids: Vec<&str> =
        members.as_array().expect("list").iter().filter_map(|member| member["disk"].as_str()).collect();
    assert!(ids.contains(&bench.disk(5).as_str()) && !ids.contains(&bench.disk(1).as_str()), "{ids:?}");
    assert!(bench.items("job list").iter().any(|job| job["kind"] == "drain" && job["state"] == "done"));
}

#[test]
fn a_change_of_mind_keeps_a_disk() {
    let bench = Bench::new();
    bench.furnish();
    let disk = bench.disk(1);
    let state = || {
        let members = bench.json("pool show p")["members"].clone();
        let members = members.as_array().cloned().unwrap_or_default();
        members.iter().find(|member| member["disk"] == disk.as_str()).map(|member| member["state"].clone())
    };
    let (code, message) = bench.refused(&format!("pool keep-disk p {disk}"));
    assert!(code == 1 && message.contains("nothing to take back"), "{message}");
    bench.ok(&format!("pool retire p {disk}"));
    assert_eq!(state(), Some("retiring".into()));
    assert!(bench.ok("status").contains("pool keep-disk p"));
    bench.ok(&format!("pool keep-disk p {disk}"));
    assert_eq!(state(), Some("online".into()));
}

#[test]
fn a_portal_that_cannot_be_had_is_not_kept() {
    let bench = Bench::new();
    let (_, message) = bench.refused("portal create 127.0.0.1:1");
    assert!(message.contains("in use"), "{message}");
    assert_eq!(bench.items("portal list").len(), 0);
}

#[test]
fn nonsense_of_policies_is_usage_and_what_the_node_refuses_is_failure() {
    let bench = Bench::new();
    bench.ok("qos policy create fine --max-iops 100");
    for (line, code) in [
        ("qos policy create p --min-iops 0", 2),
        ("qos policy create p --max-iops 00", 2),
        ("qos policy create p --max-iops=-1", 2),
        ("qos policy create p --max-iops -1", 2),
        ("qos policy create p --max-bandwidth 0k", 2),
        ("qos policy create p --max-bandwidth fast", 2),
        ("qos policy create p --min-iops 2 --max-iops 1", 2),
        ("qos policy set fine --min-iops 200 --max-iops 100", 2),
        ("qos set --unit-bytes 0", 2),
        ("qos set --volume-depth 0", 2),
        ("qos set --latency-target 0ms", 2),
        ("qos assign fine", 2),
        // What is there already, and the bounds, the node knows.
        ("qos policy set fine --min-iops 200", 1),
        ("qos policy create p --max-iops 1", 1),
        ("qos policy create p --max-iops 1000000001", 1),
        ("qos set --unit-bytes 1", 1),
        ("qos set --volume-depth 65537", 1),
        ("qos assign fine --lun nowhere", 1),
        ("qos unassign --lun nowhere", 1),
        ("qos policy show nobody", 1),
    ] {
        assert_eq!(bench.refused(line).0, code, "{line}");
    }
    bench.ok("qos policy create q --min-iops none --max-iops 100");
    let shown = bench.ok("qos policy show q");
    assert!(shown.contains("maximum:           100 IOPS") && shown.contains("given to nothing"), "{shown}");
    assert_eq!(bench.json("qos policy show q")["max_iops"], 100);
}

#[test]
fn exit_codes_tell_usage_from_failure() {
    let bench = Bench::new();
    assert_eq!(bench.refused("volume create v").0, 2);
    assert_eq!(bench.refused("frobnicate").0, 2);
    assert_eq!(bench.refused("demo --smb nowhere").0, 2);
    assert_eq!(bench.refused("pool show nothing").0, 1);
    assert_eq!(bench.refused(&format!("status --node {}", Path::new("/nowhere").display())).0, 1);
}

#[test]
fn errors_in_json_are_json() {
    let bench = Bench::new();
    bench.furnish();
    let told = |line: &str| {
        let (code, message) = bench.refused(&format!("{line} --json"));
        let told: serde_json::Value =
            serde_json::from_str(&message).unwrap_or_else(|error| panic!("{line}: {error}: {message}"));
        let detail = told["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty() && !detail.contains(['\n', '"']) && !detail.contains("Usage:"), "{told}");
        assert!(told["todo"].as_str().is_some_and(|todo| !todo.contains("\"confirm\"")), "{told}");
        (code, told["code"].as_str().expect("a code").to_owned())
    };
    assert_eq!(told("pool show nothing"), (1, "not-found".into()));
    assert_eq!(told("volume delete v"), (1, "in-use".into()));
    assert_eq!(told("lun delete l"), (1, "confirmation-required".into()), "a program is not asked");
    assert!(bench.refused("lun delete l --json").1.contains("--yes"), "it names the option");
    assert_eq!(told("volume create v"), (2, "usage".into()));
    assert_eq!(told("lun create m"), (2, "usage".into()));
    assert_eq!(told("status --node /nowhere"), (1, "unreachable".into()));
    let (code, message) = bench.refused("lun map l --group g --number 70000");
    assert!(code == 2 && message.contains("from 0 to 16383"), "{message}");
}

#[test]
fn what_cannot_be_is_refused_before_anybody_is_asked() {
    let bench = Bench::new();
    bench.furnish();
    bench.machine.write_foreign(&bench.disk(5), "ext4 file system \"home\"");
    let (_, message) = bench.refused(&format!("pool replace p {} --with {}", bench.disk(1), bench.disk(5)));
    assert!(message.contains("--overwrite-foreign") && !message.contains("is given up"), "{message}");
    let (_, message) = bench.refused(&format!("pool replace p {} --with {}", bench.disk(1), bench.disk(2)));
    assert!(message.contains("belongs to pool p"), "{message}");
}

#[test]
fn completions_are_printed() {
    let bench = Bench::new();
    assert!(bench.ok("completions bash").contains("initiator-group"));
}

#[test]
fn a_file_of_several_names_is_one_file() {
    let bench = Bench::new();
    bench.furnish();
    assert_eq!(bench.json("file stat v:/luns/l")["names"], 1);
    bench.machine.link("v", "/luns/l", "/other").expect("linked");
    bench.machine.link("v", "/luns/l", "/luns/third").expect("linked");
    assert_eq!(bench.json("file stat v:/other")["names"], 3);
    assert!(bench.ok("file stat v:/other").contains("NAMES"));
    // A second LUN over the first one's data would be two disks that overwrite each other.
    for line in [
        "lun create m --path /other --group g",
        "file put Cargo.toml v:/other --replace",
        "file put Cargo.toml v:/luns/third",
        "file rm v:/other --yes",
    ] {
        let (code, message) = bench.refused(line);
        assert!(code == 1 && message.contains("LUN l"), "{line}: {message}");
    }
    let config = bench.dir.path().join("config.toml");
    let text = bench.ok("config show");
    let lun = text.find("[[lun]]").expect("a LUN");
    let again = text[lun..]
        .split("\n[[")
        .next()
        .expect("text")
        .replace("\"l\"", "\"m\"")
        .replace("/luns/l", "/other");
    let again: Vec<&str> =
        again.lines().filter(|line| !line.starts_with("guid") && !line.contains("[[lun.map")).collect();
    std::fs::write(&config, format!("{text}\n{}\n", again.join("\n"))).expect("written");
    let (_, message) = bench.refused(&format!("config apply {} --yes", config.display()));
    assert!(message.contains("LUN l"), "{message}");
    // The data stays under its other names.
    let (_, message) = bench.refused("lun delete l");
    assert!(message.contains("2 other names") && !message.contains("destroyed"), "{message}");
    bench.ok("lun delete l --yes");
    assert_eq!(bench.json("file stat v:/other")["names"], 2);
}

#[test]
fn what_is_told_is_told_in_words() {
    let bench = Bench::new();
    bench.furnish();
    let disk = bench.disk(1);
    bench.ok(&format!("disk fault {disk} bit-rot --operation read"));
    let list = bench.ok("disk list");
    assert!(list.contains("bit-rot on reads"), "{list}");
    bench.ok(&format!("disk fault {disk} delay"));
    assert!(bench.ok("disk list").contains("delay on everything"), "{}", bench.ok("disk list"));
    bench.ok(&format!("disk fault {disk} none"));
    bench.ok(&format!("pool replace p {disk} --with {} --yes", bench.disk(5)));
    let jobs = bench.items("job list");
    assert!(jobs.iter().any(|job| job["kind"] == "replace" && job["state"] == "done"), "{jobs:?}");
    let done = bench.ok("job wait 1");
    assert!(done.contains("replace") && !done.contains("drain"), "{done}");
}
