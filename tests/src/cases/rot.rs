//! Damage that no disk reports: bytes flip on one disk under a mirror and under parity, at rest and while clients read and
//! write. Every client reads what it wrote, the pool names the disk, a scrub ends clean, and the disk is retired.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::load::{self, Fio};
use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};

/// Two scrubs of what the case writes.
const SCRUB: Duration = Duration::from_secs(180);
/// The emptying of a disk.
const RETIRED: Duration = Duration::from_secs(120);
const BLOCK: usize = 4096;
/// Where slabs begin on the demo's disks, at the latest: before it are the pool's metadata and the checksums.
const DATA_START: u64 = 128 << 20;
/// How far the case looks for data: slabs are taken from the beginning.
const DATA_END: u64 = 3 << 30;

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("fio", "fio")?;
    need("qemu-io", "qemu-utils")?;
    need("qemu-nbd", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    node.expect_log("are not what was written");
    node.expect_log("of the checksums on disk");
    node.expect_log("is emptied and retired");
    // First it stays where it is: a damaged disk is used without harm.
    retire_after(node, 0)?;
    node.cli(&["volume", "create", "odd", "--size", "4G", "--resiliency", "parity1"])?;
    let user = node.told("smb_user");
    node.cli(&["share", "create", "odd", "--volume", "odd", "--full", &user])?;
    let content = pattern(if context.full { 512 } else { 20 } << 20);
    let file = context.folder.join("file");
    std::fs::write(&file, &content)?;
    let file = file.to_string_lossy().into_owned();
    node.smbclient(&format!("put {file} f"))?.ok("put")?;
    qemu_io(&url, &["write -P 0x5a 1G 8M", "flush"])?;
    node.cli(&["file", "put", &file, "odd:/f"])?;

    let used = if context.full { 128 } else { 16 };
    let lun = Fio::new(context, &url, used)?;
    let (mut iscsi, mut smb) = (lun.load(), load::smb(context, node, "odd", used)?);
    let same = |node: &Node| -> Result {
        let got = context.folder.join("got");
        node.smbclient(&format!("get f {}", got.display()))?.ok("get")?;
        ensure(std::fs::read(&got)? == content, || "the mirror gives other bytes".into())?;
        node.cli(&["file", "get", "odd:/f", &got.to_string_lossy()])?;
        ensure(std::fs::read(&got)? == content, || "parity gives other bytes".into())?;
        qemu_io(&url, &["read -P 0x5a 1G 8M"])
    };
    let disk = node.disk(1)?;
    iscsi.round().and_then(|()| smb.round())?;
    let mut flipped = 0;
    for _ in 0..if context.full { 10 } else { 1 } {
        flipped += rot(Path::new(&disk))?;
        same(node)?;
        iscsi.round().and_then(|()| smb.round())?;
    }
    let (last, rounds) = (iscsi.finish()?, smb.finish()?);
    // Once more, with nobody who would write over it.
    let at_rest = rot(Path::new(&disk))?;
    ensure(flipped > 50 && at_rest > 50, || {
        format!("only {flipped}, {at_rest} blocks of {disk} held anything")
    })?;
    lun.holds(last)?;
    lun.finish()?;
    same(node)?;
    scrub(node)?;
    let (damaged, healed) = only_damaged(node, &disk)?;
    crate::note!(
        "     {flipped} blocks damaged under load ({last} rounds over iSCSI, {rounds} over SMB), {at_rest} after it: \
         {damaged} found damaged, {healed} restored; some the clients wrote over"
    );
    let left = scrub(node)?;
    ensure(left == 0, || format!("a second scrub finds {left} damaged blocks"))?;
    same(node)?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    retire_after(node, 64)?;
    retired(node, &disk)?;
    same(node)?;
    // What it has shown is counted anew now; why it was retired is known.
    node.stop()?;
    node.start_again()?;
    retired(node, &disk)?;
    same(node)?;
    server.finish()
}

/// Waits until a disk is empty because of what it has shown, and everything is as redundant as before.
fn retired(node: &Node, path: &str) -> Result {
    let pool = node.told("pool");
    Deadline::after(RETIRED).poll("the retirement of the damaged disk", || {
        let shown = node.json(&["pool", "show", &pool])?;
        let all = |key: &str| shown[key].as_array().cloned().unwrap_or_default();
        let emptied = all("members").iter().any(|member| {
            let reason = member["reason"].as_str().unwrap_or_default();
            member["state"] == "retiring"
                && member["allocated_bytes"] == 0
                && reason.contains("not what was written")
        });
        let whole = all("spaces").iter().all(|space| space["redundancy"] == "full");
        Ok((emptied && whole).then_some(()))
    })?;
    crate::note!("     {path} is empty and retired by itself");
    Ok(())
}

/// After how many errors a disk is retired; 0 for never.
fn retire_after(node: &Node, errors: u64) -> Result {
    let mut config = node.json(&["config", "show"])?;
    config["policy"]["retire_after_errors"] = errors.into();
    // As fast as the disk can: nobody else needs it.
    config["policy"]["scrub_bytes_per_second"] = 0.into();
    node.cli_with(&["config", "apply", "-"], &config.to_string()).map(drop)
}

/// Whether the pool says of this disk, and of no other, that it was damaged: how many blocks were, and were restored.
fn only_damaged(node: &Node, path: &str) -> Result<(u64, u64)> {
    let found = members(node)?;
    let disks = node.json(&["disk", "list"])?["items"].as_array().cloned().unwrap_or_default();
    let known = disks.iter().find(|known| known["path"] == path).map(|known| known["id"].clone());
    let disk = known.and_then(|id| Some(id.as_str()?.to_owned())).unwrap_or_else(|| path.to_owned());
    let mut told = (0, 0);
    for (member, damaged, healed) in &found {
        if *member == disk {
            told = (*damaged, *healed);
        } else {
            let clean = *damaged == 0 && *healed == 0;
            ensure(clean, || format!("only {disk} was damaged, and the pool says: {found:?}"))?;
        }
    }
    ensure(told.0 > 0 && told.1 > 0, || format!("{disk} was damaged, and the pool says: {found:?}"))?;
    Ok(told)
}

/// Bytes of which no block is like another, nor compressible.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Flips a byte in every eleventh block of a disk that holds anything; how many. Past the page cache: the node does not use
/// it, and what lay there would be in its way. What it writes at that very moment may be lost, which is damage as well.
fn rot(path: &Path) -> Result<usize> {
    let mut options = OpenOptions::new();
    let disk: File = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let (mut flipped, mut seen) = (0, 0);
    let mut room = vec![0; (1 << 20) + BLOCK];
    let aligned = room.as_ptr().align_offset(BLOCK);
    let chunk = &mut room[aligned..aligned + (1 << 20)];
    for start in (DATA_START..DATA_END.min(disk.metadata()?.len())).step_by(chunk.len()) {
        disk.read_exact_at(chunk, start)?;
        for (index, block) in
            chunk.chunks_mut(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0))
        {
            seen += 1;
            if seen % 11 == 0 {
                let within = (seen * 37) % BLOCK;
                block[within] = !block[within];
                disk.write_all_at(block, start + (index * BLOCK) as u64)?;
                flipped += 1;
            }
        }
    }
    disk.sync_all()?;
    Ok(flipped)
}

/// How many blocks were found damaged and restored, by disk.
fn members(node: &Node) -> Result<Vec<(String, u64, u64)>> {
    let pool = node.json(&["pool", "show", &node.told("pool")])?;
    let members = pool.get("members").and_then(Value::as_array).cloned().unwrap_or_default();
    let number = |member: &Value, key: &str| member.get(key).and_then(Value::as_u64).unwrap_or_default();
    let name = |member: &Value| member.get("disk").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(members
        .iter()
        .map(|member| (name(member), number(member, "checksum_errors"), number(member, "healed_blocks")))
        .collect())
}

/// Scrubs the pool to the end; how many damaged blocks that found.
fn scrub(node: &Node) -> Result<u64> {
    let pool = node.told("pool");
    node.cli(&["pool", "scrub", &pool])?;
    Deadline::after(SCRUB).poll("the scrub's end", || {
        let scrub = node.json(&["pool", "show", &pool])?.get("scrub").cloned().unwrap_or_default();
        let number = |key: &str| scrub.get(key).and_then(Value::as_u64).unwrap_or_default();
        if scrub.get("running") == Some(&Value::Bool(false)) && number("read_bytes") > 0 {
            ensure(number("lost_blocks") == 0, || format!("blocks are lost: {scrub}"))?;
            return Ok(Some(number("damaged_blocks")));
        }
        Ok(None)
    })
}
