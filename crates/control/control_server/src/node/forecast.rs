//! When pools will be full: looked at now and then, and told.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::{CounterKind, Issue, Pool, PoolForecast, Severity, human_bytes};
use counter_history::Query;
use health_rules::{FindingCode, of_rule};

use super::Node;
use super::fullness::for_data;

/// As far back as is looked.
const WEEK_MS: u64 = 7 * 86_400_000;
const HOUR_SECONDS: u64 = 3600;
/// How often it is looked anew.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(600);
/// It is told when a pool is full in less than this: so long it may take to buy disks.
const TELL_DAYS: u64 = 30;

impl Node {
    /// Looks anew at how pools fill up.
    pub(super) async fn look_ahead(&self) {
        let now_ms = self.wall_ms();
        let query = Query {
            from_ms: now_ms.saturating_sub(WEEK_MS),
            to_ms: now_ms,
            step_seconds: Some(HOUR_SECONDS),
            kinds: vec![CounterKind::Pool],
            ..Query::default()
        };
        let Ok(found) = self.past.read(query).await else { return };
        let mut points: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for step in found.steps {
            for pool in step.items {
                // It was not open then.
                let Some(used) = pool.used_bytes.filter(|_| pool.size_bytes > Some(0)) else { continue };
                points.entry(pool.name).or_default().push((step.time_unix_ms / 1000, used));
            }
        }
        self.forecasts.learn(points);
    }

    /// When a pool of this node will be full, as far as that can be told.
    pub(super) fn forecast_of(&self, pool: &Pool) -> Option<PoolForecast> {
        self.forecasts.of(&pool.name, pool.free_bytes)
    }

    /// What there is to say of a pool that will be full soon.
    pub(super) fn forecast_issue(&self, pool: &Pool) -> Option<Issue> {
        let forecast = self.forecast_of(pool)?;
        let days = forecast.full_in_days.filter(|days| *days < TELL_DAYS)?;
        Some(Issue {
            severity: Severity::Warning,
            subject: format!("pool {}", pool.name),
            detail: format!(
                "it will be full in about {days} days if it goes on growing by {} a day, as in the last {} days: {} of {} are free",
                human_bytes(forecast.growth_bytes_per_day.unsigned_abs()),
                forecast.over_hours.div_ceil(24),
                human_bytes(pool.free_bytes),
                human_bytes(for_data(pool))
            ),
            todo: format!(
                "Plan for more space (`holdfast pool add-disk {}`), or see what grows (`holdfast perf --from 7d --kind volume,lun`).",
                pool.name
            ),
            ..of_rule(FindingCode::PoolFillsUp)
        })
    }
}
