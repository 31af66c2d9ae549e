//! Names on the wire: UTF-16, little-endian, without a terminator (MS-SMB2 2.2).

use std::fmt;

use crate::wire::{DecodeError, Reader};

/// A borrowed name. Its length is even; whether its surrogates are paired shows when it is converted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Utf16<'a>(&'a [u8]);

/// A surrogate without its partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not UTF-16")]
pub struct InvalidUtf16;

impl<'a> Utf16<'a> {
    /// The name in these bytes.
    ///
    /// # Errors
    /// When their number is odd.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len().is_multiple_of(2) { Ok(Self(bytes)) } else { Err(DecodeError::Invalid("name length")) }
    }

    /// The bytes as on the wire.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether there is no character.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// How many UTF-16 units there are: what limits on names count.
    #[must_use]
    pub fn units(self) -> usize {
        self.0.len() / 2
    }

    /// The units.
    pub fn iter_units(self) -> impl Iterator<Item = u16> + Clone + 'a {
        self.0.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit))
    }

    /// The name as a string.
    ///
    /// # Errors
    /// When a surrogate has no partner. Windows allows such names; we have no way to store them, and replacing what
    /// is wrong would let two names mean one file.
    pub fn to_string(self) -> Result<String, InvalidUtf16> {
        char::decode_utf16(self.iter_units()).collect::<Result<String, _>>().map_err(|_| InvalidUtf16)
    }
}

impl fmt::Debug for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for unit in char::decode_utf16(self.iter_units()) {
            match unit {
                Ok(c) => write!(f, "{}", c.escape_debug())?,
                Err(e) => write!(f, "\\u{{{:x}}}", e.unpaired_surrogate())?,
            }
        }
        f.write_str("\"")
    }
}

/// Appends a string as UTF-16.
pub fn put_utf16(text: &str, out: &mut Vec<u8>) {
    for unit in text.encode_utf16() {
        out.extend_from_slice(&unit.to_le_bytes());
    }
}

/// A string as UTF-16.
#[must_use]
pub fn utf16(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 2);
    put_utf16(text, &mut out);
    out
}

/// A name of `len` bytes at the reader.
///
/// # Errors
/// When the bytes end before, or the length is odd.
pub(crate) fn take_name<'a>(reader: &mut Reader<'a>, len: usize) -> Result<Utf16<'a>, DecodeError> {
    Utf16::new(reader.raw(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["", "a", "Grüße\\Straße", "\u{1f980}x"] {
            let bytes = utf16(text);
            let name = Utf16::new(&bytes).unwrap();
            assert_eq!(name.to_string().unwrap(), text);
            assert_eq!(name.units(), text.encode_utf16().count());
        }
    }

    #[test]
    fn half_a_unit_and_half_a_pair_are_refused() {
        assert!(Utf16::new(&[1, 0, 2]).is_err());
        let lone = Utf16::new(&[0x00, 0xd8, b'x', 0]).unwrap();
        assert_eq!(lone.to_string(), Err(InvalidUtf16));
        assert_eq!(format!("{lone:?}"), "\"\\u{d800}x\"");
    }
}
