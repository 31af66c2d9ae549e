//! What is free: found out at the opening.
//!
//! Opening reads every extent once and marks its clusters in a bitmap. The database's pages are read in large pieces
//! meanwhile (`backend.rs`), so that this costs what reading its area costs, not a request for each page.

use file_store::{StoreError, StoreErrorKind};
use redb::{ReadableTable, WriteTransaction};

use crate::clusters::extent_of;
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::free::{Free, Run};
use crate::quota_tally::{self, Quotas};
use crate::space::Space;
use crate::tables::{COUNTERS, EXTENTS, ExtentKey, FREED, MapKey, STATE, USES, ZERO_UNTIL, check_tables};

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
    let mut space = Space::of(clusters);
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
