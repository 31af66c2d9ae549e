//! What a node says of itself to another one that asks, which does not wait for long: where a look takes long, as a volume does not answer, it says how
//! it was at the last look, and what it knows without waiting: disks that do not answer, and who has which pool.

use std::time::Duration;

use control_api::{Code, Issue, Problem, Severity, Status};
use health_rules::{FindingCode, issue};
use parking_lot::Mutex;

use super::Node;

/// Whoever asks waits for a second, on the way there and back included.
const SOON: Duration = Duration::from_millis(800);
/// What was said longer ago is not said again, in seconds: looks are less often only where each takes long, down to every two minutes.
const STILL_TOLD: u64 = 300;
/// Rules of what is seen without waiting, also while a look takes long.
const AT_ONCE: [FindingCode; 9] = [
    FindingCode::DiskSilent,
    FindingCode::RepairStalled,
    FindingCode::ClockSkew,
    FindingCode::NodeAway,
    FindingCode::NodeCutOff,
    FindingCode::NodeLinkBroken,
    FindingCode::NodeRemoved,
    FindingCode::QuorumThin,
    FindingCode::PoolUnserved,
];

/// What a node has said last of itself, and when, in seconds since it started.
#[derive(Default)]
pub(super) struct Last(Mutex<Option<(u64, Status)>>);

impl Last {
    /// This was said.
    pub(super) fn keep(&self, now: u64, status: &Status) {
        *self.0.lock() = Some((now, status.clone()));
    }

    /// What was said last, and for how many seconds that is past; none where that is too long.
    fn told(&self, now: u64) -> Option<(u64, Status)> {
        let (at, status) = self.0.lock().clone()?;
        let age = now.saturating_sub(at);
        (age <= STILL_TOLD).then_some((age, status))
    }
}

/// The lines of a look that is past, with what is seen now in place of what was seen then.
fn refreshed(mut issues: Vec<Issue>, seen_now: Vec<Issue>, node: &str, age: u64) -> Vec<Issue> {
    issues.retain(|issue| AT_ONCE.iter().all(|code| issue.code != code.name()));
    issues.extend(seen_now);
    let detail = format!(
        "it takes long to look into what it has: what is said of that is as it was {age} s ago, but for disks that do not answer"
    );
    let todo = format!(
        "Where a disk of it does not answer, see to that first; `holdfast volume list` says which volumes of node {node} do not answer."
    );
    issues.push(issue(FindingCode::NodeSilent, Severity::Warning, format!("node {node}"), detail, todo));
    issues
}

impl Node {
    /// The node at a glance, for another one that asks and does not wait for long.
    ///
    /// # Errors
    /// When a look takes long and nothing is known of an earlier one.
    pub(crate) async fn status_soon(&self) -> Result<Status, Problem> {
        match tokio::time::timeout(SOON, self.status()).await {
            Ok(status) => status,
            Err(_) => self.status_as_known().ok_or_else(|| {
                Problem::new(
                    Code::Unavailable,
                    "the node takes long to say how it is, and has not said it yet",
                )
            }),
        }
    }

    fn status_as_known(&self) -> Option<Status> {
        let now = self.uptime_seconds();
        let (age, last) = self.last_status.told(now)?;
        let name = self.name();
        // Whoever was not served here at the last look, of that nothing is known.
        let was_served = |guid, epoch| {
            let mut pools = last.cluster.iter().flat_map(|cluster| &cluster.pools);
            pools.any(|pool| (pool.guid, pool.epoch, pool.is_unserved()) == (guid, epoch, false))
        };
        let cluster = self.cluster_shown(None, was_served).ok();
        let mut seen_now = self.findings.issues(now, &name);
        seen_now.extend(cluster.iter().flat_map(health_rules::of_nodes_seen));
        seen_now.extend(cluster.iter().flat_map(|cluster| self.link_issues(cluster)));
        seen_now.extend(cluster.iter().flat_map(health_rules::of_unserved));
        let mut issues = refreshed(last.issues, seen_now, &name, age);
        self.findings.annotate(&mut issues);
        health_rules::sort(&mut issues);
        let known = (last.ready, last.counts.pools == 0, last.redundancy);
        let (verdict, summary) = self.sentence(known, cluster.as_ref(), &issues);
        Some(Status { uptime_seconds: now, cluster, verdict, summary, issues, ..last })
    }
}
