//! LUNs whose writes are given up: written over iSCSI, seen in the counters, never in the file, and gone after kill -9; in a cluster, never by a
//! move that nobody has agreed to.

use serde_json::Value;

use super::Context;
use super::cluster_demo::Demo;
use super::restart::qemu_io;
use crate::node::{Node, Options};
use crate::process::need;
use crate::{Outcome, Result, ensure};

/// First of the addresses of this case: no other one's.
const FIRST: &str = "127.0.80.11:3260";

struct Rig {
    node: Node,
    volume: String,
}

impl Rig {
    fn serve(&self, lun: &str, number: &str, more: &[&str]) -> Result<String> {
        let fixed =
            ["lun", "create", lun, "--volume", &self.volume, "--group", "everyone", "--number", number];
        self.node.cli(&[&fixed[..], more].concat())?;
        Ok(format!("{}/{number}", self.node.ready().url.rsplit_once('/').map_or("", |(head, _)| head)))
    }

    fn cache(&self, lun: &str) -> Result<Value> {
        Ok(self.node.json(&["lun", "show", lun])?["write_cache_now"].clone())
    }

    fn status_has(&self, code: &str) -> Result<bool> {
        let status = self.node.json(&["status"])?;
        let issues = status["issues"].as_array().cloned().unwrap_or_default();
        Ok(issues.iter().any(|issue| issue["code"] == code))
    }
}

fn bytes(cache: &Value, counter: &str) -> u64 {
    cache[counter].as_u64().unwrap_or_default()
}

pub(super) fn run(context: &Context) -> Result {
    need("qemu-io", "qemu-utils")?;
    let node = Node::start(&context.folder, Options::default())?;
    let volume = node.told("volume");
    let mut rig = Rig { node, volume };
    // What they are laid over.
    let base = rig.serve("base", "8", &["--size", "96M"])?;
    qemu_io(&base, &["write -P 0x61 0 64M", "flush"])?;
    rig.node.cli(&["lun", "delete", "base", "--keep-file"])?;
    let [from, to] = ["base", "base2"].map(|name| format!("{}:/luns/{name}", rig.volume));
    rig.node.cli(&["file", "clone", &from, &to])?;
    let folder = format!("{}:/cache", rig.volume);
    let overflow = ["--write-cache-in", "ram-overflow", "--overflow", &folder, "--cache-size", "16M"];
    let desk = rig.serve("desk", "9", &[&["--path", "/luns/base"], &overflow[..]].concat())?;
    let ram = ["--path", "/luns/base2", "--write-cache-in", "ram", "--cache-size", "16M"];
    let scratch = rig.serve("scratch", "10", &ram)?;
    let said = rig.node.cli(&["lun", "show", "desk"])?;
    ensure(said.contains("LOST"), || format!("what it means is not said: {said}"))?;

    qemu_io(&desk, &["read -P 0x61 0 64M", "write -f -P 0x21 8M 48M", "write -P 0x22 1M 64k", "flush"])?;
    let written = ["read -P 0x61 0 1M", "read -P 0x22 1M 64k", "read -P 0x21 8M 48M", "read -P 0x61 56M 8M"];
    qemu_io(&desk, &written)?;
    let cache = rig.cache("desk")?;
    for (counter, least) in [
        ("absorbed_bytes", 48 << 20),
        ("overflow_bytes", 16 << 20),
        ("read_overflow_bytes", 1),
        ("read_base_bytes", 1),
    ] {
        ensure(bytes(&cache, counter) >= least, || format!("{counter} does not count: {cache}"))?;
    }
    ensure(bytes(&cache, "ram_high_bytes") <= 16 << 20, || format!("it has more than it may: {cache}"))?;
    // Zeros take nothing, and give back what was there.
    qemu_io(&desk, &["write -z -u 8M 48M", "read -P 0 8M 48M", "read -P 0x22 1M 64k"])?;
    let cache = rig.cache("desk")?;
    ensure(bytes(&cache, "overflow_bytes") <= 1 << 20, || format!("nothing was given back: {cache}"))?;
    qemu_io(&desk, &["write -P 0x21 8M 48M", "flush"])?;

    full(&rig, &scratch)?;
    untouched(&rig, context)?;

    // The node is killed: all of it is gone, whoever had flushed; the host is told once, and goes on.
    rig.node.crash_and_restart()?;
    ensure(rig.status_has("lun-lost-writes")?, || "nobody says that writes were given up".into())?;
    qemu_io(&desk, &["read -P 0x61 0 64M", "read -P 0 64M 32M"])?;
    let told = qemu_io(&desk, &["write -P 0x31 2M 64k", "flush"]);
    ensure(told.is_err(), || "a host that has run on was not told that its writes are gone".into())?;
    qemu_io(&desk, &["write -P 0x31 2M 64k", "flush", "read -P 0x31 2M 64k", "read -P 0x61 8M 48M"])?;
    let cache = rig.cache("desk")?;
    ensure(bytes(&cache, "overflow_bytes") == 0, || format!("something is left of before: {cache}"))?;
    untouched(&rig, context)?;
    let resized = rig.node.cli(&["lun", "resize", "desk", "200M"]);
    ensure(resized.is_err(), || "a LUN that is never written to its file was resized".into())?;
    rig.node.cli(&["lun", "delete", "desk", "--keep-file"])?;
    rig.node.cli(&["lun", "delete", "scratch"])?;
    let left = rig.node.json(&["file", "ls", &folder])?;
    ensure(left["items"].as_array().is_some_and(Vec::is_empty), || {
        format!("overflow files are left: {left}")
    })?;
    let refused = rig.node.cli(&[
        "lun",
        "create",
        "large",
        "--volume",
        &rig.volume,
        "--size",
        "64M",
        "--write-cache-in",
        "ram",
        "--cache-size",
        "1T",
    ]);
    ensure(says(&refused, "all of this node together have"), || {
        format!("a LUN was made that the node has no memory for: {refused:?}")
    })?;
    ensure(rig.node.cli(&["lun", "show", "large"]).is_err(), || "something is left of it".into())?;
    rig.node.finish()?;
    moves(context)
}

/// Whether a command was refused with these words.
fn says<T>(refused: &Result<T>, words: &str) -> bool {
    matches!(refused, Err(Outcome::Fail(why)) if why.contains(words))
}

/// A pool with a cache that holds something goes to another node when somebody agrees to what is lost, and not before.
fn moves(context: &Context) -> Result {
    need("etcd", "etcd-server")?;
    let demo = Demo::start(context, FIRST)?;
    let here = demo.owner(0, None)?;
    let there = (here + 1) % demo.nodes.len();
    let (from, to) = (demo.nodes[here].name.clone(), demo.nodes[there].name.clone());
    let fixed =
        ["lun", "create", "desk", "--volume", "vm1", "--size", "64M", "--group", "everyone", "--number", "9"];
    demo.ask(here, &[&fixed[..], &["--write-cache-in", "ram", "--cache-size", "16M"]].concat())?;
    let url = |node: usize| format!("iscsi://{}/{}/9", demo.nodes[node].iscsi, demo.target);
    qemu_io(&url(here), &["write -P 0x21 0 4M", "flush"])?;
    let shown = demo.ask(here, &["pool", "show", "p1"])?;
    ensure(shown.contains("LUN desk loses all that"), || format!("what is kept is not said: {shown}"))?;
    demo.ask(here, &["pool", "set", "p1", "--home", &to])?;
    let plan = demo.ask(there, &["cluster", "rebalance", "--dry-run"])?;
    ensure(plan.contains("LUN desk loses all that"), || {
        format!("the plan does not say what is lost: {plan}")
    })?;
    let status = demo.ask(here, &["status"])?;
    ensure(status.contains("does not go home"), || format!("nobody says why it stays: {status}"))?;
    // Whichever node is asked.
    for node in [here, there] {
        for asks in [
            &["pool", "move", "p1", &to][..],
            &["node", "pause", &from, "--drain"],
            &["cluster", "rebalance"],
        ] {
            let refused = demo.ask(node, asks);
            ensure(says(&refused, "LUN desk loses all that"), || {
                format!("{asks:?} was not asked about: {refused:?}")
            })?;
        }
    }
    ensure(demo.owner(there, None)? == here, || "it has moved all the same".into())?;
    qemu_io(&url(here), &["read -P 0x21 0 4M"])?;
    demo.ask(there, &["--yes", "pool", "move", "p1", &to])?;
    ensure(demo.owner(here, Some(here))? == there, || "it has not moved".into())?;
    qemu_io(&url(there), &["read -P 0 0 4M"])?;
    let status = demo.ask(there, &["status"])?;
    ensure(status.contains("all was given up that"), || {
        format!("nobody says that writes were given up: {status}")
    })?;
    let writes = ["write -P 0x31 5M 64k", "flush"];
    ensure(qemu_io(&url(there), &writes).is_err(), || "its host was not told".into())?;
    qemu_io(&url(there), &writes)?;
    let status = demo.ask(there, &["status"])?;
    ensure(!status.contains("was given up"), || format!("its host was told, and is waited for: {status}"))?;
    demo.stop()
}

/// One in memory that is full refuses, says so, and takes more when something was discarded.
fn full(rig: &Rig, scratch: &str) -> Result {
    qemu_io(scratch, &["write -P 0x41 0 12M"])?;
    ensure(!rig.status_has("lun-write-cache")?, || "a cache that is not full is said to be".into())?;
    let refused = qemu_io(scratch, &["write -P 0x42 16M 12M"]);
    ensure(refused.is_err(), || "a full cache took more".into())?;
    ensure(rig.status_has("lun-write-cache")?, || "nobody says that the cache is full".into())?;
    qemu_io(scratch, &["read -P 0x41 0 12M", "read -P 0x61 32M 32M", "write -z -u 16M 12M"])?;
    qemu_io(scratch, &["write -P 0x43 40M 3M", "read -P 0x43 40M 3M", "read -P 0 16M 12M"])
}

/// The files are what they were.
fn untouched(rig: &Rig, context: &Context) -> Result {
    for name in ["base", "base2"] {
        let copy = context.folder.join(name).display().to_string();
        let _ = std::fs::remove_file(&copy);
        rig.node.cli(&["file", "get", &format!("{}:/luns/{name}", rig.volume), &copy])?;
        qemu_io(&copy, &["read -P 0x61 0 64M", "read -P 0 64M 32M"])?;
    }
    Ok(())
}
