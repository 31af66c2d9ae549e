//! Policies by name and GUID, and which one each disk has.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::{Assignment, Policy};

/// All policies and assignments of a node, to be looked up.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    by_guid: BTreeMap<Uuid, Policy>,
    of_lun: BTreeMap<String, Uuid>,
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
    pub fn new(policies: &[Policy], assignments: &[Assignment]) -> Self {
        Self {
            by_guid: policies.iter().map(|policy| (policy.guid, policy.clone())).collect(),
            of_lun: assignments.iter().map(|row| (row.lun.clone(), row.policy)).collect(),
        }
    }

    /// The policy of a LUN.
    #[must_use]
    pub fn of_lun(&self, lun: &str) -> Effective<'_> {
        match self.of_lun.get(lun) {
            None => Effective::None,
            Some(guid) => self.by_guid.get(guid).map_or(Effective::Unknown(*guid), Effective::Policy),
        }
    }

    /// The policy that a word means: its GUID, or its name in any case.
    pub fn find<'a>(policies: &'a [Policy], word: &str) -> Option<&'a Policy> {
        let guid = word.trim_matches(['{', '}']).parse::<Uuid>().ok();
        let by_guid = guid.and_then(|guid| policies.iter().find(|policy| policy.guid == guid));
        by_guid.or_else(|| policies.iter().find(|policy| policy.name.eq_ignore_ascii_case(word)))
    }
}
