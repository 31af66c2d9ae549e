//! Snapshots as people use them: previous versions over SMB, a disk's difference sent elsewhere, a clone of a LUN beside
//! its source, schedules, and deletion across a kill.

use std::time::Duration;

use serde_json::Value;

use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// One run of iscsi-inq.
const LIMIT: Duration = Duration::from_secs(60);
/// How late a scheduled snapshot may be.
const SCHEDULED: Duration = Duration::from_secs(60);
/// The demo's LUN, a file of its volume.
const DISK: &str = "/luns/disk1";

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    need("smbclient", "smbclient")?;
    need("iscsi-inq", "libiscsi-bin")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    previous_versions(context, node)?;
    differences(context, node, &url)?;
    clone_of_a_lun(node, &url)?;
    schedule(node)?;
    deletion(node)?;
    server.finish()
}

fn items(value: &Value) -> Vec<Value> {
    value.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// A file of a share as it was: listed by `allinfo`, read by its time, and not changed by anybody.
fn previous_versions(context: &Context, node: &Node) -> Result {
    let volume = node.told("volume");
    let file = |name: &str, content: &str| -> Result<String> {
        let path = context.folder.join(name);
        std::fs::write(&path, content)?;
        Ok(path.to_string_lossy().into_owned())
    };
    let (first, second) = (file("first", "as it was")?, file("second", "as it is now")?);
    node.smbclient(&format!("mkdir dir; cd dir; put {first} f"))?.ok("put")?;
    node.cli(&["snapshot", "create", &format!("{volume}:"), "versions"])?;
    node.smbclient(&format!("cd dir; put {second} f; put {second} new"))?.ok("put again")?;
    let said = node.smbclient("allinfo dir/f")?.ok("allinfo")?;
    let token = said.lines().map(str::trim).find(|line| line.starts_with("@GMT-"));
    let Some(token) = token.map(str::to_owned) else {
        return ensure(false, || format!("allinfo shows no previous version:\n{said}"));
    };
    let got = context.folder.join("got");
    let get = |path: &str| node.smbclient(&format!("get {path} {}", got.display()));
    get(&format!("{token}\\dir\\f"))?.ok("get of a previous version")?;
    ensure(std::fs::read_to_string(&got)? == "as it was", || "the previous version is another".into())?;
    get("dir\\f")?.ok("get")?;
    ensure(std::fs::read_to_string(&got)? == "as it is now", || "the file itself has changed".into())?;
    let listed = node.smbclient(&format!("ls {token}\\dir\\*"))?.ok("ls of a previous version")?;
    ensure(!listed.contains("new"), || format!("a previous version has what came later:\n{listed}"))?;
    for commands in [format!("put {second} {token}\\dir\\f"), format!("del {token}\\dir\\f")] {
        let said = node.smbclient(&commands)?;
        let all = format!("{}{}", said.output, said.errors);
        ensure(all.contains("NT_STATUS"), || format!("{commands}: a previous version was changed:\n{all}"))?;
    }
    get(&format!("{token}\\dir\\f"))?.ok("get of a previous version")?;
    ensure(std::fs::read_to_string(&got)? == "as it was", || "the previous version has changed".into())
}

fn get(context: &Context, node: &Node, place: &str, name: &str) -> Result<Vec<u8>> {
    let to = context.folder.join(name);
    node.cli(&["file", "get", place, &to.to_string_lossy()])?;
    Ok(std::fs::read(&to)?)
}

/// What a disk became is made of what it was and of what differs.
fn differences(context: &Context, node: &Node, url: &str) -> Result {
    let volume = node.told("volume");
    let small = format!("{volume}:/small");
    // The disk is large: a copy of its beginning will do for comparing, the stream has all that differs.
    qemu_io(url, &["write -P 0x11 0 8M", "write -P 0x12 1G 1M", "flush"])?;
    node.cli(&["snapshot", "create", &format!("{volume}:{DISK}"), "before", "--quiesce"])?;
    qemu_io(url, &["write -P 0x21 3M 70000", "write -P 0x22 6G 128k", "discard 1G 1M", "flush"])?;
    node.cli(&["snapshot", "create", &format!("{volume}:{DISK}"), "after"])?;
    let stream = context.folder.join("stream").to_string_lossy().into_owned();
    let [before, after, copy] = ["@before", "@after", "/copy"].map(|path| format!("{volume}:{path}"));
    node.cli(&["snapshot", "diff", &before, &after, "--output", &stream])?;
    let length = std::fs::metadata(&stream)?.len();
    ensure(length < 2 << 20, || format!("the stream has {length} bytes for little that differs"))?;
    node.cli(&["snapshot", "apply", &stream, "--onto", &before, "--to", &copy])?;
    let none = context.folder.join("none").to_string_lossy().into_owned();
    node.cli(&["snapshot", "diff", &copy, &after, "--output", &none])?;
    let same = |from: &str, len: &str| -> Result {
        let read = |place: &str, name: &str| -> Result<Vec<u8>> {
            let to = context.folder.join(name);
            node.cli(&["file", "get", place, &to.to_string_lossy(), "--offset", from, "--len", len])?;
            Ok(std::fs::read(to)?)
        };
        let equal = read(&copy, "a")? == read(&after, "b")?;
        ensure(equal, || format!("the copy differs from the snapshot in {len} from {from}"))
    };
    same("0", "16M")?;
    same("1G", "2M")?;
    same("6G", "1M")?;
    // A damaged stream leaves nothing.
    let mut bytes = std::fs::read(&stream)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = context.folder.join("damaged");
    std::fs::write(&damaged, bytes)?;
    let second = format!("{volume}:/second");
    let refused =
        node.cli(&["snapshot", "apply", &damaged.to_string_lossy(), "--onto", &before, "--to", &second]);
    ensure(refused.is_err(), || "a damaged stream is applied".into())?;
    let names = items(&node.json(&["file", "ls", &format!("{volume}:/")])?);
    let left = names.iter().any(|entry| {
        entry["name"] == "second" || entry["name"].as_str().unwrap_or_default().starts_with(".apply")
    });
    ensure(!left, || format!("a damaged stream leaves something behind: {names:?}"))?;
    // Small files byte for byte, from a tree.
    let small_file = context.folder.join("small");
    std::fs::write(&small_file, "1")?;
    node.cli(&["file", "put", &small_file.to_string_lossy(), &small])?;
    ensure(get(context, node, &small, "small-again")? == b"1", || "a small file is another".into())
}

/// The LUN that the clone is given.
fn second_lun(url: &str) -> String {
    format!("{}/7", url.rsplit_once('/').map_or(url, |(target, _)| target))
}

/// A clone of a LUN's file is another disk: both can be attached, and each keeps its own.
fn clone_of_a_lun(node: &Node, url: &str) -> Result {
    let volume = node.told("volume");
    let clone = format!("{volume}:/luns/clone");
    node.cli(&["snapshot", "clone", &format!("{volume}:@before"), &clone])?;
    node.cli(&["lun", "create", "clone", "--volume", &volume, "--path", "/luns/clone"])?;
    let target = node.ready().iqn.clone();
    let groups = items(&node.json(&["lun", "list"])?);
    let group = groups.iter().find_map(|lun| lun["map"][0]["group"].as_str().map(str::to_owned));
    let group = group.unwrap_or_default();
    node.cli(&["lun", "map", "clone", "--target", &target, "--number", "7", "--group", &group])?;
    let luns = items(&node.json(&["lun", "list"])?);
    let identities: Vec<&str> = luns.iter().filter_map(|lun| lun["guid"].as_str()).collect();
    let different = identities.len() == 2 && identities[0] != identities[1];
    ensure(different, || format!("the clone has its source's identity: {luns:?}"))?;
    let second = second_lun(url);
    for page in ["128", "131"] {
        let said = |url: &str| {
            let mut inquiry = command("iscsi-inq");
            inquiry.args(["--evpd=1", &format!("--pagecode={page}"), url]);
            run_program(LIMIT, &inquiry)?.ok("iscsi-inq")
        };
        let (one, other) = (said(url)?, said(&second)?);
        ensure(one != other, || format!("VPD page {page} is the same of both:\n{one}"))?;
    }
    qemu_io(&second, &["read -P 0x11 0 8M", "write -P 0x33 0 1M", "flush"])?;
    qemu_io(url, &["read -P 0x11 0 1M", "read -P 0x21 3M 70000"])?;
    qemu_io(&second, &["read -P 0x33 0 1M", "read -P 0x11 1M 7M"])
}

fn names(node: &Node) -> Result<Vec<String>> {
    let list = items(&node.json(&["snapshot", "list", &node.told("volume"), "--no-sizes"])?);
    Ok(list.iter().filter_map(|snapshot| snapshot["name"].as_str().map(str::to_owned)).collect())
}

fn schedule(node: &Node) -> Result {
    let place = format!("{}:/luns", node.told("volume"));
    node.cli(&["snapshot", "schedule", "set", &place, "often", "--hourly", "2"])?;
    Deadline::after(SCHEDULED).poll("a scheduled snapshot", || {
        Ok(names(node)?.iter().any(|name| name.starts_with("often-")).then_some(()))
    })?;
    node.cli(&["snapshot", "schedule", "delete", &node.told("volume"), "often", "--yes"])?;
    Ok(())
}

/// What was deleted does not come back, what was not is there, and everything is sound.
fn deletion(node: &mut Node) -> Result {
    let volume = node.told("volume");
    for name in names(node)? {
        if name != "after" {
            node.cli(&["snapshot", "delete", &volume, &name, "--yes"])?;
        }
    }
    node.crash_and_restart()?;
    let left = names(node)?;
    ensure(left == ["after"], || format!("after the kill there are {left:?}"))?;
    node.cli(&["volume", "check", &volume])?;
    Ok(())
}
