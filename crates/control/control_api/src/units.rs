//! Sizes in sentences.

const STEP: f64 = 1024.0;
const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

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
