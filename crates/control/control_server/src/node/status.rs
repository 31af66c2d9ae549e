//! The node at a glance: is all data as redundant as promised, and if not, what to do.

mod lun_numbers;
mod totals;

use std::path::Path;
use std::time::Duration;

use control_api::{
    CheckFinding, CheckReport, ClusterStatus, Counts, Issue, JobState, LunState, Pool, PoolMoves, Problem,
    RedundancyState, RequestMemory, Severity, Status, Verdict,
};
use observe::Inspect;
use sha2::{Digest, Sha256};
use tcp_service::BudgetUse;

use super::Node;
use super::mapping::masking::shown;
use super::pool_summary::bring_back;

/// The shared state of a cluster is waited for so long: other nodes wait for this one's status for a second.
const SHARED_WITHIN: Duration = Duration::from_millis(500);

/// The file in which the system keeps what it calls the machine's identity.
const MACHINE_ID: &str = "/etc/machine-id";

/// What stands for this node: that of its machine, and its data directory, of which a machine may have several.
fn node_mark(data: &Path) -> Option<String> {
    let data = std::fs::canonicalize(data).unwrap_or_else(|_| data.to_owned());
    let hash = Sha256::new().chain_update(machine()?).chain_update(data.as_os_str().as_encoded_bytes());
    Some(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// What stands for this machine: not the system's machine id, which is not for others to know, but what is made of it and nothing
/// else (machine-id(5) asks for that).
fn machine() -> Option<String> {
    let id = std::fs::read_to_string(MACHINE_ID).ok()?;
    let id = id.trim();
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let hash = Sha256::new().chain_update(b"holdfast node").chain_update(id.to_ascii_lowercase()).finalize();
    Some(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

impl Node {
    /// The node at a glance.
    pub async fn status(&self) -> Result<Status, Problem> {
        let ready = *self.ready.subscribe().borrow();
        // Looking takes time, and pools come and go meanwhile: one that was not served here all the time is on its way.
        let served_before = self.cluster.get().map(|cluster| cluster.served_here()).unwrap_or_default();
        let pools = self.pool_list().await?;
        let portals = self.portal_list().await?;
        // Of both there may be very many: they are listed once, and what is open is counted only.
        let sessions = self.session_list().await?;
        let shares = self.shares_used_by(&sessions);
        let shared = async {
            match self.cluster.get() {
                Some(cluster) => Ok(cluster.read(SHARED_WITHIN).await),
                None => Ok(None),
            }
        };
        // Each waits for volumes that do not answer, as long as is waited for one.
        let (luns, volumes, shared) = tokio::try_join!(self.lun_list(), self.volume_list(), shared)?;
        // Nothing is waited for from here on: who has which pool, and what is said of it, is of one moment.
        let steady = |pool, epoch| served_before.get(&pool) == Some(&epoch);
        let cluster = self.cluster_shown(shared.as_ref(), steady).ok();
        let away = self.pools_away(cluster.as_ref());
        // What another node serves is not missing here, nor is what waits for a pool that is on its way.
        let luns_here: Vec<_> = luns
            .iter()
            .filter(|lun| lun.problem.is_none() || !self.is_with_pools_away(&away, &lun.config))
            .cloned()
            .collect();
        let shares_here: Vec<_> = shares
            .iter()
            .filter(|share| share.online || !self.is_with_pools_away(&away, &share.config))
            .cloned()
            .collect();
        let volumes_here: Vec<_> =
            volumes.iter().filter(|volume| volume.online || !away.has(&volume.pool)).cloned().collect();
        let pools_here: Vec<_> = pools.iter().filter(|pool| !away.explain(pool)).cloned().collect();
        let mut issues = self.pool_issues();
        issues.extend(self.claimant_issues());
        issues.extend(pools.iter().flat_map(|pool| self.space_issues(pool, &volumes)));
        let todo = |pool: &Pool| {
            let slot = self.pools.lock().get(&pool.guid).cloned().unwrap_or_default();
            let start_others = || self.start_others(cluster.as_ref(), pool);
            // What would give up disks that are with nodes that are away is not said.
            let known = || slot.todo.clone().filter(|_| !slot.lacks_disks || start_others().is_none());
            let known = self.under_way(pool.guid).or_else(known).or_else(start_others);
            known.unwrap_or_else(|| bring_back(&pool.name))
        };
        let done_without = |pool: &Pool| self.can_be_done_without(pool.guid);
        issues.extend(self.log_issues());
        issues.extend(self.full_volumes());
        issues.extend(health_rules::of_pools(&pools_here, ready, &todo, &done_without));
        issues.extend(self.volumes_of_pools_that_open(&pools_here, ready));
        issues.extend(health_rules::of_volumes(&volumes_here, ready, &|volume| {
            let pool = pools.iter().find(|pool| pool.name == volume.pool);
            pool.and_then(|pool| self.under_way(pool.guid)).or_else(|| self.todo_of(volume))
        }));
        issues.extend(health_rules::of_luns(&luns_here, ready, &|lun| {
            self.refuse_stranger(lun).err().and_then(|problem| problem.todo)
        }));
        issues.extend(self.config.with(|config| {
            health_rules::of_reservations(&luns, &|lun, initiator| shown(config, lun, initiator))
        }));
        issues.extend(health_rules::of_lost_writes(&luns));
        issues.extend(health_rules::of_write_caches(&luns));
        issues.extend(health_rules::of_portals(&portals));
        issues.extend(self.config.with(super::chap::issues));
        issues.extend(self.config.with(lun_numbers::issues));
        issues.extend(self.qos_issues());
        issues.extend(self.qos_volume_issues());
        issues.extend(self.smb_issues(&shares_here, ready));
        issues.extend(self.http_issues());
        issues.extend(self.audit().issue());
        issues.extend(self.addresses.issues());
        issues.extend(self.backends.disks.shut().iter().map(|(disk, why)| health_rules::of_gate(disk, why)));
        issues.extend(cluster.iter().flat_map(health_rules::of_nodes));
        issues.extend(cluster.iter().flat_map(|cluster| self.link_issues(cluster)));
        issues.extend(cluster.iter().filter_map(health_rules::of_versions));
        if self.config.with(|config| config.policy.pool_moves != PoolMoves::Manual) {
            issues.extend(cluster.iter().flat_map(|cluster| health_rules::of_kept_pools(cluster, &pools)));
        }
        issues.extend(self.findings_of_names());
        issues.extend(self.client_issues(&sessions, &shares_here, &portals));
        issues.extend(self.findings.issues(self.uptime_seconds(), &self.name()));
        self.findings.look(ready, self.clocks().1, &mut issues);
        health_rules::sort(&mut issues);
        let redundancy = self.worst_redundancy();
        let (verdict, summary) =
            self.sentence((ready, pools.is_empty(), redundancy), cluster.as_ref(), &issues);
        let config = self.config.get();
        let (counted, not_counted) = totals::counted(&pools, &away);
        let status = Status {
            node: self.name(),
            machine: node_mark(self.data.path()),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.uptime_seconds(),
            ready,
            cluster,
            verdict,
            summary,
            issues,
            jobs: self.jobs.list().into_iter().filter(|job| job.state == JobState::Running).collect(),
            redundancy,
            counts: Counts {
                pools: pools.len() as u64,
                disks: counted.iter().map(|pool| pool.disks).sum(),
                volumes: volumes.len() as u64,
                targets: config.targets.len() as u64,
                luns: luns.len() as u64,
                luns_online: luns.iter().filter(|lun| lun.serving != LunState::Offline).count() as u64,
                sessions: sessions.len() as u64,
                shares: shares.len() as u64,
                shares_online: shares.iter().filter(|share| share.online).count() as u64,
            },
            capacity_bytes: counted.iter().map(|pool| pool.capacity_bytes).sum(),
            free_bytes: counted.iter().map(|pool| pool.free_bytes).sum(),
            counted,
            not_counted,
            request_memory: self.request_memory(),
            io_engine: self.backends.shards.engine(),
            pid: std::process::id(),
            data_dir: self.data.path().to_string_lossy().into_owned(),
        };
        self.last_status.keep(self.uptime_seconds(), &status);
        Ok(status)
    }

    /// The sentence above all lines of this node, by whether it is ready, whether there are no pools, and the worst redundancy in those that are open.
    pub(super) fn sentence(
        &self,
        (ready, empty, redundancy): (bool, bool, Option<RedundancyState>),
        cluster: Option<&ClusterStatus>,
        issues: &[Issue],
    ) -> (Verdict, String) {
        let waits = cluster.map(health_rules::waits).unwrap_or_default();
        // What other nodes have, they tell themselves.
        let name = self.name();
        let not_known = cluster.map(|cluster| {
            let own =
                cluster.pools.iter().filter(|pool| pool.owner.as_ref().is_none_or(|owner| *owner == name));
            health_rules::not_known(cluster, own, &[])
        });
        let not_known = not_known.unwrap_or_default();
        let removed = cluster.is_some_and(|cluster| cluster.removed);
        let known =
            health_rules::Known { ready, empty, removed, redundancy, waits: &waits, not_known: &not_known };
        health_rules::headline(&known, issues)
    }

    /// Links of this node that are broken, by what it sees of the cluster now.
    pub(super) fn link_issues(&self, cluster: &ClusterStatus) -> Vec<Issue> {
        let now = self.uptime_seconds();
        let mut links = self.broken_links.lock();
        links.look(now, cluster);
        links.issues(now, &cluster.node)
    }

    fn request_memory(&self) -> RequestMemory {
        let BudgetUse { limit, used, beside, waiting, waits, refused } = self.backends.budget.usage();
        RequestMemory {
            limit_bytes: limit,
            used_bytes: used,
            images_bytes: beside,
            waiting,
            waits,
            ended: refused,
        }
    }

    /// The node's name: the configured one, or the machine's.
    pub(crate) fn name(&self) -> String {
        if let Some(cluster) = self.cluster.get() {
            return cluster.called().to_owned();
        }
        let configured = self.config.with(|config| config.node.name.clone());
        if !configured.is_empty() {
            return configured;
        }
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_or_else(|_| "holdfast".into(), |name| name.trim().into())
    }

    /// Whose configuration this is, as a sentence; none when it is this node's. `of_machine` is what stands for the node that it was
    /// made by; earlier releases told what stands for its machine. Machines that were cloned often share their identity, so a name that differs is asked about all the same.
    pub(super) fn whose_config(&self, name: Option<&str>, of_machine: Option<&str>) -> Option<String> {
        let own = self.name();
        let own_marks = node_mark(self.data.path()).zip(machine());
        let same =
            own_marks.zip(of_machine).map(|((node, machine), other)| node == other || machine == other);
        let of = name.map_or_else(|| "another node".to_owned(), |name| format!("node {name}"));
        match same {
            _ if name.is_none() && same != Some(false) => None,
            Some(true) | None if name == Some(own.as_str()) => None,
            None => Some(format!("This is {of}'s configuration.")),
            Some(true) => Some(format!(
                "This is {of}'s configuration, made with this machine's identity (machine id): this machine had that name, or one of the two is a copy of the other."
            )),
            Some(false) if name == Some(own.as_str()) => Some(format!(
                "This is the configuration of another machine of the same name, {own}, or of a node with another data directory on this one."
            )),
            Some(false) => Some(format!(
                "This is {of}'s configuration, made on another machine or with another data directory."
            )),
        }
    }

    pub(super) fn disk_name(&self, guid: uuid::Uuid) -> String {
        let known = self.claimant(guid);
        known.map_or_else(|| guid.to_string(), |known| known.found.id)
    }

    /// The live state of everything, for diagnosis.
    pub async fn inspect(&self) -> Result<serde_json::Value, Problem> {
        let pools: Vec<_> = self.pool_list().await?;
        let mut details = Vec::new();
        for pool in &pools {
            details.push(match self.pool_show(&pool.name).await {
                Ok(detail) => serde_json::to_value(detail).unwrap_or_default(),
                Err(_) => serde_json::to_value(pool).unwrap_or_default(),
            });
        }
        let live: serde_json::Map<String, serde_json::Value> =
            self.open_handles().into_iter().map(|(_, pool)| (pool.info().name, pool.inspect())).collect();
        Ok(serde_json::json!({
            "status": self.status().await?,
            "disks": self.disk_list().await?,
            "pools": details,
            "pools_inside": live,
            "cache": self.backends.cache.inspect(),
            "volumes": self.volume_list().await?,
            "luns": self.lun_list().await?,
            "portals": self.portal_list().await?,
            "smb": self.smb_show(),
            "shares": self.share_list().await?,
            "opens": self.open_list(),
            "sessions": self.session_list().await?,
            "jobs": self.jobs.list(),
            "iscsi": self.backends.iscsi.inspect(),
            "config": self.config.get().redacted(),
        }))
    }
}

/// What a check found, as a report.
pub(crate) fn report(subject: String, mut findings: Vec<CheckFinding>) -> CheckReport {
    findings.sort_by(|a, b| (a.severity, &a.structure, &a.place).cmp(&(b.severity, &b.structure, &b.place)));
    let bad = findings.iter().filter(|finding| finding.severity < Severity::Info).count();
    let summary = match bad {
        0 => format!("{subject}: all structures are sound."),
        1 => format!("{subject}: 1 thing is wrong."),
        _ => format!("{subject}: {bad} things are wrong."),
    };
    CheckReport { subject, clean: bad == 0, summary, items: findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_leave_a_report_clean() {
        let finding = |severity| CheckFinding {
            severity,
            structure: "log".into(),
            place: "disk 1".into(),
            detail: "x".into(),
            action: None,
        };
        assert!(report("pool p".into(), vec![finding(Severity::Info)]).clean);
        let bad = report("pool p".into(), vec![finding(Severity::Info), finding(Severity::Critical)]);
        assert!(!bad.clean);
        assert_eq!(bad.items[0].severity, Severity::Critical);
    }
}
