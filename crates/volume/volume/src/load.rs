//! What is free: found out at the opening, and when the device grows.
//!
//! Opening reads every extent once and marks its clusters in a bitmap. The database's pages are read in large pieces
//! meanwhile (`backend.rs`), so that this costs what reading its area costs, not a request for each page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use file_store::{StoreError, StoreErrorKind};
use redb::{ReadableTable, WriteTransaction};
use volume_format::CLUSTER;

use crate::clusters::{StreamKey, extent_of};
use crate::core::{Core, clear};
use crate::database::database_error;
use crate::extents::Extent;
use crate::free::{Free, Run};
use crate::lent::Lent;
use crate::quota_tally::{self, Quotas};
use crate::replay::tables_of;
use crate::tables::{
    COUNTERS, EXTENTS, ExtentKey, FREED, MapKey, SNAPSHOT_TABLES, STATE, TABLES, USES, ZERO_UNTIL,
};

/// Clusters that are zeroed in one step: 1 GiB.
pub(crate) const ZEROED_AT_ONCE: u64 = (1 << 30) / CLUSTER;
/// How often a device that cannot tell when it grows is looked at, and a failed growth tried again.
const LOOK: Duration = Duration::from_secs(5);

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

fn used_twice(what: &str, run: Run) -> StoreError {
    let detail = format!(
        "{what} {}..{} are used twice or do not exist; `volume check` says by whom",
        run.start,
        run.end()
    );
    StoreError::new(StoreErrorKind::Corrupt, detail)
}

/// The clusters that can be used of the `clusters` that a device has: as many as were zeroed when the volume was made
/// or grew. (Volumes that were made before this was written down use them all.)
pub(crate) fn usable(
    counters: &impl ReadableTable<&'static str, u64>,
    clusters: u64,
) -> Result<u64, StoreError> {
    let zero_until = counters.get(ZERO_UNTIL).map_err(database_error)?.map(|row| row.value());
    Ok(zero_until.map_or(clusters, |until| until.min(clusters)))
}

/// All tables are there.
///
/// # Errors
/// [`StoreErrorKind::Corrupt`] when one is missing.
pub(crate) fn check_tables(txn: &WriteTransaction) -> Result<(), StoreError> {
    let there = tables_of(txn)?;
    match TABLES.into_iter().chain(SNAPSHOT_TABLES).find(|name| !there.contains(*name)) {
        Some(missing) => {
            let detail = format!("the table {missing} is missing; `volume check` says what that means");
            Err(StoreError::new(StoreErrorKind::Corrupt, detail))
        }
        None => Ok(()),
    }
}

/// What the rows of quotas say.
fn read_quotas(txn: &WriteTransaction) -> Result<Quotas, StoreError> {
    let table = txn.open_table(STATE.definition).map_err(database_error)?;
    let mut quotas = Quotas::default();
    for row in table.range((quota_tally::TABLE, [].as_slice())..).map_err(database_error)? {
        let (key, value) = row.map_err(database_error)?;
        let (of, key) = key.value();
        if of != quota_tally::TABLE {
            break;
        }
        quotas.take_row(key, value.value());
    }
    quotas.begin();
    if quotas.unreadable {
        tracing::warn!(
            "the volume has quotas that this release cannot read, so none is enforced: a newer one has made them, or they are damaged"
        );
    }
    Ok(quotas)
}

/// Reads what is used, and so what is free, of the `clusters` that the device has.
pub(crate) fn read_space(txn: &WriteTransaction, clusters: u64) -> Result<Space, StoreError> {
    check_tables(txn)?;
    let clusters = usable(&txn.open_table(COUNTERS.definition).map_err(database_error)?, clusters)?;
    let mut space = Space { clusters, ..Space::default() };
    space.free.add(Run { start: 0, count: clusters });
    space.quotas = read_quotas(txn)?;
    let freed = txn.open_table(FREED.definition).map_err(database_error)?;
    for row in freed.iter().map_err(database_error)? {
        let (start, count) = row.map_err(database_error)?;
        let run = Run { start: start.value(), count: count.value() };
        if run.count == 0 || !space.free.remove(run) {
            return Err(used_twice("freed clusters", run));
        }
    }
    // Shared clusters are met once for each user.
    let mut shared = Free::default();
    let uses = txn.open_table(USES.definition).map_err(database_error)?;
    let mut weights = Weights { rows: uses.iter().map_err(database_error)?, at: None };
    let extents = txn.open_table(EXTENTS.definition).map_err(database_error)?;
    for row in extents.iter().map_err(database_error)? {
        let (key, value) = row.map_err(database_error)?;
        let extent = extent_of(key.value(), value.value());
        let run = Run { start: extent.device, count: extent.count };
        // From here on, sums of them can be relied on.
        if !extent.lies_on(clusters) {
            return Err(used_twice("clusters", run));
        }
        let (file, stream, _) = key.value();
        if !extent.is_possible(clusters) {
            // Its clusters are known, and nobody else gets them; its stream is refused when it is opened, and no other one is.
            tracing::warn!(
                file,
                stream,
                "an extent lies beyond the end of the largest file; `volume check` says more"
            );
        }
        space.referenced = space.referenced.saturating_add(weights.of((file, stream), &extent)?);
        if extent.shared {
            shared.add(run);
        } else if !space.free.remove(run) {
            return Err(used_twice("clusters", run));
        }
    }
    for run in shared.runs() {
        if !space.free.remove(run) {
            return Err(used_twice("shared clusters", run));
        }
    }
    Ok(space)
}

/// Walks along the uses of maps as the rows of maps are walked along.
struct Weights<'a> {
    rows: redb::Range<'a, ExtentKey, (u64, u32)>,
    at: Option<(MapKey, u64, u64, u32)>,
}

impl Weights<'_> {
    /// Clusters of a row, counted for each stream that has them. Rows come in order.
    fn of(&mut self, map: MapKey, extent: &Extent) -> Result<u64, StoreError> {
        let (mut total, mut at) = (0u64, extent.first);
        while at < extent.end() {
            // What ends before here is behind.
            while self.at.is_none_or(|(of, _, end, _)| (of, end) <= (map, at)) {
                let Some(row) = self.rows.next() else {
                    self.at = Some(((u64::MAX, u32::MAX), u64::MAX, u64::MAX, 0));
                    break;
                };
                let (key, value) = row.map_err(database_error)?;
                let ((file, stream, first), (count, users)) = (key.value(), value.value());
                self.at = Some(((file, stream), first, first.saturating_add(count), users));
            }
            let end = match self.at {
                Some((of, first, end, users)) if of == map && first <= at => {
                    let to = end.min(extent.end());
                    total = total.saturating_add((to - at).saturating_mul(u64::from(users)));
                    to
                }
                Some((of, first, ..)) => {
                    // Nobody links here: it is a stream's own.
                    let to = if of == map { first.min(extent.end()) } else { extent.end() };
                    total = total.saturating_add(to - at);
                    to
                }
                None => extent.end(),
            };
            at = end;
        }
        Ok(total)
    }
}

impl Core {
    /// Makes the clusters up to `clusters`, of a device that has grown, free: zero first, then known to be so.
    async fn grow(&self, clusters: u64) -> Result<(), StoreError> {
        loop {
            // Whoever closes the volume waits for this, and what is left is found at the next opening.
            self.check_open()?;
            let before = self.clusters.load(Ordering::Acquire);
            let until = clusters.min(before + ZEROED_AT_ONCE);
            if until <= before {
                return Ok(());
            }
            // A device may come with old content where it grew.
            clear(&self.device, self.at(before * CLUSTER), (until - before) * CLUSTER).await?;
            self.device.flush().await?;
            let grown = self.metadata.change(move |session| {
                session.changed = true;
                let stored = (|| {
                    let mut counters = session.txn.open_table(COUNTERS).map_err(database_error)?;
                    counters.insert(ZERO_UNTIL, until).map_err(database_error)?;
                    Ok(())
                })();
                session.fatal(stored)?;
                session.space.free.add(Run { start: before, count: until - before });
                session.space.clusters = until;
                Ok(())
            });
            grown.await?;
            self.clusters.store(until, Ordering::Release);
        }
    }
}

/// Takes in what the device grows by.
pub(crate) async fn watch_size(core: std::sync::Weak<Core>) {
    let mut said = None;
    loop {
        let Some(strong) = core.upgrade() else { return };
        // One that is full takes in nothing before it is opened again.
        if strong.check_open().is_err() || strong.full {
            return;
        }
        let (device, size) = (Arc::clone(&strong.device), strong.device.size());
        let grown = match strong.begin() {
            Ok(_operation) => strong.grow(strong.superblock.clusters(size)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = grown {
            let why = error.to_string();
            // Once, not at every try; and of a volume that has stopped, that is told.
            if said.as_ref() != Some(&why) && strong.check_open().is_ok() {
                tracing::warn!("a grown volume's new space cannot be used yet: {why}");
                said = Some(why);
            }
            drop(strong);
            shard_runtime::sleep(LOOK).await;
            continue;
        }
        said = None;
        // The volume can be dropped meanwhile.
        drop(strong);
        let _ = shard_runtime::timeout(LOOK, device.wait_resize(size)).await;
    }
}
