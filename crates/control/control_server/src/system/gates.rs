//! The queues before volumes: which disks they have, with which rules, and what of a policy that several volumes share is whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control_api::{Config, LunConfig, Policy, PolicyKind, ShareConfig};
use parking_lot::Mutex;
use qos_gate::{Disk, DiskName, Gate, Rule, Rules, SharedDemand, Terms, keep_time};
use qos_policy::{Effective, Policies, QosSettings};
use qos_scheduler::divide;
use shard_runtime::Clock;
use smb_server::Wanted;
use tcp_service::Spawner;
use uuid::Uuid;

use super::shards::SystemShards;
use crate::backend::FlowOn;

/// How often what several volumes share is divided anew.
const DIVIDE_EVERY: Duration = Duration::from_millis(100);
/// Who does not wait is given so much more than it asks for, in percent, so that it can ask for more.
const ROOM_PERCENT: u64 = 125;

/// The queues of all volumes with LUNs and shares.
pub(super) struct Gates {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    shared: Arc<Mutex<Shared>>,
    /// How often a configuration was put in effect.
    generation: AtomicU64,
}

/// A volume: there may be several of one name, in several pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VolumeKey {
    Guid(Uuid),
    /// Of a LUN or share whose configuration does not say more (yet).
    Name(String),
}

impl VolumeKey {
    fn new(guid: Option<Uuid>, name: &str) -> Self {
        guid.map_or_else(|| Self::Name(name.to_owned()), Self::Guid)
    }

    fn guid(&self) -> Option<Uuid> {
        match self {
            Self::Guid(guid) => Some(*guid),
            Self::Name(_) => None,
        }
    }

    fn of(lun: &LunConfig) -> Self {
        Self::new(lun.volume_guid, &lun.volume)
    }

    fn of_share(share: &ShareConfig) -> Self {
        Self::new(share.volume_guid, &share.volume)
    }
}

/// The queue of a volume, and the volume's name.
struct Queue {
    name: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Shared {
    by_volume: BTreeMap<VolumeKey, Queue>,
    /// On which volume each share is, by the upper case of its name.
    shares: BTreeMap<String, VolumeKey>,
    /// Aggregated policies with disks on several volumes.
    spanning: BTreeMap<Uuid, Spanning>,
    /// Somebody divides them.
    dividing: bool,
}

/// An aggregated policy with disks on several volumes.
#[derive(Clone)]
struct Spanning {
    terms: Terms,
    volumes: BTreeSet<VolumeKey>,
    /// How it is divided now, by volume as `volumes`.
    parts: Vec<Terms>,
    /// What each volume's flows had asked for at the last division, and when that was.
    asked: BTreeMap<VolumeKey, SharedDemand>,
    at: u64,
}

/// What holds for the LUNs and files of a volume.
#[derive(Default)]
struct VolumeRules {
    name: String,
    rules: Rules,
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
        Self { shards, clock, shared: Arc::default(), generation: AtomicU64::new(0) }
    }

    /// Puts policies in effect for all LUNs and files, also for what waits. It awaits nothing: whoever drops the caller leaves no queue
    /// without its timer.
    pub(super) fn apply(&self, config: &Config) {
        let policies = config.policies();
        let now = self.clock.now().0;
        let changes = {
            let mut shared = self.shared.lock();
            let of_share = |share: &ShareConfig| (upcase::upper(&share.name), VolumeKey::of_share(share));
            shared.shares = config.shares.iter().map(of_share).collect();
            let (rules, spanning) = rules(config, &policies, &shared.spanning, now);
            shared.spanning = spanning;
            let mut changes: Vec<(Arc<Gate>, Rules)> = Vec::new();
            shared.by_volume.retain(|volume, queue| {
                let stays = rules.contains_key(volume);
                if !stays {
                    // What still waits there is held back by nothing any more.
                    changes.push((queue.gate.clone(), Rules::default()));
                }
                stays
            });
            for (volume, VolumeRules { name, rules }) in rules {
                let queue = shared
                    .by_volume
                    .entry(volume)
                    .or_insert_with(|| Queue { name: String::new(), gate: self.new_gate() });
                queue.name = name;
                changes.push((queue.gate.clone(), rules));
            }
            if !shared.dividing && !shared.spanning.is_empty() {
                shared.dividing = true;
                self.start_dividing();
            }
            changes
        };
        for (gate, rules) in changes {
            gate.apply(&config.qos, rules);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// A queue with its timer. A shard that is gone drops that: the node stops.
    fn new_gate(&self) -> Arc<Gate> {
        let gate = Gate::new(self.clock.clone(), &QosSettings::default());
        let timed = Arc::downgrade(&gate);
        self.shards.spawn(0, Box::new(move || Box::pin(keep_time(timed))));
        gate
    }

    /// Starts what divides shared policies, until there are none.
    fn start_dividing(&self) {
        let (shared, clock) = (Arc::downgrade(&self.shared), self.clock.clone());
        let divide = async move {
            loop {
                shard_runtime::sleep(DIVIDE_EVERY).await;
                let Some(shared) = shared.upgrade() else { return };
                if !divide_now(&shared, clock.now().0) {
                    return;
                }
            }
        };
        self.shards.spawn(0, Box::new(move || Box::pin(divide)));
    }

    /// The disk of a LUN in the queue of its volume.
    pub(super) fn disk(&self, lun: &LunConfig) -> Option<Arc<Disk>> {
        let gate = self.shared.lock().by_volume.get(&VolumeKey::of(lun))?.gate.clone();
        Some(gate.disk(lun.name.as_str()))
    }

    /// A file in the queue of the volume that a share is on.
    fn file(&self, share: &str, path: &str, wanted: Option<&Wanted>) -> Option<Arc<Disk>> {
        let gate = {
            let shared = self.shared.lock();
            let volume = shared.shares.get(&upcase::upper(share))?;
            shared.by_volume.get(volume)?.gate.clone()
        };
        let Some(Wanted { flow, asked }) = wanted else {
            return Some(gate.disk(DiskName::File(path.to_owned())));
        };
        let disk = gate.disk(DiskName::Flow(*flow, path.to_owned()));
        disk.ask(*asked);
        Some(disk)
    }

    /// What flows do, with the volume of each.
    pub(super) fn flows(&self) -> Vec<FlowOn> {
        let gates: Vec<_> = {
            let shared = self.shared.lock();
            let of =
                |(key, queue): (&VolumeKey, &Queue)| (key.guid(), queue.name.clone(), queue.gate.clone());
            shared.by_volume.iter().map(of).collect()
        };
        let of = |(guid, volume, gate): (Option<Uuid>, String, Arc<Gate>)| {
            let on = move |report| FlowOn { volume: volume.clone(), guid, report };
            gate.flows().into_iter().map(on).collect::<Vec<_>>()
        };
        gates.into_iter().flat_map(of).collect()
    }
}

impl smb_server::Queues for Gates {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn disk(&self, share: &str, path: &str, wanted: Option<&Wanted>) -> Option<Arc<Disk>> {
        self.file(share, path, wanted)
    }
}

fn rule_of(effective: Effective<'_>) -> Rule {
    let of = |policy: &Policy| match policy.kind {
        PolicyKind::Dedicated => Rule::Alone(policy.terms()),
        PolicyKind::Aggregated => Rule::Together(policy.guid, policy.terms()),
    };
    match effective {
        Effective::None | Effective::Unknown(_) => Rule::Free,
        Effective::Policy(policy) => of(policy),
    }
}

/// Aggregated policies with their terms and volumes.
type SharedRules = BTreeMap<Uuid, (Terms, BTreeSet<VolumeKey>)>;

fn note_shared(shared: &mut SharedRules, volume: &VolumeKey, rule: &Rule) {
    if let Rule::Together(policy, terms) = rule {
        shared.entry(*policy).or_insert_with(|| (*terms, BTreeSet::new())).1.insert(volume.clone());
    }
}

/// The rules of all LUNs and files by volume, and the policies that several volumes share. What is shared as before stays divided as it
/// is; other policies begin evenly.
fn rules(
    config: &Config,
    policies: &Policies,
    former: &BTreeMap<Uuid, Spanning>,
    now: u64,
) -> (BTreeMap<VolumeKey, VolumeRules>, BTreeMap<Uuid, Spanning>) {
    let mut rules: BTreeMap<VolumeKey, VolumeRules> = BTreeMap::new();
    let mut shared = SharedRules::new();
    let luns = config.luns.iter().map(|lun| (lun.volume_guid, &lun.volume));
    let shares = config.shares.iter().map(|share| (share.volume_guid, &share.volume));
    for (guid, name) in luns.chain(shares) {
        let volume = VolumeKey::new(guid, name);
        if rules.contains_key(&volume) {
            continue;
        }
        let places = policies
            .places((guid, name))
            .map(|places| places.map(|policy| rule_of(policies.of_guid(*policy))));
        let places = places.unwrap_or_default();
        places.values().for_each(|rule| note_shared(&mut shared, &volume, rule));
        let by_guid =
            policies.all().map(|policy| (policy.guid, rule_of(Effective::Policy(policy)))).collect();
        let rules_of = Rules { places, policies: by_guid, ..Rules::default() };
        let of = VolumeRules { name: name.clone(), rules: rules_of };
        rules.insert(volume, of);
    }
    for lun in &config.luns {
        let volume = VolumeKey::of(lun);
        let rule = rule_of(policies.of_lun_at(&lun.name, (lun.volume_guid, &lun.volume), &lun.path));
        note_shared(&mut shared, &volume, &rule);
        rules.entry(volume).or_default().rules.luns.insert(lun.name.clone(), rule);
    }
    let mut spanning = BTreeMap::new();
    for (policy, (terms, volumes)) in shared.into_iter().filter(|(_, (_, volumes))| volumes.len() > 1) {
        let same = former.get(&policy).filter(|before| before.terms == terms && before.volumes == volumes);
        let divided = same.cloned().unwrap_or_else(|| {
            let even = vec![1; volumes.len()];
            let parts = parts(terms, &even, &even);
            Spanning { terms, volumes, parts, asked: BTreeMap::new(), at: now }
        });
        for (volume, part) in divided.volumes.iter().zip(&divided.parts) {
            for rule in rules.get_mut(volume).into_iter().flat_map(|of| of.rules.all_mut()) {
                if let Rule::Together(guid, terms) = rule
                    && *guid == policy
                {
                    *terms = *part;
                }
            }
        }
        spanning.insert(policy, divided);
    }
    (rules, spanning)
}

/// Divides what several volumes share by what their flows ask for. False, once there is nothing to divide.
fn divide_now(shared: &Mutex<Shared>, now: u64) -> bool {
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
            let demand = by_volume.get(volume).and_then(|queue| queue.gate.demand(*policy));
            let demand = demand.unwrap_or_default();
            let before = spanning.asked.insert(volume.clone(), demand).unwrap_or(demand);
            units.push(wanted(demand.asked_units, before.asked_units, demand.waiting, nanos));
            bytes.push(wanted(demand.bytes, before.bytes, demand.waiting, nanos));
        }
        spanning.at = now;
        spanning.parts = parts(spanning.terms, &units, &bytes);
        for (volume, part) in spanning.volumes.iter().zip(&spanning.parts) {
            if let Some(queue) = by_volume.get(volume) {
                // Under the lock: a part that came after other policies would be of those before them.
                queue.gate.set_part(*policy, *part);
            }
        }
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
            volume_guid: None,
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

    type Rules = BTreeMap<String, BTreeMap<String, Rule>>;

    /// The rules by the names of volumes, and what is shared.
    fn rules_after(config: &Config, former: &BTreeMap<Uuid, Spanning>) -> (Rules, BTreeMap<Uuid, Spanning>) {
        let (rules, spanning) = rules(config, &config.policies(), former, 0);
        (rules.into_values().map(|of| (of.name, of.rules.luns)).collect(), spanning)
    }

    fn rules_of(config: &Config) -> (Rules, BTreeMap<Uuid, Spanning>) {
        rules_after(config, &BTreeMap::new())
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

    #[test]
    fn what_is_shared_as_before_stays_divided_as_it_is() {
        let mut config = config(PolicyKind::Aggregated);
        let guid = config.qos_policies[0].guid;
        let (_, mut spanning) = rules_of(&config);
        let divided = spanning.get_mut(&guid).expect("it is shared");
        divided.parts = parts(divided.terms, &[u64::MAX, 0], &[0, 0]);
        let busy = divided.parts[0].max_iops;
        // Another LUN comes, or anything else is changed.
        config.luns.push(lun("e", "v"));
        let (rules, after) = rules_after(&config, &spanning);
        assert_eq!(rules["v"]["a"].terms().max_iops, busy);
        assert_eq!(after[&guid].parts[0].max_iops, busy);
        config.qos_policies[0].max_iops = Some(501);
        let (rules, _) = rules_after(&config, &spanning);
        let (v, w) = (rules["v"]["a"].terms().max_iops, rules["w"]["c"].terms().max_iops);
        assert_eq!(v.zip(w).map(|(v, w)| v + w), Some(501), "the policy itself was changed");
    }

    fn gates() -> Gates {
        let shards = SystemShards::start(Some(1)).expect("a shard");
        Gates::new(shards, Arc::new(shard_runtime::SystemClock::new()))
    }

    /// A flow of LUN `a`, which has a limit of so many, and what of it goes at once and what waits.
    fn waiting(gates: &Gates, max_iops: u64) -> (Config, Vec<qos_gate::Turn>) {
        let mut config = config(PolicyKind::Dedicated);
        (config.qos_policies[0].min_iops, config.qos_policies[0].max_iops) = (None, Some(max_iops));
        gates.apply(&config);
        let flow = gates.disk(&config.luns[0]).expect("it has a queue").flow("i").expect("it is there");
        let turns = (0..30).filter_map(|_| match flow.enter(qos_gate::Kind::Write, 1 << 20) {
            Ok(qos_gate::Entry::Later(turn)) => Some(turn),
            _ => None,
        });
        let turns = turns.collect();
        (config, turns)
    }

    #[tokio::test]
    async fn each_queue_has_its_timer() {
        let gates = gates();
        // 128 normalised I/Os each: one in a hundredth of a second.
        let (_config, turns) = waiting(&gates, 12_800);
        assert!(turns.len() > 20, "most wait");
        for turn in turns {
            let permit = tokio::time::timeout(Duration::from_secs(60), turn).await;
            drop(permit.expect("its time comes").expect("its flow is there"));
        }
    }

    #[tokio::test]
    async fn what_waits_at_the_queue_of_a_volume_that_loses_its_last_lun_goes_on() {
        let gates = gates();
        let (_config, turns) = waiting(&gates, 1);
        assert_eq!(turns.len(), 29);
        gates.apply(&Config::default());
        for turn in turns {
            let permit = futures_util::FutureExt::now_or_never(turn);
            drop(permit.expect("nothing limits it").expect("its flow is there"));
        }
    }

    #[test]
    fn volumes_of_one_name_have_queues_of_their_own() {
        let gates = gates();
        let mut config = config(PolicyKind::Dedicated);
        for (lun, guid) in config.luns.iter_mut().zip([1, 1, 2, 2]) {
            (lun.volume, lun.volume_guid) = ("v".into(), Some(Uuid::from_u128(guid)));
        }
        gates.apply(&config);
        assert_eq!(gates.shared.lock().by_volume.len(), 2);
        let disks: Vec<_> = config.luns.iter().filter_map(|lun| gates.disk(lun)).collect();
        let _flows: Vec<_> = disks.iter().filter_map(|disk| disk.flow("i")).collect();
        let flows = gates.flows();
        assert!(flows.len() == 4 && flows.iter().all(|flow| flow.volume == "v"));
        assert_eq!(flows.iter().filter(|flow| flow.report.disk == "a".into()).count(), 1);
    }

    /// The node stops: no error of the queues keeps units from what is to become of them.
    #[tokio::test]
    async fn queues_are_made_without_a_shard() {
        let gates = gates();
        crate::backend::ShardBackend::stop(&*gates.shards).await.expect("stopped");
        let config = config(PolicyKind::Aggregated);
        gates.apply(&config);
        assert!(gates.disk(&config.luns[0]).is_some());
    }
}
