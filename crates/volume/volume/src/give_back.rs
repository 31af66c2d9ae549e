//! What was mapped ahead and not used is given back.
//!
//! ```text
//!   it has rested (`ahead.rs`), with the file open     the background task, blocks locked
//!   the last user of the file goes                     a job of the metadata thread, which alone lets another one come
//!   the volume is closed                               the same
//!   a crash                                            the next opening's background task: rows of `state` say where it may be;
//!                                                      what reads as zeros is given back, in parts, blocks locked
//! ```

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use file_store::{StoreError, StoreErrorKind};
use redb::ReadableTable;
use volume_format::CLUSTER;

use crate::ahead::{Clusters, Leftover};
use crate::background::is_due;
use crate::clusters::ROW;
use crate::core::Core;
use crate::database_error::database_error;
use crate::extents::END;
use crate::leftovers::{RANGES_MAX, TABLE, decode, encode, key_of, within, without};
use crate::pin::Pin;
use crate::session::Session;
use crate::stream::Stream;
use crate::tables::{STATE, StreamKey};

/// Clusters that are read at once: 1 MiB.
const PIECE: u64 = 16;
/// How often streams are looked through for what rests unused, at most.
const LOOK: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Says in the database what is about to be mapped ahead of need.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn record_ahead(&mut self, stream: StreamKey, ranges: &[Clusters]) -> Result<(), StoreError> {
        self.spend(ROW + 16 * ranges.len().min(RANGES_MAX) as u64)?;
        let stored = self.put_ahead(stream, ranges);
        self.fatal(stored)
    }

    /// What the row of a stream says without `first..end`, if that is less than it says now; with room for that.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn row_without(
        &mut self,
        stream: StreamKey,
        first: u64,
        end: u64,
    ) -> Result<Option<Vec<Clusters>>, StoreError> {
        let (key, row) = (key_of(stream), {
            let rows = self.txn.open_table(STATE).map_err(database_error)?;
            let row = rows.get((TABLE, key_of(stream).as_slice())).map_err(database_error)?;
            row.map(|row| row.value().to_vec())
        });
        let Some((_, ranges)) = row.and_then(|row| decode(&key, &row)) else { return Ok(None) };
        if within(&ranges, (first, end)).is_empty() {
            return Ok(None);
        }
        let rest = without(&ranges, (first, end));
        self.spend_to_cut(ROW + 16 * rest.len() as u64)?;
        Ok(Some(rest))
    }

    /// Puts the row of a stream; takes it away where nothing is ahead of need any more.
    pub(crate) fn put_ahead(&mut self, stream: StreamKey, ranges: &[Clusters]) -> Result<(), StoreError> {
        let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
        let key = key_of(stream);
        let key = (TABLE, key.as_slice());
        self.changed |= if ranges.is_empty() {
            rows.remove(key).map_err(database_error)?.is_some()
        } else {
            rows.insert(key, encode(ranges).as_slice()).map_err(database_error)?;
            true
        };
        Ok(())
    }

    /// For all streams of a file that goes: nothing is ahead of need any more.
    pub(crate) fn forget_all_ahead(&mut self, file: u64) -> Result<(), StoreError> {
        let (from, to) = (key_of((file, 0)), key_of((file, u32::MAX)));
        let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
        rows.remove_range((TABLE, from.as_slice())..=(TABLE, to.as_slice())).map_err(database_error)
    }

    /// Gives back what was unused in a stream that nobody has in memory. What there is no room for is left to the background task.
    pub(crate) fn give_back_ahead(
        &mut self,
        core: &Core,
        stream: StreamKey,
        left: &Leftover,
    ) -> Result<(), StoreError> {
        for (at, (first, end)) in left.unused.iter().enumerate() {
            if self.spend_to_cut(4 * ROW).is_err() {
                core.leftovers.lock().add(stream, &left.unused[at..]);
                return Ok(());
            }
            self.unmap(stream, *first, *end)?;
        }
        let row = core.leftovers.lock().of(stream);
        let stored = self.put_ahead(stream, &row);
        self.fatal(stored)
    }

    /// Gives back what is unused in a stream in memory, before others get what it has: nothing is written meanwhile, and should the
    /// transaction fail, the volume stops. What there is no room for stays.
    pub(crate) fn give_up_ahead(&mut self, stream: &Stream) -> Result<(), StoreError> {
        for (first, end) in stream.ahead.unused_in(0, END) {
            if self.spend_to_cut(4 * ROW).is_err() {
                return Ok(());
            }
            self.unmap(stream.key, first, end)?;
            stream.ahead.forget(first, end);
            stream.map.write().remove(first, end);
        }
        Ok(())
    }

    /// One more user of a stream, by its number; `None` where there is none.
    fn pin_by_number(&self, core: &Arc<Core>, (file, stream): StreamKey) -> Result<Option<Pin>, StoreError> {
        if !self.has_inode(file)? {
            return Ok(None);
        }
        let inode = self.inode(file)?;
        let record = inode.streams.iter().find(|record| record.id == stream);
        record.map(|record| self.pin(core, file, record)).transpose()
    }
}

impl Stream {
    /// Gives back what of `first..end` is unused, for anybody to have.
    async fn give_back(&self, core: &Core, (first, end): Clusters) -> Result<(), StoreError> {
        let _blocks = self.lock_blocks(first * CLUSTER, end * CLUSTER).await;
        // Looked at under the lock: whoever held it before may have written to them.
        for (first, end) in self.ahead.unused_in(first, end) {
            self.drop_clusters(core, first, end, true).await?;
        }
        Ok(())
    }

    /// Gives back what of `first..end` is unused, as far as there is room for that. The blocks are locked.
    pub(crate) async fn give_back_locked(
        &self,
        core: &Core,
        (first, end): Clusters,
    ) -> Result<(), StoreError> {
        for (first, end) in self.ahead.unused_in(first, end) {
            match self.drop_clusters(core, first, end, true).await {
                Err(error) if error.kind() == StoreErrorKind::NoSpace => return Ok(()),
                dropped => dropped?,
            }
        }
        Ok(())
    }

    /// Gives back what of a piece was mapped, may be unused, and reads as zeros, which it does afterwards, too.
    async fn give_back_zeros(&self, core: &Core, (first, end): Clusters) -> Result<(), StoreError> {
        let _blocks = self.lock_blocks(first * CLUSTER, end * CLUSTER).await;
        // Looked at under the lock: whoever held it before may have reserved some.
        let ranges = core.leftovers.lock().within(self.key, (first, end));
        let met = {
            let map = self.map.read();
            ranges.into_iter().flat_map(|(first, end)| map.meeting(first, end)).collect::<Vec<_>>()
        };
        for extent in met {
            let len = (extent.count * CLUSTER) as usize;
            let bytes = self.read_mapped(core, extent.first * CLUSTER, IoBuf::new(len)).await?;
            let mut zero_from = None;
            for (at, cluster) in (extent.first..).zip(bytes.chunks(CLUSTER as usize)) {
                let is_zero = cluster.iter().all(|byte| *byte == 0);
                if is_zero {
                    zero_from.get_or_insert(at);
                } else if let Some(from) = zero_from.take() {
                    self.drop_clusters(core, from, at, true).await?;
                }
            }
            if let Some(from) = zero_from {
                self.drop_clusters(core, from, extent.end(), true).await?;
            }
        }
        Ok(())
    }
}

impl Core {
    /// Gives back what is unused in streams that are in use, where it rests.
    pub(crate) async fn give_back_resting(self: &Arc<Self>) -> Result<(), StoreError> {
        let now = self.clock.now();
        if !is_due(&self.looked_for_resting, now, LOOK) {
            return Ok(());
        }
        let streams = self.registry.lock().streams_ahead();
        for stream in streams {
            let resting = stream.ahead.resting(now);
            if resting.is_empty() && !stream.ahead.is_outdated() {
                continue;
            }
            // In use until this has ended: so nobody else brings it into memory meanwhile.
            let Some(stream) = self.registry.lock().pin(stream.key) else { continue };
            let pin = Pin::new(Arc::clone(self), stream);
            let stream = pin.stream();
            let _operation = self.begin()?;
            let _changing = self.pause.read().await;
            for range in resting {
                stream.give_back(self, range).await?;
            }
            self.forget_row(stream).await?;
        }
        Ok(())
    }

    /// Takes the row of a stream away in which nothing is unused any more.
    async fn forget_row(&self, stream: &Stream) -> Result<(), StoreError> {
        // Windows are mapped, and recorded, under this lock.
        let _clusters = stream.clusters.lock(0, END).await;
        if stream.ahead.is_outdated() {
            let key = stream.key;
            let row = self.leftovers.lock().of(key);
            let forgotten = self.metadata.change(move |session| {
                let forgotten = session.put_ahead(key, &row);
                session.fatal(forgotten)
            });
            forgotten.await?;
            stream.ahead.unrecorded();
        }
        Ok(())
    }

    /// Gives back what was unused in a stream when its last user left it, unless somebody has come for it since.
    pub(crate) fn give_back_later(self: &Arc<Self>, key: StreamKey) {
        let core = Arc::clone(self);
        self.metadata.submit(move |session| {
            // Streams come into memory on this thread only, and take this with them.
            let Some(left) = core.registry.lock().take_leftover(key) else { return Ok(()) };
            let given = session.give_back_ahead(&core, key, &left);
            session.fatal(given)?;
            core.attention.notify_one();
            Ok(())
        });
    }

    /// As [`Core::give_back_later`], at the end: nobody works with any stream any more.
    pub(crate) async fn give_back_everything(self: &Arc<Self>) -> Result<(), StoreError> {
        let streams = self.registry.lock().streams();
        let left: Vec<(StreamKey, Leftover)> = streams
            .iter()
            .map(|stream| (stream.key, stream.ahead.take()))
            .filter(|(_, left)| !left.is_empty())
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let core = Arc::clone(self);
        let given = self.metadata.change(move |session| {
            let given = left.iter().try_for_each(|(key, left)| session.give_back_ahead(&core, *key, left));
            session.fatal(given)
        });
        given.await
    }

    /// Gives back what may have been ahead of need, and nobody knows: one stream's. Whether there may be more.
    ///
    /// # Errors
    /// When that fails. It is tried again after the others.
    pub(crate) async fn give_back_of_last_time(self: &Arc<Self>) -> Result<bool, StoreError> {
        let Some((key, ranges)) = self.leftovers.lock().next() else { return Ok(false) };
        let core = Arc::clone(self);
        let pinned = self.metadata.look(move |session| session.pin_by_number(&core, key)).await;
        if matches!(&pinned, Err(error) if error.kind() == StoreErrorKind::Corrupt) {
            // A check says what is wrong with it.
            self.leftovers.lock().done(key);
        }
        let pin = pinned?;
        if let Some(pin) = &pin {
            for (first, end) in ranges {
                for from in (first..end).step_by(PIECE as usize) {
                    let _operation = self.begin()?;
                    let _changing = self.pause.read().await;
                    pin.stream().give_back_zeros(self, (from, end.min(from + PIECE))).await?;
                }
            }
        }
        self.leftovers.lock().done(key);
        let forgotten = self.metadata.change(move |session| {
            // What has been mapped ahead since is recorded anew.
            if pin.as_ref().is_none_or(|pin| !pin.stream().ahead.is_recorded()) {
                let forgotten = session.put_ahead(key, &[]);
                session.fatal(forgotten)?;
            }
            Ok(pin)
        });
        drop(forgotten.await?);
        Ok(true)
    }
}
