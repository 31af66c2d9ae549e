//! The parent locator of a differencing disk (MS-VHDX 2.6.2.6): where its parent may be, and how it is known.
//!
//! ```text
//!   0             16       18          20
//!   | LocatorType | zeros  | PairCount | pairs of 12 bytes …                              | keys and values: UTF-16LE
//!                                        0           4             8           10
//!                                        | KeyOffset | ValueOffset | KeyLength | ValueLength |  offsets from the item's start
//! ```
//! `parent_linkage` is the DataWriteGuid that the parent must have; the other keys are paths to try.

use byte_codec::{DecodeError, Reader, Writer};
use uuid::Uuid;

use crate::FormatError;
use crate::error::at;

const PLACE: &str = "parent locator";
const VHDX: Uuid = Uuid::from_u128(0xb04a_efb7_d19e_4a81_b789_25b8_e944_5913);
/// Pairs that are taken: five are known.
const PAIRS_MAX: u16 = 256;

/// Where a differencing disk finds its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentLocator {
    /// Keys with their values, in order.
    pub pairs: Vec<(String, String)>,
}

impl ParentLocator {
    /// A locator of a parent with this DataWriteGuid, at a path relative to the child, and an absolute one.
    #[must_use]
    pub fn new(parent: Uuid, relative: &str, absolute: Option<&str>) -> Self {
        let mut pairs = vec![
            ("parent_linkage".to_owned(), format!("{{{parent}}}")),
            ("relative_path".to_owned(), relative.to_owned()),
        ];
        pairs.extend(absolute.map(|path| ("absolute_win32_path".to_owned(), path.to_owned())));
        Self { pairs }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Whether a parent with this DataWriteGuid is the one.
    #[must_use]
    pub fn is_parent(&self, data_write_guid: Uuid) -> bool {
        let linkages = ["parent_linkage", "parent_linkage2"].into_iter().filter_map(|key| self.get(key));
        linkages.filter_map(|text| Uuid::parse_str(text.trim()).ok()).any(|guid| guid == data_write_guid)
    }

    /// Paths where the parent may be, in the order of the specification.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        ["relative_path", "volume_path", "absolute_win32_path"].into_iter().filter_map(|key| self.get(key))
    }

    /// From the item's bytes.
    ///
    /// # Errors
    /// When it is of another type, or its pairs lie outside of it.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let wrong = at(PLACE);
        let mut reader = Reader::new(bytes);
        let kind = Uuid::from_bytes_le(reader.guid().map_err(&wrong)?);
        if kind != VHDX {
            return Err(wrong(DecodeError::Unsupported(kind.as_fields().0)));
        }
        reader.u16().map_err(&wrong)?;
        let count = reader.u16().map_err(&wrong)?;
        if count > PAIRS_MAX {
            return Err(wrong(DecodeError::Invalid("number of pairs")));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for number in 0..u64::from(count) {
            let pair = |why| FormatError::new("parent locator's pair", why).number(number);
            let (key_at, value_at) = (reader.u32().map_err(pair)?, reader.u32().map_err(pair)?);
            let (key_len, value_len) = (reader.u16().map_err(pair)?, reader.u16().map_err(pair)?);
            let key = text(bytes, key_at, key_len).map_err(pair)?;
            let value = text(bytes, value_at, value_len).map_err(pair)?;
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(pair(DecodeError::Invalid("key, which another one has")));
            }
            pairs.push((key, value));
        }
        Ok(Self { pairs })
    }

    /// The item's bytes; `None` when a text is too long for it or there are too many.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let (mut writer, mut texts) = (Writer::default(), Writer::default());
        writer.raw(&VHDX.to_bytes_le());
        writer.u16(0);
        writer.u16(u16::try_from(self.pairs.len()).ok().filter(|count| *count <= PAIRS_MAX)?);
        let start = 20 + 12 * self.pairs.len();
        for (key, value) in &self.pairs {
            let mut put = |text: &str| {
                let at = u32::try_from(start + texts.len()).ok()?;
                let units: Vec<u16> = text.encode_utf16().collect();
                units.iter().for_each(|unit| texts.u16(*unit));
                Some((at, u16::try_from(units.len() * 2).ok()?))
            };
            let ((key_at, key_len), (value_at, value_len)) = (put(key)?, put(value)?);
            writer.u32(key_at);
            writer.u32(value_at);
            writer.u16(key_len);
            writer.u16(value_len);
        }
        writer.raw(&texts.finish());
        Some(writer.finish())
    }
}

fn text(bytes: &[u8], at: u32, len: u16) -> Result<String, DecodeError> {
    let start = at as usize;
    let part = start.checked_add(usize::from(len)).and_then(|end| bytes.get(start..end));
    let part = part.ok_or(DecodeError::Invalid("place of a text"))?;
    if part.is_empty() || !part.len().is_multiple_of(2) {
        return Err(DecodeError::Invalid("length of a text"));
    }
    let units: Vec<u16> = part.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    String::from_utf16(&units).map_err(|_| DecodeError::Invalid("text"))
}
