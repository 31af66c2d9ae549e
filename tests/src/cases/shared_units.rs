//! Two nodes reach the disks of one pool, which are LUNs of a third: `pool import` on the second takes the pool from the first while
//! that runs. The first is fenced: it stops the pool, says whose it is, does not take it back by itself, not even when it starts anew, and
//! nothing that it writes arrives. When it is asked to, it gets it back the same way. LUNs that go away come back by themselves.

use std::time::Duration;

use super::Context;
use super::rot::pattern;
use crate::node::{Node, Options};
use crate::process::Deadline;
use crate::{Outcome, Result, ensure};

const POOL: &str = "shared";
const VOLUME: &str = "data";
const UNITS: usize = 3;
/// A node notices what became of its disks.
const NOTICED: Duration = Duration::from_secs(60);
/// Disks are back, and everything on them serves.
const BACK: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs nodes of its own".into()));
    }
    let start = |name: &str, chap: bool| -> Result<Node> {
        let folder = context.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        Node::start(&folder, Options { chap, ..Options::default() })
    };
    let (mut target, mut one, mut two) = (start("target", true)?, start("one", false)?, start("two", false)?);
    // Sessions end when a node takes over and when the target is killed.
    target.expect_log("session");
    target.expect_log("connection");
    let units = (0..UNITS).map(|number| unit(&target, number)).collect::<Result<Vec<_>>>()?;
    let units: Vec<&str> = units.iter().map(String::as_str).collect();

    // Without the secret nobody gets in, and is told what is missing.
    let refused = one.cli(&[&["pool", "create", POOL], &units[..]].concat());
    let why = refused.map_or_else(|error| error.to_string(), |_| String::new());
    ensure(why.contains(&target.ready().iqn) && why.contains("login"), || {
        format!("not told of CHAP: {why}")
    })?;
    for node in [&one, &two] {
        log_in(node, &target, &units)?;
    }

    one.cli(&[&["pool", "create", POOL], &units[..]].concat())?;
    one.cli(&["volume", "create", VOLUME, "--pool", POOL, "--resiliency", "mirror2", "--size", "2G"])?;
    let content = pattern(if context.full { 256 } else { 24 } << 20);
    let file = context.folder.join("file");
    std::fs::write(&file, &content)?;
    let file = file.to_string_lossy().into_owned();
    one.cli(&["file", "put", &file, &format!("{VOLUME}:/before")])?;
    same(context, &one, "before", &content)?;

    // Another node sees whose they are, and does not take them by looking.
    Deadline::after(NOTICED).poll("that the second node sees the pool", || {
        let shown = two.json(&["disk", "list"])?["items"].as_array().cloned().unwrap_or_default();
        let of_pool = shown.iter().filter(|disk| disk["pool"] == POOL && disk["state"] == "other-pool");
        Ok((of_pool.count() == UNITS).then_some(()))
    })?;
    same(context, &one, "before", &content)?;

    take_over(&mut one, &two, &units)?;
    same(context, &two, "before", &content)?;
    two.cli(&["file", "put", &file, &format!("{VOLUME}:/by-two")])?;
    fenced(&one, &file)?;
    same(context, &two, "by-two", &content)?;

    // Neither does a new start bring it back.
    one.stop()?;
    one.start_again()?;
    fenced(&one, &file)?;
    two.cli(&["file", "put", &file, &format!("{VOLUME}:/later")])?;
    for name in ["before", "by-two", "later"] {
        same(context, &two, name, &content)?;
    }
    let listed = two.cli(&["file", "ls", &format!("{VOLUME}:/")])?;
    ensure(!listed.contains("too-late"), || format!("a fenced node has written: {listed}"))?;
    two.cli(&["pool", "check", POOL, "--deep"])?;

    // Back, because it is asked for.
    take_over(&mut two, &one, &units)?;
    for name in ["before", "by-two", "later"] {
        same(context, &one, name, &content)?;
    }
    fenced(&two, &file)?;

    two.finish()?;

    // All of them are away, and then there.
    one.expect_log("");
    target.crash_and_restart()?;
    Deadline::after(BACK).poll("the pool when its disks are back", || {
        let put = one.cli(&["file", "put", &file, &format!("{VOLUME}:/after")]);
        Ok((put.is_ok() && same(context, &one, "after", &content).is_ok()).then_some(()))
    })?;
    same(context, &one, "before", &content)?;
    // A unit that was written to just before the kill counts as lost until it is opened anew and what it missed is copied.
    one.wait_redundant()?;
    one.cli(&["pool", "check", POOL, "--deep"])?;
    one.finish()?;
    target.finish()
}

/// A LUN of the node that stands in for a SAN, as an address.
pub(super) fn unit(target: &Node, number: usize) -> Result<String> {
    let name = format!("unit{number}");
    let size = ["--volume", "vm", "--size", "4G", "--group", "everyone"];
    target.cli(&[&["lun", "create", &name], &size[..]].concat())?;
    let luns = target.json(&["lun", "list"])?["items"].as_array().cloned().unwrap_or_default();
    let shown = luns.into_iter().find(|lun| lun["name"] == name.as_str()).unwrap_or_default();
    let number = shown["map"][0]["number"].as_u64();
    let number = number.ok_or_else(|| Outcome::Fail(format!("the LUN has no number: {shown}")))?;
    Ok(format!("iscsi://{}/{}/{number}", target.ready().portal, target.ready().iqn))
}

/// Puts user and secret for the units into the node's configuration.
fn log_in(node: &Node, target: &Node, units: &[&str]) -> Result {
    let mut config = node.json(&["config", "show"])?;
    let login = serde_json::json!({
        "user": target.told("iscsi_user"), "secret": target.told("iscsi_password"),
    });
    let disks = config["disk"].as_array_mut().ok_or_else(|| Outcome::Fail("no disks in it".into()))?;
    disks.extend(units.iter().map(|id| serde_json::json!({ "id": id, "login": login })));
    node.cli_with(&["config", "apply", "-"], &config.to_string()).map(drop)
}

/// `to` takes the pool from `from`, which runs.
fn take_over(from: &mut Node, to: &Node, units: &[&str]) -> Result {
    for text in [
        "belongs to another owner",
        "has stopped",
        "a volume stops",
        "can't be opened",
        "opened by somebody else",
        "another owner has taken over",
        // What the new owner has written is not what the former one knows: it says so, and reads nothing of it.
        "are not what was written",
        // PREEMPT AND ABORT ends a command of the former owner that is under way without an answer (SAM-5, control mode page, TAS 0):
        // that waits for it until its time is over, and finds its registration gone then.
        "does not carry a command out in the time",
        "does not have our registration any more",
    ] {
        from.expect_log(text);
    }
    let disks: Vec<&str> = units.iter().flat_map(|unit| ["--disk", unit]).collect();
    to.cli(&[&["pool", "import", POOL], &disks[..]].concat())?;
    let shown = to.json(&["pool", "show", POOL])?;
    ensure(shown["state"] == "online", || format!("taken over, and not online: {shown}"))
}

/// The node has lost the pool: it writes nothing, and says so.
fn fenced(node: &Node, file: &str) -> Result {
    let put = node.cli(&["file", "put", file, &format!("{VOLUME}:/too-late")]);
    ensure(put.is_err(), || "a node writes to a pool that is another's".into())?;
    let mut said = String::new();
    let noticed = Deadline::after(NOTICED).poll("that the pool is another node's", || {
        said = node.cli(&["status"]).unwrap_or_else(|error| error.to_string());
        Ok(said.contains("has not let go of it").then_some(()))
    });
    noticed.map_err(|_| Outcome::Fail(format!("the fenced node does not say so:\n{said}")))
}

fn same(context: &Context, node: &Node, name: &str, content: &[u8]) -> Result {
    let got = context.folder.join("got");
    node.cli(&["file", "get", &format!("{VOLUME}:/{name}"), &got.to_string_lossy()])?;
    let same = std::fs::read(&got)? == content;
    std::fs::remove_file(&got)?;
    ensure(same, || format!("{name} is not what it was"))
}
