//! `holdfast status`.

use control_api::{Issue, Status};
use shard_runtime::{Clock as _, SystemClock};

use crate::context::Context;
use crate::error::CliResult;
use crate::finding::mark;
use crate::job;
use crate::units::{bytes, many, seconds, time};

/// Is all data as redundant as promised? What is wrong, and what to do.
///
/// Exit code: 0 when the node has answered, whatever it says; 1 when it could not be asked. Programs look at `verdict` of `--json`:
/// fully-redundant, restoring, reduced, unavailable or empty; and at the `severity` of each of its `issues`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Seconds from which on it is worth a line how long something has been so.
const A_WHILE: u64 = 60;

pub(crate) async fn run(_: Args, context: &Context) -> CliResult {
    let status: Status = context.client.get("/status").await?;
    context.show(&status, print)
}

/// Since when it is so, where that is a while, and who knows of it.
fn known(issue: &Issue, now: u64) -> Option<String> {
    let age = issue.since.map(|since| now.saturating_sub(since)).filter(|age| *age >= A_WHILE);
    let since = age.map(|age| format!("since {}", seconds(age)));
    let who = issue.acknowledged.as_ref().map(|known| {
        let note = if known.note.is_empty() { String::new() } else { format!(": {}", known.note) };
        format!("acknowledged by {}, {} UTC{note}", known.by, time(known.time))
    });
    let all: Vec<String> = since.into_iter().chain(who).collect();
    (!all.is_empty()).then(|| format!("({})", all.join("; ")))
}

fn print(status: &Status) {
    if let Some(cluster) = &status.cluster {
        crate::cluster::print_summary(cluster);
        outln!();
    }
    outln!("{}", status.summary);
    let now = SystemClock::new().wall().0 / 1_000_000_000;
    for issue in &status.issues {
        outln!("\n{:>8}  {}: {}", mark(issue.severity), issue.subject, issue.detail);
        if !issue.todo.is_empty() {
            outln!("          -> {}", issue.todo);
        }
        // What is new needs no age.
        if let Some(known) = known(issue, now) {
            outln!("          {known}");
        }
    }
    if !status.jobs.is_empty() {
        outln!();
        status.jobs.iter().for_each(|job| outln!("{}", job::line(job)));
    }
    let counts = &status.counts;
    let without = status.not_counted.len() as u64;
    let pools = match without {
        0 => many(counts.pools, "pool"),
        _ => format!("{} of {}", counts.pools.saturating_sub(without), many(counts.pools, "pool")),
    };
    outln!(
        "\n{} of {} free in {pools}; {}, {}, {} ({} online), {} ({} online), {}",
        bytes(status.free_bytes),
        bytes(status.capacity_bytes),
        many(counts.disks, "disk"),
        many(counts.volumes, "volume"),
        many(counts.luns, "LUN"),
        counts.luns_online,
        many(counts.shares, "share"),
        counts.shares_online,
        many(counts.sessions, "session"),
    );
    if without > 0 {
        let told = status.not_counted.iter().map(|pool| format!("{} ({})", pool.pool, pool.why));
        outln!("These figures are without {}.", told.collect::<Vec<_>>().join(", "));
    }
    let memory = &status.request_memory;
    if memory.waits > 0 || memory.ended > 0 {
        outln!(
            "requests under way hold {} of {} of memory, images {} of it; {} waiting for some, {} since the start; {} ended for want of it",
            bytes(memory.used_bytes),
            bytes(memory.limit_bytes),
            bytes(memory.images_bytes),
            many(memory.waiting, "connection"),
            many(memory.waits, "wait"),
            many(memory.ended, "connection"),
        );
    }
    outln!(
        "node {}, Holdfast {}, up {}, disk I/O by {}{}",
        status.node,
        status.version,
        seconds(status.uptime_seconds),
        status.io_engine,
        if status.ready { "" } else { ", still starting" }
    );
}
