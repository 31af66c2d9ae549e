//! The metadata log on its device: batches of changes, durable before the database is.
//!
//! ```text
//!   group of changes ─► one batch ─► one durable write ─► answers          `groups.rs` decides, `rows.rs` records
//!   database committed (durably, and with it epoch and sequence) ─► the next batch goes to the start of the log
//!   opening: epoch and sequence from the database ─► batches in order ─► replayed, committed, a new epoch
//! ```
//! Why that is safe at any point:
//! * A batch is answered for when it is durable as a whole, and the next one is written only then: so what is torn was never
//!   acknowledged, and nothing sound of this epoch lies behind it. Where something does, a batch in the middle is damaged.
//! * The start of the log is written anew only after the commit that covers all of it. Power that goes during the commit
//!   leaves the database before it, with the log whole, or after it, with a log that is old news.
//! * The last commit of a closing, and that of a repair, says that the log is *closed*: nothing was written behind the batches that
//!   it covers. Then what cannot be read where the next one would be is no damage. The commit of the next opening takes that back,
//!   before anything is written to the log; and should an opening go on without that commit, nothing is written to the log
//!   until another one has come to its end. So a batch that was answered for never lies behind a mark that says that there is none.
//!   The mark is the number of the last batch, beside the same number as of any commit: both are written in one transaction, so
//!   that one without the other, or of another commit, counts for nothing. Sound batches that follow are looked for all the same.
//! * Batches are images of rows, applied in order: applying some again changes nothing.
//! * Clients cannot store what counts as a batch: they do not know the nonce. So nothing that they choose is ever refused as a newer
//!   release's or found behind a gap, and the checksums of what only looks like batches, however large, are not calculated.
//! * Batches of another opening, which never came to their end or were replayed, have another epoch.

use std::collections::BTreeSet;
use std::io;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Device, Durability};
use file_store::{StoreError, StoreErrorKind};
use volume_format::{BLOCK, Batch, BatchId, BatchWriter, DecodeError, Head, Superblock};

use crate::backend::run;

/// Parts of the log that one batch takes at most, and after which the database is committed: so a batch always fits.
const BATCH_PART: u64 = 4;
const FULL_PART: u64 = 2;
/// What is read at once at the opening.
const PIECE: u64 = 1 << 20;

/// How often as many bytes as the log has are looked into for batches behind a gap; what is beyond that counts as one.
const LOOKED_INTO_MAX: u64 = 4;
/// Numbers of epochs and batches that no volume reaches: one in each nanosecond takes 146 years. A database that says more is damaged,
/// and the next number could not be told from the last.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 4;

/// Which batches are newer than the database; kept in its table `counters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) epoch: u64,
    pub(crate) nonce: u64,
    /// The last batch that the database has.
    pub(crate) sequence: u64,
    /// Nothing was, nor will be, written behind that batch until the database says otherwise: see [`MetadataLog::append`].
    pub(crate) closed: bool,
}

/// The log of an open volume.
pub(crate) struct MetadataLog {
    device: Device,
    guid: [u8; 16],
    start: u64,
    size: u64,
    mark: Mark,
    /// Where the next batch goes, from the start of the log.
    position: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is durable.
    Durable,
    /// It does not fit, or its device has no space: the database is to be committed instead.
    CommitInstead,
}

impl MetadataLog {
    /// The log of a volume that has one, which begins at its start.
    pub(crate) fn new(device: Device, superblock: &Superblock, mark: Mark) -> Option<Self> {
        let (start, size) = superblock.metadata_log()?;
        Some(Self { device, guid: superblock.guid, start, size, mark, position: 0 })
    }

    /// Bytes that a batch has at most.
    pub(crate) fn batch_max(&self) -> usize {
        (self.size / BATCH_PART / BLOCK * BLOCK) as usize
    }

    /// Which batches a commit of the database now covers: all so far. Others follow.
    pub(crate) fn mark(&self) -> Mark {
        Mark { closed: false, ..self.mark }
    }

    /// What the last commit says: that no other batch follows. `None` when the database says so already.
    pub(crate) fn closing_mark(&self) -> Option<Mark> {
        (!self.mark.closed).then_some(Mark { closed: true, ..self.mark })
    }

    /// Whether the database should be committed soon.
    pub(crate) fn is_due(&self) -> bool {
        self.position >= self.size / FULL_PART
    }

    /// The database has everything, durably, and says [`MetadataLog::mark`].
    pub(crate) fn committed(&mut self) {
        self.position = 0;
        self.mark.closed = false;
    }

    /// Makes changes durable. Not while the database says that the log is closed: an opening may go on without having taken that
    /// back, and a batch that was answered for then, and cannot be read later, would be taken for none.
    ///
    /// # Errors
    /// When the device fails: nobody knows then what of the batch is there.
    pub(crate) fn append(&mut self, changes: &mut BatchWriter) -> io::Result<Appended> {
        let size = changes.size() as u64;
        if self.mark.closed || changes.is_overflown() || self.position + size > self.size {
            return Ok(Appended::CommitInstead);
        }
        // Also where the write fails: what is there of it has this number.
        self.mark.sequence = self.mark.sequence.saturating_add(1);
        let Mark { epoch, nonce, sequence, .. } = self.mark;
        let Some(sealed) = changes.seal(&BatchId { guid: self.guid, epoch, nonce, sequence }) else {
            return Ok(Appended::CommitInstead);
        };
        let mut data = IoBuf::new(size as usize);
        data[..sealed.len()].copy_from_slice(sealed);
        data[sealed.len()..].fill(0);
        let written = self.device.write(self.start + self.position, data.freeze(), Durability::Durable);
        match run(written) {
            Ok(()) => {
                self.position += size;
                Ok(Appended::Durable)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(Appended::CommitInstead),
            Err(error) => Err(error),
        }
    }
}

/// Fills the log with zeros, durably: so there is space for it from then on.
pub(crate) async fn prepare(device: &Device, superblock: &Superblock) -> Result<(), BlockError> {
    let Some((start, size)) = superblock.metadata_log() else { return Ok(()) };
    for at in (0..size).step_by(PIECE as usize) {
        let zeros = IoBuf::zeroed(PIECE.min(size - at) as usize).freeze();
        device.write(start + at, zeros, Durability::Volatile).await?;
    }
    device.flush().await
}

/// Whether what was asked for cannot be read for good; other failures may pass.
fn is_lost(error: &io::Error) -> bool {
    let below = error.get_ref().and_then(|below| below.downcast_ref::<BlockError>());
    below.is_some_and(|below| below.kind() == BlockErrorKind::Media)
}

/// A batch in the middle is damaged, or it cannot be read what the next one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The first batch that is lost, and where it should be on the device.
    pub(crate) sequence: u64,
    pub(crate) at: u64,
    /// The last sound one behind it; `None` where it cannot be read.
    pub(crate) last: Option<u64>,
}

/// What a log holds that is newer than its database.
pub(crate) struct Newer {
    bytes: Vec<u8>,
    /// Where sound batches begin, in order, without a gap.
    batches: Vec<usize>,
    /// The last of them; what the database has where there is none.
    pub(crate) sequence: u64,
    pub(crate) damage: Option<Damage>,
    /// Blocks that cannot be read where the next batch would be, if the log was closed and nothing is lost with them; bytes from the
    /// start of the device.
    unreadable: Vec<u64>,
}

impl Newer {
    /// Reads the log; call where blocking is allowed.
    ///
    /// # Errors
    /// When it cannot be read, or a newer release has written to it.
    pub(crate) fn read(device: &Device, superblock: &Superblock, mark: Mark) -> Result<Self, StoreError> {
        let (start, size) = superblock.metadata_log().unwrap_or_default();
        let failed =
            |error| StoreError::new(StoreErrorKind::Io, "the metadata log cannot be read").because(error);
        let read = |at: u64, len: u64| run(device.read(start + at, IoBuf::new(len as usize)));
        let (mut bytes, mut unreadable) = (Vec::with_capacity(size as usize), BTreeSet::new());
        for at in (0..size).step_by(PIECE as usize) {
            let len = PIECE.min(size - at);
            match read(at, len) {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) if is_lost(&error) => {
                    for at in (at..at + len).step_by(BLOCK as usize) {
                        match read(at, BLOCK) {
                            Ok(block) => bytes.extend_from_slice(&block),
                            Err(error) if is_lost(&error) => {
                                unreadable.insert(at as usize);
                                bytes.resize(bytes.len() + BLOCK as usize, 0);
                            }
                            Err(error) => return Err(failed(error)),
                        }
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Self::find(bytes, &unreadable, start, superblock.guid, mark)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, format!("the metadata log {error}")))
    }

    /// Finds the batches in `bytes`, where `unreadable` blocks are zero.
    fn find(
        bytes: Vec<u8>,
        unreadable: &BTreeSet<usize>,
        start: u64,
        guid: [u8; 16],
        mark: Mark,
    ) -> Result<Self, DecodeError> {
        let id = |sequence| BatchId { guid, epoch: mark.epoch, nonce: mark.nonce, sequence };
        // Which batch it says that it is comes first: the checksum of what is none of these is never calculated.
        let head = |at: usize| {
            let of = Head::decode(bytes.get(at..)?).ok()?;
            (of.id == id(of.id.sequence)).then_some(of)
        };
        let follows = |of: &Head, sequence: u64| sequence.checked_add(1) == Some(of.id.sequence);
        let (mut batches, mut sequence, mut end) = (Vec::new(), mark.sequence, 0usize);
        while let Some(next) = head(end).filter(|of| follows(of, sequence)) {
            match next.verify(&bytes[end..]) {
                Ok(batch) => {
                    batches.push(end);
                    sequence = batch.id.sequence;
                    end += batch.size() as usize;
                }
                Err(error @ DecodeError::Unsupported(_)) => return Err(error),
                Err(_) => break,
            }
        }
        let mut last = None;
        // Batches do not overlap. Where heads say so, they are none of ours, and only some of them are looked into.
        let mut looked_into = 0;
        for at in (end..bytes.len()).step_by(BLOCK as usize) {
            let Some(later) = head(at).filter(|of| of.id.sequence > sequence) else { continue };
            looked_into += later.size().min(bytes.len() as u64);
            let counts = looked_into > LOOKED_INTO_MAX * bytes.len() as u64
                // Also a newer release's: it was answered for.
                || matches!(later.verify(&bytes[at..]), Ok(_) | Err(DecodeError::Unsupported(_)));
            if counts {
                last = last.max(Some(later.id.sequence));
            }
        }
        // Where the next batch would be, as long as it says that it is.
        let next = sequence.saturating_add(1);
        let announced = head(end).filter(|of| of.id.sequence == next);
        let len = announced.map_or(BLOCK, |of| of.size()) as usize;
        let mut unreadable: Vec<u64> =
            unreadable.range(end..end.saturating_add(len)).map(|at| start + *at as u64).collect();
        // There was none, if the log was closed then.
        let closed = mark.closed && batches.is_empty();
        let lost = last.is_some() || !(closed || unreadable.is_empty());
        let damage = lost.then_some(Damage { sequence: next, at: start + end as u64, last });
        unreadable.retain(|_| !lost);
        Ok(Self { bytes, batches, sequence, damage, unreadable })
    }

    /// Writes zeros where the next batch would be and nothing can be read, although nothing was there: before the database says that
    /// the log is in use again, as what cannot be read may be a batch from then on.
    pub(crate) fn mend(&self, device: &Device) {
        for at in &self.unreadable {
            let zeros = IoBuf::zeroed(BLOCK as usize).freeze();
            if let Err(error) = run(device.write(*at, zeros, Durability::Durable)) {
                tracing::warn!(
                    "byte {at} of a volume's metadata log can neither be read nor written: {error}"
                );
            }
        }
    }

    /// The sound batches, in order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = Result<Batch<'_>, DecodeError>> {
        self.batches.iter().map(|at| {
            let bytes = &self.bytes[*at..];
            Head::decode(bytes)?.verify(bytes)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }
}
