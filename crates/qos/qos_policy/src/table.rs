//! Policies by name and GUID, and which one each disk has.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::{Assignment, Place, Places, Policy};

/// All policies and assignments of a node, to be looked up.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    by_guid: BTreeMap<Uuid, Policy>,
    of_lun: BTreeMap<String, Uuid>,
    of_volume: BTreeMap<VolumeName, Places<Uuid>>,
}

/// A volume by its identity, or by its name where no row says more.
type VolumeName = (Option<Uuid>, String);

fn volume_name(guid: Option<Uuid>, name: &str) -> VolumeName {
    (guid, if guid.is_some() { String::new() } else { name.to_owned() })
}

/// What a disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effective<'a> {
    /// No policy.
    None,
    /// This one.
    Policy(&'a Policy),
    /// One that is not there.
    Unknown(Uuid),
}

impl Policies {
    /// From the rows of a configuration, which have been checked.
    #[must_use]
    pub fn new(policies: &[Policy], assignments: &[Assignment], places: &[Place]) -> Self {
        let mut of_volume: BTreeMap<VolumeName, Places<Uuid>> = BTreeMap::new();
        for place in places {
            let of = of_volume.entry(volume_name(place.volume_guid, &place.volume)).or_default();
            of.insert(place.kind, &place.path, place.policy);
        }
        Self {
            by_guid: policies.iter().map(|policy| (policy.guid, policy.clone())).collect(),
            of_lun: assignments.iter().map(|row| (row.lun.clone(), row.policy)).collect(),
            of_volume,
        }
    }

    /// All policies.
    pub fn all(&self) -> impl Iterator<Item = &Policy> {
        self.by_guid.values()
    }

    /// What a policy's identity leads to.
    #[must_use]
    pub fn of_guid(&self, guid: Uuid) -> Effective<'_> {
        self.by_guid.get(&guid).map_or(Effective::Unknown(guid), Effective::Policy)
    }

    /// The places of a volume that have policies.
    #[must_use]
    pub fn places(&self, (guid, name): (Option<Uuid>, &str)) -> Option<&Places<Uuid>> {
        self.of_volume.get(&volume_name(guid, name))
    }

    /// The policy of a file of a volume.
    #[must_use]
    pub fn of_file(&self, volume: (Option<Uuid>, &str), path: &str) -> Effective<'_> {
        let found = self.places(volume).and_then(|places| places.find(path));
        found.map_or(Effective::None, |guid| self.of_guid(*guid))
    }

    /// The policy of a LUN whose file this is: its own, or that of the place of its file.
    #[must_use]
    pub fn of_lun_at(&self, lun: &str, volume: (Option<Uuid>, &str), path: &str) -> Effective<'_> {
        match self.of_lun(lun) {
            Effective::None => self.of_file(volume, path),
            own => own,
        }
    }

    /// The policy of a LUN.
    #[must_use]
    pub fn of_lun(&self, lun: &str) -> Effective<'_> {
        match self.of_lun.get(lun) {
            None => Effective::None,
            Some(guid) => self.of_guid(*guid),
        }
    }

    /// The policy that a word means: its GUID, or its name in any case.
    pub fn find<'a>(policies: &'a [Policy], word: &str) -> Option<&'a Policy> {
        let guid = word.trim_matches(['{', '}']).parse::<Uuid>().ok();
        let by_guid = guid.and_then(|guid| policies.iter().find(|policy| policy.guid == guid));
        by_guid.or_else(|| policies.iter().find(|policy| policy.name.eq_ignore_ascii_case(word)))
    }
}
