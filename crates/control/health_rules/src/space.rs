//! Rules of space: what is promised, and what there is.

use control_api::{Issue, Pool, Provisioning, Resiliency, Severity, SpaceState, Volume, human_bytes};

use crate::{FindingCode, issue};

/// A thin space that finds no disks for new data.
pub fn no_room(state: &SpaceState, pool: &str) -> Issue {
    issue(
        FindingCode::VolumeNoRoom,
        Severity::Error,
        format!("volume {}", state.name),
        format!("pool {pool} has no room left for it: writes to where it holds nothing yet fail"),
        "Add a disk (`holdfast pool add-disk`) or remove data; what is there can be read and overwritten.",
    )
}

/// Volumes that a line names; of more it says how many.
const NAMED: usize = 8;

/// A pool that is fuller than its limits: one line for all that follows from it. `room` is what data may take, `without_room` are the volumes
/// that find none, `promises` what there is to say of its thin volumes.
pub fn of_fullness(pool: &Pool, room: u64, without_room: &[String], promises: Option<Issue>) -> Issue {
    let percent = u128::from(room.saturating_sub(pool.free_bytes)) * 100 / u128::from(room.max(1));
    let (free, room) = (human_bytes(pool.free_bytes), human_bytes(room));
    let mut detail = format!("{percent} % of its space is in use: {free} of {room} are free");
    let full = !without_room.is_empty();
    if full {
        let mut names = without_room.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = without_room.len().saturating_sub(NAMED);
        if more > 0 {
            names = format!("{names} and {more} more");
        }
        detail = format!(
            "{detail}; there is no room left for volume{} {names}: writes to where nothing is held yet fail",
            if without_room.len() > 1 { "s" } else { "" }
        );
    } else if let Some(promises) = promises {
        detail = format!("{detail}; {}", promises.detail);
    }
    let todo = match full {
        true => {
            "Add a disk (`holdfast pool add-disk`) or remove data; what is there can be read and overwritten."
        }
        false => {
            "Add a disk (`holdfast pool add-disk`) or remove data; writes that need new space fail when it is full."
        }
    };
    // All is served until it is full.
    let severity = if full { Severity::Error } else { Severity::Warning };
    issue(FindingCode::PoolSpace, severity, format!("pool {}", pool.name), detail, todo)
}

/// Percent of a pool that must be in use before promises beyond its room are told of: to promise more than there is, is what thin volumes are for.
const TOLD_FROM: u128 = 50;

/// Bytes that a volume would take in its pool if it were full, all copies and parity counted.
fn when_full(volume: &Volume) -> u128 {
    let (columns, copies) = (u128::from(volume.columns.max(1)), u128::from(volume.resiliency.copies()));
    let parity: u128 = match volume.resiliency {
        Resiliency::Parity1 => 1,
        Resiliency::Parity2 => 2,
        Resiliency::Simple | Resiliency::Mirror2 | Resiliency::Mirror3 => 0,
    };
    let data = columns.saturating_sub(parity).max(1);
    u128::from(volume.size_bytes) * copies * columns / data
}

/// A pool that is half full, and whose thin volumes are promised more than is left. `volumes` are all that are known.
pub fn of_promises(pool: &Pool, volumes: &[Volume]) -> Option<Issue> {
    let room = u128::from(pool.capacity_bytes.saturating_sub(pool.reserved_bytes));
    let free = u128::from(pool.free_bytes);
    if room == 0 || room.saturating_sub(free) * 100 < room * TOLD_FROM {
        return None;
    }
    let thin =
        volumes.iter().filter(|volume| volume.pool == pool.name && volume.provisioning == Provisioning::Thin);
    let open: u128 =
        thin.map(|volume| when_full(volume).saturating_sub(u128::from(volume.allocated_bytes))).sum();
    if open <= free {
        return None;
    }
    let bytes = |bytes: u128| human_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
    let detail = format!(
        "its thin volumes may take {} more, copies counted, and {} are free: writes fail when it is full, though volumes seem to have room",
        bytes(open),
        bytes(free)
    );
    let todo = format!(
        "Add disks (`holdfast pool add-disk {}`) before it fills up, or delete what is not needed; `holdfast volume list` shows what each takes.",
        pool.name
    );
    Some(issue(
        FindingCode::PoolOvercommitted,
        Severity::Warning,
        format!("pool {}", pool.name),
        detail,
        todo,
    ))
}

#[cfg(test)]
mod tests {
    use control_api::PoolState;

    use super::*;
    use crate::parts::tests::{pool, volume};

    #[test]
    fn a_full_pool_is_one_line_that_names_its_volumes() {
        let at = |free| Pool { capacity_bytes: 1000, free_bytes: free, ..pool(PoolState::Online) };
        let thin = Volume { size_bytes: 2000, allocated_bytes: 900, ..volume(true, None, None) };
        let promises = || of_promises(&at(100), std::slice::from_ref(&thin));
        let fuller = of_fullness(&at(100), 1000, &[], promises());
        assert_eq!(fuller.severity, Severity::Warning);
        assert!(fuller.detail.starts_with("90 % of its space is in use"), "{}", fuller.detail);
        assert!(fuller.detail.contains("its thin volumes may take"), "{}", fuller.detail);
        let full = of_fullness(&at(0), 1000, &["a".into(), "b".into()], promises());
        assert_eq!(
            (&*full.code, full.severity),
            ("pool-space", Severity::Error),
            "who knew of it hears of it anew"
        );
        assert!(
            full.detail.ends_with("no room left for volumes a, b: writes to where nothing is held yet fail"),
            "{}",
            full.detail
        );
        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let full = of_fullness(&at(0), 1000, &many, None);
        assert!(full.detail.contains(" 7 and 92 more: "), "{}", full.detail);
        assert!(of_fullness(&at(0), 0, &[], None).detail.starts_with("0 %"), "nothing is divided by nothing");
    }

    #[test]
    fn promises_are_told_of_from_half_full_on() {
        let at = |free| Pool { capacity_bytes: 1000, free_bytes: free, ..pool(PoolState::Online) };
        let thin = |size, allocated| Volume {
            size_bytes: size,
            allocated_bytes: allocated,
            ..volume(true, None, None)
        };
        // Mirrored twice: a full one takes 4000.
        assert_eq!(of_promises(&at(900), &[thin(2000, 100)]), None, "it is new");
        let told = of_promises(&at(500), &[thin(2000, 500)]).expect("told");
        assert!(
            told.detail.contains("3.42 KiB more") && told.detail.contains("500 B are free"),
            "{}",
            told.detail
        );
        assert_eq!(of_promises(&at(500), &[thin(500, 500)]), None, "it fits exactly");
        assert_eq!(
            of_promises(&at(500), &[thin(501, 500)]).map(|told| told.code),
            Some("pool-overcommitted".into())
        );
        let fixed = Volume { provisioning: Provisioning::Fixed, ..thin(2000, 500) };
        assert_eq!(of_promises(&at(500), &[fixed]), None);
        let parity = Volume { resiliency: Resiliency::Parity1, columns: 4, ..thin(300, 0) };
        assert_eq!(when_full(&parity), 400);
        let huge = Volume { size_bytes: u64::MAX, columns: u16::MAX, ..thin(0, 0) };
        assert!(of_promises(&at(0), &[huge.clone(), huge]).is_some(), "sums do not overflow");
    }
}
