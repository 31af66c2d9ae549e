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
