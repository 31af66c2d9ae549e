//! Pools as they are shown.

use control_api::{Pool, PoolDetail, PoolState, Problem, RedundancyState};
use uuid::Uuid;

use super::pool_summary::summary;
use super::{Node, PoolSlot};
use crate::backend::PoolInfo;

impl Node {
    /// Pools, those in trouble first.
    pub async fn pool_list(&self) -> Result<Vec<Pool>, Problem> {
        let slots: Vec<(Uuid, PoolSlot)> =
            self.pools.lock().iter().map(|(guid, slot)| (*guid, slot.clone())).collect();
        let mut pools: Vec<Pool> = slots
            .into_iter()
            .map(|(guid, slot)| match slot.handle {
                Some(handle) => self.summary_of(&self.pool_info(&handle)),
                None => match self.not_here(guid) {
                    Some(why) => {
                        let is_heard = self.cluster.get().is_some_and(|cluster| cluster.is_owner_heard(guid));
                        // Of what nobody serves it is not said that it is redundant.
                        let (redundancy, and) = match is_heard {
                            true => (RedundancyState::Full, ""),
                            false => (RedundancyState::Unavailable, ", and is not heard of"),
                        };
                        Pool {
                            state: PoolState::Elsewhere,
                            reason: Some(format!("{}{and}", why.detail)),
                            redundancy,
                            ..closed(guid, &slot)
                        }
                    }
                    None => closed(guid, &slot),
                },
            })
            .collect();
        self.config.with(|config| {
            for pool in &mut pools {
                let configured = config.pools.iter().find(|known| known.guid == pool.guid);
                pool.address = configured.and_then(|known| self.addresses.shown(known));
                pool.home = configured.map(|known| known.home.clone()).unwrap_or_default();
            }
        });
        pools.sort_by(|a, b| (a.redundancy, a.state, &a.name).cmp(&(b.redundancy, b.state, &b.name)));
        Ok(pools)
    }

    /// A pool of this node for a list.
    fn summary_of(&self, info: &PoolInfo) -> Pool {
        let load = self.pool_loads.of(info.guid);
        let pool = summary(info);
        Pool {
            load,
            stays: self.why_stays(info.guid, info),
            discards: self.discards_of(Some(info.guid)),
            forecast: self.forecast_of(&pool),
            ..pool
        }
    }

    /// A pool with its parts.
    pub async fn pool_show(&self, name: &str) -> Result<PoolDetail, Problem> {
        let (guid, handle) = self.pool(name)?;
        let info = self.pool_info(&handle);
        let (address, home) = self.config.with(|config| {
            let configured = config.pools.iter().find(|known| known.guid == guid);
            let home = configured.map(|known| known.home.clone()).unwrap_or_default();
            (configured.and_then(|known| self.addresses.shown(known)), home)
        });
        Ok(PoolDetail {
            pool: Pool { address, home, ..self.summary_of(&info) },
            node: self.cluster.get().map(|cluster| cluster.called().to_owned()),
            members: info.members,
            spaces: info.spaces.into_iter().map(|space| space.state).collect(),
            scrub: info.scrub,
            balance: info.balance,
        })
    }
}

fn closed(guid: Uuid, slot: &PoolSlot) -> Pool {
    let held = slot.held.iter().flatten().filter(|space| space.log_of.is_none());
    Pool {
        name: slot.name.clone(),
        guid,
        state: if slot.reason.is_some() { PoolState::Closed } else { PoolState::Opening },
        reason: slot.reason.clone(),
        redundancy: RedundancyState::Unavailable,
        capacity_bytes: 0,
        allocated_bytes: 0,
        free_bytes: 0,
        reserved_bytes: 0,
        disks: 0,
        disks_missing: 0,
        volumes: held.count() as u64,
        repair_bytes: 0,
        copied_bytes: 0,
        slab_bytes: 0,
        epoch: 0,
        address: None,
        home: Vec::new(),
        load: None,
        forecast: None,
        stays: None,
        discards: Vec::new(),
    }
}
