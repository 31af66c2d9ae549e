//! How the clusters of a volume are used: what the metadata thread knows of that besides the database.

use std::collections::BTreeMap;

use crate::free::Free;
use crate::lent::Lent;
use crate::quota_tally::Quotas;
use crate::tables::{MapKey, StreamKey};

/// How the clusters of a volume are used.
#[derive(Default)]
pub(crate) struct Space {
    pub(crate) free: Free,
    /// Clusters that extents name, shared ones counted for each.
    pub(crate) referenced: u64,
    /// Clusters that can be used: those that are known to have been zero.
    pub(crate) clusters: u64,
    /// What is ready to take the place of shared clusters (`lent.rs`).
    pub(crate) lent: Lent,
    /// Who may have how much of it, and has.
    pub(crate) quotas: Quotas,
    /// Clusters that ranges of maps have, counted lately: many clones of one image are made one after another.
    counts: BTreeMap<(MapKey, u64, u64), u64>,
    /// The maps of streams, and `None` of those that have links, as of so many changes of either in this transaction.
    unlinked: BTreeMap<StreamKey, Option<MapKey>>,
    links_at: u64,
}

/// Counts that are kept, and streams of which is known whether they have links.
const COUNTS_MAX: usize = 64;

impl Space {
    /// That of a volume of which so many clusters can be used, before anything is known of what is free.
    pub(crate) fn of(clusters: u64) -> Self {
        Self { clusters, ..Self::default() }
    }

    pub(crate) fn known_count(&self, map: MapKey, first: u64, end: u64) -> Option<u64> {
        self.counts.get(&(map, first, end)).copied()
    }

    pub(crate) fn keep_count(&mut self, map: MapKey, first: u64, end: u64, count: u64) {
        if self.counts.len() >= COUNTS_MAX {
            self.counts.clear();
        }
        self.counts.insert((map, first, end), count);
    }

    /// The map of a stream, if it has no links, as was found out before; nothing if that was not, or links or maps have changed since.
    pub(crate) fn known_unlinked(&mut self, stream: StreamKey, changes: u64) -> Option<Option<MapKey>> {
        if self.links_at != changes {
            self.forget_links();
            self.links_at = changes;
        }
        self.unlinked.get(&stream).copied()
    }

    pub(crate) fn keep_unlinked(&mut self, stream: StreamKey, map: Option<MapKey>) {
        if self.unlinked.len() >= COUNTS_MAX {
            self.unlinked.clear();
        }
        self.unlinked.insert(stream, map);
    }

    /// Another transaction counts the changes of links.
    pub(crate) fn forget_links(&mut self) {
        self.unlinked.clear();
    }

    /// The rows of a map change.
    pub(crate) fn forget_counts(&mut self, map: MapKey) {
        if !self.counts.is_empty() {
            self.counts.retain(|(of, ..), _| *of != map);
        }
    }
}
