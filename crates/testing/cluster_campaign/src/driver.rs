//! Nodes in the world: what arrives at them goes into the state machine and the tasks, what these want goes out.

use std::collections::VecDeque;

use cluster_store::Range;
use cluster_store::values::{Incarnation, Member};
use pool_ownership::{Action, Input, Node, Order, Phase};
use sim_store::{Delivery, Reply, Request as StoreRequest};

use crate::case::Sabotage;
use crate::fault::{End, Fault};
use crate::life::{Answer, Life, MILLISECOND, Out, SECOND};
use crate::node::{For, Incoming};
use crate::pool::Pool;
use crate::world::{Event, World, flaws};

/// A disk that does not answer counts as away after this.
const DISK_PATIENCE: u64 = SECOND;

impl World {
    /// A process begins on a node.
    pub(crate) fn start(&mut self, node: usize) {
        let sabotage = self.case.sabotage;
        let sessions = self.nodes[node].life.inner.borrow().sessions;
        let of = &mut self.nodes[node];
        of.life_number += 1;
        of.life = Life::new(sabotage, sessions.max(of.life_number * 1_000_000));
        of.running.clear();
        of.pools.clear();
        of.sent.clear();
        of.committed = pool_ownership::BootTime(0);
        let record = Member {
            incarnation: Incarnation(of.life_number),
            addresses: Vec::new(),
            paused: false,
            draining: false,
            release: String::new(),
            name: String::new(),
            api: String::new(),
            bus: String::new(),
        };
        let now = of.clock.read(self.now, sabotage);
        let machine = Node::new(of.id, self.cluster.clone(), record, self.timings, now);
        of.machine = Some(machine.with_flaws(flaws(sabotage)));
        self.set_store_link(node);
        self.trace(|| format!("n{node} starts its life {}", self.nodes[node].life_number));
        self.read_all(node);
    }

    pub(crate) fn set_store_link(&mut self, node: usize) {
        let (to, from) = (self.open(End::Node(node), End::Store), self.open(End::Store, End::Node(node)));
        let client = self.nodes[node].client();
        self.store.set_link(client, to, from);
    }

    /// The process ends, with all that it had in memory.
    pub(crate) fn crash(&mut self, node: usize) {
        let (client, sabotage) = (self.nodes[node].client(), self.case.sabotage);
        self.store.forget(client);
        let of = &mut self.nodes[node];
        of.machine = None;
        of.running.clear();
        of.pools.clear();
        of.inbox.clear();
        let sessions = of.life.inner.borrow().sessions;
        of.life = Life::new(sabotage, sessions);
        of.crash_at = None;
    }

    fn ask_store(&mut self, node: usize, request: StoreRequest, whose: For) {
        let of = &self.nodes[node];
        let id = self.store.send(self.now, of.client(), request);
        self.requests.insert(id, (node, of.life_number, whose));
    }

    fn read_all(&mut self, node: usize) {
        let of = &mut self.nodes[node];
        of.reads += 1;
        let (reads, life) = (of.reads, of.life_number);
        self.ask_store(node, StoreRequest::Get(Range::Prefix(self.cluster.root())), For::Snapshot);
        self.push(SECOND, Event::ToNode(node, Some(life), Incoming::NoSnapshot(reads)));
    }

    pub(crate) fn store_answers(&mut self, delivery: Delivery) {
        let Some((node, life, whose)) = self.requests.get(&delivery.request).copied() else { return };
        if !matches!(whose, For::Watch) {
            self.requests.remove(&delivery.request);
        }
        self.arrive(node, Some(life), Incoming::Store(whose, delivery.reply));
    }

    /// Something arrives at a node: now, or when it goes on.
    pub(crate) fn arrive(&mut self, node: usize, life: Option<u64>, incoming: Incoming) {
        let of = &mut self.nodes[node];
        if of.machine.is_none() || life.is_some_and(|life| life != of.life_number) {
            return;
        }
        if of.paused_since.is_some() {
            of.inbox.push_back(incoming);
            return;
        }
        let source = incoming.source();
        if of.catching_up[source] > self.now {
            let after = of.catching_up[source] - self.now;
            let life = life.filter(|_| source != 3 && source != 4);
            return self.push(after, Event::ToNode(node, life, incoming));
        }
        let mut local = VecDeque::from([(of.life_number, incoming)]);
        while let Some((life, incoming)) = local.pop_front() {
            let of = &mut self.nodes[node];
            if of.machine.is_none() || of.life_number != life || self.broken.is_some() {
                continue;
            }
            of.life.inner.borrow_mut().now = of.clock.read(self.now, self.case.sabotage);
            self.take(node, incoming, &mut local);
            self.run_tasks(node, &mut local);
        }
    }

    fn take(&mut self, node: usize, incoming: Incoming, local: &mut VecDeque<(u64, Incoming)>) {
        let of = &mut self.nodes[node];
        match incoming {
            Incoming::Wake(generation) if generation == of.wake_generation => {
                self.feed(node, Input::Tick, local)
            }
            Incoming::Wake(_) => {}
            Incoming::Disk(wait, reply) => of.life.deliver(wait, Answer::Disk(Some(reply))),
            Incoming::TimeOut(wait) => of.life.deliver(wait, Answer::Disk(None)),
            Incoming::Slept(wait) => of.life.deliver(wait, Answer::Slept),
            Incoming::NoSnapshot(reads) if reads == of.reads => self.read_all(node),
            Incoming::NoSnapshot(_) => {}
            Incoming::Store(For::Machine(id), Reply::Done(answer)) => {
                if matches!(&answer, Ok(outcome) if outcome.done)
                    && let Some(sent) = of.sent.remove(&id)
                {
                    of.committed = of.committed.max(sent);
                }
                self.feed(node, Input::Answer(id, answer), local);
            }
            Incoming::Store(For::Task(wait), Reply::Done(answer)) => {
                of.life.deliver(wait, Answer::Store(Some(answer)));
            }
            Incoming::Store(For::Snapshot, Reply::Got(Ok(snapshot))) => {
                of.reads += 1;
                let watch = StoreRequest::Watch(self.cluster.root(), snapshot.revision);
                // The watch before this one is over.
                let life = of.life_number;
                self.requests.retain(|_, (of, in_life, whose)| {
                    *of != node || *in_life != life || !matches!(whose, For::Watch)
                });
                self.ask_store(node, watch, For::Watch);
                self.feed(node, Input::Snapshot(snapshot), local);
            }
            Incoming::Store(For::Watch, Reply::Changed(Ok(changes))) => {
                self.feed(node, Input::Changed(changes), local)
            }
            Incoming::Store(For::Watch, Reply::Changed(Err(_))) => self.read_all(node),
            Incoming::Store(..) => {}
            Incoming::Message(from, message) => self.feed(node, Input::Message(from, message), local),
            Incoming::Report(pool, epoch, result) => {
                let id = self.pools[pool];
                let input = match result {
                    Ok(order) => Input::Done(id, epoch, order),
                    Err(failure) => {
                        self.stats.failures += 1;
                        self.stats.fenced += u64::from(failure == pool_ownership::Failure::Fenced);
                        self.trace(|| format!("n{node} p{pool} e{epoch} fails: {failure:?}"));
                        Input::Failed(id, epoch, failure)
                    }
                };
                self.feed(node, input, local);
            }
            Incoming::Client(pool, request) => self.request(node, pool, request),
            Incoming::Move(pool, to) => self.feed(node, Input::Move(self.pools[pool], to), local),
            Incoming::Mode(paused, draining) => self.feed(node, Input::Mode { paused, draining }, local),
        }
    }

    fn feed(&mut self, node: usize, input: Input, local: &mut VecDeque<(u64, Incoming)>) {
        let sabotage = self.case.sabotage;
        let of = &mut self.nodes[node];
        let now = of.clock.read(self.now, sabotage);
        let Some(machine) = &mut of.machine else { return };
        let (before, actions) = (machine.phase(), machine.handle(now, input));
        if before == Phase::Member && machine.phase() >= Phase::Leaving {
            self.stats.evictions += 1;
            self.trace(|| format!("n{node} finds that its life is over"));
        }
        let life = self.nodes[node].life_number;
        for action in actions {
            self.act(node, action, local);
            if self.nodes[node].life_number != life || self.nodes[node].machine.is_none() {
                return;
            }
        }
        let of = &mut self.nodes[node];
        if let Some(machine) = &of.machine {
            let after = of.clock.until(self.now, machine.next_wake(), sabotage);
            of.wake_generation += 1;
            let generation = of.wake_generation;
            self.push(after, Event::ToNode(node, Some(life), Incoming::Wake(generation)));
        }
    }

    fn act(&mut self, node: usize, action: Action, local: &mut VecDeque<(u64, Incoming)>) {
        let of = &mut self.nodes[node];
        match action {
            Action::Permit(until) => of.life.inner.borrow_mut().permit = until,
            Action::Transact(id, transaction) => {
                let now = of.clock.read(self.now, self.case.sabotage);
                of.sent.insert(id, now);
                while of.sent.len() > 64 {
                    of.sent.pop_first();
                }
                if self.case.trace && transaction.steps.len() > 1 {
                    let keys: Vec<&str> = transaction.steps.iter().map(cluster_store::Step::key).collect();
                    self.trace(|| format!("n{node} sends {id:?} for {keys:?}"));
                }
                self.ask_store(node, StoreRequest::Transact(transaction), For::Machine(id));
            }
            Action::Read => self.read_all(node),
            Action::Send(to, message) => {
                let to_node = usize::from(to.number()) - 1;
                let from = of.id;
                if to_node < self.nodes.len() && self.open(End::Node(node), End::Node(to_node)) {
                    let after = self.way();
                    self.push(after, Event::ToNode(to_node, None, Incoming::Message(from, message)));
                }
            }
            Action::Pool(id, epoch, order) => {
                let Some(pool) = self.pools.iter().position(|pool| *pool == id) else { return };
                self.trace(|| format!("n{node} p{pool} e{epoch} {order:?}"));
                self.order(node, pool, epoch, order, local);
            }
            // Its process ends, as in what ships.
            Action::Hung(_) => {
                self.stats.crashes += 1;
                self.crash(node);
                let after = self.dice.between(10 * MILLISECOND, 6 * SECOND);
                self.push(after, Event::Fault(Fault::Start(node)));
            }
            Action::Ended => {
                self.store.forget(self.nodes[node].client());
                self.start(node);
            }
        }
    }

    fn order(
        &mut self,
        node: usize,
        pool: usize,
        epoch: u64,
        order: Order,
        local: &mut VecDeque<(u64, Incoming)>,
    ) {
        let sabotage = self.case.sabotage;
        let of = &mut self.nodes[node];
        if of.crash_at == Some(order) {
            self.stats.crashes += 1;
            self.crash(node);
            let after = self.dice.between(10 * MILLISECOND, 6 * SECOND);
            return self.push(after, Event::Fault(Fault::Start(node)));
        }
        let life = of.life_number;
        match order {
            Order::Fence => {
                self.stats.takeovers += 1;
                let new = Pool::new(self.plans[pool].clone(), node, epoch, of.life.clone());
                of.pools.insert(pool, new.clone());
                of.spawn((pool, epoch), Box::pin(new.order(order)));
            }
            Order::Open | Order::Restore => {
                if let Some(running) = of.pools.get(&pool).cloned() {
                    of.spawn((pool, epoch), Box::pin(running.order(order)));
                }
            }
            Order::Publish => {
                if let Some(running) = of.pools.get(&pool).cloned() {
                    of.life.inner.borrow_mut().published.insert(pool, epoch);
                    of.spawn((pool, epoch), Box::pin(running.look_after()));
                    local.push_back((life, Incoming::Report(pool, epoch, Ok(order))));
                }
            }
            Order::Stop => {
                if sabotage == Sabotage::HandOverLetsGo
                    && let Some(running) = of.pools.get(&pool)
                {
                    running.let_go();
                }
                if sabotage != Sabotage::ServesAfterHandOver {
                    of.stop((pool, epoch));
                }
                let after = self.dice.below(20 * MILLISECOND);
                self.push(after, Event::ToNode(node, Some(life), Incoming::Report(pool, epoch, Ok(order))));
            }
        }
    }

    fn run_tasks(&mut self, node: usize, local: &mut VecDeque<(u64, Incoming)>) {
        while self.nodes[node].poll() {
            let life = self.nodes[node].life_number;
            let out = std::mem::take(&mut self.nodes[node].life.inner.borrow_mut().out);
            let mut reported = false;
            for out in out {
                match out {
                    Out::Disk { wait, disk, session, epoch, command } => {
                        let after = self.way();
                        self.push(after, Event::ToDisk { disk, node, life, wait, session, epoch, command });
                        self.push(DISK_PATIENCE, Event::ToNode(node, Some(life), Incoming::TimeOut(wait)));
                    }
                    Out::Store { wait, transaction } => {
                        self.ask_store(node, StoreRequest::Transact(transaction), For::Task(wait));
                        self.push(SECOND, Event::ToNode(node, Some(life), Incoming::TimeOut(wait)));
                    }
                    Out::Sleep { wait, time } => {
                        self.push(time, Event::ToNode(node, Some(life), Incoming::Slept(wait)))
                    }
                    Out::Report { pool, epoch, result } => {
                        local.push_front((life, Incoming::Report(pool, epoch, result)));
                        reported = true;
                    }
                    Out::Answer { client, operation, pool, epoch, value } => {
                        self.answer(node, client, operation, pool, epoch, value);
                    }
                }
            }
            if reported {
                // What it means comes first; the tasks go on after that.
                return;
            }
        }
    }

    /// A node answers a client: at this moment the pool is its own, or two may answer.
    fn answer(&mut self, node: usize, client: usize, operation: u64, pool: usize, epoch: u64, value: u64) {
        let owner = self.owner(&self.plans[pool]);
        let of = &self.nodes[node];
        let mine = owner.as_ref().is_some_and(|owner| {
            let holder = owner
                .holder
                .is_some_and(|holder| holder.node == of.id && holder.incarnation.0 == of.life_number);
            holder && owner.epoch == epoch
        });
        if !mine {
            let what =
                format!("n{node} answers for pool {pool} in epoch {epoch} while its owner is {owner:?}");
            return self.break_promise(what);
        }
        let by_beats = of.committed.after(self.timings.permit);
        self.stats.on_promises += u64::from(of.clock.read(self.now, self.case.sabotage) > by_beats);
        if self.open(End::Node(node), End::Clients) {
            let after = self.way();
            self.push(after, Event::Answered(client, operation, Some(value)));
        }
    }
}
