//! Three `holdfast serve` with a real etcd, each with disks of its own, make one pool of all of them: a node that is killed under load takes its
//! disks along, and nobody notices; it comes back, and only what it missed is copied; the owner is killed, and another node serves everything.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::cluster::{Member, NODES, TARGET, failed, make_lun, owner_of, start};
use super::restart::qemu_io;
use crate::process::{Deadline, command, need, pause, run as run_program};
use crate::{Outcome, Result, ensure};

const DISKS: usize = 2;
/// Further disks of the first two nodes, for a pool of two nodes.
const FURTHER: usize = 2;
const DISK: u64 = 4 << 30;
/// Data that is there before anybody is lost.
const BEFORE: &str = "write -P 0x5a 0 192M";
/// Far above what was written while a node was away, and its dirty regions, and far below what its disks hold, in bytes.
const DIRTY_AT_MOST: u64 = 64 << 20;
/// Long enough for what was written to be known as equal on all copies.
const REST: Duration = Duration::from_secs(15);
/// Disks are missed, or back and equal.
const SETTLES: Duration = Duration::from_secs(90);

fn local_disk(node: &Member, number: usize) -> PathBuf {
    node.dir.join(format!("disk{number}"))
}

/// The disk by its node and path.
fn of_node(node: &Member, number: usize) -> String {
    format!("{}:{}", node.name, local_disk(node, number).display())
}

fn pool(node: &Member) -> Result<Value> {
    serde_json::from_str(&node.ask(&["pool", "show", "p", "--json"])?).map_err(|why| failed("JSON", why))
}

fn wait_until(node: &Member, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    Deadline::after(SETTLES).poll(what, || Ok(pool(node).ok().filter(&is)))
}

fn is_full(pool: &Value) -> bool {
    pool["redundancy"] == "full" && pool["disks_missing"] == 0 && pool["repair_bytes"] == 0
}

/// Which disks of the pool are in a state, by name.
fn members_in(pool: &Value, state: &str) -> Vec<String> {
    let members = pool["members"].as_array().cloned().unwrap_or_default();
    let found = members.iter().filter(|member| member["state"] == state);
    found.filter_map(|member| Some(member["disk"].as_str()?.to_owned())).collect()
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("etcd", "etcd-server")?;
    need("qemu-io", "qemu-utils")?;
    let (_etcd, mut nodes) = start(context, &[])?;
    for node in &nodes {
        for number in 0..DISKS + FURTHER {
            std::fs::File::create(local_disk(node, number))?.set_len(DISK)?;
        }
    }
    // A disk that is not there is refused by name, and a node that is none.
    for wrong in ["n2:/there/is/none", "n9:/dev/sdb"] {
        let refused = nodes[0].ask(&["pool", "create", "wrong", wrong, "--yes"]);
        let why = refused.err().map(|error| error.to_string()).unwrap_or_default();
        let (node, _) = wrong.split_once(':').unwrap_or_default();
        ensure(why.contains(node), || format!("{wrong}: {why}"))?;
    }
    // A plain path is the node's own that is asked.
    let mut create = vec![local_disk(&nodes[0], 0).display().to_string()];
    create.extend((1..DISKS).map(|number| of_node(&nodes[0], number)));
    create.extend(nodes[1..].iter().flat_map(|node| (0..DISKS).map(|number| of_node(node, number))));
    let mut command = vec!["pool", "create", "p", "--yes"];
    command.extend(create.iter().map(String::as_str));
    nodes[0].ask(&command)?;
    let made = pool(&nodes[0])?;
    let mut online = members_in(&made, "online");
    online.sort();
    let all: Vec<String> =
        nodes.iter().flat_map(|node| (0..DISKS).map(|number| of_node(node, number))).collect();
    ensure(online == all, || format!("the pool has {online:?}, not {all:?}"))?;
    make_lun(&nodes[0])?;
    qemu_io(&nodes[0].url(), &[BEFORE, "flush"])?;

    // Regions that are written are dirty until they have been at rest for a while: what is dirty when a node is lost, it is taken to lack.
    pause(REST);

    // A node is killed while data is written: its disks are missed, and nobody else is.
    nodes[1].kill()?;
    // Backwards: writes in order have regions ahead of them marked as well.
    let during: Vec<String> =
        (0..16).rev().map(|number| format!("write -P {} {}M 256k", 16 + number, 8 * number)).collect();
    let during: Vec<&str> = during.iter().map(String::as_str).chain(["flush"]).collect();
    qemu_io(&nodes[0].url(), &during)?;
    let lost =
        wait_until(&nodes[0], "the lost node's disks to be missed", |pool| pool["disks_missing"] == DISKS)?;
    let missing = members_in(&lost, "missing");
    ensure(missing.len() == DISKS && missing.iter().all(|disk| disk.starts_with("n2:")), || {
        format!("{missing:?} are missing")
    })?;
    // The cluster knows it a moment later.
    Deadline::after(SETTLES).poll("that somebody says who is away", || {
        Ok(nodes[0].ask(&["status"])?.contains("node n2 is away with its 2 disks").then_some(()))
    })?;
    let copied_before = lost["copied_bytes"].as_u64().unwrap_or_default();

    // Back: what it missed is copied, and no more.
    nodes[1].start()?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;
    let back = wait_until(&nodes[0], "all copies to be there again", is_full)?;
    let copied = back["copied_bytes"].as_u64().unwrap_or_default() - copied_before;
    ensure(copied > 0 && copied <= DIRTY_AT_MOST, || format!("{copied} bytes were copied"))?;

    // The owner goes, with a third of all copies: another node has everything.
    nodes[0].kill()?;
    let taken = nodes[1].wait_for_owner("p", |owner| owner != "n1" && !owner.is_empty())?;
    let url = owner_of(&mut nodes, &taken)?.url();
    let verify: Vec<String> = (0..16)
        .flat_map(|number| {
            let at = 8 * number;
            [
                format!("read -P {} {at}M 256k", 16 + number),
                format!("read -P 0x5a {}k {}k", at * 1024 + 256, 8 * 1024 - 256),
            ]
        })
        .chain(["read -P 0x5a 128M 64M".to_owned(), "write -P 0x33 4M 1M".to_owned(), "flush".to_owned()])
        .collect();
    qemu_io(&url, &verify.iter().map(String::as_str).collect::<Vec<_>>())?;

    // The former owner comes back with old disks: they are brought up to date, and it gets the pool by hand.
    nodes[0].start()?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;
    wait_until(owner_of(&mut nodes, &taken)?, "all copies to be there again", is_full)?;
    owner_of(&mut nodes, &taken)?.ask(&["pool", "move", "p", "n1"])?;
    nodes[0].wait_for_owner("p", |owner| owner == "n1")?;
    qemu_io(&nodes[0].url(), &["read -P 0x33 4M 1M", "read -P 0x5a 128M 64M", "read -P 16 0 256k"])?;
    half_goes_on(&mut nodes)?;
    nodes.iter_mut().try_for_each(Member::stop)
}

/// A node comes back within a moment, with its disks as they were some time ago: they are made anew, and never read before.
fn an_older_copy_is_not_believed(nodes: &mut [Member], owner: &str) -> Result {
    let second = |node: &Member| format!("iscsi://{}/{TARGET}/1", node.portal());
    let full = |node: &Member| {
        Deadline::after(SETTLES).poll("all copies of the half to be there", || {
            let Ok(shown) = node.ask(&["pool", "show", "half", "--json"]) else { return Ok(None) };
            let shown: Value = serde_json::from_str(&shown).map_err(|why| failed("JSON", why))?;
            Ok(is_full(&shown).then_some(()))
        })
    };
    let copies = || (DISKS..DISKS + FURTHER).map(|number| format!("disk{number}"));
    let copy = |dir: &std::path::Path, from: &str, to: &str| -> Result {
        for disk in copies() {
            let mut cp = command("cp");
            cp.arg("--sparse=always")
                .arg(dir.join(format!("{disk}{from}")))
                .arg(dir.join(format!("{disk}{to}")));
            run_program(SETTLES, &cp)?.ok("cp")?;
        }
        Ok(())
    };
    full(owner_of(nodes, owner)?)?;
    nodes[0].kill()?;
    copy(&nodes[0].dir, "", ".old")?;
    nodes[0].start()?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;
    full(owner_of(nodes, owner)?)?;
    let url = second(owner_of(nodes, owner)?);
    qemu_io(&url, &["write -P 0x46 0 16M", "flush"])?;
    nodes[0].kill()?;
    copy(&nodes[0].dir, ".old", "")?;
    nodes[0].start()?;
    qemu_io(&url, &["read -P 0x46 0 16M"])?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;
    full(owner_of(nodes, owner)?)?;
    qemu_io(&url, &["read -P 0x46 0 16M"])
}

/// A mirror over two nodes, cut in half: the half that is left and etcd's vote are a majority.
fn half_goes_on(nodes: &mut [Member]) -> Result {
    let disks: Vec<String> = nodes[..2]
        .iter()
        .flat_map(|node| (DISKS..DISKS + FURTHER).map(|number| of_node(node, number)))
        .collect();
    let mut command = vec!["pool", "create", "half", "--yes"];
    command.extend(disks.iter().map(String::as_str));
    nodes[0].ask(&command)?;
    // Without checksums, which would hide an old copy.
    let volume = ["volume", "create", "h", "--pool", "half", "--size", "1G", "--resiliency", "mirror2"];
    nodes[0].ask(&[&volume[..], &["--no-integrity"]].concat())?;
    nodes[0].ask(&["lun", "create", "h", "--volume", "h", "--size", "64M"])?;
    nodes[0].ask(&["lun", "map", "h", "--target", TARGET, "--group", "all", "--number", "1"])?;
    let second = |node: &Member| format!("iscsi://{}/{TARGET}/1", node.portal());
    qemu_io(&second(&nodes[0]), &["write -P 0x44 0 16M", "flush"])?;
    nodes[0].kill()?;
    // Only these two have disks of it; the third one may try, and be the owner as well: it reaches the same half.
    let taken = nodes[1].wait_for_owner("half", |owner| owner != "n1" && !owner.is_empty())?;
    let url = second(owner_of(nodes, &taken)?);
    qemu_io(&url, &["read -P 0x44 0 16M", "write -P 0x45 8M 1M", "flush", "read -P 0x45 8M 1M"])?;
    nodes[0].start()?;
    nodes[0].wait_for_nodes(usize::from(NODES))?;

    an_older_copy_is_not_believed(nodes, &taken)?;

    // Without the pool nobody lends its disks any more: a node may use them for itself.
    let owner = owner_of(nodes, &taken)?;
    for verb in [
        ["lun", "delete", "h", "--yes"],
        ["volume", "delete", "h", "--yes"],
        ["pool", "delete", "half", "--yes"],
    ] {
        owner.ask(&verb)?;
    }
    let own = local_disk(&nodes[1], DISKS).display().to_string();
    Deadline::after(SETTLES).poll("that the second node has its disks for itself", || {
        let made = nodes[1].ask(&["pool", "create", "own", &own, "--yes"]);
        // Busy, as long as it is lent.
        Ok(made.is_ok().then_some(()))
    })
}
