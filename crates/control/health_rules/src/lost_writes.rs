//! Writes to LUNs that were acknowledged from a cache, and may be lost.

use control_api::{Issue, Lun, Severity};

use crate::{FindingCode, issue};

/// Initiators that are named at most: a LUN may have hundreds.
const NAMED: usize = 5;

/// LUNs with initiators that have not been told yet of writes that may be lost.
#[must_use]
pub fn of_lost_writes(luns: &[Lun]) -> Vec<Issue> {
    let of = |lun: &Lun| {
        let count = lun.lost_writes.len();
        let named: Vec<&str> = lun.lost_writes.iter().take(NAMED).map(String::as_str).collect();
        let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
        let name = &lun.config.name;
        if count > 0 && lun.config.write_cache_in.is_some() {
            return Some(issue(
                FindingCode::LunLostWrites,
                Severity::Error,
                format!("LUN {name}"),
                format!(
                    "the node was stopped, and with that all was given up that {}{more} had written to the LUN since the node started, as its write cache in memory is meant to do",
                    named.join(", ")
                ),
                format!(
                    "Start these hosts anew: one that has run on has in memory what the LUN has no more. Each of them is told once, with its next flush, which fails. Of one that was off then: `holdfast lun forget-lost-writes {name}` before it starts."
                ),
            ));
        }
        (count > 0).then(|| {
            issue(
                FindingCode::LunLostWrites,
                Severity::Error,
                format!("LUN {name}"),
                format!(
                    "its storage or its node failed while it had writes of {}{more} cached; what they had not flushed may be lost",
                    named.join(", ")
                ),
                format!(
                    "Each of them is told once, with its next flush, which fails; check what is on the LUN from there. Of one that does not come back: `holdfast lun forget-lost-writes {name}`. `holdfast lun write-cache {name} off` keeps this from happening again."
                ),
            )
        })
    };
    luns.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use control_api::LunState;

    use super::*;

    #[test]
    fn who_is_to_be_told_is_named() {
        let config = serde_json::json!({ "name": "l", "volume": "v", "path": "/l" });
        let lun = |lost: usize| Lun {
            config: serde_json::from_value(config.clone()).expect("a LUN"),
            size_bytes: 1,
            allocated_bytes: 0,
            serving: LunState::Online,
            caching: true,
            write_cache_now: None,
            reservations: None,
            lost_writes: (0..lost).map(|number| format!("iqn.h{number}")).collect(),
            problem: None,
        };
        assert_eq!(of_lost_writes(&[lun(0)]), []);
        let issues = of_lost_writes(&[lun(7)]);
        assert!(issues[0].detail.contains("iqn.h4 and 2 more"), "{}", issues[0].detail);
    }
}
