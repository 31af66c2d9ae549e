//! Which entries of a log are to be replayed (MS-VHDX 2.3.3): the sound ones that follow each other up to the highest number.
//!
//! ```text
//!   0                                                                          length of the log: it goes on at 0
//!   | … | entry 7 | entry 8 | entry 9 | torn entry 10, or what an earlier round left … |
//!                   ▲ tail of 9     ▲ head: the highest number
//! ```
//! Cost: each sector of the log is looked at once to find entries, and belongs to at most one that is worth its checksum: behind
//! an entry's first sector only descriptors and data sectors with its number may follow, which no entry begins with. So a hostile
//! log costs no more time than a sound one.

use byte_codec::DecodeError;
use uuid::Uuid;

use crate::log::{EntryHeader, LOG_SECTOR, is_data_of, is_descriptor_of};
use crate::{Change, FormatError, LogEntry, MIB};

/// Logs that are longer are not replayed, in bytes: it is read as a whole. Every known writer makes one of 1 MiB.
pub const LOG_REPLAY_MAX: u32 = 64 << 20;

/// What is to be done before the file can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The number of the newest entry.
    pub sequence: u64,
    /// The file had at least so many bytes; when it is shorter, it was cut.
    pub flushed_file_offset: u64,
    /// The file must have so many bytes.
    pub last_file_offset: u64,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// A sound entry: where it is, and what its header says that is needed here.
struct Found {
    at: usize,
    len: usize,
    tail: usize,
    sequence: u64,
}

/// Finds what is to be replayed of a log; `guid` is that of the header in force.
///
/// # Errors
/// When no entry counts: the header says that some do, so the file is damaged. When a change says what cannot be.
pub fn find_replay(log: &[u8], guid: Uuid) -> Result<Replay, FormatError> {
    let empty =
        || FormatError::invalid("log", "content: the header says that it has entries, and none is sound");
    if log.len() as u64 > u64::from(LOG_REPLAY_MAX) || !(log.len() as u64).is_multiple_of(MIB) {
        return Err(FormatError::invalid("log", "length"));
    }
    let entries = sound_entries(log, guid);
    // Sequences of entries that follow each other, each in the place behind the one before.
    let place = |at: usize| entries.binary_search_by_key(&at, |entry| entry.at).ok();
    let mut best: Option<Vec<usize>> = None;
    let mut used = vec![false; entries.len()];
    let mut starts: Vec<usize> = (0..entries.len()).collect();
    // From the lowest number on, so that a sequence is found from its beginning, also one that goes on at 0.
    starts.sort_by_key(|index| entries[*index].sequence);
    for start in starts {
        if std::mem::replace(&mut used[start], true) {
            continue;
        }
        let mut sequence = vec![start];
        let mut last = start;
        while let Some(next) = place((entries[last].at + entries[last].len) % log.len())
            && entries[last].sequence.checked_add(1) == Some(entries[next].sequence)
            && !std::mem::replace(&mut used[next], true)
        {
            sequence.push(next);
            last = next;
        }
        // The newest entry says where the oldest is that counts; without it the changes are not all here.
        let Some(tail) = sequence.iter().position(|index| entries[*index].at == entries[last].tail) else {
            continue;
        };
        let newest = best.as_ref().and_then(|best| best.last()).map(|index| entries[*index].sequence);
        if newest.is_none_or(|newest| entries[last].sequence > newest) {
            best = Some(sequence.split_off(tail));
        }
    }
    let best = best.ok_or_else(empty)?;
    let mut replay: Option<Replay> = None;
    for index in best {
        let found = &entries[index];
        let entry = LogEntry::decode(&whole(log, found.at, found.len), log.len())
            .map_err(|error| error.number(entries[index].at as u64))?;
        let mut changes = replay.take().map(|replay| replay.changes).unwrap_or_default();
        changes.extend(entry.changes);
        replay = Some(Replay {
            sequence: entry.sequence,
            flushed_file_offset: entry.flushed_file_offset,
            last_file_offset: entry.last_file_offset,
            changes,
        });
    }
    replay.ok_or_else(empty)
}

/// The bytes of an entry, which may go on at the log's beginning.
fn whole(log: &[u8], at: usize, len: usize) -> Vec<u8> {
    let first = &log[at..log.len().min(at + len)];
    [first, &log[..len - first.len()]].concat()
}

/// All sound entries of this log, by their places.
fn sound_entries(log: &[u8], guid: Uuid) -> Vec<Found> {
    let mut found = Vec::new();
    for at in (0..log.len()).step_by(LOG_SECTOR) {
        let Ok(header) = EntryHeader::decode(&log[at..at + LOG_SECTOR], log.len()) else { continue };
        if header.log_guid != guid || !may_be_whole(log, at, &header) {
            continue;
        }
        match LogEntry::decode(&whole(log, at, header.len), log.len()).map_err(|error| error.why()) {
            Err(DecodeError::WrongChecksum) => {}
            // One that is whole but says what cannot be counts, so that it is told.
            _ => found.push(Found {
                at,
                len: header.len,
                tail: header.tail as usize,
                sequence: header.sequence,
            }),
        }
    }
    found
}

/// Whether each sector of an entry can be its own: seen before the checksum of all of it is calculated.
fn may_be_whole(log: &[u8], at: usize, header: &EntryHeader) -> bool {
    (LOG_SECTOR..header.len).step_by(LOG_SECTOR).all(|within| {
        let start = (at + within) % log.len();
        let sector = &log[start..start + LOG_SECTOR];
        if within < header.head_len() {
            is_descriptor_of(sector, header.sequence)
        } else {
            is_data_of(sector, header.sequence)
        }
    })
}
