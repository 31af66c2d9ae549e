//! The Linux kernel as initiator: a file system on a LUN, verified load on it, and disks or the node dying meanwhile.

use std::time::Duration;

use super::{Context, Server};
use crate::Result;
use crate::guest::{Guest, Setup};
use crate::node::{Node, Options};

/// Boot, mkfs, write and verify under emulation on two busy cores.
const LIMIT: Duration = Duration::from_secs(600);

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
    let folder = context.folder.clone();
    let hurt = move |node: &mut Node, guest: &mut Guest| {
        let (lost, new) = (node.disk(1)?, folder.join("new-disk.img"));
        std::fs::File::create(&new)?.set_len(20 << 30)?;
        node.expect_log("disk");
        node.cli(&["disk", "fault", &lost, "vanish"])?;
        node.wait_reduced()?;
        guest.wait_for("PROGRESS")?;
        let pool = node.told("pool");
        node.cli(&["pool", "replace", &pool, &lost, "--with", &new.to_string_lossy()])?;
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

fn under_load(
    context: &Context,
    fs: &'static str,
    hurt: impl FnOnce(&mut Node, &mut Guest) -> Result,
) -> Result {
    let mut server = Server::start(context, Options { chap: true, ..Options::default() })?;
    let mut env = server.guest_env();
    env.push(("FS", fs.into()));
    env.push(("SIZE_MIB", if context.full { "1024" } else { "256" }.into()));
    let mut guest =
        Guest::start(&context.folder, Setup { script: "load.sh", env, limit: LIMIT, ..Setup::default() })?;
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
