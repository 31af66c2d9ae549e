//! Letting go of a pool, so that another machine can take it over.
//!
//! ```text
//!   who serves lets go ──► volumes close ──► configuration forgets ──► the pool closes: all regions clean ──► disks are let go
//! ```
//! The disks say which node has the pool. A node opens by itself those of its configuration that are its own or were let go of, and
//! others only when told to (`pool import`). So after an export this node takes the pool back only then.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_api::{Code, Done, Problem};
use uuid::Uuid;

use super::path::Release;
use super::ties::Leaving;
use super::{Node, confirm, to_its_end};

impl Node {
    /// What clients lose with these volumes, in sentences.
    pub(super) fn served_from(&self, volumes: &Leaving) -> Vec<String> {
        let (luns, shares): (Vec<String>, Vec<String>) = self.config.with(|config| {
            let luns = config.luns.iter().filter(|lun| volumes.takes(*lun));
            let shares = config.shares.iter().filter(|share| volumes.takes(*share));
            (luns.map(|lun| lun.name.clone()).collect(), shares.map(|share| share.name.clone()).collect())
        });
        let kinds = [("LUNs", luns), ("shares", shares)].into_iter().filter(|(_, names)| !names.is_empty());
        let told = kinds.map(|(kind, names)| {
            format!(
                "The {kind} {} disappear from clients and from this node's configuration; `config show` tells how they are made, to be saved first.",
                names.join(", ")
            )
        });
        told.collect()
    }

    /// Takes a pool with its volumes, and what is served from these, out of the configuration.
    pub(super) fn drop_from_config(&self, pool: Uuid, volumes: &Leaving) -> Result<(), Problem> {
        self.config.change(|config| {
            config.pools.retain(|each| each.guid != pool);
            config.remove_luns(|lun| volumes.takes(lun));
            config.shares.retain(|share| !volumes.takes(share));
            config.volumes.retain(|volume| !volumes.takes(volume));
            config.qos_places.retain(|place| !volumes.takes(place));
            Ok(())
        })
    }

    /// Stops serving a pool and closes it, as `pool import` finds it on another machine. Goes on when the client goes away.
    ///
    /// # Errors
    /// When a volume needs this pool and another one, a volume cannot be closed, or it was not confirmed.
    pub async fn pool_export(
        self: &Arc<Self>,
        name: &str,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        to_its_end(async move { node.export(&name, confirmed).await }).await
    }

    async fn export(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let turns = self.turn_of_pool(name).await?;
        self.delete_leftovers().await;
        let changing = self.changes.lock().await;
        let (guid, handle) = self.pool(name)?;
        let Some(turn) = turns.iter().find(|turn| turn.is_of(guid)) else {
            return Err(Problem::new(Code::WrongState, format!("pool {name} has just got another name."))
                .todo("Try again."));
        };
        let info = handle.info();
        let name = info.name.clone();
        let spaces = || info.spaces.iter().filter(|space| space.log_of.is_none());
        let all: BTreeSet<String> = spaces().map(|space| space.state.name.clone()).collect();
        let mut volumes = all.clone();
        // Of two volumes of one name the node serves one: what refers to that one stays when the other one goes.
        volumes.retain(|volume| self.volumes.lock().get(volume).is_none_or(|slot| slot.pool == guid));
        let leaving = Leaving { guids: spaces().map(|space| space.guid).collect(), names: volumes.clone() };
        // A volume and its log go together.
        self.refuse_log_elsewhere(guid, &info)?;
        let orphans = self.refuse_log_of_another(guid, &info)?;
        let going = self.served_from(&leaving);
        confirm(&name, confirmed.as_deref(), || {
            let mut told = vec![format!(
                "Pool {name} with its volumes ({}) is not served by this node any more; what is on its disks stays.",
                listed(&all)
            )];
            told.extend(going);
            told.extend(self.discards_of(Some(guid)));
            told.extend(orphans.iter().map(|volume| {
                format!("It holds a log of volume {volume}, which is in no pool of this node: the volume can be opened only where both are.")
            }));
            told
        })?;
        self.drop_from_config(guid, &leaving)?;
        let disks: Vec<String> =
            self.pool_info(&handle).members.into_iter().filter_map(|member| member.disk).collect();
        // Others change meanwhile what they like.
        drop(changing);
        drop(handle);
        let unclean = self.give_up(turn, Release::Asked).await;
        if self.is_driven()
            && let Err(problem) = self.backends.owner.forget(guid).await
        {
            tracing::warn!(pool = name, %problem, "what the cluster keeps of a pool that was exported stays");
        }
        self.pools.lock().remove(&guid);
        self.logs.forget_pool(guid);
        self.restarts.forget_pool(guid);
        self.full_restarts.forget_pool(guid);
        for volume in &volumes {
            self.open_namesake(volume, &turns).await;
        }
        for disk in disks {
            self.release_disk(&disk).await;
        }
        match unclean.into_iter().next() {
            None => Ok(Done::new(format!(
                "Pool {name} ({guid}) is closed and not this node's any more; `holdfast pool import {guid}` takes it over, here or where its disks are."
            ))),
            Some(problem) => Err(Problem::new(
                problem.code,
                format!(
                    "pool {name} is not this node's any more, but was not closed cleanly: {}",
                    problem.detail
                ),
            )
            .todo("Whoever imports it recovers it as after a crash. Its disks may still name this node as its owner: then an import elsewhere asks for confirmation.")),
        }
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        "none".into()
    } else {
        names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}
