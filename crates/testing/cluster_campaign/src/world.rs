//! The simulation: one queue of events, the store, the nodes, the disks, the clients, and what must hold.

use std::collections::BTreeMap;

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Home, Owner, Value as _, Vote};
use cluster_store::{Found, Step, Transaction};
use pool_ownership::{Flaws, Settings, Timings};
use sim::Dice;
use sim_store::{RequestId, SimStore};

use crate::case::{Case, Outcome, Sabotage, Stats};
use crate::clients::{Client, Known};
use crate::disk::Disk;
use crate::fault::{End, Fault};
use crate::life::{MILLISECOND, SECOND, Time};
use crate::node::{Clock, For, Incoming, SimNode};
use crate::pool::Plan;

/// After everything has healed, every client of every pool is served within this.
const LIVENESS: Time = 40 * SECOND;
/// A run that is longer has no end.
const MOST_EVENTS: u64 = 3_000_000;

pub(crate) enum Event {
    /// To a life of a node, or to whichever there is.
    ToNode(usize, Option<u64>, Incoming),
    ToDisk {
        disk: usize,
        node: usize,
        life: u64,
        wait: u64,
        session: u64,
        epoch: u64,
        command: crate::disk::Command,
    },
    /// The client begins its next operation.
    Next(usize),
    /// An answer arrives at a client; `None`: the node does not own the pool.
    Answered(usize, u64, Option<u64>),
    /// The client has waited long enough.
    GiveUp(usize, u64),
    Fault(Fault),
    /// The world looks whether everybody is served.
    Look,
}

pub(crate) struct World {
    pub(crate) case: Case,
    pub(crate) dice: Dice,
    pub(crate) now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    pub(crate) sequence: u64,
    pub(crate) cluster: ClusterName,
    pub(crate) timings: Timings,
    pub(crate) store: SimStore,
    pub(crate) requests: BTreeMap<RequestId, (usize, u64, For)>,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) pools: Vec<PoolId>,
    pub(crate) clients: Vec<Client>,
    pub(crate) known: BTreeMap<(usize, usize), Known>,
    /// How many faults cut each way.
    pub(crate) cuts: BTreeMap<(End, End), u32>,
    /// Messages between nodes and to disks are late now.
    pub(crate) late: bool,
    /// This node takes seconds to carry requests out now.
    pub(crate) slow: Option<usize>,
    /// For that alone: the choices of everything else stay what they are.
    pub(crate) slow_dice: Dice,
    pub(crate) healed: Option<Time>,
    pub(crate) heal_at: Time,
    pub(crate) kinds: Vec<u64>,
    /// The owner and the witness's vote of each pool, as they were last seen in the store.
    seen: Vec<(Option<Owner>, Option<Vote>)>,
    pub(crate) stats: Stats,
    pub(crate) broken: Option<String>,
}

fn timings(sabotage: Sabotage) -> Timings {
    let milliseconds = std::time::Duration::from_millis;
    let settings = match sabotage {
        Sabotage::PermitTooLong => {
            let (permit, margin) = (milliseconds(3000), milliseconds(40));
            Settings { permit, margin, rate_error_ppm: 40_000, ..Settings::default() }
        }
        Sabotage::PromiseUsedAsLong => Settings {
            promise_used: milliseconds(2500),
            margin: milliseconds(0),
            rate_error_ppm: 0,
            ..Settings::default()
        },
        _ => Settings::default(),
    };
    #[expect(clippy::panic, reason = "settings of this file: the tests would not run at all")]
    Timings::new(settings).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn flaws(sabotage: Sabotage) -> Flaws {
    Flaws {
        permit_from_answer: sabotage == Sabotage::PermitFromAnswer,
        claim_from_asking: sabotage == Sabotage::ClaimFromAsking,
        promise_ignored: sabotage == Sabotage::PromiseIgnored,
        one_promise_is_enough: sabotage == Sabotage::OnePromiseIsEnough,
        promise_beside_claim: sabotage == Sabotage::PromiseBesideClaim,
        stranger_claims: sabotage == Sabotage::StrangerClaims,
        orphan_unchecked: sabotage == Sabotage::OrphanUnchecked,
        claim_without_beat: sabotage == Sabotage::ClaimWithoutBeat,
    }
}

impl World {
    #[expect(clippy::expect_used, reason = "names and numbers of this function")]
    pub(crate) fn new(case: Case) -> Self {
        let dice = Dice::new(case.seed);
        let cluster = ClusterName::new("campaign").expect("a name");
        let mut world = Self {
            case,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            timings: timings(case.sabotage),
            store: SimStore::new(dice.fork()),
            requests: BTreeMap::new(),
            nodes: Vec::new(),
            disks: Vec::new(),
            plans: Vec::new(),
            pools: Vec::new(),
            clients: Vec::new(),
            known: BTreeMap::new(),
            cuts: BTreeMap::new(),
            late: false,
            slow: None,
            slow_dice: Dice::new(!case.seed),
            healed: None,
            heal_at: 0,
            kinds: Vec::new(),
            seen: Vec::new(),
            stats: Stats::default(),
            broken: None,
            cluster,
            dice,
        };
        let dice = world.dice.clone();
        for number in 1..=dice.between(2, 4) {
            // The extremes are what the times have to stand.
            let error_ppm = match dice.below(4) {
                0 => 50_000,
                1 => -50_000,
                _ => dice.between(0, 100_000) as i64 - 50_000,
            };
            let clock = Clock { error_ppm, offset: dice.between(100, 1000) * SECOND, slept: 0, set_back: 0 };
            world.nodes.push(SimNode::new(NodeId::new(number as u16).expect("a number"), clock));
        }
        for pool in 0..dice.between(1, 2) as usize {
            world.add_pool(pool);
        }
        world
    }

    fn add_pool(&mut self, pool: usize) {
        let dice = self.dice.clone();
        let id = PoolId(uuid::Uuid::from_u128(pool as u128 + 1));
        let disks = (0..dice.between(2, 4)).map(|_| {
            self.disks.push(Disk::default());
            self.disks.len() - 1
        });
        let plan = Plan {
            pool,
            disks: disks.collect(),
            blocks: dice.between(2, 4) as usize,
            owner_key: Key::Owner(id).path(&self.cluster),
            witness_key: Key::Witness(id).path(&self.cluster),
        };
        let mut nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        nodes.rotate_left(pool % self.nodes.len());
        let values = [
            (plan.owner_key.clone(), Owner { epoch: 0, holder: None }.encode()),
            (Key::Home(id).path(&self.cluster), Home { nodes }.encode()),
        ];
        let steps = values.into_iter().filter_map(|(key, value)| Some(Step::Put(key, value.ok()?))).collect();
        let made = self.store.apply(0, &Transaction { steps, ..Transaction::default() });
        if let Err(error) = made {
            self.break_promise(format!("the scene cannot be set: {error}"));
        }
        for client in 0..plan.blocks + 1 {
            let own = (client < plan.blocks).then_some(client);
            let node = dice.below(self.nodes.len() as u64) as usize;
            self.clients.push(Client { pool, own, node, connection: 0, operation: None, served: None });
        }
        self.plans.push(plan);
        self.pools.push(id);
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.case.trace {
            eprintln!("{:10.4} {}", self.now as f64 / SECOND as f64, what());
        }
    }

    pub(crate) fn break_promise(&mut self, what: String) {
        self.trace(|| format!("BROKEN {what}"));
        self.broken.get_or_insert(what);
    }

    pub(crate) fn push(&mut self, after: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), event);
    }

    /// How long something is on its way.
    pub(crate) fn way(&mut self) -> Time {
        if self.late && self.dice.one_in(6) {
            return self.dice.between(MILLISECOND, 3500 * MILLISECOND);
        }
        self.dice.between(MILLISECOND / 20, 2 * MILLISECOND)
    }

    pub(crate) fn open(&self, from: End, to: End) -> bool {
        !self.cuts.contains_key(&(from, to))
    }

    pub(crate) fn run(mut self) -> Outcome {
        self.begin();
        while self.broken.is_none() {
            let event_at = self.queue.keys().next().map(|(at, _)| *at);
            let Some(at) = self.store.next_at().into_iter().chain(event_at).min() else { break };
            self.now = self.now.max(at);
            self.stats.events += 1;
            if self.stats.events > MOST_EVENTS {
                self.break_promise("the run has no end".into());
            }
            let deliveries = self.store.advance(self.now);
            self.check_store();
            for delivery in deliveries {
                self.store_answers(delivery);
            }
            while self.broken.is_none()
                && let Some(entry) = self.queue.first_entry()
                && entry.key().0 <= self.now
            {
                let event = entry.remove();
                if matches!(event, Event::Look) && self.look() {
                    return Outcome { broken: self.broken, stats: self.stats };
                }
                self.happen(event);
            }
        }
        Outcome { broken: self.broken, stats: self.stats }
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            // Some join late.
            let late = node > 0 && self.dice.one_in(4);
            let after = if late { self.dice.between(2, 20) * SECOND } else { self.dice.below(SECOND) };
            self.push(after, Event::Fault(Fault::Start(node)));
        }
        for client in 0..self.clients.len() {
            let after = self.dice.below(2 * SECOND);
            self.push(after, Event::Next(client));
        }
        self.plan_faults();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToNode(node, life, incoming) => self.arrive(node, life, incoming),
            Event::ToDisk { disk, node, life, wait, session, epoch, command } => {
                if !self.open(End::Node(node), End::Disk(disk)) {
                    return;
                }
                self.trace(|| format!("    d{disk} takes from n{node} e{epoch} s{session}: {command:?}"));
                let reply = self.disks[disk].execute(node, session, epoch, command);
                match reply {
                    Err(broken) => self.break_promise(broken),
                    Ok(None) => {}
                    Ok(Some(_)) if !self.open(End::Disk(disk), End::Node(node)) => {}
                    Ok(Some(reply)) => {
                        let after = self.way();
                        self.push(after, Event::ToNode(node, Some(life), Incoming::Disk(wait, reply)));
                    }
                }
            }
            Event::Next(client) => self.next_operation(client),
            Event::Answered(client, operation, value) => self.client_answered(client, operation, value),
            Event::GiveUp(client, operation) => self.give_up(client, operation),
            Event::Fault(fault) => self.fault(fault),
            Event::Look => {}
        }
    }

    /// After the healing: whether everybody was served, and how it looks then.
    fn look(&mut self) -> bool {
        let Some(healed) = self.healed else { return false };
        let served = self.clients.iter().map(|client| client.served).collect::<Option<Vec<Time>>>();
        if let Some(served) = served {
            let last = served.into_iter().max().unwrap_or(healed);
            self.stats.slowest_ms = self.stats.slowest_ms.max(last.saturating_sub(healed) / MILLISECOND);
            self.check_copies();
            return true;
        }
        if self.now > healed + LIVENESS {
            let waiting = self.clients.iter().filter(|client| client.served.is_none());
            let pools: Vec<usize> = waiting.map(|client| client.pool).collect();
            self.break_promise(format!(
                "clients of pools {pools:?} are not served {} s after all faults",
                LIVENESS / SECOND
            ));
            return true;
        }
        self.push(SECOND, Event::Look);
        false
    }

    /// Copies that count as sound have what was acknowledged.
    fn check_copies(&mut self) {
        let mut wrong = None;
        for plan in &self.plans {
            let owner = self.owner(plan).and_then(|owner| owner.holder);
            let node = self.nodes.iter().find(|node| owner.is_some_and(|owner| owner.node == node.id));
            let Some(pool) = node.and_then(|node| node.pools.get(&plan.pool)) else { continue };
            for block in 0..plan.blocks {
                let known = self.known.get(&(plan.pool, block)).copied().unwrap_or_default();
                for copy in pool.sound(block) {
                    let value = self.disks[plan.disks[copy]].value(block);
                    if value < known.acknowledged || value > known.begun {
                        wrong = Some(format!(
                            "at the end copy {copy} of block {block} holds {value}, not {known:?}"
                        ));
                    }
                }
            }
        }
        if let Some(wrong) = wrong {
            self.break_promise(wrong);
        }
    }

    /// What the store must never show: a new owner while the former one may answer, a vote that goes back.
    fn check_store(&mut self) {
        let mut wrong = None;
        for plan in &self.plans {
            let vote =
                self.store.tree().find(&plan.witness_key).and_then(|found| Vote::decode(&found.value).ok());
            let present = (self.owner(plan), vote);
            let Some(before) = self.seen.get(plan.pool).filter(|before| **before != present) else {
                continue;
            };
            if before.1 > present.1 {
                wrong = Some(format!(
                    "pool {}: the witness's vote goes back from {:?} to {vote:?}",
                    plan.pool, before.1
                ));
            }
            if let Some(owner) = before.0.as_ref().filter(|_| before.0 != present.0)
                && let Some(holder) = owner.holder
                && let Some(node) = self
                    .nodes
                    .iter()
                    .find(|node| node.id == holder.node && node.life_number == holder.incarnation.0)
                && node.machine.is_some()
            {
                let clock = node.clock.read(self.now, self.case.sabotage);
                let inner = node.life.inner.borrow();
                let checks = self.case.sabotage != Sabotage::NoPermitCheck;
                if inner.published.get(&plan.pool) == Some(&owner.epoch) && (clock < inner.permit || !checks)
                {
                    let what = format!(
                        "pool {} changes its owner while n{} may still answer",
                        plan.pool,
                        node.id.number() - 1
                    );
                    wrong = Some(format!("{what}, for {:?}", inner.permit.since(clock)));
                }
            }
            self.seen[plan.pool] = present;
        }
        if self.seen.len() < self.plans.len() {
            self.seen.resize(self.plans.len(), (None, None));
        }
        if let Some(wrong) = wrong {
            self.break_promise(wrong);
        }
    }

    /// Who owns a pool at this very moment.
    pub(crate) fn owner(&self, plan: &Plan) -> Option<Owner> {
        let found: &Found = self.store.tree().find(&plan.owner_key)?;
        Owner::decode(&found.value).ok()
    }
}
