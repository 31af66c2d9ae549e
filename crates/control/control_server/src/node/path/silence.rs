//! When a pool is given up, and the process ended, because a disk answers nothing.
//!
//! A node beats as long as its process runs, and nobody else takes its pools meanwhile. A request that never ends keeps a pool from being stopped,
//! so all that is left then is to end the process. That takes the other pools of the node along, so:
//! * only a disk that has answered nothing for long while requests wait for it counts. What is slow and moves is waited for, however long: a write
//!   log that is emptied, a check that has the pool's turn, a kernel that tries a bad sector again and again;
//! * another node that takes pools has to be able to open this one, as far as is known;
//! * a process ends so at most once in [`NOT_AGAIN_WITHIN`]: a disk that all nodes reach may be silent for all of them.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use uuid::Uuid;

use crate::data_dir::replace_file;
use crate::node::Node;

/// Seconds without an answer after which a disk counts here. A kernel that tries a bad sector five times, half a minute each, takes three minutes.
const SILENT_TOO_LONG: u64 = 240;
/// Seconds for which a process that has ended for a silent disk does not do so again.
const NOT_AGAIN_WITHIN: u64 = 3600;
/// Seconds for which the process that is started again leaves that pool to others: the same disk may be silent still.
const LEFT_TO_OTHERS: u64 = 60;
/// The file of the data directory that is written when the process ends for a silent disk: for which pool.
const ENDED: &str = "ended-for-silent-disk";
/// How often it is looked whether a disk of a pool that comes is silent.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Node {
    /// The disk of a pool that has answered nothing for too long, if giving the pool up may help.
    pub(super) fn given_up_for(&self, pool: Uuid) -> Option<String> {
        let disk = self.silent_disk(pool)?;
        let taken = self.cluster.get().is_some_and(|cluster| cluster.has_taker(pool));
        (taken && !self.has_ended_within(NOT_AGAIN_WITHIN)).then_some(disk)
    }

    fn silent_disk(&self, pool: Uuid) -> Option<String> {
        let own: BTreeSet<String> =
            self.disk_answers(|of| of == pool).into_iter().map(|answers| answers.disk).collect();
        self.findings
            .silent_disks(self.uptime_seconds(), SILENT_TOO_LONG)
            .into_iter()
            .find(|disk| own.contains(disk))
    }

    /// Ends when a disk of the pool is silent and giving the pool up may help.
    pub(super) async fn wait_until_silent(&self, pool: Uuid) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(disk) = self.given_up_for(pool) {
                return told(&disk, pool);
            }
        }
    }

    /// Ends the process if the pool does not stop for a silent disk. Comes back where it does not have to end, or may not.
    pub(super) fn end_if_silent(&self, pool: Uuid) {
        let name = self.pool_name(pool).unwrap_or_else(|| pool.to_string());
        let Some(disk) = self.given_up_for(pool) else {
            tracing::warn!(pool = name, "a pool takes long to stop: {}", self.path(pool).step().told());
            return;
        };
        tracing::error!(
            pool = name,
            disk,
            "a pool does not stop, as a disk does not answer. This process ends, so that other nodes can take its pools"
        );
        // Where this fails the process may end again too soon, which is better than to keep its pools from everybody.
        if let Err(error) = replace_file(&self.data.join(ENDED), pool.to_string().as_bytes()) {
            tracing::warn!(%error, "that this process ends for a disk cannot be kept");
        }
        // Threads that hang are not waited for.
        std::process::exit(1);
    }

    /// Whether this node's process has just ended because of a disk of this pool, so that another one is to have it.
    pub(super) fn leaves_to_others(&self, pool: Uuid) -> bool {
        self.has_ended_within(LEFT_TO_OTHERS)
            && std::fs::read_to_string(self.data.join(ENDED)).is_ok_and(|of| of == pool.to_string())
            && self.cluster.get().is_some_and(|cluster| cluster.has_taker(pool))
    }

    fn has_ended_within(&self, seconds: u64) -> bool {
        let kept = std::fs::metadata(self.data.join(ENDED)).and_then(|file| file.modified());
        let at = kept.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        at.is_some_and(|at| is_recent(at.as_secs(), self.clocks().1, seconds))
    }
}

/// Says that a pool is given up.
pub(super) fn told(disk: &str, pool: Uuid) {
    tracing::error!(%pool, disk, "a disk does not answer: its pool is given up, so that another node can have it");
}

/// Whether what was then is not so long ago, all in seconds since 1970. A time that is still to come is that of a clock that was set.
fn is_recent(at: u64, now: u64, within: u64) -> bool {
    now.checked_sub(at).is_none_or(|passed| passed < within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_does_not_end_again_at_once() {
        assert!(is_recent(10_000, 10_000, 60) && is_recent(10_000, 10_059, 60));
        assert!(!is_recent(10_000, 10_060, 60));
        assert!(is_recent(10_005, 10_000, 60), "the clock was set");
    }
}
