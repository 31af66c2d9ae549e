//! Globally unique identifiers as SMB writes them (MS-DTYP 2.3.4).

use std::fmt;

/// A GUID in wire order: the first three of its five groups are little-endian.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// The GUID that is all zeros.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether all bytes are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i, tail @ ..] = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-",
            u32::from_le_bytes([a, b, c, d]),
            u16::from_le_bytes([e, g]),
            u16::from_le_bytes([h, i])
        )?;
        for (at, byte) in tail.iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 2 { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl crate::wire::Wire for Guid {
    const SIZE: usize = 16;
    fn take(reader: &mut byte_codec::Reader<'_>) -> Result<Self, byte_codec::DecodeError> {
        reader.guid().map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_swaps_the_first_groups() {
        let guid = Guid([
            0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14, 0x4d, 0x74,
        ]);
        assert_eq!(guid.to_string(), "6aa6bc45-a7ef-4af7-9008-fa462e144d74");
    }
}
