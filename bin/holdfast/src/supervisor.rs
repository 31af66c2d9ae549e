//! `serve --supervise`: a small parent that keeps the node's listening sockets and starts the node again when it dies.
//!
//! A node that starts again serves within a fraction of a second; another node that takes over from it cannot be as fast, and clients
//! that are refused wait longer than either. The parent does nothing else, so that there is little in it that could fail.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use control_server::Signals;
use kept_listeners::{Keeper, VARIABLE};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::error::{CliError, CliResult};

/// A node that has run for so long has started: what ends it later is not its command line.
const STARTED: Duration = Duration::from_secs(10);
/// The pause before a start after the first of several deaths soon after a start; it doubles with each.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const MOST: Duration = Duration::from_secs(30);

/// Runs the node of this command line until it ends by itself; how it ended.
///
/// # Errors
/// When it cannot be started at all.
pub(crate) fn run(until_input_ends: bool) -> CliResult<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::here)?;
    runtime.block_on(supervise(until_input_ends))
}

async fn supervise(until_input_ends: bool) -> CliResult<ExitCode> {
    let signals = Signals::new().map_err(CliError::here)?;
    if until_input_ends {
        std::thread::Builder::new()
            .name("input".into())
            .spawn(stop_when_input_ends)
            .map_err(CliError::here)?;
    }
    let keeper = Keeper::new();
    let (mut has_served, mut soon) = (false, 0);
    loop {
        let began = Instant::now();
        let mut node = Node::start(&keeper).map_err(CliError::here)?;
        let pid = node.pid;
        tracing::info!(%pid, "the node runs as a child of this process");
        let mut told = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut node.ended => break ended.map_err(CliError::here)?.map_err(CliError::here)?,
                signal = signals.wait() => {
                    tracing::info!(%pid, signal, "the node is told to stop");
                    told = true;
                    // An error means that it has just ended by itself.
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
        };
        let early = began.elapsed() < STARTED;
        has_served |= !early;
        if told || ended.success() || (ended.signal().is_none() && !has_served) {
            // It ended as it was to; or it could not start, and has said why.
            return Ok(code(ended));
        }
        soon = if early { soon + 1 } else { 0 };
        let sockets = keeper.addresses().len();
        tracing::error!(%pid, how = %ended, sockets, "the node has died: it is started again");
        let pause = match soon {
            0 | 1 => Duration::ZERO,
            deaths => MOST.min(PAUSE.saturating_mul(1 << (deaths - 2).min(6))),
        };
        tokio::select! {
            () = sleep(pause) => {}
            _ = signals.wait() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// The end of the input is as SIGTERM.
fn stop_when_input_ends() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    // An error means that this process is gone, which it is not.
    let _ = kill_process(rustix::process::getpid(), Signal::TERM);
}

/// A child that runs.
struct Node {
    pid: Pid,
    ended: oneshot::Receiver<std::io::Result<ExitStatus>>,
}

impl Node {
    /// Starts this program with the same command line, and its standard input as the way to the keeper.
    fn start(keeper: &Keeper) -> std::io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, "1")
            .stdin(Stdio::from(keeper.for_child()?))
            .spawn()?;
        let pid = Pid::from_child(&child);
        let (tell, ended) = oneshot::channel();
        // A thread for the wait: the runtime has no part that learns of children.
        std::thread::Builder::new().name("node".into()).spawn(move || {
            let _ = tell.send(child.wait());
        })?;
        Ok(Self { pid, ended })
    }
}

fn code(ended: ExitStatus) -> ExitCode {
    // A shell's way to tell of a signal.
    let number = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(number).unwrap_or(1))
}
