//! What pools do in the background: how much each kind of work has moved lately. It shares the disks with clients, and is no flow of theirs.

use std::collections::BTreeMap;

use control_api::QosBackground;
use shard_runtime::Monotonic;
use uuid::Uuid;

use super::Node;

/// How long it is from one look that is kept to the next: rates are over the time since the last but one, as those of flows are.
const LOOK_EVERY_NS: u64 = 5_000_000_000;

/// Bytes since the pool was opened: restored, rebalanced, scrubbed, destaged.
type Totals = [u64; 4];

#[derive(Clone, Debug, Default)]
struct Look {
    at: Monotonic,
    pools: BTreeMap<Uuid, Totals>,
}

/// The last two looks.
#[derive(Debug, Default)]
pub(super) struct Watch {
    older: Look,
    newer: Look,
}

impl Watch {
    fn look(&mut self, now: Monotonic, pools: impl FnOnce() -> BTreeMap<Uuid, Totals>) {
        if self.newer.at != Monotonic::default() && now.0.saturating_sub(self.newer.at.0) < LOOK_EVERY_NS {
            return;
        }
        self.older = std::mem::replace(&mut self.newer, Look { at: now, pools: pools() });
    }

    /// Bytes per second of each kind. What was not there at the older look has no rate yet; a pool that was opened again counts anew.
    fn rates(&self, pool: Uuid, totals: Totals, now: Monotonic) -> Totals {
        let known =
            [&self.older, &self.newer].into_iter().find_map(|look| Some((look.at, look.pools.get(&pool)?)));
        let Some((at, before)) = known else { return Totals::default() };
        let nanos = u128::from(now.0.saturating_sub(at.0));
        let mut rates = totals;
        for (rate, before) in rates.iter_mut().zip(before) {
            let grown = u128::from(rate.saturating_sub(*before)) * 1_000_000_000;
            *rate = u64::try_from(grown.checked_div(nanos).unwrap_or(0)).unwrap_or(u64::MAX);
        }
        rates
    }
}

impl Node {
    fn background_totals(&self) -> BTreeMap<Uuid, Totals> {
        let mut totals: BTreeMap<Uuid, Totals> = BTreeMap::new();
        for (guid, slot) in self.pools.lock().iter() {
            let Some(info) = slot.handle.as_ref().map(|handle| handle.info()) else { continue };
            let restored = info.copied_bytes.saturating_sub(info.balanced_bytes);
            totals.insert(*guid, [restored, info.balanced_bytes, info.scrubbed_bytes, 0]);
        }
        for slot in self.volumes.lock().values() {
            let log = slot.handle.as_ref().and_then(|handle| handle.log());
            if let (Some(log), Some([.., destaged])) = (log, totals.get_mut(&slot.pool)) {
                *destaged = destaged.saturating_add(log.destaged_bytes);
            }
        }
        totals
    }

    /// Takes note of what pools have done, when it is time to. Waits for nothing.
    pub(super) fn watch_background(&self) {
        let now = self.clock.now();
        self.background.lock().look(now, || self.background_totals());
    }

    /// What the pools of the volumes that are open here do now.
    pub(super) fn background_by_volume(&self) -> BTreeMap<String, QosBackground> {
        let totals = self.background_totals();
        let now = self.clock.now();
        let upkeep = self.upkeep();
        let limit = |limit: u64| (limit > 0).then_some(limit);
        let of = |(guid, totals): (Uuid, Totals)| {
            let [restoring, rebalancing, scrubbing, destaging] =
                self.background.lock().rates(guid, totals, now);
            let copy_limit = limit(upkeep.repair_bytes_per_second);
            let pools = self.pools.lock();
            let slot = pools.get(&guid);
            let floor =
                slot.and_then(|slot| Some(slot.handle.as_ref()?.info().copy_floor)).unwrap_or_default();
            let background = QosBackground {
                pool: slot.map(|slot| slot.name.clone()).unwrap_or_default(),
                restoring,
                rebalancing,
                scrubbing,
                destaging,
                floor: copy_limit.map_or(floor, |limit| limit.min(floor)),
                copy_limit,
                scrub_limit: limit(upkeep.scrub_bytes_per_second),
            };
            (guid, background)
        };
        let pools: BTreeMap<Uuid, QosBackground> = totals.into_iter().map(of).collect();
        let volumes = self.volumes.lock();
        let of = |(name, slot): (&String, &super::slots::VolumeSlot)| {
            Some((name.clone(), pools.get(&slot.pool)?.clone()))
        };
        volumes.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_the_last_seconds_and_begin_anew_with_the_pool() {
        let (pool, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let second = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let mut watch = Watch::default();
        let at = |seconds: u64| BTreeMap::from([(pool, [1000 * seconds, 0, 7, 5 * seconds])]);
        for seconds in 1..=20 {
            watch.look(second(seconds), || at(seconds));
        }
        // Looks were kept at 1, 6, 11 and 16 s.
        assert_eq!(watch.rates(pool, [31_000, 0, 7, 105], second(21)), [2000, 0, 0, 5]);
        assert_eq!(watch.rates(other, [31_000, 0, 7, 105], second(21)), [0; 4], "nobody knows yet");
        assert_eq!(watch.rates(pool, [10, 0, 0, 0], second(21)), [0; 4], "it was opened again");
    }
}
