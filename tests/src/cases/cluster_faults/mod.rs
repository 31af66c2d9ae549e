//! Everything that may happen to a cluster happens to three nodes in network namespaces, one or two things at a time, again and again:
//! processes, cables, etcd, disks, orders of an administrator. Meanwhile two LUNs are written and read through all nodes, one on disks that all
//! nodes share and are fenced from, one on the own disks of the nodes. No acknowledged write may be lost, hidden or overwritten by one that
//! comes late (`../registers.rs`); and when everything is over, all of it must be served again without help.

mod faults;
pub(super) mod silent_disk;

use std::path::Path;
use std::time::Duration;

use block_conformance::Rng;

use super::Context;
use super::cluster::{failed, now};
use super::failover::{Order, POOL, World};
use super::registers::{self, Registers};
use crate::process::{Deadline, need, pause};
use crate::{Result, ensure, note};

use faults::{Fault, NODES, STORES};

/// The pool on the nodes' own disks.
const BUS: &str = "bus";
const TARGET: &str = "iqn.2026-11.test.holdfast";
const DISK: u64 = 4 << 30;
/// How long things happen.
const LONG: Duration = Duration::from_secs(1200);
const SHORT: Duration = Duration::from_secs(150);
/// Everything is served again, on a machine that does much else.
const BACK: Duration = Duration::from_secs(180);
/// All copies are there again.
const REDUNDANT: Duration = Duration::from_secs(300);

/// A pool on own disks, and a LUN on each pool; their addresses at each node.
fn make(world: &World) -> Result<Vec<Vec<String>>> {
    let first = &world.nodes[0];
    let mut create = vec!["pool".to_owned(), "create".to_owned(), BUS.to_owned(), "--yes".to_owned()];
    for node in &world.nodes {
        std::fs::File::create(node.own_disk(0))?.set_len(DISK)?;
        create.push(format!("{}:{}", node.name, node.own_disk(0).display()));
    }
    first.ask(&create.iter().map(String::as_str).collect::<Vec<_>>())?;
    first.ask(&["volume", "create", "b", "--pool", BUS, "--size", "1G", "--resiliency", "mirror2"])?;
    first.ask(&["initiator-group", "create", "all", "--any"])?;
    let mut urls = Vec::new();
    for (volume, lun) in [("v", "shared"), ("b", "own")] {
        let target = format!("{TARGET}:{lun}");
        first.ask(&["target", "create", &target])?;
        first.ask(&["lun", "create", lun, "--volume", volume, "--size", "64M"])?;
        first.ask(&["lun", "map", lun, "--target", &target, "--group", "all", "--number", "0"])?;
        urls.push((0..NODES).map(|node| format!("iscsi://10.99.0.{}:3260/{target}/0", 11 + node)).collect());
    }
    Ok(urls)
}

/// All that takes part: the nodes, and a LUN of each pool as registers.
fn start(context: &Context, stores: usize) -> Result<(World, Vec<Registers>)> {
    let world = World::with_stores(context, true, stores)?;
    let urls = make(&world)?;
    let named = ["shared", "own"].into_iter().zip(urls);
    Ok((world, named.map(|(name, urls)| Registers::new(name, urls)).collect()))
}

/// When everything is over: all of it is sound, and the same at all nodes. Copies that were made since may have been made of the wrong ones.
fn finish(world: World, luns: &[Registers]) -> Result {
    at_the_end(&world)?;
    registers::read_back(&world.clients(), luns)?;
    world.finish()
}

pub(super) fn run(context: &Context) -> Result {
    need("iptables", "iptables")?;
    let (mut world, luns) = start(context, STORES)?;
    registers::under_load(&world.clients(), &luns, || happen(context, &mut world, &luns))?;
    finish(world, &luns)
}

/// Lets things happen, as long as there is time.
fn happen(context: &Context, world: &mut World, luns: &[Registers]) -> Result {
    let seed = now();
    note!("     seed {seed}");
    let mut chance = Rng::new(seed);
    let time = Deadline::after(if context.full { LONG } else { SHORT });
    served(world, luns)?;
    for round in 0.. {
        if time.left().is_zero() {
            break;
        }
        let owner = world.owner("").ok().and_then(|name| world.nodes.iter().position(|n| n.name == name));
        let mut faults = vec![Fault::draw(&mut chance, owner)];
        if chance.one_in(3) {
            faults.push(Fault::draw(&mut chance, owner));
        }
        let (beside, orders) = order(world, &mut chance, round);
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let told = format!("{}{beside}", told.join(", then "));
        let ordered = std::thread::spawn(move || orders.iter().map(Order::carry_out).collect::<Vec<_>>());
        let happened = one_round(context, world, luns, &mut chance, &faults, round);
        for (what, done) in ordered.join().unwrap_or_default() {
            world.effects.count(&what, done);
        }
        happened.map_err(|why| failed(&format!("round {round} ({told})"), why))?;
        let counts: Vec<_> = luns.iter().map(Registers::counts).collect();
        note!("     round {round}: {told}; writes, reads, in vain: {counts:?}");
    }
    Ok(())
}

fn one_round(
    context: &Context,
    world: &mut World,
    luns: &[Registers],
    chance: &mut Rng,
    faults: &[Fault],
    round: usize,
) -> Result {
    let mut ends = Vec::new();
    let mut passed = 0;
    for fault in faults {
        let wait = if ends.is_empty() { 0 } else { chance.below(3_000) };
        pause(Duration::from_millis(wait));
        passed += wait;
        fault.begin(world)?;
        ends.push((passed + fault.lasts, *fault));
    }
    ends.sort_by_key(|(end, _)| *end);
    for (end, fault) in ends {
        pause(Duration::from_millis(end.saturating_sub(passed)));
        passed = passed.max(end);
        fault.end(world)?;
    }
    faults::all_over(world)?;
    served(world, luns)?;
    share(context, world, chance, round)?;
    luns.iter().try_for_each(Registers::sound)?;
    for node in &world.nodes {
        ensure(!node.log()?.contains("panicked at"), || format!("{} has panicked", node.name))?;
    }
    Ok(())
}

/// Something that an administrator does at the same time; in words. Whether a cluster in trouble does it is its own affair.
fn order(world: &World, chance: &mut Rng, round: usize) -> (&'static str, Vec<Order>) {
    let node = &world.nodes[chance.below(NODES as u64) as usize];
    let name = format!("snap{round}");
    let (beside, words): (_, Vec<Vec<&str>>) = match chance.below(6) {
        0 => (", beside a scrub", vec![vec!["pool", "scrub", POOL], vec!["pool", "scrub", BUS]]),
        1 => {
            let taken = vec!["snapshot", "create", "v:", &name];
            (", beside a snapshot's deletion", vec![taken, vec!["snapshot", "delete", "v", &name, "--yes"]])
        }
        2 => {
            let (group, policy) = (format!("g{round}"), format!("q{round}"));
            let orders = vec![
                node.order(&["initiator-group", "create", &group, "--any"]),
                node.order(&["qos", "policy", "create", &policy, "--max-iops", "100000"]),
            ];
            return (", beside changes of the configuration", orders);
        }
        3 => (", beside balancing", vec![vec!["cluster", "rebalance"]]),
        _ => ("", Vec::new()),
    };
    (beside, words.iter().map(|words| node.order(words)).collect())
}

/// Waits until all nodes take part, and both LUNs are written and read again.
fn served(world: &World, luns: &[Registers]) -> Result {
    world.settled()?;
    let before: Vec<_> = luns.iter().map(Registers::counts).collect();
    Deadline::after(BACK).poll("LUNs that are served again", || {
        let go_on = luns.iter().zip(&before).all(|(lun, before)| {
            let now = lun.counts();
            now.0 > before.0 && now.1 > before.1
        });
        Ok(go_on.then_some(()))
    })
}

/// A file goes into the share and comes back, at the service address.
fn share(context: &Context, world: &World, chance: &mut Rng, round: usize) -> Result {
    let (out, back) = (context.folder.join("out"), context.folder.join("back"));
    let content: Vec<u8> = (0..100_000).map(|_| chance.below(256) as u8).collect();
    std::fs::write(&out, &content)?;
    let name = format!("file{}", round % 8);
    let shown = |path: &Path| path.display().to_string();
    Deadline::after(BACK).poll("the share to be served again", || {
        let put = world.smbclient(&format!("put {} {name}", shown(&out)));
        Ok(put.is_ok().then_some(()))
    })?;
    world.smbclient(&format!("get {name} {}", shown(&back)))?;
    ensure(std::fs::read(&back)? == content, || format!("{name} is another file"))
}

/// All copies are there again, and equal; structures are sound; what was tried often has happened at least once.
fn at_the_end(world: &World) -> Result {
    note!("     took effect: {}", world.effects);
    world.effects.each_has_happened()?;
    for pool in [POOL, BUS] {
        Deadline::after(REDUNDANT).poll(&format!("all copies of pool {pool}"), || {
            let Ok(shown) = world.nodes[0].ask(&["pool", "show", pool, "--json"]) else { return Ok(None) };
            let shown: serde_json::Value = serde_json::from_str(&shown).map_err(|why| failed("JSON", why))?;
            Ok((shown["redundancy"] == "full" && shown["disks_missing"] == 0).then_some(()))
        })?;
        world.nodes[0].ask(&["pool", "check", pool, "--deep"])?;
    }
    for volume in ["v", "b"] {
        world.nodes[0].ask(&["volume", "check", volume])?;
    }
    Ok(())
}
