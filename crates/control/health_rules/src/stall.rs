//! Repair that does not come on.

use std::collections::BTreeMap;

use control_api::{Issue, Pool, Severity, human_bytes};

use crate::{FindingCode, issue};

/// Seconds without a byte copied after which repair counts as stalled. Repair that gives way to clients still copies something.
pub const STALLED_AFTER: u64 = 600;

/// How far each pool's repair has come, as far as it has been looked at.
#[derive(Clone, Debug, Default)]
pub struct RepairWatch(BTreeMap<String, Progress>);

#[derive(Clone, Copy, Debug)]
struct Progress {
    copied: u64,
    left: u64,
    /// Seconds by a clock that nobody sets.
    since: u64,
}

impl RepairWatch {
    /// Looks at pools. `now` is in seconds, by a clock that nobody sets.
    pub fn look(&mut self, now: u64, pools: &[Pool]) {
        self.0.retain(|name, _| pools.iter().any(|pool| pool.name == *name && pool.repair_bytes > 0));
        for pool in pools.iter().filter(|pool| pool.repair_bytes > 0) {
            let seen = Progress { copied: pool.copied_bytes, left: pool.repair_bytes, since: now };
            let known = self.0.entry(pool.name.clone()).or_insert(seen);
            // It goes on when something was copied, also where clients write more than that; or when there is less to copy.
            if known.copied != seen.copied || seen.left < known.left {
                *known = seen;
            }
        }
    }

    /// Pools whose repair has stood still for long.
    #[must_use]
    pub fn issues(&self, now: u64) -> Vec<Issue> {
        let stalled =
            |(_, progress): &(&String, &Progress)| now.saturating_sub(progress.since) >= STALLED_AFTER;
        let told = |(name, progress): (&String, &Progress)| {
            let detail = format!(
                "{} are to be copied, and nothing has been for {} minutes: the data stays less redundant than promised",
                human_bytes(progress.left),
                now.saturating_sub(progress.since) / 60
            );
            let todo = format!(
                "`holdfast pool show {name}` shows whether there is a disk with room to copy to, or one that answers slowly; add or replace it. `holdfast pool repair {name}` tries at once."
            );
            issue(FindingCode::RepairStalled, Severity::Error, format!("pool {name}"), detail, todo)
        };
        self.0.iter().filter(stalled).map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::tests::pool;

    fn at(left: u64, copied: u64) -> [Pool; 1] {
        [Pool { repair_bytes: left, copied_bytes: copied, ..pool(control_api::PoolState::Degraded) }]
    }

    #[test]
    fn it_fires_when_nothing_is_copied_and_clears_when_something_is() {
        let mut watch = RepairWatch::default();
        for now in 0..STALLED_AFTER {
            watch.look(now, &at(100, now));
        }
        assert_eq!(watch.issues(STALLED_AFTER), [], "it goes on");
        let last = STALLED_AFTER - 1;
        watch.look(last + 300, &at(100, last));
        assert_eq!(watch.issues(last + STALLED_AFTER - 1), []);
        let told = watch.issues(last + STALLED_AFTER);
        assert_eq!((told.len(), told[0].code.as_str()), (1, "repair-stalled"));
        // Clients write: there is more to copy, which is no progress.
        watch.look(last + STALLED_AFTER, &at(200, last));
        assert_eq!(watch.issues(last + STALLED_AFTER).len(), 1);
        watch.look(last + STALLED_AFTER + 1, &at(190, last + 10));
        assert_eq!(watch.issues(last + STALLED_AFTER + 1), []);
        watch.look(last + STALLED_AFTER + 2, &at(0, last + 200));
        assert_eq!(watch.issues(u64::MAX), [], "all is restored");
    }
}
