//! Volumes whose data lies in one pool and whose log lies in another. The log may hold acknowledged data that the volume does not
//! have yet: neither pool goes while the other one, which is here or may come back, needs it.

use std::collections::BTreeMap;

use control_api::{Code, Issue, Problem, RedundancyState, Severity};
use health_rules::FindingCode;
use uuid::Uuid;

use super::Node;
use crate::backend::{PoolInfo, SpaceInfo, SpaceName};

/// A pool of the configuration and what is known of what it holds.
pub(super) struct Holder {
    pub(super) guid: Uuid,
    pub(super) name: String,
    /// Why it is not open; none while it is.
    pub(super) closed: Option<String>,
    /// Its spaces when it was last open; none if this node has not had it open.
    pub(super) spaces: Option<Vec<SpaceName>>,
}

impl Holder {
    /// The volumes that it holds, as far as they are known.
    pub(super) fn volumes(&self) -> impl Iterator<Item = &String> {
        self.spaces.iter().flatten().filter(|space| space.log_of().is_none()).map(|space| &space.name)
    }

    /// The logs that it holds, as far as they are known: each with the name of its volume.
    pub(super) fn logs(&self) -> impl Iterator<Item = (&SpaceName, &str)> {
        self.spaces.iter().flatten().filter_map(|space| Some((space, space.log_of()?)))
    }

    /// Whether it holds the volume whose log is in a space of this name.
    pub(super) fn is_home_of(&self, log: &str) -> bool {
        self.spaces.iter().flatten().any(|space| space.is_home_of(log))
    }
}

impl Node {
    /// The pools of the configuration.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let slots: BTreeMap<_, _> = self.pools.lock().clone();
        let of = |(guid, slot): (Uuid, super::PoolSlot)| {
            let open = slot.handle.as_ref().map(|handle| handle.space_names());
            let held = |spaces: Vec<SpaceInfo>| spaces.iter().map(SpaceInfo::called).collect();
            let why = || slot.reason.unwrap_or_else(|| "it is being opened".into());
            Holder {
                guid,
                name: slot.name,
                closed: slot.handle.is_none().then(why),
                spaces: open.or_else(|| slot.held.map(held)).or_else(|| self.logs.held(guid)),
            }
        };
        slots.into_iter().map(of).collect()
    }

    /// Refuses that a pool leaves this node while the log of one of its volumes lies in another pool, open or not.
    pub(super) fn refuse_log_elsewhere(&self, guid: Uuid, info: &PoolInfo) -> Result<(), Problem> {
        for space in info.spaces.iter().filter(|space| space.log_of.is_none()) {
            let volume = &space.state.name;
            let slot = self.volumes.lock().get(volume).filter(|slot| slot.pool == guid).cloned();
            let handle = slot.as_ref().and_then(|slot| slot.handle.clone());
            let has_log = handle.as_ref().map(|handle| handle.log().is_some());
            let own_log = space.log_name();
            if has_log == Some(false) || info.spaces.iter().any(|log| log.state.name == own_log) {
                continue;
            }
            let lacks_log = slot.is_some_and(|slot| slot.lacks_log);
            let place = self.log_place(space, has_log.is_some(), has_log == Some(true), lacks_log);
            let Some(place) = place else { continue };
            let of =
                place.pool.map_or_else(|| "a pool that is not open".into(), |pool| format!("pool {pool}"));
            let detail = format!(
                "volume {volume} has its log in {of}, and the log may hold acknowledged data that pool {} does not have yet.",
                info.name
            );
            let remove = format!(
                "`holdfast volume log remove {volume}` brings it home and takes the log away while the volume is in use; where the pool goes, `holdfast volume log add` gives it another one."
            );
            let todo = if handle.is_some() {
                remove
            } else {
                format!(
                    "Open the volume with its log first: `holdfast status` says what it waits for. Then {remove} If the log is lost for good: `holdfast volume give-up-log {volume}`."
                )
            };
            return Err(Problem::new(Code::InUse, detail).todo(todo));
        }
        Ok(())
    }

    /// Refuses that a pool leaves this node or is destroyed while it holds the log of a volume of another pool, open or not.
    /// Returns the volumes whose logs it holds and which are in no pool of this node.
    pub(super) fn refuse_log_of_another(&self, guid: Uuid, info: &PoolInfo) -> Result<Vec<String>, Problem> {
        let holders = self.holders();
        let others = || holders.iter().filter(|holder| holder.guid != guid);
        let is_own = |log: &str| info.spaces.iter().any(|space| space.called().is_home_of(log));
        let mut orphans = Vec::new();
        for (log, volume) in
            info.spaces.iter().filter_map(|space| Some((&space.state.name, space.log_of.as_deref()?)))
        {
            if is_own(log) {
                continue;
            }
            let home = others().find(|holder| holder.is_home_of(log));
            let holds = format!("pool {} holds the log of volume {volume}", info.name);
            match home {
                Some(home) if home.closed.is_none() => {
                    let detail = format!("{holds}, whose data is in pool {}.", home.name);
                    return Err(Problem::new(Code::InUse, detail).todo(format!(
                        "`holdfast volume log remove {volume}` takes the log away first, while the volume is in use; `holdfast volume log add` can give it another one."
                    )));
                }
                Some(Holder { name, .. }) => {
                    let detail = format!(
                        "{holds}, whose data is in pool {name}, which is not open; the log may hold acknowledged data that pool {name} does not have yet."
                    );
                    return Err(Problem::new(Code::InUse, detail).todo(format!(
                        "Bring the disks of pool {name} back, and then: `holdfast volume log remove {volume}`. If they are lost for good: `holdfast pool forget {name}`."
                    )));
                }
                None => orphans.push(volume.to_owned()),
            }
        }
        let unknown: Vec<&str> =
            others().filter(|holder| holder.spaces.is_none()).map(|holder| holder.name.as_str()).collect();
        if let (Some(volume), false) = (orphans.first(), unknown.is_empty()) {
            return Err(Problem::new(
                Code::InUse,
                format!(
                    "pool {} holds the log of volume {volume}, which may lie in a pool that is not open: {}.",
                    info.name,
                    unknown.join(", ")
                ),
            )
            .todo("`holdfast status` says what it waits for."));
        }
        Ok(orphans)
    }

    /// A log in an open pool, by the name of its volume, when this volume is in no pool that this node knows: its pool, and the name
    /// of its space.
    pub(super) fn orphan_log(&self, volume: &str) -> Option<(Uuid, String)> {
        let holders = self.holders();
        // One that has never been open here may be its home.
        if holders.iter().any(|holder| holder.spaces.is_none()) {
            return None;
        }
        let is_orphan = |log: &SpaceName| !holders.iter().any(|holder| holder.is_home_of(&log.name));
        let mut open = holders.iter().filter(|holder| holder.closed.is_none());
        open.find_map(|holder| {
            let (log, _) = holder.logs().find(|(log, of)| *of == volume && is_orphan(log))?;
            Some((holder.guid, log.name.clone()))
        })
    }

    /// Logs in open pools whose volumes are in none.
    pub(super) fn log_issues(&self) -> Vec<Issue> {
        let holders = self.holders();
        let mut issues = Vec::new();
        for pool in holders.iter().filter(|holder| holder.closed.is_none()) {
            for (log, volume) in pool.logs() {
                let home = holders.iter().find(|holder| holder.is_home_of(&log.name));
                let (severity, detail, todo) = match home {
                    Some(home) if home.closed.is_none() => continue,
                    Some(home) => (
                        Severity::Info,
                        format!("it waits for its volume, which lies in pool {}, and may hold acknowledged data of it", home.name),
                        format!("Bring the disks of pool {} back, and keep those of pool {} until then.", home.name, pool.name),
                    ),
                    None => (
                        Severity::Warning,
                        "its volume is in no pool of this node that is known, and it may hold acknowledged data of it".to_owned(),
                        format!("Take the volume's pool over (`holdfast pool import`), and it is opened with its log. If the volume is lost for good: `holdfast volume give-up-log {volume}` deletes the log."),
                    ),
                };
                let subject = format!("log of volume {volume} in pool {}", pool.name);
                issues.push(health_rules::issue(FindingCode::LogOrphaned, severity, subject, detail, todo));
            }
        }
        issues
    }

    /// Whether a pool holds nothing that anyone lacks while it is away: nothing at all, or the logs of volumes that are served
    /// without it. Not known of one that this node has not had open.
    pub(super) fn can_be_done_without(&self, pool: Uuid) -> bool {
        let spaces =
            self.holders().into_iter().find(|holder| holder.guid == pool).and_then(|holder| holder.spaces);
        spaces.is_some_and(|spaces| spaces.iter().all(|space| self.serves_without(&space.name)))
    }

    /// Whether a space is that of a log which is not there, while its volume is served all the same.
    pub(super) fn is_done_without(&self, space: &SpaceInfo) -> bool {
        space.state.redundancy == RedundancyState::Unavailable && self.serves_without(&space.state.name)
    }
}
