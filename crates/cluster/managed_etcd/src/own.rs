//! The process where it runs: started by a thread of its own, watched over, started again.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::command::{EtcdMemberConfig, First, options};
use crate::log;

/// The first pause before it is started again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// One that ran for so long is started again after the first pause.
const RAN_WELL: Duration = Duration::from_secs(30);
/// It may take so long to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// A program is missing.
    #[error("the program {0} is not installed: install the package {1} (`apt install {1}`)")]
    NotInstalled(&'static str, &'static str),
    /// The system says no.
    #[error("etcd cannot be started: {0}")]
    Io(#[from] io::Error),
}

/// How it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcdStatus {
    /// It has been started, with this process number.
    Running(u32),
    /// It has ended, and is started again in a moment; why, for people.
    Waiting(String),
}

/// Whether etcd, and what it is started by, are in PATH.
///
/// # Errors
/// [`ProcessError::NotInstalled`], with the name of the package.
pub fn is_installed() -> Result<(), ProcessError> {
    for (program, package) in [("etcd", "etcd-server"), ("setpriv", "util-linux")] {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            return Err(ProcessError::NotInstalled(program, package));
        }
    }
    Ok(())
}

/// Whether a member has begun in this folder: it knows its cluster.
#[must_use]
pub fn has_data(data: &Path) -> bool {
    data.join("member/wal").is_dir()
}

/// A member that a thread of this process looks after.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    // Dropped first: that ends the thread.
    stop: mpsc::Sender<()>,
    status: watch::Receiver<EtcdStatus>,
    thread: Option<JoinHandle<()>>,
}

impl OwnProcess {
    /// One that this process runs.
    pub(crate) fn start(config: EtcdMemberConfig, first: Option<First>) -> Result<Self, ProcessError> {
        let data = config.data.clone();
        Self::looked_after(&data, move |stopped, tell| watch_over(config, first, stopped, tell))
    }

    /// One that is looked after in this way, on a thread of its own, until it is to end or the handle is gone.
    pub(crate) fn looked_after<F: Future<Output = ()>>(
        data: &Path,
        look_after: impl FnOnce(mpsc::Receiver<()>, watch::Sender<EtcdStatus>) -> F + Send + 'static,
    ) -> Result<Self, ProcessError> {
        is_installed()?;
        DirBuilder::new().recursive(true).mode(0o700).create(data)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = mpsc::channel(1);
        let (tell, status) = watch::channel(EtcdStatus::Waiting("it is being started".into()));
        let work = move || runtime.block_on(look_after(stopped, tell));
        let thread = std::thread::Builder::new().name("etcd".into()).spawn(work)?;
        Ok(Self { stop, status, thread: Some(thread) })
    }

    pub(crate) fn status(&self) -> EtcdStatus {
        self.status.borrow().clone()
    }

    pub(crate) async fn stop(mut self) {
        let _ = self.stop.send(()).await;
        // The thread drops its end when the process is gone.
        self.stop.closed().await;
        self.join();
    }

    /// The same on a thread without a runtime.
    pub(crate) fn stop_and_wait(mut self) {
        let _ = self.stop.try_send(());
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // It ends when the process has.
            let _ = thread.join();
        }
    }
}

/// Starts it and waits for its end, again and again, until it is to end.
pub(crate) async fn watch_over(
    config: EtcdMemberConfig,
    first: Option<First>,
    mut stopped: mpsc::Receiver<()>,
    tell: watch::Sender<EtcdStatus>,
) {
    let mut pause = PAUSES.0;
    loop {
        let began = Instant::now();
        let why = match start(&config, first.as_ref()) {
            Ok(mut child) => {
                tell.send_replace(EtcdStatus::Running(child.id().unwrap_or_default()));
                let output = child.stderr.take();
                let telling = async {
                    if let Some(output) = output {
                        log::tell(output).await;
                    }
                };
                tokio::select! {
                    (ended, ()) = async { tokio::join!(child.wait(), telling) } => match ended {
                        Ok(status) => format!("it has ended ({status})"),
                        Err(error) => error.to_string(),
                    },
                    // None: whoever wanted it is gone.
                    asked = stopped.recv() => return end(child, asked.is_some()).await,
                }
            }
            Err(error) => error.to_string(),
        };
        if began.elapsed() >= RAN_WELL {
            pause = PAUSES.0;
        }
        tracing::warn!("etcd of this node: {why}; it is started again in {pause:?}");
        tell.send_replace(EtcdStatus::Waiting(why));
        tokio::select! {
            () = sleep(pause) => {}
            _ = stopped.recv() => return,
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn start(config: &EtcdMemberConfig, first: Option<&First>) -> io::Result<Child> {
    let first = first.filter(|_| !has_data(&config.data));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "etcd"]).args(options(config, first));
    // What is meant for another etcd in the environment is not for this one.
    command.env_clear();
    for name in ["PATH", "TZ"] {
        command.envs(std::env::var_os(name).map(|value| (OsStr::new(name), value)));
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.kill_on_drop(true).spawn()
}

/// Ends a process: asked to, it has some time for it.
async fn end(mut child: Child, cleanly: bool) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| cleanly) {
        // It is our child and has not been waited for: the number is its own.
        let _ = kill_process(pid, Signal::TERM);
        if timeout(PATIENCE, child.wait()).await.is_ok() {
            return;
        }
        tracing::warn!("etcd of this node does not end when it is told to, and is killed");
    }
    let _ = child.kill().await;
}
