//! Message numbers and credits of a connection (MS-SMB2 3.3.1.1, 3.3.1.2, 3.3.5.2.3).
//!
//! A credit is the right to use one message number. The client may use any number of the window once, in any order:
//!
//! ```text
//!   used used  …  low │ free used free free …  free │ high
//!                     └──── at most MAX_CREDITS ────┘
//! ```

use std::collections::VecDeque;

use crate::limits::MAX_CREDITS;

/// A number that was used already, is too old, or was never granted: the client is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message number {0} is not in the window")]
pub(crate) struct OutOfWindow(pub(crate) u64);

/// The window. Invariant: `used.len() == high - low`, at most [`MAX_CREDITS`], and the first is free.
#[derive(Debug)]
pub(crate) struct Credits {
    low: u64,
    used: VecDeque<bool>,
    /// How many of the window are free: the credits that the client has.
    free: u16,
}

impl Credits {
    /// A connection begins with number 0 and one credit.
    pub(crate) fn new() -> Self {
        Self { low: 0, used: VecDeque::from([false]), free: 1 }
    }

    /// Uses `charge` numbers from `first` on; 0 counts as 1.
    pub(crate) fn consume(&mut self, first: u64, charge: u16) -> Result<(), OutOfWindow> {
        let charge = usize::from(charge.max(1));
        let at = first
            .checked_sub(self.low)
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| at.checked_add(charge).is_some_and(|end| end <= self.used.len()))
            .ok_or(OutOfWindow(first))?;
        if self.used.range(at..at + charge).any(|used| *used) {
            return Err(OutOfWindow(first));
        }
        self.used.range_mut(at..at + charge).for_each(|used| *used = true);
        self.free -= charge as u16;
        while self.used.front() == Some(&true) {
            self.used.pop_front();
            self.low += 1;
        }
        Ok(())
    }

    /// Grants what an answer may grant: what was asked, at least one, so that the client can go on, and never more than
    /// the window holds. Returns how many.
    pub(crate) fn grant(&mut self, asked: u16) -> u16 {
        // When nothing is free the window is empty (its first number is always free), so there is room for one.
        let room = (usize::from(MAX_CREDITS) - self.used.len()) as u16;
        let granted = asked.max(1).min(room);
        self.used.extend(std::iter::repeat_n(false, usize::from(granted)));
        self.free += granted;
        granted
    }

    /// The number of the next message, if the client sends them in order.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u16 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_good_once_and_only_when_granted() {
        let mut credits = Credits::new();
        assert_eq!(credits.consume(1, 1), Err(OutOfWindow(1)));
        assert_eq!(credits.consume(0, 1), Ok(()));
        assert_eq!(credits.consume(0, 1), Err(OutOfWindow(0)));
        assert_eq!(credits.grant(10), 10);
        assert_eq!(credits.consume(5, 2), Ok(()));
        assert_eq!(credits.consume(6, 1), Err(OutOfWindow(6)));
        assert_eq!(credits.consume(4, 2), Err(OutOfWindow(4)), "half of it was used");
        assert_eq!(credits.consume(10, 2), Err(OutOfWindow(10)), "the last was not granted");
        assert_eq!(credits.consume(u64::MAX, u16::MAX), Err(OutOfWindow(u64::MAX)));
        assert_eq!(credits.free(), 8);
    }

    #[test]
    fn the_window_is_bounded_and_never_shut() {
        let mut credits = Credits::new();
        let mut next = 0;
        credits.consume(next, 1).unwrap();
        assert_eq!(credits.grant(u16::MAX), MAX_CREDITS);
        assert_eq!(credits.grant(u16::MAX), 0);
        for _ in 0..20_000 {
            next += 1;
            credits.consume(next, 1).unwrap();
            assert_eq!(credits.grant(0), 1, "a client that asks for nothing gets one back");
        }
        // A number that is never used holds the window up, but what is in it stays usable.
        let hole = next + 1;
        for number in hole + 1..hole + u64::from(MAX_CREDITS) {
            credits.consume(number, 1).unwrap();
            credits.grant(1);
        }
        assert_eq!(credits.free(), 1);
        assert_eq!(credits.consume(hole, 1), Ok(()));
        assert_eq!(credits.grant(5), 5);
    }
}
