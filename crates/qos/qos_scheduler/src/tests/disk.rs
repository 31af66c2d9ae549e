//! A simulated disk with clients that keep a number of requests under way, driven through the scheduler.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::S;
use crate::{ClassId, FlowId, Kind, Next, Scheduler};

/// One client: it sends the next request as soon as one is answered.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) flow: FlowId,
    pub(super) class: ClassId,
    pub(super) depth: u32,
    pub(super) bytes: u64,
}

/// What started, and when.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) at: u64,
    pub(super) client: usize,
    pub(super) units: u64,
}

/// A disk that serves normalised I/Os one after the other, so many in a second.
pub(super) struct Disk {
    pub(super) scheduler: Scheduler<u64>,
    pub(super) clients: Vec<Client>,
    pub(super) starts: Vec<Start>,
    pub(super) now: u64,
    per_second: u64,
    busy_until: u64,
    /// Completions to come: when, whose.
    coming: BinaryHeap<Reverse<(u64, usize)>>,
    /// Requests that clients send when the clock gets there.
    unsent: Vec<usize>,
}

impl Disk {
    pub(super) fn new(scheduler: Scheduler<u64>, per_second: u64) -> Self {
        let (clients, starts, coming, unsent) = Default::default();
        Self { scheduler, clients, starts, now: 0, per_second, busy_until: 0, coming, unsent }
    }

    /// Adds a client, which begins at once.
    pub(super) fn client(&mut self, class: ClassId, depth: u32, bytes: u64) -> usize {
        let flow = self.scheduler.add_flow(class, 1).expect("the class is there");
        self.clients.push(Client { flow, class, depth, bytes });
        let number = self.clients.len() - 1;
        self.unsent.extend((0..depth).map(|_| number));
        number
    }

    /// Lets a client send nothing more, or begin again.
    pub(super) fn set_depth(&mut self, client: usize, depth: u32) {
        let before = std::mem::replace(&mut self.clients[client].depth, depth);
        self.unsent.extend((before..depth).map(|_| client));
    }

    pub(super) fn disk_speed(&mut self, per_second: u64) {
        self.per_second = per_second;
    }

    /// Lets `time` pass.
    pub(super) fn run(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            for client in std::mem::take(&mut self.unsent) {
                self.send(client);
            }
            let wake = loop {
                match self.scheduler.next(self.now) {
                    Next::Start(started) => self.start(started.payload as usize),
                    Next::Wait(until) => break until,
                    Next::Full | Next::Idle => break u64::MAX,
                }
            };
            let done = self.coming.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let at = wake.min(done);
            if at >= end {
                self.now = end;
                return;
            }
            self.now = at;
            if done == at
                && let Some(Reverse((_, client))) = self.coming.pop()
            {
                self.scheduler.complete(self.clients[client].flow);
                let under_way = self.scheduler.flow(self.clients[client].flow).expect("it is there");
                if under_way.in_flight + under_way.waiting < self.clients[client].depth {
                    self.unsent.push(client);
                }
            }
        }
    }

    fn send(&mut self, number: usize) {
        let client = self.clients[number];
        if self.scheduler.try_pass(self.now, client.flow, Kind::Read, client.bytes) {
            self.start(number);
        } else {
            let sent = self.scheduler.enqueue(self.now, client.flow, Kind::Read, client.bytes, number as u64);
            sent.expect("queues have room");
        }
    }

    fn start(&mut self, client: usize) {
        let units = self.scheduler.settings().units(self.clients[client].bytes);
        self.busy_until = self.busy_until.max(self.now) + units * S / self.per_second;
        self.coming.push(Reverse((self.busy_until, client)));
        self.starts.push(Start { at: self.now, client, units });
    }

    /// Normalised I/Os per second of each client since `since`.
    pub(super) fn rates(&self, since: u64) -> Vec<u64> {
        let mut units = vec![0; self.clients.len()];
        self.starts
            .iter()
            .filter(|start| start.at >= since)
            .for_each(|start| units[start.client] += start.units);
        let span = self.now - since;
        units.iter().map(|units| units * S / span).collect()
    }

    /// The most by which the starts of a class exceed `rate × time` in any span, in normalised I/Os, the last request of the
    /// span not counted.
    pub(super) fn excess(&self, class: ClassId, rate: u64) -> u64 {
        let (mut before, mut most, mut least) = (0i128, 0i128, None::<i128>);
        for start in self.starts.iter().filter(|start| self.clients[start.client].class == class) {
            let height = before * i128::from(S) - i128::from(start.at) * i128::from(rate);
            let lowest = *least.get_or_insert(height).min(&mut height.clone());
            least = Some(lowest);
            most = most.max(height - lowest);
            before += i128::from(start.units);
        }
        (most / i128::from(S)) as u64
    }
}
