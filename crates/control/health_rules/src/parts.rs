//! Rules of the parts that are served: pools, volumes and their logs, LUNs, portals, the redundancy of spaces.

use control_api::{
    Issue, LogMode, Lun, LunConfig, LunFormat, LunState, Pool, PoolState, PortalInfo, RedundancyState,
    Severity, SpaceState, Volume, human_bytes,
};

use crate::{FindingCode, issue};

/// What is wrong with pools as a whole. `ready` says that all has been opened that could be, `todo` what is to be done about one that is not open, if
/// that is known, `done_without` which hold nothing that anyone lacks.
pub fn of_pools(
    pools: &[Pool],
    ready: bool,
    todo: &dyn Fn(&Pool) -> String,
    done_without: &dyn Fn(&Pool) -> bool,
) -> Vec<Issue> {
    let of = |pool: &Pool| {
        let why = pool.reason.as_deref().unwrap_or("no reason is known");
        let (code, severity, what, advice) = match pool.state {
            PoolState::Closed => (FindingCode::PoolClosed, Severity::Critical, "it is not open", todo(pool)),
            PoolState::ReadOnly => (
                FindingCode::PoolReadOnly,
                Severity::Critical,
                "it takes no writes",
                "Bring its missing disks back; the node opens it again by itself.".to_owned(),
            ),
            PoolState::Opening if !ready => {
                let subject = format!("pool {}", pool.name);
                return Some(issue(
                    FindingCode::Starting,
                    Severity::Info,
                    subject,
                    "it is being opened",
                    "Wait for it.",
                ));
            }
            // Nobody can use it, and nothing is known of its data, for however short a time.
            PoolState::Opening => {
                (FindingCode::PoolClosed, Severity::Critical, "it is not open yet", todo(pool))
            }
            PoolState::Degraded | PoolState::Online | PoolState::Elsewhere => return None,
        };
        let mut detail = match (pool.state, &pool.reason) {
            (PoolState::Opening, None) => what.to_owned(),
            _ => format!("{what}: {why}"),
        };
        let severity = if done_without(pool) {
            detail.push_str("; it holds no more than logs, and their volumes are served without them");
            Severity::Error
        } else {
            severity
        };
        Some(issue(code, severity, format!("pool {}", pool.name), detail, advice))
    };
    pools.iter().filter_map(of).collect()
}

/// What is wrong with volumes and their logs. `ready` says that all has been opened that could be, `todo` what is to be done
/// about a volume that is not open, if more is known than that disks are missing.
pub fn of_volumes(volumes: &[Volume], ready: bool, todo: &dyn Fn(&Volume) -> Option<String>) -> Vec<Issue> {
    let mut issues = Vec::new();
    for volume in volumes {
        let subject = format!("volume {}", volume.name);
        if !volume.online {
            issues.push(match &volume.reason {
                None if !ready => {
                    issue(FindingCode::Starting, Severity::Info, subject.clone(), "it is being opened", "Wait for it.")
                }
                why => issue(
                    FindingCode::VolumeClosed,
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
            FindingCode::VolumeLogStopped,
            Severity::Critical,
            subject.clone(),
            format!("its log in {pool} stopped, and it takes no writes: {why}"),
            "Put its disks right; the volume is opened again by itself, and what is in the log is brought to it then.",
        )),
        _ => issues.push(issue(
            FindingCode::VolumeLogThrough,
            Severity::Warning,
            subject.clone(),
            format!("its writes do without the log in {pool}: {why}"),
            format!("Put {pool} right; the next opening of the volume begins a new log: `holdfast volume reopen {name} --yes`. `holdfast volume log remove {name}` takes the log away."),
        )),
    }
    if let Some(why) = &log.back_error {
        issues.push(issue(
            FindingCode::VolumeLogBack,
            Severity::Error,
            subject.clone(),
            format!("{} in its log can't be brought to its disks: {why}", human_bytes(log.waiting_bytes)),
            "Put the volume's disks right; the log keeps the data, and tries again by itself.",
        ));
    }
    issues
}

/// What is wrong with LUNs. `todo` says what is to be done about one whose volume is not the one that is here.
pub fn of_luns(luns: &[Lun], ready: bool, todo: &dyn Fn(&LunConfig) -> Option<String>) -> Vec<Issue> {
    let of = |lun: &Lun| {
        let subject = format!("LUN {}", lun.config.name);
        match (&lun.problem, lun.serving) {
            (Some(_), _) if !ready => Some(issue(
                FindingCode::Starting,
                Severity::Info,
                subject,
                "it is not served yet",
                "Wait until its volume is open.",
            )),
            (Some(why), state) => Some(issue(
                FindingCode::LunNotServed,
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
                    ),
                }),
            )),
            (None, LunState::Online) => None,
            (None, state) => {
                let state = if state == LunState::Offline { "offline" } else { "read-only" };
                let why =
                    if lun.config.reason.is_empty() { "no reason was given" } else { &lun.config.reason };
                Some(issue(
                    FindingCode::LunOffline,
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
pub fn of_portals(portals: &[PortalInfo]) -> Vec<Issue> {
    let of = |portal: &PortalInfo| {
        let why = portal.problem.clone()?;
        let subject = format!("portal {}", portal.address);
        Some(issue(
            FindingCode::PortalNotServed,
            Severity::Error,
            subject,
            why,
            "Free the address or choose another one.",
        ))
    };
    portals.iter().filter_map(of).collect()
}

/// What is wrong with the redundancy of a space; `done_without` says that it is that of a log, and its volume is served.
pub fn of_space(state: &SpaceState, log_of: Option<&str>, pool: &str, done_without: bool) -> Option<Issue> {
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
    let subject = match log_of {
        Some(volume) => format!("log of volume {volume} in pool {pool}"),
        None => format!("volume {}", state.name),
    };
    Some(issue(FindingCode::Redundancy, severity, subject, detail, todo))
}

#[cfg(test)]
pub(crate) mod tests;
