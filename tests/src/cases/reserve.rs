//! A disk is lost, there is no spare: what it held is made again in the room that is kept for it.

use super::rebalance::{lose_a_disk, members};
use super::restart::qemu_io;
use super::{Context, Server};
use crate::node::Options;
use crate::process::{Deadline, need};
use crate::{Outcome, Result, ensure};
use std::time::Duration;

/// What is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

pub(super) fn run(context: &Context) -> Result {
    if context.peer || context.url.is_some() {
        return Err(Outcome::Skip("needs a node of its own".into()));
    }
    need("qemu-nbd", "qemu-utils")?;
    let mut server = Server::start(context, Options::default())?;
    let url = server.url();
    let Some(node) = server.node() else { return server.finish() };
    node.expect_log("is offline: ");
    let (node, pool) = (&*node, node.told("pool"));
    // qemu-io writes less than 2 GiB at a time.
    let quiet = format!("1G {}M", if context.full { 2047 } else { 256 });
    qemu_io(&url, &[&format!("write -P 0x5a {quiet}"), "flush"])?;
    node.set_policy(&[("spare_after_seconds", 1), ("rescan_seconds", 1), ("reserve_disks", 1)])?;
    // The policy reaches the pool with the next look at the disks.
    let shown = Deadline::after(PATIENCE).poll("the room of the largest disk to be kept", || {
        let shown = node.json(&["pool", "show", &pool])?;
        let largest =
            members(&shown).filter_map(|member| member["size_bytes"].as_u64()).max().unwrap_or_default();
        let kept = shown["reserved_bytes"].as_u64().unwrap_or_default();
        // Less what the pool's metadata takes of a disk.
        Ok((kept > largest / 100 * 98 && kept <= largest).then_some(shown))
    })?;
    let number = |key: &str| shown[key].as_u64().unwrap_or_default();
    let sum = number("allocated_bytes") + number("free_bytes") + number("reserved_bytes");
    ensure(sum == number("capacity_bytes"), || format!("it does not add up: {shown}"))?;

    lose_a_disk(node, &pool)?;
    qemu_io(&url, &[&format!("read -P 0x5a {quiet}")])?;
    node.cli(&["pool", "check", &pool, "--deep"])?;
    server.finish()
}
