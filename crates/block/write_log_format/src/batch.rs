//! Batches: what was committed together.

use std::ops::Range;

use byte_codec::{Checksum, DecodeError, Reader, Writer, crc32c};

use crate::BLOCK;

/// Entries of a batch at most: with the head they fit in one block.
pub const MAX_ENTRIES: usize = 128;
/// Data of a batch at most, in bytes.
pub const MAX_DATA: u64 = 2 << 20;
/// A batch at most, in bytes.
pub const MAX_BATCH: u64 = BLOCK + MAX_DATA;

const MAGIC: [u8; 4] = *b"HFWE";
const CRC_AT: usize = 4;
const HEAD: usize = 48;
const ENTRY: usize = 24;
/// Ranges end below this: far from overflow in every sum.
const MOST: u64 = 1 << 62;

/// What became of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// It was written; its data is in the batch.
    Data,
    /// It was zeroed.
    Zeroes,
    /// It was changed on the back: what earlier batches say of it is void.
    Forget,
}

/// One change of a range of the device, in bytes of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What became of it.
    pub kind: EntryKind,
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub len: u64,
}

impl Entry {
    /// Bytes of data in the batch.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        if self.kind == EntryKind::Data { self.len } else { 0 }
    }
}

/// The first block of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// The log that it is of.
    pub log: [u8; 16],
    /// Its number: one more than that of the batch before.
    pub number: u64,
    /// Its entries, with the checksum of the data of each: what it is says the log's label.
    pub entries: Vec<(Entry, u32)>,
}

impl BatchHead {
    /// Bytes that a batch of these entries takes, a multiple of [`BLOCK`].
    #[must_use]
    pub fn batch_len(&self) -> u64 {
        let data: u64 = self.entries.iter().map(|(entry, _)| entry.data_len()).sum();
        BLOCK + data.next_multiple_of(BLOCK)
    }

    /// The head's block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(0);
        w.raw(&self.log);
        w.u64(self.number);
        w.u32(self.entries.len() as u32);
        w.raw(&[0; HEAD - 36]);
        for (entry, sum) in &self.entries {
            w.u32(match entry.kind {
                EntryKind::Data => 1,
                EntryKind::Zeroes => 2,
                EntryKind::Forget => 3,
            });
            w.u32(*sum);
            w.u64(entry.offset);
            w.u64(entry.len);
        }
        let mut bytes = w.finish();
        bytes.resize(BLOCK as usize, 0);
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head from the first block of a batch.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let bytes = block.get(..BLOCK as usize).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(bytes);
        if r.raw(4)? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        let crc = r.u32()?;
        let mut zeroed = bytes.to_vec();
        zeroed[CRC_AT..CRC_AT + 4].fill(0);
        if crc32c(&zeroed) != crc {
            return Err(DecodeError::WrongChecksum);
        }
        let log = r.guid()?;
        let number = r.u64()?;
        let count = r.u32()? as usize;
        r.raw(HEAD - 36)?;
        if count == 0 || count > MAX_ENTRIES {
            return Err(DecodeError::Invalid("count"));
        }
        let mut entries = Vec::with_capacity(count);
        let mut data = 0_u64;
        for _ in 0..count {
            let kind = match r.u32()? {
                1 => EntryKind::Data,
                2 => EntryKind::Zeroes,
                3 => EntryKind::Forget,
                _ => return Err(DecodeError::Invalid("kind")),
            };
            let sum = r.u32()?;
            let entry = Entry { kind, offset: r.u64()?, len: r.u64()? };
            let end = entry.offset.checked_add(entry.len);
            if entry.len == 0
                || !(entry.offset | entry.len).is_multiple_of(512)
                || end.is_none_or(|end| end > MOST)
            {
                return Err(DecodeError::Invalid("range"));
            }
            data = data.checked_add(entry.data_len()).ok_or(DecodeError::Invalid("length"))?;
            entries.push((entry, sum));
        }
        if data > MAX_DATA {
            return Err(DecodeError::Invalid("length"));
        }
        debug_assert!(HEAD + MAX_ENTRIES * ENTRY <= BLOCK as usize);
        Ok(Self { log, number, entries })
    }
}

/// A whole batch, as it lies in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its first block.
    pub head: BatchHead,
    /// Where the data of each entry lies in the batch's bytes; empty for entries without.
    pub places: Vec<Range<usize>>,
}

impl Batch {
    /// Lays a batch out. `entries` are at most [`MAX_ENTRIES`] with at most [`MAX_DATA`] bytes of data.
    ///
    /// # Errors
    /// When they are more.
    pub fn lay_out(log: [u8; 16], number: u64, entries: &[Entry]) -> Result<Self, DecodeError> {
        let data: u64 = entries.iter().map(Entry::data_len).fold(0, u64::saturating_add);
        if entries.is_empty() || entries.len() > MAX_ENTRIES || data > MAX_DATA {
            return Err(DecodeError::Invalid("length"));
        }
        let head = BatchHead { log, number, entries: entries.iter().map(|entry| (*entry, 0)).collect() };
        let places = places(&head);
        Ok(Self { head, places })
    }

    /// Writes the head into a batch whose data is in place: the checksums are taken here.
    pub fn seal(&mut self, checksum: Checksum, bytes: &mut [u8]) {
        for ((_, sum), place) in self.head.entries.iter_mut().zip(&self.places) {
            *sum = bytes.get(place.clone()).map_or(0, |data| checksum.of(data));
        }
        if let Some(block) = bytes.get_mut(..BLOCK as usize) {
            block.copy_from_slice(&self.head.encode());
        }
    }

    /// Reads a batch: its head, and that all of its data is there and right.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(checksum: Checksum, bytes: &[u8]) -> Result<Self, DecodeError> {
        let head = BatchHead::decode(bytes)?;
        let places = places(&head);
        for ((entry, sum), place) in head.entries.iter().zip(&places) {
            let data = bytes.get(place.clone()).ok_or(DecodeError::Truncated)?;
            if entry.kind == EntryKind::Data && checksum.of(data) != *sum {
                return Err(DecodeError::WrongChecksum);
            }
        }
        Ok(Self { head, places })
    }
}

fn places(head: &BatchHead) -> Vec<Range<usize>> {
    let mut at = BLOCK as usize;
    let place = |(entry, _): &(Entry, u32)| {
        let start = at;
        at += entry.data_len() as usize;
        start..at
    };
    head.entries.iter().map(place).collect()
}
