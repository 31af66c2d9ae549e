//! Making the units of one pool what the configuration says.

use std::collections::BTreeMap;
use std::sync::Arc;

use control_api::{LunConfig, Problem};
use file_store::OpenFile;
use scsi_disk::{PortGroup, UnitState};
use uuid::Uuid;

use super::file::{Kept, Refused};
use super::{Entry, Identity, SystemUnits, same_volume, state};
use crate::backend::{Current, HELD_ELSEWHERE, ServedBy, ServedLun, VolumeHandle};

/// A LUN that is to be served from the pool, or shown as not ready.
struct Wanted<'a> {
    lun: &'a LunConfig,
    identity: Identity,
    volume: Option<Arc<dyn VolumeHandle>>,
    comes: bool,
    leaves: bool,
    served_by: ServedBy,
    groups: Vec<PortGroup>,
}

/// What initiators find of a unit whose file is not open here.
fn absent_state(comes: bool, served_by: ServedBy, why: String) -> UnitState {
    match served_by {
        ServedBy::Here if comes => UnitState::Busy,
        ServedBy::Here => UnitState::Offline(why),
        ServedBy::Node(node) => UnitState::Elsewhere(Some(node)),
        ServedBy::Nobody => UnitState::Elsewhere(None),
    }
}

fn identity(lun: &LunConfig) -> Option<Identity> {
    Some(Identity {
        guid: lun.guid?.into_bytes(),
        space: lun.volume_guid,
        path: lun.path.clone(),
        format: lun.format,
        parents_anywhere: lun.parents_anywhere,
        block_size: lun.block_size,
        write_cache_in: lun.write_cache_in.clone(),
    })
}

impl SystemUnits {
    /// Takes a configuration for the newest one if it is, and puts its rules of queues in effect.
    pub(super) fn notice(&self, config: &Current) {
        let mut state = self.state.lock();
        if state.config.as_ref().is_some_and(|known| known.revision > config.revision) {
            return;
        }
        state.config = Some(config.clone());
        // Under the same lock: the rules of an older configuration must not come after these.
        self.gates.apply(&config.config);
    }

    pub(super) async fn apply_to(
        &self,
        config: &Current,
        pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Result<Vec<(String, String)>, Problem> {
        let turn = self.turns.lock().entry(pool).or_default().clone();
        let _changing = turn.lock().await;
        // Before any unit is seen with another limit than its own.
        self.notice(config);
        let mut offered: BTreeMap<String, ServedLun> =
            luns.into_iter().map(|lun| (lun.name.clone(), lun)).collect();
        let mut trouble = Vec::new();
        let mut wanted = BTreeMap::new();
        let mut elsewhere = BTreeMap::new();
        for lun in &config.config.luns {
            let Some(identity) = identity(lun) else {
                if offered.contains_key(&lun.name) {
                    trouble.push((format!("lun {}", lun.name), "it has no identity".to_owned()));
                }
                continue;
            };
            match offered.remove(&lun.name) {
                Some(ServedLun { name, volume, comes, leaves, served_by, groups }) => {
                    wanted.insert(name, Wanted { lun, identity, volume, comes, leaves, served_by, groups });
                }
                None => drop(elsewhere.insert(lun.name.clone(), identity)),
            }
        }
        let kept = self.let_go_of_others(pool, &wanted, &elsewhere).await?;
        for (name, wanted) in wanted {
            if self.state.lock().closed {
                break;
            }
            let file = kept.get(&name).map(|kept| kept.file.clone());
            self.put(pool, name, wanted, file, &mut trouble).await?;
        }
        self.configure();
        self.let_go(kept.into_values()).await?;
        Ok(trouble)
    }

    /// Lets go of units whose pool goes to another node. Others stand for them at once: initiators are told to come again, and see no LUN go.
    async fn give_away(
        &self,
        pool: Option<Uuid>,
        wanted: &BTreeMap<String, Wanted<'_>>,
    ) -> Result<(), Problem> {
        let mut given = Vec::new();
        for (name, wanted) in wanted.iter().filter(|(_, wanted)| wanted.leaves) {
            let serves = |entry: &Entry| {
                entry.pool == pool
                    && entry.identity == wanted.identity
                    && (entry.away || entry.volume.is_some())
            };
            if !self.state.lock().units.get(name).is_some_and(serves) {
                continue;
            }
            let state = absent_state(wanted.comes, wanted.served_by, "its pool is let go of".to_owned());
            let (identity, groups) = (wanted.identity.clone(), wanted.groups.clone());
            let stands = self.absent(wanted.lun, identity, pool, groups, (state, None)).await?;
            if let Some(entry) = self.state.lock().units.get_mut(name) {
                entry.unit.moves();
                given.push(std::mem::replace(entry, stands));
            }
        }
        if given.is_empty() {
            return Ok(());
        }
        self.configure();
        self.release(given).await
    }

    /// Lets go of what this pool's units are not, or are not any more. Returns files of those that are tried again, by their names.
    async fn let_go_of_others(
        &self,
        pool: Option<Uuid>,
        wanted: &BTreeMap<String, Wanted<'_>>,
        elsewhere: &BTreeMap<String, Identity>,
    ) -> Result<BTreeMap<String, Kept>, Problem> {
        self.give_away(pool, wanted).await?;
        // Those that go or are made anew: first out of sight, then let go of.
        let (mut kept, mut others) = (BTreeMap::new(), Vec::new());
        let gone: Vec<Entry> = {
            let mut state = self.state.lock();
            // What another pool does not hold open may come to this one.
            for (name, entry) in &mut state.units {
                if wanted.contains_key(name) && entry.volume.is_none() && entry.kept.is_none() {
                    entry.pool = pool;
                }
            }
            // One that has had its file keeps what it knows. One that never had stays, too, when another pool is to serve it, or none:
            // initiators are not to miss it until that has been seen to. What is kept of a file goes where it is tried again.
            let stays = |name: &String, entry: &Entry| {
                let had = entry.away || entry.volume.is_some();
                match wanted.get(name) {
                    // One that has no file yet stays until it has one.
                    Some(Wanted { identity, .. }) => {
                        entry.identity == *identity && (had || entry.kept.is_none())
                    }
                    None => elsewhere.get(name) == Some(&entry.identity) && (had || entry.kept.is_none()),
                }
            };
            let of_pool = state.units.iter().filter(|(_, entry)| entry.pool == pool);
            let names: Vec<String> =
                of_pool.filter(|(name, entry)| !stays(name, entry)).map(|(name, _)| name.clone()).collect();
            let waiting = |entry: &Entry| entry.pool == pool && entry.kept.is_some();
            // Those that are tried again keep their files meanwhile: those that are made anew, and those that wait for their volume.
            for (name, entry) in state.units.iter_mut().filter(|(_, entry)| waiting(entry)) {
                let again = wanted.get(name).is_some_and(|wanted| {
                    let same = |identity: &Identity| (identity.space, identity.path.clone(), identity.format);
                    let volume = entry.kept.as_ref().map(|kept| &kept.volume);
                    same(&wanted.identity) == same(&entry.identity)
                        && same_volume(volume, wanted.volume.as_ref())
                });
                if again && let Some(file) = entry.kept.take() {
                    kept.insert(name.clone(), file);
                } else if entry.away {
                    others.extend(entry.kept.take());
                }
            }
            names.iter().filter_map(|name| state.units.remove(name)).collect()
        };
        self.let_go(others).await?;
        if !gone.is_empty() {
            self.configure();
            self.release(gone).await?;
        }
        let left = {
            let state = self.state.lock();
            let left = state.units.iter().filter(|(name, entry)| {
                let volume = wanted.get(*name).and_then(|wanted| wanted.volume.as_ref());
                entry.pool == pool && entry.volume.is_some() && !same_volume(entry.volume.as_ref(), volume)
            });
            left.map(|(name, _)| name.clone()).collect()
        };
        self.detach(left).await?;
        Ok(kept)
    }

    /// Makes one unit what it is to be.
    async fn put(
        &self,
        pool: Option<Uuid>,
        name: String,
        wanted: Wanted<'_>,
        kept: Option<Arc<dyn OpenFile>>,
        trouble: &mut Vec<(String, String)>,
    ) -> Result<(), Problem> {
        let Wanted { lun, identity, volume, comes, served_by, groups, .. } = wanted;
        let subject = format!("lun {name}");
        let closed = || format!("its volume {} is not open", lun.volume);
        if volume.is_none() {
            trouble.push((subject.clone(), closed()));
        }
        let known = {
            let state = self.state.lock();
            state.units.get(&name).map(|entry| {
                let serves = (entry.unit.clone(), entry.disk.clone());
                (serves, entry.away, entry.volume.is_some(), entry.pool == pool)
            })
        };
        let absent = |why| absent_state(comes, served_by, why);
        let opens = volume.is_some();
        if let Some(((unit, disk), away, open, of_pool)) =
            known.filter(|(_, away, open, of_pool)| *away || *open || !of_pool || !opens)
        {
            if !of_pool {
                trouble.push((subject, HELD_ELSEWHERE.to_owned()));
                return Ok(());
            }
            unit.set_state(if away || open { state(lun) } else { absent(closed()) });
            unit.queue_as(self.gates.disk(lun));
            // Under its sessions: made anew, it would forget who has fenced whom off.
            unit.set_port_groups(groups);
            self.set_write_cache(lun, unit.clone()).await?;
            if let Some(volume) = volume.filter(|_| away) {
                match self.attach(lun, (unit.clone(), disk), &volume, kept).await {
                    Ok((watch, file)) => {
                        if let Some(entry) = self.state.lock().units.get_mut(&name) {
                            (entry.volume, entry.watch, entry.away) = (Some(volume), Some(watch), false);
                            entry.file = Some(file);
                        }
                        // What was said of its write cache meanwhile can be saved now.
                        self.set_write_cache(lun, unit).await?;
                        tracing::info!(lun = name, "a LUN has its volume again");
                    }
                    Err(Refused { problem, kept }) => {
                        trouble.push((subject, problem.detail));
                        if let Some(entry) = self.state.lock().units.get_mut(&name) {
                            entry.kept = kept;
                        }
                    }
                }
            }
            return Ok(());
        }
        let opened = match volume {
            Some(volume) => {
                let opened = self.open(lun, identity.clone(), pool, groups.clone(), volume, kept).await;
                opened.map_err(|refused| (refused.problem.detail, refused.kept))
            }
            None => Err((closed(), None)),
        };
        let entry = match opened {
            Ok(entry) => {
                entry.unit.set_state(state(lun));
                entry.unit.queue_as(self.gates.disk(lun));
                Ok(entry)
            }
            Err((why, kept)) => {
                if !trouble.iter().any(|(known, _)| *known == subject) {
                    trouble.push((subject.clone(), why.clone()));
                }
                self.absent(lun, identity, pool, groups, (absent(why), kept)).await
            }
        };
        match entry {
            Ok(entry) => {
                let unused = {
                    let mut state = self.state.lock();
                    if state.closed { Some(entry) } else { state.units.insert(name, entry) }
                };
                if let Some(before) = &unused {
                    // Initiators are at the new one before the one that stood for it goes.
                    before.unit.moves();
                    self.configure();
                }
                // Closed meanwhile: nobody is to hold its file.
                self.release(unused.into_iter().collect()).await?;
            }
            Err(problem) => trouble.push((subject, problem.detail)),
        }
        Ok(())
    }
}
