//! Progress of long work: a bar with the time left on a terminal, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use control_api::{Job, JobState};
use control_client::Client;
use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{CliError, CliResult};

/// How often a job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A bar over `total` bytes, shown on a terminal only.
pub(crate) fn bar(total: u64, what: &str, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left";
    ProgressBar::new(total)
        .with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what.to_owned())
}

/// A bar over steps that take about as long each, shown on a terminal only.
pub(crate) fn steps(total: u64, quiet: bool) -> ProgressBar {
    let bar = bar(total, "", quiet);
    let style = "{wide_bar} {pos}/{len} {eta} left  {msg}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// How a job ended that did not do what it was for.
fn ended(job: &Job) -> String {
    let how = if job.state == JobState::Cancelled { "was taken back" } else { "failed" };
    format!("job {} ({} {}) {how}: {}", job.id, crate::table::word(&job.kind), job.subject, job.message)
}

/// Follows a job to its end.
pub(crate) async fn follow(client: &Client, id: &str, quiet: bool) -> CliResult<Job> {
    let mut shown: Option<ProgressBar> = None;
    loop {
        let job: Job = client.get(&format!("/jobs/{id}")).await?;
        let bar = shown.get_or_insert_with(|| bar(job.total_bytes, &job.subject, quiet));
        bar.set_length(job.total_bytes);
        bar.set_position(job.done_bytes);
        match job.state {
            JobState::Running => tokio::time::sleep(LOOK_EVERY).await,
            JobState::Done => {
                bar.finish_and_clear();
                return Ok(job);
            }
            JobState::Failed | JobState::Cancelled => {
                bar.abandon();
                return Err(CliError::here(ended(&job)));
            }
        }
    }
}
