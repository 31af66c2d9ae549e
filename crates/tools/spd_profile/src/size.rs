//! Sizes: bytes, or a number with K, M, G, T (powers of 1024) or b (blocks).

use crate::error::{ProfileError, refuse};

/// Reads a size in bytes, of which `block` is one `b`; suffixes in either case.
///
/// # Errors
/// When there is no number, the suffix is unknown, something follows it, or the size overflows.
pub fn parse_size(text: &str, block: u32) -> Result<u64, ProfileError> {
    match size_prefix(text, block)? {
        (size, "") => Ok(size),
        (_, rest)
            if rest.len() == text.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).len() =>
        {
            let bad = rest.chars().next().unwrap_or(' ');
            refuse(format!("Invalid size '{bad}'. Valid: K - KiB, M - MiB, G - GiB, T - TiB, B - block"))
        }
        _ => refuse("Unrecognized characters after size specification"),
    }
}

/// Reads a size at the beginning of `text`; returns it and what follows.
pub(crate) fn size_prefix(text: &str, block: u32) -> Result<(u64, &str), ProfileError> {
    let (number, rest) = number_prefix(text)?;
    let mut rest_chars = rest.chars();
    let (factor, suffix) = match rest_chars.next().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (1 << 10, Some('K')),
        Some('M') => (1 << 20, Some('M')),
        Some('G') => (1 << 30, Some('G')),
        Some('T') => (1 << 40, Some('T')),
        Some('B') => (u64::from(block), Some('B')),
        _ => (1, None),
    };
    let rest = if suffix.is_some() { rest_chars.as_str() } else { rest };
    match number.checked_mul(factor) {
        Some(size) => Ok((size, rest)),
        None => refuse(format!("Overflow applying multipler '{}'", suffix.unwrap_or(' '))),
    }
}

/// Reads an unsigned number at the beginning of `text`, over spaces before it as `atoi` does.
pub(crate) fn number_prefix(text: &str) -> Result<(u64, &str), ProfileError> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    match digits.parse() {
        Ok(number) => Ok((number, rest)),
        Err(_) => refuse("Invalid integer"),
    }
}

/// A size as DiskSpd 2.2 prints it: `64KiB`, `1.50MiB`, `512`.
#[must_use]
pub fn display_size(bytes: u64) -> String {
    for (shift, name) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit = 1u64 << shift;
        if bytes >= unit {
            return if bytes.is_multiple_of(unit) {
                format!("{}{name}", bytes >> shift)
            } else {
                format!("{:.2}{name}", bytes as f64 / unit as f64)
            };
        }
    }
    bytes.to_string()
}
