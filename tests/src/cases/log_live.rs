//! A volume in use gets a log and loses it, under verified load over iSCSI, with the node killed in between and in the middle of
//! both: nothing fails, nothing is lost, and what was begun is finished or undone.

use std::time::Duration;

use serde_json::Value;

use super::load::Fio;
use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Running, command, need, pause};
use crate::{Outcome, Result, ensure};

const SIZE: &str = "128M";
/// How long adding or removing has gone on when the node is killed, in milliseconds.
const MOMENTS: [u64; 4] = [5, 40, 120, 400];

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("fio", "fio")?;
    need("qemu-nbd", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    let volume = node.told("volume");
    let add = ["volume", "log", "add", &volume, "--size", SIZE];
    let remove = ["volume", "log", "remove", &volume];
    let pattern = ["read -P 0x5a 1G 16M", "read -P 0 8G 1M"];
    qemu_io(&url, &["write -P 0x5a 1G 16M", "flush"])?;
    refused(node, &remove, "has no log")?;
    refused(node, &["volume", "log", "add", &volume, "--size", "1M"], "at least")?;
    // What it takes before it finds that there is too little goes back.
    node.expect_log("% full");
    refused(node, &["volume", "log", "add", &volume, "--size", "900T"], "no room")?;
    refused(node, &["volume", "log", "add", &volume, "--size", SIZE, "--pool", "nowhere"], "nowhere")?;

    // It comes while clients write, and takes their small writes.
    let disk = Fio::new(context, &url, 16)?;
    let mut load = disk.load();
    load.round()?;
    let added = node.json(&add)?;
    ensure(added["log"]["mode"] == "logging", || format!("the log was added: {added}"))?;
    load.round()?;
    refused(node, &add, "has a log")?;
    let used = log(node, &volume)?;
    ensure(used["logged_writes"].as_u64() > Some(0), || format!("nothing goes to the log: {used}"))?;
    disk.holds(load.finish()?)?;
    disk.finish()?;
    kill_under_load(context, &url, node)?;
    qemu_io(&url, &pattern)?;
    ensure(log(node, &volume)?["mode"] == "logging", || "the log is gone".into())?;
    qemu_io(&url, &["read -P 0x33 3G 64k"])?;

    // And goes while they do.
    let disk = Fio::new(context, &url, 16)?;
    let mut load = disk.load();
    load.round()?;
    let removed = node.json(&remove)?;
    ensure(removed["log"].is_null(), || format!("the log was removed: {removed}"))?;
    load.round()?;
    disk.holds(load.finish()?)?;
    disk.finish()?;
    kill_under_load(context, &url, node)?;
    qemu_io(&url, &pattern)?;
    qemu_io(&url, &["read -P 0x33 3G 64k"])?;
    refused(node, &remove, "has no log")?;

    // The node is killed in the middle of it.
    for (number, moment) in MOMENTS.into_iter().enumerate() {
        for verb in [&add[..], &remove[..]] {
            let write = format!("write -f -P 0x4{number} 5G 64k");
            qemu_io(&url, &[&write])?;
            let mut asked = command(node.binary());
            asked.arg("--node").arg(node.told("api_socket")).args(["--yes"]).args(verb);
            let asked = Running::start("log", asked, &context.folder.join(format!("log-{moment}.log")))?;
            pause(Duration::from_millis(moment));
            node.crash_and_restart()?;
            drop(asked);
            qemu_io(&url, &[&format!("read -P 0x4{number} 5G 64k")])?;
            node.cli(&["volume", "check", &volume])?;
        }
        // Whatever became of it, the other way works.
        if log(node, &volume)?.is_null() {
            node.cli(&add)?;
        }
        node.cli(&remove)?;
    }
    qemu_io(&url, &pattern)?;
    node.wait_redundant()?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    server.finish()
}

/// What the volume says of its log.
fn log(node: &Node, volume: &str) -> Result<Value> {
    Ok(node.json(&["volume", "show", volume])?["log"].clone())
}

fn refused(node: &Node, arguments: &[&str], why: &str) -> Result {
    match node.cli(arguments) {
        Ok(output) => Err(Outcome::Fail(format!("holdfast {} is accepted: {output}", arguments.join(" ")))),
        Err(Outcome::Fail(said)) if said.contains(why) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Small durable writes, and others that are cut off by kill -9.
fn kill_under_load(context: &Context, url: &str, node: &mut Node) -> Result {
    qemu_io(url, &["write -f -P 0x33 3G 64k"])?;
    let mut load = command("qemu-io");
    load.args(["-f", "raw"]);
    for place in 0..200 {
        load.arg("-c").arg(format!("write -f -P 0x11 {}k 4k", (4 << 20) + place * 12));
    }
    load.arg(url);
    let load = Running::start("load", load, &context.folder.join("killed.log"))?;
    pause(Duration::from_millis(300));
    node.crash_and_restart()?;
    drop(load);
    Ok(())
}
