//! A simulated volume with a queue of its own, which nobody overtakes, and clients that keep requests under way or send them at a rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::S;
use crate::{Answer, ClassId, FlowId, Kind, Learnt, Next, Scheduler, Settings, Terms};

/// How long the volume takes for a request, once it has begun: the time now, and the number of the request.
pub(super) type Service = Box<dyn Fn(u64, u64) -> u64>;

enum Sends {
    /// So many under way.
    Depth(u32),
    /// One in so many nanoseconds, whether answers come or not.
    Every(u64),
}

struct Client {
    class: ClassId,
    flow: FlowId,
    sends: Sends,
    bytes: u64,
    /// Answers: when, and how long they took from when the client sent them.
    answers: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answer { client: usize, sent: u64, began: u64 },
    Send { client: usize },
    Look,
}

pub(super) struct Volume {
    pub(super) scheduler: Scheduler<(usize, u64)>,
    pub(super) now: u64,
    pub(super) service: Service,
    /// When each of its arms is free.
    arms: BinaryHeap<Reverse<u64>>,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    looks: bool,
    /// The clients whose requests are never answered.
    pub(super) swallows: Vec<usize>,
}

impl Volume {
    pub(super) fn new(settings: Settings, arms: usize, service: Service) -> Self {
        Self {
            scheduler: Scheduler::new(settings),
            now: S,
            service,
            arms: (0..arms).map(|_| Reverse(0)).collect(),
            clients: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            looks: false,
            swallows: Vec::new(),
        }
    }

    fn add(&mut self, terms: Terms, sends: Sends, bytes: u64) -> usize {
        let class = self.scheduler.add_class(self.now, terms);
        let flow = self.scheduler.add_flow(class, 1).expect("the class is there");
        self.clients.push(Client { class, flow, sends, bytes, answers: Vec::new() });
        self.clients.len() - 1
    }

    fn later(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    /// A client that keeps so many under way.
    pub(super) fn deep(&mut self, terms: Terms, depth: u32, bytes: u64) -> usize {
        let client = self.add(terms, Sends::Depth(depth), bytes);
        (0..depth).for_each(|_| self.later(self.now, Event::Send { client }));
        client
    }

    /// A client that sends so many in a second.
    pub(super) fn paced(&mut self, terms: Terms, rate: u64, bytes: u64) -> usize {
        let client = self.add(terms, Sends::Every(S / rate), bytes);
        self.later(self.now, Event::Send { client });
        client
    }

    /// Other terms for a client from now on.
    pub(super) fn give(&mut self, client: usize, terms: Terms) {
        let class = self.clients[client].class;
        self.scheduler.set_terms(self.now, class, terms);
    }

    /// Lets a client send nothing more.
    pub(super) fn quit(&mut self, client: usize) {
        self.clients[client].sends = Sends::Depth(0);
    }

    pub(super) fn run(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            let wake = loop {
                match self.scheduler.next(self.now) {
                    Next::Start(started) => self.begin(started.payload.0, started.payload.1),
                    Next::Wait(until) => break until,
                    Next::Full | Next::Idle => break u64::MAX,
                }
            };
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            if wake.min(event) >= end {
                self.now = end;
                return;
            }
            self.now = self.now.max(wake.min(event));
            if event <= wake
                && let Some(Reverse((.., event))) = self.events.pop()
            {
                self.happens(event);
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Look => {
                self.looks = self.scheduler.look(self.now);
                if self.looks {
                    self.later(self.now + S / 4, Event::Look);
                }
            }
            Event::Send { client } => {
                let Client { flow, bytes, ref sends, .. } = self.clients[client];
                match sends {
                    Sends::Every(nanos) => self.later(self.now + nanos, Event::Send { client }),
                    Sends::Depth(0) => return,
                    Sends::Depth(_) => {}
                }
                if self.scheduler.try_pass(self.now, flow, Kind::Read, bytes) {
                    self.begin(client, self.now);
                } else {
                    let sent = (client, self.now);
                    // A client that sends more than is done finds the queue full at last.
                    let _ = self.scheduler.enqueue(self.now, flow, Kind::Read, bytes, sent);
                }
            }
            Event::Answer { client, sent, began } => {
                let Client { flow, bytes, .. } = self.clients[client];
                let (nanos, held) = (self.now - began, began - sent);
                let answer = Answer { kind: Kind::Read, bytes, nanos, held };
                if self.scheduler.answered(self.now, flow, answer) && !self.looks {
                    self.looks = true;
                    self.later(self.now + S / 4, Event::Look);
                }
                self.clients[client].answers.push((self.now, self.now - sent));
                if let Sends::Depth(1..) = self.clients[client].sends {
                    self.later(self.now, Event::Send { client });
                }
            }
        }
    }

    fn begin(&mut self, client: usize, sent: u64) {
        if self.swallows.contains(&client) {
            return;
        }
        let Some(Reverse(free)) = self.arms.pop() else { return };
        self.count += 1;
        let starts = free.max(self.now);
        let done = starts + (self.service)(starts, self.count);
        self.arms.push(Reverse(done));
        self.later(done, Event::Answer { client, sent, began: self.now });
    }

    fn units(&self, client: usize, since: u64) -> u64 {
        let Client { answers, bytes, .. } = &self.clients[client];
        let answers = answers.iter().filter(|(at, _)| *at >= since).count() as u64;
        answers * self.scheduler.settings().units(*bytes)
    }

    /// Normalised I/Os per second of a client since then.
    pub(super) fn rate(&self, client: usize, since: u64) -> u64 {
        self.units(client, since) * S / (self.now - since)
    }

    /// Those of all of them.
    pub(super) fn sum(&self, since: u64) -> u64 {
        let units: u64 = (0..self.clients.len()).map(|client| self.units(client, since)).sum();
        units * S / (self.now - since)
    }

    /// The 99th percentile of how long a client waited for its answers since then, in nanoseconds.
    pub(super) fn p99(&self, client: usize, since: u64) -> u64 {
        let answers = self.clients[client].answers.iter().filter(|(at, _)| *at >= since);
        let mut took: Vec<u64> = answers.map(|(_, took)| *took).collect();
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().unwrap_or(u64::MAX)
    }

    pub(super) fn learnt(&self) -> Learnt {
        self.scheduler.learnt()
    }
}
