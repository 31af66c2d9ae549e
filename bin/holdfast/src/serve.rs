//! `holdfast serve`: the node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use control_api::DEFAULT_SOCKET;
use control_server::{NodeOptions, Running};
use tokio::runtime::Runtime;

use crate::context::DEFAULT_DATA_DIR;
use crate::error::{CliError, CliResult};
use crate::supervisor;

/// Threads of the control plane. Two, so that one slow request doesn't stop `holdfast status`; the data plane
/// has its own.
const CONTROL_THREADS: usize = 2;

/// Run a node in the foreground, until SIGTERM or Ctrl-C.
///
/// The data directory holds the configuration and what else must survive the process; data is on the disks of
/// pools. One node runs on a data directory at a time.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the node keeps its configuration.
    #[arg(long, default_value = DEFAULT_DATA_DIR, value_name = "DIR")]
    data_dir: PathBuf,
    /// Where it listens for commands; /run/holdfast/holdfast.sock for the default data directory, else a
    /// socket in the data directory.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Threads that serve; one per core when absent.
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// Address that the API and the pages are also served on over the network, beside those of the configuration
    /// (`holdfast api set --listen`); port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    http: Option<std::net::SocketAddr>,
    /// Run the node as a child of this process, which keeps its listening sockets and starts it again at once when it dies:
    /// clients that connect meanwhile wait instead of being refused.
    #[arg(long)]
    supervise: bool,
}

pub(crate) fn run(args: Args) -> CliResult<ExitCode> {
    observe::init_logging();
    if args.supervise && !kept_listeners::is_kept() {
        return supervisor::run();
    }
    let default = args.data_dir == Path::new(DEFAULT_DATA_DIR);
    let socket = args.socket.or_else(|| default.then(|| DEFAULT_SOCKET.into()));
    let options = NodeOptions { data_dir: args.data_dir, socket, shards: args.shards, http: args.http };
    runtime()?.block_on(async {
        let signals = control_server::Signals::new().map_err(CliError::here)?;
        let node = Running::start(options).await?;
        control_server::notify_supervisor("READY=1");
        let signal = signals.wait().await;
        eprintln!("holdfast: {signal}: stopping cleanly.");
        control_server::notify_supervisor("STOPPING=1");
        node.stop().await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The control plane's runtime.
pub(crate) fn runtime() -> CliResult<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CONTROL_THREADS)
        .thread_name("control")
        .enable_all()
        .build()
        .map_err(CliError::here)
}
