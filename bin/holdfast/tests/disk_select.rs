//! The real command line against a node in this process: choosing disks by what they are, and who is refused.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod bench;

use bench::Bench;

/// Disks 1 to 3 in shelf-a, 4 and 5 in shelf-b; the first of each is flash.
fn shelves() -> Bench {
    let bench = Bench::new();
    for (i, place) in [
        (1, "shelf-a --slot 10 --media ssd --model MZ7KM480 --serial S1"),
        (2, "shelf-a --slot 9 --media hdd --model ST9500620NS --serial S2"),
        (3, "shelf-a --slot 2 --media hdd --model ST4000 --serial S3"),
        (4, "shelf-b --slot 1 --media ssd --serial S4"),
        (5, "shelf-b --slot 2 --media hdd --serial S5"),
    ] {
        bench.ok(&format!("disk set {} --enclosure {place}", bench.disk(i)));
    }
    bench
}

fn ids(bench: &Bench, line: &str) -> Vec<u32> {
    let number = |id: &str| (1..=5).find(|i| bench.disk(*i) == id).expect("one of the bench's");
    bench.items(line).iter().map(|disk| number(disk["id"].as_str().expect("id"))).collect()
}

fn members(bench: &Bench, pool: &str, state: &str) -> usize {
    let pool = bench.json(&format!("pool show {pool}"));
    let members = pool["members"].as_array().expect("members");
    members.iter().filter(|member| member["state"] == state).count()
}

#[test]
fn lists_show_what_would_be_chosen() {
    let bench = shelves();
    assert_eq!(ids(&bench, "disk list --select all"), [3, 2, 1, 4, 5], "by enclosure and slot");
    assert_eq!(ids(&bench, "disk list --select media=ssd"), [1, 4]);
    assert_eq!(ids(&bench, "disk list --select model=st9*"), [2]);
    assert_eq!(ids(&bench, "disk list --select serial=S5|S1"), [1, 5]);
    assert_eq!(ids(&bench, "disk list --select size=1G,count=2"), [3, 2]);
    assert_eq!(ids(&bench, "disk list --select media=ssd,count=1 --select per-enclosure=1"), [1, 3, 4]);
    let (code, message) = bench.refused("disk list --select size>1T");
    assert_eq!(code, 1);
    assert!(message.contains("No free disk matches `size>1T`"), "{message}");
    let (code, message) = bench.refused("disk list --select media=tape");
    assert_eq!(code, 2);
    assert!(message.contains("use hdd, ssd, nvme, unspecified"), "{message}");
    // What was set can be taken back.
    bench.ok(&format!("disk set {} --serial  --model ", bench.disk(2)));
    let (_, message) = bench.refused("disk list --select serial=S2");
    assert!(message.contains("there is none on this machine"), "{message}");
}

#[test]
fn a_dry_run_does_nothing() {
    let bench = shelves();
    let line = "pool create p --select media=hdd --dry-run";
    assert_eq!(ids(&bench, line), [3, 2, 5]);
    assert!(bench.ok(line).contains("3 disks of 3.00 GiB would be taken. Nothing was done."));
    assert_eq!(bench.items("pool list").len(), 0);
    // Disks that are named come first; spares are not chosen; a file that nobody knows stays unknown.
    let stranger = bench.dir.path().canonicalize().expect("there").join("stranger");
    std::fs::File::create(&stranger).and_then(|file| file.set_len(1 << 30)).expect("file disk");
    let before = bench.json("config show");
    let line = format!("pool create p {} --spare {}", stranger.display(), bench.disk(2));
    let chosen = bench.items(&format!("{line} --select media=hdd --dry-run"));
    let names: Vec<&str> = chosen.iter().filter_map(|disk| disk["id"].as_str()).collect();
    assert_eq!(names, [&stranger.to_string_lossy(), &*bench.disk(3), &*bench.disk(5)]);
    assert_eq!(bench.json("config show"), before);
}

#[test]
fn pools_are_made_of_what_is_selected() {
    let bench = shelves();
    let line = "pool create p --select media=hdd,per-enclosure=1 --select media=ssd,per-enclosure=1";
    let (code, message) = bench.refused(line);
    assert_eq!(code, 1);
    assert!(message.contains("takes these disks over entirely") && message.contains("disk3"), "{message}");
    assert!(!message.contains("disk2"), "{message}");
    let (_, message) = bench.refused("pool create p --select media=hdd,per-enclosure=2 --yes");
    assert!(message.contains("enclosure shelf-b has 1"), "{message}");
    assert_eq!(bench.items("pool list").len(), 0);
    bench.ok(&format!("{line} --yes"));
    assert_eq!(members(&bench, "p", "online"), 4);
    let (_, message) = bench.refused("pool create q --select serial=S4 --yes");
    assert!(message.contains("is online (p)"), "{message}");
    // What is left is added, as a spare.
    let (_, message) = bench.refused("pool add-disk p --select all");
    assert!(message.contains("disk2"), "{message}");
    bench.ok("pool add-disk p --select all --spare --yes");
    assert_eq!(members(&bench, "p", "spare"), 1);
    let (_, message) = bench.refused("pool add-disk p --select all --yes");
    assert!(message.contains("No free disk matches `all`"), "{message}");
}

#[test]
fn foreign_disks_are_never_selected() {
    let bench = shelves();
    bench.machine.write_foreign(&bench.disk(2), "ext4 file system \"home\"");
    // It was empty when it was first looked at.
    assert_eq!(ids(&bench, "disk list --select media=hdd"), [3, 5]);
    assert_eq!(ids(&bench, "disk list --select media=hdd,state=foreign"), [2]);
    bench.ok("pool create p --select media=hdd --overwrite-foreign --yes");
    assert_eq!(members(&bench, "p", "online"), 2);
    let (_, message) = bench.refused("pool add-disk p --select model=ST9* --overwrite-foreign --yes");
    assert!(message.contains("No free disk matches"), "{message}");
    bench.ok(&format!(
        "pool add-disk p {} --select media=ssd,count=1 --overwrite-foreign --yes",
        bench.disk(2)
    ));
    assert_eq!(members(&bench, "p", "online"), 4);
}

/// A path is one from where the command runs, as it is where a disk is named.
#[test]
fn paths_of_disks_may_be_relative() {
    let bench = shelves();
    let there = |select: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(["disk", "list", "--json", "--select", select])
            .env("HOLDFAST_SOCKET", bench.data())
            .current_dir(bench.dir.path())
            .output()
            .expect("runs");
        assert!(output.status.success(), "{select}: {}", String::from_utf8_lossy(&output.stderr));
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        list["items"].as_array().expect("list").len()
    };
    assert_eq!(there("disk=disk2"), 1);
    assert_eq!(there("disk=./disk2|./disk3"), 2);
    assert_eq!(there("disk=./disk?,media=hdd"), 3);
    assert_eq!(there("disk!=./disk2"), 4);
    assert_eq!(there(&format!("disk={}|*disk3", bench.disk(1))), 2);
}
