//! What the libraries answer when they do not do what they were asked for.

use std::ffi::c_int;

/// The libraries are not here.
#[derive(Clone, Debug, thiserror::Error)]
#[error("Ceph's client libraries cannot be loaded ({0})")]
pub struct LoadError(pub(crate) String);

/// A call has failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// There are no libraries to call.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The libraries' answer.
    #[error("{doing}: {} (error {code})", words(*.code))]
    Answer {
        /// What was to be done.
        doing: &'static str,
        /// The number of the error, as errno has it.
        code: i32,
    },
    /// A text for the libraries has a zero in it.
    #[error("{0} has a zero byte in it")]
    Text(&'static str),
    /// No thread can be started.
    #[error("no thread can be started: {0}")]
    Thread(String),
}

impl Failure {
    /// The number of the error, where the libraries have answered.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Answer { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// A result as the libraries give it: below zero is an error.
pub(crate) fn check(result: c_int, doing: &'static str) -> Result<c_int, Failure> {
    match result {
        0.. => Ok(result),
        _ => Err(Failure::Answer { doing, code: result.saturating_neg() }),
    }
}

fn words(code: i32) -> String {
    match code {
        // The kernel's words for it (cannot send after transport endpoint shutdown) tell nobody what has happened.
        108 => "Ceph has shut this client out (blocklist)".into(),
        110 => "Ceph does not answer in time".into(),
        _ => {
            let text = std::io::Error::from_raw_os_error(code).to_string();
            text.split(" (os error").next().unwrap_or_default().to_owned()
        }
    }
}
