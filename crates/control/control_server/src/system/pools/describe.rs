//! What a pool says of itself, in the words of the API.

use std::error::Error;
use std::time::Duration;

use control_api::{
    Balance, CheckFinding, Code, DiskState, MediaType, PoolMember, PoolState, Problem, Provisioning,
    RedundancyState, Resiliency, Scrub, Severity, SpaceState, human_bytes,
};
use pool::{
    DiskStatus, DiskUse, Finding, Pool, PoolError, PoolErrorKind, PoolStatus, ScrubStatus, SpaceStatus,
    voters_needed,
};
use uuid::Uuid;

use crate::backend::{PoolInfo, SpaceInfo, log_of};

/// An error of a pool as a problem.
pub(in crate::system) fn problem(error: &PoolError) -> Problem {
    let code = match error.kind() {
        PoolErrorKind::Invalid => Code::InvalidRequest,
        PoolErrorKind::NotFound => Code::NotFound,
        PoolErrorKind::AlreadyExists => Code::AlreadyExists,
        PoolErrorKind::ForeignData => Code::ForeignData,
        PoolErrorKind::NoSpace => Code::NoSpace,
        PoolErrorKind::NoQuorum => Code::NotEnoughDisks,
        PoolErrorKind::Stopped => Code::WrongState,
        PoolErrorKind::Damaged => Code::Damaged,
        PoolErrorKind::TooNew => Code::Unsupported,
        PoolErrorKind::InUse | PoolErrorKind::Fenced | PoolErrorKind::OldEpoch(_) => Code::InUse,
        _ => Code::Io,
    };
    let mut detail = error.to_string();
    let mut cause = error.source();
    while let Some(below) = cause {
        let text = below.to_string();
        // Errors of disks are their own detail.
        if !detail.ends_with(&text) {
            detail.push_str(&format!(": {text}"));
        }
        cause = below.source();
    }
    let problem = Problem::new(code, detail);
    match code {
        Code::NotEnoughDisks => problem.todo(
            "Attach the missing disks. If they are lost for good, `holdfast pool import --accept-loss`.",
        ),
        Code::ForeignData => {
            problem.todo("Choose another disk, or repeat with --overwrite-foreign to destroy this data.")
        }
        Code::NoSpace => problem.todo("Add disks to the pool (`holdfast pool add-disk`)."),
        Code::WrongState => {
            problem.todo("The node opens the pool again by itself when a majority of its disks is there.")
        }
        _ => problem,
    }
}

/// A finding of a check.
pub(in crate::system) fn finding(finding: Finding, place: &str) -> CheckFinding {
    CheckFinding {
        severity: match finding.severity {
            pool::Severity::Critical => Severity::Critical,
            pool::Severity::Error => Severity::Error,
            pool::Severity::Warning => Severity::Warning,
        },
        structure: finding.structure.into(),
        place: place.into(),
        detail: finding.detail,
        action: Some(finding.todo.into()),
    }
}

/// Whether a member is used up: given up, and not there to be emptied.
pub(super) fn is_given_up(disk: &DiskStatus) -> bool {
    !disk.online && disk.record.usage == DiskUse::Retired
}

/// A pool now. `failed` says which members were brought back too often to be trusted.
pub(super) fn info(pool: &Pool, paused: bool, failed: &dyn Fn(Uuid) -> bool) -> PoolInfo {
    let status = pool.status();
    let slab = pool.slab_size();
    let members: Vec<PoolMember> = status.disks.iter().map(|disk| member(disk, slab, failed)).collect();
    let offline = status.disks.iter().filter(|disk| !disk.online).count();
    let given_up = status.disks.iter().filter(|disk| is_given_up(disk));
    let back = status.disks.iter().filter(|disk| disk.went_back.is_some()).count();
    let votes = status.disks.iter().filter(|disk| disk.record.metadata);
    let voters: Vec<Uuid> = votes.map(|disk| Uuid::from_bytes(disk.record.guid.0)).collect();
    let (state, reason) = if status.superseded {
        let why = "another node has opened it since, so it stopped here";
        (PoolState::ReadOnly, Some(why.to_owned()))
    } else if status.stopped {
        let why = "its metadata did not reach a majority of its disks, so it stopped taking writes";
        (PoolState::ReadOnly, Some(why.to_owned()))
    } else if offline > 0 {
        let all = status.disks.len();
        (PoolState::Degraded, Some(format!("{offline} of its {all} disks are missing")))
    } else if back > 0 {
        let why = "of its disks went back in time, and are being made anew from the others";
        (PoolState::Degraded, Some(format!("{back} {why}")))
    } else {
        (PoolState::Online, None)
    };
    PoolInfo {
        name: pool.name().into(),
        guid: Uuid::from_bytes(pool.guid().0),
        state,
        reason,
        slab_bytes: slab,
        epoch: status.epoch.0,
        members,
        voters_needed: u32::try_from(voters_needed(voters.len())).unwrap_or(u32::MAX),
        voters,
        given_up: given_up.map(|disk| Uuid::from_bytes(disk.record.guid.0)).collect(),
        spaces: spaces(&status, paused),
        reserved_bytes: status.reserved,
        repairing: !paused && status.repair_bytes() > 0,
        copied_bytes: status.copied_bytes,
        balanced_bytes: status.balanced_bytes,
        scrubbed_bytes: status.scrubbed_bytes,
        copy_floor: pool::REPAIR_FLOOR,
        scrub: scrub(&pool.scrub_status()),
        balance: balance(pool),
    }
}

/// What a disk that still serves has shown of itself, when that is more than bad luck.
fn suspicion(disk: &DiskStatus) -> Option<String> {
    /// Damaged blocks, or failed reads and writes, that no healthy disk has.
    const SUSPECT_ERRORS: u64 = 8;
    /// How long a disk may be slow before anybody is told.
    const SUSPECT_SLOW: Duration = Duration::from_secs(60);
    let io = disk.read_errors + disk.write_errors;
    let mut evidence = Vec::new();
    if disk.checksum_errors + io >= SUSPECT_ERRORS {
        evidence.push(format!(
            "{} blocks were not what was written ({} restored), {io} reads and writes failed",
            disk.checksum_errors, disk.healed_blocks
        ));
    }
    let slow = disk.slowness;
    if slow.lasting >= SUSPECT_SLOW {
        evidence.push(format!(
            "for {} s it has answered in {} ms where others need {:.1} ms",
            slow.lasting.as_secs(),
            slow.mean.as_millis(),
            slow.others.as_secs_f64() * 1000.0
        ));
    }
    (!evidence.is_empty()).then(|| format!("suspect: {}; replace it", evidence.join("; ")))
}

/// That a disk's file system is full, and what that comes to.
fn fullness(disk: &DiskStatus) -> Option<String> {
    disk.full_for?;
    let lacks = human_bytes(disk.stale_bytes);
    Some(format!("its file system is full: it lacks {lacks}, which is copied when there is room"))
}

fn balance(pool: &Pool) -> Balance {
    let status = pool.balance_status();
    Balance {
        uneven_percent: status.uneven_percent,
        waiting: status.waiting,
        bytes_left: status.bytes_left,
        moved_bytes: status.moved * pool.slab_size(),
    }
}

fn scrub(status: &ScrubStatus) -> Scrub {
    let record = &status.record;
    Scrub {
        running: status.is_running(),
        started_unix_ms: record.started / 1_000_000,
        finished_unix_ms: record.finished / 1_000_000,
        rows_done: status.rows_done,
        rows: status.rows,
        read_bytes: record.bytes,
        damaged_blocks: record.damaged,
        lost_blocks: record.hopeless,
    }
}

fn member(disk: &DiskStatus, slab: u64, failed: &dyn Fn(Uuid) -> bool) -> PoolMember {
    let record = &disk.record;
    let guid = Uuid::from_bytes(record.guid.0);
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (state, reason) = match (disk.online, record.usage) {
        (true, DiskUse::Active) => {
            (DiskState::Online, disk.went_back.clone().or_else(|| fullness(disk)).or_else(|| suspicion(disk)))
        }
        (true, DiskUse::Spare) => (DiskState::Spare, None),
        (true, DiskUse::Draining) => {
            let why = suspicion(disk).map(|why| format!("; {why}")).unwrap_or_default();
            (DiskState::Retiring, Some(format!("it is being emptied{why}")))
        }
        (true, DiskUse::Retired) => (DiskState::Retiring, Some("it was retired".to_owned())),
        (false, DiskUse::Retired) => {
            (DiskState::Failed, Some("it was given up; what it held is restored elsewhere".to_owned()))
        }
        (false, _) if failed(guid) => {
            (DiskState::Failed, Some(format!("it failed again and again: {}", disk.why_offline)))
        }
        (false, _) => (DiskState::Missing, some(&disk.why_offline)),
    };
    PoolMember {
        guid,
        disk: None,
        state,
        reason,
        size_bytes: record.size,
        usable_bytes: u64::from(record.slab_count) * slab,
        allocated_bytes: u64::from(disk.used_slabs) * slab,
        io_errors: disk.read_errors + disk.write_errors,
        checksum_errors: disk.checksum_errors,
        healed_blocks: disk.healed_blocks,
        slow_seconds: disk.slowness.lasting.as_secs(),
        full_seconds: disk.full_for.map_or(0, |full| full.as_secs().max(1)),
        media: match record.media {
            1 => MediaType::Ssd,
            2 => MediaType::Hdd,
            _ => MediaType::Unspecified,
        },
        node: some(&record.node),
        enclosure: some(&record.enclosure),
        slot: some(&record.slot),
    }
}

fn spaces(status: &PoolStatus, paused: bool) -> Vec<SpaceInfo> {
    // Which spaces' regions are unsettled is not told apart: it concerns the mirrors that hold something.
    let mut unsettled = status.unsettled_bytes;
    let info = |space: &SpaceStatus| {
        let settling = status.unsettled_bytes > 0 && space.copies_promised > 1 && space.allocated_bytes > 0;
        let (redundancy, reason) = redundancy(status, space, (settling, paused));
        // Counted once.
        let left = if settling { std::mem::take(&mut unsettled) } else { 0 };
        let record = &space.record;
        SpaceInfo {
            guid: Uuid::from_bytes(record.guid.0),
            log_of: log_of(&record.name).map(str::to_owned),
            state: SpaceState {
                name: record.name.clone(),
                resiliency: match record.resiliency {
                    pool::Resiliency::Simple => Resiliency::Simple,
                    pool::Resiliency::Mirror(2) => Resiliency::Mirror2,
                    pool::Resiliency::Mirror(_) => Resiliency::Mirror3,
                    pool::Resiliency::Parity(1) => Resiliency::Parity1,
                    pool::Resiliency::Parity(_) => Resiliency::Parity2,
                },
                redundancy,
                repair_bytes: space.repair_bytes + left,
                reason,
            },
            size_bytes: record.size,
            allocated_bytes: space.taken_bytes,
            out_of_room: space.unallocated_bytes > 0 && space.room_bytes == 0,
            integrity: record.checksum.is_some(),
            provisioning: match record.provisioning {
                pool::Provisioning::Thin => Provisioning::Thin,
                pool::Provisioning::Fixed => Provisioning::Fixed,
            },
            columns: u16::from(record.columns),
            interleave_bytes: u64::from(record.interleave),
        }
    };
    status.spaces.iter().map(info).collect()
}

fn redundancy(
    status: &PoolStatus,
    space: &SpaceStatus,
    (settling, paused): (bool, bool),
) -> (RedundancyState, Option<String>) {
    if status.stopped {
        return (RedundancyState::Unavailable, Some("its pool has stopped".into()));
    }
    if let Some(why) = &space.closed {
        return (RedundancyState::Unavailable, Some(why.clone()));
    }
    if space.unavailable_bytes > 0 {
        let why = format!("no good copy of {} is there", human_bytes(space.unavailable_bytes));
        return (RedundancyState::Unavailable, Some(why));
    }
    if space.degraded_bytes > 0 {
        let bytes = human_bytes(space.degraded_bytes);
        let why = if space.record.resiliency.parity() > 0 {
            let (now, promised) = (space.copies_now.saturating_sub(1), space.copies_promised - 1);
            format!("{bytes} survive the loss of {now} more disks instead of {promised}")
        } else {
            format!("{bytes} have {} of {} copies at the least", space.copies_now, space.copies_promised)
        };
        return match space.repair_bytes {
            1.. if !paused => (RedundancyState::Restoring, Some(why)),
            1.. => (RedundancyState::Reduced, Some(format!("{why}; the repair is paused"))),
            0 if space.without_room_bytes > 0 => {
                (RedundancyState::Reduced, Some(format!("{why}; no disk has room for the missing copies")))
            }
            0 => (RedundancyState::Reduced, Some(why)),
        };
    }
    if settling {
        return (RedundancyState::Restoring, Some("after a crash its copies are being compared".into()));
    }
    (RedundancyState::Full, None)
}
