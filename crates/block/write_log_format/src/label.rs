//! Labels: which log, in which state, from where on.

use byte_codec::{Checksum, DecodeError, Reader, Writer, crc32c};

use crate::{BLOCK, LABELS_INSIDE, RING_START};

/// Bytes of a label that count, at the beginning of its block: no more than the sector that a power cut leaves whole.
const LEN: usize = 120;
const CRC_AT: usize = 8;
/// The versions: with them changes what the data of batches is checked with.
const CRC_32C: u32 = 1;
const XXH3: u32 = 2;
/// Stands in a void label for the log of a back that is to have none: whatever is on a front was never its log, or is not any
/// more.
pub const NO_LOG: [u8; 16] = [0; 16];

/// On which device a label is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that has the log.
    Front,
    /// The one that the log stands before.
    Back,
}

impl Side {
    fn magic(self) -> [u8; 4] {
        match self {
            Self::Front => *b"HFWF",
            Self::Back => *b"HFWB",
        }
    }
}

/// Whether the log counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The front may hold what the back has not.
    Attached,
    /// The back has everything: what is on any front is void.
    Void,
}

/// A label. All positions and lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Rises with each label of a device; the higher one counts.
    pub generation: u64,
    /// Whether the log counts.
    pub state: State,
    /// What the checksums of the log's data are calculated with.
    pub checksum: Checksum,
    /// The log, chosen at random when it was made.
    pub log: [u8; 16],
    /// Where the content begins on the back; 0 where the labels lie inside of it, at [`LABELS_INSIDE`].
    pub shift: u64,
    /// Length of the ring on the front.
    pub ring: u64,
    /// Where replay begins, counted from the first batch ever; its place is this modulo `ring`.
    pub tail: u64,
    /// The number of the batch there.
    pub tail_batch: u64,
    /// Batches below this number were committed: a replay that ends before it has met damage.
    pub reached: u64,
}

impl Label {
    /// Where its block lies on its device, in bytes: two places take turns, so that one is whole whenever the power goes.
    #[must_use]
    pub fn place(&self, side: Side) -> u64 {
        let first = if side == Side::Back && self.shift == 0 { LABELS_INSIDE } else { 0 };
        first + self.generation % 2 * BLOCK
    }

    /// Whether it says that its back is to have no log.
    #[must_use]
    pub fn says_none(&self) -> bool {
        self.state == State::Void && self.log == NO_LOG
    }

    /// The label's block.
    #[must_use]
    pub fn encode(&self, side: Side) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&side.magic());
        w.u32(match self.checksum {
            Checksum::Crc32c => CRC_32C,
            Checksum::Xxh3 => XXH3,
        });
        w.u32(0);
        w.u32(match self.state {
            State::Attached => 1,
            State::Void => 2,
        });
        w.raw(&self.log);
        for field in [self.generation, self.shift, self.ring, self.tail, self.tail_batch, self.reached] {
            w.u64(field);
        }
        let mut bytes = w.finish();
        bytes.resize(LEN, 0);
        let crc = crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(BLOCK as usize, 0);
        bytes
    }

    /// Reads a label from the beginning of its block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(side: Side, block: &[u8]) -> Result<Self, DecodeError> {
        let bytes = block.get(..LEN).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(bytes);
        if r.raw(4)? != side.magic() {
            return Err(DecodeError::WrongMagic);
        }
        let version = r.u32()?;
        let crc = r.u32()?;
        let mut zeroed = bytes.to_vec();
        zeroed[CRC_AT..CRC_AT + 4].fill(0);
        if crc32c(&zeroed) != crc {
            return Err(DecodeError::WrongChecksum);
        }
        let checksum = match version {
            CRC_32C => Checksum::Crc32c,
            XXH3 => Checksum::Xxh3,
            newer => return Err(DecodeError::Unsupported(newer)),
        };
        let state = match r.u32()? {
            1 => State::Attached,
            2 => State::Void,
            _ => return Err(DecodeError::Invalid("state")),
        };
        let log = r.guid()?;
        let label = Self {
            log,
            state,
            checksum,
            generation: r.u64()?,
            shift: r.u64()?,
            ring: r.u64()?,
            tail: r.u64()?,
            tail_batch: r.u64()?,
            reached: r.u64()?,
        };
        label.check()?;
        Ok(label)
    }

    fn check(&self) -> Result<(), DecodeError> {
        // Far from overflow in every sum that follows.
        const MOST: u64 = 1 << 60;
        let inside = self.shift == 0;
        if !inside && (!self.shift.is_multiple_of(BLOCK) || self.shift < RING_START || self.shift > MOST) {
            return Err(DecodeError::Invalid("shift"));
        }
        if self.state == State::Attached && self.log == NO_LOG {
            return Err(DecodeError::Invalid("log"));
        }
        if self.ring == 0 || !self.ring.is_multiple_of(BLOCK) || self.ring > MOST {
            return Err(DecodeError::Invalid("ring"));
        }
        if !self.tail.is_multiple_of(BLOCK) || self.tail > MOST {
            return Err(DecodeError::Invalid("tail"));
        }
        if self.tail_batch > self.reached || self.reached > MOST || self.generation > MOST {
            return Err(DecodeError::Invalid("number"));
        }
        Ok(())
    }

    /// The one of two labels that counts: the valid one with the higher generation.
    #[must_use]
    pub fn newer(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.generation > a.generation { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}
