//! What this node sees of the disks of pools, of its own and of other nodes': the cluster gives it no pool that it could not open.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_node::Sight;
use cluster_store::keys::PoolId;
use cluster_store::values::{PoolDisks, PoolVoter};
use parking_lot::Mutex;
use shard_runtime::Monotonic;
use uuid::Uuid;

use super::Node;
use super::disk_table::Known;
use super::disks::vanished;
use super::pools::join_all;
use crate::backend::DiskContent;

/// A pool that could not be opened here is left to others for so long, if they can open it, and twice as long each time it cannot again.
const LEFT_FOR: Duration = Duration::from_secs(60);
/// But never for longer than this.
const LEFT_MOST: Duration = Duration::from_secs(600);

/// A pool that could not be opened here.
struct Failed {
    /// The disks of it that were seen then: with others it may go better.
    seen: BTreeSet<Uuid>,
    times: u32,
    since: Monotonic,
    /// It is left to others for so long.
    wait: Duration,
}

/// What is known from one look to the next.
#[derive(Default)]
pub(super) struct Sights {
    said: Mutex<Option<Sight>>,
    failed: Mutex<BTreeMap<Uuid, Failed>>,
    /// The disks that pools need, as they were when blank disks were looked at for them.
    looked_for: Mutex<Vec<(PoolId, PoolDisks)>>,
    /// Held by whoever tells: what was seen later is told later.
    telling: tokio::sync::Mutex<()>,
}

/// A disk of which it is not known what is on it, or that had nothing on it when it was looked at last.
fn is_blank(known: &Known) -> bool {
    known.present && known.open.is_none() && matches!(known.content, None | Some(DiskContent::Empty))
}

/// A disk that had something on it when it was looked at last that is none of ours.
fn is_foreign(known: &Known) -> bool {
    known.present && known.open.is_none() && matches!(known.content, Some(DiskContent::Foreign(_)))
}

/// A disk that could not be looked at the last time, whatever had been on it before: that may be over, and nobody says so.
fn is_in_doubt(known: &Known) -> bool {
    known.present && known.open.is_none() && !known.busy && known.trouble.is_some()
}

/// The disk of a pool that this one is, if it can be used.
fn member(known: &Known) -> Option<(Uuid, Uuid)> {
    let usable = known.present && !vanished(known) && (known.trouble.is_none() || known.busy);
    match &known.content {
        Some(DiskContent::Member { pool, disk, .. }) if usable => Some((*pool, *disk)),
        _ => None,
    }
}

impl Node {
    /// What this node sees.
    pub(crate) fn sight(&self) -> Sight {
        let known = self.disks.all();
        let mut disks: BTreeSet<Uuid> = known.iter().filter_map(member).map(|(_, disk)| disk).collect();
        // Another process of this machine has a disk open, as in a cluster on one machine: it is there all the same, by its name.
        let needed = self.cluster.get().map(|cluster| cluster.pool_disks()).unwrap_or_default();
        let busy: BTreeSet<&str> = known
            .iter()
            .filter(|known| is_blank(known) && known.busy && !vanished(known))
            .map(|known| known.found.id.as_str())
            .collect();
        let voters = needed.iter().flat_map(|(_, of)| &of.voters);
        disks.extend(voters.filter(|voter| busy.contains(voter.name.as_str())).map(|voter| voter.disk));
        let now = self.clock.now();
        let failed = self.sights.failed.lock();
        let failed = failed
            .iter()
            .filter(|(_, failed)| now.since(failed.since) < failed.wait)
            .map(|(pool, _)| PoolId(*pool));
        Sight { disks, failed: failed.collect() }
    }

    fn seen_of(&self, pool: Uuid) -> BTreeSet<Uuid> {
        let of = |known: &Known| member(known).filter(|(of, _)| *of == pool).map(|(_, disk)| disk);
        self.disks.all().iter().filter_map(of).collect()
    }

    /// Tells the cluster what this node sees, where that has changed.
    pub(super) async fn tell_sight(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        let _telling = self.sights.telling.lock().await;
        self.forget_failures();
        let sight = self.sight();
        if self.sights.said.lock().as_ref() == Some(&sight) {
            return;
        }
        if cluster.set_sight(sight.clone()).await {
            *self.sights.said.lock() = Some(sight);
        }
    }

    /// Looks at disks again, and tells what is seen: at those that could not be looked at the last time, and at those on which no pool was found,
    /// as far as pools of the cluster may have been made on them since.
    pub(super) async fn look_for_needed(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        let needed = cluster.pool_disks();
        let is_news = {
            let mut looked_for = self.sights.looked_for.lock();
            let is_news = *looked_for != needed;
            looked_for.clone_from(&needed);
            is_news
        };
        let names: BTreeSet<&str> =
            needed.iter().flat_map(|(_, of)| &of.voters).map(|voter| voter.name.as_str()).collect();
        let may_have_one = |known: &Known| {
            let is_needed = is_news || names.contains(known.found.id.as_str());
            (is_needed && is_blank(known)) || (is_news && is_foreign(known))
        };
        let is_due = |known: &Known| is_in_doubt(known) || may_have_one(known);
        let due: Vec<String> =
            self.disks.all().into_iter().filter(is_due).map(|known| known.found.id).collect();
        join_all(due.iter().map(|id| self.probe(id)).collect()).await;
        self.tell_sight().await;
    }

    /// A pool could not be opened here, or could.
    pub(super) async fn note_opening(&self, pool: Uuid, opened: bool) {
        if opened {
            if self.sights.failed.lock().remove(&pool).is_none() {
                return;
            }
        } else {
            let (seen, now) = (self.seen_of(pool), self.clock.now());
            let mut failed = self.sights.failed.lock();
            let times =
                failed.get(&pool).filter(|before| before.seen == seen).map_or(0, |before| before.times);
            let wait = (LEFT_FOR * (1 << times.min(8))).min(LEFT_MOST);
            failed.insert(pool, Failed { seen, times: times + 1, since: now, wait });
        }
        self.tell_sight().await;
    }

    /// Failures with disks that are not those of now say nothing.
    fn forget_failures(&self) {
        let pools: Vec<Uuid> = self.sights.failed.lock().keys().copied().collect();
        for pool in pools {
            let seen = self.seen_of(pool);
            let mut failed = self.sights.failed.lock();
            if failed.get(&pool).is_some_and(|failed| failed.seen != seen) {
                failed.remove(&pool);
            }
        }
    }

    /// Says which disks the open pools of this node need.
    pub(super) fn say_pool_disks(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        for (pool, handle) in self.open_handles() {
            let info = handle.info();
            let name = |disk: &Uuid| self.claimant(*disk).map(|known| known.found.id).unwrap_or_default();
            let voters = info.voters.iter().map(|disk| PoolVoter { disk: *disk, name: name(disk) });
            let mut voters: Vec<PoolVoter> = voters.collect();
            voters.sort();
            if !voters.is_empty() {
                cluster.say_disks(pool, PoolDisks { voters, needed: info.voters_needed });
            }
        }
    }
}
