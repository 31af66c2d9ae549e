//! Limits of storage QoS as QEMU's iSCSI client meets them: set, changed, taken away and lost while I/O runs, and after kill -9.
//!
//! Bounds are wide, as clients, node and other tests share the machine: that limits are exact is for property tests of the
//! scheduler and for measurements.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Context, Server};
use crate::node::{Node, Options};
use crate::process::{Deadline, Running, command, need, run as run_program};
use crate::{Outcome, Result, ensure};

/// A load that a limit of [`IOPS`] lets end in five seconds.
const REQUESTS: u64 = 2500;
const IOPS: u64 = 500;
/// A load that such a limit holds back for two minutes.
const LONG: u64 = 60_000;
/// Time for either without that limit, on a busy machine.
const LIMIT: Duration = Duration::from_secs(100);
const POLICY: &str = "11111111-2222-3333-4444-555555555555";

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-img", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    let lun = node.told("lun");
    nonsense_is_refused(node, &lun)?;

    // The example of seed 003, the names of its words as they are there.
    let create = ["qos", "policy", "create", "gold", "--type", "MultiInstance", "--guid", POLICY];
    let numbers = ["--MinimumIops", "250", "--MaximumIops", "500", "--MaximumIOBandwidth", "100M"];
    node.cli(&[&create[..], &numbers[..]].concat())?;
    node.cli(&["qos", "assign", "gold", "--lun", &lun])?;
    small_requests_meet_the_iops(node, context, &url)?;

    // Large ones meet the bandwidth: 40 MiB at 10 MiB a second, with an allowance of a fiftieth of a second.
    node.cli(&["qos", "policy", "set", "gold", "--max-iops", "none", "--min-iops", "none"])?;
    node.cli(&["qos", "policy", "set", "gold", "--max-bandwidth", "10M"])?;
    // QEMU asks for blocks that hold nothing without reading them, so these are writes.
    let seconds = bench(qemu(&url, 40, "1048576").arg("-w"))?;
    ensure(seconds >= 2.0, || format!("40 MiB at 10 MiB a second took {seconds} s"))?;

    // It outlives kill -9.
    node.cli(&["qos", "policy", "set", "gold", "--max-iops", "500", "--max-bandwidth", "none"])?;
    node.crash_and_restart()?;
    let policies = node.json(&["qos", "policy", "list"])?;
    let gold = &policies["items"][0];
    let kept = gold["guid"] == POLICY && gold["max_iops"] == IOPS && gold["luns"][0] == lun.as_str();
    ensure(kept, || format!("after kill -9: {policies}"))?;
    slow_enough(bench(&mut qemu(&url, REQUESTS, "4096"))?)?;

    // Removed under load: first refused, as it is in use, then the LUN is without limits.
    let mut load = Load::start(context, &url)?;
    wait_for_flow(node, "held back", |flow| flow["waiting"].as_u64() > Some(0))?;
    refused(node, &["qos", "policy", "remove", "gold"], "is given to")?;
    node.cli(&["qos", "policy", "remove", "gold", "--force"])?;
    wait_for_flow(node, "without its policy", |flow| {
        flow["status"] == "UnknownPolicyId" && flow["policy_guid"] == POLICY && flow["max_iops"].is_null()
    })?;
    load.ends()?;
    node.cli(&["qos", "unassign", "--lun", &lun])?;
    refused(node, &["qos", "unassign", "--lun", &lun], "has no policy")?;

    // An aggregated policy limits too, and is taken away under load.
    node.cli(&["qos", "policy", "create", "all", "--type", "aggregated", "--max-iops", "500"])?;
    node.cli(&["qos", "assign", "all", "--lun", &lun])?;
    slow_enough(bench(&mut qemu(&url, REQUESTS, "4096"))?)?;
    let mut load = Load::start(context, &url)?;
    wait_for_flow(node, "held back", |flow| flow["waiting"].as_u64() > Some(0))?;
    node.cli(&["qos", "unassign", "all", "--lun", &lun])?;
    load.ends()?;
    server.finish()
}

fn nonsense_is_refused(node: &Node, lun: &str) -> Result {
    let create = ["qos", "policy", "create", "bad"];
    for (numbers, why) in [
        (&["--min-iops", "501", "--max-iops", "500"][..], "above its maximum"),
        (&["--max-iops", "0"], "use `none`"),
        (&["--max-iops=-1"], "invalid"),
        (&["--max-iops", "1000000001"], "highest"),
        (&["--max-iops", "7"], "below 8"),
        (&["--max-bandwidth", "1k"], "waits"),
        (&["--guid", "00000000-0000-0000-0000-000000000000"], "zeros"),
        (&["--type", "both"], "dedicated"),
    ] {
        refused(node, &[&create[..], numbers].concat(), why)?;
    }
    refused(node, &["qos", "policy", "create", POLICY], "GUID")?;
    refused(node, &["qos", "assign", "nobody", "--lun", lun], "no policy nobody")?;
    refused(node, &["qos", "policy", "set", "nobody", "--max-iops", "50"], "no policy nobody")?;
    refused(node, &["qos", "set", "--unit-bytes", "1"], "unit_bytes")?;
    refused(node, &["qos", "set", "--latency-target", "5"], "not a time")?;
    refused(node, &["qos", "set", "--latency-target", "11s"], "latency_target_us")?;
    let target = |is: u64| {
        let shown = node.json(&["qos", "show"])?;
        let target = shown["latency_target_us"].as_u64().unwrap_or_default();
        ensure(target == is, || format!("a latency target of {is} µs: {shown}"))
    };
    node.cli(&["qos", "set", "--latency-target", "5ms"])?;
    target(5000)?;
    node.cli(&["qos", "set", "--latency-target", "auto"])?;
    target(0)?;
    node.cli(&["qos", "policy", "create", "fine", "--max-iops", "50"])?;
    refused(node, &["qos", "policy", "create", "FINE"], "FINE already")?;
    refused(node, &["qos", "assign", "fine", "--lun", "nowhere"], "no LUN nowhere")?;
    node.cli(&["qos", "policy", "remove", "fine"])?;
    Ok(())
}

fn small_requests_meet_the_iops(node: &Node, context: &Context, url: &str) -> Result {
    slow_enough(bench(&mut qemu(url, REQUESTS, "4096"))?)?;
    // A change is felt by what waits: without it the load would go on for minutes.
    let mut load = Load::start(context, url)?;
    wait_for_flow(node, "held back", |flow| {
        flow["waiting"].as_u64() > Some(0)
            && flow["policy"] == "gold"
            && flow["max_iops"] == IOPS
            && flow["held_us"].as_u64() > flow["disk_us"].as_u64()
            && flow["normalized_iops"].as_u64().is_some_and(|iops| iops <= 2 * IOPS)
    })?;
    let volumes = node.json(&["qos", "volume", "list"])?;
    let volume = &volumes["items"][0];
    let shown = volume["promised"] == 250 && volume["flows"] == 1 && volume["used"].as_u64() > Some(0);
    ensure(shown && volume["depth"].as_u64() > Some(0), || format!("the volume of the flow: {volumes}"))?;
    node.cli(&["qos", "policy", "set", "gold", "--max-iops", "100000000", "--max-bandwidth", "none"])?;
    load.ends()?;
    node.cli(&["qos", "policy", "set", "gold", "--max-iops", "500"])?;
    Ok(())
}

fn slow_enough(seconds: f64) -> Result {
    let least = REQUESTS as f64 / IOPS as f64 / 2.0;
    ensure(seconds >= least, || format!("{REQUESTS} requests at {IOPS} a second took {seconds} s"))
}

/// So many reads of so many bytes, 16 at a time.
fn qemu(url: &str, requests: u64, bytes: &str) -> Command {
    let mut bench = command("qemu-img");
    bench.args(["bench", "-f", "raw", "-t", "none", "-d", "16", "-s", bytes, "-c"]);
    bench.arg(requests.to_string()).arg(url);
    bench
}

/// How many seconds a load took.
fn bench(load: &mut Command) -> Result<f64> {
    let said = run_program(LIMIT, load)?.ok("qemu-img bench")?;
    let seconds = said.split("completed in ").nth(1).and_then(|rest| rest.split(' ').next());
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    seconds.ok_or_else(|| format!("qemu-img bench: {said}").into())
}

/// A load that goes on beside.
struct Load(Running);

impl Load {
    fn start(context: &Context, url: &str) -> Result<Self> {
        let log = context.folder.join("bench.log");
        Ok(Self(Running::start("qemu-img bench", qemu(url, LONG, "4096"), &log)?))
    }

    fn ends(&mut self) -> Result {
        let status = self.0.wait(Deadline::after(LIMIT))?;
        ensure(status.success(), || format!("qemu-img bench: {status}"))
    }
}

/// Waits until a flow is as it should be.
pub(super) fn wait_for_flow(node: &Node, what: &str, is: impl Fn(&Value) -> bool) -> Result {
    let mut last = Value::Null;
    let seen = Deadline::after(Duration::from_secs(60)).poll(what, || {
        last = node.json(&["qos", "flow", "list"])?;
        let flows = last["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(flows.iter().any(&is).then_some(()))
    });
    seen.map_err(|why| Outcome::Fail(format!("the flow is not {what}: {last}: {why:?}")))
}

fn refused(node: &Node, arguments: &[&str], why: &str) -> Result {
    match node.cli(arguments) {
        Ok(output) => Err(Outcome::Fail(format!("holdfast {} is accepted: {output}", arguments.join(" ")))),
        Err(Outcome::Fail(said)) if said.contains(why) => Ok(()),
        Err(other) => Err(other),
    }
}
