//! The log of a node: lines on standard error, which systemd's journal keeps.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts logging. `HOLDFAST_LOG` chooses what is logged (`info`, `debug`, `pool=trace,info`), `info` by default.
pub(crate) fn start() {
    let filter = EnvFilter::builder()
        .with_env_var("HOLDFAST_LOG")
        .with_default_directive(LevelFilter::INFO.into())
        .from_env_lossy();
    // A second call finds the first one's subscriber in place, which is fine.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}
