//! The node at a glance: is all data as redundant as promised, and if not, what to do.

use control_api::{
    CheckFinding, CheckReport, Counts, DiskState, Issue, JobState, LogMode, LunState, PoolState, Problem,
    RedundancyState, Severity, Status, Verdict,
};
use observe::Inspect;

use super::Node;

impl Node {
    /// The node at a glance.
    pub async fn status(&self) -> Result<Status, Problem> {
        let ready = *self.ready.subscribe().borrow();
        let pools = self.pool_list().await?;
        let luns = self.lun_list().await?;
        let portals = self.portal_list().await?;
        let shares = self.share_list().await?;
        let volumes = self.volume_list().await?;
        let mut issues = self.pool_issues();
        issues.extend(pools.iter().filter_map(|pool| self.space_issue(pool)));
        let mut issue = |severity, subject: String, detail: String, todo: &str| {
            issues.push(Issue { severity, subject, detail, todo: todo.into() });
        };
        for pool in &pools {
            let subject = format!("pool {}", pool.name);
            let why = pool.reason.clone().unwrap_or_default();
            match pool.state {
                PoolState::Closed => issue(
                    Severity::Critical,
                    subject,
                    format!("it is not open: {why}"),
                    "Bring its disks back; the node tries again by itself. If they are lost for good: `holdfast pool import --accept-loss`.",
                ),
                PoolState::ReadOnly => issue(
                    Severity::Error,
                    subject,
                    format!("it can be read only: {why}"),
                    "Bring its missing disks back.",
                ),
                PoolState::Opening | PoolState::Degraded | PoolState::Online => {}
            }
        }
        for volume in volumes.iter().filter(|volume| !volume.online) {
            issue(
                Severity::Critical,
                format!("volume {}", volume.name),
                format!("it is not open: {}", volume.reason.as_deref().unwrap_or("it is being opened")),
                "`holdfast volume check` says what is damaged.",
            );
        }
        for (volume, log) in volumes.iter().filter_map(|volume| Some((volume, volume.log.as_ref()?))) {
            let subject = format!("volume {}", volume.name);
            let why = log.reason.as_deref().unwrap_or("no reason is known");
            if log.mode == LogMode::Stopped {
                issue(
                    Severity::Critical,
                    subject.clone(),
                    format!("its log stopped, and it takes no writes: {why}"),
                    "Put its disks right and start the node again; what is in the log is brought to the volume then.",
                );
            } else if log.mode != LogMode::Logging {
                issue(
                    Severity::Warning,
                    subject.clone(),
                    format!("its writes do without the log: {why}"),
                    "Put the pool of the log right; the next opening of the volume begins a new log.",
                );
            }
            if let Some(why) = &log.back_error {
                issue(
                    Severity::Error,
                    subject,
                    format!("{} bytes in its log can't be brought to its disks: {why}", log.waiting_bytes),
                    "Put the volume's disks right; the log keeps the data, and tries again by itself.",
                );
            }
        }
        for lun in luns.iter() {
            let subject = format!("LUN {}", lun.config.name);
            match (&lun.problem, lun.serving) {
                (Some(why), _) => issue(
                    Severity::Error,
                    subject,
                    format!("it is not served: {why}"),
                    "Put right what it names; it is served again by itself.",
                ),
                (None, LunState::Online) => {}
                (None, state) => {
                    let state = if state == LunState::Offline { "offline" } else { "read-only" };
                    let why =
                        if lun.config.reason.is_empty() { "no reason was given" } else { &lun.config.reason };
                    issue(
                        Severity::Info,
                        subject,
                        format!("it was made {state}: {why}"),
                        &format!("`holdfast lun online {}` serves it again.", lun.config.name),
                    );
                }
            }
        }
        for portal in &portals {
            if let Some(why) = &portal.problem {
                issue(
                    Severity::Error,
                    format!("portal {}", portal.address),
                    why.clone(),
                    "Free the address or choose another one.",
                );
            }
        }
        issues.extend(self.smb_issues(&shares));
        issues.sort_by(|a, b| (a.severity, &a.subject).cmp(&(b.severity, &b.subject)));
        let closed = pools.iter().any(|pool| pool.state == PoolState::Closed);
        let verdict = verdict(pools.is_empty(), closed, self.worst_redundancy());
        let config = self.config.get();
        Ok(Status {
            node: self.name(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.clock.now().since(self.started).as_secs(),
            ready,
            verdict,
            summary: summary(verdict, ready).into(),
            issues,
            jobs: self.jobs.list().into_iter().filter(|job| job.state == JobState::Running).collect(),
            counts: Counts {
                pools: pools.len() as u64,
                disks: pools.iter().map(|pool| pool.disks).sum(),
                volumes: volumes.len() as u64,
                targets: config.targets.len() as u64,
                luns: luns.len() as u64,
                luns_online: luns.iter().filter(|lun| lun.serving != LunState::Offline).count() as u64,
                sessions: (self.backends.iscsi.sessions().len() + self.backends.smb.sessions().len()) as u64,
                shares: shares.len() as u64,
                shares_online: shares.iter().filter(|share| share.online).count() as u64,
            },
            capacity_bytes: pools.iter().map(|pool| pool.capacity_bytes).sum(),
            free_bytes: pools.iter().map(|pool| pool.free_bytes).sum(),
            io_engine: self.backends.shards.engine(),
            pid: std::process::id(),
            data_dir: self.data.path().to_string_lossy().into_owned(),
        })
    }

    /// The node's name: the configured one, or the machine's.
    pub(super) fn name(&self) -> String {
        let configured = self.config.with(|config| config.node.name.clone());
        if !configured.is_empty() {
            return configured;
        }
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_or_else(|_| "holdfast".into(), |name| name.trim().into())
    }

    /// What is wrong with members and spaces of open pools.
    fn pool_issues(&self) -> Vec<Issue> {
        let wait = self.config.with(|config| config.policy.spare_after_seconds);
        let mut issues = Vec::new();
        for (_, handle) in self.open_handles() {
            let info = handle.info();
            let spares = info.members.iter().filter(|member| member.state == DiskState::Spare).count();
            for member in &info.members {
                let severity = match member.state {
                    DiskState::Missing | DiskState::Failed => Severity::Error,
                    DiskState::Retiring => Severity::Info,
                    // It serves, and is suspect.
                    DiskState::Online if member.reason.is_some() => Severity::Warning,
                    _ => continue,
                };
                let name = self.disk_name(member.guid);
                let mut detail = match member.state {
                    DiskState::Missing => "it is missing".to_owned(),
                    DiskState::Failed => "it failed".to_owned(),
                    DiskState::Online => "it serves, and does not look well".to_owned(),
                    _ => "it is being emptied or is retired".to_owned(),
                };
                if let (Some(enclosure), slot) = (&member.enclosure, member.slot.as_deref().unwrap_or("?")) {
                    detail.push_str(&format!(" (enclosure {enclosure}, slot {slot})"));
                }
                if let Some(reason) = &member.reason {
                    detail.push_str(&format!(": {reason}"));
                }
                let todo = match (member.state, spares, wait) {
                    (DiskState::Retiring, _, _) => {
                        format!("`holdfast pool remove-disk {} {name}` takes it out.", info.name)
                    }
                    (DiskState::Online, _, _) => {
                        format!("Replace it: `holdfast pool replace {} {name} --with DISK`.", info.name)
                    }
                    (_, 1.., 1..) => format!(
                        "Bring it back, or wait: a spare takes its place {wait} seconds after it went missing."
                    ),
                    _ => format!(
                        "Bring it back, or replace it: `holdfast pool replace {} {name} --with DISK`.",
                        info.name
                    ),
                };
                issues.push(Issue {
                    severity,
                    subject: format!("disk {name} of pool {}", info.name),
                    detail,
                    todo,
                });
            }
            for space in &info.spaces {
                let state = &space.state;
                let (severity, what, todo) = match state.redundancy {
                    RedundancyState::Unavailable => {
                        (Severity::Critical, "some of its data cannot be read", "Bring missing disks back.")
                    }
                    RedundancyState::Reduced => (
                        Severity::Error,
                        "its data has fewer copies than promised",
                        "Bring missing disks back or replace them; copies are then restored.",
                    ),
                    RedundancyState::Restoring => (
                        Severity::Warning,
                        "copies of its data are being restored",
                        "Wait; avoid taking disks out until it is done.",
                    ),
                    RedundancyState::Full => continue,
                };
                let why = state.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                issues.push(Issue {
                    severity,
                    subject: format!("volume {}", state.name),
                    detail: format!(
                        "{what} ({} promised, {} to copy){why}",
                        state.resiliency,
                        control_api::human_bytes(state.repair_bytes)
                    ),
                    todo: todo.into(),
                });
            }
        }
        issues
    }

    pub(super) fn disk_name(&self, guid: uuid::Uuid) -> String {
        let known = self.disks.all().into_iter().find(|known| {
            matches!(&known.content, Some(crate::backend::DiskContent::Member { disk, .. }) if *disk == guid)
        });
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

/// The worst of everything decides.
fn verdict(empty: bool, closed: bool, worst: Option<RedundancyState>) -> Verdict {
    match worst {
        _ if closed => Verdict::Unavailable,
        Some(RedundancyState::Unavailable) => Verdict::Unavailable,
        Some(RedundancyState::Reduced) => Verdict::Reduced,
        Some(RedundancyState::Restoring) => Verdict::Restoring,
        Some(RedundancyState::Full) => Verdict::FullyRedundant,
        None if empty => Verdict::Empty,
        None => Verdict::FullyRedundant,
    }
}

fn summary(verdict: Verdict, ready: bool) -> &'static str {
    match verdict {
        _ if !ready => "STARTING: pools and volumes are being opened.",
        Verdict::FullyRedundant => "OK: all data is as redundant as promised.",
        Verdict::Restoring => "RESTORING: all data is there; copies are being restored.",
        Verdict::Reduced => "REDUCED: all data is there, with fewer copies than promised.",
        Verdict::Unavailable => "UNAVAILABLE: some data cannot be read now.",
        Verdict::Empty => "EMPTY: there are no pools yet.",
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
    fn verdict_is_the_worst() {
        assert_eq!(verdict(true, false, None), Verdict::Empty);
        assert_eq!(verdict(false, false, None), Verdict::FullyRedundant);
        assert_eq!(verdict(false, true, Some(RedundancyState::Full)), Verdict::Unavailable);
        assert_eq!(verdict(false, false, Some(RedundancyState::Reduced)), Verdict::Reduced);
    }

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
