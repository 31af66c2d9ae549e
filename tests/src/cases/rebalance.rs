//! Disks join a pool that holds data, under load: one that is lost takes one spare of two, and what the others hold is
//! spread over all.

use std::fs::File;
use std::time::Duration;

use serde_json::Value;

use super::load::Fio;
use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};

/// What is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("fio", "fio")?;
    need("qemu-nbd", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    node.expect_log("is offline: ");
    let (node, pool) = (&*node, node.told("pool"));
    // qemu-io writes less than 2 GiB at a time.
    let quiet = format!("1G {}M", if context.full { 2047 } else { 384 });
    qemu_io(&url, &[&format!("write -P 0x5a {quiet}"), "flush"])?;
    // Slow enough that the node looks at its disks several times while copies are restored.
    node.set_policy(&[
        ("spare_after_seconds", 1),
        ("rescan_seconds", 1),
        ("repair_bytes_per_second", 64 << 20),
    ])?;
    for name in ["spare-1", "spare-2"] {
        add(context, node, name, true)?;
    }
    let shown = lose_a_disk(node, &pool)?;
    let spares = members(&shown).filter(|member| member["state"] == "spare").count();
    ensure(spares == 1, || format!("{spares} of two spares are left after the loss of one disk: {shown}"))?;

    node.set_policy(&[("repair_bytes_per_second", 0), ("rebalance_above_percent", 0)])?;
    let disk = Fio::new(context, &url, 16)?;
    let mut load = disk.load();
    load.round()?;
    for name in ["more-1", "more-2"] {
        add(context, node, name, false)?;
    }
    let plan = node.json(&["pool", "rebalance", &pool, "--dry-run"])?;
    let would = plan["bytes"].as_u64().unwrap_or_default();
    ensure(would > 0 && plan.get("job").is_none(), || format!("nothing would be moved: {plan}"))?;
    let before = node.json(&["pool", "show", &pool])?["balance"].clone();
    let job = node.json(&["pool", "rebalance", &pool])?;
    ensure(job["state"] == "done", || format!("the job did not end well: {job}"))?;
    let after = node.json(&["pool", "show", &pool])?["balance"].clone();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_default();
    crate::note!(
        "     {} percent points apart before, {} after; {} MiB moved under load, {} MiB planned",
        number(&before, "uneven_percent"),
        number(&after, "uneven_percent"),
        number(&after, "moved_bytes") >> 20,
        would >> 20
    );
    ensure(number(&after, "uneven_percent") < number(&before, "uneven_percent"), || {
        format!("it is no more even than before: {before} {after}")
    })?;
    // The load takes space meanwhile, so that the plan may have grown.
    ensure(number(&after, "moved_bytes") > 0, || format!("nothing was moved: {after}"))?;
    load.round()?;
    let last = load.finish()?;
    disk.holds(last)?;
    disk.finish()?;
    qemu_io(&url, &[&format!("read -P 0x5a {quiet}")])?;
    node.cli(&["pool", "check", &pool, "--deep"])?;
    server.finish()
}

/// Takes a disk away, and waits until what it held is made again elsewhere and it has left the pool, which it does by itself
/// then. Shows the pool.
pub(super) fn lose_a_disk(node: &Node, pool: &str) -> Result<Value> {
    let before = members(&node.json(&["pool", "show", pool])?).count();
    node.cli(&["disk", "fault", &node.disk(1)?, "vanish"])?;
    Deadline::after(PATIENCE).poll("the rebuild", || {
        let shown = node.json(&["pool", "show", pool])?;
        let left = members(&shown).count() < before;
        Ok((left && shown["redundancy"] == "full").then_some(shown))
    })
}

pub(super) fn members(pool: &Value) -> impl Iterator<Item = &Value> {
    pool["members"].as_array().into_iter().flatten()
}

/// Adds a disk that is a file.
fn add(context: &Context, node: &Node, name: &str, spare: bool) -> Result {
    let path = context.folder.join(name);
    // As large as the others: an equal share of bytes is one of percent, too.
    File::create(&path)?.set_len(std::fs::metadata(node.disk(1)?)?.len())?;
    let (pool, path) = (node.told("pool"), path.to_string_lossy().into_owned());
    let mut command = vec!["pool", "add-disk", &pool, &path];
    command.extend(spare.then_some("--spare"));
    node.cli(&command).map(drop)
}
