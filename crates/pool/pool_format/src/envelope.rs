//! What wraps metadata on disk: the batch of a log and the checkpoint.
//!
//! Both have the same head, 64 bytes, and are padded with zeros to whole blocks:
//!
//! ```text
//!  0        8        16       24       32       40     44     48          64
//!  | magic  | epoch  | seq    | count  | length | crc  | 0    | pool GUID | body …
//! ```
//! `crc` covers everything but itself and the padding: head (with `crc` as zero) and `length` bytes of body.
//! The pool's identity is in every head because a disk may have been another pool's before: what that pool
//! left behind the end of the log must not be taken for its continuation.

use byte_codec::crc32c;

use crate::{BLOCK, Change, DecodeError, Epoch, Guid, PoolState, Reader, Seq, Writer};

const BATCH_MAGIC: [u8; 8] = *b"\x89HFlog\r\n";
const CHECKPOINT_MAGIC: [u8; 8] = *b"\x89HFchk\r\n";
const HEAD: usize = 64;
const CRC_AT: usize = 40;
/// Longest batch, in bytes with its head: what one group commit may gather.
pub const MAX_BATCH_BYTES: usize = 64 << 10;

/// Where a batch or a checkpoint comes from: known of a whole one, also when its body needs a newer release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The pool.
    pub pool: Guid,
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// A batch's first change, a checkpoint's last.
    pub seq: Seq,
}

/// Changes that become durable together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBatch {
    /// The pool.
    pub pool: Guid,
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// Number of the first change.
    pub first: Seq,
    /// The changes, numbered upwards.
    pub changes: Vec<Change>,
}

impl LogBatch {
    /// The batch in whole blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        self.changes.iter().for_each(|change| change.encode(&mut body));
        let head = Head::new(self.epoch, self.first, self.changes.len() as u64, self.pool);
        head.seal(BATCH_MAGIC, &body.finish())
    }

    /// Where the batch at the start of `bytes` comes from.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn origin(bytes: &[u8]) -> Result<Origin, DecodeError> {
        open(BATCH_MAGIC, bytes).map(|(head, _)| head.origin())
    }

    /// The batch at the start of `bytes`, and how many bytes of whole blocks it takes.
    ///
    /// # Errors
    /// When there is none: the end of the log, or damage.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), DecodeError> {
        let (head, body) = open(BATCH_MAGIC, bytes)?;
        let mut r = Reader::new(body);
        let mut changes = Vec::new();
        for _ in 0..head.count {
            changes.push(Change::decode(&mut r)?);
        }
        if r.remaining() > 0 {
            return Err(DecodeError::Invalid("length"));
        }
        let batch = Self { pool: head.pool, epoch: head.epoch, first: head.seq, changes };
        Ok((batch, padded(body.len())))
    }
}

/// The whole state after change `seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The epoch of the writer.
    pub epoch: Epoch,
    /// The last change in it.
    pub seq: Seq,
    /// The state.
    pub state: PoolState,
}

impl Checkpoint {
    /// The checkpoint in whole blocks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        Head::new(self.epoch, self.seq, 1, self.state.guid).seal(CHECKPOINT_MAGIC, &self.state.encode())
    }

    /// Bytes of body that the head at the start of `block` announces, so that a reader knows how much to read.
    ///
    /// # Errors
    /// When there is no head.
    pub fn announced(block: &[u8]) -> Result<u64, DecodeError> {
        let head = Head::decode(CHECKPOINT_MAGIC, block)?;
        head.length.checked_add(HEAD as u64).ok_or(DecodeError::Invalid("length"))
    }

    /// Where the checkpoint in `bytes` comes from.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn origin(bytes: &[u8]) -> Result<Origin, DecodeError> {
        open(CHECKPOINT_MAGIC, bytes).map(|(head, _)| head.origin())
    }

    /// The checkpoint in `bytes`.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (head, body) = open(CHECKPOINT_MAGIC, bytes)?;
        let state = PoolState::decode(body)?;
        if state.guid != head.pool {
            return Err(DecodeError::Invalid("pool"));
        }
        Ok(Self { epoch: head.epoch, seq: head.seq, state })
    }
}

struct Head {
    epoch: Epoch,
    seq: Seq,
    count: u64,
    length: u64,
    crc: u32,
    pool: Guid,
}

impl Head {
    /// A head whose length and checksum [`Head::seal`] fills in.
    fn new(epoch: Epoch, seq: Seq, count: u64, pool: Guid) -> Self {
        Self { epoch, seq, count, length: 0, crc: 0, pool }
    }

    fn origin(&self) -> Origin {
        Origin { pool: self.pool, epoch: self.epoch, seq: self.seq }
    }

    fn decode(magic: [u8; 8], bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.raw(8)? != magic {
            return Err(DecodeError::WrongMagic);
        }
        Ok(Self {
            epoch: Epoch(r.u64()?),
            seq: Seq(r.u64()?),
            count: r.u64()?,
            length: r.u64()?,
            crc: r.u32()?,
            pool: {
                r.u32()?;
                Guid(r.guid()?)
            },
        })
    }

    /// Head and body in whole blocks.
    fn seal(&self, magic: [u8; 8], body: &[u8]) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&magic);
        w.u64(self.epoch.0);
        w.u64(self.seq.0);
        w.u64(self.count);
        w.u64(body.len() as u64);
        w.u64(0);
        w.raw(&self.pool.0);
        w.raw(body);
        let mut bytes = w.finish();
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(padded(body.len()), 0);
        bytes
    }
}

fn padded(body: usize) -> usize {
    (HEAD + body).next_multiple_of(BLOCK as usize)
}

fn open(magic: [u8; 8], bytes: &[u8]) -> Result<(Head, &[u8]), DecodeError> {
    let head = Head::decode(magic, bytes)?;
    let length = usize::try_from(head.length).map_err(|_| DecodeError::Invalid("length"))?;
    let end = HEAD.checked_add(length).ok_or(DecodeError::Invalid("length"))?;
    let covered = bytes.get(..end).ok_or(DecodeError::Truncated)?;
    let mut copy = covered[..HEAD].to_vec();
    copy[CRC_AT..CRC_AT + 4].fill(0);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&copy);
    digest.update(&covered[HEAD..]);
    if digest.finalize() as u32 != head.crc {
        return Err(DecodeError::WrongChecksum);
    }
    // A count cannot exceed the body: every change takes at least five bytes.
    if head.count > head.length.max(1) {
        return Err(DecodeError::Invalid("count"));
    }
    Ok((head, &covered[HEAD..]))
}
