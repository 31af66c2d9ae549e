//! `serve --supervise`: a small parent that keeps the node's listening sockets and starts the node again when it dies.
//!
//! A node that starts again serves within a fraction of a second; another node that takes over from it cannot be as fast, and clients
//! that are refused wait longer than either. The parent does little else, so that there is little in it that could fail. In a cluster it runs the
//! node's member of etcd, which lives on when the node dies; and when the node does not come back soon, it says so to the other nodes, who
//! then take its pools without waiting for the silence. The node stops when its supervisor has died (`serve`): it would go on with nobody to
//! start it again, and whoever runs the supervisor takes the service for dead.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use control_server::Signals;
use control_server::cluster::supervised::{EtcdKeeper, LifeOver, TAKES_PART, give_up_life, life_over};
use kept_listeners::{Helper, Keeper, VARIABLE};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::error::{CliError, CliResult};

/// A node that has run for so long has started: what ends it later is not its command line.
const STARTED: Duration = Duration::from_secs(10);
/// So many deaths soon after a start, one after the other, are followed by another start at once.
const AT_ONCE: u32 = 3;
/// The pause before the start after the next one; it doubles with each.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const MOST: Duration = Duration::from_secs(30);
/// A node of a cluster that does not take part again within this is given up: others take its pools.
const BACK_WITHIN: Duration = Duration::from_secs(1);

/// What the supervisor does for the node that is its child, besides keeping its sockets.
struct ForNode {
    etcd: EtcdKeeper,
    takes_part: watch::Sender<bool>,
}

impl Helper for ForNode {
    fn asked(&self, text: &str) -> std::io::Result<String> {
        if EtcdKeeper::is_asked(text) {
            return self.etcd.asked(text);
        }
        if text != TAKES_PART {
            return Err(ErrorKind::Unsupported.into());
        }
        self.takes_part.send_replace(true);
        Ok(String::new())
    }
}

/// Runs the node of this command line until it ends by itself; how it ended.
///
/// # Errors
/// When it cannot be started at all.
pub(crate) fn run(data_dir: &Path, until_input_ends: bool) -> CliResult<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::here)?;
    runtime.block_on(supervise(data_dir, until_input_ends))
}

async fn supervise(data_dir: &Path, until_input_ends: bool) -> CliResult<ExitCode> {
    let signals = Signals::new().map_err(CliError::here)?;
    if until_input_ends {
        std::thread::Builder::new()
            .name("input".into())
            .spawn(stop_when_input_ends)
            .map_err(CliError::here)?;
    }
    let helper = Arc::new(ForNode { etcd: EtcdKeeper::default(), takes_part: watch::Sender::new(false) });
    let keeper = Keeper::with_helper(helper.clone());
    let (mut has_served, mut soon) = (false, 0_u32);
    // Ends with the one that takes its place.
    let mut _giving_up = None;
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
        // Before the next process begins: what is in the data directory is the life of the one that is gone.
        if let Some(over) = life_over(data_dir) {
            helper.takes_part.send_replace(false);
            let (data_dir, back) = (data_dir.to_owned(), helper.takes_part.subscribe());
            _giving_up = Some(Ending(tokio::spawn(give_up_late(data_dir, over, back))));
        }
        soon = if early { soon + 1 } else { 0 };
        let sockets = keeper.addresses().len();
        tracing::error!(%pid, how = %ended, sockets, "the node has died: it is started again");
        let pause = match soon {
            0..=AT_ONCE => Duration::ZERO,
            deaths => MOST.min(PAUSE.saturating_mul(1 << (deaths - AT_ONCE - 1).min(6))),
        };
        tokio::select! {
            () = sleep(pause) => {}
            _ = signals.wait() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// A task that ends with this.
struct Ending(tokio::task::JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Gives a life up for which none takes its place in time.
async fn give_up_late(data_dir: PathBuf, over: LifeOver, mut back: watch::Receiver<bool>) {
    if tokio::time::timeout(BACK_WITHIN, back.wait_for(|back| *back)).await.is_ok() {
        return;
    }
    // A thread of its own: whatever it meets ends there.
    let work = move || give_up_life(&data_dir, over);
    if let Err(error) = std::thread::Builder::new().name("give up".into()).spawn(work) {
        tracing::warn!(%error, "the node's life is not given up");
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
