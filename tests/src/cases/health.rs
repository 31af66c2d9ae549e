//! `holdfast health`: a node with a lost disk and some load, its archive read by another program and by `--from`, and the node down. A secret
//! that was given to the node is nowhere in it.

use serde_json::Value;

use super::Context;
use super::restart::qemu_io;
use crate::node::{Node, Options};
use crate::process::{command, need, run as run_program};
use crate::{Outcome, Result, ensure};
use std::time::Duration;

const READS: Duration = Duration::from_secs(30);
/// What no archive may hold.
const SEEDED: &str = "seeded-secret-4711";
/// Writes every file of an archive out, and says which line of the table of facts has writes.
const READER: &str = "
import csv, io, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
for name in archive.namelist():
    assert sys.argv[2].encode() not in archive.read(name), name
rows = list(csv.DictReader(io.TextIOWrapper(archive.open('samples.csv'))))
assert rows and all(row['Volume'] == 'vm' for row in rows), rows
print(sum(float(row['TotalIOPS']) > 0 for row in rows))
";

/// What does not depend on when it is told.
fn lasting(mut report: Value) -> Value {
    report["source"] = Value::Null;
    report
}

fn summary<'a>(report: &'a Value, section: &str) -> &'a Value {
    let sections = report["sections"].as_array();
    let found = sections.and_then(|sections| sections.iter().find(|each| each["name"] == section));
    found.map_or(&Value::Null, |section| &section["summary"])
}

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-io", "qemu-utils")?;
    need("python3", "python3")?;
    let mut node = Node::start(&context.folder, Options { chap: true, ..Options::default() })?;
    node.expect_log("disk");
    node.cli_with(&["user", "create", "seeded", "--password-stdin"], SEEDED)?;
    let file = context.folder.join("secret");
    std::fs::write(&file, SEEDED)?;
    let secret_file = file.display().to_string();
    let target = "iqn.2026-11.test.holdfast:seeded";
    node.cli(&["target", "create", target, "--chap-user", "u", "--chap-secret-file", &secret_file])?;
    let lost = node.disk(0)?;
    node.cli(&["disk", "fault", &lost, "vanish"])?;
    qemu_io(&node.ready().url, &["write -P 0x5a 0 1M"])?;
    node.wait_reduced()?;

    let archive = context.folder.join("health.zip").display().to_string();
    let page = context.folder.join("health.html").display().to_string();
    let load = std::thread::spawn({
        let url = node.ready().url.clone();
        move || qemu_io(&url, &["write -P 0x5b 0 8M"; 12])
    });
    let report = node.json(&[
        "health",
        "--samples",
        "3",
        "--bundle",
        &archive,
        "--html",
        &page,
        "--expect-disks",
        "4",
        "--expect-luns",
        "2",
    ])?;
    load.join().map_err(|_| Outcome::Fail("the load ended badly".into()))??;
    ensure(report["verdict"] == "reduced" || report["verdict"] == "restoring", || {
        report["verdict"].to_string()
    })?;
    let findings = report["findings"].to_string();
    ensure(findings.contains(&lost) || findings.contains("missing"), || findings.clone())?;
    ensure(findings.contains("2 LUNs expected, 1 found"), || findings.clone())?;
    ensure(!findings.contains("disks expected"), || findings.clone())?;
    ensure(*summary(&report, "disks") == "4 disks, 3 as they should be, 1 not", || report.to_string())?;
    ensure(report["samples"] == 3, || report["samples"].to_string())?;
    let text = std::fs::read_to_string(&page)?;
    ensure(text.contains("<svg") && !text.contains(SEEDED) && !report.to_string().contains(SEEDED), || {
        page.clone()
    })?;

    let mut reader = command("python3");
    let busy = run_program(READS, reader.args(["-c", READER, &archive, SEEDED]))?.ok("the archive")?;
    ensure(busy.trim() != "0", || format!("no second with writes: {busy}"))?;

    node.stop()?;
    // From the archive alone, and told by the same rules.
    let again = node.offline(&["health", "--from", &archive, "--expect-disks", "4", "--expect-luns", "2"])?;
    let again: Value =
        serde_json::from_str(&again.ok("health --from")?).map_err(|error| error.to_string())?;
    ensure(lasting(again["items"][0].clone()) == lasting(report.clone()), || format!("{again}\n{report}"))?;
    // Without the node there is its configuration.
    let down = node.json(&["health", "--expect-disks", "4"])?;
    ensure(down["verdict"] == "unknown" && down["findings"][0]["severity"] == "critical", || {
        down.to_string()
    })?;
    ensure(*summary(&down, "luns") == "1 LUN configured; their state is not known", || down.to_string())?;

    let cut = context.folder.join("cut.zip");
    let whole = std::fs::read(&archive)?;
    std::fs::write(&cut, whole.get(..whole.len() / 2).unwrap_or_default())?;
    let refused = node.offline(&["health", "--from", &cut.display().to_string()])?;
    ensure(!refused.status.success() && refused.errors.contains("no bundle"), || refused.errors.clone())?;
    node.start_again()?;
    node.finish()
}
