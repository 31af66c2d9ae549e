//! A pool with mirror, parity and a write log goes from one node to another: exported, its disks under other names and in
//! another order, one of them missing at first. Everything in it is the same, and the node it came from does not take it
//! back by itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::restart::qemu_io;
use super::rot::pattern;
use crate::node::{Node, Options};
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};

const DISKS: usize = 5;
const DISK: u64 = 6 << 30;
const POOL: &str = "moved";
/// The volumes, and how each keeps its data.
const VOLUMES: &[(&str, &[&str])] = &[
    ("odd", &["--resiliency", "parity1"]),
    ("even", &["--resiliency", "parity2"]),
    ("pair", &["--resiliency", "mirror2"]),
    ("logged", &["--resiliency", "parity1", "--log-size", "128M"]),
];
/// A disk that was missing is taken in and has caught up.
const BACK: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let start = |name: &str| -> Result<Node> {
        let folder = context.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        Node::start(&folder, Options::default())
    };
    let (mut one, mut two) = (start("one")?, start("two")?);
    let disks = (0..DISKS).map(|number| disk(context, "first", number)).collect::<Result<Vec<_>>>()?;
    for path in &disks {
        std::fs::File::create(path)?.set_len(DISK)?;
    }
    let content = pattern(if context.full { 256 } else { 24 } << 20);
    let file = context.folder.join("file");
    std::fs::write(&file, &content)?;
    fill(&one, &disks, &file)?;
    let (url, share) = (lun_url(&one)?, "odd");
    qemu_io(&url, &["write -P 0x5a 1M 8M", "write -P 0x17 60M 64k", "flush"])?;
    one.smbclient_on(share, &format!("put {} over-smb", file.display()))?.ok("put")?;

    let before = lun(&one)?.unwrap_or_default();
    one.cli(&["pool", "export", POOL])?;
    gone(&one)?;
    let refused = qemu_io(&url, &["read 0 4k"]);
    ensure(refused.is_err(), || "the LUN of an exported pool is still served".into())?;

    // Other names, in the reverse order; the first of them stays away.
    let moved = (0..DISKS).map(|number| disk(context, "then", number)).collect::<Result<Vec<_>>>()?;
    for (from, to) in disks.iter().rev().zip(&moved) {
        std::fs::rename(from, to)?;
    }
    let absent = context.folder.join("absent");
    std::fs::rename(&moved[0], &absent)?;
    two.expect_log("is offline: ");
    import(&two, &moved[1..])?;
    let shown = two.json(&["pool", "show", POOL])?;
    ensure(shown["disks_missing"] == 1, || format!("one disk is missing, and the pool says: {shown}"))?;
    same(context, &two, &content)?;
    let (url, after) = (lun_url(&two)?, lun(&two)?.unwrap_or_default());
    ensure(before["size_bytes"] == after["size_bytes"], || format!("the LUN was {before}, and is {after}"))?;
    qemu_io(&url, &["read -P 0x5a 1M 8M", "read -P 0x17 60M 64k", "read -P 0 32M 1M"])?;

    // While it is in use there, nobody else gets it; nor when the node that had it starts anew.
    let path = moved[1].to_string_lossy();
    let refused = one.cli(&["pool", "import", POOL, "--disk", &path]);
    ensure(refused.is_err(), || "two nodes have the pool".into())?;
    one.stop()?;
    one.start_again()?;
    gone(&one)?;

    // Written to without the disk, which then comes back.
    qemu_io(&url, &["write -P 0x33 2M 1M", "flush"])?;
    std::fs::rename(&absent, &moved[0])?;
    import(&two, &moved[..1])?;
    Deadline::after(BACK).poll("the disk that was missing", || {
        let shown = two.json(&["pool", "show", POOL])?;
        Ok((shown["disks_missing"] == 0 && whole(&shown)).then_some(()))
    })?;
    same(context, &two, &content)?;
    qemu_io(&url, &["read -P 0x5a 1M 1M", "read -P 0x33 2M 1M", "read -P 0x5a 3M 6M"])?;
    two.cli(&["pool", "check", POOL, "--deep"])?;
    for (volume, _) in VOLUMES {
        two.cli(&["volume", "check", volume])?;
    }

    // Back again, because it is asked for.
    two.cli(&["pool", "export", POOL])?;
    import(&one, &moved)?;
    same(context, &one, &content)?;
    two.finish()?;
    one.finish()
}

fn disk(context: &Context, when: &str, number: usize) -> Result<PathBuf> {
    let folder = context.folder.join(when);
    std::fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{when}-{number}.img")))
}

/// The pool, its volumes with a file each, a LUN and a share.
fn fill(node: &Node, disks: &[PathBuf], file: &Path) -> Result {
    let paths: Vec<String> = disks.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    node.cli(&[&["pool", "create", POOL], &paths[..]].concat())?;
    for (volume, how) in VOLUMES {
        node.cli(&[&["volume", "create", volume, "--pool", POOL, "--size", "2G"], *how].concat())?;
        node.cli(&["file", "put", &file.to_string_lossy(), &format!("{volume}:/f")])?;
    }
    node.cli(&["lun", "create", "moved-lun", "--volume", "pair", "--size", "128M", "--group", "everyone"])?;
    node.cli(&[
        "share",
        "create",
        "odd",
        "--volume",
        "odd",
        "--folder",
        "/shared",
        "--full",
        &node.told("smb_user"),
    ])
    .map(drop)
}

fn import(node: &Node, disks: &[PathBuf]) -> Result {
    let mut arguments = vec!["pool".to_owned(), "import".into(), POOL.into()];
    for path in disks {
        arguments.extend(["--disk".into(), path.to_string_lossy().into_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    node.cli(&arguments).map(drop)
}

/// What the node says of the LUN, if it has it.
fn lun(node: &Node) -> Result<Option<Value>> {
    let luns = node.json(&["lun", "list"])?["items"].as_array().cloned().unwrap_or_default();
    Ok(luns.into_iter().find(|lun| lun["name"] == "moved-lun"))
}

/// The LUN as QEMU names it; made from its file where it is not there yet.
fn lun_url(node: &Node) -> Result<String> {
    if lun(node)?.is_none() {
        let file = ["--volume", "pair", "--path", "/luns/moved-lun", "--group", "everyone"];
        node.cli(&[&["lun", "create", "moved-lun"], &file[..]].concat())?;
    }
    let shown = lun(node)?.unwrap_or_default();
    let number = shown["map"][0]["number"].as_u64();
    let number = number.ok_or_else(|| Outcome::Fail(format!("the LUN has no number: {shown}")))?;
    let base = node.ready().url.rsplit_once('/').map_or("", |(base, _)| base).to_owned();
    Ok(format!("{base}/{number}"))
}

/// Whether the node says nothing of the pool any more.
fn gone(node: &Node) -> Result {
    let pools = node.json(&["pool", "list"])?;
    let there = pools["items"].as_array().is_some_and(|pools| pools.iter().any(|pool| pool["name"] == POOL));
    ensure(!there, || format!("the pool was exported, and is there: {pools}"))
}

fn whole(pool: &Value) -> bool {
    pool["spaces"].as_array().is_some_and(|spaces| spaces.iter().all(|space| space["redundancy"] == "full"))
}

/// Every file is what it was.
fn same(context: &Context, node: &Node, content: &[u8]) -> Result {
    let got = context.folder.join("got");
    let files = VOLUMES.iter().map(|(volume, _)| format!("{volume}:/f"));
    for from in files.chain(["odd:/shared/over-smb".to_owned()]) {
        node.cli(&["file", "get", &from, &got.to_string_lossy()])?;
        let same = std::fs::read(&got)? == content;
        std::fs::remove_file(&got)?;
        ensure(same, || format!("{from} is not what it was"))?;
    }
    Ok(())
}
