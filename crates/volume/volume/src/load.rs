//! What is free: found out at the opening, and when the device grows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::{StoreError, StoreErrorKind};
use redb::{Database, ReadableDatabase, ReadableTable};

use crate::core::Core;
use crate::database::database_error;
use crate::free::{Free, Run};
use crate::tables::{EXTENTS, FREED};

fn damaged(detail: String) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, detail)
}

/// Reads what is used, and so what is free.
pub(crate) fn free_clusters(database: &Database, clusters: u64) -> Result<(Free, ()), StoreError> {
    let mut free = Free::default();
    free.add(Run { start: 0, count: clusters });
    let txn = database.begin_read().map_err(database_error)?;
    let take = |free: &mut Free, run: Run, shared: bool| {
        // Shared clusters are met once for each user.
        if !free.remove(run) && !shared {
            return Err(damaged(format!(
                "clusters {}+{} are used twice or do not exist",
                run.start, run.count
            )));
        }
        Ok(())
    };
    let freed = txn.open_table(FREED).map_err(database_error)?;
    for row in freed.iter().map_err(database_error)? {
        let (start, count) = row.map_err(database_error)?;
        take(&mut free, Run { start: start.value(), count: count.value() }, false)?;
    }
    let extents = txn.open_table(EXTENTS).map_err(database_error)?;
    let mut shared = Vec::new();
    for row in extents.iter().map_err(database_error)? {
        let (_, value) = row.map_err(database_error)?;
        let (start, count, flags) = value.value();
        let run = Run { start, count };
        if flags & crate::tables::SHARED == 0 {
            take(&mut free, run, false)?;
        } else {
            shared.push(run);
        }
    }
    take_union(&mut free, shared)?;
    Ok((free, ()))
}

/// Takes clusters that several extents may name, each once.
fn take_union(free: &mut Free, mut runs: Vec<Run>) -> Result<(), StoreError> {
    runs.sort_by_key(|run| run.start);
    let mut end = 0;
    for run in runs {
        let from = run.start.max(end);
        let to = run.end();
        if from < to && !free.remove(Run { start: from, count: to - from }) {
            return Err(damaged(format!(
                "shared clusters {from}+{} are used otherwise or do not exist",
                to - from
            )));
        }
        end = end.max(to);
    }
    Ok(())
}

/// Makes a grown device's new clusters free.
pub(crate) async fn watch_size(core: std::sync::Weak<Core>) {
    let Some(mut known) = core.upgrade().map(|core| core.device.size()) else { return };
    loop {
        let Some(device) = core.upgrade().map(|core| Arc::clone(&core.device)) else { return };
        let resized =
            shard_runtime::timeout(std::time::Duration::from_secs(5), device.wait_resize(known)).await;
        let Some(strong) = core.upgrade() else { return };
        if strong.closing.load(Ordering::Acquire) {
            return;
        }
        let Some(Ok(size)) = resized else { continue };
        known = size;
        let clusters = strong.superblock.clusters(size);
        let before = strong.clusters.swap(clusters, Ordering::AcqRel);
        let grown = Run { start: before, count: clusters.saturating_sub(before) };
        let added = strong.metadata.change(move |session| {
            session.free.add(grown);
            Ok(())
        });
        if let Err(error) = added.await {
            tracing::warn!("a grown volume's new space cannot be used yet: {error}");
        }
    }
}
