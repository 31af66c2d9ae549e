//! kill -9 under load, restart, and the clean stop: what was acknowledged is there.

use std::path::Path;
use std::time::Duration;

use super::{Context, Server};
use crate::node::Options;
use crate::process::{Running, command, need, run as run_program};
use crate::{Result, ensure};

/// One program that reads or writes 64 MiB through QEMU's iSCSI client.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(context: &Context) -> Result {
    need("qemu-io", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    qemu_io(&url, &["write -P 0xa5 0 64M", "write -f -P 0x5a 1G 1M", "flush"])?;
    let Some(node) = server.node() else { return server.finish() };
    ensure(node.verdict()? == "fully-redundant", || "a new node is not fully redundant".into())?;

    // What a cache knew before the kill is not to be seen after it.
    let volume = node.told("volume");
    node.cli(&["volume", "set", &volume, "--read-cache", "on", "--read-ahead", "adaptive"])?;
    qemu_io(&url, &["read -P 0xa5 0 64M"])?;

    // Load that is cut off by kill -9.
    let mut load = command("qemu-io");
    load.args(["-f", "raw", "-c", "write -P 0x11 2G 512M", &url]);
    let load = Running::start("load", load, &context.folder.join("load.log"))?;
    second_node_is_refused(&node.data_dir())?;
    node.crash_and_restart()?;
    drop(load);
    let verify = ["read -P 0xa5 0 64M", "read -P 0x5a 1G 1M", "read -P 0 8G 1M"];
    qemu_io(&url, &verify)?;
    node.wait_redundant()?;

    node.stop()?;
    node.start_again()?;
    qemu_io(&url, &verify)?;
    server.finish()
}

/// Two nodes on one data directory would write to the same disks.
fn second_node_is_refused(dir: &Path) -> Result {
    let Some(binary) = std::env::var_os("HOLDFAST_BIN") else { return Ok(()) };
    let mut second = command(binary);
    second.args(["demo", "--iscsi", "127.0.0.1:0", "--smb", "127.0.0.1:0", "--dir"]).arg(dir);
    let ended = run_program(Duration::from_secs(20), &second)?;
    ensure(ended.status.code() == Some(1), || {
        format!("a second node on the same data was not refused: {} {}", ended.status, ended.errors)
    })
}

/// Runs commands of qemu-io on the LUN; a pattern that does not match is a failure.
pub(super) fn qemu_io(url: &str, commands: &[&str]) -> Result {
    let mut io = command("qemu-io");
    io.args(["-f", "raw"]);
    for command in commands {
        io.args(["-c", command]);
    }
    let done = run_program(LIMIT, io.arg(url))?;
    let wrong = done.output.contains("Pattern verification failed") || done.output.contains("failed:");
    let output = done.ok(&format!("qemu-io {commands:?}"))?;
    ensure(!wrong, || format!("qemu-io {commands:?}: {output}"))
}
