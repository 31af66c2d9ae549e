//! The queues before volumes: which disks they have, with which rules, and what of a policy that several volumes share is whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control_api::{Config, LunConfig, Policy, PolicyKind, ShareConfig};
use parking_lot::Mutex;
use qos_exchange::{Demand, Exchange};
use qos_gate::{Disk, DiskName, Gate, Rule, Rules, SharedDemand, Terms, keep_time};
use qos_policy::{Effective, Policies, QosSettings};
use qos_scheduler::divide;
use shard_runtime::Clock;
use smb_server::Wanted;
use tcp_service::Spawner;
use uuid::Uuid;

use super::shards::SystemShards;
use crate::backend::{FlowOn, QueueOf};

/// How often what several volumes share is divided anew.
const DIVIDE_EVERY: Duration = Duration::from_millis(100);
/// Who does not wait is given so much more than it asks for, in percent, so that it can ask for more.
const ROOM_PERCENT: u64 = 125;
/// What a volume's flows get is told smoothed: what one division finds counts one in so many, which makes it the rate of the last two seconds or so.
const SMOOTH: u64 = 16;

/// The queues of all volumes with LUNs and shares.
pub(super) struct Gates {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    shared: Arc<Mutex<Shared>>,
    /// What volumes of other nodes ask for.
    exchange: Arc<Exchange>,
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
    /// What they get per second.
    got: BTreeMap<VolumeKey, u64>,
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
    pub(super) fn new(shards: Arc<SystemShards>, clock: Arc<dyn Clock>, exchange: Arc<Exchange>) -> Self {
        Self { shards, clock, shared: Arc::default(), exchange, generation: AtomicU64::new(0) }
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
        let (shared, clock, exchange) =
            (Arc::downgrade(&self.shared), self.clock.clone(), self.exchange.clone());
        let divide = async move {
            loop {
                shard_runtime::sleep(DIVIDE_EVERY).await;
                let Some(shared) = shared.upgrade() else { return };
                if !divide_now(&shared, &exchange, clock.now().0) {
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
        // What was assigned counts before what a client says, and for all of the file: flows that it names would each have all of it.
        let Some(Wanted { flow, asked }) = wanted.filter(|_| !gate.has_place(path)) else {
            return Some(gate.disk(DiskName::File(path.to_owned())));
        };
        let disk = gate.disk(DiskName::Flow(*flow, path.to_owned()));
        disk.ask(*asked);
        Some(disk)
    }

    /// All queues, with the volumes of theirs.
    fn all(&self) -> Vec<(Option<Uuid>, String, Arc<Gate>)> {
        let shared = self.shared.lock();
        let of = |(key, queue): (&VolumeKey, &Queue)| (key.guid(), queue.name.clone(), queue.gate.clone());
        shared.by_volume.iter().map(of).collect()
    }

    /// What the volumes can do.
    pub(super) fn queues(&self) -> Vec<QueueOf> {
        let of = |(guid, volume, gate): (Option<Uuid>, String, Arc<Gate>)| QueueOf {
            volume,
            guid,
            report: gate.volume(),
        };
        self.all().into_iter().map(of).collect()
    }

    /// What flows do, with the volume of each.
    pub(super) fn flows(&self) -> Vec<FlowOn> {
        let of = |(guid, volume, gate): (Option<Uuid>, String, Arc<Gate>)| {
            let on = move |report| FlowOn { volume: volume.clone(), guid, report };
            gate.flows().into_iter().map(on).collect::<Vec<_>>()
        };
        self.all().into_iter().flat_map(of).collect()
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
    #[cfg(test)]
    tests::RULES_MADE.with(|made| made.set(made.get() + 1));
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
    // One table for all volumes: there may be ten thousand policies, and very many volumes.
    let by_guid = policies.all().map(|policy| (policy.guid, rule_of(Effective::Policy(policy))));
    let by_guid: Arc<BTreeMap<Uuid, Rule>> = Arc::new(by_guid.collect());
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
        let mut rules_of = Rules::default();
        (rules_of.places, rules_of.policies) = (places, by_guid.clone());
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
            Spanning { terms, volumes, parts, asked: BTreeMap::new(), at: now, got: BTreeMap::new() }
        });
        spanning.insert(policy, divided);
    }
    let mut parts_of: BTreeMap<&VolumeKey, BTreeMap<Uuid, Terms>> = BTreeMap::new();
    for (policy, Spanning { volumes, parts, .. }) in &spanning {
        for (volume, part) in volumes.iter().zip(parts) {
            parts_of.entry(volume).or_default().insert(*policy, *part);
        }
    }
    for (volume, parts) in parts_of {
        if let Some(of) = rules.get_mut(volume) {
            of.rules.divide(parts);
        }
    }
    (rules, spanning)
}

/// Divides what several volumes share by what their flows ask for, here and at other nodes: a volume that this node does not serve has no flows
/// here. Other nodes are told of those here, and divide the same. False, once there is nothing to divide.
fn divide_now(shared: &Mutex<Shared>, exchange: &Exchange, now: u64) -> bool {
    let mut shared = shared.lock();
    let mut demands = Vec::new();
    let Shared { by_volume, spanning, dividing, .. } = &mut *shared;
    // Each queue is asked once, however many policies it has.
    let mut asked: BTreeMap<&VolumeKey, BTreeMap<Uuid, SharedDemand>> = BTreeMap::new();
    for volume in spanning.values().flat_map(|spanning| &spanning.volumes) {
        if let Some((volume, queue)) = by_volume.get_key_value(volume) {
            asked.entry(volume).or_insert_with(|| queue.gate.demands());
        }
    }
    for (policy, spanning) in &mut *spanning {
        let (mut units, mut bytes) = (Vec::new(), Vec::new());
        let nanos = now.saturating_sub(spanning.at).max(1);
        for volume in &spanning.volumes {
            let demand = asked.get(volume).and_then(|asked| asked.get(policy)).copied().unwrap_or_default();
            let before = spanning.asked.insert(volume.clone(), demand).unwrap_or(demand);
            let mut asks = Demand {
                policy: *policy,
                volume: volume.guid().unwrap_or_default(),
                units: wanted(demand.asked_units, before.asked_units, demand.waiting, nanos),
                bytes: wanted(demand.bytes, before.bytes, demand.waiting, nanos),
                got: 0,
            };
            let got = spanning.got.entry(volume.clone()).or_default();
            let rate = per_second(demand.got_units.saturating_sub(before.got_units), nanos);
            *got = (*got * (SMOOTH - 1) + rate.min(u64::MAX / SMOOTH)) / SMOOTH;
            asks.got = *got;
            if volume.guid().is_some() {
                if asks.units | asks.bytes | asks.got > 0 {
                    demands.push(asks);
                }
                let (more_units, more_bytes) = exchange.wanted_elsewhere(asks.policy, asks.volume);
                (asks.units, asks.bytes) = (asks.units.max(more_units), asks.bytes.max(more_bytes));
            }
            units.push(asks.units);
            bytes.push(asks.bytes);
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
    exchange.say(&demands);
    *dividing = !spanning.is_empty();
    *dividing
}

fn per_second(amount: u64, nanos: u64) -> u64 {
    u64::try_from(u128::from(amount) * 1_000_000_000 / u128::from(nanos)).unwrap_or(u64::MAX)
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
mod tests;
