//! All copies of a volume's data are away for a while under verified load over iSCSI, first with the pool going on, then with most
//! of its disks: service goes on by itself, nothing is lost, and `status` says at each moment what is so.

use std::time::Duration;

use serde_json::Value;

use super::load::Fio;
use super::rebalance::members;
use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};

/// How long the disks are away. Less than what a LUN lets commands wait.
const AWAY: Duration = Duration::from_secs(10);
const AWAY_QUICKLY: Duration = Duration::from_secs(4);
/// What is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("fio", "fio")?;
    need("qemu-nbd", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    for expected in [
        "is offline: ",
        "not served",
        "stop",
        "can't be opened",
        "could not be noted",
        "background work",
        "did not reach a majority",
        "repair",
        "cannot be written",
        "shares stay away",
    ] {
        node.expect_log(expected);
    }
    node.set_policy(&[("rescan_seconds", 1)])?;
    qemu_io(&url, &["write -P 0x5a 1G 16M", "flush"])?;
    let disk = Fio::new(context, &url, 16)?;
    let mut load = disk.load();
    load.round()?;
    for (number, disks, away) in [(1, pair(node)?, AWAY), (2, vec![0, 1, 2], AWAY_QUICKLY)] {
        let names: Vec<String> = disks.iter().map(|n| node.disk(*n)).collect::<Result<_>>()?;
        for name in &names {
            node.cli(&["disk", "fault", name, "vanish"])?;
        }
        // Where nothing has been written yet a write needs metadata, which the volume cannot commit now.
        let place = format!("0x7{number} {}G 4M", 4 + number);
        let first = std::thread::spawn({
            let (url, write) = (url.clone(), format!("write -P {place}"));
            move || qemu_io(&url, &[&write, "flush"])
        });
        Deadline::after(PATIENCE).poll("a volume that has stopped", || {
            Ok((honest(node)?["counts"]["luns_online"] == 0).then_some(()))
        })?;
        let away = Deadline::after(away);
        while !away.left().is_zero() {
            let status = honest(node)?;
            ensure(status["verdict"] == "unavailable", || format!("its disks are away: {status}"))?;
        }
        for name in &names {
            node.cli(&["disk", "fault", name, "return"])?;
        }
        node.wait_redundant()?;
        let first = first.join().unwrap_or_else(|_| Err(Outcome::Fail("the first write panicked".into())));
        first.map_err(|why| Outcome::Fail(format!("a write that waited for the disks: {why}")))?;
        load.round()?;
        qemu_io(&url, &[&format!("read -P {place}")])?;
        let status = honest(node)?;
        ensure(status["summary"].as_str().is_some_and(|line| line.starts_with("OK: ")), || {
            format!("all is well again: {status}")
        })?;
    }
    let last = load.finish()?;
    disk.holds(last)?;
    disk.finish()?;
    qemu_io(&url, &["read -P 0x5a 1G 16M"])?;
    node.cli(&["volume", "reopen", &node.told("volume")])?;
    qemu_io(&url, &["read -P 0x5a 1G 16M"])?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    node.cli(&["volume", "check", &node.told("volume")])?;
    server.finish()
}

/// Two disks with copies of the same data: one of each enclosure, those that hold most.
fn pair(node: &Node) -> Result<Vec<usize>> {
    let pool = node.json(&["pool", "show", &node.told("pool")])?;
    let held = |n: usize| -> Result<u64> {
        let name = node.disk(n)?;
        let member = members(&pool).find(|member| member["disk"] == *name);
        Ok(member.and_then(|member| member["allocated_bytes"].as_u64()).unwrap_or_default())
    };
    let fuller = |a: usize, b: usize| -> Result<usize> { Ok(if held(a)? >= held(b)? { a } else { b }) };
    Ok(vec![fuller(0, 1)?, fuller(2, 3)?])
}

/// The status, after a look whether its sentence is as bad as the worst below it.
fn honest(node: &Node) -> Result<Value> {
    let status = node.json(&["status"])?;
    let summary = status["summary"].as_str().unwrap_or_default();
    let bad = |severity: &str| {
        status["issues"].as_array().into_iter().flatten().any(|issue| issue["severity"] == severity)
    };
    let better = summary.starts_with("OK") && (bad("critical") || bad("error") || bad("warning"))
        || summary.starts_with("RE") && bad("critical");
    ensure(!better, || format!("the sentence is better than what is below it: {status}"))?;
    Ok(status)
}
