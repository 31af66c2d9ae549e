//! What flows do now: rates over a window of some seconds.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use qos_policy::{FlowStatus, Measured};
use qos_scheduler::{ClassId, FlowCounters, FlowState, Learnt, Promised, Terms};
use uuid::Uuid;

use crate::gate::{Flow, Gate};
use crate::rules::{Asked, DiskName, Rule};
use crate::window::{SAMPLE_EVERY, SECOND, Sample};

/// What a flow has done since it was made: totals, from which whoever looks twice makes rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Which flow: no other of this process has this number, also none of the same client and disk that was made later.
    pub number: u64,
    /// What went to the volume, and how long it was held back.
    pub counters: FlowCounters,
    /// How long reads that were answered were at the volume together, in nanoseconds.
    pub read_nanos: u64,
    /// How long writes that were answered were there together, in nanoseconds.
    pub write_nanos: u64,
}

/// A flow over the last seconds.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The disk.
    pub disk: DiskName,
    /// What its client asks for.
    pub asked: Asked,
    /// The client.
    pub client: String,
    /// How long it was looked at, in nanoseconds.
    pub window_nanos: u64,
    /// Reads per second.
    pub read_iops: u64,
    /// Writes per second.
    pub write_iops: u64,
    /// Normalised I/Os per second.
    pub normalized_iops: u64,
    /// Bytes read per second.
    pub read_bandwidth: u64,
    /// Bytes written per second.
    pub write_bandwidth: u64,
    /// How long a request was held back on the average, in nanoseconds.
    pub held_nanos: u64,
    /// How long a request was at the volume on the average, in nanoseconds.
    pub disk_nanos: u64,
    /// Requests that wait now, and that are at the volume.
    pub waiting: u32,
    /// Requests at the volume now.
    pub in_flight: u32,
    /// Requests that found a queue full, since the flow was there.
    pub refused: u64,
    /// All flows together that its minimum holds for.
    pub measured: Measured,
    /// What it has done since it was made.
    pub totals: FlowTotals,
}

/// What holds for a flow, and how it fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its terms.
    pub terms: Terms,
    /// How it fares.
    pub status: FlowStatus,
    /// Bytes that count as one I/O.
    pub unit_bytes: u32,
}

/// A volume: what it can do, as far as it was seen, and what was promised of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeReport {
    /// What it can do.
    pub learnt: Learnt,
    /// What its flows are promised.
    pub promised: Promised,
    /// Requests that wait now.
    pub waiting: u32,
    /// Requests at the volume now.
    pub in_flight: u32,
}

/// What the flows of a shared rule ask of a gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedDemand {
    /// Normalised I/Os that were asked for since the flows were there.
    pub asked_units: u64,
    /// Bytes that went to the volume since then.
    pub bytes: u64,
    /// Normalised I/Os that went to the volume since then.
    pub got_units: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

fn per_second(amount: u64, nanos: u64) -> u64 {
    (u128::from(amount) * u128::from(SECOND)).checked_div(u128::from(nanos)).unwrap_or(0) as u64
}

fn sample_of(flow: &Flow, state: FlowState, at: u64) -> Sample {
    let done = flow.done.load(Ordering::Relaxed);
    Sample { at, counters: state.counters, done, disk_nanos: flow.disk_nanos.load(Ordering::Relaxed) }
}

/// A flow with what holds for it and what it has done.
struct Seen {
    asked: Asked,
    rule: Rule,
    class: ClassId,
    state: FlowState,
    flow: Arc<Flow>,
}

impl Gate {
    /// What the volume can do, and what was promised of that.
    #[must_use]
    pub fn volume(&self) -> VolumeReport {
        let state = self.state.lock();
        let scheduler = &state.scheduler;
        VolumeReport {
            learnt: scheduler.learnt(),
            promised: scheduler.promised(),
            waiting: scheduler.waiting(),
            in_flight: scheduler.in_flight(),
        }
    }

    /// All flows. Nothing is copied of their names: requests wait for the lock meanwhile.
    fn see(&self) -> Vec<Seen> {
        let state = self.state.lock();
        let mut seen = Vec::new();
        for known in state.disks.values() {
            let class = state.class_of(known.own, known.rule);
            for flow in known.flows.values().filter_map(Weak::upgrade) {
                let counted = state.scheduler.flow(flow.id).unwrap_or_default();
                let asked = known.asked;
                seen.push(Seen { asked, rule: known.rule, class, state: counted, flow });
            }
        }
        seen
    }

    /// Takes note of what flows have done, when it is time to.
    pub(crate) fn sample(&self, now: u64) {
        {
            let mut state = self.state.lock();
            if now.saturating_sub(state.sampled) < SAMPLE_EVERY {
                return;
            }
            state.sampled = now;
            state.settle(now);
        }
        for seen in self.see() {
            seen.flow.window.lock().look(sample_of(&seen.flow, seen.state, now));
        }
    }

    /// All flows over the last seconds.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowReport> {
        let now = self.now();
        let slowdown = self.state.lock().scheduler.learnt().slowdown_permille;
        let seen = self.see();
        let mut classes: BTreeMap<ClassId, Measured> = BTreeMap::new();
        let mut reports = Vec::with_capacity(seen.len());
        for seen in &seen {
            let report = report(seen, now, slowdown);
            let measured = classes.entry(seen.class).or_default();
            measured.asked = measured.asked.saturating_add(report.measured.asked);
            measured.got = measured.got.saturating_add(report.measured.got);
            measured.waited_permille =
                measured.waited_permille.saturating_add(report.measured.waited_permille);
            reports.push(report);
        }
        for (report, seen) in reports.iter_mut().zip(&seen) {
            report.measured = classes.get(&seen.class).copied().unwrap_or_default();
        }
        reports
    }

    /// What the flows of each shared rule ask for that disks here have. One look at all flows, however many rules there are.
    #[must_use]
    pub fn demands(&self) -> BTreeMap<Uuid, SharedDemand> {
        let rules = self.state.lock().shared.keys().map(|rule| (*rule, SharedDemand::default())).collect();
        let mut demands: BTreeMap<Uuid, SharedDemand> = rules;
        if demands.is_empty() {
            return demands;
        }
        for seen in self.see() {
            let Rule::Together(name, _) = seen.rule else { continue };
            let Some(demand) = demands.get_mut(&name) else { continue };
            demand.asked_units = demand.asked_units.saturating_add(seen.state.counters.asked_units);
            let went = seen.state.counters.all();
            demand.bytes = demand.bytes.saturating_add(went.bytes);
            demand.got_units = demand.got_units.saturating_add(went.units);
            demand.waiting += u64::from(seen.state.waiting);
        }
        demands
    }
}

impl Flow {
    /// What holds for it, and how it fares.
    #[must_use]
    pub fn standing(self: &Arc<Self>) -> Standing {
        let gate = self.gate();
        let now = gate.now();
        let (seen, misses, unit_bytes, slowdown) = {
            let state = gate.state.lock();
            let name = self.disk_name();
            let (asked, rule, own) = match state.disks.get(name) {
                Some(known) => (known.asked, known.rule, known.own),
                None => return Standing { terms: Terms::default(), status: FlowStatus::Ok, unit_bytes: 0 },
            };
            let counted = state.scheduler.flow(self.id).unwrap_or_default();
            let class = state.class_of(own, rule);
            let seen = Seen { asked, rule, class, state: counted, flow: self.clone() };
            let slowdown = state.scheduler.learnt().slowdown_permille;
            (seen, state.rules.misses(name, asked), state.scheduler.settings().unit_bytes, slowdown)
        };
        let terms = seen.rule.terms();
        let alone = |seen: &Seen| report(seen, now, slowdown).measured;
        let measured = match seen.rule {
            // What is promised to all of them may be had by others.
            Rule::Together(..) => {
                let all = gate
                    .flows()
                    .into_iter()
                    .find(|flow| flow.disk == *self.disk_name() && flow.client == self.client());
                all.map_or_else(|| alone(&seen), |flow| flow.measured)
            }
            _ => alone(&seen),
        };
        let status =
            if misses { FlowStatus::UnknownPolicyId } else { FlowStatus::of(terms.min_iops, measured) };
        Standing { terms, status, unit_bytes }
    }
}

/// `slowdown`: how many times longer the volume takes than when it is quiet, in thousandths.
fn report(seen: &Seen, now: u64, slowdown: u64) -> FlowReport {
    let before = seen.flow.window.lock().older();
    let after = sample_of(&seen.flow, seen.state, now);
    let (old, new) = (before.counters, after.counters);
    let window = now.saturating_sub(before.at);
    let rate = |new: u64, old: u64| per_second(new.saturating_sub(old), window);
    let operations = new.all().operations.saturating_sub(old.all().operations);
    let held = new.held_nanos.saturating_sub(old.held_nanos);
    let got = rate(new.all().units, old.all().units);
    let disk = after.disk_nanos.saturating_sub(before.disk_nanos);
    // What a request takes longer than on a quiet volume it waits behind others there.
    let behind = u128::from(disk) * u128::from(slowdown.saturating_sub(1000)) / u128::from(slowdown.max(1));
    let waited = (u128::from(held) + behind).saturating_mul(1000);
    let waited = waited.checked_div(u128::from(window)).unwrap_or(0) as u64;
    // What waits for so long that nothing was started has left no trace yet.
    let stuck = if operations == 0 { u64::from(seen.state.waiting) * 1000 } else { 0 };
    let asked = rate(new.asked_units, old.asked_units);
    // Whoever answers meanwhile adds to the sum first: what is left is never below zero.
    let read_nanos = seen.flow.read_nanos.load(Ordering::Relaxed).min(after.disk_nanos);
    let totals = FlowTotals {
        number: seen.flow.number,
        counters: new,
        read_nanos,
        write_nanos: after.disk_nanos - read_nanos,
    };
    FlowReport {
        disk: seen.flow.disk_name().clone(),
        asked: seen.asked,
        client: seen.flow.client().to_owned(),
        window_nanos: window,
        read_iops: rate(new.read.operations, old.read.operations),
        write_iops: rate(new.write.operations, old.write.operations),
        normalized_iops: got,
        read_bandwidth: rate(new.read.bytes, old.read.bytes),
        write_bandwidth: rate(new.write.bytes, old.write.bytes),
        held_nanos: held.checked_div(operations).unwrap_or(0),
        disk_nanos: disk.checked_div(after.done.saturating_sub(before.done)).unwrap_or(0),
        waiting: seen.state.waiting,
        in_flight: seen.state.in_flight,
        refused: new.refused,
        measured: Measured { asked, got, waited_permille: waited.max(stuck) },
        totals,
    }
}
