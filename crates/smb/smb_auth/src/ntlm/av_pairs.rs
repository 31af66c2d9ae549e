//! Attribute-value pairs: what the server says of itself, and the client returns with remarks (MS-NLMP 2.2.2.1).

use byte_codec::Reader;
use smb_protocol::utf16::{Utf16, put_utf16};

use crate::error::AuthError;

/// Identifiers of attributes.
pub mod id {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const EOL: u16 = 0;
    pub const NB_COMPUTER_NAME: u16 = 1;
    pub const NB_DOMAIN_NAME: u16 = 2;
    pub const DNS_COMPUTER_NAME: u16 = 3;
    pub const DNS_DOMAIN_NAME: u16 = 4;
    pub const DNS_TREE_NAME: u16 = 5;
    pub const FLAGS: u16 = 6;
    pub const TIMESTAMP: u16 = 7;
    pub const SINGLE_HOST: u16 = 8;
    pub const TARGET_NAME: u16 = 9;
    pub const CHANNEL_BINDINGS: u16 = 10;
}

/// The flag of [`id::FLAGS`] that says that the message has an integrity code.
pub const FLAG_MIC: u32 = 0x0000_0002;
/// Most pairs in a list: eleven are known.
const MAX_PAIRS: usize = 64;

/// A list of pairs, checked to end with its end mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvPairs<'a>(&'a [u8]);

impl<'a> AvPairs<'a> {
    /// The list at the beginning of `bytes`; what follows its end is not looked at.
    ///
    /// # Errors
    /// When a pair is not whole, or there is no end.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, AuthError> {
        let malformed = |_| AuthError::Malformed("attributes");
        let mut r = Reader::new(bytes);
        for _ in 0..MAX_PAIRS {
            let attribute = r.u16().map_err(malformed)?;
            let len = usize::from(r.u16().map_err(malformed)?);
            r.raw(len).map_err(malformed)?;
            if attribute == id::EOL {
                return Ok(Self(bytes.get(..bytes.len() - r.remaining()).unwrap_or_default()));
            }
        }
        Err(AuthError::Malformed("number of attributes"))
    }

    /// The pairs before the end mark.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut r = Reader::new(self.0);
        std::iter::from_fn(move || {
            let attribute = r.u16().ok().filter(|attribute| *attribute != id::EOL)?;
            let len = usize::from(r.u16().ok()?);
            Some((attribute, r.raw(len).ok()?))
        })
    }

    /// The value of an attribute; the first one, should there be several.
    #[must_use]
    pub fn get(self, attribute: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == attribute).map(|(_, value)| value)
    }

    /// The value of an attribute of fixed size.
    #[must_use]
    pub fn get_array<const N: usize>(self, attribute: u16) -> Option<[u8; N]> {
        self.get(attribute)?.try_into().ok()
    }

    /// The value of an attribute that is a name; `None` too when it is not UTF-16.
    #[must_use]
    pub fn get_text(self, attribute: u16) -> Option<String> {
        Utf16::new(self.get(attribute)?).ok()?.to_string().ok()
    }

    /// The encoded list, with its end mark.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Appends a pair. A value of more than 65535 bytes is cut: names are far shorter.
pub fn put(attribute: u16, value: &[u8], out: &mut Vec<u8>) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    out.extend_from_slice(&attribute.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
}

/// Appends a pair of which the value is a name.
pub fn put_text(attribute: u16, text: &str, out: &mut Vec<u8>) {
    let mut value = Vec::new();
    put_utf16(text, &mut value);
    put(attribute, &value, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_there_and_back() {
        let mut bytes = Vec::new();
        put_text(id::NB_DOMAIN_NAME, "Domain", &mut bytes);
        put(id::TIMESTAMP, &7_u64.to_le_bytes(), &mut bytes);
        put(id::EOL, &[], &mut bytes);
        let whole = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        let pairs = AvPairs::decode(&bytes).unwrap();
        assert_eq!(pairs.bytes().len(), whole);
        assert_eq!(pairs.get_text(id::NB_DOMAIN_NAME).unwrap(), "Domain");
        assert_eq!(pairs.get_array(id::TIMESTAMP), Some(7_u64.to_le_bytes()));
        assert_eq!(pairs.get_array::<4>(id::TIMESTAMP), None);
        assert_eq!(pairs.iter().count(), 2);
        for cut in 0..whole {
            assert!(AvPairs::decode(&bytes[..cut]).is_err());
        }
        let endless = [7, 0, 0, 0].repeat(MAX_PAIRS + 1);
        assert!(AvPairs::decode(&endless).is_err());
    }
}
