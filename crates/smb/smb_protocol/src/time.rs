//! FILETIME: 100-nanosecond steps since 1601-01-01 00:00 UTC (MS-DTYP 2.3.3).

use std::fmt;

/// Steps between the beginning of FILETIME and 1970-01-01.
const UNIX_EPOCH: i128 = 116_444_736_000_000_000;
/// Nanoseconds in a step.
const NANOS: i128 = 100;

/// A point in time as on the wire. In SET_INFO the values 0, -1 and -2 are no times but instructions (MS-FSCC 2.4.7).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime(pub u64);

/// What a time in FILE_BASIC_INFORMATION asks for (MS-FSCC 2.4.7, MS-FSA 2.1.5.15.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// 0: leave it as it is.
    Keep,
    /// -1: leave it as it is, and let later operations on this handle not change it.
    Freeze,
    /// -2: let later operations on this handle change it again.
    Thaw,
    /// Set it.
    To(FileTime),
}

impl FileTime {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Converts nanoseconds since 1970, rounded down to a step; what is before 1601 becomes 1601.
    #[must_use]
    pub fn from_unix_nanos(nanos: i64) -> Self {
        let steps = i128::from(nanos).div_euclid(NANOS) + UNIX_EPOCH;
        Self(u64::try_from(steps).unwrap_or(0))
    }

    /// The time as nanoseconds since 1970; what 64 bits cannot hold becomes the nearest that they can.
    #[must_use]
    pub fn to_unix_nanos(self) -> i64 {
        let nanos = (i128::from(self.0) - UNIX_EPOCH) * NANOS;
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }

    /// What this value asks for in a request that sets times; `None` for the other negative values, which are refused.
    #[must_use]
    pub fn to_set(self) -> Option<SetTime> {
        match self.0 as i64 {
            0 => Some(SetTime::Keep),
            -1 => Some(SetTime::Freeze),
            -2 => Some(SetTime::Thaw),
            i64::MIN..=-3 => None,
            _ => Some(SetTime::To(self)),
        }
    }
}

impl fmt::Debug for FileTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl crate::wire::Wire for FileTime {
    const SIZE: usize = 8;
    fn take(reader: &mut byte_codec::Reader<'_>) -> Result<Self, byte_codec::DecodeError> {
        reader.u64().map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_points() {
        assert_eq!(FileTime::from_unix_nanos(0).0, 116_444_736_000_000_000);
        assert_eq!(FileTime(116_444_736_000_000_001).to_unix_nanos(), 100);
        assert_eq!(FileTime::from_unix_nanos(-1).to_unix_nanos(), -100);
        assert_eq!(FileTime(u64::MAX).to_unix_nanos(), i64::MAX);
        assert_eq!(FileTime(0).to_unix_nanos(), i64::MIN);
    }

    #[test]
    fn what_setting_asks_for() {
        assert_eq!(FileTime(0).to_set(), Some(SetTime::Keep));
        assert_eq!(FileTime(u64::MAX).to_set(), Some(SetTime::Freeze));
        assert_eq!(FileTime(u64::MAX - 1).to_set(), Some(SetTime::Thaw));
        assert_eq!(FileTime(u64::MAX - 2).to_set(), None);
        assert_eq!(FileTime(7).to_set(), Some(SetTime::To(FileTime(7))));
    }
}
