//! [`Gate`]: the queue of one volume, its disks, and its timer.

mod flow;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use qos_policy::QosSettings;
use qos_scheduler::{Answer, Settings, Terms};
use shard_runtime::Clock;
use tokio::sync::Notify;
use uuid::Uuid;

use self::state::{KnownDisk, State};
use crate::rules::{Asked, DiskName, Rules};
use crate::window::SAMPLE_EVERY;

pub use self::flow::{Entry, Flow, Permit, Refused, Turn};

/// The queue of one volume.
pub struct Gate {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Mutex<State>,
    /// The timer is to look again.
    changed: Arc<Notify>,
}

/// What policies are given to: a LUN or a file. It is there as long as somebody holds it or a flow of it.
pub struct Disk {
    pub(crate) gate: Arc<Gate>,
    pub(crate) name: DiskName,
}

/// How often a volume to which fewer requests are let than may be is looked at, should it answer nothing any more.
const LOOK_EVERY: u64 = 250_000_000;

fn settings(of: &QosSettings) -> Settings {
    Settings {
        unit_bytes: of.unit_bytes,
        depth: of.volume_depth,
        latency_target: u64::from(of.latency_target_us) * 1000,
        ..Settings::default()
    }
}

impl Gate {
    /// A gate without disks. Limits need [`keep_time`] to run.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, of: &QosSettings) -> Arc<Self> {
        let state = Mutex::new(State::new(settings(of), clock.now().0));
        Arc::new(Self { clock, state, changed: Arc::default() })
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().0
    }

    /// Replaces what holds for all disks, and their rules; both hold at once, also for what waits.
    pub fn apply(&self, of: &QosSettings, rules: impl Into<Rules>) {
        let now = self.now();
        let seen = {
            let mut state = self.state.lock();
            state.scheduler.set_settings(settings(of));
            state.rules = rules.into();
            state.put_in_effect(now)
        };
        drop(seen);
        self.pump(now, None);
    }

    /// Other terms for a shared rule, until the next [`Gate::apply`]: its part of what several gates have together.
    pub fn set_part(&self, rule: Uuid, terms: Terms) {
        let now = self.now();
        {
            let mut state = self.state.lock();
            let Some(class) = state.shared.get(&rule).copied() else { return };
            if state.scheduler.terms(class) == Some(terms) {
                return;
            }
            state.scheduler.set_terms(now, class, terms);
        }
        self.pump(now, None);
    }

    /// Whether something was assigned to the place of a file: then its clients together get that, whatever they call their flows.
    #[must_use]
    pub fn has_place(&self, path: &str) -> bool {
        self.state.lock().rules.places.find(path).is_some()
    }

    /// The disk of this name.
    #[must_use]
    pub fn disk(self: &Arc<Self>, name: impl Into<DiskName>) -> Arc<Disk> {
        let name = name.into();
        let now = self.now();
        let mut state = self.state.lock();
        if let Some(disk) = state.disks.get(&name).and_then(|known| known.disk.upgrade()) {
            return disk;
        }
        let disk = Arc::new(Disk { gate: self.clone(), name: name.clone() });
        // One of this name may be being let go of just now; its flows have gone before it.
        state.let_go(&name, now);
        let (asked, rule) = (Asked::Nothing, state.rule_of(&name, Asked::Nothing));
        let own = state.scheduler.add_class(now, Terms::default());
        let known = KnownDisk { disk: Arc::downgrade(&disk), own, asked, rule, flows: BTreeMap::new() };
        state.disks.insert(name.clone(), known);
        // It has no flows yet.
        let none = state.put_in_effect_for(&name, now);
        drop(state);
        drop(none);
        disk
    }

    /// Starts what may start, after one request more or less, or at another time. `done`: a request that the volume has answered.
    pub(crate) fn pump(&self, now: u64, done: Option<(&Flow, Answer)>) {
        let mut ended: Vec<Arc<Flow>> = Vec::new();
        let mut first = done;
        loop {
            let mut started = Vec::new();
            let sooner = {
                let mut state = self.state.lock();
                let mut sooner = false;
                if let Some((flow, answer)) = first.take()
                    && state.scheduler.answered(now, flow.id, answer)
                {
                    // Fewer are let to the volume now: the timer is to see whether it goes on answering.
                    let look_at = now.saturating_add(LOOK_EVERY);
                    sooner = state.wake_at.is_none_or(|wake_at| look_at < wake_at);
                    if sooner {
                        state.wake_at = Some(look_at);
                    }
                }
                for flow in &ended {
                    state.scheduler.complete(flow.id);
                }
                // Mostly nothing waits.
                (state.scheduler.waiting() > 0 && state.start(now, &mut started)) || sooner
            };
            ended.clear();
            if sooner {
                self.changed.notify_one();
            }
            for (turn, permit) in started {
                // Who gave up waiting at this very moment gives its turn to others.
                if let Err(permit) = turn.send(permit) {
                    ended.extend(permit.unused());
                }
            }
            if ended.is_empty() {
                return;
            }
        }
    }

    /// Does what is due; how long until something is.
    fn look(&self) -> Duration {
        let now = self.now();
        let due = {
            let mut state = self.state.lock();
            let due = state.wake_at.is_some_and(|wake_at| wake_at <= now);
            if due {
                state.wake_at = state.scheduler.look(now).then(|| now.saturating_add(LOOK_EVERY));
            }
            due
        };
        if due {
            self.pump(now, None);
        }
        self.sample(now);
        let state = self.state.lock();
        let sample_at = state.sampled.saturating_add(SAMPLE_EVERY);
        let next = state.wake_at.map_or(sample_at, |wake_at| wake_at.min(sample_at));
        Duration::from_nanos(next.saturating_sub(now))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl Disk {
    /// Its client asks for this from now on.
    pub fn ask(&self, asked: Asked) {
        let now = self.gate.now();
        let seen = {
            let mut state = self.gate.state.lock();
            match state.disks.get_mut(&self.name) {
                Some(known) if known.asked != asked => known.asked = asked,
                _ => return,
            }
            state.put_in_effect_for(&self.name, now)
        };
        drop(seen);
        self.gate.pump(now, None);
    }

    /// The flow of a client, which all its sessions share.
    #[must_use]
    pub fn flow(self: &Arc<Self>, client: &str) -> Option<Arc<Flow>> {
        let now = self.gate.now();
        let mut state = self.gate.state.lock();
        let known = state.disks.get(&self.name)?;
        if let Some(flow) = known.flows.get(client).and_then(Weak::upgrade) {
            return Some(flow);
        }
        let (own, rule) = (known.own, known.rule);
        let class = state.class_of(own, rule);
        let id = state.scheduler.add_flow(class, 1)?;
        let flow = Arc::new(Flow::new(self.clone(), client.to_owned(), id, now));
        state.disks.get_mut(&self.name)?.flows.insert(client.to_owned(), Arc::downgrade(&flow));
        Some(flow)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        // One of the same name may have come meanwhile; it has taken this one's class away.
        let gone = state.disks.get(&self.name).is_some_and(|known| known.disk.strong_count() == 0);
        if !gone {
            return;
        }
        let now = self.gate.now();
        state.let_go(&self.name, now);
        drop(state);
        // Places may have been kept for it that others wait for.
        self.gate.pump(now, None);
    }
}

/// The timer of a gate, which starts what its limits let go on. Runs on a shard until the gate is gone.
pub async fn keep_time(gate: Weak<Gate>) {
    let Some(changed) = gate.upgrade().map(|gate| gate.changed.clone()) else { return };
    loop {
        let news = changed.notified();
        let Some(there) = gate.upgrade() else { return };
        let wait = there.look();
        drop(there);
        // Either way there is something to look at.
        let _ = shard_runtime::timeout(wait, news).await;
    }
}
