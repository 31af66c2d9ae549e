//! What goes wrong: which faults a seed has, when, and for how long.

use cluster_store::keys::Key;
use cluster_store::{Condition, Step, Transaction};
use pool_ownership::Order;
use sim_store::Weather;

use crate::fault::{End, Fault};
use crate::life::{MILLISECOND, SECOND, Time};
use crate::node::Incoming;
use crate::world::{Event, World};

/// One seed of so many has an owner deposed with requests under way.
const DEPOSED: u64 = 4;

/// Kinds of faults; a seed has a few of them.
const KINDS: u64 = 16;

impl World {
    pub(crate) fn plan_faults(&mut self) {
        let dice = self.dice.clone();
        self.heal_at = dice.between(15, 60) * SECOND;
        self.kinds = (0..dice.between(2, 5)).map(|_| dice.below(KINDS)).collect();
        self.push(dice.between(1, 6) * SECOND, Event::Fault(Fault::Any));
        if self.case.seed.is_multiple_of(DEPOSED) {
            let at = self.slow_dice.between(4, 12) * SECOND;
            self.push(at, Event::Fault(Fault::Depose));
        }
    }

    /// The owner of a pool loses the store, all other nodes and one of the pool's disks, and keeps the other disks, its clients, and what it was asked: it
    /// carries that out in the seconds in which another node takes the pool, and nothing of it may be missed by that one.
    fn depose(&mut self) {
        let dice = self.slow_dice.clone();
        // Without the store it commits where the disks are odd in number: there the witness has no vote.
        let odd = self.plans.iter().position(|plan| plan.disks.len() % 2 == 1);
        let pool = odd.unwrap_or_else(|| dice.below(self.plans.len() as u64) as usize);
        let plan = self.plans[pool].clone();
        let Some(holder) = self.owner(&plan).and_then(|owner| owner.holder) else { return };
        let node = usize::from(holder.node.number()) - 1;
        let span = dice.between(8 * SECOND, 14 * SECOND);
        let others = (0..self.nodes.len()).filter(|other| *other != node).map(End::Node);
        let disk = dice.pick(&plan.disks).copied().map(End::Disk);
        for end in others.chain([End::Store]).chain(disk).collect::<Vec<_>>() {
            self.cut_for(End::Node(node), end, span);
            self.cut_for(end, End::Node(node), span);
        }
        self.trace(|| format!("n{node} is deposed from pool {pool}, with requests under way"));
        self.slow = Some(node);
        self.push(span, Event::Fault(Fault::Quick));
    }

    fn any_node(&self) -> usize {
        self.dice.below(self.nodes.len() as u64) as usize
    }

    /// A short, a middling or a long time.
    fn span(&self) -> Time {
        match self.dice.below(5) {
            0 | 1 => self.dice.between(50 * MILLISECOND, 1500 * MILLISECOND),
            2 | 3 => self.dice.between(1500 * MILLISECOND, 8 * SECOND),
            _ => self.dice.between(8 * SECOND, 25 * SECOND),
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Any => self.any_fault(),
            Fault::Start(node) => {
                if self.nodes[node].machine.is_none() {
                    self.nodes[node].paused_since = None;
                    self.start(node);
                }
            }
            Fault::GoOn(node, pause) => self.go_on(node, pause),
            Fault::Supervisor(node, life) => self.supervisor(node, life),
            Fault::Cut(from, to) => {
                if self.healed.is_none() {
                    self.cut(from, to);
                }
            }
            Fault::Mend(from, to) => self.mend(from, to),
            Fault::Stall(time) => self.stall(time),
            Fault::Isolate(node, time) => self.isolate(node, time),
            Fault::FairWeather => {
                self.store.set_weather(Weather::default());
                self.late = false;
            }
            Fault::Depose => {
                if self.healed.is_none() {
                    self.depose();
                }
            }
            Fault::Quick => self.slow = None,
            Fault::Mode(node, paused, draining) => self.arrive(node, None, Incoming::Mode(paused, draining)),
        }
    }

    fn any_fault(&mut self) {
        if self.now >= self.heal_at {
            return self.heal();
        }
        let dice = self.dice.clone();
        let kind = dice.pick(&self.kinds).copied().unwrap_or_default();
        let (node, span) = (self.any_node(), self.span());
        match kind {
            0 | 1 => self.pause(node, span),
            2 => self.cut_somewhere(span),
            3 => self.isolate(node, span),
            4 => self.stall(span.min(20 * SECOND)),
            5 => self.bad_weather(span),
            6 => self.crash_for(node, span),
            7 => self.move_some_pool(),
            8 => self.flap(),
            9 => {
                self.arrive(node, None, Incoming::Mode(dice.one_in(2), dice.one_in(2)));
                self.push(span, Event::Fault(Fault::Mode(node, false, false)));
            }
            10 => {
                self.nodes[node].crash_at = dice
                    .pick(&[Order::Fence, Order::Open, Order::Restore, Order::Publish, Order::Stop])
                    .copied()
            }
            11 => self.cut_store_from(node, span),
            12 => self.away_together(node),
            13 | 14 => {
                self.late = true;
                self.trace(|| "messages and commands are late".into());
                self.push(span, Event::Fault(Fault::FairWeather));
            }
            _ => {
                let jump = dice.between(1, 20) * SECOND;
                let clock = &mut self.nodes[node].clock;
                clock.set_back = (clock.set_back + jump).min(90 * SECOND);
                let through = self.store.tree().revision();
                self.store.compact(through);
                self.trace(|| format!("n{node}'s wall clock goes back by {jump}; the store is compacted"));
            }
        }
        let next = dice.between(200 * MILLISECOND, 5 * SECOND);
        self.push(next, Event::Fault(Fault::Any));
    }

    fn pause(&mut self, node: usize, span: Time) {
        let now = self.now;
        let long = self.dice.one_in(8);
        let sleeps = self.dice.one_in(2);
        let span = if long { self.dice.between(20 * SECOND, 90 * SECOND) } else { span };
        let of = &mut self.nodes[node];
        if of.paused_since.is_some() || of.machine.is_none() {
            return;
        }
        of.paused_since = Some(now);
        of.pauses += 1;
        of.sleeps = sleeps;
        let pause = of.pauses;
        self.stats.pauses += 1;
        self.trace(|| format!("n{node} stands still for {span}"));
        self.push(span, Event::Fault(Fault::GoOn(node, pause)));
    }

    fn go_on(&mut self, node: usize, pause: u64) {
        let now = self.now;
        let of = &mut self.nodes[node];
        let Some(since) = of.paused_since.filter(|_| of.pauses == pause) else { return };
        if of.sleeps {
            of.clock.slept += now - since;
        }
        self.trace(|| format!("n{node} goes on"));
        self.wake_up(node);
    }

    fn cut(&mut self, from: End, to: End) {
        self.stats.cuts += 1;
        *self.cuts.entry((from, to)).or_default() += 1;
        self.trace(|| format!("{from:?} does not reach {to:?}"));
        self.links_changed(from, to);
    }

    fn mend(&mut self, from: End, to: End) {
        if let Some(count) = self.cuts.get_mut(&(from, to)) {
            *count -= 1;
            if *count == 0 {
                self.cuts.remove(&(from, to));
                self.trace(|| format!("{from:?} reaches {to:?}"));
            }
        }
        self.links_changed(from, to);
    }

    fn links_changed(&mut self, from: End, to: End) {
        if let (End::Node(node), End::Store) | (End::Store, End::Node(node)) = (from, to)
            && self.nodes[node].machine.is_some()
        {
            self.set_store_link(node);
        }
    }

    fn cut_for(&mut self, from: End, to: End, span: Time) {
        self.cut(from, to);
        self.push(span, Event::Fault(Fault::Mend(from, to)));
    }

    /// One way or both.
    fn cut_pair(&mut self, one: End, other: End, span: Time) {
        let ways = self.dice.below(4);
        if ways != 1 {
            self.cut_for(one, other, span);
        }
        if ways != 2 {
            self.cut_for(other, one, span);
        }
    }

    fn some_pair(&self) -> (End, End) {
        let (node, other) = (self.any_node(), self.any_node());
        let end = match self.dice.below(6) {
            0 | 1 => End::Store,
            2 => End::Clients,
            3 if other != node => End::Node(other),
            _ => End::Disk(self.dice.below(self.disks.len() as u64) as usize),
        };
        (End::Node(node), end)
    }

    fn cut_somewhere(&mut self, span: Time) {
        let (one, other) = self.some_pair();
        self.cut_pair(one, other, span);
    }

    fn isolate(&mut self, node: usize, span: Time) {
        let disks_too = self.dice.one_in(3);
        let mut ends: Vec<End> =
            (0..self.nodes.len()).filter(|other| *other != node).map(End::Node).collect();
        ends.push(End::Store);
        if disks_too {
            ends.extend((0..self.disks.len()).map(End::Disk));
        }
        for end in ends {
            self.cut_for(End::Node(node), end, span);
            self.cut_for(end, End::Node(node), span);
        }
    }

    fn stall(&mut self, span: Time) {
        self.stats.stalls += 1;
        self.trace(|| format!("the store stalls for {span}"));
        let until = self.now + span;
        self.store.stall(until);
    }

    fn bad_weather(&mut self, span: Time) {
        let dice = &self.dice;
        self.store.set_weather(Weather {
            late_percent: dice.below(30),
            late: dice.between(100 * MILLISECOND, 6 * SECOND),
            lost_percent: dice.below(25),
            unanswered_percent: dice.below(40),
            refused_percent: dice.below(20),
            ..Weather::default()
        });
        self.late = dice.one_in(2);
        self.trace(|| "bad weather".into());
        self.push(span, Event::Fault(Fault::FairWeather));
    }

    fn crash_for(&mut self, node: usize, span: Time) {
        if self.nodes[node].machine.is_none() {
            return;
        }
        let life = self.nodes[node].life_number;
        self.stats.crashes += 1;
        self.trace(|| format!("n{node} crashes"));
        self.crash(node);
        // A child is back at once; a supervisor that gives it up tells the others.
        let span =
            if self.dice.one_in(3) { self.dice.between(20 * MILLISECOND, 300 * MILLISECOND) } else { span };
        if span > SECOND && self.dice.one_in(2) {
            self.push(SECOND, Event::Fault(Fault::Supervisor(node, life)));
        }
        self.push(span, Event::Fault(Fault::Start(node)));
    }

    fn supervisor(&mut self, node: usize, life: u64) {
        if self.nodes[node].machine.is_some() || self.nodes[node].life_number != life {
            return;
        }
        let member = Key::Member(self.nodes[node].id).path(&self.cluster);
        let Some(found) = self.store.tree().find(&member).map(|found| found.modified) else { return };
        let transaction = Transaction {
            conditions: vec![Condition::Modified(member.clone(), found)],
            steps: vec![Step::Delete(member)],
            reads: Vec::new(),
        };
        // Any outcome will do: who does not learn of it waits for the silence.
        let _ = self.store.apply(self.now, &transaction);
    }

    fn move_some_pool(&mut self) {
        let pool = self.dice.below(self.pools.len() as u64) as usize;
        let to = self.nodes[self.any_node()].id;
        let Some(holder) = self.owner(&self.plans[pool]).and_then(|owner| owner.holder) else { return };
        self.stats.moves += u64::from(holder.node != to);
        self.trace(|| format!("pool {pool} is to move to {to}"));
        let node = usize::from(holder.node.number()) - 1;
        self.arrive(node, None, Incoming::Move(pool, to));
    }

    fn flap(&mut self) {
        let (one, other) = self.some_pair();
        let mut at = 0;
        for _ in 0..self.dice.between(3, 10) {
            let (down, up) =
                (self.dice.between(50 * MILLISECOND, SECOND), self.dice.between(50 * MILLISECOND, SECOND));
            for (from, to) in [(one, other), (other, one)] {
                self.push(at, Event::Fault(Fault::Cut(from, to)));
                self.push(at + down, Event::Fault(Fault::Mend(from, to)));
            }
            at += down + up;
        }
    }

    /// Only the store is away, for one node: the others can promise.
    fn cut_store_from(&mut self, node: usize, span: Time) {
        self.cut_for(End::Node(node), End::Store, span);
        self.cut_for(End::Store, End::Node(node), span);
        if self.dice.one_in(3) && self.nodes.len() > 2 {
            // And one of them cannot be asked, for a while.
            let other = (node + 1) % self.nodes.len();
            self.cut_pair(End::Node(node), End::Node(other), span / 2);
        }
    }

    /// The store is away for all, and then something else happens.
    fn away_together(&mut self, node: usize) {
        let span = self.dice.between(4 * SECOND, 15 * SECOND);
        self.stall(span);
        let after = self.dice.below(span);
        let then = match self.dice.below(3) {
            0 => Fault::Isolate(node, self.dice.between(SECOND, 6 * SECOND)),
            1 => {
                self.late = true;
                Fault::FairWeather
            }
            _ => Fault::Stall(self.dice.between(SECOND, 8 * SECOND)),
        };
        self.push(after, Event::Fault(then));
    }

    /// Everything is well again.
    pub(crate) fn heal(&mut self) {
        if self.healed.is_some() {
            return;
        }
        self.trace(|| "everything heals".into());
        self.healed = Some(self.now);
        self.late = false;
        self.slow = None;
        self.store.set_weather(Weather::default());
        self.store.resume();
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].crash_at = None;
            if self.nodes[node].machine.is_none() {
                self.push(MILLISECOND, Event::Fault(Fault::Start(node)));
            } else {
                self.set_store_link(node);
                let pause = self.nodes[node].pauses;
                self.go_on(node, pause);
                self.arrive(node, None, Incoming::Mode(false, false));
            }
        }
        self.push(SECOND, Event::Look);
    }
}
