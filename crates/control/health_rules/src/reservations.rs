//! Reservations of LUNs that nobody is left to end.

use control_api::{Issue, Lun, LunConfig, Severity};

use crate::{FindingCode, issue};

/// LUNs that are reserved by hosts none of which is shown the LUN: no host can end that. `shown` says whether an initiator is.
pub fn of_reservations(luns: &[Lun], shown: &dyn Fn(&LunConfig, &str) -> bool) -> Vec<Issue> {
    let of = |lun: &Lun| {
        let reservations = lun.reservations.as_ref()?;
        let held = reservations.held()?;
        if reservations.holders.iter().any(|holder| shown(&lun.config, holder)) {
            return None;
        }
        Some(issue(
            FindingCode::LunReservedAway,
            Severity::Warning,
            format!("LUN {}", lun.config.name),
            format!(
                "it is {held}, and that host does not see it any more: others are kept off, and nobody ends it"
            ),
            format!(
                "Show it to that host again, which releases it; or, when no host may lose its protection by that, `holdfast lun clear-reservations {}`.",
                lun.config.name
            ),
        ))
    };
    luns.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use control_api::{LunReservations, LunState, ReservationKind};

    use super::*;

    fn lun(reservations: Option<LunReservations>) -> Lun {
        let config = serde_json::json!({ "name": "l", "volume": "v", "path": "/l" });
        Lun {
            config: serde_json::from_value(config).expect("a LUN"),
            size_bytes: 1,
            allocated_bytes: 0,
            serving: LunState::Online,
            caching: false,
            write_cache_now: None,
            lost_writes: Vec::new(),
            reservations,
            problem: None,
        }
    }

    #[test]
    fn only_what_nobody_is_left_to_end() {
        let held = |kind, holders: &[&str]| {
            lun(Some(LunReservations {
                kind,
                holders: holders.iter().map(|name| (*name).to_owned()).collect(),
                registrants: Vec::new(),
                generation: 1,
                aptpl: true,
            }))
        };
        let shown = |_: &LunConfig, name: &str| name == "iqn.here";
        let found = |lun: Lun| of_reservations(&[lun], &shown).len();
        assert_eq!(found(lun(None)), 0);
        assert_eq!(found(held(None, &[])), 0, "who is registered keeps nobody off");
        let kind = Some(ReservationKind::WriteExclusiveAllRegistrants);
        assert_eq!(found(held(kind, &["iqn.here"])), 0);
        assert_eq!(found(held(kind, &["iqn.gone", "iqn.here"])), 0, "one is left");
        let issues = of_reservations(&[held(kind, &["iqn.gone"])], &shown);
        assert!(issues[0].detail.contains("iqn.gone") && issues[0].todo.contains("clear-reservations l"));
    }
}
