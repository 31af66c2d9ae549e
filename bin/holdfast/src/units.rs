//! Sizes and times as people write them.

pub(crate) use control_api::{human_bytes as bytes, many, parse_bytes};

/// A duration in its two largest units: `3 min 20 s`.
pub(crate) fn seconds(total: u64) -> String {
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A time as `2026-01-31 13:45:00` UTC.
pub(crate) fn time(unix: u64) -> String {
    let (days, rest) = (unix / 86_400, unix % 86_400);
    // Days to civil date; the era starts on 0000-03-01 so that leap days are last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The number of a session, open or job, with the node that has given it where that is another one: `7`, `n2:7`.
pub(crate) fn numbered(text: &str) -> Result<String, String> {
    let (node, number) = text.rsplit_once(':').map_or((None, text), |(node, number)| (Some(node), number));
    let is_name = |node: &str| {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !node.is_empty() && node.chars().all(letter)
    };
    if number.parse::<u64>().is_ok() && node.is_none_or(is_name) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no number of this node, as 7, nor of another one, as n2:7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written() {
        for (count, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1023, "1.00 KiB"),
            (4096, "4.00 KiB"),
            (20 << 30, "20.0 GiB"),
            (150 << 30, "150 GiB"),
            (1 << 40, "1.00 TiB"),
            (1 << 60, "1.00 EiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(count), want);
        }
    }

    #[test]
    fn times_are_written() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(time(1_795_244_400), "2026-11-21 07:00:00");
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(200), "3 min 20 s");
        assert_eq!(seconds(90_000), "1 d 1 h");
    }
}
