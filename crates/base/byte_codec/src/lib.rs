//! Little-endian fields one after another, with bounds checked on the way back, and the checksums of on-disk structures ([`crc32c`], [`xxh3`])
//! and of the data that users keep in them ([`Checksum`]). Pure.

mod checksum;

use std::fmt;

pub use checksum::{Checksum, xxh3};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the structure does.
    Truncated,
    /// The structure's magic number is missing: this is something else.
    WrongMagic,
    /// The checksum does not match: the bytes are damaged.
    WrongChecksum,
    /// A newer format than this release can use, with the version or feature bits found.
    Unsupported(u32),
    /// A field has a value that no writer produces; its name.
    Invalid(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("ends too early"),
            Self::WrongMagic => f.write_str("has no magic number"),
            Self::WrongChecksum => f.write_str("fails its checksum"),
            Self::Unsupported(what) => write!(f, "needs a newer release (version or features {what:#x})"),
            Self::Invalid(field) => write!(f, "has an impossible {field}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Appends fields.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Appends one byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a string of at most 65535 bytes (longer ones are cut) after its length.
    pub fn text(&mut self, text: &str) {
        let mut end = text.len().min(usize::from(u16::MAX));
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.raw(&text.as_bytes()[..end]);
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Takes fields back.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// At the end.
    pub fn guid(&mut self) -> Result<[u8; 16], DecodeError> {
        self.array()
    }

    /// A string after its length.
    ///
    /// # Errors
    /// At the end, or when it is not UTF-8.
    pub fn text(&mut self) -> Result<String, DecodeError> {
        let len = self.u16()?;
        let bytes = self.raw(usize::from(len))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Invalid("text"))
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// CRC-32C (Castagnoli), as in iSCSI and ext4.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
