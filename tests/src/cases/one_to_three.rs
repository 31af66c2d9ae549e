//! One node becomes three while it serves, as the guide says it: on machines of their own (network namespaces), with the disks that each of them has,
//! by the verbs of the CLI alone. Its LUN is written and read all the time, and no acknowledged write may be lost, hidden or late
//! (`registers.rs`).
//!
//! ```text
//!   n1 alone ─► init ─► n2 joins ─► n3 joins ─► the pool gets a disk of each ─► n1 is paused, its pool moves ─► resumed, the pool
//!   moves back ─► n1 is killed, and comes back ─► n3's disk is emptied and taken out, n3 is gone for good and removed ─► n1 and n2 go on
//! ```

use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::cluster::failed;
use super::failover::{Member, clients};
use super::multipath::Net;
use super::registers::{self, Registers};
use crate::process::{Deadline, need, need_root};
use crate::{Outcome, Result, ensure, note};

const NODES: u16 = 3;
const POOL: &str = "p";
const TARGET: &str = "iqn.2026-11.test.holdfast:grown";
const DISK: u64 = 2 << 30;
/// What a node is waited for, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// The address of a node's machine.
fn address(node: usize) -> String {
    format!("10.99.0.{}", 11 + node)
}

/// What a node says to an order, as JSON.
fn told(node: &Member, words: &[&str]) -> Result<Value> {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let text = node.ask(&words)?;
    serde_json::from_str(&text).map_err(|why| failed(&words.join(" "), format!("{why}: {text}")))
}

/// Makes a disk of a node, as a file.
fn disk(node: &Member, number: usize) -> Result<String> {
    let path = node.own_disk(number);
    std::fs::File::create(&path)?.set_len(DISK)?;
    Ok(path.display().to_string())
}

/// The LUN is written and read on from now on.
fn goes_on(lun: &Registers, after: &str) -> Result {
    let before = lun.counts();
    Deadline::after(PATIENCE).poll(&format!("writes and reads after {after}"), || {
        let now = lun.counts();
        Ok((now.0 > before.0 && now.1 > before.1).then_some(()))
    })?;
    note!("     {after}: writes, reads, in vain: {:?}", lun.counts());
    lun.sound()
}

/// Waits until the pool is served by a node that will do, as another sees it.
fn served_by(seen_by: &Member, will_do: impl Fn(&str) -> bool) -> Result {
    Deadline::after(PATIENCE).poll("the pool on another node", || {
        let Ok(cluster) = told(seen_by, &["cluster", "status"]) else { return Ok(None) };
        let pool = &cluster["pools"][0];
        let served = pool["state"] == "online" && pool["owner"].as_str().is_some_and(&will_do);
        Ok(served.then_some(()))
    })
}

/// Waits until all copies are where they should be.
fn redundant(node: &Member) -> Result {
    Deadline::after(PATIENCE).poll("all copies of the pool", || {
        let Ok(shown) = told(node, &["pool", "show", POOL]) else { return Ok(None) };
        Ok((shown["redundancy"] == "full").then_some(()))
    })
}

/// What the first node has before there is a cluster: a pool of two disks, and a LUN.
fn set_up(first: &Member) -> Result {
    let disks = [disk(first, 0)?, disk(first, 1)?];
    first.ask(&["portal", "create", &format!("{}:3260", address(0))])?;
    first.ask(&["pool", "create", POOL, &disks[0], &disks[1], "--yes"])?;
    first.ask(&["volume", "create", "v", "--pool", POOL, "--size", "512M", "--resiliency", "mirror2"])?;
    first.ask(&["initiator-group", "create", "all", "--any"])?;
    first.ask(&["target", "create", TARGET])?;
    first.ask(&["lun", "create", "lun", "--volume", "v", "--size", "64M"])?;
    first.ask(&["lun", "map", "lun", "--target", TARGET, "--group", "all", "--number", "0"]).map(drop)
}

/// A further node joins, with a portal and a disk for the pool.
fn join(nodes: &[Member], number: usize) -> Result {
    let (first, joins) = (&nodes[0], &nodes[number]);
    let token = told(first, &["cluster", "token"])?["token"].as_str().unwrap_or_default().to_owned();
    joins.ask(&["cluster", "join", &token, "--address", &address(number), "--node-name", &joins.name])?;
    for node in &nodes[..=number] {
        node.wait_for_nodes(number + 1)?;
    }
    joins.ask(&["portal", "create", &format!("{}:3260", address(number))])?;
    served_by(joins, |owner| owner == first.name)
}

/// All that is done to the nodes, one thing after the other.
fn grow(nodes: &mut [Member], lun: &Registers) -> Result {
    goes_on(lun, "the start")?;
    let first = nodes[0].name.clone();
    nodes[0].ask(&["cluster", "init", "--name", "grown", "--address", &address(0), "--node-name", &first])?;
    nodes[0].wait_for_nodes(1)?;
    goes_on(lun, "init")?;
    for number in 1..nodes.len() {
        join(nodes, number)?;
        goes_on(lun, &format!("n{} joined", number + 1))?;
    }
    for node in &nodes[1..] {
        nodes[0].ask(&["pool", "add-disk", POOL, &format!("{}:{}", node.name, disk(node, 0)?), "--yes"])?;
    }
    nodes[0].ask(&["pool", "rebalance", POOL])?;
    redundant(&nodes[0])?;
    goes_on(lun, "the pool has grown")?;

    // The disks that it was made of are known to all nodes since: the pool goes on elsewhere with all of them, and comes back.
    let shown = told(&nodes[2], &["pool", "show", POOL])?;
    let members = shown["members"].as_array().cloned().unwrap_or_default();
    let of_nodes =
        |node: &Member| members.iter().filter(|member| member["node"] == node.name.as_str()).count();
    let counts: Vec<usize> = nodes.iter().map(of_nodes).collect();
    ensure(counts == [2, 1, 1], || format!("disks of nodes: {counts:?} in {shown}"))?;
    nodes[1].ask(&["node", "pause", &first, "--drain"])?;
    served_by(&nodes[1], |owner| owner != first)?;
    redundant(&nodes[1])?;
    goes_on(lun, "n1 was paused")?;
    ensure(nodes[2].ask(&["pool", "move", POOL, &first]).is_err(), || "a paused node takes pools".into())?;
    nodes[1].ask(&["node", "resume", &first])?;
    nodes[2].ask(&["pool", "move", POOL, &first])?;
    served_by(&nodes[2], |owner| owner == first)?;
    goes_on(lun, "n1 was resumed")?;
    // With the first node its disks go, which were the whole pool once.
    nodes[0].kill()?;
    served_by(&nodes[1], |owner| owner != first)?;
    goes_on(lun, "n1 was killed")?;
    nodes[0].start_if_down()?;
    for node in &*nodes {
        node.wait_for_nodes(nodes.len())?;
    }
    redundant(&nodes[1])?;
    goes_on(lun, "n1 is back")?;
    nodes[2].ask(&["pool", "move", POOL, &first])?;
    leave_for_good(nodes, lun)
}

/// The last node's disk is emptied; then the node is switched off and removed.
fn leave_for_good(nodes: &mut [Member], lun: &Registers) -> Result {
    let [first, second, last] = nodes else { return Err(failed("nodes", "not three")) };
    // One that is up and has a disk of a pool is not removed.
    ensure(first.ask(&["node", "remove", &last.name, "--yes"]).is_err(), || {
        "n3 is up and was removed".into()
    })?;
    first.ask(&[
        "pool",
        "remove-disk",
        POOL,
        &format!("{}:{}", last.name, last.own_disk(0).display()),
        "--yes",
    ])?;
    last.kill()?;
    // The one that was killed may have led etcd, which elects another one meanwhile.
    first.ask(&["node", "remove", &last.name, "--yes"])?;
    for node in [&*first, &*second] {
        node.wait_for_nodes(2)?;
        let nodes = told(node, &["node", "list"])?;
        let count = nodes["items"].as_array().map_or(0, Vec::len);
        ensure(count == 2, || format!("{} nodes are left: {nodes}", count))?;
    }
    redundant(first)?;
    goes_on(lun, "n3 was removed")?;
    // What is common to them can be changed, and seen from both.
    second.ask(&["initiator-group", "create", "later", "--any"])?;
    let groups = told(first, &["initiator-group", "list"])?;
    ensure(groups.to_string().contains("\"later\""), || format!("n1 does not know the new group: {groups}"))?;
    first.ask(&["pool", "move", POOL, &second.name])?;
    served_by(first, |owner| owner == second.name)?;
    goes_on(lun, "the pool moved to n2")
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    need("ip", "iproute2")?;
    need_root("network namespaces")?;
    let net = Net::of(&NODES.to_string(), "1")?;
    let clients = clients(&net)?;
    let mut nodes = Vec::new();
    for number in 1..=NODES {
        let mut node = Member::new(&context.folder, &net, number)?;
        node.start_if_down()?;
        Deadline::after(PATIENCE).poll("a node that answers", || Ok(node.ask(&["status"]).ok()))?;
        nodes.push(node);
    }
    set_up(&nodes[0])?;
    // The third node does not stay.
    let urls = (0..2).map(|node| format!("iscsi://{}:3260/{TARGET}/0", address(node))).collect();
    let luns = [Registers::new("lun", urls)];
    registers::under_load(&clients, &luns, || grow(&mut nodes, &luns[0]))?;
    registers::read_back(&clients, &luns)?;
    for node in &nodes {
        ensure(!node.log()?.contains("panicked at"), || format!("{} has panicked", node.name))?;
    }
    nodes[0].ask(&["pool", "check", POOL, "--deep"])?;
    nodes[..2].iter_mut().try_for_each(Member::stop)
}
