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
}

/// Who asks, and what it sees.
pub(crate) struct Caller<'a> {
    pub(crate) nexus: &'a Nexus,
    pub(crate) view: &'a BTreeMap<u16, MappedUnit>,
    pub(crate) read_only: bool,
}

/// The units that an initiator sees.
pub(crate) fn view_of(groups: &[Group], initiator: &str) -> BTreeMap<u16, MappedUnit> {
    // Named groups come before the open one; among equals the first that has the number wins.
    let named = groups.iter().filter(|g| g.initiators.contains(initiator));
    let open = groups.iter().filter(|g| g.initiators.is_empty());
    let mut view = BTreeMap::new();
    for (lun, mapped) in named.chain(open).flat_map(|group| &group.luns) {
        if *lun <= MAX_LUN {
            view.entry(*lun).or_insert_with(|| mapped.clone());
        }
    }
    view
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
