//! What is not as it should be with disks and spaces of open pools. Rules that need less than the node itself are in `health_rules`.

use control_api::{DiskState, Issue, Severity, Volume};
use health_rules::{FindingCode, issue};

use super::Node;
use super::pool_summary::summary;

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
            issues.extend(
                away.iter().map(|(node, disks)| health_rules::of_nodes_away(&info.name, node, *disks)),
            );
            for member in &info.members {
                if member.node.as_ref().is_some_and(|node| away.contains_key(node)) {
                    continue;
                }
                let (code, severity) = match member.state {
                    DiskState::Missing => (FindingCode::DiskMissing, Severity::Error),
                    DiskState::Failed => (FindingCode::DiskFailed, Severity::Error),
                    DiskState::Retiring => (FindingCode::DiskRetiring, Severity::Info),
                    // It serves, and is suspect.
                    DiskState::Online if member.reason.is_some() && member.full_seconds > 0 => {
                        (FindingCode::DiskFull, Severity::Warning)
                    }
                    DiskState::Online if member.reason.is_some() => {
                        (FindingCode::DiskSuspect, Severity::Warning)
                    }
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
                issues.push(issue(
                    code,
                    severity,
                    format!("disk {name} of pool {}", info.name),
                    detail,
                    todo,
                ));
            }
            issues.extend(info.spaces.iter().filter_map(|space| {
                let without = self.is_done_without(space);
                health_rules::of_space(&space.state, space.log_of.as_deref(), &info.name, without)
            }));
            let told = self.is_told_full(&summary(&info));
            issues.extend(
                info.spaces
                    .iter()
                    .filter(|space| space.out_of_room && !told)
                    .map(|space| health_rules::no_room(&space.state, &info.name)),
            );
        }
        issues
    }
}
