//! Which volume a LUN, a share or a cache policy is on: the one that it was made on, and never another one of its name.
//!
//! Two pools may have volumes of one name, and either may be away: a name alone then leads to the data of somebody else. So the
//! configuration names the volume for people, and has the identity of its space for the node. Earlier releases wrote names only; what
//! they wrote is completed as soon as one volume alone can be meant. Where a volume has got another name, here or where its pool was
//! meanwhile, what is on it follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{Code, Config, LunConfig, Place, Problem, ShareConfig, VolumeConfig};
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
    /// Its volume has this name now.
    fn call_volume(&mut self, name: &str);
}

macro_rules! on_volume {
    ($kind:ty, $word:literal, $volume:ident) => {
        impl OnVolume for $kind {
            fn subject(&self) -> String {
                format!("{} {}", $word, self.name)
            }

            fn volume(&self) -> &str {
                &self.$volume
            }

            fn volume_guid(&self) -> Option<Uuid> {
                self.volume_guid
            }

            fn tie(&mut self, guid: Option<Uuid>) {
                self.volume_guid = guid;
            }

            fn call_volume(&mut self, name: &str) {
                name.clone_into(&mut self.$volume);
            }
        }
    };
}

on_volume!(LunConfig, "lun", volume);
on_volume!(ShareConfig, "share", volume);
on_volume!(VolumeConfig, "volume-policy", name);

impl OnVolume for Place {
    fn subject(&self) -> String {
        format!("QoS of {self}")
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

    fn call_volume(&mut self, name: &str) {
        name.clone_into(&mut self.volume);
    }
}

/// What of a configuration lies on volumes.
pub(super) fn all_on_volumes(config: &Config) -> impl Iterator<Item = &dyn OnVolume> {
    let luns = config.luns.iter().map(|lun| lun as &dyn OnVolume);
    let shares = config.shares.iter().map(|share| share as &dyn OnVolume);
    let places = config.qos_places.iter().map(|place| place as &dyn OnVolume);
    luns.chain(shares).chain(places).chain(config.volumes.iter().map(|policy| policy as &dyn OnVolume))
}

/// The same, to be changed.
pub(super) fn all_on_volumes_mut(config: &mut Config) -> impl Iterator<Item = &mut dyn OnVolume> {
    let luns = config.luns.iter_mut().map(|lun| lun as &mut dyn OnVolume);
    let shares = config.shares.iter_mut().map(|share| share as &mut dyn OnVolume);
    let places = config.qos_places.iter_mut().map(|place| place as &mut dyn OnVolume);
    luns.chain(shares)
        .chain(places)
        .chain(config.volumes.iter_mut().map(|policy| policy as &mut dyn OnVolume))
}

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

/// Whether this lies on the volume of this name in this space, or may.
pub(super) fn lies_in(item: &impl OnVolume, name: &str, space: Uuid) -> bool {
    item.volume_guid().map_or(item.volume() == name, |guid| guid == space)
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
        let is_open = self.is_open(pool);
        let is_elsewhere = self.not_here(pool).is_some();
        let pool = self.pool_name(pool).unwrap_or_else(|| pool.to_string());
        let Some(wanted) = wanted else {
            if self.only_of_name(name) == Some(there) {
                return Ok(());
            }
            return Err(self.several(name));
        };
        if wanted == there {
            return Ok(());
        }
        let home = self.pools_with(name).into_iter().find(|(_, guid)| *guid == Some(wanted));
        let home = home.map(|(pool, _)| pool);
        let (of, back) = match &home {
            Some(home) if is_elsewhere => (
                format!("the one of pool {home}"),
                format!(
                    "Another node has pool {pool}. Give one of the two volumes another name: `holdfast volume rename {name} NEW --pool {home}`."
                ),
            ),
            Some(home) if !is_open => (
                format!("the one of pool {home}"),
                format!(
                    "Of two volumes of one name the node serves one, and waits for that of pool {pool}, which is not open: if it is lost for good, `holdfast pool forget {pool}` lets the node serve that of pool {home}."
                ),
            ),
            Some(home) => (
                format!("the one of pool {home}"),
                format!(
                    "Of two volumes of one name the node serves one: `holdfast pool export {pool}` lets it serve that of pool {home} when its disks are there."
                ),
            ),
            None => (
                format!("the one with the GUID {wanted}"),
                format!(
                    "Bring the pool back that has it (`holdfast pool import`), and let go of this one (`holdfast pool {} {pool}`).",
                    if is_open { "export" } else { "forget" }
                ),
            ),
        };
        let detail =
            format!("the volume {name} that is here, in pool {pool}, is another volume than its own, {of}");
        Err(Problem::new(Code::WrongState, detail)
            .todo(format!("{back} If it is to be served from what is here: {}.", say_which(name))))
    }

    /// That a name does not say which volume is meant: which pools have one, and which may have one.
    fn several(&self, name: &str) -> Problem {
        let known: BTreeSet<String> = self.pools_with(name).into_iter().map(|(pool, _)| pool).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let holders = self.holders().into_iter();
        let unseen: Vec<(String, Uuid)> = holders
            .filter(|holder| holder.spaces.is_none())
            .map(|holder| (holder.name, holder.guid))
            .collect();
        // Those of other nodes are not to be forgotten.
        let here = unseen.iter().filter(|(_, guid)| self.not_here(*guid).is_none());
        let here: Vec<String> = here.map(|(name, _)| name.clone()).collect();
        let unseen: Vec<String> = unseen.into_iter().map(|(name, _)| name).collect();
        let but = match unseen.as_slice() {
            [] => String::new(),
            [one] => format!("; it may be in pool {one}, which this node has never had open"),
            more => {
                format!("; it may be in the pools {}, which this node has never had open", more.join(", "))
            }
        };
        let detail = format!(
            "several pools have, or may have, a volume {name} (known: {known}{but}), and the configuration does not say which it is on"
        );
        let say = say_which(name);
        let todo = if here.is_empty() {
            format!("Say which: {say}.")
        } else {
            let forget: Vec<String> =
                here.iter().map(|pool| format!("`holdfast pool forget {pool}`")).collect();
            format!(
                "Bring the disks of pool {}, so that the node sees which volumes are there; if they are lost for good or another node's: {}. Or say which: {say}.",
                here.join(" and pool "),
                forget.join(", ")
            )
        };
        Problem::new(Code::WrongState, detail).todo(todo)
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

    /// The names that volumes have now, or had when they were last here, by their identities.
    pub(super) fn names_now(&self) -> BTreeMap<Uuid, String> {
        let mut holders = self.holders();
        // What another node's pool had when it was here last, that node may have changed since.
        holders.retain(|holder| holder.closed.is_none() || !self.is_driven());
        // What an open pool says counts.
        holders.sort_by_key(|holder| holder.closed.is_none());
        let spaces = holders.into_iter().flat_map(|holder| holder.spaces.into_iter().flatten());
        let volumes = spaces.filter(|space| space.log_of().is_none());
        volumes.filter_map(|space| Some((space.guid?, space.name))).collect()
    }

    /// Takes down which volumes things are on of which earlier releases have written the names only, and the names that volumes
    /// have now.
    pub(super) fn complete_ties(&self) {
        let before = self.config.current().config;
        let lacking: BTreeSet<String> = all_on_volumes(&before)
            .filter(|item| item.volume_guid().is_none())
            .map(|item| item.volume().to_owned())
            .collect();
        let found: BTreeMap<String, Uuid> = lacking
            .into_iter()
            .filter_map(|name| self.only_of_name(&name).map(|guid| (name, guid)))
            .collect();
        let names = self.names_now();
        let complete = |config: &mut Config| {
            for item in all_on_volumes_mut(config) {
                if item.volume_guid().is_none() {
                    let guid = found.get(item.volume()).copied();
                    item.tie(guid);
                }
                follow_name(item, &names);
            }
            // One policy for each volume: the one that was said of it first.
            let mut seen = BTreeSet::new();
            config.volumes.retain(|policy| policy.volume_guid.is_none_or(|guid| seen.insert(guid)));
        };
        let mut completed = (*before).clone();
        complete(&mut completed);
        if completed == *before {
            return;
        }
        let saved = self.config.change(|there| {
            complete(there);
            Ok(())
        });
        if let Err(problem) = saved {
            tracing::error!(%problem, "which volumes LUNs, shares and policies are on could not be taken down");
        }
    }
}

/// Calls the volume of this what it is called now. Says whether it was called otherwise.
pub(super) fn follow_name(item: &mut dyn OnVolume, names: &BTreeMap<Uuid, String>) -> bool {
    let now = item.volume_guid().and_then(|guid| names.get(&guid));
    let Some(now) = now.filter(|now| *now != item.volume()) else { return false };
    item.call_volume(now);
    true
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
