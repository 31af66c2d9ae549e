//! What is known of a pool of members in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{DiskState, PoolMember};
use uuid::Uuid;

use super::super::store::MemoryStore;
use crate::backend::NewSpace;

pub(in crate::memory) struct PoolState {
    pub(super) name: String,
    pub(super) guid: Uuid,
    pub(super) members: Vec<PoolMember>,
    pub(super) spaces: BTreeMap<String, (NewSpace, Arc<MemoryStore>)>,
    /// The identities of spaces, by their names.
    pub(super) identities: BTreeMap<String, Uuid>,
    /// Volumes with something to repair: those whose name began with "damaged" when they were made.
    pub(super) damaged: BTreeSet<String>,
    pub(in crate::memory) epoch: u64,
    /// Its metadata has not reached a majority.
    pub(super) stopped: bool,
    /// Names of volumes that have stopped.
    pub(super) stopped_volumes: BTreeSet<String>,
    /// The file systems of its members are full: volumes that are opened have no space for their metadata.
    pub(super) full: bool,
    /// How many more times a volume cannot be opened, by its name.
    pub(in crate::memory) refusals: BTreeMap<String, u32>,
    /// The disk that is used as each member.
    pub(in crate::memory) used: BTreeMap<Uuid, String>,
}

impl PoolState {
    /// The files of a volume.
    pub(in crate::memory) fn store(&self, volume: &str) -> Option<Arc<MemoryStore>> {
        self.spaces.get(volume).map(|(_, store)| store.clone())
    }

    /// The identity of a new space: another one in each pool, and each time another one.
    pub(super) fn new_identity(&self, name: &str) -> Uuid {
        let name = name.bytes().fold(0, |sum: u128, byte| sum.rotate_left(9) ^ u128::from(byte));
        let mut guid = self.guid.as_u128() ^ name.rotate_left(64);
        while self.identities.values().any(|there| there.as_u128() == guid) {
            guid = guid.wrapping_add(1);
        }
        Uuid::from_u128(guid)
    }

    /// The file systems of its members become full, or have room again.
    pub(in crate::memory) fn set_full(&mut self, full: bool) {
        self.full = full;
        self.members.iter_mut().for_each(|member| member.full_seconds = u64::from(full));
    }

    /// The name of the volume with these files now.
    pub(super) fn name_of(&self, store: &Arc<MemoryStore>) -> Option<&String> {
        self.spaces.iter().find(|(_, (_, there))| Arc::ptr_eq(there, store)).map(|(name, _)| name)
    }

    /// What a loss of disks under load does: nothing that was open goes on.
    pub(super) fn stop(&mut self) {
        let missing = self.members.iter().filter(|member| member.state == DiskState::Missing).count();
        self.stopped |= (self.members.len() - missing) * 2 < self.members.len();
        let lost =
            |space: &NewSpace| missing >= usize::from(space.resiliency.copies() + space.resiliency.parity());
        let stopped = self.spaces.iter().filter(|(_, (space, _))| self.stopped || lost(space));
        self.stopped_volumes.extend(stopped.map(|(name, _)| name.clone()).collect::<Vec<_>>());
    }
}
