//! Header and data digests: CRC-32C, least significant byte first on the wire (RFC 7143 13.1).

/// Bytes of a digest on the wire.
pub const DIGEST_BYTES: usize = 4;

/// A CRC-32C over several pieces.
#[derive(Clone, Debug)]
pub struct Digest(crc_fast::Digest);

impl Digest {
    /// The digest of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest as it goes on the wire.
    #[must_use]
    pub fn wire(&self) -> [u8; DIGEST_BYTES] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// The digest of one piece.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 7143 appendix A.4.
    #[test]
    fn rfc_vectors() {
        assert_eq!(digest_of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest_of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(digest_of(&up), [0x4e, 0x79, 0xdd, 0x46]);
        let mut parts = Digest::new();
        parts.update(&up[..7]);
        parts.update(&up[7..]);
        assert_eq!(parts.wire(), digest_of(&up));
    }
}
