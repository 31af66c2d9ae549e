//! Times of the store and of clients.
//!
//! The store counts nanoseconds since 1970 in 64 bits without a sign, up to the year 2554. Clients set times from 1601 on.
//! What is before 1970 is kept, as far back as 1868, in the store's last hundred years, which nobody lives to need; what
//! neither can hold becomes the nearest that can be held.

use smb_protocol::FileTime;

/// Steps of a FILETIME between 1601 and 1970.
const EPOCH_STEPS: i128 = 116_444_736_000_000_000;
/// Nanoseconds of a step.
const STEP: i128 = 100;
/// How far back before 1970 times are kept, in nanoseconds.
const BEFORE_1970: i128 = 3_200_000_000_000_000_000;

/// A store's time as clients see it.
pub(crate) fn file_time(nanos: u64) -> FileTime {
    let mut nanos = i128::from(nanos);
    let wrap = i128::from(u64::MAX) + 1;
    if nanos >= wrap - BEFORE_1970 {
        nanos -= wrap;
    }
    let steps = nanos.div_euclid(STEP) + EPOCH_STEPS;
    FileTime(u64::try_from(steps).unwrap_or(0))
}

/// A client's time as the store keeps it.
pub(crate) fn store_time(time: FileTime) -> u64 {
    let nanos = (i128::from(time.0) - EPOCH_STEPS) * STEP;
    let wrap = i128::from(u64::MAX) + 1;
    let kept = nanos.clamp(-BEFORE_1970, wrap - BEFORE_1970 - 1);
    u64::try_from(if kept < 0 { kept + wrap } else { kept }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_thousand_years_come_back() {
        // As the suite smb2.timestamps: seconds since 1970, some of them before it.
        for seconds in [15_032_385_535_i128, 10_000_000_000, 4_294_967_295, 1, 0, -1, -2, -63_158_400] {
            let time = FileTime((seconds * 10_000_000 + EPOCH_STEPS) as u64);
            assert_eq!(file_time(store_time(time)), time, "{seconds}");
        }
        assert!(file_time(store_time(FileTime(1))) > FileTime(1), "1601 becomes 1868");
        assert!(file_time(store_time(FileTime(u64::MAX))) < FileTime(u64::MAX));
        assert_eq!(store_time(FileTime(EPOCH_STEPS as u64)), 0);
    }
}
