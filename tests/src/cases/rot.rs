//! Damage that no disk reports: bytes flip on one disk under a mirror and under parity. Every client reads what it
//! wrote, the pool names the disk, and a scrub ends clean.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};

/// Two scrubs of what the case writes.
const SCRUB: Duration = Duration::from_secs(180);
const BLOCK: usize = 4096;
/// Where slabs begin on the demo's disks, at the latest: before it are the pool's metadata and the checksums.
const DATA_START: u64 = 128 << 20;
/// How far the case looks for data: slabs are taken from the beginning.
const DATA_END: u64 = 3 << 30;

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    node.expect_log("are not what was written");
    node.expect_log("of the checksums on disk");
    let mib = if context.full { 512 } else { 48 };
    let content = pattern(mib << 20);
    let file = context.folder.join("file");
    std::fs::write(&file, &content)?;
    let file = file.to_string_lossy().into_owned();
    node.smbclient(&format!("put {file} f"))?.ok("put")?;
    qemu_io(&url, &["write -P 0x5a 0 16M", "write -P 0x5b 1G 4M", "flush"])?;
    node.cli(&["volume", "create", "odd", "--size", "4G", "--resiliency", "parity1"])?;
    node.cli(&["file", "put", &file, "odd:/f"])?;

    let disk = node.disk(1)?;
    let flipped = rot(Path::new(&disk))?;
    ensure(flipped > 50, || format!("only {flipped} blocks of {disk} hold anything"))?;
    let same = |what: &str| -> Result {
        let got = context.folder.join("got");
        node.smbclient(&format!("get f {}", got.display()))?.ok("get")?;
        ensure(std::fs::read(&got)? == content, || format!("{what}: the share gives other bytes"))?;
        node.cli(&["file", "get", "odd:/f", &got.to_string_lossy()])?;
        ensure(std::fs::read(&got)? == content, || format!("{what}: the parity volume gives other bytes"))?;
        qemu_io(&url, &["read -P 0x5a 0 16M", "read -P 0x5b 1G 4M"])
    };
    same("after the damage")?;
    scrub(node)?;
    let found = members(node)?;
    let disks = node.json(&["disk", "list"])?["items"].as_array().cloned().unwrap_or_default();
    let known = disks.iter().find(|known| known["path"] == disk.as_str()).map(|known| known["id"].clone());
    let disk = known.and_then(|id| Some(id.as_str()?.to_owned())).unwrap_or(disk);
    for (member, damaged, healed) in &found {
        let expected = *member == disk;
        let told = *damaged > 0 && *healed > 0;
        ensure(told == expected, || format!("{disk} was damaged, and the pool says: {found:?}"))?;
    }
    same("after the scrub")?;
    let last = scrub(node)?;
    ensure(last == 0, || format!("a second scrub finds {last} damaged blocks"))?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    server.finish()
}

/// Bytes of which no block is like another, nor compressible.
fn pattern(len: usize) -> Vec<u8> {
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

/// Flips a byte in every eleventh block of a disk that holds anything; how many.
fn rot(path: &Path) -> Result<usize> {
    let disk: File = OpenOptions::new().read(true).write(true).open(path)?;
    let (mut flipped, mut seen) = (0, 0);
    let mut chunk = vec![0; 1 << 20];
    for start in (DATA_START..DATA_END.min(disk.metadata()?.len())).step_by(chunk.len()) {
        disk.read_exact_at(&mut chunk, start)?;
        for (index, block) in
            chunk.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0))
        {
            seen += 1;
            if seen % 11 == 0 {
                let within = (seen * 37) % BLOCK;
                disk.write_all_at(&[!block[within]], start + (index * BLOCK + within) as u64)?;
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
