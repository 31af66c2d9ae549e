//! How full pools are: said in the status while it lasts, and in the log when it gets worse.
//!
//! A thin pool that is full fails writes, of volumes that seem to have room; so it is told long before.

use control_api::{Issue, PolicyConfig, Pool, Severity, Volume, human_bytes};
use health_rules::{FindingCode, of_rule};

use super::Node;
use super::pool_summary::summary;

/// How full a pool is, by what the policy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fullness {
    #[default]
    Fine,
    Warning,
    Critical,
}

/// Percent that is in use, rounded down.
fn percent(capacity: u64, free: u64) -> u64 {
    (u128::from(capacity.saturating_sub(free)) * 100 / u128::from(capacity.max(1))) as u64
}

impl Fullness {
    /// Of a pool with so many bytes, and so many free.
    fn of(capacity: u64, free: u64, policy: &PolicyConfig) -> Self {
        let over = |limit: u8| limit > 0 && capacity > 0 && percent(capacity, free) >= u64::from(limit);
        if over(policy.space_critical_percent) {
            Self::Critical
        } else if over(policy.space_warning_percent) {
            Self::Warning
        } else {
            Self::Fine
        }
    }
}

/// Bytes of a pool that data may take.
pub(super) fn for_data(pool: &Pool) -> u64 {
    pool.capacity_bytes.saturating_sub(pool.reserved_bytes)
}

fn of(pool: &Pool, policy: &PolicyConfig) -> Fullness {
    Fullness::of(for_data(pool), pool.free_bytes, policy)
}

impl Node {
    /// Volumes that change nothing, as there was no space for their metadata when they were opened.
    pub(super) fn full_volumes(&self) -> Vec<Issue> {
        let volumes = self.volumes.lock();
        let full = volumes
            .iter()
            .filter(|(_, slot)| slot.handle.as_ref().is_some_and(|handle| handle.lacks_space()));
        full.map(|(volume, slot)| Issue {
            severity: Severity::Critical,
            subject: format!("volume {volume}"),
            detail: "there was no space for its metadata when it was opened: it is read and overwritten, and nothing else of it is changed".into(),
            todo: format!(
                "Give pool {} more space (`holdfast pool add-disk`, or delete what is not needed there), or the file systems that its disks lie on; the volume takes changes again by itself then. `holdfast volume reopen {volume} --yes` tries at once.",
                self.pool_name(slot.pool).unwrap_or_else(|| slot.pool.to_string())
            ), ..of_rule(FindingCode::VolumeMetadataFull) })
        .collect()
    }

    /// What there is to say of a pool's space; `volumes` are all that are known. One that is fuller than its limits has one line, whatever
    /// follows from that.
    pub(super) fn space_issues(&self, pool: &Pool, volumes: &[Volume]) -> Vec<Issue> {
        let promises = health_rules::of_promises(pool, volumes);
        if !self.is_told_full(pool) {
            return self.forecast_issue(pool).into_iter().chain(promises).collect();
        }
        let own = self.open_handles().into_iter().filter(|(guid, _)| *guid == pool.guid);
        let without_room: Vec<String> = own
            .flat_map(|(_, handle)| handle.info().spaces)
            .filter(|space| space.out_of_room)
            .map(|space| space.state.name)
            .collect();
        vec![health_rules::of_fullness(pool, for_data(pool), &without_room, promises)]
    }

    /// Whether what finds no room in this pool is told of the pool.
    pub(super) fn is_told_full(&self, pool: &Pool) -> bool {
        self.config.with(|config| of(pool, &config.policy)) != Fullness::Fine
    }

    /// Logs which pools have become fuller than a limit since the last look.
    pub(super) fn watch_space(&self) {
        for (guid, handle) in self.open_handles() {
            let pool = summary(&handle.info());
            let now = self.config.with(|config| of(&pool, &config.policy));
            let before = match self.pools.lock().get_mut(&guid) {
                Some(slot) => std::mem::replace(&mut slot.fullness, now),
                None => continue,
            };
            if now > before {
                tracing::warn!(
                    pool = pool.name,
                    "the pool is {} % full, {} are free",
                    percent(for_data(&pool), pool.free_bytes),
                    human_bytes(pool.free_bytes)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percents_of_what_is_there() {
        let policy = PolicyConfig::default();
        let of = |used: u64, policy: &PolicyConfig| Fullness::of(1000, 1000 - used, policy);
        let levels = [0, 699, 700, 899, 900, 1000].map(|used| of(used, &policy));
        use Fullness::{Critical, Fine, Warning};
        assert_eq!(levels, [Fine, Fine, Warning, Warning, Critical, Critical]);
        let never = PolicyConfig { space_warning_percent: 0, space_critical_percent: 0, ..policy };
        assert_eq!(of(1000, &never), Fine);
        assert_eq!(Fullness::of(0, 0, &PolicyConfig::default()), Fine);
    }
}
