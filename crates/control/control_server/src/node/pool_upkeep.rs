//! Keeping pools whole: repair, scrub, check.

use control_api::{CheckReport, CheckRequest, Code, Done, JobKind, Problem};

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
