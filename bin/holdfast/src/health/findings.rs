//! `holdfast health list`, `ack`, `unack`: findings, since when they are there, and who knows of them.

use clap::{Subcommand, ValueEnum};
use control_api::{Acknowledge, Finding, FindingState, OnNode};
use control_client::segment;
use shard_runtime::{Clock as _, SystemClock};

use crate::context::Context;
use crate::error::CliResult;
use crate::finding::{Least, mark};
use crate::table::Table;
use crate::units::{seconds, time};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List what is not as it should be, since when, how often it has come, and who knows of it.
    List {
        /// Which: those that are there, those that have gone within thirty days, or both.
        #[arg(long, value_enum, default_value_t = State::Active)]
        state: State,
        /// Only those that are at least so bad.
        #[arg(long, value_enum)]
        severity: Option<Least>,
        /// Only those of this rule, as disk-missing.
        #[arg(long, value_name = "CODE")]
        code: Option<String>,
        /// At most so many, the worst.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Say that you know of a finding: it comes last, and does not make the first line of the status worse, until it clears or gets worse.
    Ack {
        /// Its id, as `holdfast health list` shows it.
        id: String,
        /// What others should know of it.
        #[arg(long, default_value = "")]
        note: String,
    },
    /// Take that back.
    Unack {
        /// Its id.
        id: String,
    },
}

/// Which findings.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum State {
    /// Those that are there.
    Active,
    /// Those that have gone.
    Cleared,
    /// Both.
    All,
}

fn path(state: State, severity: Option<Least>, code: Option<&str>, limit: Option<usize>) -> String {
    let word = |value: &dyn ValueName| value.name();
    let mut path = format!("/findings?state={}", word(&state));
    if let Some(severity) = severity {
        path.push_str(&format!("&severity={}", word(&severity)));
    }
    if let Some(code) = code {
        path.push_str(&format!("&code={}", segment(code)));
    }
    if let Some(limit) = limit {
        path.push_str(&format!("&limit={limit}"));
    }
    path
}

/// The name that an option's value has for the API as well.
trait ValueName {
    fn name(&self) -> String;
}

impl<T: ValueEnum> ValueName for T {
    fn name(&self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List { state, severity, code, limit } => {
            context.show_list(&path(state, severity, code.as_deref(), limit), print).await
        }
        Command::Ack { id, note } => {
            let path = format!("/findings/{}/acknowledge", segment(&id));
            let finding: Finding = context.client.post(&path, &Acknowledge { note }).await?;
            context.show(&finding, |finding| {
                outln!(
                    "{}: acknowledged, until it clears or gets worse than {}.",
                    finding.subject,
                    mark(finding.severity).to_lowercase()
                );
            })
        }
        Command::Unack { id } => {
            let path = format!("/findings/{}/unacknowledge", segment(&id));
            let finding: Finding = context.client.post(&path, &serde_json::json!({})).await?;
            context.show(&finding, |finding| outln!("{}: not acknowledged any more.", finding.subject))
        }
    }
}

fn print(findings: &[OnNode<Finding>]) {
    let headings = ["ID", "SEVERITY", "CODE", "SUBJECT", "STATE", "FOR", "TIMES", "KNOWN TO"];
    let mut table = Table::of(&headings, "Nothing is wrong that is known.", findings);
    let now = SystemClock::new().wall().0 / 1_000_000_000;
    for found in findings {
        let id = found.node.as_ref().map_or_else(|| found.id.clone(), |node| format!("{node}:{}", found.id));
        let (state, end) = match found.state {
            FindingState::Active => ("there".to_owned(), now),
            // It may come back: it counts as gone when it has stayed away for a while.
            FindingState::Clearing => {
                (format!("gone for {}", seconds(now.saturating_sub(found.last_seen))), found.last_seen)
            }
            FindingState::Cleared => (format!("gone {}", time(found.cleared.unwrap_or(0))), found.last_seen),
        };
        let cells = [
            id,
            mark(found.severity).to_owned(),
            found.code.clone(),
            found.subject.clone(),
            state,
            seconds(end.saturating_sub(found.first_seen)),
            found.times.to_string(),
            found.acknowledged.as_ref().map(|known| known.by.clone()).unwrap_or_default(),
        ];
        table.row_of(found, cells);
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_in_the_path() {
        let asked = path(State::All, Some(Least::Error), Some("disk missing&x"), Some(5));
        assert_eq!(asked, "/findings?state=all&severity=error&code=disk%20missing%26x&limit=5");
        assert_eq!(path(State::Active, None, None, None), "/findings?state=active");
    }
}
