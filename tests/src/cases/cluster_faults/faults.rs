//! What may happen to three nodes, their etcd, their network and their disks: how it begins, and how it ends.

use std::time::Duration;

use block_conformance::Rng;

use super::super::failover::{POOL, World};
use crate::Result;
use crate::process::pause;

/// Nodes of the cluster.
pub(super) const NODES: usize = 3;
/// Members of etcd.
pub(super) const STORES: usize = 3;
/// Names of kinds of faults with commas between, in the environment: only these happen.
const ONLY: &str = "HOLDFAST_FAULTS";
/// A cable that comes and goes: so often, and how long each time.
const FLAPS: usize = 6;
const FLAP: Duration = Duration::from_millis(600);

/// Something that happens, with the nodes it happens to as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The process that serves is killed; its supervisor starts the next one.
    ChildKilled,
    /// Process and supervisor are killed, and started again at the end.
    BothKilled,
    /// Both stand still (SIGSTOP).
    Frozen,
    /// The machine's cable is pulled.
    Cut,
    /// Nothing arrives at the machine; what it sends does arrive.
    Deaf,
    /// Nothing that the machine sends arrives.
    Mute,
    /// The cable comes and goes.
    Flapping,
    /// Nodes do not reach etcd.
    NoStore,
    /// Two nodes do not reach each other: the one that is not in the set is between them.
    NotEachOther,
    /// Nodes do not reach the shared disks.
    NoDisks,
    /// A fifth of what the machine sends is lost.
    BadLine,
    /// The leader of etcd is killed.
    LeaderKilled,
    /// All of etcd is killed.
    StoreKilled,
    /// All of etcd stands still.
    StoreFrozen,
    /// One of the node's own disks is gone.
    OwnDiskGone,
    /// All nodes are killed, and start again. What their kernels and the shared disks had in memory is still there: loss of power is the crash
    /// campaign's.
    AllKilled,
    /// A pool is moved.
    Moved,
    /// A node is paused and drained.
    Drained,
}

const KINDS: &[(Kind, u64)] = &[
    (Kind::ChildKilled, 3),
    (Kind::BothKilled, 3),
    (Kind::Frozen, 4),
    (Kind::Cut, 3),
    (Kind::Deaf, 2),
    (Kind::Mute, 2),
    (Kind::Flapping, 2),
    (Kind::NoStore, 3),
    (Kind::NotEachOther, 3),
    (Kind::NoDisks, 2),
    (Kind::BadLine, 2),
    (Kind::LeaderKilled, 2),
    (Kind::StoreKilled, 2),
    (Kind::StoreFrozen, 2),
    (Kind::OwnDiskGone, 2),
    (Kind::AllKilled, 1),
    (Kind::Moved, 3),
    (Kind::Drained, 2),
];

/// One of them, as it was drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    /// The nodes that it happens to, counted from 0.
    nodes: [bool; NODES],
    /// How long it lasts, in milliseconds.
    pub(super) lasts: u64,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?}", self.kind)?;
        if !matches!(self.kind, Kind::LeaderKilled | Kind::StoreKilled | Kind::StoreFrozen | Kind::AllKilled)
        {
            let named: Vec<String> = self.of().map(name).collect();
            write!(to, " {}", named.join("+"))?;
        }
        write!(to, " {:.1} s", self.lasts as f64 / 1e3)
    }
}

/// Those that may be drawn: all of them, or what is named in the environment for who looks for the cause of something.
fn kinds() -> Vec<(Kind, u64)> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let named = |kind: Kind| only.split(',').any(|name| name == format!("{kind:?}"));
    KINDS.iter().copied().filter(|(kind, _)| only.is_empty() || named(*kind)).collect()
}

/// The name of a node.
fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// An order that concerns a node, by way of the next one.
fn ordered(world: &mut World, node: usize, what: &str, words: &[&str]) {
    let done = world.nodes[(node + 1) % NODES].ask_within(20, words).is_ok();
    world.effects.count(what, done);
}

/// One of them, each as likely as its weight says.
fn one_of(kinds: &[(Kind, u64)], chance: &mut Rng) -> Kind {
    let mut at = chance.below(kinds.iter().map(|(_, weight)| weight).sum());
    for (kind, weight) in kinds {
        if at < *weight {
            return *kind;
        }
        at -= weight;
    }
    Kind::ChildKilled
}

impl Fault {
    /// Draws one; the owner of the pool is hit half of the time.
    pub(super) fn draw(chance: &mut Rng, owner: Option<usize>) -> Self {
        let kind = one_of(&kinds(), chance);
        let one = owner.filter(|_| chance.one_in(2)).unwrap_or_else(|| chance.below(NODES as u64) as usize);
        // To where it is already, it does not move.
        let to = if kind == Kind::Moved && owner == Some(one) { (one + 1) % NODES } else { one };
        let mut nodes = [false; NODES];
        nodes[to] = true;
        if matches!(kind, Kind::NoStore | Kind::NotEachOther | Kind::NoDisks) {
            nodes.iter_mut().for_each(|node| *node |= chance.one_in(3));
        }
        if kind == Kind::AllKilled {
            nodes = [true; NODES];
        }
        let lasts = match kind {
            Kind::Frozen => [1_000, 5_000, 25_000, 60_000][chance.below(4) as usize],
            Kind::StoreFrozen => 2_000,
            Kind::AllKilled => 500,
            _ => 500 + chance.below(12_000),
        };
        Self { kind, nodes, lasts }
    }

    fn of(self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(move |node| self.nodes[*node])
    }

    /// Lets it happen. What a cluster in trouble may refuse (a move, a drain, a disk's fault) is no error.
    pub(super) fn begin(self, world: &mut World) -> Result {
        for node in self.of() {
            match self.kind {
                Kind::ChildKilled => world.nodes[node].signal_if_up("-KILL", true)?,
                Kind::BothKilled | Kind::AllKilled => world.nodes[node].kill()?,
                Kind::Frozen => world.nodes[node].signal_if_up("-STOP", false)?,
                Kind::Cut => world.cable(node, "cut")?,
                Kind::Deaf => world.filter(node, &["-A", "INPUT", "-i", "eth0"])?,
                Kind::Mute => world.filter(node, &["-A", "OUTPUT", "-o", "eth0"])?,
                Kind::Flapping => {
                    for _ in 0..FLAPS {
                        world.cable(node, "cut")?;
                        pause(FLAP);
                        world.cable(node, "mend")?;
                        pause(FLAP);
                    }
                }
                Kind::NoStore => world.without_store(node)?,
                Kind::NotEachOther => {
                    let (one, other) = ((node + 1) % NODES, (node + 2) % NODES);
                    world.apart(one, other)?;
                }
                Kind::NoDisks => world.without_disks(node)?,
                Kind::BadLine => world.bad_line(node)?,
                Kind::OwnDiskGone => {
                    let gone = world.own_disk(node, "vanish").is_ok();
                    world.effects.count("own disk gone", gone);
                }
                Kind::Moved => ordered(world, node, "moved", &["pool", "move", POOL, &name(node)]),
                Kind::Drained => {
                    ordered(world, node, "drained", &["node", "pause", &name(node), "--drain"]);
                }
                Kind::LeaderKilled | Kind::StoreKilled | Kind::StoreFrozen => {}
            }
        }
        match self.kind {
            Kind::LeaderKilled => world.store(|etcd| {
                // While others of it are down there may be none.
                let all = etcd.running();
                if all.len() == STORES {
                    let leader = etcd.leader();
                    etcd.kill(leader);
                }
            }),
            Kind::StoreKilled => world.store(|etcd| etcd.running().into_iter().for_each(|at| etcd.kill(at))),
            Kind::StoreFrozen => {
                world.store(|etcd| etcd.running().into_iter().for_each(|at| etcd.freeze(at)))
            }
            _ => Ok(()),
        }
    }

    /// Ends it, as far as one can: what is down is up when this returns, or comes up by itself.
    pub(super) fn end(self, world: &mut World) -> Result {
        for node in self.of() {
            match self.kind {
                Kind::BothKilled | Kind::AllKilled => world.nodes[node].start_if_down()?,
                Kind::Frozen => world.nodes[node].signal_if_up("-CONT", false)?,
                Kind::Cut | Kind::Flapping => world.cable(node, "mend")?,
                Kind::Deaf | Kind::Mute | Kind::NoStore | Kind::NoDisks | Kind::BadLine => {
                    world.unfilter(node)?
                }
                Kind::NotEachOther => {
                    world.unfilter((node + 1) % NODES)?;
                    world.unfilter((node + 2) % NODES)?;
                }
                Kind::OwnDiskGone => {
                    let _ = world.own_disk(node, "return");
                }
                Kind::Drained => {
                    let _ = world.nodes[node].ask_within(20, &["node", "resume", &name(node)]);
                }
                Kind::ChildKilled | Kind::Moved => {}
                Kind::LeaderKilled | Kind::StoreKilled | Kind::StoreFrozen => {}
            }
        }
        match self.kind {
            Kind::LeaderKilled | Kind::StoreKilled => world.store(|etcd| {
                let up = etcd.running();
                (0..STORES).filter(|at| !up.contains(at)).for_each(|at| etcd.restart(at));
            }),
            Kind::StoreFrozen => world.store(|etcd| etcd.running().into_iter().for_each(|at| etcd.thaw(at))),
            _ => Ok(()),
        }
    }
}

/// Everything is as it was before anything happened: whatever two faults at the same time have left undone. The cluster is given no help
/// but this.
pub(super) fn all_over(world: &mut World) -> Result {
    world.store(|etcd| {
        let up = etcd.running();
        up.iter().for_each(|at| etcd.thaw(*at));
        (0..STORES).filter(|at| !up.contains(at)).for_each(|at| etcd.restart(at));
    })?;
    for node in 0..NODES {
        world.nodes[node].signal_if_up("-CONT", false)?;
        world.cable(node, "mend")?;
        world.unfilter(node)?;
        world.nodes[node].start_if_down()?;
    }
    for node in 0..NODES {
        world.nodes[node].wait_until_it_answers()?;
        // Of a disk that has not gone, and a node that is not paused, this is refused.
        let _ = world.own_disk(node, "return");
        let _ = world.nodes[node].ask_within(20, &["node", "resume", &name(node)]);
    }
    Ok(())
}
