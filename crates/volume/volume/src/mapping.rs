//! The data path of a stream, continued: clusters for what has none, when it is written or before.

use std::sync::Arc;

use block_device::Durability;
use file_store::StoreError;
use volume_format::CLUSTER;

use crate::ahead::Clusters;
use crate::core::Core;
use crate::extents::Extent;
use crate::lending::FEW;
use crate::pin::Pin;
use crate::session::Session;
use crate::stream::Stream;
use crate::tables::StreamKey;
use crate::unshare::Written;

/// Space is mapped ahead of need only while a part like this of what is free is more than it takes: what is short is for those
/// who need it now.
const FREE_PART: u64 = 16;

fn count(holes: &[(u64, u64)]) -> u64 {
    holes.iter().map(|(_, count)| count).sum()
}

impl Session<'_> {
    /// Maps the holes that are `needed`, and ahead of them the hole `window`, if there is plenty of room; whether there was.
    fn map_ahead(
        &mut self,
        stream: StreamKey,
        needed: &[(u64, u64)],
        window: (u64, u64),
        record: &[Clusters],
    ) -> Result<(Vec<Extent>, bool), StoreError> {
        // The same of what the owner may have: other files of its need it, too.
        let room = self.space.free.total().min(self.left_for(stream.0)?);
        let plenty = window.1 > 0 && room / FREE_PART >= window.1;
        if plenty && self.record_ahead(stream, record).is_ok() {
            let mut all = needed.to_vec();
            all.push(window);
            all.sort_unstable();
            if let Ok(mapped) = self.map(stream, &all) {
                return Ok((mapped, true));
            }
        }
        if needed.is_empty() {
            return Ok((Vec::new(), false));
        }
        Ok((self.map(stream, needed)?, false))
    }
}

impl Stream {
    /// Maps the holes of a range of whole blocks, which are locked, and replaces its shared clusters; which of them have what is
    /// `written` there. All others of the range are to be written. The holes that it maps are `now_mapped`.
    pub(crate) async fn make_writable(
        &self,
        core: &Core,
        written: &Written,
        lends: bool,
        now_mapped: &mut Vec<Clusters>,
    ) -> Result<Vec<Clusters>, StoreError> {
        let (offset, end) = (written.offset, written.offset + written.data.len() as u64);
        let (first, last) = (offset / CLUSTER, end.div_ceil(CLUSTER));
        let (mapped, shared) = self.map.read().covers(first, last);
        if !mapped {
            *now_mapped = self.map_needed(core, (first, last), lends).await?;
        }
        let mut replaced = Vec::new();
        if shared {
            replaced = crate::unshare::unshare(self, core, (first, last), Some(written)).await?;
        }
        // From here on they are not given back, as their blocks are locked until they are written. A stream without any pays nothing.
        if self.ahead.clusters() > 0 {
            self.ahead.write(first, last, self.size().div_ceil(CLUSTER), core.clock.now());
        }
        Ok(replaced)
    }

    /// Maps the holes of `first..last`, and returns them; where writes go on one behind the other, what comes next, too. If it `lends`,
    /// a few of them get clusters that are ready, and wait for no disk.
    async fn map_needed(
        &self,
        core: &Core,
        (first, last): Clusters,
        lends: bool,
    ) -> Result<Vec<Clusters>, StoreError> {
        let window = self.ahead.plan(first, last, self.size().div_ceil(CLUSTER));
        let end = window.map_or(last, |(_, to)| to.max(last));
        let _clusters = self.clusters.lock(first, end - first).await;
        let needed = self.map.read().holes(first, last);
        let holes = needed.iter().map(|(first, count)| (*first, first + count)).collect();
        if lends && window.is_none() && (1..=FEW).contains(&count(&needed)) {
            let (key, filling, now) = (self.key, Arc::clone(&core.filling), core.clock.now());
            let wanted = needed.clone();
            let mapped = core.metadata.change_as(Durability::Volatile, move |session| {
                session.map_lent(key, &wanted, &filling, now)
            });
            if let Some(extents) = mapped.await? {
                // Before anybody can find them in the map, and write.
                self.stands_on_changes(core);
                self.put_extents(&extents);
                return Ok(holes);
            }
        }
        self.map_holes(core, needed, window).await?;
        Ok(holes)
    }

    /// Maps a window that nobody waits for.
    pub(crate) async fn map_window(&self, core: &Core, window: Clusters) -> Result<(), StoreError> {
        let _clusters = self.clusters.lock(window.0, window.1 - window.0).await;
        self.map_holes(core, Vec::new(), Some(window)).await
    }

    /// Maps the holes that are `needed`, and of a window its first hole: others behind it are there because somebody punched them,
    /// or will be met when they are needed. All of their clusters are locked.
    async fn map_holes(
        &self,
        core: &Core,
        needed: Vec<(u64, u64)>,
        window: Option<Clusters>,
    ) -> Result<(), StoreError> {
        let window = window.and_then(|(from, to)| self.map.read().holes(from, to).first().copied());
        let key = self.key;
        let Some((from, len)) = window else {
            // Whoever held the lock before may have mapped them.
            if !needed.is_empty() {
                let mapped = core.metadata.map(move |session| session.map(key, &needed)).await?;
                self.put_extents(&mapped);
            }
            return Ok(());
        };
        let ahead = (from, from + len);
        let mut record = self.ahead.record(ahead);
        // There is one row for both.
        record.extend(core.leftovers.lock().of(key));
        debug_assert!(count(&needed) == 0 || needed.iter().all(|(first, count)| first + count <= from));
        let mapped = core.metadata.map(move |session| session.map_ahead(key, &needed, (from, len), &record));
        let mapped = mapped.await;
        if matches!(&mapped, Ok((_, true))) {
            // Before anybody can find them in the map, and write.
            self.ahead.add(&[ahead], core.clock.now());
        }
        self.ahead.arrived(ahead);
        self.put_extents(&mapped?.0);
        Ok(())
    }
}

/// Has what is due ahead of a writer mapped, without anybody waiting.
pub(crate) fn map_what_is_due(pin: &Arc<Pin>) {
    let windows = pin.stream().ahead.wanted();
    if windows.is_empty() {
        return;
    }
    let pin = Arc::clone(pin);
    shard_runtime::detach(async move {
        let core = Arc::clone(pin.core());
        let Ok(_operation) = core.begin() else { return };
        let _changing = core.pause.read().await;
        for window in windows {
            // What fails here, whoever needs the space is told.
            let _ = pin.stream().map_window(&core, window).await;
        }
    });
}
