//! `holdfast config …`: the node's configuration as one file.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use control_api::{Config, ConfigDiff, ConfigRequest, Status};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::units::many;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the configuration, as `config apply` takes it. Holds secrets unless told otherwise.
    Show {
        /// Leave secrets out.
        #[arg(long)]
        redact: bool,
    },
    /// Make the node's configuration what a file says: shows what changes, and makes the changes.
    ///
    /// What is not in the file is taken away, after a question; so is the configuration of another node, where the file says
    /// whose it is (the first line that `config show` writes).
    Apply {
        /// The file (TOML, or JSON as from `config show --json`); `-` for standard input.
        file: PathBuf,
        /// Only show what would change.
        #[arg(long)]
        dry_run: bool,
    },
}

pub(crate) async fn run(command: Command, context: &Context) -> CliResult {
    match command {
        Command::Show { redact } => {
            let path = if redact { "/config?redact=true" } else { "/config" };
            let config: Config = context.client.get(path).await?;
            if config.has_secrets() && !redact {
                eprintln!("holdfast: this holds secrets; keep it where only you can read it.");
            }
            let text = toml::to_string_pretty(&config).map_err(CliError::here)?;
            let status: Status = context.client.get("/status").await?;
            let machine = status.machine.map(|machine| format!("{OF_MACHINE}{machine})")).unwrap_or_default();
            context.show(&config, |_| out!("{OF_NODE}{}{machine}\n{text}", status.node))
        }
        Command::Apply { file, dry_run } => {
            let (config, of_node, of_machine) = read(&file)?;
            let diff: ConfigDiff = context
                .confirmed(async |confirm| {
                    let (of_node, of_machine) = (of_node.clone(), of_machine.clone());
                    let request =
                        ConfigRequest { config: config.clone(), dry_run, of_node, of_machine, confirm };
                    context.client.put("/config", &request).await
                })
                .await?;
            context.show(&diff, print)
        }
    }
}

/// What a configuration begins with, before the name of the node that it was made by.
const OF_NODE: &str = "# Configuration of node ";

/// What follows the name, before what stands for the node's machine and a `)`.
const OF_MACHINE: &str = " (machine ";

/// A configuration, and the node and machine that it was made by, if the file says so.
fn read(file: &Path) -> CliResult<(Config, Option<String>, Option<String>)> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let wrong = |error: String| CliError::here(format!("{}: {error}", file.display()));
    let text = text.map_err(|error| wrong(error.to_string()))?;
    let first = text.lines().next().and_then(|line| line.strip_prefix(OF_NODE));
    let (of_node, of_machine) = match first.and_then(|line| line.strip_suffix(')')?.rsplit_once(OF_MACHINE)) {
        Some((node, machine)) => (Some(node.to_owned()), Some(machine.to_owned())),
        None => (first.map(str::to_owned), None),
    };
    let config = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| {
            // In one line: what follows a first one is advice.
            let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
            let place = line.map_or_else(String::new, |line| format!("line {line}: "));
            wrong(format!("{place}{}", error.message()))
        })?
    };
    Ok((config, of_node, of_machine))
}

fn print(diff: &ConfigDiff) {
    for change in &diff.items {
        let detail = if change.detail.is_empty() { String::new() } else { format!(": {}", change.detail) };
        outln!("{} {}{detail}", change.sign, change.subject);
    }
    match (diff.items.len(), diff.applied) {
        (0, _) => outln!("The node is configured like that already."),
        (count, true) => outln!("{} made.", many(count as u64, "change")),
        (count, false) => outln!("{} would be made.", many(count as u64, "change")),
    }
    diff.warnings.iter().for_each(|warning| outln!("note: {warning}"));
}
