//! What a store in memory has, counted unit by unit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::UNIT;
use super::content::Unit;
use super::state::{Node, State, error};
use crate::{FileId, SpaceUse, StoreError, StoreErrorKind, StoreUsage};

impl State {
    /// Bytes of distinct units.
    pub(super) fn used(&self) -> u64 {
        let contents = self.nodes.values().flat_map(|node| node.streams.values()).map(|(_, content)| content);
        let units: BTreeSet<usize> = contents
            .flat_map(|content| content.units.values())
            .map(|unit| Arc::as_ptr(unit) as usize)
            .collect();
        units.len() as u64 * UNIT
    }

    /// Whether `units` more fit.
    pub(super) fn has_room(&self, units: u64) -> Result<(), StoreError> {
        if units > self.capacity.saturating_sub(self.used()) / UNIT {
            return Err(error(StoreErrorKind::NoSpace, "the store is full"));
        }
        Ok(())
    }

    pub(super) fn usage(&self) -> StoreUsage {
        let contents = self.nodes.values().flat_map(|node| node.streams.values());
        StoreUsage {
            capacity: self.capacity,
            used: self.used(),
            reserved: 0,
            metadata: 0,
            referenced: contents.map(|(_, content)| content.allocated()).sum(),
        }
    }

    pub(super) fn space(&self, root: FileId) -> Result<SpaceUse, StoreError> {
        let mut users: BTreeMap<*const u8, u64> = BTreeMap::new();
        let at = |unit: &Unit| Arc::as_ptr(unit).cast::<u8>();
        let contents =
            |node: &Node| node.streams.values().map(|(_, content)| content.clone()).collect::<Vec<_>>();
        for content in self.nodes.values().flat_map(contents) {
            content.units.values().for_each(|unit| *users.entry(at(unit)).or_default() += 1);
        }
        let (mut total, mut left) = (SpaceUse::default(), vec![root]);
        let mut seen = BTreeSet::new();
        while let Some(file) = left.pop() {
            // What has several names is there once.
            if !seen.insert(file) {
                continue;
            }
            let node = self.node(file)?;
            total.files += 1;
            left.extend(node.entries.values());
            for content in contents(node) {
                total.logical += content.size;
                total.allocated += content.allocated();
                let shared =
                    content.units.values().filter(|unit| users.get(&at(unit)).is_some_and(|n| *n > 1));
                total.shared += shared.count() as u64 * UNIT;
            }
        }
        total.unique = total.allocated - total.shared;
        Ok(total)
    }
}
