//! Headers of encrypted and of compressed packets (MS-SMB2 2.2.41, 2.2.42).

use crate::wire::{DecodeError, Reader, Reserved, Wire};

/// The identifier of an encrypted packet.
pub const TRANSFORM_ID: [u8; 4] = *b"\xfdSMB";
/// The identifier of a compressed message.
pub const COMPRESSION_ID: [u8; 4] = *b"\xfcSMB";
/// Bytes of a transform header.
pub const TRANSFORM_BYTES: usize = 52;
/// Where the part of the header begins that is authenticated but not encrypted; it ends with the header.
pub const TRANSFORM_AAD_AT: usize = 20;

/// Encrypted, the only flag (and in 3.0 the only algorithm) that there is.
const ENCRYPTED: u16 = 1;

/// The header before an encrypted packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransformHeader {
    /// The tag that proves header and message.
    pub signature: [u8; 16],
    /// The nonce: its first 11 (CCM) or 12 (GCM) bytes are used.
    pub nonce: [u8; 16],
    /// Bytes of the message that follows.
    pub message_size: u32,
    /// The session whose keys are used.
    pub session_id: u64,
}

impl TransformHeader {
    /// Decodes it from the beginning of a packet; returns the encrypted message behind it too.
    ///
    /// # Errors
    /// When the packet is too short, is not encrypted, or announces another length than it has.
    pub fn decode(packet: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let mut r = Reader::new(packet);
        if r.raw(4)? != TRANSFORM_ID {
            return Err(DecodeError::WrongMagic);
        }
        let signature = r.guid()?;
        let nonce = r.guid()?;
        let message_size = r.u32()?;
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let flags = r.u16()?;
        let session_id = r.u64()?;
        if flags != ENCRYPTED {
            return Err(DecodeError::Invalid("transform flags"));
        }
        let message = r.raw(r.remaining())?;
        if message.len() != message_size as usize || message.is_empty() {
            return Err(DecodeError::Invalid("original message size"));
        }
        Ok((Self { signature, nonce, message_size, session_id }, message))
    }

    /// The 52 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TRANSFORM_BYTES] {
        let mut bytes = [0; TRANSFORM_BYTES];
        bytes[..4].copy_from_slice(&TRANSFORM_ID);
        bytes[4..20].copy_from_slice(&self.signature);
        bytes[20..36].copy_from_slice(&self.nonce);
        bytes[36..40].copy_from_slice(&self.message_size.to_le_bytes());
        bytes[42..44].copy_from_slice(&ENCRYPTED.to_le_bytes());
        bytes[44..].copy_from_slice(&self.session_id.to_le_bytes());
        bytes
    }
}

named_values! {
    /// Compression algorithm (MS-SMB2 2.2.3.1.3).
    pub struct CompressionAlgorithm(u16) {
        NONE = 0x0000,
        LZNT1 = 0x0001,
        LZ77 = 0x0002,
        LZ77_HUFFMAN = 0x0003,
        PATTERN_V1 = 0x0004,
        LZ4 = 0x0005,
    }
}

/// The header of a compressed message. We negotiate no compression, so such a message ends its connection; the header
/// is decoded to say in the log what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionHeader {
    /// Bytes of the message after decompression.
    pub original_size: u32,
    /// The algorithm; of a chained message, that of its first part.
    pub algorithm: CompressionAlgorithm,
    /// Whether the message is in several parts, each with an algorithm.
    pub chained: bool,
}

impl CompressionHeader {
    /// Decodes it from the beginning of a packet.
    ///
    /// # Errors
    /// When it is not compressed, or too short.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(packet);
        if r.raw(4)? != COMPRESSION_ID {
            return Err(DecodeError::WrongMagic);
        }
        let original_size = r.u32()?;
        let algorithm = CompressionAlgorithm::take(&mut r)?;
        let chained = r.u16()? & 1 != 0;
        r.u32()?;
        Ok(Self { original_size, algorithm, chained })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transform_there_and_back() {
        let header =
            TransformHeader { signature: [1; 16], nonce: [2; 16], message_size: 100, session_id: 0x0304 };
        let mut packet = header.encode().to_vec();
        assert!(TransformHeader::decode(&packet).is_err(), "no message");
        packet.extend_from_slice(&[9; 100]);
        assert_eq!(TransformHeader::decode(&packet), Ok((header, &[9; 100][..])));
        packet.push(0);
        assert!(TransformHeader::decode(&packet).is_err(), "another length");
        packet.pop();
        packet[42] = 0;
        assert!(TransformHeader::decode(&packet).is_err(), "not encrypted");
    }

    #[test]
    fn compression_is_recognised() {
        let packet = b"\xfcSMB\x00\x10\0\0\x02\0\x01\0\0\0\0\0";
        let header = CompressionHeader::decode(packet).unwrap();
        assert_eq!((header.original_size, header.chained), (4096, true));
        assert_eq!(header.algorithm, CompressionAlgorithm::LZ77);
        assert!(CompressionHeader::decode(&packet[..15]).is_err());
    }
}
