//! All times that decide anything, and the inequalities that make them safe.

use std::fmt;
use std::time::Duration;

/// The times of a cluster; all nodes have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A node beats so often.
    pub beat_every: Duration,
    /// The answer to a transaction is waited for so long; what comes later still counts.
    pub beat_patience: Duration,
    /// D: a node may answer so long after the send of its last beat that was committed.
    pub permit: Duration,
    /// W: pools are claimed so long after the receipt of their owner's last beat.
    pub claim_after: Duration,
    /// Who asked for a promise counts on it so long, from when it asked.
    pub promise_used: Duration,
    /// Who gave a promise keeps it so long, from when it gave it.
    pub promise_kept: Duration,
    /// A node that cannot beat asks for promises so often.
    pub ask_every: Duration,
    /// A clock runs at most so many millionths too fast or too slow.
    pub rate_error_ppm: u32,
    /// Between a permit's end on the slowest clock and a claim on the fastest there is at least this.
    pub margin: Duration,
    /// The second candidate for a pool waits so long for the first one, the third twice as long.
    pub candidate_step: Duration,
    /// Others wait so long for a node whose process was started anew to take its pools back.
    pub restart_grace: Duration,
    /// A node that could not open a pool leaves it to others for so long, and twice as long each time it cannot again.
    pub back_off: Duration,
    /// But never for longer than this.
    pub back_off_most: Duration,
    /// A node that sees too few of a pool's disks tries to open it all the same after so long, if nobody else has: what is known of them may be old.
    pub blind_after: Duration,
    /// A pool that has not stopped in so long may never: it is looked whether the node's process has to end, so that others can take its pools.
    pub stop_within: Duration,
    /// A node that was not asked anything for so long has stood still: what it heard before is no news.
    pub stand_still: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let milliseconds = Duration::from_millis;
        Self {
            beat_every: milliseconds(500),
            beat_patience: milliseconds(400),
            permit: milliseconds(2900),
            claim_after: milliseconds(3300),
            promise_used: milliseconds(2000),
            promise_kept: milliseconds(2500),
            ask_every: milliseconds(400),
            rate_error_ppm: 50_000,
            margin: milliseconds(50),
            candidate_step: milliseconds(300),
            restart_grace: milliseconds(1000),
            back_off: milliseconds(1000),
            back_off_most: milliseconds(8000),
            blind_after: Duration::from_secs(10),
            stop_within: Duration::from_secs(45),
            stand_still: milliseconds(1000),
        }
    }
}

/// What is wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

/// Settings whose inequalities hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings(Settings);

impl Timings {
    /// Checks them.
    ///
    /// # Errors
    /// Which inequality does not hold, with its figures.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let rate = settings.rate_error_ppm;
        if rate >= 500_000 {
            return Err(SettingsError(format!(
                "a clock's rate error of {rate} millionths: below 500000 is needed"
            )));
        }
        let order = |what: &str, ends: Duration, begins: Duration| {
            let (latest, earliest) = (slowest(ends, rate), fastest(begins, rate));
            if latest.saturating_add(settings.margin) <= earliest {
                return Ok(());
            }
            Err(SettingsError(format!(
                "{what}: {ends:?} on a clock that is {rate} millionths slow are {latest:?}, {begins:?} on one that is as much fast \
                 are {earliest:?}: there has to be {:?} between them",
                settings.margin
            )))
        };
        order("a permit has to end before a claim", settings.permit, settings.claim_after)?;
        order(
            "a promise has to be kept longer than it is used",
            settings.promise_used,
            settings.promise_kept,
        )?;
        if settings.promise_kept > settings.claim_after {
            return Err(SettingsError(format!(
                "a promise kept for {:?} may be broken by the next life of whoever gave it, which waits {:?} before it claims",
                settings.promise_kept, settings.claim_after
            )));
        }
        let zero = Duration::ZERO;
        if settings.beat_every == zero || settings.ask_every == zero || settings.beat_patience == zero {
            return Err(SettingsError("a node cannot beat, ask or wait in no time".into()));
        }
        // Two beats in a row may be lost, and promises asked for, before a permit ends.
        let needed = settings.beat_every * 2 + settings.beat_patience * 2 + settings.ask_every;
        if slowest(needed, rate) > fastest(settings.permit, rate) {
            return Err(SettingsError(format!(
                "a permit of {:?} ends before two lost beats are noticed: {needed:?} are needed",
                settings.permit
            )));
        }
        if settings.promise_used < settings.ask_every * 2 {
            return Err(SettingsError(format!(
                "a promise used for {:?} ends before a second one can be asked for",
                settings.promise_used
            )));
        }
        Ok(Self(settings))
    }
}

impl std::ops::Deref for Timings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

/// The true time that so much takes at most, on a slow clock; rounded up.
fn slowest(duration: Duration, rate: u32) -> Duration {
    let nanos = duration.as_nanos() * 1_000_000;
    let true_nanos = nanos.div_ceil(u128::from(1_000_000 - rate));
    Duration::from_nanos(u64::try_from(true_nanos).unwrap_or(u64::MAX))
}

/// The true time that so much takes at least, on a fast clock; rounded down.
fn fastest(duration: Duration, rate: u32) -> Duration {
    let true_nanos = duration.as_nanos() * 1_000_000 / u128::from(1_000_000 + rate);
    Duration::from_nanos(u64::try_from(true_nanos).unwrap_or(u64::MAX))
}
