//! A block device that is taken away ends a load that measures it, however slow the load is; a loop device that is detached
//! while it is open is still there, and ends nothing.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::node::binary;
use crate::process::{Deadline, Running, command, need, need_root, run as run_program};
use crate::{Result, ensure};

/// One command, on a machine that does much else.
const RUN: Duration = Duration::from_secs(60);
/// Bytes of the device.
const SIZE: u64 = 64 << 20;
/// Reads that reached the device before anything is done to it: whoever looks at a new device reads it, too.
const BEGUN: u64 = 5;

/// A loop device over a file, until dropped.
struct Loop {
    path: String,
    /// Its number may be another one's by now.
    is_detached: Cell<bool>,
}

impl Loop {
    fn over(file: &Path) -> Result<Self> {
        std::fs::File::create(file)?.set_len(SIZE)?;
        let mut losetup = command("losetup");
        losetup.args(["--find", "--show"]).arg(file);
        let path = run_program(RUN, &losetup)?.ok("losetup")?;
        Ok(Self { path: path.trim().to_owned(), is_detached: Cell::new(false) })
    }

    fn losetup(&self, option: &str) -> Result {
        let mut losetup = command("losetup");
        losetup.args([option, &self.path]);
        run_program(RUN, &losetup)?.ok("losetup").map(drop)
    }

    /// Gives the device up; whoever has it open keeps it until it is closed.
    fn detach(&self) -> Result {
        if self.is_detached.replace(true) {
            return Ok(());
        }
        self.losetup("--detach")
    }

    /// Reads that the device has done.
    fn reads(&self) -> Result<u64> {
        let name = self.path.trim_start_matches("/dev/");
        let text = std::fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        Ok(text.split_whitespace().next().and_then(|reads| reads.parse().ok()).unwrap_or(0))
    }

    /// Loads it with direct reads, does `meanwhile` once they have begun; the exit code and the time span that was measured.
    fn load(
        &self,
        context: &Context,
        words: &[&str],
        meanwhile: impl FnOnce() -> Result,
    ) -> Result<(Option<i32>, Value)> {
        let before = self.reads()?;
        let mut spd = command(binary()?);
        spd.args(["spd", "--json", "--quiet", "-W0", "-b4K", "-r", "-Su"]).args(words).arg(&self.path);
        let mut load = Running::start("load", spd, &context.folder.join("load.log"))?;
        Deadline::after(RUN)
            .poll("the load's begin", || Ok((self.reads()? >= before + BEGUN).then_some(())))?;
        meanwhile()?;
        let status = load.wait(Deadline::after(RUN))?;
        let mut text = String::new();
        while let Some(line) = load.line(Deadline::after(RUN))? {
            text.push_str(&line);
        }
        let report: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text:?}"))?;
        Ok((status.code(), report["spans"][0].clone()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // What went wrong before is what is told.
        let _ = self.detach();
    }
}

pub(super) fn run(context: &Context) -> Result {
    need_root("loop devices")?;
    need("losetup", "mount")?;
    if !Path::new("/dev/loop-control").exists() {
        return Err(crate::Outcome::Skip("this kernel has no loop devices".into()));
    }
    std::fs::create_dir_all(&context.folder)?;
    let file = context.folder.join("backing");
    let device = Loop::over(&file)?;
    // Ten reads in a second: by failures alone it would take long to see that there is no point in going on.
    let (code, span) = device.load(context, &["-d600", "--rate=10"], || {
        std::fs::File::options().write(true).open(&file)?.set_len(0)?;
        device.losetup("--set-capacity")
    })?;
    let told = span["ended_early"].as_str().unwrap_or_default();
    let is_told = told.contains("has gone: it has no capacity any more, seen ");
    ensure(code == Some(1) && is_told, || format!("a device without capacity: {code:?}, {span}"))?;
    let count = span["read"]["count"].as_u64().unwrap_or(0);
    ensure(count >= 1, || format!("what was measured before is not told: {span}"))?;

    drop(device);
    let device = Loop::over(&file)?;
    let (code, span) = device.load(context, &["-d3", "--rate=50"], || device.detach())?;
    let is_whole = span["ended_early"].is_null() && span["read"]["errors"] == 0;
    ensure(code == Some(0) && is_whole, || format!("a device that is detached while open: {code:?}, {span}"))
}
