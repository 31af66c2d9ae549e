//! Moments as people write them, in UTC.

const DAY: u64 = 86_400;

/// A moment of the past, or one so long before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Seconds since 1970.
    At(u64),
    /// Seconds of the day that now is in.
    Today(u64),
    /// Seconds before now.
    Ago(u64),
}

impl When {
    /// Seconds since 1970, `now` being so many.
    pub(super) fn unix(self, now: u64) -> u64 {
        match self {
            Self::At(unix) => unix,
            Self::Today(seconds) => now - now % DAY + seconds,
            Self::Ago(seconds) => now.saturating_sub(seconds),
        }
    }
}

/// `now`, `90m`, `2h`, `3d` before now; `13:45`; `2026-11-27 13:45:10`, with `T` in place of the blank and `Z` at the end if one likes.
pub(super) fn parse(text: &str) -> Result<When, String> {
    let wrong = || {
        format!(
            "{text:?} is no moment: write 90s, 15m, 2h or 3d for so long ago, 13:45 for today, 2026-11-27 13:45:10 (UTC), or now"
        )
    };
    let words = text.trim().trim_end_matches('Z');
    if words == "now" {
        return Ok(When::Ago(0));
    }
    let parsed = ago(words).map(When::Ago).or_else(|| clock(words).map(When::Today)).or_else(|| {
        let (date, time) = words.split_once([' ', 'T']).unwrap_or((words, "00:00"));
        Some(When::At(days(date)? * DAY + clock(time)?))
    });
    parsed.ok_or_else(wrong)
}

fn ago(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        _ => return None,
    };
    number.trim_start_matches('-').parse::<u64>().ok()?.checked_mul(seconds)
}

/// A number below `end`, in two digits or one.
fn part(text: &str, end: u64) -> Option<u64> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|value| digits && *value < end)
}

/// Seconds of a day.
fn clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let (hours, minutes) = (part(parts.next()?, 24)?, part(parts.next()?, 60)?);
    let seconds = parts.next().map_or(Some(0), |seconds| part(seconds, 60))?;
    parts.next().is_none().then_some(hours * 3600 + minutes * 60 + seconds)
}

/// Days since 1970 of a date.
fn days(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let year: u64 = parts.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let (month, day) = (part(parts.next()?, 13)?, part(parts.next()?, 32)?);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()?.checked_sub(1)?;
    if parts.next().is_some() || day == 0 || day > *lengths.get(before)? {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(years + lengths.iter().take(before).sum::<u64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::time;

    #[test]
    fn what_is_written_is_read_again() {
        for unix in [0, 951_827_696, 951_782_400, 1_795_244_400, 4_107_542_399, 68_169_599] {
            assert_eq!(parse(&time(unix)), Ok(When::At(unix)), "{}", time(unix));
        }
        assert_eq!(parse("2026-11-21T07:00Z"), Ok(When::At(1_795_244_400)));
        assert_eq!(parse("2026-11-21"), Ok(When::At(1_795_219_200)));
    }

    #[test]
    fn words_are_moments_before_now() {
        let now = 1_795_244_400;
        for (text, unix) in [
            ("now", now),
            ("90s", now - 90),
            ("-2h", now - 7200),
            ("1d", now - DAY),
            ("06:30", now - 1800),
            ("6:30:05", now - 1795),
        ] {
            assert_eq!(parse(text).map(|when| when.unix(now)), Ok(unix), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "yesterday",
            "24:00",
            "12",
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "1:2:3:4",
            "5w",
            "2026-11-21 7",
            "é",
            "+1:+2",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
