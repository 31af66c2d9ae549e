//! Which volume a LUN or share is on: the one that it was made on, and never another one of its name.
//!
//! Two pools may have volumes of one name, and either may be away: a name alone then leads to the data of somebody else. So the
//! configuration names the volume for people, and has the identity of its space for the node. Earlier releases wrote names only; what
//! they wrote is completed as soon as one volume alone can be meant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{Code, Config, LunConfig, Problem, ShareConfig};
use uuid::Uuid;

use super::Node;
use super::known::Impaired;
use crate::backend::VolumeHandle;

/// What of the configuration lies on a volume.
pub(super) trait OnVolume {
    /// What it is called in lists of what is not served ("lun web1").
    fn subject(&self) -> String;
    /// The name of its volume.
    fn volume(&self) -> &str;
    /// Which of that name.
    fn volume_guid(&self) -> Option<Uuid>;
    /// Says which.
    fn tie(&mut self, guid: Option<Uuid>);
}

macro_rules! on_volume {
    ($kind:ty, $word:literal) => {
        impl OnVolume for $kind {
            fn subject(&self) -> String {
                format!("{} {}", $word, self.name)
            }

            fn volume(&self) -> &str {
                &self.volume
            }

            fn volume_guid(&self) -> Option<Uuid> {
                self.volume_guid
            }

            fn tie(&mut self, guid: Option<Uuid>) {
                self.volume_guid = guid;
            }
        }
    };
}

on_volume!(LunConfig, "lun");
on_volume!(ShareConfig, "share");

/// Volumes that leave this node.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Their identities.
    pub(super) guids: BTreeSet<Uuid>,
    /// Their names, but for those that the node serves from another pool.
    pub(super) names: BTreeSet<String>,
}

impl Leaving {
    /// Whether this goes with them.
    pub(super) fn takes(&self, item: &impl OnVolume) -> bool {
        match item.volume_guid() {
            Some(guid) => self.guids.contains(&guid),
            None => self.names.contains(item.volume()),
        }
    }
}

/// How the user says which volume is meant.
fn say_which(name: &str) -> String {
    format!(
        "write `volume_guid = \"GUID\"` of the right one (`holdfast volume show {name} --pool POOL --json` tells its `guid`) into the entry in what `holdfast config show` prints, and put it in place with `holdfast config apply`"
    )
}

impl Node {
    /// The pools that have or had a volume of this name, with its identity as far as that is known.
    fn pools_with(&self, volume: &str) -> Vec<(String, Option<Uuid>)> {
        let holders = self.holders().into_iter();
        let spaces = holders.flat_map(|holder| {
            let name = holder.name;
            holder.spaces.into_iter().flatten().map(move |space| (name.clone(), space))
        });
        let found = spaces.filter(|(_, space)| space.log_of().is_none() && space.name == volume);
        found.map(|(pool, space)| (pool, space.guid)).collect()
    }

    /// The only volume that a name can mean on this node; none while another pool may have one, too.
    fn only_of_name(&self, volume: &str) -> Option<Uuid> {
        if self.holders().iter().any(|holder| holder.spaces.is_none()) {
            return None;
        }
        match self.pools_with(volume).as_slice() {
            [(_, guid)] => *guid,
            _ => None,
        }
    }

    /// The identity of the volume that is served, or would be, under this name.
    pub(super) fn volume_guid(&self, volume: &str) -> Option<Uuid> {
        self.volumes.lock().get(volume).map(|slot| slot.space)
    }

    /// Whether this lies on the volume that the node has under the name that it gives, or may.
    pub(super) fn is_on(&self, item: &impl OnVolume, volume: &str) -> bool {
        let same = |there: Uuid| item.volume_guid().is_none_or(|guid| guid == there);
        item.volume() == volume && self.volume_guid(volume).is_none_or(same)
    }

    /// Why what the node has under the name of its volume is not what this lies on, or may not be it.
    ///
    /// # Errors
    /// Says so, and what to do.
    pub(super) fn refuse_stranger(&self, item: &impl OnVolume) -> Result<(), Problem> {
        let (name, wanted) = (item.volume(), item.volume_guid());
        let slot = self.volumes.lock().get(name).map(|slot| (slot.pool, slot.space));
        let Some((pool, there)) = slot else { return Ok(()) };
        let pool = self.pool_name(pool).unwrap_or_else(|| pool.to_string());
        let Some(wanted) = wanted else {
            if self.only_of_name(name) == Some(there) {
                return Ok(());
            }
            let others: BTreeSet<String> = self.pools_with(name).into_iter().map(|(pool, _)| pool).collect();
            let listed = others.into_iter().collect::<Vec<_>>().join(", ");
            let detail = format!(
                "several pools have, or may have, a volume {name} (known: {listed}), and the configuration does not say which it is on"
            );
            let todo = format!("Say which: {}.", say_which(name));
            return Err(Problem::new(Code::WrongState, detail).todo(todo));
        };
        if wanted == there {
            return Ok(());
        }
        let home = self.pools_with(name).into_iter().find(|(_, guid)| *guid == Some(wanted));
        let home = home.map(|(pool, _)| pool);
        let (of, back) = match &home {
            Some(home) => (
                format!("the one of pool {home}"),
                format!(
                    "Of two volumes of one name the node serves one: `holdfast pool export {pool}` lets it serve that of pool {home} when its disks are there."
                ),
            ),
            None => (
                format!("the one with the GUID {wanted}"),
                "Bring the pool back that has it (`holdfast pool import`), and let go of this one (`holdfast pool export`)."
                    .to_owned(),
            ),
        };
        let detail =
            format!("the volume {name} that is here, in pool {pool}, is another volume than its own, {of}");
        Err(Problem::new(Code::WrongState, detail)
            .todo(format!("{back} If it is to be served from what is here: {}.", say_which(name))))
    }

    /// The open volume that this lies on.
    ///
    /// # Errors
    /// When it is not open, or another one has its name.
    pub(super) fn volume_of(&self, item: &impl OnVolume) -> Result<Arc<dyn VolumeHandle>, Problem> {
        self.refuse_stranger(item).map_err(|problem| Problem {
            detail: format!("{}: {}.", item.subject(), problem.detail),
            ..problem
        })?;
        self.volume(item.volume())
    }

    /// Those of which the node has another volume, or may have, by their subjects with why.
    pub(super) fn strangers(&self, items: &[impl OnVolume]) -> Vec<(String, String)> {
        let why = |item| self.refuse_stranger(item).err().map(|problem| problem.detail);
        items.iter().filter_map(|item| Some((item.subject(), why(item)?))).collect()
    }

    /// How this is kept from its data, if it is.
    pub(super) fn impaired_of<'a>(
        &self,
        impaired: &'a BTreeMap<Uuid, Impaired>,
        item: &impl OnVolume,
    ) -> Option<&'a Impaired> {
        let guid = item.volume_guid().or_else(|| self.volume_guid(item.volume()));
        match guid {
            Some(guid) => impaired.get(&guid),
            None => impaired.values().find(|impaired| impaired.volume == item.volume()),
        }
    }

    /// Takes down which volume LUNs and shares are on of which earlier releases have written the name only. Under the change lock.
    pub(super) fn complete_ties(&self) {
        let lacking = |config: &Config| {
            let luns = config.luns.iter().filter(|lun| lun.volume_guid.is_none());
            let shares = config.shares.iter().filter(|share| share.volume_guid.is_none());
            luns.map(|lun| lun.volume.clone())
                .chain(shares.map(|share| share.volume.clone()))
                .collect::<BTreeSet<_>>()
        };
        let found: BTreeMap<String, Uuid> = self
            .config
            .with(lacking)
            .into_iter()
            .filter_map(|name| self.only_of_name(&name).map(|guid| (name, guid)))
            .collect();
        if found.is_empty() {
            return;
        }
        let saved = self.config.change(|config| {
            config.luns.iter_mut().for_each(|lun| complete(lun, &found));
            config.shares.iter_mut().for_each(|share| complete(share, &found));
            Ok(())
        });
        if let Err(problem) = saved {
            tracing::error!(%problem, "which volumes LUNs and shares are on could not be taken down");
        }
    }
}

/// Ties what is tied to nothing yet.
fn complete(item: &mut impl OnVolume, found: &BTreeMap<String, Uuid>) {
    if item.volume_guid().is_none() {
        item.tie(found.get(item.volume()).copied());
    }
}

/// Things of a configuration that is put in place stay on their volumes. One whose volume has another name now than it had is moved:
/// it gets the identity of that one. `same` says which was it before.
pub(super) fn keep_tie<T: OnVolume>(have: &[T], want: &mut T, same: impl Fn(&T, &T) -> bool) {
    let Some(before) = have.iter().find(|there| same(there, want)) else { return };
    if before.volume() == want.volume() {
        want.tie(want.volume_guid().or(before.volume_guid()));
    } else if want.volume_guid() == before.volume_guid() {
        want.tie(None);
    }
}
