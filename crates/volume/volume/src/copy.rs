//! Clusters with several users: replacing them before a write, and sharing them by clone.

use std::sync::Arc;

use block_device::Durability;
use file_store::{FileId, StoreError, StoreErrorKind};
use shard_runtime::{RangeGuard, RangeLocks};
use volume_format::CLUSTER;

use crate::background::EXTENTS_PER_ROUND;
use crate::clusters::{ROW, no_space};
use crate::core::Core;
use crate::extents::Extent;
use crate::free::Run;
use crate::links::WINDOW;
use crate::stream::{Stream, check_range, copy_bytes, read_extents};

/// Clusters copied together: 1 MiB, so that a small write to a large shared extent copies little.
const COPY_MAX: u64 = 16;
/// Extents shared in one transaction, so that others do not wait long for theirs.
const SHARES_PER_ROUND: usize = 1024;

/// Gives the stream clusters of its own in `first..last`. Blocks of each of them are locked by the caller, but
/// perhaps not all: another write may be at work in the same clusters, or come for the same reason.
///
/// New clusters are *freed* in the database while they are filled: a crash before the exchange leaves them to
/// be zeroed again, so what was copied is never anybody's stale data.
pub(crate) async fn unshare(stream: &Stream, core: &Core, first: u64, last: u64) -> Result<(), StoreError> {
    let _clusters = stream.clusters.lock(first, last - first).await;
    // Looked at under the lock: whoever held it before may have replaced them, and written to them since.
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

/// Replaces one extent, whose clusters are locked.
async fn unshare_part(stream: &Stream, core: &Core, old: Extent) -> Result<(), StoreError> {
    let key = stream.key;
    let run = Run { start: old.device, count: old.count };
    let filling = Arc::clone(&core.filling);
    let fresh = core.metadata.change(move |session| {
        // The rows around are made its own ahead of the writes to come; only those met when room is short.
        let owned = match session.spend(2 * ROW * WINDOW) {
            Ok(()) => session.own_around(key, old.first, old.end()),
            Err(_) => {
                session.spend(4 * ROW * (old.count + 1))?;
                session.own(key, old.first, old.end())
            }
        };
        session.fatal(owned)?;
        let users = session.users(run)?;
        if users.iter().all(|(_, users)| *users == 1) {
            // The others are gone: the clusters are this stream's alone.
            let own = Extent { shared: false, ..old };
            session.changed = true;
            let stored = session.replace(key, old, &[own]);
            session.fatal(stored)?;
            return Ok(None);
        }
        let runs = session.space.free.take(run.count).ok_or_else(no_space)?;
        session.changed = true;
        for run in &runs {
            filling.lock().insert(run.start);
            let stored = session.put_freed(*run);
            session.fatal(stored)?;
        }
        Ok(Some(runs))
    });
    let Some(runs) = fresh.await? else {
        stream.replace_extents(old, &[Extent { shared: false, ..old }]);
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
    let taken = new.clone();
    let _reading = core.gate.enter();
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
    stream.replace_extents(old, &new);
    core.attention.notify_one();
    Ok(())
}

impl Stream {
    /// Puts extents where `old` was, in one step.
    fn replace_extents(&self, old: Extent, new: &[Extent]) {
        let mut map = self.map.write();
        map.remove(old.first, old.end());
        new.iter().for_each(|extent| map.insert(*extent));
    }
}

/// A range of a clone: of which stream, where, and rounded to whole clusters.
struct Side<'a> {
    stream: &'a Arc<Stream>,
    first: u64,
    end: u64,
}

impl<'a> Side<'a> {
    fn new(stream: &'a Arc<Stream>, offset: u64, end: u64) -> Self {
        Self { stream, first: offset / CLUSTER, end: end.div_ceil(CLUSTER) }
    }

    /// Locks both ranges, in one order for everybody, so that two clones in opposite directions do not wait for
    /// each other.
    async fn lock_both(
        source: &Side<'a>,
        target: &Side<'a>,
        locks: fn(&Stream) -> &RangeLocks,
        unit: u64,
    ) -> (RangeGuard<'a>, Option<RangeGuard<'a>>) {
        let lock = |side: &Side<'a>| {
            locks(side.stream.as_ref()).lock(side.first * unit, (side.end - side.first) * unit)
        };
        // Of one stream a single lock over both: with the first of two, whoever waits for both of them would be waited
        // for by the second.
        if Arc::ptr_eq(source.stream, target.stream) {
            let first = source.first.min(target.first);
            let both = Side { stream: source.stream, first, end: source.end.max(target.end) };
            return (lock(&both).await, None);
        }
        let in_order = (source.stream.key, source.first) <= (target.stream.key, target.first);
        let (one, two) = if in_order { (source, target) } else { (target, source) };
        let first = lock(one).await;
        (first, Some(lock(two).await))
    }
}

/// Checks what can be checked of a clone without looking at the files.
///
/// # Errors
/// [`StoreErrorKind::InvalidArgument`].
pub(crate) fn check_ranges(
    (source, from): (FileId, u64),
    (target, to): (FileId, u64),
    len: u64,
) -> Result<(), StoreError> {
    let (from_end, to_end) = (check_range(from, len)?, check_range(to, len)?);
    if source == target && from < to_end && to < from_end {
        return Err(StoreError::new(StoreErrorKind::InvalidArgument, "source and target of a clone overlap"));
    }
    Ok(())
}

/// Makes the clusters of a range of `source` those of a range of `target` too; edges are copied.
pub(crate) async fn clone_range(
    core: &Core,
    source: &Arc<Stream>,
    from: u64,
    target: &Arc<Stream>,
    to: u64,
    len: u64,
) -> Result<(), StoreError> {
    let from_end = check_range(from, len)?;
    let to_end = check_range(to, len)?;
    let beyond =
        || StoreError::new(StoreErrorKind::InvalidArgument, "the source of a clone ends beyond its file");
    if from_end > source.size() {
        return Err(beyond());
    }
    if len == 0 {
        return Ok(());
    }
    if to_end > target.size() {
        core.registry.lock().check_resize(target.key, None)?;
    }
    let sizing = if to_end > target.size() { Some(target.sizing.lock().await) } else { None };
    let (a, b) = (Side::new(source, from, from_end), Side::new(target, to, to_end));
    // From the old end on, if it grows: what lies between becomes zero.
    let old = target.size();
    let growing = sizing.is_some() && to_end > old;
    let b = if growing { Side { first: b.first.min(old / CLUSTER), ..b } } else { b };
    let blocks = Side::lock_both(&a, &b, |stream| &stream.blocks, CLUSTER).await;
    if from_end > source.size() {
        return Err(beyond());
    }
    // What clones share must be durable before the clone is.
    core.device.flush().await?;
    if growing {
        target.zero_beyond(core, old, to).await?;
    }
    copy_or_share(core, source, from, target, to, len).await?;
    target.touch(core);
    if sizing.is_some() {
        return target.commit_size(core, to_end.max(old)).await;
    }
    // Sizing comes before blocks.
    drop(blocks);
    target.cover(core, to_end).await
}

async fn copy_or_share(
    core: &Core,
    source: &Arc<Stream>,
    from: u64,
    target: &Arc<Stream>,
    to: u64,
    len: u64,
) -> Result<(), StoreError> {
    let (from_end, to_end) = (from + len, to + len);
    let first = from.next_multiple_of(CLUSTER);
    // The last, partial cluster can be shared when it is the end of both files: nothing lies behind it.
    let ends_both = from_end == source.size() && to_end >= target.size();
    let end = if ends_both { from_end.next_multiple_of(CLUSTER) } else { from_end / CLUSTER * CLUSTER };
    if from % CLUSTER != to % CLUSTER || first >= end {
        return copy_bytes(core, source, from, target, to, len).await;
    }
    copy_bytes(core, source, from, target, to, first - from).await?;
    let moved = first - from;
    share_clusters(core, source, (first / CLUSTER, end / CLUSTER), target, (to + moved) / CLUSTER).await?;
    if end < from_end {
        let done = end - from;
        copy_bytes(core, source, end, target, to + done, len - done).await?;
    }
    Ok(())
}

async fn share_clusters(
    core: &Core,
    source: &Arc<Stream>,
    (first, end): (u64, u64),
    target: &Arc<Stream>,
    to: u64,
) -> Result<(), StoreError> {
    let a = Side { stream: source, first, end };
    let b = Side { stream: target, first: to, end: to + (end - first) };
    let _clusters = Side::lock_both(&a, &b, |stream| &stream.clusters, 1).await;
    if first == 0 && to == 0 && end >= source.size().div_ceil(CLUSTER) && source.key != target.key {
        return link_all(core, source, target, end).await;
    }
    let extents = source.map.read().meeting(first, end);
    let mut at = first;
    let mut rounds = extents.chunks(SHARES_PER_ROUND).peekable();
    while at < end {
        let round = rounds.next().unwrap_or_default();
        // Holes go along: with the extents after them, the last ones with the last round.
        let until = if rounds.peek().is_some() { round.last().map_or(end, Extent::end) } else { end };
        share_extents(core, source, (at, until), round, target, at - first + to).await?;
        at = until;
    }
    Ok(())
}

/// Gives `target` all clusters of `source`, to their end: by reference, whatever their number.
async fn link_all(
    core: &Core,
    source: &Arc<Stream>,
    target: &Arc<Stream>,
    end: u64,
) -> Result<(), StoreError> {
    let (from, to) = (source.key, target.key);
    let _reading = core.gate.enter();
    // From the end, as much at a time as what the target had takes some thousand extents: each part is the old or the new,
    // whenever the power goes.
    let mut end = end;
    loop {
        let first = target.map.read().tail(0, end, EXTENTS_PER_ROUND).unwrap_or(0);
        core.metadata
            .change(move |session| {
                let links = session.links(from, first, end)?.len() as u64;
                session.spend(4 * ROW * (links + 1))?;
                let linked = session.unmap(to, first, end).and_then(|()| session.link(from, to, first, end));
                session.fatal(linked)
            })
            .await?;
        let extents = {
            let mut map = source.map.write();
            map.share(first, end);
            map.meeting(first, end)
        };
        {
            let mut map = target.map.write();
            map.remove(first, end);
            extents.into_iter().for_each(|extent| map.insert(extent.part(first, end)));
        }
        if first == 0 {
            break;
        }
        end = first;
    }
    core.attention.notify_one();
    Ok(())
}

/// Puts the clusters `at..until` of `source`, where its map has these extents, at `to` of `target` too.
async fn share_extents(
    core: &Core,
    source: &Arc<Stream>,
    (at, until): (u64, u64),
    extents: &[Extent],
    target: &Arc<Stream>,
    to: u64,
) -> Result<(), StoreError> {
    let to_end = to + (until - at);
    let shared: Vec<Extent> = extents.iter().map(|extent| Extent { shared: true, ..*extent }).collect();
    let moved: Vec<Extent> = shared.iter().map(|e| Extent { first: e.first - at + to, ..*e }).collect();
    let (from_key, to_key) = (source.key, target.key);
    let (stored_source, stored_target) = (shared.clone(), moved.clone());
    let _reading = core.gate.enter();
    core.metadata
        .change(move |session| {
            for extent in &stored_source {
                session.may_share(Run { start: extent.device, count: extent.count })?;
            }
            session.spend(3 * ROW * (stored_source.len() + 1) as u64)?;
            session.changed = true;
            let result = (|| {
                session.unmap(to_key, to, to_end)?;
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
    {
        let mut map = target.map.write();
        map.remove(to, to_end);
        moved.into_iter().for_each(|extent| map.insert(extent));
    }
    core.attention.notify_one();
    Ok(())
}
