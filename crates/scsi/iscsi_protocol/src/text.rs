//! Text: `key=value` pairs, each ended by a NUL, over one or several PDUs (RFC 7143 6.1).

/// Most text of one request or response sequence, in bytes. All keys of a login fit in 2 KiB; SendTargets
/// answers with some hundred targets need more. It bounds what a peer can make us hold before it has logged in.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// Longest key name (RFC 7143 6.1).
pub const MAX_KEY_BYTES: usize = 63;
/// Longest value we take: binary values (CHAP, 1024 bytes) in hexadecimal need 2050.
pub const MAX_VALUE_BYTES: usize = 8192;
/// Most pairs in one sequence; the RFC defines 40 keys.
pub const MAX_PAIRS: usize = 256;

/// Why text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// More than [`MAX_TEXT_BYTES`] or [`MAX_PAIRS`].
    #[error("text is longer than 64 KiB or has more than 256 pairs")]
    TooLong,
    /// The text is not UTF-8.
    #[error("text is not UTF-8")]
    Encoding,
    /// A pair without `=`, with an empty, too long or badly spelled key, or with a too long value.
    #[error("a pair is not of the form key=value")]
    Pair,
    /// The same key twice in one sequence.
    #[error("a key occurs twice")]
    Duplicate,
}

/// Collects text that comes in several PDUs.
#[derive(Debug, Default)]
pub struct TextBuffer {
    bytes: Vec<u8>,
}

impl TextBuffer {
    /// Adds the data segment of one PDU.
    ///
    /// # Errors
    /// When the whole is too long.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        if self.bytes.len() + bytes.len() > MAX_TEXT_BYTES {
            return Err(TextError::TooLong);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether nothing is collected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The pairs, leaving the buffer empty.
    ///
    /// # Errors
    /// When the text breaks a rule.
    pub fn take(&mut self) -> Result<Vec<(String, String)>, TextError> {
        let bytes = std::mem::take(&mut self.bytes);
        parse(&bytes)
    }
}

/// Parses a complete text.
///
/// # Errors
/// When the text breaks a rule.
pub fn parse(bytes: &[u8]) -> Result<Vec<(String, String)>, TextError> {
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(TextError::TooLong);
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for piece in bytes.split(|b| *b == 0).filter(|piece| !piece.is_empty()) {
        let text = std::str::from_utf8(piece).map_err(|_| TextError::Encoding)?;
        let (key, value) = text.split_once('=').ok_or(TextError::Pair)?;
        let key_ok = !key.is_empty()
            && key.len() <= MAX_KEY_BYTES
            && key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+' | b'@' | b'_' | b'#'));
        if !key_ok || value.len() > MAX_VALUE_BYTES {
            return Err(TextError::Pair);
        }
        if pairs.len() == MAX_PAIRS {
            return Err(TextError::TooLong);
        }
        if pairs.iter().any(|(other, _)| other == key) {
            return Err(TextError::Duplicate);
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Appends one pair.
pub fn put(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// A number as the RFC writes them: decimal or `0x` hexadecimal.
#[must_use]
pub fn number(value: &str) -> Option<u64> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        None if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => value.parse().ok(),
        _ => None,
    }
}

/// A large binary value: `0x` hexadecimal or `0b` base64, of at most `limit` bytes.
#[must_use]
pub fn binary(value: &str, limit: usize) -> Option<Vec<u8>> {
    let (tag, digits) = value.split_at_checked(2)?;
    match tag {
        "0x" | "0X" => {
            if digits.is_empty() || digits.len() > 2 * limit {
                return None;
            }
            let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
            let (first, rest) = digits.as_bytes().split_at(digits.len() % 2);
            let mut out = Vec::with_capacity(digits.len() / 2 + 1);
            if let [odd] = first {
                out.push(digit(*odd)?);
            }
            for pair in rest.chunks_exact(2) {
                out.push(digit(pair[0])? << 4 | digit(pair[1])?);
            }
            Some(out)
        }
        "0b" | "0B" => base64(digits, limit),
        _ => None,
    }
}

fn base64(digits: &str, limit: usize) -> Option<Vec<u8>> {
    let body = digits.trim_end_matches('=');
    if body.is_empty()
        || digits.len() - body.len() > 2
        || body.len() > limit.div_ceil(3) * 4
        || body.len() % 4 == 1
    {
        return None;
    }
    let mut out = Vec::with_capacity(body.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0u32);
    for b in body.bytes() {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    (out.len() <= limit).then_some(out)
}

/// A binary value in hexadecimal form.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(2 + bytes.len() * 2);
    out.push_str("0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        let pairs = parse(b"A=1\0B=x=y\0\0C=\0").unwrap();
        assert_eq!(pairs.len(), 3);
        assert_eq!(pairs[1], ("B".into(), "x=y".into()));
        assert_eq!(parse(b"A=1\0A=2\0"), Err(TextError::Duplicate));
        assert_eq!(parse(b"novalue\0"), Err(TextError::Pair));
        assert_eq!(parse(b"=1\0"), Err(TextError::Pair));
        assert_eq!(parse(b"A=\xff\0"), Err(TextError::Encoding));
    }

    #[test]
    fn a_sequence_is_bounded() {
        let mut buffer = TextBuffer::default();
        for _ in 0..8 {
            buffer.push(&[b'a'; 8192]).unwrap();
        }
        assert_eq!(buffer.push(b"b"), Err(TextError::TooLong));
    }

    #[test]
    fn binaries() {
        assert_eq!(binary("0x0aF", 9), Some(vec![0x00, 0xaf]));
        assert_eq!(binary("0bTWFu", 9), Some(b"Man".to_vec()));
        assert_eq!(binary("0bTWE=", 9), Some(b"Ma".to_vec()));
        assert_eq!(binary("0bTQ==", 9), Some(b"M".to_vec()));
        assert_eq!(binary("0bTWFu", 2), None);
        assert_eq!(binary("0b====", 9), None);
        assert_eq!(binary("0xzz", 9), None);
        assert_eq!(binary("é", 9), None);
        assert_eq!(number("0x10"), Some(16));
        assert_eq!(number("+1"), None);
    }

    proptest::proptest! {
        #[test]
        fn hex_round_trip(bytes in proptest::collection::vec(proptest::num::u8::ANY, 1..64)) {
            proptest::prop_assert_eq!(binary(&hex(&bytes), 64), Some(bytes));
        }
    }
}
