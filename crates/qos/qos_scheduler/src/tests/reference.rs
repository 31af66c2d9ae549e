//! The same decisions made the simple way: exact fractions, no heaps, a search through everything for each step.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{MS, S};
use crate::class::{most_lead, share};
use crate::{ClassId, FlowId, Kind, Next, RequestId, Scheduler, Settings, Terms};

/// A limit, as what was charged over the rate: a fraction with the rate as its denominator.
#[derive(Clone)]
struct Exact {
    rate: u128,
    paid: u128,
}

impl Exact {
    fn new(rate: Option<u64>, now: u64) -> Self {
        let rate = u128::from(rate.unwrap_or(0));
        Self { rate, paid: u128::from(now) * rate }
    }
    fn whole(&self) -> u64 {
        self.paid.checked_div(self.rate).unwrap_or(0) as u64
    }
    fn charge(&mut self, now: u64, amount: u64) {
        if self.whole() < now {
            self.paid = u128::from(now) * self.rate;
        }
        self.paid += u128::from(amount) * u128::from(S) * u128::from(self.rate.min(1) as u64);
    }
    fn change(&mut self, rate: Option<u64>, now: u64) {
        let other = u128::from(rate.unwrap_or(0));
        if other != self.rate {
            let owed = if other == 0 { 0 } else { u128::from(self.whole().saturating_sub(now)) };
            let ahead = (owed * self.rate).checked_div(other).unwrap_or(0);
            *self = Self { rate: other, paid: (u128::from(now) + ahead) * other };
        }
    }
}

struct Class {
    terms: Terms,
    iops: Exact,
    bandwidth: Exact,
    /// When the minimum is due, times the minimum.
    due: u128,
    start: u64,
    members_at: u64,
    competes: bool,
}

impl Class {
    fn minimum(&self) -> u128 {
        u128::from(self.terms.min_iops.unwrap_or(0))
    }
    fn due(&self) -> u64 {
        (self.due / self.minimum().max(1)) as u64
    }
    fn opens(&self) -> u64 {
        let opens = |limit: &Exact| limit.whole().saturating_sub(self.terms.burst);
        opens(&self.iops).max(opens(&self.bandwidth))
    }
}

struct Flow {
    in_flight: u32,
    class: usize,
    weight: u64,
    start: u64,
    queue: VecDeque<(u64, u64)>, // payload, bytes
}

struct Reference {
    settings: Settings,
    classes: Vec<Class>,
    flows: Vec<Flow>,
    in_flight: u32,
    shares_at: u64,
    shortfall: u64,
    overdue: u32,
}

impl Reference {
    fn waits(&self, class: usize) -> bool {
        self.flows.iter().any(|flow| flow.class == class && !flow.queue.is_empty())
    }

    /// Before every choice: who competes.
    fn look(&mut self, now: u64) {
        (0..self.classes.len()).for_each(|class| self.look_at(class, now));
    }

    /// After a change of a class: whether it competes, which begins now if it did not.
    fn look_at(&mut self, number: usize, now: u64) {
        let line = now.saturating_sub(self.shortfall);
        let competes = self.waits(number) && self.classes[number].opens() <= now;
        let class = &mut self.classes[number];
        if competes && !class.competes {
            class.start = class.start.max(self.shares_at);
            let least = line.saturating_sub(self.settings.catch_up);
            if class.due() < least {
                class.due = u128::from(least) * class.minimum();
            }
        }
        class.competes = competes;
    }

    fn enqueue(&mut self, now: u64, flow: usize, payload: u64, bytes: u64) {
        let number = self.flows[flow].class;
        let flow = &mut self.flows[flow];
        if flow.queue.is_empty() {
            flow.start = flow.start.max(self.classes[number].members_at);
        }
        flow.queue.push_back((payload, bytes));
        if flow.queue.len() == 1 {
            self.look_at(number, now);
        }
    }

    fn next(&mut self, now: u64) -> Result<u64, Option<u64>> {
        if self.in_flight >= self.settings.depth {
            return Err(None);
        }
        self.look(now);
        let mut competing: Vec<usize> =
            (0..self.classes.len()).filter(|n| self.classes[*n].competes).collect();
        let others = |class: usize| self.flows.iter().any(|flow| flow.class != class);
        let most = match self.settings.depth {
            depth @ ..2 => depth,
            depth @ 2..16 => depth - 1,
            depth => (7 * depth).div_ceil(8),
        };
        competing.retain(|n| {
            let own = self.flows.iter().filter(|flow| flow.class == *n);
            !others(*n) || own.map(|flow| flow.in_flight).sum::<u32>() < most
        });
        let Some(by_share) = competing.iter().copied().min_by_key(|n| (self.classes[*n].start, *n)) else {
            return Err((0..self.classes.len())
                .filter(|n| self.waits(*n) && !self.classes[*n].competes)
                .map(|n| self.classes[n].opens())
                .min());
        };
        let line = now.saturating_sub(self.shortfall);
        let promised = competing.iter().copied().filter(|n| self.classes[*n].minimum() > 0);
        let mut due =
            promised.min_by_key(|n| (self.classes[*n].due(), *n)).filter(|n| self.classes[*n].due() <= line);
        if let Some(class) = due {
            let behind = line - self.classes[class].due();
            if behind > self.settings.catch_up {
                self.shortfall += behind - self.settings.catch_up;
                self.overdue += 1;
                if self.overdue == 32 {
                    self.overdue = 0;
                    due = None;
                }
            }
        }
        if due.is_none() {
            self.shares_at = self.shares_at.max(self.classes[by_share].start);
        }
        let number = due.unwrap_or(by_share);
        let waiting = |flow: &Flow| flow.class == number && !flow.queue.is_empty();
        let weight = self.flows.iter().filter(|flow| waiting(flow)).map(|flow| flow.weight).sum();
        let flow = (0..self.flows.len()).filter(|n| waiting(&self.flows[*n]));
        let flow = flow.min_by_key(|n| (self.flows[*n].start, *n)).unwrap();
        let flow = &mut self.flows[flow];
        flow.in_flight += 1;
        let (payload, bytes) = flow.queue.pop_front().unwrap();
        let units = self.settings.units(bytes);
        let class = &mut self.classes[number];
        class.iops.charge(now, units);
        class.bandwidth.charge(now, bytes);
        let next = class.start + share(units, weight);
        if due.is_some() {
            class.due += u128::from(units) * u128::from(S);
            class.start = class.start.max(next.min(self.shares_at + most_lead()));
        } else {
            class.start = next;
        }
        class.members_at = class.members_at.max(flow.start);
        flow.start += share(units, flow.weight);
        self.in_flight += 1;
        self.look_at(number, now);
        Ok(payload)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { flow: usize, bytes: u64 },
    Next,
    Complete,
    Cancel(usize),
    Pass(u64),
    Terms { class: usize, terms: Terms },
    Depth(u32),
    Move { flow: usize, class: usize },
}

fn terms() -> impl Strategy<Value = Terms> {
    let rate = |most: u64| prop_oneof![Just(None), Just(Some(1)), (2..most).prop_map(Some)];
    (rate(3000), rate(5000), rate(100 << 20), prop_oneof![Just(0), Just(20 * MS), 0..S]).prop_map(
        |(min_iops, max_iops, max_bandwidth, burst)| Terms { min_iops, max_iops, max_bandwidth, burst },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(4096u64), Just(8193), 0..300_000u64];
    let pass = prop_oneof![0..3 * MS, Just(MS), 0..5 * S];
    prop_oneof![
        8 => (0..6usize, bytes).prop_map(|(flow, bytes)| Step::Enqueue { flow, bytes }),
        8 => Just(Step::Next),
        6 => Just(Step::Complete),
        2 => (0..1000usize).prop_map(Step::Cancel),
        4 => pass.prop_map(Step::Pass),
        1 => (0..4usize, terms()).prop_map(|(class, terms)| Step::Terms { class, terms }),
        1 => prop_oneof![1..5u32, 8..20u32].prop_map(Step::Depth),
        1 => (0..6usize, 0..4usize).prop_map(|(flow, class)| Step::Move { flow, class }),
    ]
}

/// Both, side by side.
struct Pair {
    now: u64,
    scheduler: Scheduler<u64>,
    reference: Reference,
    classes: Vec<ClassId>,
    flows: Vec<FlowId>,
    waiting: Vec<(RequestId, u64, usize)>,
    at_volume: VecDeque<FlowId>,
    sent: u64,
    ended: Vec<u64>,
}

impl Pair {
    fn new(all: &[Terms], weights: &[u32]) -> Self {
        let settings = Settings { depth: 2, ..Settings::default() };
        let mut scheduler = Scheduler::new(settings);
        let classes: Vec<_> = all.iter().map(|terms| scheduler.add_class(0, *terms)).collect();
        let of = |number: usize| number % classes.len();
        let flows = weights
            .iter()
            .enumerate()
            .map(|(n, w)| scheduler.add_flow(classes[of(n)], *w).unwrap())
            .collect();
        let reference = Reference {
            settings,
            classes: all
                .iter()
                .map(|terms| Class {
                    terms: *terms,
                    iops: Exact::new(terms.max_iops, 0),
                    bandwidth: Exact::new(terms.max_bandwidth, 0),
                    due: 0,
                    start: 0,
                    members_at: 0,
                    competes: false,
                })
                .collect(),
            flows: (0..weights.len())
                .map(|n| Flow {
                    in_flight: 0,
                    class: of(n),
                    weight: u64::from(weights[n]),
                    start: 0,
                    queue: VecDeque::new(),
                })
                .collect(),
            in_flight: 0,
            shares_at: 0,
            shortfall: 0,
            overdue: 0,
        };
        let (waiting, at_volume, ended) = Default::default();
        Self { now: 0, scheduler, reference, classes, flows, waiting, at_volume, sent: 0, ended }
    }

    fn next(&mut self) -> Result<bool, TestCaseError> {
        let expected = self.reference.next(self.now);
        match self.scheduler.next(self.now) {
            Next::Start(started) => {
                prop_assert_eq!(expected, Ok(started.payload));
                self.waiting.retain(|(_, payload, _)| *payload != started.payload);
                self.ended.push(started.payload);
                self.at_volume.push_back(started.flow);
                Ok(true)
            }
            Next::Wait(until) => {
                prop_assert_eq!(expected, Err(Some(until)));
                prop_assert!(until > self.now);
                Ok(false)
            }
            Next::Full | Next::Idle => {
                prop_assert_eq!(expected, Err(None));
                Ok(false)
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Enqueue { flow, bytes } => {
                let id =
                    self.scheduler.enqueue(self.now, self.flows[flow], Kind::Read, bytes, self.sent).unwrap();
                self.reference.enqueue(self.now, flow, self.sent, bytes);
                self.waiting.push((id, self.sent, flow));
                self.sent += 1;
            }
            Step::Next => {
                self.next()?;
            }
            Step::Complete => {
                if let Some(flow) = self.at_volume.pop_front() {
                    self.scheduler.complete(flow);
                    self.reference.in_flight -= 1;
                    let number = self.flows.iter().position(|known| *known == flow).unwrap();
                    self.reference.flows[number].in_flight -= 1;
                }
            }
            Step::Cancel(which) => {
                if !self.waiting.is_empty() {
                    let (id, payload, flow) = self.waiting.remove(which % self.waiting.len());
                    prop_assert_eq!(self.scheduler.cancel(self.now, id), Some(payload));
                    let flow = &mut self.reference.flows[flow];
                    flow.queue.retain(|(other, _)| *other != payload);
                    let (class, empty) = (flow.class, flow.queue.is_empty());
                    if empty {
                        self.reference.look_at(class, self.now);
                    }
                    self.ended.push(payload);
                }
            }
            Step::Pass(time) => self.now += time,
            Step::Terms { class, terms } => {
                prop_assert!(self.scheduler.set_terms(self.now, self.classes[class], terms));
                let line = self.now.saturating_sub(self.reference.shortfall);
                let number = class;
                let class = &mut self.reference.classes[number];
                class.iops.change(terms.max_iops, self.now);
                class.bandwidth.change(terms.max_bandwidth, self.now);
                if terms.min_iops != class.terms.min_iops {
                    class.due = u128::from(line) * u128::from(terms.min_iops.unwrap_or(0));
                }
                class.terms = terms;
                self.reference.look_at(number, self.now);
            }
            Step::Depth(depth) => {
                self.reference.settings.depth = depth;
                self.scheduler.set_settings(self.reference.settings);
            }
            Step::Move { flow, class } => {
                prop_assert!(self.scheduler.move_flow(self.now, self.flows[flow], self.classes[class]));
                let at = self.reference.classes[class].members_at;
                let moved = &mut self.reference.flows[flow];
                let before = std::mem::replace(&mut moved.class, class);
                if before != class {
                    moved.start = if moved.queue.is_empty() { 0 } else { at };
                    self.reference.look_at(before, self.now);
                    self.reference.look_at(class, self.now);
                }
            }
        }
        prop_assert_eq!(self.scheduler.in_flight(), self.reference.in_flight);
        prop_assert_eq!(self.scheduler.waiting() as usize, self.waiting.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens, the heaps choose what a search through everything would, and each request comes out exactly once.
    #[test]
    fn every_choice_is_that_of_the_reference(
        all in proptest::collection::vec(terms(), 4),
        weights in proptest::collection::vec(1..5u32, 6),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut pair = Pair::new(&all, &weights);
        for step in &steps {
            pair.step(step)?;
        }
        // All limits gone, everything comes out.
        for class in 0..4 {
            pair.step(&Step::Terms { class, terms: Terms::default() })?;
        }
        while !pair.waiting.is_empty() || !pair.at_volume.is_empty() {
            pair.next()?;
            pair.step(&Step::Complete)?;
        }
        pair.ended.sort_unstable();
        prop_assert_eq!(pair.ended, (0..pair.sent).collect::<Vec<_>>());
    }
}
