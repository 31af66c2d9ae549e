//! What is wrong with the numbers that LUNs are mapped under.

use control_api::{Config, Issue, Severity, SharedNumber};
use health_rules::{FindingCode, of_rule};

/// Numbers under which an initiator has several LUNs, as a configuration of an earlier release may have it.
pub(super) fn issues(config: &Config) -> Vec<Issue> {
    let issue = |shared: SharedNumber| {
        let who = shared.initiator.unwrap_or_else(|| "every initiator".to_owned());
        let by = |(lun, group): &(String, String)| format!("{lun} by initiator group {group}");
        let luns: Vec<String> = shared.luns.iter().map(by).collect();
        let seen = shared.luns.first().map_or("", |(lun, _)| lun);
        let (other, group) = shared.luns.last().map_or(("", ""), |(lun, group)| (lun, group));
        Issue {
            severity: Severity::Error,
            subject: format!("target {}", shared.target),
            detail: format!(
                "several LUNs are mapped to {who} as number {}: {}. It sees {seen} alone, and no other one in its place before it has logged out and in",
                shared.number,
                luns.join(", ")
            ),
            todo: format!(
                "Take away all but one: `holdfast lun unmap {other} --target {} --group {group}`; map it under another number.",
                shared.target
            ),
            ..of_rule(FindingCode::LunNumberShared)
        }
    };
    config.shared_numbers().into_iter().map(issue).collect()
}
