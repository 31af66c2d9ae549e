//! What targets on servers have in common: who logs in, and how long a server that went away is waited for.

use std::fmt;
use std::io;
use std::time::Duration;

use shard_runtime::{Clock as _, SystemClock};

/// How long a lost connection is tried to be made anew, in nanoseconds: longer than a server takes to fail over.
const PATIENCE: u64 = 120_000_000_000;
/// Longest distance of attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Who logs in to servers.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// A connection that was lost, and how long it is tried to be made anew.
///
/// It ends when an operation has ended well, not when there is a connection again: a server that takes connections and
/// does nothing is away.
pub struct Outage {
    clock: SystemClock,
    /// When it began, in nanoseconds of the clock, and how.
    since: Option<(u64, String)>,
    connected: bool,
}

impl Default for Outage {
    fn default() -> Self {
        Self { clock: SystemClock::new(), since: None, connected: true }
    }
}

impl Outage {
    /// Whether there is no connection.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        !self.connected
    }

    /// The connection is lost.
    pub fn cut(&mut self, why: String) {
        self.connected = false;
        let now = self.clock.now().0;
        self.since.get_or_insert((now, why));
    }

    /// There is a connection again.
    pub fn mended(&mut self) {
        self.connected = true;
    }

    /// An operation has ended well.
    pub fn over(&mut self) {
        if self.connected && self.since.is_some() {
            self.since = None;
        }
    }

    /// The connection is not made anew, for the reason `error`: waits until another attempt makes sense, for `timeout`
    /// at the most. Between attempts the caller looks at its clock, so that a run can be ended while a server is away.
    ///
    /// # Errors
    /// When it has been tried for long enough.
    pub fn failed(&self, path: &str, error: &dyn fmt::Display, timeout: Duration) -> io::Result<()> {
        let now = self.clock.now().0;
        match &self.since {
            Some((since, why)) if now.saturating_sub(*since) >= PATIENCE => Err(io::Error::other(format!(
                "the connection to '{path}' was lost ({why}) and could not be made anew for {} s: {error}",
                PATIENCE / 1_000_000_000
            ))),
            _ => {
                std::thread::park_timeout(timeout.min(PAUSE));
                Ok(())
            }
        }
    }
}
