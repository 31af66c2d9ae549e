//! A golden image: cloned a thousand times, a hundred of the clones written to at once, all of them deleted; and the
//! volume has as much space as before, to the byte.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Spd;
use super::restart::qemu_io;
use super::rot::pattern;
use super::{Context, Server};
use crate::api::Api;
use crate::node::{Node, Options};
use crate::process::{Deadline, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

const CLONES: usize = 1000;
const WRITTEN: usize = 100;
/// Of those, how many are written to over iSCSI besides.
const LUNS: usize = 4;
/// Bytes of a volume that are mapped at once, at the least.
const CLUSTER: u64 = 64 << 10;
/// One program on the host.
const TOOL: Duration = Duration::from_secs(120);
/// Until the space of what was deleted is free: that comes about in the background.
const FREED: Duration = Duration::from_secs(180);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-img", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    let mut server = Server::start(context, Options::default())?;
    let Some(node) = server.node() else { return server.finish() };
    let golden = make_golden(context, node)?;
    given_back(node)?;
    let start = used(node)?;

    let mut api = Api::new(&node.told("api_socket"))?;
    let base = format!("/volumes/{}", node.told("volume"));
    let clock = clock();
    for n in 0..CLONES {
        let request = json!({ "from": "/shares/vmstore/golden.vhdx", "to": place(n) });
        api.ask("POST", &format!("{base}/clone"), &request)?;
    }
    let (cloned, shared) = (clock.elapsed(), used(node)?);
    // Less, where clusters that were given back have been zeroed meanwhile: until then they count.
    ensure(shared <= start, || format!("clones alone take space: {start} bytes became {shared}"))?;

    let clock = self::clock();
    write_at_once(context, node)?;
    let (wrote, grown) = (clock.elapsed(), used(node)?);
    ensure(grown > start + WRITTEN as u64 * CLUSTER, || {
        format!("{WRITTEN} clones have been written to, and of {start} bytes became only {grown}")
    })?;
    others_are_as_before(context, node, &golden)?;

    let clock = self::clock();
    for n in 0..CLONES {
        let path = place(n);
        api.ask("DELETE", &format!("{base}/files?path={path}"), &json!({ "confirm": path }))?;
    }
    let deleted = clock.elapsed();
    let mut last = 0;
    let freed = Deadline::after(FREED).poll("the space", || {
        last = used(node)?;
        Ok((last <= start).then_some(()))
    });
    freed
        .map_err(|_| Outcome::Fail(format!("{start} bytes were in use at the start, and {last} are now")))?;
    crate::note!(
        "     {CLONES} clones in {:.1} s, {WRITTEN} written at once in {:.1} s ({} MiB), deleted in {:.1} s, \
         free again after {:.1} s; {start} bytes in use before, {last} after",
        cloned.as_secs_f64(),
        wrote.as_secs_f64(),
        (grown - start) >> 20,
        deleted.as_secs_f64(),
        clock.elapsed().as_secs_f64()
    );
    same_file(&golden, &get(context, node, "golden.vhdx")?)?;
    node.cli(&["volume", "check", &node.told("volume")])?;
    if context.full {
        by_hand(node, start)?;
    }
    server.finish()
}

fn clock() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "says how long steps took; nothing depends on it")]
    Instant::now()
}

/// Where clone `n` is in the volume.
fn place(n: usize) -> String {
    format!("/shares/vmstore/clones/vm{n}.vhdx")
}

/// Bytes of the volume in use.
fn used(node: &Node) -> Result<u64> {
    let volume = node.json(&["volume", "show", &node.told("volume")])?;
    volume["used_bytes"].as_u64().ok_or_else(|| Outcome::Fail(format!("no used_bytes: {volume}")))
}

/// Waits until what was mapped ahead of the golden image's writer has been given back: that comes about in the background.
fn given_back(node: &Node) -> Result {
    let place = format!("{}:/shares/vmstore/golden.vhdx", node.told("volume"));
    Deadline::after(FREED).poll("the space ahead of the golden image", || {
        let file = node.json(&["file", "stat", &place])?;
        let number = |key: &str| file[key].as_u64().unwrap_or_default();
        Ok((number("allocated_bytes") <= number("size_bytes").next_multiple_of(CLUSTER)).then_some(()))
    })
}

/// An image with data in it, put on the share by a client; the local one.
fn make_golden(context: &Context, node: &Node) -> Result<std::path::PathBuf> {
    let (raw, image) = (context.folder.join("golden.raw"), context.folder.join("golden.vhdx"));
    std::fs::write(&raw, pattern(if context.full { 512 } else { 48 } << 20))?;
    let mut convert = command("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "vhdx"]).arg(&raw).arg(&image);
    run_program(TOOL, &convert)?.ok("qemu-img convert")?;
    node.smbclient(&format!("mkdir clones; put {} golden.vhdx", image.display()))?.ok("put")?;
    Ok(image)
}

/// 1 MiB of each of the first clones over SMB, all at once, each over a connection of its own; and then some more over
/// iSCSI, as disks.
fn write_at_once(context: &Context, node: &Node) -> Result {
    let mut spd = Spd::new(context, node)?;
    let share = node.told("smb_share");
    let targets: Vec<String> = (0..WRITTEN).map(|n| spd.url(&share, &format!("clones/vm{n}.vhdx"))).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let seconds = if context.full { "-d20" } else { "-d2" };
    spd.run(&[seconds, "-b8K", "-r", "-w70", "-t1", "-o2", "-B16M:1M"], &targets)?;
    for n in WRITTEN - LUNS..WRITTEN {
        let (name, number) = (format!("vm{n}"), (n % 100 + 10).to_string());
        let volume = node.told("volume");
        let what = ["lun", "create", &name, "--volume", &volume, "--path", &place(n)];
        node.cli(&[&what[..], &["--group", "everyone", "--number", &number]].concat())?;
        let url = format!("{}/{number}", node.ready().url.rsplit_once('/').map_or("", |(head, _)| head));
        qemu_io(&url, &["write -P 0x77 32M 128k", "flush", "read -P 0x77 32M 128k"])?;
        node.cli(&["lun", "delete", &name, "--keep-file"])?;
    }
    Ok(())
}

/// A file of the share, here.
fn get(context: &Context, node: &Node, name: &str) -> Result<std::path::PathBuf> {
    let to = context.folder.join("got");
    node.smbclient(&format!("get {name} {}", to.display()))?.ok("get")?;
    Ok(to)
}

fn same_file(one: &Path, other: &Path) -> Result {
    let same = std::fs::read(one)? == std::fs::read(other)?;
    ensure(same, || format!("{} and {} differ", one.display(), other.display()))
}

/// The golden image and a clone that nobody wrote to are as before; a written clone is so where it was not written to.
fn others_are_as_before(context: &Context, node: &Node, golden: &Path) -> Result {
    for name in ["golden.vhdx", "clones\\vm100.vhdx", "clones\\vm999.vhdx"] {
        same_file(golden, &get(context, node, name)?)?;
    }
    let expected = std::fs::read(golden)?;
    let written = |at: usize, from: usize, len: usize| (from << 20..(from << 20) + len).contains(&at);
    for n in [0, WRITTEN / 2, WRITTEN - 1] {
        let got = std::fs::read(get(context, node, &format!("clones\\vm{n}.vhdx"))?)?;
        ensure(got.len() == expected.len(), || format!("clone {n} has {} bytes", got.len()))?;
        let mut changed = 0;
        for (index, (block, old)) in got.chunks(4096).zip(expected.chunks(4096)).enumerate() {
            let at = index * 4096;
            let iscsi = n >= WRITTEN - LUNS && written(at, 32, 128 << 10);
            if block != old {
                ensure(iscsi || written(at, 16, 1 << 20), || format!("clone {n} changed at byte {at}"))?;
                changed += 1;
            }
        }
        ensure(changed > 0, || format!("clone {n} is as before"))?;
    }
    Ok(())
}

/// The same with a run of the CLI for each clone.
fn by_hand(node: &Node, start: u64) -> Result {
    let volume = node.told("volume");
    let clock = clock();
    for n in 0..CLONES {
        let to = format!("{volume}:{}", place(n));
        node.cli(&["file", "clone", &format!("{volume}:/shares/vmstore/golden.vhdx"), &to])?;
    }
    let cloned = clock.elapsed();
    for n in 0..CLONES {
        node.cli(&["file", "rm", &format!("{volume}:{}", place(n))])?;
    }
    let both = clock.elapsed();
    Deadline::after(FREED).poll("the space", || Ok((used(node)? <= start).then_some(())))?;
    crate::note!(
        "     with the CLI: {CLONES} clones in {:.1} s, deleted in {:.1} s",
        cloned.as_secs_f64(),
        (both - cloned).as_secs_f64()
    );
    Ok(())
}
