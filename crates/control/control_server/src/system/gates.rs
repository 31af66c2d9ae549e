//! The queues before volumes: which disks they have, with which rules, and what of a policy that several volumes share is whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use control_api::{Config, PolicyKind, Problem};
use parking_lot::Mutex;
use qos_gate::{Disk, FlowReport, Gate, Rule, SharedDemand, Terms, keep_time};
use qos_policy::{Effective, Policies, QosSettings};
use qos_scheduler::divide;
use shard_runtime::Clock;
use uuid::Uuid;

use super::shards::SystemShards;

/// How often what several volumes share is divided anew.
const DIVIDE_EVERY: Duration = Duration::from_millis(100);
/// Who does not wait is given so much more than it asks for, in percent, so that it can ask for more.
const ROOM_PERCENT: u64 = 125;

/// The queues of all volumes with LUNs.
pub(super) struct Gates {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    by_volume: BTreeMap<String, Arc<Gate>>,
    /// Aggregated policies with disks on several volumes.
    spanning: BTreeMap<Uuid, Spanning>,
    /// Somebody divides them.
    dividing: bool,
}

/// An aggregated policy with disks on several volumes.
struct Spanning {
    terms: Terms,
    volumes: BTreeSet<String>,
    /// What each volume's flows had asked for at the last division, and when that was.
    asked: BTreeMap<String, SharedDemand>,
    at: u64,
}

/// Terms for each of several volumes: what each of them could use of I/Os and bytes per second says how much is whose.
fn parts(terms: Terms, units: &[u64], bytes: &[u64]) -> Vec<Terms> {
    let min = terms.min_iops.map(|total| divide(total, units));
    let max = terms.max_iops.map(|total| divide(total, units));
    let bandwidth = terms.max_bandwidth.map(|total| divide(total, bytes));
    let part =
        |of: &Option<Vec<u64>>, volume: usize| of.as_ref().and_then(|parts| parts.get(volume)).copied();
    (0..units.len())
        .map(|volume| Terms {
            min_iops: part(&min, volume),
            max_iops: part(&max, volume),
            max_bandwidth: part(&bandwidth, volume),
            ..terms
        })
        .collect()
}

impl Gates {
    /// No queues yet.
    pub(super) fn new(shards: Arc<SystemShards>, clock: Arc<dyn Clock>) -> Self {
        Self { shards, clock, shared: Arc::default() }
    }

    /// Puts policies in effect for all LUNs, also for what waits.
    pub(super) async fn apply(&self, config: &Config) -> Result<(), Problem> {
        let policies = Policies::new(&config.qos_policies, &config.qos_assignments);
        let now = self.clock.now().0;
        let (rules, spanning) = rules(config, &policies, now);
        let (gates, new) = {
            let mut shared = self.shared.lock();
            let gone: Vec<String> =
                shared.by_volume.keys().filter(|volume| !rules.contains_key(*volume)).cloned().collect();
            let gone: Vec<_> = gone.iter().filter_map(|volume| shared.by_volume.remove(volume)).collect();
            let mut new = Vec::new();
            for volume in rules.keys() {
                shared.by_volume.entry(volume.clone()).or_insert_with(|| {
                    let gate = Gate::new(self.clock.clone(), &QosSettings::default());
                    new.push(gate.clone());
                    gate
                });
            }
            shared.spanning = spanning;
            let gates: Vec<_> =
                shared.by_volume.iter().map(|(name, gate)| (name.clone(), gate.clone())).collect();
            drop(gone);
            (gates, new)
        };
        for (volume, gate) in gates {
            gate.apply(&config.qos, rules.get(&volume).cloned().unwrap_or_default());
        }
        for gate in new {
            let gate = Arc::downgrade(&gate);
            let started = self.shards.run(0, move || async move {
                shard_runtime::spawn_local(keep_time(gate));
                Ok(())
            });
            started.await?;
        }
        self.divide_from_now_on().await
    }

    /// Starts what divides shared policies, if there are any and it does not run.
    async fn divide_from_now_on(&self) -> Result<(), Problem> {
        {
            let mut shared = self.shared.lock();
            if shared.dividing || shared.spanning.is_empty() {
                return Ok(());
            }
            shared.dividing = true;
        }
        let (shared, clock) = (Arc::downgrade(&self.shared), self.clock.clone());
        let started = self.shards.run(0, move || async move {
            shard_runtime::spawn_local(async move {
                loop {
                    shard_runtime::sleep(DIVIDE_EVERY).await;
                    let Some(shared) = shared.upgrade() else { return };
                    if !divide_now(&shared, clock.now().0) {
                        return;
                    }
                }
            });
            Ok(())
        });
        if started.await.is_err() {
            // The node stops: there is nothing more to divide.
            self.shared.lock().dividing = false;
        }
        Ok(())
    }

    /// The disk of a LUN in the queue of its volume.
    pub(super) fn disk(&self, volume: &str, lun: &str) -> Option<Arc<Disk>> {
        let gate = self.shared.lock().by_volume.get(volume).cloned()?;
        Some(gate.disk(lun))
    }

    /// What flows do, with the volume of each.
    pub(super) fn flows(&self) -> Vec<(String, FlowReport)> {
        let gates: Vec<_> = {
            let shared = self.shared.lock();
            shared.by_volume.iter().map(|(name, gate)| (name.clone(), gate.clone())).collect()
        };
        let of = |(volume, gate): (String, Arc<Gate>)| {
            gate.flows().into_iter().map(move |flow| (volume.clone(), flow)).collect::<Vec<_>>()
        };
        gates.into_iter().flat_map(of).collect()
    }
}

/// The rules of all LUNs by volume, and the policies that several volumes share, which begin evenly.
fn rules(
    config: &Config,
    policies: &Policies,
    now: u64,
) -> (BTreeMap<String, BTreeMap<String, Rule>>, BTreeMap<Uuid, Spanning>) {
    let mut rules: BTreeMap<String, BTreeMap<String, Rule>> = BTreeMap::new();
    let mut shared: BTreeMap<Uuid, Spanning> = BTreeMap::new();
    for lun in &config.luns {
        let rule = match policies.of_lun(&lun.name) {
            Effective::None | Effective::Unknown(_) => Rule::Free,
            Effective::Policy(policy) if policy.kind == PolicyKind::Dedicated => Rule::Alone(policy.terms()),
            Effective::Policy(policy) => {
                let fresh = || Spanning {
                    terms: policy.terms(),
                    volumes: BTreeSet::new(),
                    asked: BTreeMap::new(),
                    at: now,
                };
                shared.entry(policy.guid).or_insert_with(fresh).volumes.insert(lun.volume.clone());
                Rule::Together(policy.guid, policy.terms())
            }
        };
        rules.entry(lun.volume.clone()).or_default().insert(lun.name.clone(), rule);
    }
    shared.retain(|_, spanning| spanning.volumes.len() > 1);
    for (policy, spanning) in &shared {
        let even = vec![1; spanning.volumes.len()];
        for (volume, part) in spanning.volumes.iter().zip(parts(spanning.terms, &even, &even)) {
            for rule in rules.get_mut(volume).into_iter().flat_map(BTreeMap::values_mut) {
                if let Rule::Together(guid, terms) = rule
                    && guid == policy
                {
                    *terms = part;
                }
            }
        }
    }
    (rules, shared)
}

/// Divides what several volumes share by what their flows ask for. False, once there is nothing to divide.
fn divide_now(shared: &Mutex<Shared>, now: u64) -> bool {
    let mut changes: Vec<(Arc<Gate>, Uuid, Terms)> = Vec::new();
    {
        let mut shared = shared.lock();
        if shared.spanning.is_empty() {
            shared.dividing = false;
            return false;
        }
        let Shared { by_volume, spanning, .. } = &mut *shared;
        for (policy, spanning) in spanning {
            let (mut units, mut bytes) = (Vec::new(), Vec::new());
            let nanos = now.saturating_sub(spanning.at).max(1);
            for volume in &spanning.volumes {
                let demand = by_volume.get(volume).and_then(|gate| gate.demand(*policy)).unwrap_or_default();
                let before = spanning.asked.insert(volume.clone(), demand).unwrap_or(demand);
                units.push(wanted(demand.asked_units, before.asked_units, demand.waiting, nanos));
                bytes.push(wanted(demand.bytes, before.bytes, demand.waiting, nanos));
            }
            spanning.at = now;
            for (volume, part) in spanning.volumes.iter().zip(parts(spanning.terms, &units, &bytes)) {
                if let Some(gate) = by_volume.get(volume) {
                    changes.push((gate.clone(), *policy, part));
                }
            }
        }
    }
    for (gate, policy, part) in changes {
        gate.set_part(policy, part);
    }
    true
}

/// What a volume could use in a second: all there is while something waits.
fn wanted(now: u64, before: u64, waiting: u64, nanos: u64) -> u64 {
    if waiting > 0 {
        return u64::MAX;
    }
    let amount = u128::from(now.saturating_sub(before)) * u128::from(ROOM_PERCENT) * 10_000_000;
    u64::try_from(amount / u128::from(nanos)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use control_api::{Assignment, LunConfig, LunState, Policy};

    use super::*;

    fn lun(name: &str, volume: &str) -> LunConfig {
        LunConfig {
            name: name.into(),
            guid: None,
            volume: volume.into(),
            path: format!("/{name}"),
            block_size: 512,
            state: LunState::Online,
            reason: String::new(),
            write_cache: false,
            initiator_write_cache: false,
            map: Vec::new(),
        }
    }

    fn config(kind: PolicyKind) -> Config {
        let guid = Uuid::from_u128(1);
        let row = |lun: &str| Assignment { lun: lun.into(), policy: guid };
        Config {
            luns: vec![lun("a", "v"), lun("b", "v"), lun("c", "w"), lun("d", "w")],
            qos_policies: vec![Policy {
                guid,
                name: "gold".into(),
                kind,
                min_iops: Some(100),
                max_iops: Some(1001),
                max_bandwidth: None,
            }],
            qos_assignments: vec![
                row("a"),
                row("b"),
                row("c"),
                Assignment { lun: "d".into(), policy: Uuid::from_u128(2) },
            ],
            ..Config::default()
        }
    }

    fn rules_of(config: &Config) -> (BTreeMap<String, BTreeMap<String, Rule>>, BTreeMap<Uuid, Spanning>) {
        rules(config, &Policies::new(&config.qos_policies, &config.qos_assignments), 0)
    }

    #[test]
    fn each_disk_of_a_dedicated_policy_has_all_of_it() {
        let config = config(PolicyKind::Dedicated);
        let (rules, spanning) = rules_of(&config);
        let whole = Rule::Alone(config.qos_policies[0].terms());
        assert_eq!([rules["v"]["a"], rules["v"]["b"], rules["w"]["c"]], [whole; 3]);
        assert_eq!(rules["w"]["d"], Rule::Free, "a policy that is not there limits nothing");
        assert!(spanning.is_empty());
    }

    #[test]
    fn volumes_share_an_aggregated_policy_and_its_parts_add_up() {
        let (rules, spanning) = rules_of(&config(PolicyKind::Aggregated));
        let (v, w) = (rules["v"]["a"].terms(), rules["w"]["c"].terms());
        assert_eq!(rules["v"]["a"], rules["v"]["b"]);
        assert_eq!(v.max_iops.unwrap() + w.max_iops.unwrap(), 1001);
        assert_eq!((v.min_iops, w.min_iops), (Some(50), Some(50)));
        assert_eq!(spanning.len(), 1);
        // On one volume there is nothing to divide.
        let mut config = config(PolicyKind::Aggregated);
        config.luns[2].volume = "v".into();
        let (rules, spanning) = rules_of(&config);
        assert_eq!(rules["v"]["c"].terms().max_iops, Some(1001));
        assert!(spanning.is_empty());
    }

    #[test]
    fn a_volume_that_waits_gets_what_others_leave() {
        assert_eq!(wanted(5, 0, 1, 1), u64::MAX);
        assert_eq!(wanted(150, 50, 0, 1_000_000_000), 125);
        assert_eq!(wanted(150, 50, 0, 100_000_000), 1250);
        assert_eq!(wanted(0, 50, 0, 1), 0, "a flow that ended takes its count along");
        let terms =
            Terms { min_iops: Some(160), max_iops: Some(1600), max_bandwidth: None, ..Terms::default() };
        let divided = parts(terms, &[u64::MAX, 0], &[0, 0]);
        assert_eq!((divided[0].max_iops, divided[1].max_iops), (Some(1550), Some(50)));
        assert_eq!((divided[0].min_iops, divided[1].min_iops), (Some(155), Some(5)));
        assert_eq!(divided[0].max_bandwidth, None);
    }
}
