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
                Self::Usage(what) => serde_json::json!({"code": "usage", "detail": what}),
                Self::Here(what) => serde_json::json!({"code": "failed", "detail": what}),
                Self::Client(error @ ClientError::Unreachable { .. }) => {
                    serde_json::json!({"code": "unreachable", "detail": error.to_string()})
                }
                Self::Client(error) => serde_json::json!({"code": "failed", "detail": error.to_string()}),
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
