//! Limits of storage QoS as smbclient meets them on files of a share: by share, folder, file and volume, changed and taken away while a
//! transfer goes on, and a client that is killed while it is held back.
//!
//! Bounds are wide, as in the case `qos`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Context;
use crate::node::{Node, Options};
use crate::process::{Deadline, Running, command, need};
use crate::{Outcome, Result, ensure};

/// Bytes of a transfer that [`BANDWIDTH`] lets end in five seconds.
const SHORT: usize = 10 << 20;
const BANDWIDTH: &str = "2M";
/// Bytes of one that it holds back for two minutes.
const LONG: usize = 256 << 20;
/// Time for either without it, on a busy machine.
const LIMIT: Duration = Duration::from_secs(100);

#[expect(
    clippy::disallowed_methods,
    reason = "how long a limit holds a client back is measured in real time"
)]
fn now() -> Instant {
    Instant::now()
}

pub(super) fn run(context: &Context) -> Result {
    need("smbclient", "smbclient")?;
    let node = Node::start(&context.folder, Options::default())?;
    let share = node.told("smb_share");
    let shares = node.json(&["share", "list"])?;
    let row = shares["items"].as_array().into_iter().flatten().find(|row| row["name"] == share.as_str());
    let row = row.ok_or_else(|| Outcome::Fail(format!("no share {share}: {shares}")))?;
    let (volume, folder) = (text(&row["volume"]), text(&row["folder"]));
    let short = made(context, "short", SHORT)?;
    let long = made(context, "long", LONG)?;
    nonsense_is_refused(&node, &volume)?;

    node.cli(&["qos", "policy", "create", "slow", "--max-bandwidth", BANDWIDTH])?;
    let whole_volume = ["--volume", &volume];
    let by_folder = format!("{volume}:{folder}");
    let by_file = format!("{volume}:{}/SLOW", folder.trim_end_matches('/'));
    let subjects =
        [["--share", &share], ["--folder", &by_folder], ["--file", &by_file], whole_volume.map(|word| word)];
    for [option, name] in subjects {
        node.cli(&["qos", "assign", "slow", option, name])?;
        let seconds = put(&node, &short, "slow")?;
        ensure(seconds >= 2.0, || {
            format!("{option} {name}: {SHORT} bytes at {BANDWIDTH} a second took {seconds} s")
        })?;
        node.cli(&["qos", "unassign", "slow", option, name])?;
        refused(&node, &["qos", "unassign", option, name], "has no policy")?;
    }
    let got = context.folder.join("got");
    node.cli(&["qos", "assign", "slow", "--share", &share])?;
    let began = now();
    node.smbclient(&format!("get slow {}", got.display()))?.ok("get")?;
    let seconds = began.elapsed().as_secs_f64();
    ensure(seconds >= 2.0, || format!("reading it took {seconds} s"))?;
    ensure(std::fs::read(&short)? == std::fs::read(&got)?, || "the file came back changed".into())?;

    // Changed under load: without that it would go on for minutes.
    let mut load = Running::start("smbclient", putting(&node, &long, "long"), &context.folder.join("1.log"))?;
    wait_for_flow(&node, "held back", |flow| {
        flow["policy"] == "slow" && flow["waiting"].as_u64() > Some(0) && flow["protocol"] == "smb"
    })?;
    node.cli(&["qos", "policy", "set", "slow", "--max-bandwidth", "10G"])?;
    ends(&mut load)?;
    node.cli(&["qos", "policy", "set", "slow", "--max-bandwidth", BANDWIDTH])?;

    // Removed under load, at another place.
    let mut load = Running::start("smbclient", putting(&node, &long, "long"), &context.folder.join("2.log"))?;
    wait_for_flow(&node, "held back again", |flow| flow["waiting"].as_u64() > Some(0))?;
    refused(&node, &["qos", "policy", "remove", "slow"], "is given to")?;
    node.cli(&["qos", "policy", "remove", "slow", "--force"])?;
    wait_for_flow(&node, "without its policy", |flow| flow["status"] == "UnknownPolicyId")?;
    ends(&mut load)?;
    node.cli(&["qos", "unassign", "--share", &share])?;

    // Killed while it is held back: nothing of it is left, and the next one is not held up by it.
    node.cli(&["qos", "policy", "create", "crawl", "--max-bandwidth", "64k"])?;
    node.cli(&["qos", "assign", "crawl", "--share", &share])?;
    let load = Running::start("smbclient", putting(&node, &long, "killed"), &context.folder.join("3.log"))?;
    wait_for_flow(&node, "held back at last", |flow| flow["waiting"].as_u64() > Some(0))?;
    drop(load);
    no_flows(&node)?;
    node.cli(&["qos", "unassign", "--share", &share])?;
    put(&node, &short, "after")?;
    node.smbclient(&format!("get after {}", got.display()))?.ok("get")?;
    ensure(std::fs::read(&short)? == std::fs::read(&got)?, || "the last file came back changed".into())?;
    node.finish()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn made(context: &Context, name: &str, bytes: usize) -> Result<PathBuf> {
    let path = context.folder.join(name);
    let content: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&path, content)?;
    Ok(path)
}

fn nonsense_is_refused(node: &Node, volume: &str) -> Result {
    node.cli(&["qos", "policy", "create", "fine", "--max-iops", "50"])?;
    for (subject, why) in [
        (&["--share", "nowhere"][..], "no share nowhere"),
        (&["--volume", "nowhere"], "no volume nowhere"),
        (&["--file", "nothing"], "VOLUME:/PATH"),
        (&["--file", &format!("{volume}:/a/../b")], "not a path"),
        (&["--folder", &format!("{volume}:/a//b")], "not a path"),
        (&["--share", "a", "--volume", "b"], "cannot be used with"),
        (&[], "required"),
    ] {
        refused(node, &[&["qos", "assign", "fine"], subject].concat(), why)?;
    }
    node.cli(&["qos", "policy", "remove", "fine"])?;
    Ok(())
}

fn putting(node: &Node, file: &Path, name: &str) -> Command {
    let address = node.told("smb_address");
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
    let mut client = command("smbclient");
    client.args(["-p", port, "-U", &format!("{}%{}", node.told("smb_user"), node.told("smb_password"))]);
    client.arg(format!("//{host}/{}", node.told("smb_share")));
    client.args(["-c", &format!("put {} {name}", file.display())]);
    client
}

/// How many seconds it took.
fn put(node: &Node, file: &Path, name: &str) -> Result<f64> {
    let began = now();
    node.smbclient(&format!("put {} {name}", file.display()))?.ok("put")?;
    Ok(began.elapsed().as_secs_f64())
}

fn ends(load: &mut Running) -> Result {
    let status = load.wait(Deadline::after(LIMIT))?;
    ensure(status.success(), || format!("smbclient: {status}"))
}

fn flows(node: &Node) -> Result<Vec<Value>> {
    let flows = node.json(&["qos", "flow", "list"])?;
    Ok(flows["items"].as_array().cloned().unwrap_or_default())
}

fn wait_for_flow(node: &Node, what: &str, is: impl Fn(&Value) -> bool) -> Result {
    let mut last = Vec::new();
    let seen = Deadline::after(Duration::from_secs(60)).poll(what, || {
        last = flows(node)?;
        Ok(last.iter().any(&is).then_some(()))
    });
    seen.map_err(|why| Outcome::Fail(format!("no flow is {what}: {last:?}: {why:?}")))
}

fn no_flows(node: &Node) -> Result {
    let gone = || Ok(flows(node)?.iter().all(|flow| flow["protocol"] != "smb").then_some(()));
    Deadline::after(Duration::from_secs(60)).poll("the flow of a client that is gone ends", gone)
}

fn refused(node: &Node, arguments: &[&str], why: &str) -> Result {
    match node.cli(arguments) {
        Ok(output) => Err(Outcome::Fail(format!("holdfast {} is accepted: {output}", arguments.join(" ")))),
        Err(Outcome::Fail(said)) if said.contains(why) => Ok(()),
        Err(other) => Err(other),
    }
}
