//! What was mapped ahead and not used is given back.
//!
//! ```text
//!   it has rested (`ahead.rs`), with the file open     the background task, blocks locked
//!   the last user of the file goes                     a job of the metadata thread, which alone lets another one come
//!   the volume is closed                               the same
//!   a crash                                            the next opening's background task: rows of `state` say where it may be;
//!                                                      what reads as zeros is given back, in parts, blocks locked
//! ```
//! A row is written with each window, in the same batch, and is not changed when the window is used: so it names all that may be
//! unused, and more. It has at most [`RANGES_MAX`] ranges, and [`CLUSTERS_MAX`] clusters count, so what an opening reads is
//! bounded by the number of streams that had space ahead of them at the crash.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::StoreError;
use redb::ReadableTable;
use volume_format::CLUSTER;

use crate::ahead::{Clusters, Leftover};
use crate::clusters::{ROW, StreamKey};
use crate::core::Core;
use crate::database::{Session, database_error};
use crate::links::END;
use crate::registry::Pin;
use crate::stream::Stream;
use crate::tables::STATE;

/// The rows' table in `state`. Those of the layers above have names of their own, without a slash.
const TABLE: &str = "volume/ahead";
/// Ranges in a row; others stay mapped after a crash.
const RANGES_MAX: usize = 64;
/// Clusters of a row that are looked at after a crash: 128 MiB.
const CLUSTERS_MAX: u64 = 2048;
/// Rows that are looked at after a crash; others have their turn at the next opening.
const ROWS_MAX: usize = 4096;
/// Clusters that are read at once: 1 MiB.
const PIECE: u64 = 16;

/// A stream, and where some of its space may be unused.
pub(crate) type AheadRow = (StreamKey, Vec<Clusters>);

fn key_of((file, stream): StreamKey) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&file.to_be_bytes());
    key[8..].copy_from_slice(&stream.to_be_bytes());
    key
}

fn encode(ranges: &[Clusters]) -> Vec<u8> {
    let mut longest = ranges.to_vec();
    longest.sort_by_key(|(first, end)| std::cmp::Reverse(end - first));
    longest.truncate(RANGES_MAX);
    longest.iter().flat_map(|(first, end)| [first.to_le_bytes(), end.to_le_bytes()]).flatten().collect()
}

/// A row of the disk, as far as it can be one.
fn decode(key: &[u8], value: &[u8]) -> Option<AheadRow> {
    let (file, stream) = key.split_first_chunk::<8>()?;
    let stream: [u8; 4] = stream.try_into().ok()?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let (mut ranges, mut left) = (Vec::new(), CLUSTERS_MAX);
    for range in value.chunks_exact(16).take(RANGES_MAX) {
        let (first, end) = (number(&range[..8]), number(&range[8..]).min(END));
        let end = end.min(first.saturating_add(left));
        if first < end {
            left -= end - first;
            ranges.push((first, end));
        }
    }
    Some(((u64::from_be_bytes(*file), u32::from_be_bytes(stream)), ranges))
}

impl Session<'_> {
    /// Says in the database what is about to be mapped ahead of need.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn record_ahead(&mut self, stream: StreamKey, ranges: &[Clusters]) -> Result<(), StoreError> {
        let value = encode(ranges);
        self.spend(ROW + value.len() as u64)?;
        self.changed = true;
        let stored = (|| {
            let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
            rows.insert((TABLE, key_of(stream).as_slice()), value.as_slice()).map_err(database_error)?;
            Ok(())
        })();
        self.fatal(stored)
    }

    /// Nothing is ahead of need in a stream any more, or nobody knows of it.
    pub(crate) fn forget_ahead(&mut self, stream: StreamKey) -> Result<(), StoreError> {
        let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
        let gone = rows.remove((TABLE, key_of(stream).as_slice())).map_err(database_error)?.is_some();
        self.changed |= gone;
        Ok(())
    }

    /// As [`Session::forget_ahead`], for all streams of a file that goes.
    pub(crate) fn forget_all_ahead(&mut self, file: u64) -> Result<(), StoreError> {
        let (from, to) = (key_of((file, 0)), key_of((file, u32::MAX)));
        let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
        rows.remove_range((TABLE, from.as_slice())..=(TABLE, to.as_slice())).map_err(database_error)
    }

    /// Gives back what was unused in a stream that nobody has in memory; nothing where there is no room to say so.
    fn give_back_ahead(&mut self, stream: StreamKey, left: &Leftover) -> Result<(), StoreError> {
        for (first, end) in &left.unused {
            if self.spend_to_cut(4 * ROW).is_err() {
                return Ok(());
            }
            self.unmap(stream, *first, *end)?;
        }
        let forgotten = self.forget_ahead(stream);
        self.fatal(forgotten)
    }

    /// Streams of which some space may have been mapped ahead when the volume was last in use.
    fn rows_of_ahead(&self) -> Result<Vec<AheadRow>, StoreError> {
        let rows = self.txn.open_table(STATE).map_err(database_error)?;
        let mut found = Vec::new();
        for row in rows.range((TABLE, [].as_slice())..).map_err(database_error)?.take(ROWS_MAX) {
            let (key, value) = row.map_err(database_error)?;
            let (table, key) = key.value();
            if table != TABLE {
                break;
            }
            found.extend(decode(key, value.value()));
        }
        Ok(found)
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

    /// Gives back what of a piece was mapped and reads as zeros, which it does afterwards, too.
    async fn give_back_zeros(&self, core: &Core, (first, end): Clusters) -> Result<(), StoreError> {
        let _blocks = self.lock_blocks(first * CLUSTER, end * CLUSTER).await;
        let met = self.map.read().meeting(first, end);
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
        let streams = self.registry.lock().streams();
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
            let forgotten = self.metadata.change(move |session| {
                let forgotten = session.forget_ahead(key);
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
            let given = session.give_back_ahead(key, &left);
            session.fatal(given)?;
            core.attention.notify_one();
            Ok(())
        });
    }

    /// As [`Core::give_back_later`], at the end: nobody works with any stream any more.
    pub(crate) async fn give_back_everything(&self) -> Result<(), StoreError> {
        let streams = self.registry.lock().streams();
        let left: Vec<(StreamKey, Leftover)> = streams
            .iter()
            .map(|stream| (stream.key, stream.ahead.take()))
            .filter(|(_, left)| !left.is_empty())
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let given = self.metadata.change(move |session| {
            let given = left.iter().try_for_each(|(key, left)| session.give_back_ahead(*key, left));
            session.fatal(given)
        });
        given.await
    }

    /// Gives back what was ahead of need when the volume was last in use, and did not come to be closed: one stream's. Whether
    /// there may be more.
    pub(crate) async fn give_back_of_last_time(self: &Arc<Self>) -> Result<bool, StoreError> {
        let known = self.leftovers.lock().take();
        let mut rows = match known {
            Some(rows) => rows,
            None => self.metadata.look(|session| session.rows_of_ahead()).await?,
        };
        let Some((key, ranges)) = rows.pop() else {
            *self.leftovers.lock() = Some(rows);
            return Ok(false);
        };
        *self.leftovers.lock() = Some(rows);
        let core = Arc::clone(self);
        let pin = self.metadata.look(move |session| session.pin_by_number(&core, key)).await?;
        if let Some(pin) = &pin {
            for (first, end) in ranges {
                for from in (first..end).step_by(PIECE as usize) {
                    let _operation = self.begin()?;
                    let _changing = self.pause.read().await;
                    pin.stream().give_back_zeros(self, (from, end.min(from + PIECE))).await?;
                }
            }
        }
        let forgotten = self.metadata.change(move |session| {
            // What has been mapped ahead since is recorded anew.
            if pin.as_ref().is_none_or(|pin| !pin.stream().ahead.is_recorded()) {
                let forgotten = session.forget_ahead(key);
                session.fatal(forgotten)?;
            }
            Ok(pin)
        });
        drop(forgotten.await?);
        Ok(true)
    }
}
