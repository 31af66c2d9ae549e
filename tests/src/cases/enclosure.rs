//! An enclosure goes and returns while clients of both protocols work: nothing fails, and when it is back only what was
//! written meanwhile is copied to it.

use super::load::{self, Fio};
use super::restart::qemu_io;
use super::rot::pattern;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::need;
use crate::{Outcome, Result, ensure};

const MIB: u64 = 1 << 20;

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("fio", "fio")?;
    need("qemu-nbd", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    node.expect_log("is offline: ");
    // qemu-io writes less than 2 GiB at a time.
    let mib: u64 = if context.full { 2047 } else { 256 };
    let quiet = format!("1G {mib}M");
    qemu_io(&url, &[&format!("write -P 0x5a {quiet}"), "flush"])?;
    let content = pattern(64 << 20);
    let file = context.folder.join("file");
    std::fs::write(&file, &content)?;
    node.smbclient(&format!("put {} quiet", file.display()))?.ok("put")?;

    // What was written a moment ago counts as dirty; a clean stop makes it clean.
    node.stop()?;
    node.start_again()?;
    let url = node.ready().url.clone();
    // What is read while disks go and return may come from memory; what is compared at the end comes from them.
    let volume = node.told("volume");
    node.cli(&["volume", "set", &volume, "--read-cache", "on", "--read-ahead", "adaptive"])?;
    let used = if context.full { 128 } else { 16 };
    let disk = Fio::new(context, &url, used)?;
    let (mut iscsi, mut smb) = (disk.load(), load::smb(context, node, &node.told("smb_share"), used)?);
    let mut under_load = |what: &str| -> Result {
        iscsi.round().and_then(|()| smb.round()).map_err(|why| Outcome::Fail(format!("{what}: {why}")))
    };
    let [near, far] = [enclosure(node, "shelf-a")?, enclosure(node, "shelf-b")?];
    under_load("with all disks")?;
    let before = copied(node)?;
    for member in &near {
        node.cli(&["disk", "fault", &member.disk, "vanish"])?;
    }
    node.wait_reduced()?;
    under_load("without an enclosure")?;
    let missing = node.json(&["pool", "show", &node.told("pool")])?["disks_missing"].clone();
    ensure(missing == near.len(), || format!("{missing} disks are missing, not those of an enclosure"))?;
    for member in &near {
        node.cli(&["disk", "fault", &member.disk, "return"])?;
    }
    under_load("with the enclosure back")?;
    let (last, rounds) = (iscsi.finish()?, smb.finish()?);
    node.wait_redundant()?;
    node.cli(&["volume", "set", &volume, "--read-cache", "off"])?;
    let copied = copied(node)? - before;
    let allocated: u64 = enclosure(node, "shelf-a")?.iter().map(|member| member.allocated).sum();
    crate::note!(
        "     copied {} MiB to the enclosure, which holds {} MiB; {last} rounds over iSCSI, {rounds} over SMB",
        copied / MIB,
        allocated / MIB
    );
    // All that the clients write to became stale, and little else has been written.
    ensure(copied >= used * MIB, || format!("only {copied} bytes were copied: the load went elsewhere"))?;
    ensure(copied * 3 < allocated, || format!("{copied} bytes were copied, of {allocated} that are there"))?;

    // What was copied, now from nowhere else.
    let got = context.folder.join("got");
    let get = |name: &str| -> Result<Vec<u8>> {
        node.smbclient(&format!("get {name} {}", got.display()))?.ok("get")?;
        Ok(std::fs::read(&got)?)
    };
    let loaded = get("load")?;
    for member in &far {
        node.cli(&["disk", "fault", &member.disk, "vanish"])?;
    }
    node.wait_reduced()?;
    disk.holds(last)?;
    disk.finish()?;
    qemu_io(&url, &[&format!("read -P 0x5a {quiet}")])?;
    ensure(get("quiet")? == content, || "a file that nobody wrote to has changed".into())?;
    ensure(get("load")? == loaded, || "the enclosures hold different bytes of the file under load".into())?;
    for member in &far {
        node.cli(&["disk", "fault", &member.disk, "return"])?;
    }
    node.wait_redundant()?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    server.finish()
}

/// A member of the pool.
struct Member {
    disk: String,
    /// Bytes.
    allocated: u64,
}

/// The members in an enclosure.
fn enclosure(node: &Node, name: &str) -> Result<Vec<Member>> {
    let pool = node.json(&["pool", "show", &node.told("pool")])?;
    let members = pool["members"].as_array().cloned().unwrap_or_default();
    let inside: Vec<Member> = members
        .iter()
        .filter(|member| member["enclosure"] == name)
        .map(|member| Member {
            disk: member["disk"].as_str().unwrap_or_default().to_owned(),
            allocated: member["allocated_bytes"].as_u64().unwrap_or_default(),
        })
        .collect();
    ensure(inside.len() == 2, || format!("{} of the members are in {name}: {pool}", inside.len()))?;
    Ok(inside)
}

/// Bytes that the pool has copied to make copies equal since it was opened.
fn copied(node: &Node) -> Result<u64> {
    let pool = node.json(&["pool", "show", &node.told("pool")])?;
    pool["copied_bytes"].as_u64().ok_or_else(|| Outcome::Fail(format!("no copied_bytes: {pool}")))
}
