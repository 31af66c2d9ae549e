//! Disks that do not answer.
//!
//! A disk that fails says so, and a pool does without it. One that never answers says nothing: a kernel that waits for a path to come back, a
//! device that is suspended. What waits for it waits for ever, and so does all that waits for that.

use std::collections::BTreeMap;

use control_api::{Issue, Severity};

use crate::{FindingCode, issue};

/// Seconds without an answer after which a disk is called silent. Disks that spin up, or move a bad sector, take less.
pub const SILENT_AFTER: u64 = 15;

/// What a disk has done up to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskAnswers {
    /// The disk, for people.
    pub disk: String,
    /// The pool that it is in.
    pub pool: String,
    /// Requests that have ended since it was opened, well or not.
    pub answered: u64,
    /// Requests that wait for it now.
    pub waiting: u64,
}

#[derive(Clone, Debug)]
struct Seen {
    last: DiskAnswers,
    /// Since when requests wait and none has ended, in seconds by a clock that nobody sets.
    since: u64,
}

/// Since when disks have not answered, as far as they have been looked at.
#[derive(Clone, Debug, Default)]
pub struct DiskWatch(BTreeMap<String, Seen>);

/// A disk that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent<'a> {
    /// Which.
    pub disk: &'a DiskAnswers,
    /// For how many seconds at least.
    pub seconds: u64,
}

impl DiskWatch {
    /// Looks at disks. `now` is in seconds, by a clock that nobody sets.
    pub fn look(&mut self, now: u64, disks: Vec<DiskAnswers>) {
        let mut before = std::mem::take(&mut self.0);
        for disk in disks {
            let known = before.remove(&disk.disk);
            // How many wait does not matter: as long as none ends, those that wait longest have waited since then.
            let since = known
                .filter(|known| {
                    known.last.waiting > 0 && disk.waiting > 0 && known.last.answered == disk.answered
                })
                .map_or(now, |known| known.since);
            self.0.insert(disk.disk.clone(), Seen { last: disk, since });
        }
    }

    /// Disks that have not answered for so many seconds, the longest silence first.
    pub fn silent(&self, now: u64, seconds: u64) -> Vec<Silent<'_>> {
        let told =
            self.0.values().map(|seen| Silent { disk: &seen.last, seconds: now.saturating_sub(seen.since) });
        let mut silent: Vec<Silent<'_>> =
            told.filter(|silent| silent.disk.waiting > 0 && silent.seconds >= seconds).collect();
        silent.sort_by_key(|silent| std::cmp::Reverse(silent.seconds));
        silent
    }

    /// What there is to say of silent disks.
    #[must_use]
    pub fn issues(&self, now: u64) -> Vec<Issue> {
        let told = |silent: Silent<'_>| {
            let DiskAnswers { disk, pool, waiting, .. } = silent.disk;
            let detail = format!(
                "{waiting} requests wait for it, and it has answered nothing for {} seconds: whatever needs it waits, and the pool cannot do without a disk that does not fail",
                silent.seconds
            );
            let todo = "Look at what is between the node and the disk: a multipath device without a path that queues, a device that is suspended, a controller in the kernel's log. Where another node of the cluster takes pools, this node gives the pool up after four minutes, and where that hangs, too, its process ends with all of its pools, at most once an hour.";
            issue(
                FindingCode::DiskSilent,
                Severity::Error,
                format!("disk {disk} of pool {pool}"),
                detail,
                todo,
            )
        };
        self.silent(now, SILENT_AFTER).into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(answered: u64, waiting: u64) -> Vec<DiskAnswers> {
        vec![DiskAnswers { disk: "d".into(), pool: "p".into(), answered, waiting }]
    }

    fn silent(watch: &DiskWatch, now: u64) -> usize {
        watch.issues(now).len()
    }

    #[test]
    fn a_disk_is_silent_when_requests_wait_and_none_ends() {
        let mut watch = DiskWatch::default();
        for now in 0..100 {
            watch.look(now, at(now, 8));
        }
        assert_eq!(silent(&watch, 99), 0, "it answers");
        watch.look(100, at(99, 9));
        watch.look(110, at(99, 12));
        assert_eq!((silent(&watch, 113), silent(&watch, 114)), (0, 1), "since what it answered last");
        assert_eq!(watch.silent(114, 10)[0].seconds, 15);
        watch.look(115, at(100, 11));
        assert_eq!(silent(&watch, 120), 0, "it has answered one");
        assert_eq!(silent(&watch, 130), 1);
        watch.look(131, Vec::new());
        assert_eq!(silent(&watch, 1000), 0, "it is not there any more");
    }

    #[test]
    fn a_disk_that_nobody_asks_is_not_silent() {
        let mut watch = DiskWatch::default();
        for now in [0, 1000, 2000] {
            watch.look(now, at(5, 0));
            assert_eq!(silent(&watch, now + 900), 0);
        }
        // Asked just now, after a long rest.
        watch.look(3000, at(5, 1));
        assert_eq!((silent(&watch, 3014), silent(&watch, 3015)), (0, 1));
    }
}
