//! The metadata log: changes of rows that are durable before the database is.
//!
//! ```text
//!   the log     | batch n+1 | batch n+2   | batch n+3 | what earlier rounds left …
//!               └ begins anew at its start as soon as the database has all of it
//!
//!   batch   0        8          16        20       24     40      48      56         64
//!           | magic  | checksum | version | length | guid | epoch | nonce | sequence | change | change | … | 0 … to a block's end
//!                               └──────────────── covered by the checksum ───────────────────────────┘
//!
//!   change  | table | kind: 1 put, 2 remove | length of the key (4) | key | put: length of the value (4) | value |
//! ```
//! The checksum is XXH3, all 64 bits. A CRC would not do: rows of the layers above end with their own CRC-32C, and what such a row
//! holds does not change the CRC-32C of a batch, so that one which is torn between the sectors of two rows would pass. It covers
//! all that the batch says, and the magic number is compared; the zeros behind the last change say nothing, and so what is there
//! of them does not matter.
//!
//! It stands in front, since older spaces below keep a CRC-32C of each block, and a block that ended with its own would have the
//! same one whatever it holds.
//!
//! The head, with the places and the meaning of all that it says, never changes, in no version, and neither do the checksum and
//! what it covers: so a reader knows which batch it is, and that it is whole, before it knows the version. It refuses only the
//! newer one that follows the last batch that it has: of this volume, epoch and nonce, and with the next number. What else looks
//! like a newer batch is what a client has stored, or what lies there from earlier, and ends the log as anything does.
//!
//! Keys and values are made of *fields* ([`Field`]), one behind the other, so that what a log says does not depend on how a
//! database keeps it: numbers little-endian, texts and bytes behind their length (4).

use byte_codec::{DecodeError, Reader, xxh3};

use crate::field::{Field, Raw, sized};
use crate::{BLOCK, CLUSTER};

const MAGIC: [u8; 8] = *b"\x89HFmlog\n";
/// Version of what is behind the head; a reader refuses others.
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 8;
const COVERED_FROM: usize = 16;
/// Bytes before the first change.
const HEAD: usize = 64;
/// Rows above this many bytes are long.
const LONG_ROW: usize = BLOCK as usize / 4;
const PUT: u8 = 1;
const REMOVE: u8 = 2;
/// Part of a volume's metadata area that its log takes, and the most, in bytes: small volumes keep most of their area, and
/// more than the largest is never used, as the database is committed before.
const FRACTION: u64 = 8;
/// The smallest log that a volume gets, in bytes.
pub const METADATA_LOG_MIN: u64 = 1 << 20;
const SIZE_MAX: u64 = 16 << 20;
/// The largest one that a reader takes: it is read whole.
pub(crate) const METADATA_LOG_MAX: u64 = 64 << 20;

/// Bytes that the log of a new volume takes of a metadata area of `area` bytes.
#[must_use]
pub fn metadata_log_size(area: u64) -> u64 {
    (area / FRACTION).clamp(METADATA_LOG_MIN, SIZE_MAX) / CLUSTER * CLUSTER
}

/// The tables of the metadata database, by the numbers that they have in the log. A number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// Files and directories.
    Inodes = 1,
    /// Names.
    Entries = 2,
    /// Where clusters of maps lie.
    Extents = 3,
    /// Maps that streams have.
    Maps = 4,
    /// References of streams to parts of maps.
    Links = 5,
    /// Counts of links.
    Uses = 6,
    /// Snapshots.
    Snapshots = 7,
    /// Counts of users of clusters.
    Shares = 8,
    /// Clusters that are to be zeroed.
    Freed = 9,
    /// Files that have no name any more.
    Orphans = 10,
    /// Security descriptors.
    Security = 11,
    /// State of the layers above.
    State = 12,
    /// Numbers by name.
    Counters = 13,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Inodes,
        Self::Entries,
        Self::Extents,
        Self::Maps,
        Self::Links,
        Self::Uses,
        Self::Snapshots,
        Self::Shares,
        Self::Freed,
        Self::Orphans,
        Self::Security,
        Self::State,
        Self::Counters,
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| *table as u8 == number)
    }
}

/// Which batch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchId {
    /// The volume that it belongs to.
    pub guid: [u8; 16],
    /// Rises with each opening: what an earlier one left is never taken for what follows.
    pub epoch: u64,
    /// Drawn by chance at each opening, and told to nobody: values that clients choose cannot hold what looks like a batch.
    pub nonce: u64,
    /// Rises by one with each batch.
    pub sequence: u64,
}

/// How much was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Changes of rows of each table, in the order of [`Table::ALL`].
    pub by_table: [u32; Table::ALL.len()],
    /// Bytes of the changes, as far as they are held.
    pub bytes: u64,
    /// Bytes of those rows among them that are longer than a quarter of a block: a database does not keep as many in one page as of
    /// others.
    pub long_rows: u64,
}

/// Changes that are gathered to become a batch, in the order in which they are made.
#[derive(Debug)]
pub struct BatchWriter {
    /// With room for the head in front.
    bytes: Vec<u8>,
    changes: u32,
    /// What it may become, in bytes.
    limit: usize,
    overflown: bool,
    /// What [`BatchWriter::take_amount`] has not told yet.
    untold: Amount,
}

impl BatchWriter {
    /// One that holds nothing yet, and at most `limit` bytes with its head and what is filled up.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: vec![0; HEAD], changes: 0, limit, overflown: false, untold: Amount::default() }
    }

    /// A row gets a value.
    pub fn put<'k, 'v>(&mut self, table: Table, key: &impl Field<'k>, value: &impl Field<'v>) {
        let before = self.bytes.len();
        self.change(table, PUT, key);
        sized(&mut self.bytes, value);
        let row = self.bytes.len() - before;
        self.untold.long_rows += if row > LONG_ROW { row as u64 } else { 0 };
        self.bound(before);
    }

    /// A row goes.
    pub fn remove<'k>(&mut self, table: Table, key: &impl Field<'k>) {
        let before = self.bytes.len();
        self.change(table, REMOVE, key);
        self.bound(before);
    }

    /// A change as another batch has it.
    pub fn copy(&mut self, change: &Change<'_>) {
        match change.value {
            Some(value) => self.put(change.table, &Raw(change.key), &Raw(value)),
            None => self.remove(change.table, &Raw(change.key)),
        }
    }

    fn change<'k>(&mut self, table: Table, kind: u8, key: &impl Field<'k>) {
        self.changes = self.changes.saturating_add(1);
        if let Some(changes) = self.untold.by_table.get_mut(table as usize - 1) {
            *changes = changes.saturating_add(1);
        }
        self.bytes.extend_from_slice(&[table as u8, kind]);
        sized(&mut self.bytes, key);
    }

    /// What is more than a batch can hold is only counted: it takes the memory of one row.
    fn bound(&mut self, before: usize) {
        if self.overflown || self.bytes.len().next_multiple_of(BLOCK as usize) > self.limit {
            self.overflown = true;
            self.bytes.truncate(HEAD);
        } else {
            self.untold.bytes += (self.bytes.len() - before) as u64;
        }
    }

    /// How many changes were made.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// How much was changed since this was asked for the last time.
    pub fn take_amount(&mut self) -> Amount {
        std::mem::take(&mut self.untold)
    }

    /// Whether there were more than a batch can hold.
    #[must_use]
    pub fn is_overflown(&self) -> bool {
        self.overflown
    }

    /// Bytes of the batch on the device.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len().next_multiple_of(BLOCK as usize)
    }

    /// The batch, without what fills its last block up; `None` when it was too much for one.
    pub fn seal(&mut self, id: &BatchId) -> Option<&[u8]> {
        if self.overflown {
            return None;
        }
        let length = (self.bytes.len() - HEAD) as u32;
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&[0; COVERED_FROM - CHECKSUM_AT]);
        VERSION.put(&mut head);
        length.put(&mut head);
        head.extend_from_slice(&id.guid);
        id.epoch.put(&mut head);
        id.nonce.put(&mut head);
        id.sequence.put(&mut head);
        self.bytes[..HEAD].copy_from_slice(&head);
        let checksum = xxh3(&self.bytes[COVERED_FROM..]);
        self.bytes[CHECKSUM_AT..COVERED_FROM].copy_from_slice(&checksum.to_le_bytes());
        Some(&self.bytes)
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.bytes.truncate(HEAD);
        self.changes = 0;
        self.untold = Amount::default();
        self.overflown = false;
    }
}

/// A change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// Whose row it is.
    pub table: Table,
    /// The fields of the key.
    pub key: &'a [u8],
    /// The fields of the value; `None` where the row goes.
    pub value: Option<&'a [u8]>,
}

impl<'a> Change<'a> {
    fn take(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let table = Table::from_number(r.u8()?).ok_or(DecodeError::Invalid("table"))?;
        let kind = r.u8()?;
        let key = Field::take(r)?;
        let value = match kind {
            PUT => Some(Field::take(r)?),
            REMOVE => None,
            _ => return Err(DecodeError::Invalid("kind of change")),
        };
        Ok(Self { table, key, value })
    }
}

/// What a batch says of itself in front, whether or not the rest of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which batch it says that it is.
    pub id: BatchId,
    version: u32,
    checksum: u64,
    length: u32,
}

impl Head {
    /// The head at the beginning of `bytes`. It costs no look at what follows: whoever looks for a batch compares what it says before
    /// the rest is read ([`Head::verify`]), as what clients store in a batch may look like one.
    ///
    /// # Errors
    /// [`DecodeError::WrongMagic`] and [`DecodeError::Truncated`] when there is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        let (checksum, version, length) = (r.u64()?, r.u32()?, r.u32()?);
        let id = BatchId { guid: r.guid()?, epoch: r.u64()?, nonce: r.u64()?, sequence: r.u64()? };
        Ok(Self { id, version, checksum, length })
    }

    /// Bytes that the batch takes on the device.
    #[must_use]
    pub fn size(&self) -> u64 {
        (HEAD as u64 + u64::from(self.length)).next_multiple_of(BLOCK)
    }

    /// The batch, of which `bytes` begin with this head; what follows it may be anything.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] and [`DecodeError::WrongChecksum`] when it is torn or damaged, [`DecodeError::Unsupported`] when it
    /// is sound, and a newer release wrote it.
    pub fn verify<'a>(&self, bytes: &'a [u8]) -> Result<Batch<'a>, DecodeError> {
        let mut r = Reader::new(bytes);
        r.raw(HEAD)?;
        let payload = r.raw(self.length as usize)?;
        if xxh3(&bytes[COVERED_FROM..HEAD + payload.len()]) != self.checksum {
            return Err(DecodeError::WrongChecksum);
        }
        // Behind the checksum: what a newer release wrote is no damage.
        if self.version != VERSION {
            return Err(DecodeError::Unsupported(self.version));
        }
        Ok(Batch { id: self.id, payload })
    }
}

/// A sound batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Which one it is.
    pub id: BatchId,
    payload: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Bytes that it takes on the device.
    #[must_use]
    pub fn size(&self) -> u64 {
        ((HEAD + self.payload.len()) as u64).next_multiple_of(BLOCK)
    }

    /// Its changes, in order. Where one is none that a [`BatchWriter`] makes, the error is the last item.
    pub fn changes(&self) -> impl Iterator<Item = Result<Change<'a>, DecodeError>> + use<'a> {
        let mut rest = Reader::new(self.payload);
        let mut ended = false;
        std::iter::from_fn(move || {
            if ended || rest.remaining() == 0 {
                return None;
            }
            let next = Change::take(&mut rest);
            ended = next.is_err();
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests;
