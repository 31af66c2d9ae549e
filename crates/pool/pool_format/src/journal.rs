//! The journal of a parity space: what makes a write to a part of a stripe all or nothing.
//!
//! The journal lies in a row of its own ([`crate::JOURNAL_ROW`]), mirrored over one disk more than a stripe has parity:
//!
//! ```text
//!  block 0    1          2                                              end of the slab
//!  ├ anchor ──┤ anchor ──┤ record n   │ record n+1 │ … (a ring; a record never wraps) ────────────────┤
//!
//!  record:  ├ head, entries (whole blocks) ┤ payload: the new blocks of the entries that have them, in order ┤
//! ```
//! The anchors are written in turn; the one with the higher number says where the oldest record that may be needed lies, its
//! sequence number, and a secret that all records since carry. A reader walks from there, record by record, as long as the
//! secret and the next number are found. It never looks for heads inside payload, and what a client writes
//! cannot pass for a record: no client knows the secret.

use byte_codec::crc32c;

use crate::{BLOCK, DecodeError, Epoch, Guid, Reader, Writer};

const ANCHOR_MAGIC: [u8; 4] = *b"HFja";
const RECORD_MAGIC: [u8; 4] = *b"HFjr";
const RECORD_HEAD: usize = 64;
const ENTRY_HEAD: usize = 16;
/// Blocks of the journal that are anchors.
pub const JOURNAL_ANCHORS: u64 = 2;

/// Where the journal begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalAnchor {
    /// Rises with each anchor; its parity says which of the two blocks it is in.
    pub number: u64,
    /// Of the writer.
    pub epoch: Epoch,
    /// The space.
    pub space: Guid,
    /// What records carry that belong to this journal since it was last emptied at an opening.
    pub secret: [u8; 16],
    /// Block at which the oldest record lies that may be needed, or the next one will.
    pub tail: u64,
    /// Its number.
    pub seq: u64,
}

impl JournalAnchor {
    /// The anchor as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&ANCHOR_MAGIC);
        w.u64(self.number);
        w.u64(self.epoch.0);
        w.raw(&self.space.0);
        w.raw(&self.secret);
        w.u64(self.tail);
        w.u64(self.seq);
        sealed(w.finish(), BLOCK as usize)
    }

    /// The anchor in a block.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let body = opened(block, BLOCK as usize, ANCHOR_MAGIC)?;
        let mut r = Reader::new(&body[4..]);
        Ok(Self {
            number: r.u64()?,
            epoch: Epoch(r.u64()?),
            space: Guid(r.guid()?),
            secret: r.guid()?,
            tail: r.u64()?,
            seq: r.u64()?,
        })
    }
}

/// What an entry of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalKind {
    /// The new blocks are in the record.
    Payload,
    /// They are zeros.
    Zeroes,
    /// Only the checksums of the new blocks are: a whole stripe of zeros is being written over in place.
    Fresh,
    /// Only the checksums of the new blocks are: parity of a whole stripe whose data the record has.
    Derived,
    /// The row is given up: what earlier records say of it is void. Has no blocks.
    Void,
}

/// Blocks of one column that a write changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Row of the space.
    pub row: u32,
    /// Column of the row.
    pub column: u8,
    /// What is known of the blocks.
    pub kind: JournalKind,
    /// The first block, counted from the start of the column's slab.
    pub first: u32,
    /// CRC-32C of each new block.
    pub sums: Vec<u32>,
}

/// The head of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// From the anchor.
    pub secret: [u8; 16],
    /// Number of the record; each one is one more than the one before.
    pub seq: u64,
    /// What it changes.
    pub entries: Vec<JournalEntry>,
}

impl JournalRecord {
    /// Blocks of head and entries.
    #[must_use]
    pub fn head_blocks(&self) -> u64 {
        let entries: usize = self.entries.iter().map(|entry| ENTRY_HEAD + 4 * entry.sums.len()).sum();
        ((4 + RECORD_HEAD + entries) as u64).div_ceil(BLOCK)
    }

    /// Blocks of payload that follow the head.
    #[must_use]
    pub fn payload_blocks(&self) -> u64 {
        let with = self.entries.iter().filter(|entry| entry.kind == JournalKind::Payload);
        with.map(|entry| entry.sums.len() as u64).sum()
    }

    /// Head and entries in whole blocks; the payload follows them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&RECORD_MAGIC);
        w.raw(&self.secret);
        w.u64(self.seq);
        w.u32(self.head_blocks() as u32);
        w.u32(self.entries.len() as u32);
        w.raw(&[0; RECORD_HEAD - 36]);
        for entry in &self.entries {
            w.u32(entry.row);
            w.u8(entry.column);
            w.u8(match entry.kind {
                JournalKind::Payload => 0,
                JournalKind::Zeroes => 1,
                JournalKind::Fresh => 2,
                JournalKind::Derived => 3,
                JournalKind::Void => 4,
            });
            w.u16(0);
            w.u32(entry.first);
            w.u32(entry.sums.len() as u32);
            entry.sums.iter().for_each(|sum| w.u32(*sum));
        }
        sealed(w.finish(), (self.head_blocks() * BLOCK) as usize)
    }

    /// Blocks of head and entries that the block announces, so that a reader knows how much to read.
    ///
    /// # Errors
    /// When no head begins there.
    pub fn announced(block: &[u8]) -> Result<u64, DecodeError> {
        let mut r = Reader::new(block.get(4..).ok_or(DecodeError::Truncated)?);
        if r.raw(4)? != RECORD_MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        r.raw(24)?;
        match r.u32()? {
            0 => Err(DecodeError::Invalid("journal head")),
            blocks => Ok(u64::from(blocks)),
        }
    }

    /// The head at the start of `bytes`, which holds as many blocks as it announced.
    ///
    /// # Errors
    /// When there is none: the end of the journal, or damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let blocks = Self::announced(bytes)?;
        let len = usize::try_from(blocks * BLOCK).map_err(|_| DecodeError::Truncated)?;
        let body = opened(bytes, len, RECORD_MAGIC)?;
        let mut r = Reader::new(&body[4..]);
        let (secret, seq) = (r.guid()?, r.u64()?);
        r.u32()?;
        let count = r.u32()?;
        r.raw(RECORD_HEAD - 36)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let (row, column, kind) = (r.u32()?, r.u8()?, r.u8()?);
            r.u16()?;
            let (first, sums) = (r.u32()?, r.u32()?);
            let kind = match kind {
                0 => JournalKind::Payload,
                1 => JournalKind::Zeroes,
                2 => JournalKind::Fresh,
                3 => JournalKind::Derived,
                4 => JournalKind::Void,
                newer => return Err(DecodeError::Unsupported(u32::from(newer))),
            };
            let sums = r.raw(usize::try_from(sums).map_err(|_| DecodeError::Truncated)?.saturating_mul(4))?;
            let sums = sums.chunks_exact(4).map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]));
            entries.push(JournalEntry { row, column, kind, first, sums: sums.collect() });
        }
        let record = Self { secret, seq, entries };
        if record.head_blocks() != blocks {
            return Err(DecodeError::Invalid("journal head"));
        }
        Ok(record)
    }
}

/// Pads to `len - 4` bytes and puts the checksum before them.
fn sealed(mut body: Vec<u8>, len: usize) -> Vec<u8> {
    body.resize(len - 4, 0);
    let mut block = crc32c(&body).to_le_bytes().to_vec();
    block.extend_from_slice(&body);
    block
}

/// What [`sealed`] got.
fn opened(bytes: &[u8], len: usize, magic: [u8; 4]) -> Result<&[u8], DecodeError> {
    let (crc, body) =
        bytes.get(..len).and_then(|bytes| bytes.split_at_checked(4)).ok_or(DecodeError::Truncated)?;
    if body.get(..4) != Some(&magic) {
        return Err(DecodeError::WrongMagic);
    }
    if crc32c(body).to_le_bytes() != crc {
        return Err(DecodeError::WrongChecksum);
    }
    Ok(body)
}
