//! Keeping pools whole: repair, scrub, check.

use control_api::{
    CheckReport, CheckRequest, Code, Done, JobKind, Problem, Rebalance, RebalanceReport, RebalancedDisk,
};

use uuid::Uuid;

use super::Node;
use super::status::report;
use crate::backend::Upkeep;

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
            return Ok(Done::new(format!("Pool {} is as redundant as promised.", info.name)));
        }
        let (now_ms, wall) = self.times();
        let job = self.jobs.start(JobKind::Repair, &format!("pool {}", info.name), now_ms, wall);
        self.jobs.progress(job, left, "copies are being restored", now_ms);
        Ok(Done { message: format!("Pool {} is being repaired.", info.name), job: Some(job) })
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
        Ok(RebalanceReport { bytes: plan.bytes, disks, job })
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
