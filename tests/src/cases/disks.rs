//! The Linux kernel as initiator: a file system on a LUN, verified load on it, and disks or the node dying meanwhile.

use std::time::Duration;

use super::{Context, Server};
use crate::Result;
use crate::guest::{Guest, Setup};
use crate::node::{Node, Options};

/// Boot, mkfs, write and verify under emulation on two busy cores.
const LIMIT: Duration = Duration::from_secs(1200);
const LIMIT_FULL: Duration = Duration::from_secs(2400);
/// What is written and verified, in MiB, at least.
const SIZE: &str = "64";
const SIZE_FULL: &str = "512";

/// A disk vanishes under load, comes back, and only then the load goes on to its end.
pub(super) fn vanish(context: &Context) -> Result {
    let hurt = |node: &mut Node, guest: &mut Guest| {
        let disk = node.disk(0)?;
        node.expect_log("disk");
        node.cli(&["disk", "fault", &disk, "vanish"])?;
        node.wait_reduced()?;
        guest.wait_for("PROGRESS")?;
        node.cli(&["disk", "fault", &disk, "return"])?;
        Ok(())
    };
    under_load(context, "ext4", hurt)
}

/// A disk vanishes for good, and a new one takes its place while the load goes on.
pub(super) fn replace(context: &Context) -> Result {
    let hurt = |node: &mut Node, guest: &mut Guest| {
        let (lost, new) = (node.disk(1)?, node.data_dir().join("new-disk.img"));
        std::fs::File::create(&new)?.set_len(20 << 30)?;
        node.expect_log("disk");
        node.cli(&["disk", "fault", &lost, "vanish"])?;
        node.wait_reduced()?;
        guest.wait_for("PROGRESS")?;
        let pool = node.told("pool");
        // How long the repair takes is not the command's business here: the case waits for full redundancy at its end.
        node.cli(&["pool", "replace", &pool, &lost, "--with", &new.to_string_lossy(), "--no-wait"])?;
        Ok(())
    };
    under_load(context, "xfs", hurt)
}

/// The node is killed and started again while the load waits.
pub(super) fn kill(context: &Context) -> Result {
    let hurt = |node: &mut Node, guest: &mut Guest| {
        node.crash_and_restart()?;
        guest.wait_for("PROGRESS")?;
        node.crash_and_restart()
    };
    under_load(context, "ext4", hurt)
}

/// With one file system in CI, with both in a full run.
fn under_load(
    context: &Context,
    usual: &'static str,
    hurt: impl Fn(&mut Node, &mut Guest) -> Result,
) -> Result {
    let others = ["ext4", "xfs"].into_iter().filter(|fs| context.full && *fs != usual);
    for fs in std::iter::once(usual).chain(others) {
        let folder = context.folder.join(fs);
        std::fs::create_dir_all(&folder)?;
        one_load(&Context { folder, url: context.url.clone(), ..*context }, fs, &hurt)?;
    }
    Ok(())
}

fn one_load(context: &Context, fs: &str, hurt: impl Fn(&mut Node, &mut Guest) -> Result) -> Result {
    let mut server = Server::start(context, Options { chap: true, ..Options::default() })?;
    let mut env = server.guest_env();
    env.push(("FS", fs.into()));
    env.push(("SIZE_MIB", if context.full { SIZE_FULL } else { SIZE }.into()));
    let limit = if context.full { LIMIT_FULL } else { LIMIT };
    let mut guest =
        Guest::start(&context.folder, Setup { script: "load.sh", env, limit, ..Setup::default() })?;
    guest.wait_for("READY")?;
    if let Some(node) = server.node() {
        hurt(node, &mut guest)?;
    }
    guest.tell("hurt")?;
    guest.finish()?;
    if let Some(node) = server.node() {
        node.wait_redundant()?;
    }
    server.finish()
}
