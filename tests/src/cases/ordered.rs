//! Snapshots of a volume while the kernel's clients write to it over both protocols. Each is what a cut of the power would
//! leave: of writes in a known order, alternating between a disk and a share, it has a prefix; and the file system on the
//! disk needs its journal and nothing else. What differs between two, applied to the one, gives the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Context, Server};
use crate::guest::{Guest, Setup, home};
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// Boot, write and verify under emulation on two busy cores.
const LIMIT: Duration = Duration::from_secs(900);
/// One program on the host.
const TOOL: Duration = Duration::from_secs(120);
const BLOCK: usize = 4096;
/// Blocks of each of the two files that are written in order.
const SLOTS: u64 = 512;
/// Snapshots that are taken at once.
const TOGETHER: usize = 4;
/// The disk with the file system. It is read as a whole several times for each snapshot.
const DISK_MIB: u64 = 32;
const DISK_MIB_FULL: u64 = 64;
/// Lines of e2fsck that speak of no fault: that it has replayed the journal, that a tree of extents could be smaller, and
/// the totals at the end.
const SOUND: [&str; 4] = ["e2fsck ", "recovering journal", "could be narrower", " files ("];

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("gcc", "gcc")?;
    need("e2fsck", "e2fsprogs")?;
    need("debugfs", "e2fsprogs")?;
    let mut server = Server::start(context, Options::default())?;
    let mut env = server.guest_env();
    let Some(node) = server.node() else { return server.finish() };
    let volume = node.told("volume");
    let disk_mib = if context.full { DISK_MIB_FULL } else { DISK_MIB };
    let size = format!("{disk_mib}M");
    let lun = ["lun", "create", "fs", "--volume", &volume, "--size", &size];
    node.cli(&[&lun[..], &["--group", "everyone", "--number", "5"]].concat())?;
    compile(&context.folder.join("share"))?;
    let port = node.told("smb_address").rsplit(':').next().unwrap_or_default().to_string();
    env.extend([
        ("DISK_BYTES", (disk_mib << 20).to_string()),
        ("SRV", "10.0.2.2".to_string()),
        ("PORT", port),
        ("SHARE", node.told("smb_share")),
        ("SMB_USER", node.told("smb_user")),
        ("SMB_PASS", node.told("smb_password")),
        ("SLOTS", SLOTS.to_string()),
        ("EVERY", if context.full { "2000" } else { "60" }.to_string()),
        ("SIZE_MIB", if context.full { "32" } else { "4" }.to_string()),
    ]);
    let setup = Setup { script: "ordered.sh", env, limit: LIMIT, ..Setup::default() };
    let mut guest = Guest::start(&context.folder, setup)?;
    let names: Vec<String> = (1..=if context.full { 16 } else { 8 }).map(|n| format!("s{n}")).collect();
    for (index, name) in names.iter().enumerate() {
        // Several at a time: the later ones find the clients elsewhere than just after they said how far they are.
        if index % TOGETHER == 0 {
            guest.wait_for("AT ")?;
        }
        let of = format!("{volume}:");
        let usual = ["snapshot", "create", &of, name];
        node.cli(&[&usual[..], if index % 4 == 0 { &["--quiesce"] } else { &[] }].concat())?;
    }
    guest.wait_for("AT ")?;
    guest.tell("hurt")?;
    let said = guest.finish()?;
    let last: Option<u64> = said.lines().find_map(|line| line.strip_prefix("LAST ")?.parse().ok());
    let last = last.ok_or_else(|| format!("the guest did not come to its end:\n{said}"))?;

    let mut found: Vec<Halves> = Vec::new();
    for name in &names {
        let halves = halves(context, node, name)?;
        let prefix = prefix(&halves).map_err(|why| Outcome::Fail(format!("snapshot {name}: {why}")))?;
        let before = found.last().map_or(0, |before| before.prefix);
        // Those taken together may have the same; those after them have more.
        let more = u64::from(found.len().is_multiple_of(TOGETHER));
        ensure(before + more <= prefix && prefix < last, || {
            format!("snapshot {name} has {prefix} writes, the one before {before}, and there were {last}")
        })?;
        found.push(Halves { prefix, ..halves });
    }
    // The comparison can tell: the halves of two snapshots are no moment that ever was.
    let (first, end) = (&found[0], &found[found.len() - 1]);
    let mixed = Halves { disk: first.disk.clone(), share: end.share.clone(), prefix: 0 };
    ensure(prefix(&mixed).is_err(), || "halves of two snapshots pass as one moment".into())?;
    let prefixes: Vec<u64> = found.iter().map(|halves| halves.prefix).collect();
    crate::note!(
        "     snapshots have the first {prefixes:?} of {last} ordered writes, and file systems that are sound"
    );
    differences(context, node, &names[0], &names[names.len() - 1])?;
    node.cli(&["volume", "check", &volume])?;
    server.finish()
}

/// Builds the program that writes in order, static: the guest has no more than it needs.
fn compile(share: &Path) -> Result {
    std::fs::create_dir_all(share)?;
    let mut gcc = command("gcc");
    gcc.args(["-O1", "-static", "-o"]).arg(share.join("ordered")).arg(home().join("guest/ordered.c"));
    run_program(TOOL, &gcc)?.ok("gcc").map(drop)
}

/// The two files of ordered writes, as a snapshot has them.
struct Halves {
    disk: Vec<u8>,
    share: Vec<u8>,
    /// How many writes they hold.
    prefix: u64,
}

/// Clones the disk of a snapshot, has its file system checked and repaired, and takes the file out of it; and the share's.
fn halves(context: &Context, node: &Node, name: &str) -> Result<Halves> {
    let volume = node.told("volume");
    let clone = format!("{volume}:/clone-{name}");
    node.cli(&["snapshot", "clone", &format!("{volume}:@{name}/luns/fs"), &clone])?;
    let image = get(context, node, &clone, &format!("{name}.img"))?;
    let fsck = |how: &str| {
        let mut check = command("e2fsck");
        run_program(TOOL, check.arg(how).arg(&image))
    };
    // As at the start of a machine: replays the journal, brings the totals up to date that ext4 writes at an unmount only,
    // and refuses whatever else it finds.
    let said = fsck("-fp")?;
    let text = format!("{}{}", said.errors, said.output);
    let fault = text.lines().find(|line| !line.trim().is_empty() && !SOUND.iter().any(|s| line.contains(s)));
    let sound = said.status.code().is_some_and(|code| code <= 1) && text.contains("recovering journal");
    ensure(sound && fault.is_none(), || {
        format!("snapshot {name}: e2fsck does not only replay the journal ({}):\n{text}", said.status)
    })?;
    fsck("-fn")?.ok("e2fsck after the journal was replayed")?;
    let out = context.folder.join(format!("{name}.disk"));
    let mut dump = command("debugfs");
    dump.arg("-R").arg(format!("dump /ordered {}", out.display())).arg(&image);
    run_program(TOOL, &dump)?.ok("debugfs")?;
    let share = get(context, node, &format!("{volume}:@{name}/shares/vmstore/ordered"), "ordered")?;
    Ok(Halves { disk: std::fs::read(out)?, share: std::fs::read(share)?, prefix: 0 })
}

/// How many of the ordered writes there are; fails unless these are the first ones, whole, and no others.
fn prefix(halves: &Halves) -> Result<u64> {
    let slots = |file: &[u8]| -> Result<Vec<u64>> {
        ensure(file.len() as u64 == SLOTS * BLOCK as u64, || format!("a file has {} bytes", file.len()))?;
        let number = |block: &[u8]| -> Result<u64> {
            let mut words = block.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
            let first = words.next().unwrap_or_default();
            ensure(words.all(|word| word == first), || format!("the block of write {first} is torn"))?;
            Ok(first)
        };
        file.chunks(BLOCK).map(number).collect()
    };
    let (disk, share) = (slots(&halves.disk)?, slots(&halves.share)?);
    let last = disk.iter().chain(&share).copied().max().unwrap_or_default();
    let mut expected = [vec![0; SLOTS as usize], vec![0; SLOTS as usize]];
    for n in 1..=last {
        expected[usize::from(n % 2 == 0)][(n / 2 * 7919 % SLOTS) as usize] = n;
    }
    for (what, found, expected) in [("disk", &disk, &expected[0]), ("share", &share, &expected[1])] {
        for (slot, (found, expected)) in found.iter().zip(expected).enumerate() {
            ensure(found == expected, || {
                format!("write {last} is there, and slot {slot} of the {what} has {found}, not {expected}")
            })?;
        }
    }
    Ok(last)
}

/// A file of the volume, here.
fn get(context: &Context, node: &Node, place: &str, name: &str) -> Result<PathBuf> {
    let to = context.folder.join(name);
    node.cli(&["file", "get", place, &to.to_string_lossy()])?;
    Ok(to)
}

/// What differs between two snapshots, of the disk and of the share's folder, makes the later of the earlier.
fn differences(context: &Context, node: &Node, first: &str, last: &str) -> Result {
    let volume = node.told("volume");
    for (what, path, files) in
        [("disk", "/luns/fs", &[""][..]), ("share", "/shares/vmstore", &["/ordered", "/load"])]
    {
        let stream = context.folder.join("stream").to_string_lossy().into_owned();
        let [base, target] = [first, last].map(|snapshot| format!("{volume}:@{snapshot}{path}"));
        let copy = format!("{volume}:/copy-{what}");
        node.cli(&["snapshot", "diff", &base, &target, "--output", &stream])?;
        node.cli(&["snapshot", "apply", &stream, "--onto", &base, "--to", &copy])?;
        let (mut size, mut differ) = (0, false);
        for file in files {
            let read = |place: &str, name: &str| -> Result<Vec<u8>> {
                Ok(std::fs::read(get(context, node, &format!("{place}{file}"), name)?)?)
            };
            let (made, wanted) = (read(&copy, "made")?, read(&target, "wanted")?);
            ensure(made == wanted, || format!("{what}{file}: the copy with the differences is another"))?;
            let before = read(&base, "before")?;
            differ |= before != wanted;
            size += wanted.len();
        }
        ensure(differ, || format!("{what}: {first} and {last} are the same"))?;
        let length = std::fs::metadata(&stream)?.len();
        crate::note!(
            "     {what}: {} KiB of differences make {first} identical to {last}, {} KiB",
            length >> 10,
            size >> 10
        );
    }
    Ok(())
}
