//! Keeping pools whole: repair, scrub, check.

use control_api::{
    CheckReport, CheckRequest, Code, Done, JobKind, Problem, Rebalance, RebalanceReport, RebalancedDisk,
    RedundancyState,
};

use uuid::Uuid;

use super::Node;
use super::status::report;
use crate::backend::Upkeep;

/// What is answered to a repair when nothing is to be copied: all is well, or nothing can be done.
fn nothing_to_copy(pool: &str, spaces: impl Iterator<Item = RedundancyState>) -> Result<Done, Problem> {
    match spaces.min().unwrap_or(RedundancyState::Full) {
        RedundancyState::Full => Ok(Done::new(format!("Pool {pool} is as redundant as promised."))),
        RedundancyState::Restoring => Ok(Done::new(format!("Pool {pool} is being repaired already."))),
        RedundancyState::Reduced | RedundancyState::Unavailable => Err(Problem::new(
            Code::WrongState,
            format!("Pool {pool} is not as redundant as promised, and nothing of it can be copied now."),
        )
        .todo("`holdfast status` says what is missing: bring it back, or replace it.")),
    }
}

impl Node {
    /// What the configuration says of keeping pools whole.
    pub(super) fn upkeep(&self) -> Upkeep {
        self.config.with(|config| Upkeep {
            repair_bytes_per_second: config.policy.repair_bytes_per_second,
            client_latency_ms: config.policy.repair_latency_ms,
            scrub_every_days: config.policy.scrub_every_days,
            scrub_bytes_per_second: config.policy.scrub_bytes_per_second,
            rebalance_above_percent: config.policy.rebalance_above_percent,
            reserve_disks: config.policy.reserve_disks,
        })
    }

    /// Restores redundancy now.
    pub async fn pool_repair(&self, pool: &str) -> Result<Done, Problem> {
        let (_, handle) = self.pool(pool)?;
        handle.repair().await?;
        let info = handle.info();
        let left: u64 = info.spaces.iter().map(|space| space.state.repair_bytes).sum();
        if left == 0 {
            return nothing_to_copy(&info.name, info.spaces.iter().map(|space| space.state.redundancy));
        }
        let (now_ms, wall) = self.times();
        let job = self.jobs.start(JobKind::Repair, &format!("pool {}", info.name), now_ms, wall);
        self.jobs.progress(job, left, "copies are being restored", now_ms);
        Ok(Done { message: format!("Pool {} is being repaired.", info.name), job: Some(job), node: None })
    }

    /// Begins to read everything and to heal what is damaged.
    pub async fn pool_scrub(&self, pool: &str) -> Result<Done, Problem> {
        let (_, handle) = self.pool(pool)?;
        handle.scrub().await?;
        let name = handle.info().name;
        Ok(Done::new(format!(
            "Pool {name} is being scrubbed; `holdfast pool show {name}` tells how far it is."
        )))
    }

    /// Makes the disks of a pool equally full.
    pub async fn pool_rebalance(&self, pool: &str, request: Rebalance) -> Result<RebalanceReport, Problem> {
        let (_, handle) = self.pool(pool)?;
        let plan = handle.rebalance(request.dry_run).await?;
        let info = self.pool_info(&handle);
        let disk = |(guid, used, then): &(Uuid, u64, u64)| {
            let member = info.members.iter().find(|member| member.guid == *guid)?;
            Some(RebalancedDisk {
                disk: member.disk.clone().unwrap_or_else(|| guid.to_string()),
                enclosure: member.enclosure.clone(),
                capacity_bytes: member.size_bytes,
                used_bytes: *used,
                used_then_bytes: *then,
            })
        };
        let mut disks: Vec<RebalancedDisk> = plan.members.iter().filter_map(disk).collect();
        disks.sort_by_key(|disk| std::cmp::Reverse(disk.used_bytes.abs_diff(disk.used_then_bytes)));
        let job = (!request.dry_run && plan.bytes > 0).then(|| {
            let (now_ms, wall) = self.times();
            let job = self.jobs.start(JobKind::Rebalance, &format!("pool {}", info.name), now_ms, wall);
            self.jobs.progress(job, plan.bytes, "slabs are being moved", now_ms);
            job
        });
        Ok(RebalanceReport { bytes: plan.bytes, disks, job, node: None })
    }

    /// Verifies all structures of a pool.
    pub async fn pool_check(&self, pool: &str, request: CheckRequest) -> Result<CheckReport, Problem> {
        if request.repair {
            return Err(Problem::new(Code::Unsupported, "A pool repairs what it can by itself.")
                .todo("Use `holdfast pool repair` to restore copies now."));
        }
        let (_, handle) = self.pool(pool)?;
        Ok(report(format!("pool {pool}"), handle.check(request.deep).await?))
    }
}

#[cfg(test)]
mod tests {
    use control_api::RedundancyState::{Full, Reduced, Restoring, Unavailable};

    use super::nothing_to_copy;

    #[test]
    fn a_repair_says_that_all_is_well_only_when_it_is() {
        let said = |spaces: &[_]| match nothing_to_copy("p", spaces.iter().copied()) {
            Ok(done) => done.message,
            Err(problem) => format!("refused: {}", problem.detail),
        };
        assert_eq!(said(&[]), "Pool p is as redundant as promised.");
        assert_eq!(said(&[Full, Full]), "Pool p is as redundant as promised.");
        assert_eq!(said(&[Full, Restoring]), "Pool p is being repaired already.");
        for worst in [Reduced, Unavailable] {
            assert!(said(&[Full, worst, Restoring]).starts_with("refused: Pool p is not as redundant"));
        }
    }
}
