//! What DiskSpd does not know, after all of its tables: an early end, errors, the open loop, verification, agents.

use std::fmt::Write as _;

use spd_profile::TimeSpan;

use crate::outcome::{AgentOutcome, SpanOutcome};

pub(crate) fn write(out: &mut String, span: &TimeSpan, measured: &SpanOutcome) {
    if let Some(why) = &measured.ended_early {
        let asked = span.duration;
        let _ = write!(out, "\nEnded early: {why}; {:.2}s of {asked}s were measured.\n", measured.seconds);
    }
    let (read, written) = measured.sum();
    if read.errors + written.errors > 0 {
        let _ = write!(out, "\nErrors\n");
        for (name, operations) in [("read", &read), ("write", &written)] {
            if operations.errors == 0 {
                continue;
            }
            let _ = write!(out, "{name:>6} | {:12}", operations.errors);
            if let Some((at, what)) = &operations.first_error {
                let _ = write!(out, " | first at {at:.3}s: {what}");
            }
            out.push('\n');
        }
    }
    if span.copy && measured.seconds > 0.0 {
        let mib = written.bytes as f64 / 1_048_576.0;
        let _ = write!(
            out,
            "\nCopy\n{mib:.2} MiB copied in {:.3}s: {:.2} MiB/s\n",
            measured.seconds,
            mib / measured.seconds
        );
    }
    agents(out, &measured.agents);
    if let Some(open) = &measured.open_loop {
        let done = (read.count + written.count) as f64 / measured.seconds.max(1e-9);
        let _ = write!(
            out,
            "\nOpen loop\nasked for {} I/O per s, measured {done:.2}; {} of {} began late because all requests were \
             outstanding; {} never began\n",
            open.rate, open.late, open.intended, open.never_begun
        );
    }
    if let Some(verify) = &measured.verify {
        let _ = write!(
            out,
            "\nVerification\n{} blocks checked: {} stale, {} lost, {} misplaced, {} torn; longest stall {:.3} ms\n",
            verify.checked, verify.stale, verify.lost, verify.misplaced, verify.torn, verify.longest_stall_ms
        );
        for finding in &verify.findings {
            let _ = writeln!(out, "  {finding}");
        }
    }
}

/// A row for each machine of several, and below the table why some of them ended early.
fn agents(out: &mut String, agents: &[AgentOutcome]) {
    if agents.is_empty() {
        return;
    }
    let widths = agents.iter().map(|agent| agent.name.chars().count());
    let width = widths.max().unwrap_or(0).max("agent".len());
    let head = format!(
        "{:<width$} |   began (ms)    |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | 99th (ms) |  computer",
        "agent"
    );
    let _ = write!(out, "\nAgents\n{head}\n{}\n", "-".repeat(head.chars().count()));
    for agent in agents {
        let began = match agent.start_ms {
            Some((after, error)) => format!("{after:.3} +-{error:.3}"),
            None => "never".to_owned(),
        };
        let mut total = agent.read.clone();
        total.merge(&agent.write);
        let rate = |number: f64| if agent.seconds > 0.0 { number / agent.seconds } else { 0.0 };
        let _ = writeln!(
            out,
            "{:<width$} | {began:>15} | {:15} | {:12} | {:10.2} | {:10.2} | {:8.3} | {:9.3} | {}",
            agent.name,
            total.bytes,
            total.count,
            rate(total.bytes as f64 / 1_048_576.0),
            rate(total.count as f64),
            total.latency.mean() / 1e6,
            total.latency.percentile(0.99) as f64 / 1e6,
            agent.computer
        );
    }
    for agent in agents {
        if let Some(why) = &agent.ended_early {
            let _ = writeln!(out, "agent {}: {why}", agent.name);
        }
    }
}
