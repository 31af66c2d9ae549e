//! Which initiators see which units under which numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scsi_core::Nexus;

use crate::unit::LogicalUnit;

/// Highest unit number (flat addressing has 14 bits).
pub const MAX_LUN: u16 = 16383;

/// A unit under a number.
#[derive(Clone)]
pub struct MappedUnit {
    /// The disk.
    pub unit: Arc<LogicalUnit>,
    /// Whether these initiators may only read.
    pub read_only: bool,
}

/// What a set of initiators sees.
#[derive(Clone, Default)]
pub struct Group {
    /// Initiator names in lower case; empty means everyone.
    pub initiators: BTreeSet<String>,
    /// Unit numbers 0 to 16383.
    pub luns: BTreeMap<u16, MappedUnit>,
    /// Numbers whose unit is not there now: nobody of the group sees another group's under them.
    pub reserved: BTreeSet<u16>,
    /// Numbers that get a unit in a moment: what they have meant to a session they go on to mean, and nobody is kept from one by them.
    pub held: BTreeSet<u16>,
}

/// Who asks, and what it sees.
pub(crate) struct Caller<'a> {
    pub(crate) nexus: &'a Nexus,
    pub(crate) view: &'a BTreeMap<u16, MappedUnit>,
    pub(crate) read_only: bool,
}

/// What a session sees, and which unit each number has meant to it.
///
/// A number that an initiator knows as one unit never leads to another one while it is logged in, unless nothing has had it in between:
/// what it has in memory of the former disk, and its writes under way, would go to the other one.
#[derive(Default)]
pub(crate) struct Numbers(BTreeMap<u16, [u8; 16]>);

impl Numbers {
    /// The units that the initiator of the session sees from now on.
    pub(crate) fn view(&mut self, groups: &[Group], initiator: &str) -> BTreeMap<u16, MappedUnit> {
        let wanted = wanted(groups, initiator);
        self.0.retain(|number, _| wanted.contains_key(number));
        let seen = wanted.into_iter().filter_map(|(number, mapped)| Some((number, mapped?)));
        let same = |(number, mapped): &(u16, MappedUnit)| {
            let id = mapped.unit.config.id;
            *self.0.entry(*number).or_insert(id) == id
        };
        seen.filter(same).collect()
    }
}

/// The units that are meant for an initiator; `None` for one that is not there.
fn wanted(groups: &[Group], initiator: &str) -> BTreeMap<u16, Option<MappedUnit>> {
    // Named groups come before the open one; among equals the first that has the number wins.
    let named = groups.iter().filter(|g| g.initiators.contains(initiator));
    let open = groups.iter().filter(|g| g.initiators.is_empty());
    let mut wanted = BTreeMap::new();
    for group in named.clone().chain(open.clone()) {
        let units = group.luns.iter().map(|(number, mapped)| (*number, Some(mapped.clone())));
        for (number, mapped) in units.chain(group.reserved.iter().map(|number| (*number, None))) {
            if number <= MAX_LUN {
                wanted.entry(number).or_insert(mapped);
            }
        }
    }
    for number in named.chain(open).flat_map(|group| &group.held) {
        wanted.entry(*number).or_insert(None);
    }
    wanted
}

/// Whether two views show the same units in the same way.
pub(crate) fn same(a: &BTreeMap<u16, MappedUnit>, b: &BTreeMap<u16, MappedUnit>) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(&a.1.unit, &b.1.unit) && a.1.read_only == b.1.read_only)
}

/// Whether two views show units of the same identities in the same way, though they may be others.
pub(crate) fn same_units(a: &BTreeMap<u16, MappedUnit>, b: &BTreeMap<u16, MappedUnit>) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.0 == b.0 && a.1.unit.config.id == b.1.unit.config.id && a.1.read_only == b.1.read_only
        })
}
