//! Where space may be unused that was mapped ahead, as the database has it: rows of `state`, for the next opening.
//!
//! A row is written with each window, in the same batch, and is not changed when the window is used: so it names what may be unused,
//! and more. It has at most [`RANGES_MAX`] ranges, the longest, and [`CLUSTERS_MAX`] clusters count, so what an opening reads is
//! bounded by the number of streams that had space ahead of them at the crash. What is reserved there is taken out, in the batch that
//! reserves it. What of a crash has not been looked at when a snapshot or clone is made, that keeps.

use std::collections::BTreeMap;
use std::ops::Bound;

use file_store::StoreError;
use redb::{ReadableTable, WriteTransaction};

use crate::ahead::Clusters;
use crate::database_error::database_error;
use crate::extents::END;
use crate::tables::{STATE, StreamKey};

/// The rows' table in `state`. Those of the layers above have names of their own, without a slash.
pub(crate) const TABLE: &str = "volume/ahead";
/// Ranges in a row; others stay mapped after a crash.
pub(crate) const RANGES_MAX: usize = 64;
/// Clusters of a row that are looked at after a crash: 128 MiB.
const CLUSTERS_MAX: u64 = 2048;
/// Rows that are looked at after a crash; others have their turn at the next opening.
const ROWS_MAX: usize = 4096;

/// A stream, and where some of its space may be unused.
pub(crate) type AheadRow = (StreamKey, Vec<Clusters>);

pub(crate) fn key_of((file, stream): StreamKey) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&file.to_be_bytes());
    key[8..].copy_from_slice(&stream.to_be_bytes());
    key
}

pub(crate) fn encode(ranges: &[Clusters]) -> Vec<u8> {
    let mut longest = ranges.to_vec();
    longest.sort_by_key(|(first, end)| std::cmp::Reverse(end - first));
    longest.truncate(RANGES_MAX);
    longest.iter().flat_map(|(first, end)| [first.to_le_bytes(), end.to_le_bytes()]).flatten().collect()
}

/// A row of the disk, as far as it can be one.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<AheadRow> {
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

/// What of `ranges` lies outside of `first..end`.
pub(crate) fn without(ranges: &[Clusters], (first, end): Clusters) -> Vec<Clusters> {
    let parts = ranges.iter().flat_map(|(from, to)| [(*from, (*to).min(first)), ((*from).max(end), *to)]);
    parts.filter(|(from, to)| from < to).collect()
}

/// What of `ranges` lies in `first..end`.
pub(crate) fn within(ranges: &[Clusters], (first, end): Clusters) -> Vec<Clusters> {
    let parts = ranges.iter().map(|(from, to)| ((*from).max(first), (*to).min(end)));
    parts.filter(|(from, to)| from < to).collect()
}

/// Space of streams that may be unused, and nobody knows: of those that were not closed before a crash, and of those for which there
/// was no room when they were. What is asked for in the meantime goes from it: the blocks of whoever does that are locked.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    rows: BTreeMap<StreamKey, Vec<Clusters>>,
    /// The one that was tried last.
    tried: StreamKey,
}

impl Leftovers {
    /// What the rows of the database say at an opening.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn read(txn: &WriteTransaction) -> Result<Self, StoreError> {
        let table = txn.open_table(STATE.definition).map_err(database_error)?;
        let mut rows = BTreeMap::new();
        for row in table.range((TABLE, [].as_slice())..).map_err(database_error)?.take(ROWS_MAX) {
            let (key, value) = row.map_err(database_error)?;
            let (of, key) = key.value();
            if of != TABLE {
                break;
            }
            rows.extend(decode(key, value.value()));
        }
        Ok(Self { rows, ..Self::default() })
    }

    /// What may be unused in a stream.
    pub(crate) fn of(&self, stream: StreamKey) -> Vec<Clusters> {
        self.rows.get(&stream).cloned().unwrap_or_default()
    }

    /// What of `first..end` may be.
    pub(crate) fn within(&self, stream: StreamKey, range: Clusters) -> Vec<Clusters> {
        self.rows.get(&stream).map(|ranges| within(ranges, range)).unwrap_or_default()
    }

    /// What lies in `first..end` is there on purpose: what of it was here, for [`Leftovers::add`] should nothing come of it.
    pub(crate) fn keep(&mut self, stream: StreamKey, first: u64, end: u64) -> Vec<Clusters> {
        let Some(ranges) = self.rows.get_mut(&stream) else { return Vec::new() };
        let kept = within(ranges, (first, end));
        *ranges = without(ranges, (first, end));
        kept
    }

    pub(crate) fn add(&mut self, stream: StreamKey, ranges: &[Clusters]) {
        if !ranges.is_empty() {
            self.rows.entry(stream).or_default().extend_from_slice(ranges);
        }
    }

    /// The stream that has its turn: the one behind the one before, so that one that fails keeps no other one waiting.
    pub(crate) fn next(&mut self) -> Option<(StreamKey, Vec<Clusters>)> {
        let behind = self.rows.range((Bound::Excluded(self.tried), Bound::Unbounded)).next();
        let (stream, ranges) = behind.or_else(|| self.rows.first_key_value())?;
        self.tried = *stream;
        Some((*stream, ranges.clone()))
    }

    pub(crate) fn done(&mut self, stream: StreamKey) {
        self.rows.remove(&stream);
    }
}
