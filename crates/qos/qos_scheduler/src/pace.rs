//! Tags on the time line: how far an amount moves them at a rate, exactly.

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A rate by which amounts become time. What a division leaves over is carried to the next step, so that any number of
/// steps moves a tag by exactly the sum of the amounts over the rate, rounded down once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Amount for each second; 0: no rate.
    rate: u64,
    /// What is left over, in 1/rate of a nanosecond; always below `rate`.
    rest: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.unwrap_or(0), rest: 0 }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.rate != 0
    }

    /// The tag moved by `amount`; it stops at the end of time instead of overflowing.
    pub(crate) fn step(&mut self, tag: u64, amount: u64) -> u64 {
        if self.rate == 0 {
            return tag;
        }
        if let Some(total) = amount.checked_mul(SECOND).and_then(|total| total.checked_add(self.rest)) {
            self.rest = total % self.rate;
            return tag.saturating_add(total / self.rate);
        }
        let total = u128::from(amount) * u128::from(SECOND) + u128::from(self.rest);
        let rate = u128::from(self.rate);
        self.rest = u64::try_from(total % rate).unwrap_or(0);
        tag.saturating_add(u64::try_from(total / rate).unwrap_or(u64::MAX))
    }

    pub(crate) fn forget_rest(&mut self) {
        self.rest = 0;
    }
}

/// A limit, as the generic cell rate algorithm (ITU-T I.371): the time at which all that was charged will have been paid
/// for. A request may start once that time is at most the burst allowance ahead, and is then charged whole: a large one
/// makes those after it wait, and none is too large ever to start.
///
/// So in any span of `t` nanoseconds no more starts than `rate × (t + burst)` and the last request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pace: Pace,
    paid: u64,
}

impl Limit {
    pub(crate) fn new(rate: Option<u64>, now: u64) -> Self {
        Self { pace: Pace::new(rate), paid: now }
    }

    /// From when on a request may start.
    pub(crate) fn opens(&self, burst: u64) -> u64 {
        if self.pace.is_set() { self.paid.saturating_sub(burst) } else { 0 }
    }

    /// When all that was charged will have been paid for.
    pub(crate) fn paid(&self) -> u64 {
        if self.pace.is_set() { self.paid } else { 0 }
    }

    pub(crate) fn charge(&mut self, now: u64, amount: u64) {
        if !self.pace.is_set() {
            return;
        }
        if self.paid < now {
            self.paid = now;
            self.pace.forget_rest();
        }
        self.paid = self.pace.step(self.paid, amount);
    }

    /// Another rate from now on. What is owed stays owed as an amount, so that a raised limit is felt at once and changing a
    /// limit again and again gives nothing away; it is forgotten with the limit.
    pub(crate) fn set_rate(&mut self, rate: Option<u64>, now: u64) {
        let rate = rate.unwrap_or(0);
        if rate == self.pace.rate {
            return;
        }
        let owed = if rate == 0 || !self.pace.is_set() { 0 } else { self.paid.saturating_sub(now) };
        let ahead = u128::from(owed) * u128::from(self.pace.rate) / u128::from(rate.max(1));
        self.pace = Pace { rate, rest: 0 };
        self.paid = now.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX));
    }
}
