//! Taking a pool that is not open out of the configuration: its disks are lost for good, or with somebody else.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_api::{Code, Done, Problem, many};

use super::log_homes::Holder;
use super::ties::Leaving;
use super::{Node, confirm, missing, to_its_end};

impl Node {
    /// Forgets a pool that is not open, with what refers to its volumes. What is on its disks stays. Goes on when the client goes
    /// away.
    ///
    /// # Errors
    /// When there is no such pool, it is open, or it was not confirmed.
    pub async fn pool_forget(
        self: &Arc<Self>,
        name: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move { node.forget(&name, confirmed).await }).await
    }

    async fn forget(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let turns = self.turn_of_pool(name).await?;
        let changing = self.changes.lock().await;
        let holders = self.holders();
        let (these, others): (Vec<Holder>, Vec<Holder>) =
            holders.into_iter().partition(|holder| holder.name == name || holder.guid.to_string() == name);
        let pool = match these.as_slice() {
            [pool] => pool,
            [] => return Err(missing("pool", name, "holdfast pool list")),
            _ => {
                let detail = format!("Several pools are named {name}.");
                return Err(Problem::new(Code::InvalidRequest, detail).todo("Name one by its GUID."));
            }
        };
        if let Some(problem) = self.not_here(pool.guid) {
            return Err(Problem { detail: format!("pool {}: {}.", pool.name, problem.detail), ..problem });
        }
        let Some(why) = &pool.closed else {
            return Err(Problem::new(Code::WrongState, format!("pool {} is open.", pool.name)).todo(format!(
                "`holdfast pool export {0}` lets go of it, also where its disks are lost; `holdfast pool delete {0}` destroys it.",
                pool.name
            )));
        };
        let lost = self.volumes_lost_with(pool, &others);
        let volumes: BTreeSet<String> = lost.names.clone();
        let going = self.served_from(&lost);
        confirm(&pool.name, confirmed.as_deref(), || {
            let mut told = vec![format!(
                "Pool {} is not this node's any more; it is not open: {why}. What is on its disks stays, and `holdfast pool import` takes it over if they come back.",
                pool.name
            )];
            if pool.spaces.is_none() && !volumes.is_empty() {
                told.push("This node has not had it open. Volumes that LUNs and shares are on, and that are in no other pool, are taken for its own.".to_owned());
            }
            told.push(if volumes.is_empty() {
                "No volume is known to lie in it.".to_owned()
            } else {
                let names: Vec<&str> = volumes.iter().map(String::as_str).collect();
                format!("With it go its {} {}.", many(volumes.len() as u64, "volume"), names.join(", "))
            });
            told.extend(going);
            told.extend(pool.logs().filter(|(log, _)| !pool.is_home_of(&log.name)).map(|(log, volume)| {
                if self.serves_without(&log.name) {
                    format!("The log of volume {volume} lies in it; the volume is served without it.")
                } else {
                    format!(
                        "The log of volume {volume} lies in it, and may hold acknowledged data that is nowhere else: keep its disks if they can be had."
                    )
                }
            }));
            for holder in &others {
                told.extend(holder.logs().filter(|(log, _)| pool.is_home_of(&log.name)).map(
                    |(_, volume)| {
                        format!(
                            "The log of volume {volume} in pool {} stays, for if the pool is imported again.",
                            holder.name
                        )
                    },
                ));
            }
            told
        })?;
        let guid = pool.guid;
        if self.is_driven() {
            self.backends.owner.forget(guid).await?;
        }
        self.drop_from_config(guid, &lost)?;
        drop(changing);
        self.pools.lock().remove(&guid);
        self.volumes.lock().retain(|_, slot| slot.pool != guid || slot.handle.is_some());
        self.logs.forget_pool(guid);
        self.restarts.forget_pool(guid);
        self.full_restarts.forget_pool(guid);
        self.reconcile().await;
        for volume in pool.volumes() {
            self.open_namesake(volume, &turns).await;
        }
        // Its disks that are here are let go of.
        for known in self.disks.all() {
            if matches!(&known.content, Some(crate::backend::DiskContent::Member { pool, .. }) if *pool == guid)
            {
                self.release_disk(&known.found.id).await;
            }
        }
        Ok(Done::new(format!("Pool {} ({guid}) is not this node's any more.", pool.name)))
    }

    /// The volumes that nobody can have any more without this pool. Of one that this node has never had open: those that something
    /// refers to and that can be in no other pool.
    fn volumes_lost_with(&self, pool: &Holder, others: &[Holder]) -> Leaving {
        let mut names: BTreeSet<String> = pool.volumes().cloned().collect();
        let of = |holder: &Holder| -> Vec<_> {
            holder.spaces.iter().flatten().filter_map(|space| space.guid).collect()
        };
        let mut guids: BTreeSet<_> = of(pool).into_iter().collect();
        if pool.spaces.is_none() && others.iter().all(|other| other.spaces.is_some()) {
            self.config.with(|config| {
                names.extend(config.luns.iter().map(|lun| lun.volume.clone()));
                names.extend(config.shares.iter().map(|share| share.volume.clone()));
                guids.extend(config.luns.iter().filter_map(|lun| lun.volume_guid));
                guids.extend(config.shares.iter().filter_map(|share| share.volume_guid));
            });
        }
        for other in others {
            for volume in other.volumes() {
                names.remove(volume);
            }
            for guid in of(other) {
                guids.remove(&guid);
            }
        }
        Leaving { guids, names }
    }
}
