//! What is served is made equal to the configuration, as far as volumes are there: for each pool by itself, and for the node.
//!
//! What belongs to a pool waits for its disks, and for no other pool's. It runs in a task of its own, with the configuration and the
//! volumes as they are when its turn comes: whoever asks for it may go away, and of several that wait for the same one is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use control_api::Config;
use uuid::Uuid;

use super::path::PATIENCE;
use super::ties::{OnVolume, all_on_volumes};
use super::{Node, path};
use crate::backend::{HELD_ELSEWHERE, OpenVolume, ServedBy, ServedLun, WantedShares};

/// A part of what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Addresses, targets, who sees what.
    Node,
    /// LUNs and shares of a pool; of none where it is not known in which pool their volumes are.
    Pool(Option<Uuid>),
}

/// What could not be put into effect, by part and subject.
pub(super) type Unserved = BTreeMap<Part, BTreeMap<String, String>>;

/// In which pools volumes are.
pub(super) struct Places {
    by_guid: BTreeMap<Uuid, Uuid>,
    by_name: BTreeMap<String, Uuid>,
}

impl Places {
    pub(super) fn of(&self, item: &(impl OnVolume + ?Sized)) -> Option<Uuid> {
        match item.volume_guid() {
            Some(guid) => self.by_guid.get(&guid).copied(),
            None => self.by_name.get(item.volume()).copied(),
        }
    }
}

impl Node {
    pub(super) fn places(&self) -> Places {
        // What the owners of pools say that this node may never have had.
        let told = self.cluster.get().map(|cluster| cluster.volume_places()).unwrap_or_default();
        let mut places = Places { by_guid: told, by_name: BTreeMap::new() };
        for holder in self.holders() {
            for space in holder.spaces.iter().flatten().filter(|space| space.log_of().is_none()) {
                places.by_guid.extend(space.guid.map(|guid| (guid, holder.guid)));
                places.by_name.entry(space.name.clone()).or_insert(holder.guid);
            }
        }
        for (name, slot) in &*self.volumes.lock() {
            places.by_guid.insert(slot.space, slot.pool);
            places.by_name.insert(name.clone(), slot.pool);
        }
        places
    }

    /// The pool of a volume, as far as it is known.
    pub(super) fn pool_of(&self, item: &(impl OnVolume + ?Sized)) -> Option<Uuid> {
        self.places().of(item)
    }

    /// Makes what is served equal to the configuration. When it ends, nothing of a volume that is not open is held, except of pools
    /// that do not answer; these follow when they do.
    pub(super) async fn reconcile(&self) {
        self.tighten().await;
        let mut pools: BTreeSet<Uuid> = self.paths.lock().keys().copied().collect();
        pools
            .extend(self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect::<Vec<_>>()));
        let mut parts: Vec<Option<Uuid>> = pools.into_iter().map(Some).collect();
        parts.push(None);
        for _ in 0..2 {
            let serving = parts.iter().map(|pool| async move {
                if !pool.is_some_and(|pool| self.is_stuck(pool)) {
                    let served = tokio::time::timeout(PATIENCE, self.serve_pool(*pool));
                    if served.await.is_err() {
                        self.does_not_answer(*pool);
                    }
                }
            });
            futures_util::future::join_all(serving).await;
            // What has moved between pools is let go of at one before it is opened at the other.
            let unserved = self.unserved.lock();
            let held = |part: &Part| {
                unserved.get(part).is_some_and(|trouble| trouble.values().any(|why| why == HELD_ELSEWHERE))
            };
            parts.retain(|pool| held(&Part::Pool(*pool)));
            if parts.is_empty() {
                break;
            }
        }
        self.serve_node().await;
    }

    /// Takes from initiators what they are not to have any more, before anybody waits for a pool.
    async fn tighten(&self) {
        let _serving = self.nowhere_but_node.lock().await;
        self.backends.iscsi.tighten(&self.serving_config());
    }

    fn does_not_answer(&self, pool: Option<Uuid>) {
        let Some(pool) = pool else { return };
        if !self.path(pool).stuck.swap(true, Ordering::AcqRel) {
            let name = self.pool_name(pool).unwrap_or_else(|| pool.to_string());
            tracing::error!(
                pool = name,
                "what is served of a pool does not answer: others do not wait for it"
            );
        }
    }

    /// Makes what is served of a pool equal to the configuration.
    pub(super) async fn serve_pool(&self, pool: Option<Uuid>) {
        let Some(node) = self.arc().filter(|node| !node.serves_nothing.load(Ordering::Acquire)) else {
            return;
        };
        let serving = tokio::spawn(async move { node.serve(pool).await });
        // An end that is not one of its own is a defect that the log has.
        let _ = serving.await;
    }

    async fn serve(&self, pool: Option<Uuid>) {
        let path = pool.map_or_else(|| self.nowhere.clone(), |pool| self.path(pool));
        if path.queued.swap(true, Ordering::AcqRel) && path.stuck.load(Ordering::Acquire) {
            // It does not answer, and somebody waits already for when it does.
            return;
        }
        let _serving = path.serving.lock().await;
        path.queued.store(false, Ordering::Release);
        self.complete_ties();
        self.settle_permissions();
        let current = self.serving_config();
        self.apply_caches(&current.config);
        let admit = !path.is_before_publishing();
        let (luns, shares, mut strangers) = self.wanted(pool, &current.config, &path, admit);
        let mut trouble = BTreeMap::new();
        // Initiators are let in when all of it is back.
        if admit {
            self.say_volumes(pool);
            match self.backends.iscsi.apply_pool(&current, pool, luns).await {
                Ok(found) => trouble.extend(found),
                Err(problem) => drop(trouble.insert("iSCSI".into(), problem.detail)),
            }
        }
        self.backends.smb.configure(&current, &self.name());
        match self.backends.smb.apply_pool(pool, shares).await {
            Ok(found) => trouble.extend(found),
            Err(problem) => drop(trouble.insert("SMB".into(), problem.detail)),
        }
        trouble.append(&mut strangers);
        if self.is_driven() {
            self.leave_out_elsewhere(&current.config, &mut trouble);
        }
        path.stuck.store(false, Ordering::Release);
        // What is not served is known when clients are let in.
        if admit {
            self.note_unserved(Part::Pool(pool), trouble);
        }
    }

    /// What another node serves is not missing here.
    fn leave_out_elsewhere(&self, config: &Config, trouble: &mut BTreeMap<String, String>) {
        for item in
            all_on_volumes(config).filter(|item| trouble.contains_key(&item.subject())).collect::<Vec<_>>()
        {
            if self.may_be_elsewhere(item) {
                trouble.remove(&item.subject());
            }
        }
    }

    /// What is to be served of a pool, and why some of it cannot be.
    fn wanted(
        &self,
        pool: Option<Uuid>,
        config: &Config,
        path: &path::Path,
        admit: bool,
    ) -> (Vec<ServedLun>, WantedShares, BTreeMap<String, String>) {
        let places = self.places();
        let (comes, leaves) = (path.comes(), path.leaves());
        let luns: Vec<_> = config.luns.iter().filter(|lun| places.of(*lun) == pool).collect();
        let shares: Vec<_> =
            config.shares.iter().filter(|share| places.of(*share) == pool).cloned().collect();
        let mut undecided: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for share in config.shares.iter().filter(|share| share.volume_guid.is_none()) {
            if self.refuse_stranger(share).is_err() {
                undecided.entry(&share.volume).or_default().push(share.name.clone());
            }
        }
        let volumes: Vec<OpenVolume> = {
            let volumes = self.volumes.lock();
            let of_pool = volumes.iter().filter(|(_, slot)| Some(slot.pool) == pool);
            let open = of_pool.filter_map(|(name, slot)| Some((name.clone(), slot.handle.clone()?)));
            let undecided = |name: &str| undecided.get(name).cloned().unwrap_or_default();
            open.map(|(name, volume)| OpenVolume { undecided: undecided(&name), name, volume }).collect()
        };
        let served = luns.iter().map(|lun| {
            let volume = self.volume_of(*lun).ok();
            let groups = self.groups_of(config, lun, pool);
            let served_by = if volume.is_some() { ServedBy::Here } else { self.served_by(pool, leaves) };
            let comes = volume.is_none() && (comes || served_by == ServedBy::Here && self.is_awaited(pool));
            ServedLun { name: lun.name.clone(), comes, leaves, served_by, groups, volume }
        });
        let served = served.collect();
        let mut trouble = BTreeMap::new();
        for lun in luns {
            trouble.extend(self.refuse_stranger(lun).err().map(|problem| (lun.subject(), problem.detail)));
        }
        // SMB finds volumes by their names.
        let (mut own, strange): (Vec<_>, Vec<_>) =
            shares.into_iter().partition(|share| self.refuse_stranger(share).is_ok());
        for share in strange {
            trouble
                .extend(self.refuse_stranger(&share).err().map(|problem| (share.subject(), problem.detail)));
        }
        own.sort_by(|a, b| a.name.cmp(&b.name));
        (served, WantedShares { shares: own, volumes, admit }, trouble)
    }

    /// Makes addresses, targets and who sees what equal to the configuration. Waits for no pool.
    pub(super) async fn serve_node(&self) {
        let _serving = self.nowhere_but_node.lock().await;
        self.settle_roles();
        let current = self.serving_config();
        self.apply_caches(&current.config);
        let mut trouble: BTreeMap<String, String> = BTreeMap::new();
        self.show_remote_portals();
        match self.backends.iscsi.apply(&current).await {
            Ok(found) => trouble.extend(found),
            Err(problem) => drop(trouble.insert("iSCSI".into(), problem.detail)),
        }
        self.say_portals();
        self.backends.smb.configure(&current, &self.name());
        // Before anybody can ask for one.
        self.expect_shares();
        match self.backends.smb.listen(&current.config).await {
            Ok(found) => trouble.extend(found),
            Err(problem) => drop(trouble.insert("SMB".into(), problem.detail)),
        }
        trouble.extend(self.serve_network());
        self.note_unserved(Part::Node, trouble);
    }

    fn note_unserved(&self, part: Part, trouble: BTreeMap<String, String>) {
        let mut unserved = self.unserved.lock();
        let before = unserved.remove(&part).unwrap_or_default();
        for (subject, why) in &trouble {
            if before.get(subject) != Some(why) {
                tracing::error!(subject, why, "not served");
            }
        }
        if !trouble.is_empty() {
            unserved.insert(part, trouble);
        }
    }

    /// Why something is not served, by its subject ("lun web1").
    pub(super) fn why_unserved(&self, subject: &str) -> Option<String> {
        self.unserved.lock().values().find_map(|trouble| trouble.get(subject).cloned())
    }

    /// All that is not served, with why.
    pub(super) fn all_unserved(&self) -> BTreeMap<String, String> {
        let unserved = self.unserved.lock();
        unserved.values().flatten().map(|(subject, why)| (subject.clone(), why.clone())).collect()
    }

    /// Serves again what something is wrong with: an address may be free by now.
    pub(super) async fn serve_again(&self) {
        let parts: BTreeSet<Part> = self.unserved.lock().keys().copied().collect();
        for part in parts {
            match part {
                Part::Node => self.serve_node().await,
                Part::Pool(pool) if !pool.is_some_and(|pool| self.is_stuck(pool)) => {
                    let served = tokio::time::timeout(PATIENCE, self.serve_pool(pool));
                    if served.await.is_err() {
                        self.does_not_answer(pool);
                    }
                }
                Part::Pool(_) => {}
            }
        }
    }
}
