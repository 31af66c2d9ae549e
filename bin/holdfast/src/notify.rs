//! `holdfast notify …`: who is told of what the node finds.

use clap::Subcommand;
use control_api::{Confirm, Done, Notifier, NotifierStatus};
use control_client::segment;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::finding::Least;
use crate::table::{Table, or_dash, word};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List who is told of findings, and how that goes.
    List,
    /// Have a program told of findings that come, get worse and go, as JSON over HTTP (a webhook). The same name again changes all of it.
    Set(Box<Set>),
    /// Tell it no more.
    Remove {
        /// Its name.
        name: String,
    },
    /// Send a notification that says it is a test, and show what becomes of it.
    Test {
        /// Its name.
        name: String,
    },
}

/// Where findings are told, and what is sent along.
#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// Its name.
    name: String,
    /// Where it takes JSON: https://HOST[:PORT]/PATH, or http:// within private networks.
    #[arg(long, value_name = "URL")]
    url: String,
    /// It is told of findings that are at least so bad.
    #[arg(long, value_enum, default_value_t = Least::Warning)]
    severity: Least,
    /// File of the node's machine with a secret in one line, as `Bearer …`, which nobody but its owner may read.
    #[arg(long, value_name = "FILE")]
    secret: Option<String>,
    /// Header that carries the secret, where it is not Authorization.
    #[arg(long, value_name = "NAME", requires = "secret")]
    header: Option<String>,
    /// File of the node's machine with the authorities, in PEM, that are believed instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<String>,
    /// It may be on this machine or the link, where services answer that ask nobody who it is.
    #[arg(long)]
    allow_local: bool,
}

/// The node looks for a file from another directory.
fn absolute(given: Option<String>) -> CliResult<Option<String>> {
    let path = |path: String| {
        let whole = std::path::absolute(&path).map_err(|error| CliError::here(format!("{path}: {error}")))?;
        Ok(whole.to_string_lossy().into_owned())
    };
    given.map(path).transpose()
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::List => context.show_list("/notifiers", print).await,
        Command::Set(set) => {
            let path = format!("/notifiers/{}", segment(&set.name));
            let notifier = Notifier {
                name: set.name,
                url: set.url,
                severity: set.severity.severity(),
                header: set.header,
                secret_file: absolute(set.secret)?,
                ca_file: absolute(set.ca)?,
                allow_local: set.allow_local,
            };
            let status: NotifierStatus = context.client.put(&path, &notifier).await?;
            context.show(&status, |status| {
                let name = &status.notifier.name;
                outln!("{name} is told of findings from now on. `holdfast notify test {name}` tries it.");
            })
        }
        Command::Remove { name } => {
            let path = format!("/notifiers/{}", segment(&name));
            let done: Done = context
                .confirmed(async |confirm| context.client.delete(&path, &Confirm { confirm }).await)
                .await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
        Command::Test { name } => {
            let path = format!("/notifiers/{}/test", segment(&name));
            let done: Done = context.client.post(&path, &serde_json::json!({})).await?;
            context.show(&done, |done| outln!("{}", done.message))
        }
    }
}

fn print(notifiers: &[NotifierStatus]) {
    let headings = ["NAME", "URL", "FROM", "TAKEN", "GIVEN UP", "WAITING", "PROBLEM"];
    let mut table = Table::new(&headings, "Nobody is told of findings. `holdfast notify set` changes that.");
    for status in notifiers {
        table.row([
            status.notifier.name.clone(),
            status.notifier.url.clone(),
            word(&status.notifier.severity),
            status.delivered.to_string(),
            status.failed.to_string(),
            status.waiting.to_string(),
            or_dash(status.problem.as_ref()),
        ]);
    }
    table.print();
}
