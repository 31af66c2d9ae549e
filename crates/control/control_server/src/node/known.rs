//! What lists tell of things whose pool is away: what it held when it was last there, and that nobody can use it now.

use std::collections::BTreeMap;

use control_api::{Code, DiskState, Problem, RedundancyState};
use uuid::Uuid;

use super::{Node, PoolSlot};
use crate::backend::{PoolInfo, SpaceInfo};

/// How a volume that is open is kept from its data.
#[derive(Clone, Debug)]
pub(super) struct Impaired {
    /// The volume's name.
    pub(super) volume: String,
    /// All of it cannot be had, not only a part.
    pub(super) wholly: bool,
    /// Why.
    pub(super) why: String,
}

/// Why nothing in an open pool can be had, when it has lost all its disks and has not stopped: nobody has asked it for anything.
fn all_lost(info: &PoolInfo) -> Option<String> {
    let lost = |state| matches!(state, DiskState::Missing | DiskState::Failed);
    let all = !info.members.is_empty() && info.members.iter().all(|member| lost(member.state));
    all.then(|| format!("all disks of pool {} are missing", info.name))
}

impl Node {
    /// The spaces of each pool, open or not, as far as they are known, with the pool's name and why none of their data can be had.
    pub(super) fn known_spaces(&self) -> Vec<(String, Vec<SpaceInfo>, Option<String>)> {
        let slots: Vec<(Uuid, PoolSlot)> =
            self.pools.lock().iter().map(|(guid, slot)| (*guid, slot.clone())).collect();
        // What another node has, that one tells.
        let here = |(guid, slot): (Uuid, PoolSlot)| {
            (slot.handle.is_some() || self.not_here(guid).is_none()).then_some(slot)
        };
        let of = |slot: PoolSlot| match slot.handle {
            Some(handle) => {
                let info = handle.info();
                let lost = all_lost(&info);
                Some((info.name, info.spaces, lost))
            }
            None => {
                let mut held = slot.held?;
                held.iter_mut().for_each(|space| space.state.redundancy = RedundancyState::Unavailable);
                let why = slot.reason.unwrap_or_else(|| "it is being opened".into());
                let lost = format!("pool {} is not open: {why}", slot.name);
                Some((slot.name, held, Some(lost)))
            }
        };
        slots.into_iter().filter_map(here).filter_map(of).collect()
    }

    /// Volumes that are kept from their data, or a part of it, by their identities.
    pub(super) fn impaired(&self) -> BTreeMap<Uuid, Impaired> {
        let mut impaired = BTreeMap::new();
        for (_, spaces, lost) in self.known_spaces() {
            for space in spaces.into_iter().filter(|space| space.log_of.is_none()) {
                let state = space.state;
                if state.redundancy != RedundancyState::Unavailable {
                    continue;
                }
                let (wholly, why) = match &lost {
                    Some(why) => (true, why.clone()),
                    None => {
                        let why = state.reason.unwrap_or_else(|| "disks are missing".into());
                        (false, format!("some data of volume {} cannot be had: {why}", state.name))
                    }
                };
                impaired.insert(space.guid, Impaired { volume: state.name, wholly, why });
            }
        }
        impaired
    }

    /// Pools that are not open, with why.
    pub(super) fn closed_pools(&self) -> Vec<(String, String)> {
        let slots = self.pools.lock();
        let closed =
            slots.iter().filter(|(guid, slot)| slot.handle.is_none() && self.not_here(**guid).is_none());
        let closed = closed.map(|(_, slot)| slot);
        let why = |slot: &PoolSlot| slot.reason.clone().unwrap_or_else(|| "it is being opened".into());
        closed.map(|slot| (slot.name.clone(), why(slot))).collect()
    }

    /// Refuses to destroy a pool that volumes need; returns the volumes whose logs it holds and which are in no pool.
    pub(super) fn refuse_held(&self, info: &PoolInfo) -> Result<Vec<String>, Problem> {
        let volumes: Vec<_> = info.spaces.iter().filter(|space| space.log_of.is_none()).collect();
        if !volumes.is_empty() {
            let names: Vec<&str> = volumes.iter().map(|space| space.state.name.as_str()).collect();
            return Err(Problem::new(
                Code::InUse,
                format!("pool {} holds the volumes {}.", info.name, names.join(", ")),
            )
            .todo("Delete the volumes first."));
        }
        self.refuse_log_of_another(info.guid, info)
    }
}
