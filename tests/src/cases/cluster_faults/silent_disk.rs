//! A disk of the owner answers nothing any more and does not fail: a device that waits for a path, one that is suspended. The owner cannot stop
//! the pool, as requests to its disk do not end, and cannot go on. It says so, and ends itself; another node serves the pool by the other copies.

use std::time::Duration;

use serde_json::Value;

use super::super::Context;
use super::super::cluster::failed;
use super::super::failover::World;
use super::super::registers::under_load;
use super::{BUS, finish, served, start};
use crate::process::Deadline;
use crate::{Result, ensure, note};

/// Longer than anybody waits.
const NEVER: &str = "3600000";
/// It is said that the disk is silent.
const SAID: Duration = Duration::from_secs(60);
/// The disk is given up, the pool does not stop, the process ends, another one takes the pool.
const TAKEN: Duration = Duration::from_secs(450);

/// The owner of the pool on own disks, as another node than `not` sees it that serves it.
fn owner(world: &World, not: &str) -> Result<Option<String>> {
    let asked = world.nodes.iter().find(|node| node.name != not).ok_or_else(|| failed("owner", "no node"))?;
    let Ok(shown) = asked.ask_within(20, &["cluster", "status", "--json"]) else { return Ok(None) };
    let shown: Value = serde_json::from_str(&shown).map_err(|why| failed("JSON", why))?;
    let pools = shown["pools"].as_array().cloned().unwrap_or_default();
    let pool = pools.into_iter().find(|pool| pool["name"] == BUS && pool["state"] == "online");
    Ok(pool.and_then(|pool| pool["owner"].as_str().map(str::to_owned)).filter(|owner| owner != not))
}

pub(crate) fn run(context: &Context) -> Result {
    let (world, luns) = start(context, 1)?;
    under_load(&world.clients(), &luns, || {
        served(&world, &luns)?;
        let first = Deadline::after(SAID).poll("an owner", || owner(&world, ""))?;
        let at = world.nodes.iter().position(|node| node.name == first).unwrap_or_default();
        let disk = world.nodes[at].own_disk(0).display().to_string();
        world.nodes[at].ask_within(20, &["disk", "fault", &disk, "delay", "--delay-ms", NEVER])?;
        Deadline::after(SAID).poll("a finding", || {
            let said = world.nodes[at].ask_within(20, &["status", "--json"]).unwrap_or_default();
            Ok(said.contains("disk-silent").then_some(()))
        })?;
        let next = Deadline::after(TAKEN).poll("another owner", || owner(&world, &first))?;
        note!("     {first} had the pool, {next} has it");
        let log = world.nodes[at].log()?;
        for told in ["its pool is given up", "a pool does not stop"] {
            ensure(log.contains(told), || format!("the log of {first} does not say that {told}"))?;
        }
        // The supervisor has started it again, and its disk answers.
        served(&world, &luns)
    })?;
    finish(world, &luns)
}
