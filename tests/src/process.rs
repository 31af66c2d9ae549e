//! Programs that are started here end here: run to the end with a time limit, or kept as a child and ended on drop.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Outcome, Result, ensure};

/// A point in time after which a case gives up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// So long from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a limit for real programs; no result depends on it")]
        let now = Instant::now();
        Self(now + limit)
    }

    /// What is left of it.
    #[must_use]
    pub fn left(self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "as above")]
        let now = Instant::now();
        self.0.saturating_duration_since(now)
    }

    /// Asks `done` again and again until it says so. For states that can only be polled (`holdfast status`).
    pub fn poll<T>(self, what: &str, mut done: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        loop {
            if let Some(value) = done()? {
                return Ok(value);
            }
            ensure(!self.left().is_zero(), || format!("{what}: not within the time limit"))?;
            pause(Duration::from_millis(50));
        }
    }
}

/// Lets time pass, where what goes on meanwhile is what a case is about.
pub fn pause(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "no shard here: this is a program that tests another")]
    std::thread::sleep(time);
}

/// Where a program is, or a skip that names the package that has it.
pub fn need(program: &str, package: &str) -> Result {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    if there.map(|folder| folder.join(program)).any(|p| p.is_file()) {
        Ok(())
    } else {
        Err(Outcome::Skip(format!("{program} is not installed (package {package})")))
    }
}

/// A skip unless this process is root.
pub fn need_root(why: &str) -> Result {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let root = status
        .lines()
        .any(|l| l.strip_prefix("Uid:").is_some_and(|r| r.split_whitespace().nth(1) == Some("0")));
    if root { Ok(()) } else { Err(Outcome::Skip(format!("needs root: {why}"))) }
}

/// A command with /usr/sbin in its path, which a plain user's may lack.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// A child and its standard output line by line. Ended when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts it. Standard error goes to the file `log`, appended.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = spawned.map_err(|e| format!("{name}: cannot start: {e}"))?;
        let (sender, lines) = channel();
        if let Some(output) = child.stdout.take() {
            // The thread ends when the child closes its output.
            std::thread::spawn(move || read_lines(output, |line| sender.send(line).is_ok()));
        }
        Ok(Self { name: name.into(), child, lines })
    }

    /// The next line of output; `None` at its end.
    pub fn line(&mut self, deadline: Deadline) -> Result<Option<String>> {
        match self.lines.recv_timeout(deadline.left()) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("{}: said nothing in time", self.name).into()),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name ("TERM", "INT"); nothing when it has ended by itself.
    pub fn signal(&mut self, name: &str) -> Result {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let status = command("kill").arg(format!("-{name}")).arg(self.id().to_string()).status()?;
        ensure(status.success(), || format!("{}: cannot send {name}", self.name))
    }

    /// Waits for its end.
    pub fn wait(&mut self, deadline: Deadline) -> Result<ExitStatus> {
        let name = format!("{}: its end", self.name);
        deadline.poll(&name, || Ok(self.child.try_wait()?))
    }

    /// kill -9, and waits.
    pub fn kill(&mut self) -> Result {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(output: impl Read, mut use_line: impl FnMut(String) -> bool) {
    for line in BufReader::new(output).split(b'\n').map_while(std::result::Result::ok) {
        if !use_line(String::from_utf8_lossy(&line).trim_end_matches('\r').to_string()) {
            break;
        }
    }
}

/// What a program that ran to its end said.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

impl Finished {
    /// Its output, or a failure that quotes it.
    pub fn ok(self, what: &str) -> Result<String> {
        let Self { status, output, errors } = self;
        ensure(status.success(), || {
            format!("{what}: {status}\n{}\n{}", tail(&output, 15), tail(&errors, 15))
        })?;
        Ok(output)
    }
}

/// Runs a program to its end under `timeout`(1), which also ends what it started.
pub fn run(limit: Duration, command: &Command) -> Result<Finished> {
    run_with(limit, command, "")
}

/// The same, with a short text as its input.
pub fn run_with(limit: Duration, command: &Command, input: &str) -> Result<Finished> {
    let mut limited = self::command("timeout");
    limited
        .args(["--kill-after=5", &limit.as_secs().to_string()])
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(key, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    if !input.is_empty() {
        limited.stdin(Stdio::piped());
    }
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |e| format!("{}: {e}", command.get_program().to_string_lossy());
    let mut child = limited.spawn().map_err(failed)?;
    if let Some(mut to) = child.stdin.take() {
        // A program that ends without reading says so itself.
        let _ = to.write_all(input.as_bytes());
    }
    let done = child.wait_with_output().map_err(failed)?;
    Ok(Finished {
        status: done.status,
        output: String::from_utf8_lossy(&done.stdout).into_owned(),
        errors: String::from_utf8_lossy(&done.stderr).into_owned(),
    })
}

/// The last lines of a text.
#[must_use]
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.iter().skip(all.len().saturating_sub(lines)).copied().collect::<Vec<_>>().join("\n")
}
