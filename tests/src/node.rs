//! A Holdfast node under test: `holdfast demo` in a folder of its own, driven by the command line as a person would.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::process::{Deadline, Finished, Running, command, run, run_with, tail};
use crate::{Outcome, Result, ensure};

/// One run of smbclient.
const SMBCLIENT: Duration = Duration::from_secs(120);

/// From start to the line that says it is ready. The first start makes disks, pool, volume and LUN.
const READY: Duration = Duration::from_secs(60);
/// From SIGTERM to the end, with clients that hold sessions.
const STOP: Duration = Duration::from_secs(30);
/// A command of the CLI.
const VERB: Duration = Duration::from_secs(60);
/// From the last fault to full redundancy, on a busy emulated machine.
const HEAL: Duration = Duration::from_secs(180);

/// How a node is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address of iSCSI; port 0 the first time, then the port that it got.
    pub iscsi: String,
    /// Address of SMB; without one, a free port beside iSCSI the first time, then the port that it got.
    pub smb: Option<String>,
    /// Whether initiators must prove themselves.
    pub chap: bool,
    /// Network namespace it runs in.
    pub netns: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { iscsi: "127.0.0.1:0".into(), smb: None, chap: false, netns: None }
    }
}

/// What the ready line of `holdfast demo --json` says.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    /// The whole line.
    pub line: Value,
    /// `iscsi://user%secret@address/iqn/lun`
    pub url: String,
    /// `address:port`
    pub portal: String,
    /// The target's name.
    pub iqn: String,
}

/// A node.
#[derive(Debug)]
pub struct Node {
    binary: PathBuf,
    dir: PathBuf,
    options: Options,
    process: Option<Running>,
    ready: Ready,
    expected: Vec<String>,
}

/// The program under test.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::var_os("HOLDFAST_BIN").map(PathBuf::from);
    binary.ok_or_else(|| Outcome::Skip("HOLDFAST_BIN does not say where the binary is".into()))
}

impl Node {
    /// Starts one whose data is below `folder`.
    pub fn start(folder: &Path, options: Options) -> Result<Self> {
        let binary = binary()?;
        let dir = folder.join("node");
        std::fs::create_dir_all(&dir)?;
        let mut node =
            Self { binary, dir, options, process: None, ready: Ready::default(), expected: Vec::new() };
        node.launch()?;
        Ok(node)
    }

    fn launch(&mut self) -> Result {
        let mut start = match &self.options.netns {
            None => command(&self.binary),
            Some(name) => {
                let mut inside = command("ip");
                inside.args(["netns", "exec", name]).arg(&self.binary);
                inside
            }
        };
        let beside = || format!("{}:0", self.options.iscsi.rsplit_once(':').map_or("127.0.0.1", |at| at.0));
        let smb = self.options.smb.clone().unwrap_or_else(beside);
        start.args(["--json", "demo", "--iscsi", &self.options.iscsi, "--smb", &smb]);
        start.arg("--dir").arg(self.dir.join("data"));
        if self.options.chap {
            start.arg("--chap");
        }
        let mut process = Running::start("holdfast", start, &self.log_file())?;
        let deadline = Deadline::after(READY);
        let line = loop {
            match process.line(deadline)? {
                Some(line) if line.starts_with('{') => break line,
                Some(_) => {}
                None => {
                    let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
                    return Err(format!("holdfast ended before it was ready:\n{}", tail(&log, 20)).into());
                }
            }
        };
        let line: Value = serde_json::from_str(&line).map_err(|e| format!("ready line {line:?}: {e}"))?;
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
        self.ready =
            Ready { url: text("iscsi_url"), portal: text("iscsi_address"), iqn: text("iscsi_target"), line };
        ensure(!self.ready.url.is_empty(), || format!("no iscsi_url in the ready line {}", self.ready.line))?;
        // A restart comes back on the same port, as a node with a fixed address does.
        self.options.iscsi.clone_from(&self.ready.portal);
        self.options.smb = Some(self.told("smb_address")).filter(|address| !address.is_empty());
        self.process = Some(process);
        Ok(())
    }

    /// What the ready line said.
    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// A string of the ready line.
    #[must_use]
    pub fn told(&self, key: &str) -> String {
        self.ready.line.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
    }

    /// The n-th disk of the demo, from 0.
    pub fn disk(&self, n: usize) -> Result<String> {
        let disks = self.ready.line.get("disks").and_then(Value::as_array);
        let name = disks.and_then(|d| d.get(n)).and_then(Value::as_str);
        Ok(name.ok_or_else(|| format!("no disk {n} in the ready line"))?.to_string())
    }

    /// The folder of the node's data.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The node's process id.
    pub fn id(&self) -> Result<u32> {
        Ok(self.process.as_ref().ok_or_else(|| "the node is not running".to_string())?.id())
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("holdfast.log")
    }

    /// What the node has logged so far.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.log_file())?)
    }

    /// Commands of smbclient on the demo's share, as its user.
    pub fn smbclient(&self, commands: &str) -> Result<Finished> {
        self.smbclient_on(&self.told("smb_share"), commands)
    }

    /// Commands of smbclient on a share, as the demo's user.
    pub fn smbclient_on(&self, share: &str, commands: &str) -> Result<Finished> {
        let address = self.told("smb_address");
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, "445"));
        let user = format!("{}%{}", self.told("smb_user"), self.told("smb_password"));
        let mut client = command("smbclient");
        client.args(["-p", port, "-U", &user, &format!("//{host}/{share}"), "-c", commands]);
        run(SMBCLIENT, &client)
    }

    /// The program under test.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A command of the CLI; its standard output.
    pub fn cli(&self, arguments: &[&str]) -> Result<String> {
        let mut cli = command(&self.binary);
        cli.arg("--node").arg(self.told("api_socket")).args(["--yes"]).args(arguments);
        run(VERB, &cli)?.ok(&format!("holdfast {}", arguments.join(" ")))
    }

    /// A command of the CLI that is told something.
    pub fn cli_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut cli = command(&self.binary);
        cli.arg("--node").arg(self.told("api_socket")).args(["--yes"]).args(arguments);
        run_with(VERB, &cli, input)?.ok(&format!("holdfast {}", arguments.join(" ")))
    }

    /// A command of the CLI with `--json`, parsed.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.cli(&[&["--json"], arguments].concat())?;
        serde_json::from_str(&text)
            .map_err(|e| format!("holdfast {}: {e}: {text}", arguments.join(" ")).into())
    }

    /// A command of the CLI that needs no node, with `--json`, however it ends.
    pub fn offline(&self, arguments: &[&str]) -> Result<Finished> {
        let mut cli = command(&self.binary);
        cli.arg("--json").args(arguments);
        run(VERB, &cli)
    }

    /// The verdict of `holdfast status`.
    pub fn verdict(&self) -> Result<String> {
        let status = self.json(&["status"])?;
        Ok(status.get("verdict").and_then(Value::as_str).unwrap_or_default().to_string())
    }

    /// Waits until all data is as redundant as promised.
    pub fn wait_redundant(&self) -> Result {
        let mut last = String::new();
        let healed = Deadline::after(HEAL).poll("full redundancy", || {
            last = self.verdict()?;
            Ok((last == "fully-redundant").then_some(()))
        });
        healed.map_err(|_| {
            let status = self.cli(&["status"]).unwrap_or_else(|e| e.to_string());
            Outcome::Fail(format!("not fully redundant again but {last}:\n{status}"))
        })
    }

    /// Waits until `holdfast status` says that something is wrong.
    pub fn wait_reduced(&self) -> Result {
        Deadline::after(HEAL).poll("a verdict that notices the fault", || {
            Ok((self.verdict()? != "fully-redundant").then_some(()))
        })
    }

    /// Changes settings of the node's policy.
    pub fn set_policy(&self, settings: &[(&str, u64)]) -> Result {
        let mut config = self.json(&["config", "show"])?;
        for (name, value) in settings {
            config["policy"][*name] = (*value).into();
        }
        self.cli_with(&["config", "apply", "-"], &config.to_string()).map(drop)
    }

    /// Announces that log lines with this text may come.
    pub fn expect_log(&mut self, text: &str) {
        self.expected.push(text.into());
    }

    /// kill -9, then a new start on the same data.
    pub fn crash_and_restart(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        self.launch()
    }

    /// SIGTERM, and waits for a clean end.
    pub fn stop(&mut self) -> Result {
        if let Some(mut process) = self.process.take() {
            process.signal("TERM")?;
            let status = process.wait(Deadline::after(STOP))?;
            ensure(status.success(), || format!("holdfast ended with {status} after SIGTERM"))?;
        }
        Ok(())
    }

    /// Starts again what was stopped.
    pub fn start_again(&mut self) -> Result {
        self.launch()
    }

    /// Ends the case: a clean stop, and a log without surprises.
    pub fn finish(mut self) -> Result {
        self.stop()?;
        let log = std::fs::read_to_string(self.log_file())?;
        let surprises: Vec<&str> =
            log.lines().filter(|l| is_complaint(l) && !self.expected.iter().any(|e| l.contains(e))).collect();
        ensure(surprises.is_empty(), || {
            format!("{} unexpected line(s) in the log:\n{}", surprises.len(), tail(&surprises.join("\n"), 12))
        })
    }
}

/// Whether a log line is a warning, an error or a panic. One that counts lines left out is none: those before them are.
fn is_complaint(line: &str) -> bool {
    let head: String = line.chars().take(80).collect();
    let counts = line.contains("were left out of the log in the last minute");
    (!counts && head.split(|c: char| !c.is_ascii_uppercase()).any(|w| w == "WARN" || w == "ERROR"))
        || line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn complaints_are_told_from_talk() {
        assert!(is_complaint("2026-01-01T00:00:00Z  WARN pool: disk is gone"));
        assert!(is_complaint("\u{1b}[31mERROR\u{1b}[0m volume: no"));
        assert!(is_complaint("thread 'shard-0' panicked at src/lib.rs:1:1"));
        assert!(!is_complaint("2026-01-01T00:00:00Z  INFO pool: no ERRORS found"));
    }
}
