//! iSCSI names: `iqn.`, `eui.` and `naa.` (RFC 7143 4.2.7).

use std::fmt;

/// Longest name in bytes (RFC 7143 4.2.7.1).
pub const MAX_NAME_BYTES: usize = 223;

/// A valid iSCSI name, in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(String);

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or longer than [`MAX_NAME_BYTES`].
    #[error("an iSCSI name has 1 to 223 bytes")]
    Length,
    /// Neither of the three known forms.
    #[error("an iSCSI name starts with iqn., eui. or naa.")]
    Type,
    /// `iqn.` is not followed by year-month and a reversed domain name.
    #[error("an iqn name reads iqn.YYYY-MM.reversed.domain[:anything]")]
    Iqn,
    /// `eui.` needs 16 hexadecimal digits, `naa.` 16 or 32.
    #[error("an eui name has 16 hexadecimal digits, a naa name 16 or 32")]
    Digits,
    /// A byte that the profile forbids.
    #[error("an iSCSI name has letters, digits, '-', '.' and ':' only")]
    Character,
}

impl IscsiName {
    /// Checks and lower-cases a name.
    ///
    /// # Errors
    /// Says which rule was broken.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return Err(NameError::Length);
        }
        // stringprep (RFC 3722) lower-cases; beyond ASCII we accept letters and digits, as initiators send them.
        let name = text.to_lowercase();
        if name.len() > MAX_NAME_BYTES {
            return Err(NameError::Length);
        }
        if let Some(rest) = name.strip_prefix("iqn.") {
            let bytes = rest.as_bytes();
            let date_ok = bytes.len() > 8
                && bytes[..4].iter().all(u8::is_ascii_digit)
                && bytes[4] == b'-'
                && bytes[5..7].iter().all(u8::is_ascii_digit)
                && bytes[7] == b'.'
                && bytes[8] != b':';
            if !date_ok {
                return Err(NameError::Iqn);
            }
        } else if let Some(rest) = name.strip_prefix("eui.") {
            if rest.len() != 16 || !rest.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(NameError::Digits);
            }
        } else if let Some(rest) = name.strip_prefix("naa.") {
            if !matches!(rest.len(), 16 | 32) || !rest.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(NameError::Digits);
            }
        } else {
            return Err(NameError::Type);
        }
        if name.chars().any(|c| !(c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_'))) {
            return Err(NameError::Character);
        }
        Ok(Self(name))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(
            IscsiName::parse("IQN.2026-01.Org.Example:Disk_1").unwrap().as_str(),
            "iqn.2026-01.org.example:disk_1"
        );
        assert!(IscsiName::parse("eui.02004567A425678D").is_ok());
        assert!(IscsiName::parse("naa.62004567BA64678D0123456789ABCDEF").is_ok());
        assert_eq!(IscsiName::parse("iqn.2026-1.org"), Err(NameError::Iqn));
        assert_eq!(IscsiName::parse("eui.1"), Err(NameError::Digits));
        assert_eq!(IscsiName::parse("disk"), Err(NameError::Type));
        assert_eq!(IscsiName::parse("iqn.2026-01.org.example:a b"), Err(NameError::Character));
        assert_eq!(IscsiName::parse(&format!("iqn.2026-01.org.{}", "x".repeat(223))), Err(NameError::Length));
    }
}
