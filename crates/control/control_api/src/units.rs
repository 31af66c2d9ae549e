//! Sizes in sentences and as people write them.

const STEP: f64 = 1024.0;
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with three significant digits: `20.0 GiB`.
#[must_use]
pub fn human_bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = 0;
    // From 999.5 on, three digits would read "1000".
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= STEP;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Reads a size: `4096`, `64k`, `20G`, `20GiB`, `1.5T` (powers of 1024), `20GB` (powers of 1000).
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: use bytes or a number with K, M, G, T, P or E, as 20G");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let lower = unit.trim().to_ascii_lowercase();
    let (letter, step) = match lower.as_str() {
        "" | "b" => ("", 1024_u64),
        unit if unit.len() == 2 && unit.ends_with('b') => (&unit[..1], 1000),
        unit => (unit.strip_suffix("ib").unwrap_or(unit), 1024),
    };
    let power =
        ["", "k", "m", "g", "t", "p", "e"].iter().position(|unit| *unit == letter).ok_or_else(wrong)?;
    let factor = step.pow(power as u32);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| format!("{text:?} is too large"));
    }
    let value: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = value * factor as f64;
    // Whole 512-byte blocks, so that a fraction does not give a size that no disk can have.
    if bytes.is_finite() && bytes < 9.0e18 {
        Ok(bytes as u64 / 512 * 512)
    } else {
        Err(format!("{text:?} is too large"))
    }
}

/// A thing of which there are several: `a disk`, `an initiator group`.
#[must_use]
pub fn with_article(what: &str) -> String {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']) { "an" } else { "a" };
    format!("{article} {what}")
}

/// A number of things: `1 disk`, `2 disks`.
#[must_use]
pub fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, want) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64 << 10),
            ("20G", 20 << 30),
            ("20GiB", 20 << 30),
            ("20 gib", 20 << 30),
            ("1.5T", (1 << 40) + (1 << 39)),
            ("20GB", 20_000_000_000),
            ("512b", 512),
            ("1E", 1 << 60),
            ("1.5EiB", 3 << 59),
            ("2EB", 2_000_000_000_000_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(want), "{text}");
        }
        for text in ["", "G", "-1", "1x", "1.2.3G", "99999999P", "16E", "1e9", "ib"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
