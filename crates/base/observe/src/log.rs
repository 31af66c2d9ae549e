//! Logging set-up.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sends log lines to standard error, filtered by `HOLDFAST_LOG` (default `info`). A second call changes
/// nothing. Lines carry no time when journald adds its own (`JOURNAL_STREAM` is set).
pub fn init_logging() {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A line that nobody reads any more is no reason to fail: the complaint would go to the same closed pipe, and panic.
        .log_internal_errors(false);
    let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
        lines.without_time().with_ansi(false).try_init()
    } else {
        lines.try_init()
    };
}
