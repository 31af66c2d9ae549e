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

/// Changes that are gathered to become a batch, in the order in which they are made.
#[derive(Debug)]
pub struct BatchWriter {
    /// With room for the head in front.
    bytes: Vec<u8>,
    changes: u32,
    /// What it may become, in bytes.
    limit: usize,
    overflown: bool,
    /// Bytes of long rows that were put.
    long_rows: u64,
}

impl BatchWriter {
    /// One that holds nothing yet, and at most `limit` bytes with its head and what is filled up.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: vec![0; HEAD], changes: 0, limit, overflown: false, long_rows: 0 }
    }

    /// A row gets a value.
    pub fn put<'k, 'v>(&mut self, table: Table, key: &impl Field<'k>, value: &impl Field<'v>) {
        let before = self.bytes.len();
        self.change(table, PUT, key);
        sized(&mut self.bytes, value);
        let row = self.bytes.len() - before;
        self.long_rows += if row > LONG_ROW { row as u64 } else { 0 };
        self.bound();
    }

    /// A row goes.
    pub fn remove<'k>(&mut self, table: Table, key: &impl Field<'k>) {
        self.change(table, REMOVE, key);
        self.bound();
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
        self.bytes.extend_from_slice(&[table as u8, kind]);
        sized(&mut self.bytes, key);
    }

    /// What is more than a batch can hold is only counted: it takes the memory of one row.
    fn bound(&mut self) {
        if self.overflown || self.bytes.len().next_multiple_of(BLOCK as usize) > self.limit {
            self.overflown = true;
            self.bytes.truncate(HEAD);
        }
    }

    /// How many changes were made.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Bytes of those rows among them that are longer than a quarter of a block: a database does not keep as many in one page as of
    /// others.
    #[must_use]
    pub fn long_rows(&self) -> u64 {
        self.long_rows
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
        self.long_rows = 0;
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
mod tests {
    use byte_codec::{Checksum, crc32c};
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 64 << 10;

    fn decode(bytes: &[u8]) -> Result<Batch<'_>, DecodeError> {
        Head::decode(bytes)?.verify(bytes)
    }

    fn id(sequence: u64) -> BatchId {
        BatchId { guid: [7; 16], epoch: 3, nonce: 5, sequence }
    }

    fn sample() -> Vec<u8> {
        let mut writer = BatchWriter::new(LIMIT);
        writer.put(Table::Entries, &(5u64, "NAME"), &&b"value"[..]);
        writer.remove(Table::Extents, &(1u64, 2u32, 3u64));
        writer.put(Table::Orphans, &9u64, &());
        writer.seal(&id(11)).expect("it fits").to_vec()
    }

    #[test]
    fn a_batch_says_what_was_put_in() {
        let bytes = sample();
        let batch = decode(&bytes).expect("sound");
        assert_eq!((batch.id, batch.size()), (id(11), BLOCK));
        let head = Head::decode(&bytes[..HEAD]).expect("a head");
        assert_eq!((head.id, head.size()), (id(11), BLOCK));
        let changes = batch.changes().collect::<Result<Vec<_>, _>>().expect("changes");
        assert_eq!(changes.len(), 3);
        assert_eq!(<(u64, &str)>::whole(changes[0].key), Ok((5, "NAME")));
        assert_eq!(changes[0].value.map(<&[u8]>::whole), Some(Ok(&b"value"[..])));
        assert_eq!((changes[1].table, changes[1].value), (Table::Extents, None));
        assert_eq!(<(u64, u32, u64)>::whole(changes[1].key), Ok((1, 2, 3)));
        assert_eq!(changes[2].value.map(<()>::whole), Some(Ok(())));
    }

    #[test]
    fn a_damaged_or_torn_batch_is_found() {
        let bytes = sample();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn what_is_too_much_for_a_batch_takes_no_memory() {
        let mut writer = BatchWriter::new(LIMIT);
        for n in 0..1000u64 {
            writer.put(Table::Security, &n, &&[1u8; 1000][..]);
        }
        assert!(writer.is_overflown() && writer.changes() == 1000 && writer.bytes.capacity() < 4 * LIMIT);
        assert_eq!(writer.seal(&id(1)), None);
        writer.clear();
        writer.remove(Table::Security, &1u64);
        assert!(writer.seal(&id(1)).is_some_and(|bytes| decode(bytes).is_ok()));
    }

    /// A block that ends with its own checksum would always have this one.
    #[test]
    fn the_checksums_of_blocks_with_different_batches_differ() {
        for below in [Checksum::Crc32c, Checksum::Xxh3] {
            let sums: std::collections::BTreeSet<u32> = (0..1000)
                .map(|sequence| {
                    let mut writer = BatchWriter::new(LIMIT);
                    writer.put(Table::Freed, &sequence, &1u64);
                    let mut block = writer.seal(&id(sequence)).expect("it fits").to_vec();
                    block.resize(BLOCK as usize, 0);
                    below.of(&block)
                })
                .collect();
            assert_eq!(sums.len(), 1000);
        }
    }

    /// Rows that end with their own CRC-32C, as those of SMB opens: a change of one leaves a CRC-32C of what it is in as it was.
    fn sealed_rows(random: &mut impl FnMut() -> u64, sequence: u64) -> Vec<u8> {
        let mut writer = BatchWriter::new(LIMIT);
        for key in 0u64..20 {
            let mut row = vec![0x5a; 300];
            row.extend_from_slice(&random().to_le_bytes());
            row.extend_from_slice(&crc32c(&row).to_le_bytes());
            writer.put(Table::State, &("opens", &key.to_le_bytes()[..]), &row.as_slice());
        }
        let mut bytes = writer.seal(&id(sequence)).expect("it fits").to_vec();
        bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
        bytes
    }

    #[test]
    fn a_torn_batch_does_not_pass_whatever_its_rows_and_those_of_the_former_one_end_with() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        };
        let mut torn = 0;
        for round in 0..50 {
            let former = sealed_rows(&mut random, 2 * round);
            let whole = sealed_rows(&mut random, 2 * round + 1);
            assert_eq!(former.len(), whole.len());
            for tear in (512..whole.len()).step_by(512) {
                for (front, back) in [(&whole, &former), (&former, &whole)] {
                    let mixed = [&front[..tear], &back[tear..]].concat();
                    // What is behind the last row says nothing.
                    let said = HEAD + Head::decode(front).expect("a head").length as usize;
                    let same = mixed[..said] == front[..said];
                    assert!(same || decode(&mixed).is_err(), "round {round}, torn at byte {tear}");
                    torn += u32::from(!same);
                }
            }
        }
        assert!(torn > 1000, "{torn}");
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = sample();
        bytes[COVERED_FROM] = 2;
        let sum = xxh3(&bytes[COVERED_FROM..]);
        bytes[CHECKSUM_AT..COVERED_FROM].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(decode(&bytes), Err(DecodeError::Unsupported(2)));
    }

    proptest! {
        #[test]
        fn changes_survive_the_round_trip(rows in proptest::collection::vec((0usize..13, any::<u64>(), "\\PC{0,20}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50))), 0..40)) {
            let mut writer = BatchWriter::new(LIMIT);
            for (table, number, text, value) in &rows {
                let (table, key) = (Table::ALL[*table], (*number, text.as_str()));
                match value {
                    Some(value) => writer.put(table, &key, &value.as_slice()),
                    None => writer.remove(table, &key),
                }
            }
            let bytes = writer.seal(&id(1)).expect("it fits").to_vec();
            let changes = decode(&bytes).expect("sound").changes().collect::<Result<Vec<_>, _>>().expect("changes");
            prop_assert_eq!(changes.len(), rows.len());
            let mut again = BatchWriter::new(LIMIT);
            changes.iter().for_each(|change| again.copy(change));
            prop_assert_eq!(again.seal(&id(1)), Some(bytes.as_slice()));
            for (change, (table, number, text, value)) in changes.iter().zip(&rows) {
                prop_assert_eq!(change.table, Table::ALL[*table]);
                prop_assert_eq!(<(u64, &str)>::whole(change.key), Ok((*number, text.as_str())));
                let found = change.value.map(<&[u8]>::whole).transpose().expect("bytes");
                prop_assert_eq!(found, value.as_deref());
            }
        }

        #[test]
        fn hostile_bytes_behind_a_sound_checksum_are_refused_without_panic(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut writer = BatchWriter::new(LIMIT);
            writer.bytes.extend_from_slice(&payload);
            let bytes = writer.seal(&id(1)).expect("it fits").to_vec();
            if let Ok(batch) = decode(&bytes) {
                prop_assert!(batch.changes().count() <= payload.len() + 1);
            }
        }
    }
}
