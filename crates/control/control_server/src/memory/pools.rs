//! Pools as lists of members.

mod state;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use control_api::{
    Balance, CheckFinding, Code, DiskState, PoolMember, PoolState as ApiState, Problem, RedundancyState,
    Scrub, SpaceState,
};
use parking_lot::Mutex;
use uuid::Uuid;

use self::volume::{Volume, damage};
use super::store::MemoryStore;
use super::{Machine, MemoryDisk, now};
use crate::backend::{
    BalancePlan, DiskContent, NewLog, NewPool, NewSpace, OpenDisk, OpenTold, Opened, PoolBackend, PoolDisk,
    PoolHandle, PoolInfo, Repair, SpaceInfo, Upkeep, VolumeHandle, Whose, Work,
};
pub(super) use state::PoolState;

#[derive(Clone)]
pub(crate) struct Pools {
    pub(crate) machine: Arc<Machine>,
    /// Which node this is, by its data directory.
    pub(crate) node: PathBuf,
}

fn memory(disk: &PoolDisk) -> Option<Arc<MemoryDisk>> {
    disk.disk.clone().as_any().downcast::<MemoryDisk>().ok()
}

impl Pools {
    /// This node has the pool from now on. Kept of those with disks that nobody can be kept from.
    fn has(&self, pool: Uuid, disks: &[PoolDisk]) {
        let unfenced = self.machine.unfenced.lock();
        if disks.iter().any(|disk| unfenced.contains(&disk.id)) {
            self.machine.had.lock().insert(pool, (self.node.clone(), false));
        }
    }

    fn claim(&self, state: &mut PoolState, disk: &PoolDisk) -> Uuid {
        let guid = self.machine.guid();
        state.used.insert(guid, disk.id.clone());
        if let Some(memory) = memory(disk) {
            *memory.content.lock() =
                DiskContent::Member { pool_name: state.name.clone(), pool: state.guid, disk: guid };
        }
        state.members.push(PoolMember {
            guid,
            disk: None,
            state: if disk.spare { DiskState::Spare } else { DiskState::Online },
            reason: None,
            size_bytes: disk.disk.size(),
            usable_bytes: disk.disk.size(),
            allocated_bytes: 0,
            io_errors: 0,
            checksum_errors: 0,
            healed_blocks: 0,
            slow_seconds: 0,
            full_seconds: 0,
            media: disk.media,
            node: None,
            enclosure: disk.enclosure.clone(),
            slot: disk.slot.clone(),
        });
        guid
    }
}

impl PoolBackend for Pools {
    fn create(&self, new: NewPool, disks: Vec<PoolDisk>) -> Work<'_, Arc<dyn PoolHandle>> {
        let guid = self.machine.guid();
        let mut state = PoolState {
            name: new.name,
            guid,
            members: vec![],
            spaces: BTreeMap::new(),
            identities: BTreeMap::new(),
            damaged: BTreeSet::new(),
            epoch: 1,
            stopped: false,
            stopped_volumes: BTreeSet::new(),
            full: false,
            refusals: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        for disk in &disks {
            self.claim(&mut state, disk);
        }
        let state = Arc::new(Mutex::new(state));
        self.machine.pools.lock().insert(guid, state.clone());
        self.has(guid, &disks);
        let handle: Arc<dyn PoolHandle> = Arc::new(Pool { state, pools: self.clone(), epoch: 1 });
        now(Ok(handle))
    }

    fn owner(&self, guid: Uuid, _disks: Vec<PoolDisk>) -> Work<'_, Whose> {
        let stranger = self.machine.strangers.lock().get(&guid).cloned();
        if let Some((identity, name)) = stranger {
            return now(Ok(Whose::Another { identity, name }));
        }
        now(Ok(match self.machine.had.lock().get(&guid) {
            Some((node, _)) if *node == self.node => Whose::Own,
            Some((_, true)) => Whose::Free,
            Some((node, false)) => {
                let number = node.file_name().and_then(|name| name.to_str()?.parse().ok());
                let number: u128 = number.unwrap_or_default();
                Whose::Another { identity: Uuid::from_u128(number), name: format!("n{number}") }
            }
            None => Whose::Own,
        }))
    }

    fn open(&self, guid: Uuid, epoch: u64, disks: Vec<PoolDisk>, _told: OpenTold) -> Work<'_, Opened> {
        let pools = self.clone();
        Box::pin(async move {
            let machine = &pools.machine;
            let ids: Vec<String> = disks.iter().map(|disk| disk.id.clone()).collect();
            machine.answers(&ids).await;
            if machine.refusing.lock().contains(&pools.node) {
                return Err(Problem::new(Code::Io, "the pool cannot be opened by this node"));
            }
            let state = machine.pools.lock().get(&guid).cloned();
            let state = state.ok_or_else(|| Problem::new(Code::Damaged, "no metadata of this pool"))?;
            // Of disks that say the same of themselves the first is used.
            let mut there: BTreeMap<Uuid, String> = BTreeMap::new();
            for disk in disks.iter().filter_map(memory) {
                if let DiskContent::Member { disk: member, .. } = &*disk.content.lock() {
                    there.entry(*member).or_insert_with(|| disk.id.clone());
                }
            }
            {
                let mut locked = state.lock();
                if there.len() * 2 <= locked.members.len() {
                    let all = locked.members.len();
                    return Err(Problem::new(
                        Code::NotEnoughDisks,
                        format!("{} of {all} disks are there, no majority", there.len()),
                    ));
                }
                if epoch <= locked.epoch {
                    return Ok(Opened::OldEpoch(locked.epoch));
                }
                locked.epoch = epoch;
                locked.stopped = false;
                locked.used.clone_from(&there);
                for member in &mut locked.members {
                    match there.contains_key(&member.guid) {
                        false => member.state = DiskState::Missing,
                        true if member.state == DiskState::Missing => member.state = DiskState::Online,
                        true => {}
                    }
                }
            }
            pools.has(guid, &disks);
            let handle: Arc<dyn PoolHandle> = Arc::new(Pool { state, pools, epoch });
            Ok(Opened::Open(handle))
        })
    }
}

struct Pool {
    state: Arc<Mutex<PoolState>>,
    pools: Pools,
    /// That of its owner.
    epoch: u64,
}

impl Pool {
    fn member<'a, T: Send + 'a>(&self, guid: Uuid, change: impl FnOnce(&mut PoolMember) -> T) -> Work<'a, T> {
        let mut state = self.state.lock();
        match state.members.iter_mut().find(|member| member.guid == guid) {
            Some(member) => now(Ok(change(member))),
            None => now(Err(Problem::new(Code::NotFound, "no such member"))),
        }
    }
}

impl PoolHandle for Pool {
    fn info(&self) -> PoolInfo {
        let state = self.state.lock();
        let missing = state.members.iter().filter(|member| member.state == DiskState::Missing).count();
        let redundancy = |space: &NewSpace| match missing {
            0 => RedundancyState::Full,
            lost if lost < usize::from(space.resiliency.copies() + space.resiliency.parity()) => {
                RedundancyState::Reduced
            }
            _ => RedundancyState::Unavailable,
        };
        let spaces = state.spaces.values().map(|(space, _)| SpaceInfo {
            guid: state.identities.get(&space.name).copied().unwrap_or_default(),
            log_of: None,
            state: SpaceState {
                name: space.name.clone(),
                resiliency: space.resiliency,
                redundancy: redundancy(space),
                repair_bytes: missing as u64 * 1000,
                reason: None,
            },
            size_bytes: space.size_bytes,
            allocated_bytes: 0,
            out_of_room: false,
            provisioning: space.provisioning,
            columns: space.columns.unwrap_or(1),
            interleave_bytes: space.interleave_bytes.unwrap_or(256 << 10),
            integrity: space.integrity.unwrap_or(true),
        });
        PoolInfo {
            name: state.name.clone(),
            guid: state.guid,
            state: if missing > 0 { ApiState::Degraded } else { ApiState::Online },
            reason: None,
            slab_bytes: 64 << 20,
            epoch: state.epoch,
            members: state.members.clone(),
            voters: state.members.iter().map(|member| member.guid).collect(),
            voters_needed: state.members.len() as u32 / 2 + 1,
            given_up: Vec::new(),
            spaces: spaces.collect(),
            reserved_bytes: 0,
            repairing: false,
            copied_bytes: 0,
            balanced_bytes: 0,
            scrubbed_bytes: 0,
            copy_floor: 0,
            scrub: Scrub::default(),
            balance: Balance::default(),
        }
    }

    fn called(&self, name: &str) {
        self.state.lock().name = name.to_owned();
    }

    fn has_stopped(&self) -> bool {
        self.state.lock().stopped || self.is_superseded()
    }

    fn is_superseded(&self) -> bool {
        self.state.lock().epoch > self.epoch
    }

    fn uses(&self, guid: Uuid, disk: &Arc<dyn OpenDisk>) -> bool {
        let state = self.state.lock();
        let online = |member: &PoolMember| member.guid == guid && member.state != DiskState::Missing;
        let disk = disk.clone().as_any().downcast::<MemoryDisk>();
        state.members.iter().any(online)
            && disk.is_ok_and(|disk| state.used.get(&guid).is_some_and(|used| *used == disk.id))
    }

    fn returned(&self, guid: Uuid, disk: PoolDisk) -> Work<'_, ()> {
        self.state.lock().used.insert(guid, disk.id);
        self.member(guid, |member| member.state = DiskState::Online)
    }

    fn lost(&self, guid: Uuid) -> Work<'_, ()> {
        let lost = self.member(guid, |member| member.state = DiskState::Missing);
        self.state.lock().stop();
        lost
    }

    fn add(&self, disk: PoolDisk, _overwrite_foreign: bool) -> Work<'_, Uuid> {
        let mut state = self.state.lock();
        self.pools.has(state.guid, std::slice::from_ref(&disk));
        now(Ok(self.pools.claim(&mut state, &disk)))
    }

    fn drain(&self, guid: Uuid) -> Work<'_, ()> {
        let members = self.state.lock().members.clone();
        if members.iter().any(|member| member.guid == guid && member.state == DiskState::Missing) {
            return self.give_up(guid);
        }
        self.member(guid, |member| member.state = DiskState::Retiring)
    }

    fn keep(&self, guid: Uuid) -> Work<'_, ()> {
        self.member(guid, |member| member.state = DiskState::Online)
    }

    fn set_node(&self, guid: Uuid, node: String) -> Work<'_, ()> {
        self.member(guid, move |member| member.node = Some(node))
    }

    fn remove(&self, guid: Uuid) -> Work<'_, ()> {
        self.state.lock().members.retain(|member| member.guid != guid);
        for disk in self.pools.machine.disks.lock().values() {
            let mut content = disk.content.lock();
            if matches!(&*content, DiskContent::Member { disk, .. } if *disk == guid) {
                *content = DiskContent::Empty;
            }
        }
        now(Ok(()))
    }

    fn give_up(&self, guid: Uuid) -> Work<'_, ()> {
        // One that is not here leaves as soon as nothing refers to it, and there is nothing to restore in memory.
        let left = self.member(guid, |member| {
            member.allocated_bytes = 0;
            member.state == DiskState::Missing
        });
        Box::pin(async move {
            if left.await? {
                self.state.lock().members.retain(|member| member.guid != guid);
            }
            Ok(())
        })
    }

    fn use_spare(&self, _for_member: Uuid) -> Work<'_, bool> {
        let mut state = self.state.lock();
        let Some(spare) = state.members.iter_mut().find(|member| member.state == DiskState::Spare) else {
            return now(Ok(false));
        };
        spare.state = DiskState::Online;
        now(Ok(true))
    }

    fn set_upkeep(&self, _upkeep: Upkeep) {}

    fn repair(&self) -> Work<'_, ()> {
        now(Ok(()))
    }

    fn scrub(&self) -> Work<'_, ()> {
        now(Ok(()))
    }

    fn rebalance(&self, _dry_run: bool) -> Work<'_, BalancePlan> {
        now(Ok(BalancePlan::default()))
    }

    fn check(&self, _deep: bool) -> Work<'_, Vec<CheckFinding>> {
        now(Ok(Vec::new()))
    }

    fn create_volume(&self, space: NewSpace) -> Work<'_, Arc<dyn VolumeHandle>> {
        let (name, store) = (space.name.clone(), Arc::new(MemoryStore::default()));
        let mut state = self.state.lock();
        if name.starts_with("damaged") {
            state.damaged.insert(name.clone());
        }
        let identity = state.new_identity(&name);
        state.identities.insert(name.clone(), identity);
        state.spaces.insert(name, (space, store.clone()));
        let handle: Arc<dyn VolumeHandle> =
            Arc::new(Volume { store, state: self.state.clone(), lacks_space: false });
        now(Ok(handle))
    }

    fn open_volume<'a>(&'a self, name: &'a str) -> Work<'a, Arc<dyn VolumeHandle>> {
        {
            let mut state = self.state.lock();
            if let Some(left) = state.refusals.get_mut(name).filter(|left| **left > 0) {
                *left -= 1;
                return now(Err(Problem::new(Code::Io, "a disk went away while it was being opened")));
            }
            state.stopped_volumes.remove(name);
        }
        let locked = self.state.lock();
        match locked.spaces.get(name) {
            Some((_, store)) => {
                let (store, state, lacks_space) = (store.clone(), self.state.clone(), locked.full);
                let handle: Arc<dyn VolumeHandle> = Arc::new(Volume { store, state, lacks_space });
                now(Ok(handle))
            }
            None => now(Err(Problem::new(Code::NotFound, "no such space"))),
        }
    }

    fn verify_volume<'a>(
        &'a self,
        name: &'a str,
        _deep: bool,
        repair: Repair,
    ) -> Work<'a, Vec<CheckFinding>> {
        let mut state = self.state.lock();
        let found = damage(&state.damaged, name);
        if repair == Repair::Apply {
            state.damaged.remove(name);
        }
        now(Ok(found))
    }

    fn add_log<'a>(&'a self, name: &'a str, log: NewLog) -> Work<'a, ()> {
        if let Some((space, _)) = self.state.lock().spaces.get_mut(name) {
            space.log = Some(log);
        }
        now(Ok(()))
    }

    fn remove_log<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        if let Some((space, _)) = self.state.lock().spaces.get_mut(name) {
            space.log = None;
        }
        now(Ok(()))
    }

    fn give_up_log<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        let problem = Problem::new(Code::NotFound, format!("volume {name} has no log."));
        Box::pin(async { Err(problem) })
    }

    fn grow<'a>(&'a self, name: &'a str, size_bytes: u64) -> Work<'a, ()> {
        if let Some((space, _)) = self.state.lock().spaces.get_mut(name) {
            space.size_bytes = size_bytes;
        }
        now(Ok(()))
    }

    fn rename_space<'a>(&'a self, name: &'a str, new: &'a str) -> Work<'a, ()> {
        let mut state = self.state.lock();
        let Some((space, store)) = state.spaces.remove(name) else {
            return now(Err(Problem::new(Code::NotFound, "no such space")));
        };
        state.spaces.insert(new.to_owned(), (NewSpace { name: new.to_owned(), ..space }, store));
        let identity = state.identities.remove(name).unwrap_or_default();
        state.identities.insert(new.to_owned(), identity);
        let PoolState { damaged, stopped_volumes, .. } = &mut *state;
        for names in [damaged, stopped_volumes] {
            if names.remove(name) {
                names.insert(new.to_owned());
            }
        }
        now(Ok(()))
    }

    fn delete_space<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        let mut state = self.state.lock();
        state.spaces.remove(name);
        state.identities.remove(name);
        drop(state);
        now(Ok(()))
    }

    fn close_and_release(&self) -> Work<'_, ()> {
        let pool = self.state.lock().guid;
        if let Some((node, released)) = self.pools.machine.had.lock().get_mut(&pool) {
            *released |= *node == self.pools.node;
        }
        now(Ok(()))
    }

    fn close(&self) -> Work<'_, ()> {
        now(Ok(()))
    }

    fn abandon(&self) -> Work<'_, ()> {
        now(Ok(()))
    }

    fn destroy(&self, _disks: Vec<PoolDisk>) -> Work<'_, ()> {
        let guids: Vec<Uuid> = self.state.lock().members.iter().map(|member| member.guid).collect();
        for guid in guids {
            drop(self.remove(guid));
        }
        now(Ok(()))
    }
}
