//! `holdfast job …`.

use clap::Subcommand;
use control_api::{Job, OnNode};

use crate::context::Context;
use crate::error::CliResult;
use crate::progress;
use crate::units::{bytes, seconds};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List work under way and what ended lately.
    List,
    /// Show a job.
    Show {
        /// Its number; of another node, as `NODE:NUMBER`.
        #[arg(value_parser = crate::units::numbered)]
        job: String,
    },
    /// Wait until a job has ended, with a progress bar on a terminal.
    Wait {
        /// Its number; of another node, as `NODE:NUMBER`.
        #[arg(value_parser = crate::units::numbered)]
        job: String,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List => {
            context
                .show_list("/jobs", |jobs: &[OnNode<Job>]| {
                    if jobs.is_empty() {
                        outln!("No work is under way.");
                    }
                    for job in jobs {
                        let node = job.node.as_ref().map(|node| format!("node {node}, "));
                        outln!("{}{}", node.unwrap_or_default(), line(job));
                    }
                })
                .await
        }
        Command::Show { job } => {
            let job: Job = context.client.get(&format!("/jobs/{job}")).await?;
            context.show(&job, |job| outln!("{}", line(job)))
        }
        Command::Wait { job } => {
            let job = progress::follow(&context.client, &job, context.json).await?;
            context.show(&job, |job| outln!("{}", line(job)))
        }
    }
}

/// A job on one line.
pub(crate) fn line(job: &Job) -> String {
    let percent = (job.done_bytes.min(job.total_bytes) * 100).checked_div(job.total_bytes).unwrap_or(100);
    let kind = crate::table::word(&job.kind);
    let state = crate::table::word(&job.state);
    let mut line = format!(
        "job {} {kind} {}: {state}, {percent} % ({} of {})",
        job.id,
        job.subject,
        bytes(job.done_bytes),
        bytes(job.total_bytes)
    );
    if job.bytes_per_second > 0 {
        line.push_str(&format!(", {}/s", bytes(job.bytes_per_second)));
    }
    if let Some(eta) = job.eta_seconds {
        line.push_str(&format!(", {} left", seconds(eta)));
    }
    if !job.message.is_empty() {
        line.push_str(&format!(". {}", job.message));
    }
    line
}
