//! What is not as it should be, in words, and the sentence above it all.
//!
//! Invariant: the sentence is never better than the worst of what is listed below it.

use control_api::{
    ClusterMember, ClusterMemberState, ClusterPoolState, ClusterStatus, DiskState, Issue, LogMode, Lun,
    LunConfig, LunFormat, LunState, Pool, PoolState, PortalInfo, RedundancyState, Severity, SpaceState,
    Verdict, Volume, human_bytes, many,
};

use super::Node;
use super::pool_summary::bring_back;
use crate::backend::SpaceInfo;

fn issue(severity: Severity, subject: String, detail: String, todo: impl Into<String>) -> Issue {
    Issue { severity, subject, detail, todo: todo.into() }
}

/// Nodes that do not take part, whose pools are with others meanwhile.
pub(super) fn of_nodes(cluster: &ClusterStatus) -> Vec<Issue> {
    let away =
        |node: &&ClusterMember| matches!(node.state, ClusterMemberState::Away | ClusterMemberState::Silent);
    let told = cluster.nodes.iter().filter(away).map(|node| {
        let detail = "it gives no sign of life; the other nodes have its pools, or are taking them";
        let todo = format!(
            "Start it again; or, if it is gone for good, `holdfast node remove {}`. A further loss is less likely to be survived meanwhile.",
            node.name
        );
        issue(Severity::Warning, format!("node {}", node.name), detail.to_owned(), todo)
    });
    let unserved = cluster.pools.iter().filter(|pool| pool.state < ClusterPoolState::Unknown).map(|pool| {
        let detail = "no node lets clients in to it now".to_owned();
        let todo = "It goes on by itself within seconds where nodes and etcd can; `holdfast cluster status` says who is away.";
        issue(Severity::Critical, format!("pool {}", pool.name), detail, todo)
    });
    told.chain(unserved).collect()
}

/// A node that is away has taken its disks along: they have not failed.
fn findings_of_away(pool: &str, node: &str, disks: usize) -> Issue {
    let disks = many(disks as u64, "disk");
    let detail = format!(
        "node {node} is away with its {disks}; what they miss is noted, and copied to them when it is back"
    );
    let todo = format!(
        "Start node {node} again. If it is gone for good: `holdfast pool replace {pool} DISK` for each of its disks."
    );
    issue(Severity::Error, format!("pool {pool}"), detail, todo)
}

/// The answer to "is all data as redundant as promised?", and a sentence that is as bad as the worst that was found.
pub(super) fn headline(
    ready: bool,
    empty: bool,
    redundancy: Option<RedundancyState>,
    issues: &[Issue],
) -> (Verdict, String) {
    let worst = issues.iter().map(|issue| issue.severity).min().unwrap_or(Severity::Info);
    let verdict = match redundancy {
        _ if worst == Severity::Critical => Verdict::Unavailable,
        Some(RedundancyState::Unavailable) => Verdict::Unavailable,
        Some(RedundancyState::Reduced) => Verdict::Reduced,
        // What is wrong besides may be what keeps it from being restored wholly.
        Some(RedundancyState::Restoring) if worst == Severity::Error => Verdict::Reduced,
        Some(RedundancyState::Restoring) => Verdict::Restoring,
        None if empty => Verdict::Empty,
        Some(RedundancyState::Full) | None => Verdict::FullyRedundant,
    };
    let data = match verdict {
        Verdict::Restoring => "all data is there; copies are being restored",
        Verdict::Empty => "there are no pools yet",
        _ => "all data is as redundant as promised",
    };
    let count = |severity| match issues.iter().filter(|issue| issue.severity == severity).count() {
        1 => ("1 thing".to_owned(), "needs"),
        count => (format!("{count} things"), "need"),
    };
    let sentence = match (verdict, worst) {
        (Verdict::Unavailable, _) => "UNAVAILABLE: some data cannot be read or written now.".to_owned(),
        (Verdict::Reduced, _) if redundancy == Some(RedundancyState::Restoring) => format!(
            "REDUCED: all data is there; copies are being restored, and {} below must be put right.",
            count(worst).0
        ),
        (Verdict::Reduced, _) => "REDUCED: all data is there, with fewer copies than promised.".to_owned(),
        (_, Severity::Error) => format!("FAULT: {data}, but {} below must be put right.", count(worst).0),
        (Verdict::Restoring, _) => format!("RESTORING: {data}."),
        (_, Severity::Warning) => {
            let (things, need) = count(worst);
            format!("WARNING: {data}; {things} below {need} attention soon.")
        }
        (Verdict::Empty, _) => format!("EMPTY: {data}."),
        _ => format!("OK: {data}."),
    };
    match (ready, worst) {
        (true, _) => (verdict, sentence),
        // What is not open yet is no news.
        (false, Severity::Warning | Severity::Info) => {
            (verdict, "STARTING: pools and volumes are being opened.".to_owned())
        }
        (false, _) => (verdict, format!("{sentence} (Starting: pools and volumes are being opened.)")),
    }
}

/// What is wrong with pools as a whole; `todo` says what is to be done about one that is not open, if that is known,
/// `done_without` which hold nothing that anyone lacks.
pub(super) fn of_pools(
    pools: &[Pool],
    todo: &dyn Fn(&Pool) -> Option<String>,
    done_without: &dyn Fn(&Pool) -> bool,
) -> Vec<Issue> {
    let of = |pool: &Pool| {
        let why = pool.reason.as_deref().unwrap_or("no reason is known");
        let (severity, what, advice) = match pool.state {
            PoolState::Closed => {
                (Severity::Critical, "it is not open", todo(pool).unwrap_or_else(|| bring_back(&pool.name)))
            }
            PoolState::ReadOnly => (
                Severity::Critical,
                "it takes no writes",
                "Bring its missing disks back; the node opens it again by itself.".to_owned(),
            ),
            PoolState::Opening | PoolState::Degraded | PoolState::Online | PoolState::Elsewhere => {
                return None;
            }
        };
        let mut detail = format!("{what}: {why}");
        let severity = if done_without(pool) {
            detail.push_str("; it holds no more than logs, and their volumes are served without them");
            Severity::Error
        } else {
            severity
        };
        Some(issue(severity, format!("pool {}", pool.name), detail, advice))
    };
    pools.iter().filter_map(of).collect()
}

/// What is wrong with volumes and their logs. `ready` says that all has been opened that could be, `todo` what is to be done
/// about a volume that is not open, if more is known than that disks are missing.
pub(super) fn of_volumes(
    volumes: &[Volume],
    ready: bool,
    todo: &dyn Fn(&Volume) -> Option<String>,
) -> Vec<Issue> {
    let mut issues = Vec::new();
    for volume in volumes {
        let subject = format!("volume {}", volume.name);
        if !volume.online {
            issues.push(match &volume.reason {
                None if !ready => {
                    issue(Severity::Info, subject.clone(), "it is being opened".into(), "Wait for it.")
                }
                why => issue(
                    Severity::Critical,
                    subject.clone(),
                    format!("it is not open: {}", why.as_deref().unwrap_or("no reason is known")),
                    todo(volume).unwrap_or_else(|| {
                        format!(
                            "Bring missing disks back; it is opened again by itself. `holdfast volume reopen {}` tries at once.",
                            volume.name
                        )
                    }),
                ),
            });
        }
        let pool = volume.log_place.as_ref().and_then(|place| place.pool.as_deref());
        issues.extend(volume.log.iter().flat_map(|log| of_log(&volume.name, log, pool)));
    }
    issues
}

fn of_log(name: &str, log: &control_api::VolumeLog, pool: Option<&str>) -> Vec<Issue> {
    let subject = format!("volume {name}");
    let pool = pool.map_or_else(|| "the pool of the log".to_owned(), |pool| format!("pool {pool}"));
    let why = log.reason.as_deref().unwrap_or("no reason is known");
    let mut issues = Vec::new();
    match log.mode {
        LogMode::Logging => {}
        LogMode::Stopped => issues.push(issue(
            Severity::Critical,
            subject.clone(),
            format!("its log in {pool} stopped, and it takes no writes: {why}"),
            "Put its disks right; the volume is opened again by itself, and what is in the log is brought to it then.",
        )),
        _ => issues.push(issue(
            Severity::Warning,
            subject.clone(),
            format!("its writes do without the log in {pool}: {why}"),
            format!("Put {pool} right; the next opening of the volume begins a new log: `holdfast volume reopen {name} --yes`. `holdfast volume log remove {name}` takes the log away."),
        )),
    }
    if let Some(why) = &log.back_error {
        issues.push(issue(
            Severity::Error,
            subject.clone(),
            format!("{} in its log can't be brought to its disks: {why}", human_bytes(log.waiting_bytes)),
            "Put the volume's disks right; the log keeps the data, and tries again by itself.",
        ));
    }
    issues
}

/// What is wrong with LUNs. `todo` says what is to be done about one whose volume is not the one that is here.
pub(super) fn of_luns(luns: &[Lun], ready: bool, todo: &dyn Fn(&LunConfig) -> Option<String>) -> Vec<Issue> {
    let of = |lun: &Lun| {
        let subject = format!("LUN {}", lun.config.name);
        match (&lun.problem, lun.serving) {
            (Some(_), _) if !ready => Some(issue(
                Severity::Info,
                subject,
                "it is not served yet".into(),
                "Wait until its volume is open.",
            )),
            (Some(why), state) => Some(issue(
                Severity::Error,
                subject,
                if state == LunState::Offline { format!("it is not served: {why}") } else { why.clone() },
                todo(&lun.config).unwrap_or_else(|| match lun.config.format {
                    LunFormat::Vhdx => format!(
                        "`holdfast open list` shows who has {0}:{1} open; `holdfast file get` and then `holdfast disk-image check` show what is wrong in it, and `holdfast snapshot list` earlier states of it. It is served again by itself.",
                        lun.config.volume, lun.config.path
                    ),
                    LunFormat::Raw => format!(
                    "`holdfast volume show {0}` shows its volume, `holdfast file stat {0}:{1}` its file; it is served again by itself.",
                    lun.config.volume, lun.config.path
                )}),
            )),
            (None, LunState::Online) => None,
            (None, state) => {
                let state = if state == LunState::Offline { "offline" } else { "read-only" };
                let why =
                    if lun.config.reason.is_empty() { "no reason was given" } else { &lun.config.reason };
                Some(issue(
                    Severity::Info,
                    subject,
                    format!("it was made {state}: {why}"),
                    format!("`holdfast lun online {}` serves it again.", lun.config.name),
                ))
            }
        }
    };
    luns.iter().filter_map(of).collect()
}

/// What is wrong with portals.
pub(super) fn of_portals(portals: &[PortalInfo]) -> Vec<Issue> {
    let of = |portal: &PortalInfo| {
        let why = portal.problem.clone()?;
        let subject = format!("portal {}", portal.address);
        Some(issue(Severity::Error, subject, why, "Free the address or choose another one."))
    };
    portals.iter().filter_map(of).collect()
}

/// What is wrong with the redundancy of a space; `done_without` says that it is that of a log, and its volume is served.
fn of_space(space: &SpaceInfo, pool: &str, done_without: bool) -> Option<Issue> {
    let state = &space.state;
    let (severity, what, todo) = match state.redundancy {
        RedundancyState::Unavailable if done_without => (
            Severity::Error,
            "its disks are missing, and writes go to the volume without it",
            "Bring missing disks back.",
        ),
        RedundancyState::Unavailable => {
            (Severity::Critical, "some of its data cannot be read", "Bring missing disks back.")
        }
        RedundancyState::Reduced => (
            Severity::Error,
            "its data has fewer copies than promised",
            "Bring missing disks back, replace them or add disks; copies are then restored.",
        ),
        RedundancyState::Restoring => (
            Severity::Warning,
            "copies of its data are being restored",
            "Wait; avoid taking disks out until it is done.",
        ),
        RedundancyState::Full => return None,
    };
    let why = state.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    // Nothing is copied where the copies find no place: no bytes to copy would sound as if all were well.
    let left = match (state.repair_bytes, state.redundancy) {
        (0, RedundancyState::Reduced) => ", nothing is being copied".to_owned(),
        (0, _) => String::new(),
        (bytes, _) => format!(", {} to copy", control_api::human_bytes(bytes)),
    };
    let detail = format!("{what} ({} promised{left}){why}", state.resiliency);
    let subject = match &space.log_of {
        Some(volume) => format!("log of volume {volume} in pool {pool}"),
        None => format!("volume {}", state.name),
    };
    Some(issue(severity, subject, detail, todo))
}

/// A thin space that finds no disks for new data.
fn no_room(state: &SpaceState, pool: &str) -> Issue {
    issue(
        Severity::Error,
        format!("volume {}", state.name),
        format!("pool {pool} has no room left for it: writes to where it holds nothing yet fail"),
        "Add a disk (`holdfast pool add-disk`) or remove data; what is there can be read and overwritten.",
    )
}

impl Node {
    /// What to do about a volume that could not be opened, if its last opening has shown that.
    pub(super) fn todo_of(&self, volume: &Volume) -> Option<String> {
        let slot = self.volumes.lock().get(&volume.name).cloned()?;
        let name = &volume.name;
        if slot.space != volume.guid {
            let other = self.pool_name(slot.pool).unwrap_or_else(|| slot.pool.to_string());
            if self.not_here(slot.pool).is_some() {
                return Some(format!(
                    "Another node serves that of pool {other}. Give one of the two another name: `holdfast volume rename {name} NEW --pool {}`.",
                    volume.pool
                ));
            }
            if !self.is_open(slot.pool) {
                return Some(format!(
                    "The node waits for that of pool {other}; if that pool is lost for good, `holdfast pool forget {other}` lets it serve this one. Or export its own pool, {}, and import it on another node.",
                    volume.pool
                ));
            }
            return Some(format!(
                "`holdfast pool export {other}` lets the node serve it; or export its own pool, {}, and import it on another node.",
                volume.pool
            ));
        }
        let check = || slot.damaged.then(|| format!("`holdfast volume check {name}` says what is damaged."));
        slot.todo.clone().or_else(check)
    }

    /// What is wrong with members and spaces of open pools.
    pub(super) fn pool_issues(&self) -> Vec<Issue> {
        let wait = self.config.with(|config| config.policy.spare_after_seconds);
        let mut issues = Vec::new();
        for (_, handle) in self.open_handles() {
            let info = self.pool_info(&handle);
            let spares = info.members.iter().filter(|member| member.state == DiskState::Spare).count();
            let away = self.nodes_away(&info);
            issues.extend(away.iter().map(|(node, disks)| findings_of_away(&info.name, node, *disks)));
            for member in &info.members {
                if member.node.as_ref().is_some_and(|node| away.contains_key(node)) {
                    continue;
                }
                let severity = match member.state {
                    DiskState::Missing | DiskState::Failed => Severity::Error,
                    DiskState::Retiring => Severity::Info,
                    // It serves, and is suspect.
                    DiskState::Online if member.reason.is_some() => Severity::Warning,
                    _ => continue,
                };
                let (name, place) = self.whereabouts(member.guid);
                let says =
                    |words: &str| member.reason.as_ref().is_some_and(|reason| reason.starts_with(words));
                let (went_back, cut_short) = (says("it went back in time"), says("it was cut short"));
                let mut detail = match member.state {
                    DiskState::Missing if cut_short => "it is not whole, and not used".to_owned(),
                    DiskState::Missing => "it is missing".to_owned(),
                    DiskState::Failed => "it failed".to_owned(),
                    DiskState::Online if member.full_seconds > 0 => "it serves, and has no room".to_owned(),
                    DiskState::Online => "it serves, and does not look well".to_owned(),
                    _ => "it is being emptied or is retired".to_owned(),
                };
                if matches!(member.state, DiskState::Missing | DiskState::Failed)
                    && let Some(place) = place
                {
                    detail.push_str(&format!(", last seen as {place}"));
                }
                if let (Some(enclosure), slot) = (&member.enclosure, member.slot.as_deref().unwrap_or("?")) {
                    detail.push_str(&format!(" (enclosure {enclosure}, slot {slot})"));
                }
                if let Some(reason) = &member.reason {
                    detail.push_str(&format!(": {reason}"));
                }
                let todo = match (member.state, spares, wait) {
                    (DiskState::Retiring, _, _) => {
                        let pool = &info.name;
                        format!(
                            "`holdfast pool remove-disk {pool} {name}` takes it out, `holdfast pool keep-disk {pool} {name}` keeps it."
                        )
                    }
                    (DiskState::Online, _, _) if member.full_seconds > 0 => format!(
                        "Make room on the file system that it lies on, and it catches up by itself; or take it out: `holdfast pool remove-disk {} {name}`.",
                        info.name
                    ),
                    (DiskState::Online, _, _) if went_back => {
                        "Wait: it is made anew from the others. Find out who put an older copy of it back."
                            .to_owned()
                    }
                    (DiskState::Online, _, _) => {
                        format!("Replace it: `holdfast pool replace {} {name} --with DISK`.", info.name)
                    }
                    (DiskState::Missing, ..) if cut_short => format!(
                        "Put the whole one back, or replace it: `holdfast pool replace {} {name} --with DISK`. What was cut off does not come back by making it larger.",
                        info.name
                    ),
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
            issues.extend(
                info.spaces
                    .iter()
                    .filter_map(|space| of_space(space, &info.name, self.is_done_without(space))),
            );
            issues.extend(
                info.spaces
                    .iter()
                    .filter(|space| space.out_of_room)
                    .map(|space| no_room(&space.state, &info.name)),
            );
        }
        issues
    }
}

#[cfg(test)]
mod tests;
