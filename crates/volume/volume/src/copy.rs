//! Clusters with several users: replacing them before a write, and sharing them by clone.

use std::sync::Arc;

use block_device::Durability;
use file_store::{StoreError, StoreErrorKind};
use volume_format::CLUSTER;

use crate::clusters::no_space;
use crate::core::Core;
use crate::extents::Extent;
use crate::free::Run;
use crate::stream::{Stream, check_range, copy_bytes, read_extents};

/// Clusters copied together: 1 MiB, so that a small write to a large shared extent copies little.
const COPY_MAX: u64 = 16;

/// Gives the stream clusters of its own in `first..last`. The range is locked by the caller.
///
/// New clusters are *freed* in the database while they are filled: a crash before the exchange leaves them to
/// be zeroed again, so what was copied is never anybody's stale data.
pub(crate) async fn unshare(stream: &Stream, core: &Core, first: u64, last: u64) -> Result<(), StoreError> {
    let met = stream.map.read().meeting(first, last);
    for extent in met.into_iter().filter(|extent| extent.shared) {
        let mut at = extent.first;
        while at < extent.end() {
            let end = (at + COPY_MAX).min(extent.end());
            unshare_part(stream, core, extent.part(at, end)).await?;
            at = end;
        }
    }
    Ok(())
}

/// Keeps runs from being zeroed while they are filled; on a failure they are zeroed afterwards.
struct Filling<'a> {
    core: &'a Core,
    runs: Vec<Run>,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        let mut filling = self.core.filling.lock();
        for run in &self.runs {
            filling.remove(&run.start);
        }
    }
}

async fn unshare_part(stream: &Stream, core: &Core, old: Extent) -> Result<(), StoreError> {
    let key = stream.key;
    let run = Run { start: old.device, count: old.count };
    let filling = Arc::clone(&core.filling);
    let fresh = core.metadata.change(move |session| {
        let users = session.users(run)?;
        if users.iter().all(|(_, users)| *users == 1) {
            // The others are gone: the clusters are this stream's alone.
            let own = Extent { shared: false, ..old };
            session.changed = true;
            let stored = session.replace(key, old, &[own]);
            session.fatal(stored)?;
            return Ok(None);
        }
        let runs = session.free.take(run.count).ok_or_else(no_space)?;
        session.changed = true;
        for run in &runs {
            filling.lock().insert(run.start);
            let stored = session.put_freed(*run);
            session.fatal(stored)?;
        }
        Ok(Some(runs))
    });
    let Some(runs) = fresh.await? else {
        let mut map = stream.map.write();
        map.remove(old.first, old.end());
        map.insert(Extent { shared: false, ..old });
        return Ok(());
    };
    let _filling = Filling { core, runs: runs.clone() };
    let mut new = Vec::new();
    let mut at = old.first;
    for run in &runs {
        new.push(Extent { first: at, count: run.count, device: run.start, shared: false });
        at += run.count;
    }
    let sources: Vec<Extent> = new.iter().map(|extent| old.part(extent.first, extent.end())).collect();
    for (data, target) in read_extents(core, &sources).await?.into_iter().zip(&new) {
        core.device.write(core.at(target.device * CLUSTER), data.freeze(), Durability::Durable).await?;
    }
    {
        let mut map = stream.map.write();
        map.remove(old.first, old.end());
        new.iter().for_each(|extent| map.insert(*extent));
    }
    let taken = new.clone();
    core.metadata
        .change(move |session| {
            session.changed = true;
            let exchanged = session.unmap(key, old.first, old.end()).and_then(|()| {
                for run in &runs {
                    session.forget_freed(*run)?;
                }
                session.insert_extents(key, &taken)
            });
            session.fatal(exchanged)
        })
        .await?;
    core.attention.notify_one();
    Ok(())
}

/// Makes the clusters of a range of `source` those of a range of `target` too; edges are copied.
pub(crate) async fn clone_range(
    core: Arc<Core>,
    source: Arc<Stream>,
    from: u64,
    target: Arc<Stream>,
    to: u64,
    len: u64,
) -> Result<(), StoreError> {
    let from_end = check_range(from, len)?;
    let to_end = check_range(to, len)?;
    if from_end > source.size() {
        return Err(StoreError::new(
            StoreErrorKind::InvalidArgument,
            "the source of a clone ends beyond its file",
        ));
    }
    let same = Arc::ptr_eq(&source, &target);
    if same && from < to_end && to < from_end {
        return Err(StoreError::new(StoreErrorKind::InvalidArgument, "source and target of a clone overlap"));
    }
    if len == 0 {
        return Ok(());
    }
    if to_end > target.size() {
        Arc::clone(&target).set_size(Arc::clone(&core), to_end).await?;
    }
    // What clones share must be durable before the clone is.
    core.device.flush().await?;
    let around = |offset: u64, end: u64| {
        let first = offset / CLUSTER * CLUSTER;
        (first, end.next_multiple_of(CLUSTER) - first)
    };
    let ((a, a_len), (b, b_len)) = (around(from, from_end), around(to, to_end));
    // One order for everybody, so that two clones in opposite directions do not wait for each other.
    let source_first = (source.key, a) <= (target.key, b);
    let _guards = if same && a < b + b_len && b < a + a_len {
        let first = a.min(b);
        (Some(source.locks.lock(first, (a + a_len).max(b + b_len) - first).await), None)
    } else if source_first {
        let one = source.locks.lock(a, a_len).await;
        (Some(one), Some(target.locks.lock(b, b_len).await))
    } else {
        let one = target.locks.lock(b, b_len).await;
        (Some(one), Some(source.locks.lock(a, a_len).await))
    };
    let shift_fits = from % CLUSTER == to % CLUSTER;
    let (whole_from, whole_end) = (from.next_multiple_of(CLUSTER), from_end / CLUSTER * CLUSTER);
    // The last, partial cluster can be shared when it is the end of both files: nothing lies behind it.
    let whole_end = if from_end == source.size() && to_end == target.size() {
        from_end.next_multiple_of(CLUSTER)
    } else {
        whole_end
    };
    if !shift_fits || whole_from >= whole_end {
        return copy_bytes(&core, &source, from, &target, to, len).await;
    }
    copy_bytes(&core, &source, from, &target, to, whole_from - from).await?;
    let first_target = to + (whole_from - from);
    share_clusters(
        &core,
        &source,
        whole_from / CLUSTER,
        &target,
        first_target / CLUSTER,
        (whole_end - whole_from) / CLUSTER,
    )
    .await?;
    if whole_end < from_end {
        let done = whole_end - from;
        copy_bytes(&core, &source, whole_end, &target, to + done, len - done).await?;
    }
    Ok(())
}

async fn share_clusters(
    core: &Arc<Core>,
    source: &Arc<Stream>,
    first: u64,
    target: &Arc<Stream>,
    to: u64,
    count: u64,
) -> Result<(), StoreError> {
    let extents = source.map.read().meeting(first, first + count);
    let shared: Vec<Extent> = extents.iter().map(|extent| Extent { shared: true, ..*extent }).collect();
    let moved: Vec<Extent> = shared.iter().map(|e| Extent { first: e.first - first + to, ..*e }).collect();
    // The old clusters of the target leave its map before they can be zeroed.
    target.map.write().remove(to, to + count);
    let (from_key, to_key) = (source.key, target.key);
    let (stored_source, stored_target) = (shared.clone(), moved.clone());
    core.metadata
        .change(move |session| {
            session.changed = true;
            let result = (|| {
                session.unmap(to_key, to, to + count)?;
                for extent in &stored_source {
                    session.share(Run { start: extent.device, count: extent.count })?;
                    session.replace(from_key, *extent, &[*extent])?;
                }
                session.insert_extents(to_key, &stored_target)
            })();
            session.fatal(result)
        })
        .await?;
    {
        let mut map = source.map.write();
        for extent in &shared {
            map.remove(extent.first, extent.end());
            map.insert(*extent);
        }
    }
    let mut map = target.map.write();
    moved.into_iter().for_each(|extent| map.insert(extent));
    drop(map);
    core.attention.notify_one();
    Ok(())
}
