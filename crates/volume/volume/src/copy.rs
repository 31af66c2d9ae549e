//! Clusters are shared by clone.

use std::sync::Arc;

use file_store::{FileId, QuotaMode, StoreError, StoreErrorKind};
use shard_runtime::{RangeGuard, RangeLocks};
use volume_format::CLUSTER;

use crate::ahead::Clusters;
use crate::background::EXTENTS_PER_ROUND;
use crate::clusters::ROW;
use crate::core::Core;
use crate::data_path::copy_bytes;
use crate::extents::Extent;
use crate::free::Run;
use crate::stream::{Stream, check_range};

/// Extents shared in one transaction, so that others do not wait long for theirs.
const SHARES_PER_ROUND: usize = 1024;

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
    let sizing = if to_end > target.size() { Some(target.sizing.lock().await) } else { None };
    let (a, b) = (Side::new(source, from, from_end), Side::new(target, to, to_end));
    // From the old end on, if it grows: what lies between becomes zero.
    let old = target.size();
    let growing = sizing.is_some() && to_end > old;
    if growing {
        target.may_resize(core, None)?;
    }
    let b = if growing { Side { first: b.first.min(old / CLUSTER), ..b } } else { b };
    let blocks = Side::lock_both(&a, &b, |stream| &stream.blocks, CLUSTER).await;
    if from_end > source.size() {
        return Err(beyond());
    }
    // Before anything is done by halves. Each step is checked again: the owner may get more meanwhile.
    let (from_key, to_key) = (source.key, target.key);
    let (first, last, at) = (from / CLUSTER, from_end.div_ceil(CLUSTER), to / CLUSTER);
    if core.quota_mode.get() != QuotaMode::Off {
        core.metadata.look(move |session| session.may_clone(from_key, (first, last), to_key, at)).await?;
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
    // What is ahead of a writer there is nobody's data, and both would have it for good.
    source.give_back_locked(core, (first / CLUSTER, end / CLUSTER)).await?;
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

/// Runs a change that puts other clusters into a range of a stream, whose blocks and clusters are locked. What was mapped ahead there
/// goes, and what comes is used; where the change is refused, all is as before.
async fn in_place_of_ahead(
    core: &Core,
    target: &Stream,
    (first, end): Clusters,
    change: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    let kept = target.ahead.keep(first, end);
    change.await.inspect_err(|_| target.ahead.add(&kept, core.clock.now()))
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
        let linked = core.metadata.change(move |session| {
            let links = session.links(from, first, end)?.len() as u64;
            session.spend(4 * ROW * (links + 1))?;
            session.may_clone(from, (first, end), to, first)?;
            let linked = session.unmap(to, first, end).and_then(|()| session.link(from, to, first, end));
            session.fatal(linked)
        });
        in_place_of_ahead(core, target, (first, end), linked).await?;
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
    let stored = core.metadata.change(move |session| {
        for extent in &stored_source {
            session.may_share(Run { start: extent.device, count: extent.count })?;
        }
        session.spend(3 * ROW * (stored_source.len() + 1) as u64)?;
        session.may_clone(from_key, (at, until), to_key, to)?;
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
    });
    in_place_of_ahead(core, target, (to, to_end), stored).await?;
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
