//! LOCK: byte ranges (MS-SMB2 2.2.26). Its answer is [`Empty`](crate::session::Empty).

use crate::file::FileId;
use crate::header::body;
use crate::wire::{DecodeError, Out, Reader, Reserved, StructureSize, Wire};

bit_flags! {
    /// What to do with a range. Not every combination has a meaning (MS-SMB2 3.3.5.14).
    pub struct LockFlags(u32) {
        SHARED = 0x0000_0001,
        EXCLUSIVE = 0x0000_0002,
        UNLOCK = 0x0000_0004,
        FAIL_IMMEDIATELY = 0x0000_0010,
    }
}

wire_struct! {
    /// One range.
    pub struct LockElement [24] {
        /// Its first byte.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// What to do.
        flags: LockFlags,
        _: Reserved<4>,
    }
}

/// Most ranges in a request. Windows' own limit is the size of a message; nobody sends more than a handful.
pub const MAX_LOCKS: usize = 1024;

/// A LOCK request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LockRequest<'a> {
    /// Number in the low four bits, index above them: what makes a replay of the same request known (2.1 and later).
    pub sequence: u32,
    /// The file.
    pub file_id: FileId,
    locks: &'a [u8],
}

impl<'a> LockRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says, in particular without any range, or with more than [`MAX_LOCKS`].
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<48>::take(&mut r)?;
        let count = usize::from(r.u16()?);
        let sequence = r.u32()?;
        let file_id = FileId::take(&mut r)?;
        if count == 0 || count > MAX_LOCKS {
            return Err(DecodeError::Invalid("lock count"));
        }
        Ok(Self { sequence, file_id, locks: r.raw(count * LockElement::SIZE)? })
    }

    /// A request for these ranges, as [`LockElement::put`] wrote them one after another.
    #[must_use]
    pub fn new(sequence: u32, file_id: FileId, locks: &'a [u8]) -> Self {
        Self { sequence, file_id, locks }
    }

    /// How many ranges there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.locks.len() / LockElement::SIZE
    }

    /// The ranges.
    pub fn locks(&self) -> impl Iterator<Item = LockElement> + use<'a> {
        let mut r = Reader::new(self.locks);
        std::iter::from_fn(move || LockElement::take(&mut r).ok())
    }

    /// Index of the sequence, 1 to 64 where it is used.
    #[must_use]
    pub fn sequence_index(&self) -> u32 {
        self.sequence >> 4
    }

    /// Number of the sequence, 0 to 15.
    #[must_use]
    pub fn sequence_number(&self) -> u8 {
        (self.sequence & 0xf) as u8
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<48>);
        out.len16(self.count());
        out.u32(self.sequence);
        out.put(&self.file_id);
        out.raw(self.locks);
    }
}

impl std::fmt::Debug for LockRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockRequest")
            .field("sequence", &self.sequence)
            .field("file_id", &self.file_id)
            .field("locks", &self.locks().collect::<Vec<_>>())
            .finish()
    }
}
