//! How a disk is opened.

use std::sync::Arc;
use std::time::Duration;

use iscsi_client::Options;
use shard_runtime::{Clock, Entropy};

/// How a disk is opened, as often as it has to be.
#[derive(Clone)]
pub struct Settings {
    /// Portal, target, unit, names and secrets. The ISID is that of the first lane; those of the others follow it. A disk that is opened
    /// with the same ones again takes the place of an earlier one, whose commands are ended first.
    pub login: Options,
    /// Sessions, from 1 to [`Settings::MAX_LANES`].
    pub lanes: usize,
    /// How long things may take.
    pub times: Times,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for challenges.
    pub entropy: Arc<dyn Entropy>,
}

impl Settings {
    /// Most sessions of one disk.
    pub const MAX_LANES: usize = 16;

    /// The login of a lane.
    pub(crate) fn login_of(&self, lane: usize) -> Options {
        let mut login = self.login.clone();
        let [.., high, low] = login.isid;
        let number = u16::from_be_bytes([high, low]).wrapping_add(lane as u16);
        login.isid[4..].copy_from_slice(&number.to_be_bytes());
        login
    }
}

/// How long a target may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A target that owes an answer and has sent nothing for this long is asked whether it is there.
    pub ask: Duration,
    /// One that has sent nothing for this long is connected to anew.
    pub silence: Duration,
    /// A connection and its login.
    pub login: Duration,
    /// One that cannot be connected to for this long is gone.
    pub away: Duration,
    /// One that answers, but not this command, for this long is connected to anew.
    pub command: Duration,
    /// One that is busy, or not ready yet, for this long has failed.
    pub busy: Duration,
}

impl Default for Times {
    /// A mirror waits for its slowest copy, so a dead target must be told from a slow one in seconds.
    fn default() -> Self {
        Self {
            ask: Duration::from_secs(1),
            silence: Duration::from_secs(2),
            login: Duration::from_secs(2),
            away: Duration::from_secs(2),
            command: Duration::from_secs(30),
            busy: Duration::from_secs(10),
        }
    }
}
