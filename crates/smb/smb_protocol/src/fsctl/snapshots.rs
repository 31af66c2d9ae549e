//! SRV_ENUMERATE_SNAPSHOTS: the previous versions of a share (MS-SMB2 2.2.32.2).
//!
//! A snapshot is named by its time, `@GMT-2026.11.21-09.30.00`, in 24 characters and a zero.

use crate::time::FileTime;
use crate::utf16::{Utf16, put_utf16};
use crate::wire::{DecodeError, Reader, Wire};

/// Bytes of a name with its terminator.
const NAME_BYTES: usize = 50;
/// Steps of a FILETIME in a second.
const STEPS: u64 = 10_000_000;
/// Days from 1601-01-01 to 0000-03-01 in the proleptic Gregorian calendar, negated.
const DAYS_BEFORE_1601: i64 = 584_694;

/// The name of the snapshot taken at a time; fractions of a second are cut.
#[must_use]
pub fn snapshot_name(time: FileTime) -> String {
    let seconds = time.0 / STEPS;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days as i64);
    format!("@GMT-{year:04}.{month:02}.{day:02}-{:02}.{:02}.{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The time in a snapshot's name; `None` when it is none, or no day of the calendar.
#[must_use]
pub fn snapshot_time(name: &str) -> Option<FileTime> {
    let rest = name.strip_prefix("@GMT-")?;
    if rest.len() != 19 {
        return None;
    }
    let mut numbers = [0_u32; 6];
    for (at, (text, number)) in rest.split(['.', '-']).zip(&mut numbers).enumerate() {
        let digits = text.len() == if at == 0 { 4 } else { 2 } && text.bytes().all(|b| b.is_ascii_digit());
        *number = if digits { text.parse().ok()? } else { return None };
    }
    let [year, month, day, hour, minute, second] = numbers;
    let days = days_of(i64::from(year), month, day);
    let seconds = u64::try_from(days).ok()? * 86_400 + u64::from(hour * 3600 + minute * 60 + second);
    let time = FileTime(seconds * STEPS);
    // Whatever is no proper date (month 13, hour 24) does not come back as it went in.
    (snapshot_name(time) == name).then_some(time)
}

/// Year, month and day of the day so many days after 1601-01-01.
fn date(days: i64) -> (i64, u32, u32) {
    // Years are counted from March, in eras of 400 years, so that the leap day is the last one.
    let days = days + DAYS_BEFORE_1601;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// Days from 1601-01-01 to a date.
fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let (month, day) = (i64::from(month), i64::from(day));
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - DAYS_BEFORE_1601
}

/// The output of SRV_ENUMERATE_SNAPSHOTS, newest first as given. If the names do not fit into `limit` bytes, only their
/// number and how much space they need are told, as Windows does.
pub fn put_snapshots(times: &[FileTime], limit: usize, out: &mut Vec<u8>) {
    let needed = times.len() * NAME_BYTES + 2;
    let fits = 12 + needed <= limit;
    (times.len() as u32).put(out);
    (if fits { times.len() as u32 } else { 0 }).put(out);
    (needed as u32).put(out);
    if fits {
        for time in times {
            put_utf16(&snapshot_name(*time), out);
            0_u16.put(out);
        }
        0_u16.put(out);
    } else {
        // A reader of the array finds its end.
        0_u32.put(out);
    }
}

/// The snapshots in the output of SRV_ENUMERATE_SNAPSHOTS, and how many there are in all.
///
/// # Errors
/// When it is not whole, or a name is no time.
pub fn snapshots(output: &[u8]) -> Result<(u32, Vec<FileTime>), DecodeError> {
    let mut r = Reader::new(output);
    let total = r.u32()?;
    let returned = r.u32()? as usize;
    let _size = r.u32()?;
    if returned > r.remaining() / NAME_BYTES {
        return Err(DecodeError::Truncated);
    }
    let mut times = Vec::with_capacity(returned);
    for _ in 0..returned {
        let name = Utf16::new(r.raw(NAME_BYTES - 2)?)?.to_string();
        r.u16()?;
        let time = name.ok().as_deref().and_then(snapshot_time);
        times.push(time.ok_or(DecodeError::Invalid("snapshot name"))?);
    }
    Ok((total, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_times() {
        // 2000-02-29 12:34:56, a leap day that the rule of centuries takes away and the rule of 400 years gives back.
        let time = FileTime::from_unix_nanos(951_827_696_000_000_000);
        assert_eq!(snapshot_name(time), "@GMT-2000.02.29-12.34.56");
        assert_eq!(snapshot_time("@GMT-2000.02.29-12.34.56"), Some(time));
        assert_eq!(snapshot_name(FileTime(0)), "@GMT-1601.01.01-00.00.00");
        for bad in [
            "@GMT-2001.02.29-00.00.00",
            "@GMT-2000.13.01-00.00.00",
            "@GMT-2000.01.01-24.00.00",
            "@GMT-2000",
            "@GMT-+000.01.01-00.00.00",
            "2000.01.01-00.00.00",
            "@GMT-1600.01.01-00.00.00",
            "@GMT-2.1.1-9999999.0.00",
        ] {
            assert_eq!(snapshot_time(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_day_of_eight_centuries() {
        for day in 0..292_194 {
            let time = FileTime(day * 86_400 * STEPS);
            assert_eq!(snapshot_time(&snapshot_name(time)), Some(time));
        }
    }

    #[test]
    fn lists_that_fit_and_that_do_not() {
        let times = [FileTime(STEPS * 1_000_000_000), FileTime(STEPS * 2_000_000_000)];
        let mut out = Vec::new();
        put_snapshots(&times, 1024, &mut out);
        assert_eq!(snapshots(&out), Ok((2, times.to_vec())));
        let mut short = Vec::new();
        put_snapshots(&times, 16, &mut short);
        assert_eq!((short.len(), snapshots(&short)), (16, Ok((2, vec![]))));
        out[4] = 3;
        assert!(snapshots(&out).is_err());
    }
}
