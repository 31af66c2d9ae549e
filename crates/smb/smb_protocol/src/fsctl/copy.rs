//! Copies within the server: COPYCHUNK, DUPLICATE_EXTENTS and offloaded data transfer (MS-SMB2 2.2.31.1, 2.2.32.1,
//! MS-FSCC 2.3.7 to 2.3.9, 2.3.41 to 2.3.44, 2.1.11).

use crate::file::FileId;
use crate::wire::{DecodeError, Reader, Reserved, Wire};

/// A source of COPYCHUNK: what SRV_REQUEST_RESUME_KEY gave for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumeKey(pub [u8; 24]);

impl Wire for ResumeKey {
    const SIZE: usize = 24;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Wire::take(reader).map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

wire_struct! {
    /// What SRV_REQUEST_RESUME_KEY returns (MS-SMB2 2.2.32.3).
    pub struct ResumeKeyReply [32] {
        /// The key.
        key: ResumeKey,
        /// The context's length and an empty context: clients want 32 bytes.
        _: Reserved<8>,
    }
}

wire_struct! {
    /// One piece of a copy (MS-SMB2 2.2.31.1.1).
    pub struct CopyChunk [24] {
        /// The offset in the source.
        source_offset: u64,
        /// To where in the target.
        target_offset: u64,
        /// How many bytes.
        length: u32,
        _: Reserved<4>,
    }
}

/// Most pieces of a copy: what Windows allows. A longer list is answered with the limits.
pub const MAX_CHUNKS: u32 = 256;

/// SRV_COPYCHUNK_COPY (MS-SMB2 2.2.31.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRequest<'a> {
    /// The source.
    pub source: ResumeKey,
    /// How many pieces the request claims to have; the server's limit is compared with it before they are looked at.
    pub claimed: u32,
    chunks: &'a [u8],
}

impl<'a> CopyRequest<'a> {
    /// Decodes it from the input of the control.
    ///
    /// # Errors
    /// When a piece is missing, unless there are more than [`MAX_CHUNKS`]: then there are none to walk over.
    pub fn decode(input: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(input);
        let source = ResumeKey::take(&mut r)?;
        let claimed = r.u32()?;
        let _: Reserved<4> = Reserved::take(&mut r)?;
        let chunks = if claimed <= MAX_CHUNKS { r.raw(claimed as usize * CopyChunk::SIZE)? } else { &[] };
        Ok(Self { source, claimed, chunks })
    }

    /// The pieces.
    pub fn chunks(&self) -> impl Iterator<Item = CopyChunk> + use<'a> {
        let mut r = Reader::new(self.chunks);
        std::iter::from_fn(move || CopyChunk::take(&mut r).ok())
    }
}

/// A request to copy these pieces.
#[must_use]
pub fn copy_request(source: ResumeKey, chunks: &[CopyChunk]) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + chunks.len() * CopyChunk::SIZE);
    source.put(&mut out);
    (chunks.len() as u32).put(&mut out);
    0_u32.put(&mut out);
    chunks.iter().for_each(|chunk| chunk.put(&mut out));
    out
}

wire_struct! {
    /// The answer to COPYCHUNK (MS-SMB2 2.2.32.1). With INVALID_PARAMETER its fields are the server's limits.
    pub struct CopyReply [12] {
        /// Pieces written; or most pieces.
        chunks: u32,
        /// Bytes written of a piece that was not completed; or most bytes of a piece.
        chunk_bytes: u32,
        /// Bytes written; or most bytes in all.
        total_bytes: u32,
    }
}

wire_struct! {
    /// SMB2_DUPLICATE_EXTENTS_DATA (MS-FSCC 2.3.7.2).
    pub struct DuplicateExtents [40] {
        /// The open of the source, in the same session.
        source: FileId,
        /// The offset in the source; negative is invalid.
        source_offset: i64,
        /// To where in the target.
        target_offset: i64,
        /// How many bytes.
        byte_count: i64,
    }
}

bit_flags! {
    /// Flags of DUPLICATE_EXTENTS_TO_FILE_EX.
    pub struct DuplicateFlags(u32) {
        SOURCE_ATOMIC = 0x0000_0001,
    }
}

wire_struct! {
    /// SMB2_DUPLICATE_EXTENTS_DATA_EX (MS-FSCC 2.3.9.2).
    pub struct DuplicateExtentsEx [56] {
        /// 0x30, although the structure is longer.
        structure_size: u64,
        /// The same as in the control without Ex.
        extents: DuplicateExtents,
        /// Flags.
        flags: DuplicateFlags,
        _: Reserved<4>,
    }
}

impl DuplicateExtentsEx {
    /// What the structure size must be.
    pub const STRUCTURE_SIZE: u64 = 0x30;
}

/// A token that stands for data (MS-FSCC 2.1.11). Type and length are big-endian, unlike everything else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OffloadToken(pub [u8; 512]);

/// The token type for data that are zero.
pub const TOKEN_ZERO: u32 = 0xffff_0001;
/// Bytes of a token's identifier.
pub const TOKEN_ID_BYTES: usize = 504;

impl OffloadToken {
    /// A token of a type with an identifier; longer identifiers are cut.
    #[must_use]
    pub fn new(kind: u32, id: &[u8]) -> Self {
        let mut bytes = [0; 512];
        let id = id.get(..TOKEN_ID_BYTES).unwrap_or(id);
        if let Some((head, tail)) = bytes.split_first_chunk_mut::<8>() {
            let [a, b, c, d] = kind.to_be_bytes();
            let [e, f] = (id.len() as u16).to_be_bytes();
            *head = [a, b, c, d, 0, 0, e, f];
            if let Some(place) = tail.get_mut(..id.len()) {
                place.copy_from_slice(id);
            }
        }
        Self(bytes)
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.0.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    /// Its identifier; `None` when the token says it is longer than there is place.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        let [_, _, _, _, _, _, a, b, rest @ ..] = &self.0;
        rest.get(..usize::from(u16::from_be_bytes([*a, *b])))
    }
}

impl Default for OffloadToken {
    fn default() -> Self {
        Self([0; 512])
    }
}

impl std::fmt::Debug for OffloadToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token lets its holder read the data: it is kept out of logs.
        write!(f, "OffloadToken({:#x})", self.kind())
    }
}

impl Wire for OffloadToken {
    const SIZE: usize = 512;
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Wire::take(reader).map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

wire_struct! {
    /// FSCTL_OFFLOAD_READ_INPUT (MS-FSCC 2.3.41).
    pub struct OffloadReadInput [32] {
        /// 32.
        size: u32,
        /// Reserved.
        flags: u32,
        /// For how many milliseconds the token should live; 0 leaves it to the server.
        time_to_live: u32,
        _: Reserved<4>,
        /// The offset at which it begins.
        file_offset: u64,
        /// How many bytes.
        copy_length: u64,
    }
}

bit_flags! {
    /// Flags of FSCTL_OFFLOAD_READ_OUTPUT.
    pub struct OffloadReadFlags(u32) {
        ALL_ZERO_BEYOND_CURRENT_RANGE = 0x0000_0001,
    }
}

wire_struct! {
    /// FSCTL_OFFLOAD_READ_OUTPUT (MS-FSCC 2.3.42).
    pub struct OffloadReadOutput [528] {
        /// 528.
        size: u32,
        /// Flags.
        flags: OffloadReadFlags,
        /// Bytes that the token stands for.
        transfer_length: u64,
        /// The token.
        token: OffloadToken,
    }
}

wire_struct! {
    /// FSCTL_OFFLOAD_WRITE_INPUT (MS-FSCC 2.3.43).
    pub struct OffloadWriteInput [544] {
        /// 544.
        size: u32,
        /// Reserved.
        flags: u32,
        /// To where.
        file_offset: u64,
        /// How many bytes.
        copy_length: u64,
        /// The offset in the data that the token stands for.
        transfer_offset: u64,
        /// The token.
        token: OffloadToken,
    }
}

wire_struct! {
    /// FSCTL_OFFLOAD_WRITE_OUTPUT (MS-FSCC 2.3.44).
    pub struct OffloadWriteOutput [16] {
        /// 16.
        size: u32,
        /// Reserved.
        flags: u32,
        /// Bytes written.
        length_written: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_there_and_back_and_their_limit() {
        let chunks = [CopyChunk { source_offset: 1, target_offset: 2, length: 3 }; 2];
        let bytes = copy_request(ResumeKey([7; 24]), &chunks);
        let request = CopyRequest::decode(&bytes).unwrap();
        assert_eq!(request.chunks().collect::<Vec<_>>(), chunks);
        assert!(CopyRequest::decode(&bytes[..bytes.len() - 1]).is_err());
        let mut many = bytes;
        many[24..28].copy_from_slice(&(MAX_CHUNKS + 1).to_le_bytes());
        let request = CopyRequest::decode(&many).unwrap();
        assert_eq!((request.claimed, request.chunks().count()), (257, 0));
    }

    #[test]
    fn tokens_are_big_endian() {
        let token = OffloadToken::new(0x0102_0304, &[9; 16]);
        assert_eq!(token.0[..9], [1, 2, 3, 4, 0, 0, 0, 16, 9]);
        assert_eq!((token.kind(), token.id()), (0x0102_0304, Some(&[9; 16][..])));
        let mut long = token;
        long.0[6..8].copy_from_slice(&505_u16.to_be_bytes());
        assert_eq!(long.id(), None);
    }
}
