//! The test guest: a small VM with a stock Debian kernel (tests/tools/guest), running a script of tests/guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Deadline, Running, command, need, tail};
use crate::{Outcome, Result, ensure};

/// The folder of this crate, which holds the guest's tools and scripts.
#[must_use]
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where `prepare.sh` leaves the guest.
#[must_use]
pub fn cache() -> PathBuf {
    if let Some(set) = std::env::var_os("GUEST_CACHE") {
        return set.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    base.unwrap_or_else(|| home.join(".cache")).join("holdfast-guest")
}

/// How a guest is started.
#[derive(Debug, Default)]
pub struct Setup<'a> {
    /// Name of the script in tests/guest.
    pub script: &'a str,
    /// Its environment.
    pub env: Vec<(&'a str, String)>,
    /// Further options of run-guest.sh.
    pub options: Vec<String>,
    /// Name of a guest-net.sh network that it joins, instead of QEMU's user network.
    pub net: Option<&'a str>,
    /// How long it may run.
    pub limit: Duration,
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    process: Running,
    deadline: Deadline,
    said: Vec<String>,
    folder: PathBuf,
}

impl Guest {
    /// Boots it. `folder` takes its logs and is /share inside.
    pub fn start(folder: &Path, setup: Setup<'_>) -> Result<Self> {
        need("qemu-system-x86_64", "qemu-system-x86")?;
        if !cache().join("stamp").is_file() {
            return Err(Outcome::Skip("no test guest: run tests/tools/prepare.sh".into()));
        }
        let share = folder.join("share");
        std::fs::create_dir_all(&share)?;
        let tools = home().join("tools/guest");
        let mut start = match setup.net {
            None => command(tools.join("run-guest.sh")),
            Some(name) => {
                let mut inside = command(tools.join("guest-net.sh"));
                inside.args(["run", name]);
                inside
            }
        };
        start.env("GUEST_CACHE", cache());
        start.arg("--script").arg(home().join("guest").join(setup.script));
        start.arg("--add").arg(home().join("guest/login.sh"));
        start.arg("--share").arg(&share);
        start.arg("--kernel-log").arg(folder.join("kernel.log"));
        start.args(["--timeout", &setup.limit.as_secs().to_string()]);
        for (key, value) in &setup.env {
            start.args(["--env", &format!("{key}={value}")]);
        }
        start.args(&setup.options);
        let process = Running::start("guest", start, &folder.join("guest.log"))?;
        // The guest ends itself when its time is up; the margin is for starting and ending it.
        let deadline = Deadline::after(setup.limit + Duration::from_secs(30));
        Ok(Self { process, deadline, said: Vec::new(), folder: folder.into() })
    }

    /// Reads on until the script prints a line that starts with `word`.
    pub fn wait_for(&mut self, word: &str) -> Result<String> {
        loop {
            match self.process.line(self.deadline)? {
                Some(line) => {
                    self.said.push(line.clone());
                    if line.starts_with(word) {
                        return Ok(line);
                    }
                }
                None => return Err(self.failure(&format!("it ended without {word}"))),
            }
        }
    }

    /// Answers the script: makes a file of this name in /share.
    pub fn tell(&self, name: &str) -> Result {
        Ok(std::fs::write(self.folder.join("share").join(name), "")?)
    }

    /// Reads to the end; the script must have ended well. All that it printed.
    pub fn finish(mut self) -> Result<String> {
        while let Some(line) = self.process.line(self.deadline)? {
            self.said.push(line);
        }
        let status = self.process.wait(self.deadline)?;
        ensure(status.success(), || self.failure(&status.to_string()).to_string())?;
        Ok(self.said.join("\n"))
    }

    fn failure(&self, what: &str) -> Outcome {
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        Outcome::Fail(format!(
            "guest: {what}\n--- it said\n{}\n--- errors\n{}\n--- its kernel\n{}",
            tail(&self.said.join("\n"), 25),
            tail(&read("guest.log"), 10),
            tail(&read("kernel.log"), 15)
        ))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // run-guest.sh ends its QEMU when it is told to end; kill -9 would leave QEMU behind.
        let _ = self.process.signal("TERM");
        let _ = self.process.wait(Deadline::after(Duration::from_secs(5)));
    }
}
