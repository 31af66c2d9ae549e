//! Errors of the command line.

use std::fmt;

use control_api::Problem;
use control_client::ClientError;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The command line makes no sense.
    Usage(String),
    /// The node, or the way to it.
    Client(ClientError),
    /// Something here; what, where, what to do.
    Here(String),
}

impl CliError {
    pub(crate) fn here(what: impl fmt::Display) -> Self {
        Self::Here(what.to_string())
    }

    /// Says it on standard error: in JSON where answers are.
    pub(crate) fn print(&self, json: bool) {
        if json {
            let told = match self {
                Self::Client(ClientError::Problem(problem)) => {
                    serde_json::to_value(problem).unwrap_or_default()
                }
                Self::Usage(what) => told("usage", what),
                Self::Here(what) => told("failed", what),
                Self::Client(error @ ClientError::Unreachable { .. }) => {
                    told("unreachable", &error.to_string())
                }
                Self::Client(error) => told("failed", &error.to_string()),
            };
            eprintln!("{told:#}");
            return;
        }
        match self {
            Self::Usage(what) | Self::Here(what) => eprintln!("holdfast: {what}"),
            Self::Client(error) => {
                eprintln!("holdfast: {error}");
                if let Some(problem) = error.problem() {
                    // `detail` says the same for confirmations.
                    if problem.confirm.is_none() {
                        problem.destroys.iter().for_each(|line| eprintln!("  would destroy: {line}"));
                    }
                }
            }
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// An address that cannot be had, with the option that chooses another one.
pub(crate) fn elsewhere(error: &ClientError, option: &str) -> CliError {
    let why = error.problem().map_or_else(|| error.to_string(), |problem| problem.detail.clone());
    CliError::here(format!(
        "{why}\n  Another demo or server may have it. Choose another address with {option} ADDR:PORT (port 0 takes a free one)."
    ))
}

/// What to do about a command line that makes no sense.
const HELP: &str = "`--help` behind the command says what it takes.";

/// An error as JSON has it: what was wrong is the first line, and what to do the others.
fn told(code: &str, what: &str) -> serde_json::Value {
    let mut lines = what.lines().map(str::trim).filter(|line| !line.is_empty());
    let detail = lines.next().unwrap_or_default();
    let mut todo: Vec<&str> = lines.collect();
    if code == "usage" && todo.is_empty() {
        todo.push(HELP);
    }
    let mut told = serde_json::json!({"code": code, "detail": detail});
    if !todo.is_empty() {
        told["todo"] = todo.join(" ").into();
    }
    told
}

/// What the parser of the command line says, without how the command is used: what is wrong on one line, what to do below.
pub(crate) fn of_parser(said: &str) -> CliError {
    let body = said.split("\n\nUsage:").next().unwrap_or(said);
    let body = body.split("\n\nFor more information").next().unwrap_or(body);
    let lines = body.trim_start_matches("error: ").lines().map(str::trim).filter(|line| !line.is_empty());
    let (tips, wrong): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("tip: "));
    let tips: Vec<&str> = tips.iter().filter_map(|tip| tip.strip_prefix("tip: ")).collect();
    let todo = if tips.is_empty() { HELP.to_owned() } else { tips.join("; ") };
    CliError::Usage(format!("{}\n{todo}", wrong.join(" ")))
}

/// The same of an error as the parser has it. Where a command lacks its subcommand, it says its whole help, and nothing of what is wrong.
pub(crate) fn of_clap(error: &clap::Error) -> CliError {
    use clap::error::ErrorKind;
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return CliError::Usage(format!("The command needs a subcommand, or arguments.\n{HELP}"));
    }
    of_parser(&error.to_string())
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        Self::Client(ClientError::Problem(Box::new(problem)))
    }
}

/// What a command returns.
pub(crate) type CliResult<T = ()> = Result<T, CliError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_subcommand_is_told_without_the_help() {
        use clap::Parser;
        for line in [&["holdfast", "--json"][..], &["holdfast", "--json", "pool"]] {
            let error = crate::cli::Cli::try_parse_from(line).expect_err("it lacks a subcommand");
            let CliError::Usage(what) = of_clap(&error) else { panic!("usage") };
            let told = told("usage", &what);
            assert_eq!(told["detail"], "The command needs a subcommand, or arguments.", "{line:?}");
            assert_eq!(told["todo"], HELP);
        }
    }

    #[test]
    fn what_the_parser_says_is_told_without_usage() {
        let said = "error: unexpected argument '--sise' found\n\n  tip: a similar argument exists: '--size'\n\n\
            Usage: holdfast volume create --size <SIZE> <NAME>\n\nFor more information, try '--help'.\n";
        let CliError::Usage(what) = of_parser(said) else { panic!("usage") };
        let told = told("usage", &what);
        assert_eq!(told["detail"], "unexpected argument '--sise' found");
        assert_eq!(told["todo"], "a similar argument exists: '--size'");
        let missing =
            "error: the following required arguments were not provided:\n  --size <SIZE>\n\nUsage: holdfast";
        let CliError::Usage(what) = of_parser(missing) else { panic!("usage") };
        assert_eq!(
            super::told("usage", &what)["detail"],
            "the following required arguments were not provided: --size <SIZE>"
        );
    }
}
