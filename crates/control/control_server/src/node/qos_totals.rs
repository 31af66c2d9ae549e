//! What policies and flows of QoS have done so far, as counters that only grow. Flows come and go with their sessions; what a policy's have
//! done stays in its sum for as long as one of them is there.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{Config, CounterKind, ObjectCounters, OperationCounters, PolicyKind, QosCounters, QosFlow};
use qos_gate::{DiskName, FlowTotals, KindCounters};
use uuid::Uuid;

use super::Node;
use super::qos::describe_all;

/// A disk: the name and the identity of its volume, and its name there.
type DiskKey = (String, Option<Uuid>, DiskName);

/// A flow at one moment.
struct Seen {
    flow: QosFlow,
    /// What its limits hold for, unless they hold for several together.
    disk: DiskKey,
    totals: FlowTotals,
}

/// What flows had done at the last look, and the sums up to then. Whoever looks brings them up to date, however many do.
#[derive(Debug, Default)]
pub(super) struct QosTotals {
    flows: BTreeMap<u64, FlowTotals>,
    sums: BTreeMap<(CounterKind, String), ObjectCounters>,
}

/// By how much a flow has grown since a look before.
fn grown(now: &FlowTotals, before: &FlowTotals) -> (OperationCounters, OperationCounters, QosCounters) {
    let (new, old) = (&now.counters, &before.counters);
    let operations = |new: KindCounters, old: KindCounters, nanos: (u64, u64)| OperationCounters {
        operations: new.operations.saturating_sub(old.operations),
        bytes: new.bytes.saturating_sub(old.bytes),
        errors: 0,
        latency_ns: nanos.0.saturating_sub(nanos.1),
    };
    let qos = QosCounters {
        normalized: new.all().units.saturating_sub(old.all().units),
        asked: new.asked_units.saturating_sub(old.asked_units),
        held_ns: new.held_nanos.saturating_sub(old.held_nanos),
        ..QosCounters::default()
    };
    (
        operations(new.read, old.read, (now.read_nanos, before.read_nanos)),
        operations(new.write, old.write, (now.write_nanos, before.write_nanos)),
        qos,
    )
}

fn add_operations(sum: &mut Option<OperationCounters>, more: OperationCounters) {
    let sum = sum.get_or_insert_default();
    sum.operations = sum.operations.saturating_add(more.operations);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
    sum.latency_ns = sum.latency_ns.saturating_add(more.latency_ns);
}

/// The name of a flow among counters: what it uses, and who uses it.
fn name_of(flow: &QosFlow) -> String {
    match flow.lun.as_str() {
        "" => format!("{}:{} {}", flow.volume, flow.file, flow.initiator),
        lun => format!("{lun} {}", flow.initiator),
    }
}

fn plus(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    more.map_or(sum, |more| Some(sum.unwrap_or(0).saturating_add(more)))
}

impl QosTotals {
    /// Takes a look at all flows; `shared` are the policies that hold for several disks together.
    fn take(&mut self, flows: Vec<Seen>, shared: &BTreeSet<Uuid>) -> Vec<ObjectCounters> {
        let mut before = std::mem::take(&mut self.flows);
        let mut former = std::mem::take(&mut self.sums);
        let mut limited: BTreeSet<(Uuid, Option<DiskKey>)> = BTreeSet::new();
        for Seen { flow, disk, totals } in flows {
            let growth = grown(&totals, &before.remove(&totals.number).unwrap_or_default());
            self.flows.insert(totals.number, totals);
            let mut add = |kind, name: String, flow: Option<&QosFlow>| {
                let sum = self.sums.entry((kind, name)).or_insert_with_key(|key| {
                    let mut sum =
                        former.remove(key).unwrap_or_else(|| ObjectCounters::new(kind, key.1.clone()));
                    // Limits are those of now.
                    let QosCounters { normalized, asked, held_ns, .. } = sum.qos.unwrap_or_default();
                    sum.qos = Some(QosCounters { normalized, asked, held_ns, ..QosCounters::default() });
                    sum
                });
                let (read, write, more) = growth;
                add_operations(&mut sum.read, read);
                add_operations(&mut sum.write, write);
                let qos = sum.qos.get_or_insert_default();
                qos.normalized = qos.normalized.saturating_add(more.normalized);
                qos.asked = qos.asked.saturating_add(more.asked);
                qos.held_ns = qos.held_ns.saturating_add(more.held_ns);
                if let Some(flow) = flow {
                    qos.min_iops = plus(qos.min_iops, flow.min_iops);
                    qos.max_iops = plus(qos.max_iops, flow.max_iops);
                    qos.max_bandwidth = plus(qos.max_bandwidth, flow.max_bandwidth);
                }
            };
            if let (Some(guid), Some(policy)) = (flow.policy_guid, &flow.policy) {
                // Several clients of one disk have its limits together, several disks of an aggregated policy that one's.
                let holds_for = (!shared.contains(&guid)).then_some(disk);
                let is_first = limited.insert((guid, holds_for));
                add(CounterKind::QosPolicy, policy.clone(), is_first.then_some(&flow));
            }
            add(CounterKind::QosFlow, name_of(&flow), Some(&flow));
        }
        self.sums.values().cloned().collect()
    }
}

fn shared_policies(config: &Config) -> BTreeSet<Uuid> {
    let shared = config.qos_policies.iter().filter(|policy| policy.kind == PolicyKind::Aggregated);
    shared.map(|policy| policy.guid).collect()
}

impl Node {
    /// Counters of all policies in use and of all flows.
    pub(super) fn qos_counters(&self) -> Vec<ObjectCounters> {
        // Held from looking on: looks that passed each other would count backwards.
        let mut so_far = self.qos_totals.lock();
        let reports = self.flows_here();
        let seen: Vec<_> = reports
            .iter()
            .map(|on| ((on.volume.clone(), on.guid, on.report.disk.clone()), on.report.totals))
            .collect();
        let config = self.config.current().config;
        let flows = if reports.is_empty() {
            Vec::new()
        } else {
            describe_all(&config, (&self.name(), &self.backends.qos_exchange), reports)
        };
        let flows = flows.into_iter().zip(seen);
        let flows = flows.map(|(flow, (disk, totals))| Seen { flow, disk, totals });
        so_far.take(flows.collect(), &shared_policies(&config))
    }
}

#[cfg(test)]
mod tests {
    use qos_gate::FlowCounters;

    use super::*;

    const GOLD: Uuid = Uuid::from_u128(1);

    /// A flow of policy `gold` that has read so much.
    fn seen(number: u64, lun: &str, client: &str, reads: u64) -> Seen {
        let flow = QosFlow {
            lun: lun.into(),
            initiator: client.into(),
            policy: Some("gold".into()),
            policy_guid: Some(GOLD),
            max_iops: Some(500),
            ..QosFlow::default()
        };
        let read = KindCounters { operations: reads, units: 2 * reads, bytes: 4096 * reads };
        let counters = FlowCounters {
            read,
            asked_units: 3 * reads,
            held_nanos: 1000 * reads,
            ..FlowCounters::default()
        };
        let totals = FlowTotals { number, counters, read_nanos: 10 * reads, write_nanos: 0 };
        Seen { flow, disk: ("vm".into(), None, DiskName::from(lun)), totals }
    }

    fn look(
        totals: &mut QosTotals,
        flows: Vec<Seen>,
        shared: bool,
    ) -> BTreeMap<String, (u64, u64, Option<u64>)> {
        let shared = if shared { BTreeSet::from([GOLD]) } else { BTreeSet::new() };
        let counters = totals.take(flows, &shared).into_iter();
        let of = |one: ObjectCounters| {
            let qos = one.qos.expect("numbers of QoS");
            (one.name, (one.read.expect("reads").operations, qos.normalized, qos.max_iops))
        };
        counters.map(of).collect()
    }

    #[test]
    fn a_policys_sum_keeps_what_flows_did_that_are_gone() {
        let mut totals = QosTotals::default();
        look(&mut totals, vec![seen(1, "a", "x", 100), seen(2, "b", "y", 10)], false);
        // The first is gone, with what it had done; another of its name counts from zero, and so much that it looks like growth.
        let now = look(&mut totals, vec![seen(3, "a", "x", 120), seen(2, "b", "y", 15)], false);
        assert_eq!(now["gold"], (100 + 10 + 120 + 5, 2 * 235, Some(1000)));
        assert_eq!(now["a x"], (100 + 120, 2 * 220, Some(500)));
        assert_eq!(now["b y"], (15, 30, Some(500)));
        // Another look counts nothing twice.
        let again = look(&mut totals, vec![seen(3, "a", "x", 120), seen(2, "b", "y", 15)], false);
        assert_eq!(again, now);
        // Nothing is remembered of what is not there any more.
        assert!(look(&mut totals, Vec::new(), false).is_empty());
        assert!(totals.flows.is_empty() && totals.sums.is_empty());
    }

    #[test]
    fn limits_are_counted_once_for_all_that_has_them_together() {
        let flows = || vec![seen(1, "a", "x", 1), seen(2, "a", "y", 1), seen(3, "b", "x", 1)];
        let mut totals = QosTotals::default();
        assert_eq!(
            look(&mut totals, flows(), false)["gold"].2,
            Some(1000),
            "two LUNs, one of them with two clients"
        );
        assert_eq!(look(&mut totals, flows(), true)["gold"].2, Some(500));
        // A limit that is taken away is not there.
        let mut free = seen(1, "a", "x", 2);
        free.flow.max_iops = None;
        assert_eq!(look(&mut totals, vec![free], true)["gold"].2, None);
    }

    #[test]
    fn a_flow_counts_for_the_policy_that_it_has_now() {
        let mut totals = QosTotals::default();
        look(&mut totals, vec![seen(1, "a", "x", 100), seen(2, "b", "x", 0)], false);
        let mut moved = seen(1, "a", "x", 130);
        (moved.flow.policy, moved.flow.policy_guid) = (Some("silver".into()), Some(Uuid::from_u128(2)));
        let now = look(&mut totals, vec![moved, seen(2, "b", "x", 0)], false);
        assert_eq!((now["gold"].0, now["silver"].0, now["a x"].0), (100, 30, 130));
    }

    #[test]
    fn names_say_what_is_used_and_by_whom() {
        let mut flow = seen(1, "", "demo 10.0.0.1", 0).flow;
        (flow.volume, flow.file) = ("vm".into(), "/vms/web1.vhdx".into());
        assert_eq!(name_of(&flow), "vm:/vms/web1.vhdx demo 10.0.0.1");
    }
}
