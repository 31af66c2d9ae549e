//! A node of the demo's cluster: its process, and how it is asked.

use std::fs::OpenOptions;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use control_api::Status;
use control_client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{CliError, CliResult};

/// From a start to a node that answers and has opened what it has.
const STARTS: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// Processors are shared by all nodes of the demo.
const SHARDS: &str = "1";

/// A node. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Member {
    name: String,
    dir: PathBuf,
    ip: IpAddr,
    iscsi_port: u16,
    supervisor: Child,
}

impl Member {
    /// Starts it, with `config` where it has no configuration yet.
    pub(crate) fn start(dir: &Path, name: &str, iscsi: SocketAddr, config: &str) -> CliResult<Self> {
        let dir = std::path::absolute(dir.join(name)).map_err(CliError::here)?;
        let wrong =
            |path: &Path, error: std::io::Error| CliError::here(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&dir).map_err(|error| wrong(&dir, error))?;
        let file = dir.join("config.toml");
        if !file.exists() {
            std::fs::write(&file, config).map_err(|error| wrong(&file, error))?;
        }
        let log = dir.with_extension("log");
        let log =
            OpenOptions::new().create(true).append(true).open(&log).map_err(|error| wrong(&log, error))?;
        let supervisor = Command::new("/proc/self/exe")
            .args(["serve", "--supervise", "--until-input-ends", "--shards", SHARDS, "--data-dir"])
            .arg(&dir)
            // It ends with this process, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::from(log.try_clone().map_err(CliError::here)?))
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(CliError::here)?;
        Ok(Self { name: name.to_owned(), dir, ip: iscsi.ip(), iscsi_port: iscsi.port(), supervisor })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    pub(crate) fn iscsi_port(&self) -> u16 {
        self.iscsi_port
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// The process of the node itself, while there is one. Its etcd is a child of another thread of the supervisor.
    pub(crate) fn pid(&self) -> Option<u32> {
        let supervisor = self.supervisor_pid();
        let children =
            std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    /// Its API.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.dir.join(control_api::SOCKET_NAME))
    }

    /// Ends when it answers and has opened what opens at a start.
    pub(crate) async fn wait_ready(&mut self) -> CliResult {
        let client = self.client();
        let waiting = async {
            loop {
                if let Some(ended) = self.supervisor.try_wait().map_err(CliError::here)? {
                    let log = self.dir.with_extension("log");
                    let what = format!("node {} has ended ({ended}); {} says why.", self.name, log.display());
                    return Err(CliError::here(what));
                }
                if client.get::<Status>("/status").await.is_ok_and(|status| status.ready) {
                    return Ok(());
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let late = |_| {
            Err(CliError::here(format!("node {} is not ready within {} s.", self.name, STARTS.as_secs())))
        };
        tokio::time::timeout(STARTS, waiting).await.unwrap_or_else(late)
    }

    /// Runs one of this program's commands on it; what it prints.
    pub(crate) async fn ask(&self, words: &[&str]) -> CliResult<String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--node").arg(&self.dir).args(["--yes"]).args(words).stdin(Stdio::null());
        let asked = tokio::task::spawn_blocking(move || command.output()).await.map_err(CliError::here)?;
        let done = asked.map_err(CliError::here)?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let why = String::from_utf8_lossy(&done.stderr);
        Err(CliError::here(format!("{}: `holdfast {}`: {}", self.name, words.join(" "), why.trim())))
    }

    /// Has it stop cleanly. Does not wait for that.
    pub(crate) fn tell_to_stop(&self) {
        // An error means that it has ended.
        let _ = kill_process(Pid::from_child(&self.supervisor), Signal::TERM);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.tell_to_stop();
        let _ = self.supervisor.wait();
    }
}
