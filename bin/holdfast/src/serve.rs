//! `holdfast serve`: the node.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use control_api::{Code, DEFAULT_SOCKET};
use control_server::{Carried, NodeOptions, Running, START_AGAIN};
use tokio::runtime::Runtime;

use crate::context::DEFAULT_DATA_DIR;
use crate::error::{CliError, CliResult};
use crate::supervisor;

/// Threads of the control plane. Two, so that one slow request doesn't stop `holdfast status`; the data plane
/// has its own.
const CONTROL_THREADS: usize = 2;
/// How often a node that has a supervisor looks whether that is still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A node without its supervisor that cannot stop cleanly within this ends all the same: nobody is there to kill it, and it would be in the
/// way of whoever is started next. What it has not done by then is recovered as after a crash.
const ORPHAN_STOPS_WITHIN: Duration = Duration::from_secs(30);

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
    /// With --supervise: stop cleanly when standard input ends, and so with whoever has started this.
    #[arg(long, requires = "supervise")]
    until_input_ends: bool,
}

pub(crate) fn run(args: Args) -> CliResult<ExitCode> {
    observe::init_logging();
    if args.supervise && !kept_listeners::is_kept() {
        return supervisor::run(&args.data_dir, args.until_input_ends);
    }
    let default = args.data_dir == Path::new(DEFAULT_DATA_DIR);
    let socket = args.socket.or_else(|| default.then(|| DEFAULT_SOCKET.into()));
    let options = NodeOptions { data_dir: args.data_dir, socket, shards: args.shards, http: args.http };
    end_when_orphaned()?;
    runtime()?.block_on(async {
        let signals = control_server::Signals::new().map_err(CliError::here)?;
        let mut node = Running::start(options.clone()).await?;
        control_server::notify_supervisor("READY=1");
        loop {
            let change = tokio::select! {
                signal = signals.wait() => {
                    say(format_args!("holdfast: {signal}: stopping cleanly."));
                    control_server::notify_supervisor("STOPPING=1");
                    node.stop().await?;
                    return Ok(ExitCode::SUCCESS);
                }
                () = orphaned() => {
                    say(format_args!("holdfast: the supervisor has died: nobody would start this node again. It stops cleanly."));
                    return Ok(stop_orphan(node).await);
                }
                change = node.change_ordered() => change,
            };
            say(format_args!("holdfast: the node's place in a cluster changes: it stops and starts again."));
            if let Err(problem) = node.stop().await {
                say(format_args!("holdfast: {problem}"));
            }
            kept_listeners::start_over();
            // What fails leaves the node as it was, and is told to whoever asks it.
            let carried = change.carry_out().await.unwrap_or_default();
            node = start_again(options.clone(), carried).await?;
        }
    })
}

/// Ends when this process had a supervisor, and has it no more.
async fn orphaned() {
    while !kept_listeners::is_orphaned() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Stops a node whose supervisor has died.
async fn stop_orphan(node: Running) -> ExitCode {
    if let Err(problem) = node.stop().await {
        say(format_args!("holdfast: {problem}"));
    }
    // Not what a supervisor would take for a stop that somebody asked for.
    ExitCode::FAILURE
}

/// Ends this process some time after its supervisor has died, whatever it is at: it may be starting, or hang while it stops.
#[expect(clippy::disallowed_methods, reason = "a thread of its own that has nothing else to do")]
fn end_when_orphaned() -> CliResult<()> {
    if !kept_listeners::is_kept() {
        return Ok(());
    }
    let watch = || {
        while !kept_listeners::is_orphaned() {
            std::thread::sleep(LOOK_EVERY);
        }
        std::thread::sleep(ORPHAN_STOPS_WITHIN);
        say(format_args!("holdfast: it does not come to its end, and is ended."));
        // Threads that hang are not waited for.
        std::process::exit(1);
    };
    std::thread::Builder::new().name("orphan-watch".into()).spawn(watch).map_err(CliError::here)?;
    Ok(())
}

/// Says something to whoever reads it; nobody may any more, and that is no reason to fail.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Starts the node that has just stopped. A request that was still being answered may hold the data directory for a moment.
async fn start_again(options: NodeOptions, carried: Carried) -> CliResult<Running> {
    let mut carried = Some(carried);
    let began = tokio::time::Instant::now();
    loop {
        match Running::start_again(options.clone(), &mut carried).await {
            Err(problem) if problem.code == Code::InUse && began.elapsed() < START_AGAIN => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            started => return Ok(started?),
        }
    }
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
