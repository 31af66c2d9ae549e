//! `pool check` and `volume check` find and name damage that is made by hand, in each structure on the disks.
//!
//! The node is stopped, bytes of its disks are changed, the checks are run without a node, and the bytes are put back.
//! Where everything lies is in docs/formats. A volume on a simple space of one column has each structure once, and in
//! one piece, so that a damaged one cannot be read from elsewhere.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::slice::from_ref;

use pool_format::Superblock;
use serde_json::Value;

use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::need;
use crate::{Outcome, Result, ensure};

const BLOCK: u64 = 4096;
/// The volume that has no second copy of anything.
const SINGLE: &str = "single";
/// Files in it: enough for a database of several pages.
const FILES: usize = 40;
/// How much of the database is gone through; more than it has by then.
const DATABASE_BYTES: u64 = 2 << 20;

/// Bytes on a disk: path, offset, length.
type Place = (PathBuf, u64, u64);

/// A disk of the stopped node.
struct Disk {
    path: PathBuf,
    superblock: Superblock,
}

/// How the check ended: exit code, findings as "structure at place: detail", messages.
struct Said {
    code: Option<i32>,
    findings: Vec<String>,
    errors: String,
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    qemu_io(&url, &["write -P 0x3c 0 16M", "flush"])?;
    fill(context, node)?;
    node.cli(&["pool", "check", &node.told("pool"), "--deep"])?;
    node.cli(&["volume", "check", SINGLE])?;
    node.stop()?;

    let disks = disks(node)?;
    let hands = Hands { node, disks: &disks };
    hands.is_sound()?;
    pool_superblocks(&hands)?;
    pool_metadata(&hands)?;
    mirrors(&hands)?;
    volume_frame(&hands)?;
    volume_database(&hands)?;
    hands.is_sound()?;

    node.start_again()?;
    qemu_io(&url, &["read -P 0x3c 0 16M"])?;
    server.finish()
}

fn fill(context: &Context, node: &Node) -> Result {
    let pool = node.told("pool");
    let simple = ["--size", "1GiB", "--resiliency", "simple", "--columns", "1"];
    node.cli(&[&["volume", "create", SINGLE, "--no-integrity", "--pool", &pool], &simple[..]].concat())?;
    let small = context.folder.join("small");
    std::fs::write(&small, "a few bytes")?;
    for i in 0..FILES {
        node.cli(&["file", "put", &small.to_string_lossy(), &format!("{SINGLE}:/file-{i:03}")])?;
    }
    Ok(())
}

fn disks(node: &Node) -> Result<Vec<Disk>> {
    let disk = |n| -> Result<Disk> {
        let path = PathBuf::from(node.disk(n)?);
        let superblock = Superblock::decode(&read(&(path.clone(), 0, BLOCK))?);
        let superblock = superblock.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Disk { path, superblock })
    };
    (0..4).map(disk).collect()
}

fn read((path, offset, len): &Place) -> Result<Vec<u8>> {
    let mut bytes = vec![0; *len as usize];
    File::open(path)?.read_exact_at(&mut bytes, *offset)?;
    Ok(bytes)
}

fn write((path, offset, _): &Place, bytes: &[u8]) -> Result {
    Ok(OpenOptions::new().write(true).open(path)?.write_all_at(bytes, *offset)?)
}

struct Hands<'a> {
    node: &'a Node,
    disks: &'a [Disk],
}

impl Hands<'_> {
    fn check(&self, what: &[&str]) -> Result<Said> {
        let mut words: Vec<String> = what.iter().map(ToString::to_string).collect();
        words.push("--offline".into());
        for disk in self.disks {
            words.extend(["--disk".into(), disk.path.to_string_lossy().into_owned()]);
        }
        let done = self.node.offline(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
        let what = what.join(" ");
        ensure(!done.errors.contains("panicked"), || format!("{what} panics: {}", done.errors))?;
        let code = done.status.code();
        ensure(matches!(code, Some(0 | 1)), || format!("{what} ends with {}: {}", done.status, done.errors))?;
        let report: Value = serde_json::from_str(&done.output).unwrap_or_default();
        let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).unwrap_or("?").to_string();
        let line = |item: &Value| {
            format!("{} at {}: {}", text(item, "structure"), text(item, "place"), text(item, "detail"))
        };
        let items = report.get("items").and_then(Value::as_array);
        let findings = items.into_iter().flatten().map(line).collect();
        Ok(Said { code, findings, errors: done.errors })
    }

    /// Changes all bytes of the places, checks, and puts them back.
    fn damaged(&self, places: &[Place], check: &[&str]) -> Result<Said> {
        let sound: Vec<Vec<u8>> = places.iter().map(read).collect::<Result<_>>()?;
        for (place, bytes) in places.iter().zip(&sound) {
            write(place, &bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>())?;
        }
        let said = self.check(check);
        for (place, bytes) in places.iter().zip(&sound) {
            write(place, bytes)?;
        }
        said
    }

    /// Damages, and wants the exit code 1 and all these words in one finding or, where nothing can be opened, in the
    /// message.
    fn named(&self, places: &[Place], check: &[&str], words: &[&str]) -> Result {
        let said = self.damaged(places, check)?;
        let names = |text: &String| words.iter().all(|word| text.contains(word));
        ensure(said.code == Some(1) && (said.findings.iter().any(names) || names(&said.errors)), || {
            format!(
                "{check:?} with damage in {places:?} does not name {words:?} but ends with {:?} and says {:?} {}",
                said.code, said.findings, said.errors
            )
        })
    }

    fn is_sound(&self) -> Result {
        for what in
            [&["pool", "check", "--deep"][..], &["volume", "check", SINGLE], &["volume", "check", "vm"]]
        {
            let said = self.check(what)?;
            ensure(said.code == Some(0) && said.findings.is_empty(), || {
                format!("{what:?} complains about sound disks: {:?} {}", said.findings, said.errors)
            })?;
        }
        Ok(())
    }

    /// Where a volume begins on the disks: one place for each copy.
    fn volume(&self, name: &str) -> Result<Vec<(PathBuf, u64)>> {
        let mut starts = Vec::new();
        for disk in self.disks {
            let file = File::open(&disk.path)?;
            for slab in 0..disk.superblock.slab_count {
                let (at, mut block) = (disk.superblock.slab_offset(slab), vec![0; BLOCK as usize]);
                file.read_exact_at(&mut block, at)?;
                if volume_format::Superblock::decode(&block).is_ok_and(|found| found.name == name) {
                    starts.push((disk.path.clone(), at));
                }
            }
        }
        ensure(!starts.is_empty(), || format!("volume {name} is on none of the disks"))?;
        Ok(starts)
    }
}

const POOL: &[&str] = &["pool", "check"];

fn pool_superblocks(hands: &Hands<'_>) -> Result {
    let ends = |disk: &Disk| {
        let last = disk.superblock.disk_size - BLOCK;
        [(disk.path.clone(), 0, BLOCK), (disk.path.clone(), last, BLOCK)]
    };
    let all: Vec<Place> = hands.disks.iter().flat_map(ends).collect();
    for (n, disk) in hands.disks.iter().enumerate() {
        let [first, last] = ends(disk);
        hands.named(from_ref(&first), POOL, &["superblock", &format!("first superblock of disk {n}")])?;
        hands.named(from_ref(&last), POOL, &["superblock", &format!("last superblock of disk {n}")])?;
        let path = disk.path.to_string_lossy();
        hands.named(
            &[first, last],
            POOL,
            &["superblock at disk", &path, "neither its first nor its last"],
        )?;
    }
    hands.named(&all, POOL, &["no pool on these disks"])
}

/// The pool's log and checkpoints. With a majority of their copies the pool goes on as if nothing were wrong, and its
/// check does not look at each copy yet; here it must only not panic.
fn pool_metadata(hands: &Hands<'_>) -> Result {
    let checkpoints = |disk: &Disk| {
        let sb = &disk.superblock;
        [0, 1].map(|slot| (disk.path.clone(), sb.checkpoint_start + slot * sb.checkpoint_size, BLOCK))
    };
    let log = |disk: &Disk| (disk.path.clone(), disk.superblock.log_start, 16 * BLOCK);
    let first = &hands.disks[0];
    for places in [&checkpoints(first)[..], &[log(first)], &hands.disks.iter().map(log).collect::<Vec<_>>()] {
        hands.damaged(places, POOL)?;
        hands.damaged(places, &["volume", "check", SINGLE])?;
    }
    let all: Vec<Place> = hands.disks.iter().flat_map(checkpoints).collect();
    hands.named(&all, POOL, &["readable metadata"])
}

fn mirrors(hands: &Hands<'_>) -> Result {
    let copies = hands.volume("vm")?;
    ensure(copies.len() == 2, || format!("volume vm has {} copies", copies.len()))?;
    for (path, at) in &copies {
        // Only reading both copies can tell that they differ.
        let inside = (path.clone(), at + 40 * BLOCK, BLOCK);
        hands.named(
            &[inside],
            &["pool", "check", "--deep"],
            &["data", "space vm", "not what was written"],
        )?;
    }
    Ok(())
}

fn volume_frame(hands: &Hands<'_>) -> Result {
    let starts = hands.volume(SINGLE)?;
    let (path, start) = &starts[0];
    let layout = volume_format::Superblock::decode(&read(&(path.clone(), *start, BLOCK))?);
    let layout = layout.map_err(|e| e.to_string())?;
    let at = |offset: u64, len: u64| (path.clone(), start + offset, len);
    let check = ["volume", "check", SINGLE];
    let [first, second] = volume_format::Superblock::OFFSETS.map(|offset| at(offset, BLOCK));
    hands.named(from_ref(&first), &check, &["superblock at volume single", "first copy at byte 0"])?;
    hands.named(from_ref(&second), &check, &["superblock at volume single", "second copy"])?;
    hands.named(&[first, second], &check, &["superblock at volume single", "second copy"])?;
    let lengths = [0, 1].map(|slot| at(layout.length_start + slot * BLOCK, BLOCK));
    for length in &lengths {
        let offset = (length.1 - start).to_string();
        hands.named(from_ref(length), &check, &["length record at volume single", &offset])?;
    }
    hands.named(&lengths, &check, &["length record at volume single"])?;
    // Its header: the magic, and where its last two commits are.
    for (offset, len) in [(0, 9), (64, 128), (192, 128), (0, BLOCK)] {
        let header = at(layout.metadata_start + offset, len);
        hands.named(&[header], &check, &["metadata database at volume single"])?;
    }
    Ok(())
}

/// Each page of the database that is in use. One that is not can hold anything; a check that finds nothing wrong with
/// it is right, and must then not stumble over it.
fn volume_database(hands: &Hands<'_>) -> Result {
    let starts = hands.volume(SINGLE)?;
    let (path, start) = &starts[0];
    let layout = volume_format::Superblock::decode(&read(&(path.clone(), *start, BLOCK))?);
    let first = start + layout.map_err(|e| e.to_string())?.metadata_start;
    let (mut named, mut names, mut idle) = (0, 0, 0);
    for at in (first + BLOCK..first + DATABASE_BYTES).step_by(BLOCK as usize) {
        let page = (path.clone(), at, BLOCK);
        let bytes = read(&page)?;
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let said = hands.damaged(&[page], &["volume", "check", SINGLE])?;
        if said.code == Some(0) {
            idle += 1;
            continue;
        }
        ensure(
            said.findings.iter().any(|found| found.contains("metadata database at volume single")),
            || format!("page at {at}: {:?} {}", said.findings, said.errors),
        )?;
        named += 1;
        // The directory's page: names are filed in upper case.
        names += usize::from(bytes.windows(8).any(|part| part == b"FILE-001"));
    }
    ensure(named >= 5 && names >= 1, || {
        format!("damage in {named} pages of the database was named, {names} of them with names of files")
    })?;
    crate::note!("     {named} pages of the database in use, {idle} not");
    Ok(())
}
