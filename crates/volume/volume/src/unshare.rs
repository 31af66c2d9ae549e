//! Clusters with several users are replaced before a write.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::StoreError;
use futures_util::future::{join_all, try_join_all};
use volume_format::CLUSTER;

use crate::ahead::Clusters;
use crate::clusters::ROW;
use crate::core::Core;
use crate::extents::{Extent, ExtentMap};
use crate::free::Run;
use crate::links::WINDOW;
use crate::stream::Stream;

/// Clusters copied together: 1 MiB, so that a small write to a large shared extent copies little.
const COPY_MAX: u64 = 16;

/// What is written to clusters that are replaced: whole blocks from an offset in the stream on, which are locked. Only what lies
/// around them is copied.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) offset: u64,
    pub(crate) data: SharedBuf,
}

impl Written {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// Gives the stream clusters of its own in `first..last`, with what is `written` in them; the clusters that hold it, in
/// order. Others were the stream's own, and are to be written. Blocks of each of them are locked by the caller, but perhaps not
/// all: another write may be at work in the same clusters, or come for the same reason.
///
/// New clusters are *freed* in the database while they are filled: a crash before the exchange leaves them to
/// be zeroed again, so what was copied is never anybody's stale data.
pub(crate) async fn unshare(
    stream: &Stream,
    core: &Core,
    (first, last): Clusters,
    written: Option<&Written>,
) -> Result<Vec<Clusters>, StoreError> {
    let _clusters = stream.clusters.lock(first, last - first).await;
    // Looked at under the lock: whoever held it before may have replaced them, and written to them since.
    let met = stream.map.read().meeting(first, last);
    let mut replaced = Vec::new();
    for extent in met.into_iter().filter(|extent| extent.shared) {
        let mut at = extent.first;
        while at < extent.end() {
            let end = (at + COPY_MAX).min(extent.end());
            if unshare_part(stream, core, extent.part(at, end), written).await? {
                replaced.push((at, end));
            }
            at = end;
        }
    }
    Ok(replaced)
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

/// Fills new clusters: with what is written there, and what the old ones have around it.
async fn fill(core: &Core, old: Extent, new: Extent, written: Option<&Written>) -> Result<(), StoreError> {
    let (from, to) = (new.first * CLUSTER, new.end() * CLUSTER);
    let here = written.map(|written| (written.offset.max(from), written.end().min(to), written));
    let old_at = |at: u64| core.at(old.device * CLUSTER + (at - old.first * CLUSTER));
    let data = match here.filter(|(begin, end, _)| begin < end) {
        Some((begin, end, written)) => {
            let at = (begin - written.offset) as usize;
            let part = written.data.slice(at..at + (end - begin) as usize);
            if (begin, end) == (from, to) {
                part
            } else {
                let around = [(from, begin), (end, to)].map(|(from, to)| async move {
                    if from == to {
                        return Ok(IoBuf::new(0));
                    }
                    core.device.read(old_at(from), IoBuf::new((to - from) as usize)).await
                });
                let around = try_join_all(around).await?;
                let mut whole = IoBuf::new((to - from) as usize);
                let (head, rest) = whole.split_at_mut((begin - from) as usize);
                let (middle, tail) = rest.split_at_mut((end - begin) as usize);
                head.copy_from_slice(&around[0]);
                middle.copy_from_slice(&part);
                tail.copy_from_slice(&around[1]);
                whole.freeze()
            }
        }
        None => core.device.read(old_at(from), IoBuf::new((to - from) as usize)).await?.freeze(),
    };
    // Durable before the exchange: what is told of what was there before is not lost with it.
    Ok(core.device.write(core.at(new.device * CLUSTER), data, Durability::Durable).await?)
}

/// Replaces one extent, whose clusters are locked; whether it was: not if nobody else has them any more.
async fn unshare_part(
    stream: &Stream,
    core: &Core,
    old: Extent,
    written: Option<&Written>,
) -> Result<bool, StoreError> {
    let key = stream.key;
    let run = Run { start: old.device, count: old.count };
    let (filling, now) = (Arc::clone(&core.filling), core.clock.now());
    let fresh = core.metadata.change(move |session| {
        // The rows around are made its own ahead of the writes to come; only those met when room is short. Mostly all of them are.
        let linked = session.is_linked_around(key, old.first, old.end());
        let owned = if session.fatal(linked)? && session.spend(2 * ROW * WINDOW).is_ok() {
            session.own_around(key, old.first, old.end())
        } else {
            session.spend(4 * ROW * (old.count + 1))?;
            session.own(key, old.first, old.end())
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
        session.lend(run.count, &filling, now).map(Some)
    });
    let Some(runs) = fresh.await? else {
        stream.replace_extents(old, &[Extent { shared: false, ..old }]);
        return Ok(false);
    };
    let _filling = Filling { core, runs: runs.clone() };
    let mut new = Vec::new();
    let mut at = old.first;
    for run in &runs {
        new.push(Extent { first: at, count: run.count, device: run.start, shared: false });
        at += run.count;
    }
    // What is lent lies in single clusters, which may follow one another.
    let mut joined = ExtentMap::default();
    new.iter().for_each(|extent| joined.insert(*extent));
    let new = joined.meeting(old.first, old.end());
    // All end before the first error is told: nothing is written to them afterwards.
    let fills = join_all(new.iter().map(|new| fill(core, old, *new, written))).await;
    fills.into_iter().collect::<Result<(), StoreError>>()?;
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
    Ok(true)
}

impl Stream {
    /// Puts extents where `old` was, in one step.
    fn replace_extents(&self, old: Extent, new: &[Extent]) {
        let mut map = self.map.write();
        map.remove(old.first, old.end());
        new.iter().for_each(|extent| map.insert(*extent));
    }
}
