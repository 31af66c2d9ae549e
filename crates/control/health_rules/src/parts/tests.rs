//! Every state of every part is under a sentence that fits.

use control_api::{LogPlace, Provisioning, Resiliency, VolumeCache, VolumeLog};

use super::*;
use crate::headline::tests::{REDUNDANCIES, never_better};

pub(crate) fn pool(state: PoolState) -> Pool {
    Pool {
        name: "p".into(),
        guid: uuid::Uuid::from_u128(1),
        state,
        reason: None,
        redundancy: RedundancyState::Full,
        capacity_bytes: 0,
        allocated_bytes: 0,
        free_bytes: 0,
        reserved_bytes: 0,
        disks: 0,
        disks_missing: 0,
        volumes: 0,
        repair_bytes: 0,
        copied_bytes: 0,
        slab_bytes: 0,
        address: None,
        home: Vec::new(),
        load: None,
        forecast: None,
        stays: None,
        discards: Vec::new(),
        epoch: 0,
    }
}

pub(crate) fn volume(online: bool, reason: Option<&str>, log: Option<VolumeLog>) -> Volume {
    Volume {
        guid: uuid::Uuid::nil(),
        name: "v".into(),
        pool: "p".into(),
        online,
        reason: reason.map(str::to_owned),
        resiliency: Resiliency::Mirror2,
        redundancy: RedundancyState::Full,
        provisioning: Provisioning::Thin,
        columns: 1,
        interleave_bytes: 0,
        integrity: true,
        size_bytes: 0,
        used_bytes: 0,
        free_bytes: 0,
        allocated_bytes: 0,
        cache: VolumeCache::default(),
        log_place: log.as_ref().map(|_| LogPlace {
            pool: Some("fast".into()),
            size_bytes: Some(1 << 30),
            there: false,
        }),
        log,
    }
}

fn log(mode: LogMode, back_error: Option<&str>) -> VolumeLog {
    VolumeLog {
        mode,
        reason: None,
        back_error: back_error.map(str::to_owned),
        capacity_bytes: 0,
        used_bytes: 0,
        waiting_bytes: 0,
        logged_writes: 0,
        direct_writes: 0,
        batches: 0,
        destaged_bytes: 0,
    }
}

fn space(redundancy: RedundancyState, repair_bytes: u64, reason: Option<String>) -> SpaceState {
    SpaceState { name: "v".into(), resiliency: Resiliency::Mirror2, redundancy, repair_bytes, reason }
}

#[test]
fn a_log_that_is_away_is_told_of_by_its_names() {
    let away = space(RedundancyState::Unavailable, 0, None);
    let served = of_space(&away, Some("v"), "fast", true).expect("an issue");
    assert_eq!((served.severity, &*served.subject), (Severity::Error, "log of volume v in pool fast"));
    assert_eq!(of_space(&away, Some("v"), "fast", false).expect("an issue").severity, Severity::Critical);
    let issues = of_volumes(&[volume(true, None, Some(log(LogMode::Through, None)))], true, &|_| None);
    assert!(issues[0].detail.contains("pool fast"), "{issues:?}");
}

fn lun(serving: LunState, problem: Option<&str>) -> Lun {
    let config = LunConfig { state: serving, ..LunConfig::new("l", "v", "/l") };
    Lun {
        config,
        size_bytes: 0,
        allocated_bytes: 0,
        serving,
        caching: false,
        write_cache_now: None,
        lost_writes: Vec::new(),
        reservations: None,
        problem: problem.map(str::to_owned),
    }
}

#[test]
fn every_state_of_every_part_is_under_a_sentence_that_fits() {
    for ready in [true, false] {
        for state in [
            PoolState::Opening,
            PoolState::Closed,
            PoolState::ReadOnly,
            PoolState::Degraded,
            PoolState::Online,
        ] {
            for done_without in [true, false] {
                let issues = of_pools(&[pool(state)], ready, &|_| String::new(), &|_| done_without);
                never_better(ready, false, Some(RedundancyState::Full), &issues);
                let opening = state == PoolState::Opening;
                let broken = matches!(state, PoolState::Closed | PoolState::ReadOnly) || opening && ready;
                assert_eq!(issues.len(), usize::from(broken || opening), "{state:?}");
                let critical = issues.iter().any(|issue| issue.severity == Severity::Critical);
                assert_eq!(critical, broken && !done_without, "{issues:?}");
            }
        }
        for mode in [LogMode::Logging, LogMode::Draining, LogMode::Through, LogMode::Stopped] {
            for back_error in [None, Some("no disk")] {
                for (online, reason) in [(true, None), (false, None), (false, Some("it had stopped"))] {
                    let volume = volume(online, reason, Some(log(mode, back_error)));
                    let issues = of_volumes(&[volume], ready, &|_| None);
                    never_better(ready, false, Some(RedundancyState::Full), &issues);
                    let sound = online && mode == LogMode::Logging && back_error.is_none();
                    assert_eq!(issues.is_empty(), sound, "{issues:?}");
                }
            }
        }
        for serving in [LunState::Online, LunState::ReadOnly, LunState::Offline] {
            for problem in [None, Some("no volume")] {
                let issues = of_luns(&[lun(serving, problem)], ready, &|_| None);
                never_better(ready, false, Some(RedundancyState::Full), &issues);
            }
        }
        for redundancy in REDUNDANCIES {
            let space = space(redundancy, 0, None);
            let issues: Vec<Issue> = of_space(&space, None, "p", false).into_iter().collect();
            never_better(ready, false, Some(redundancy), &issues);
            assert_eq!(issues.is_empty(), redundancy == RedundancyState::Full);
        }
    }
}

#[test]
fn what_lacks_copies_is_not_said_to_have_none_to_make() {
    let detail = |redundancy, repair_bytes| {
        let reason = Some("1.31 GiB have 1 of 2 copies at the least".into());
        of_space(&space(redundancy, repair_bytes, reason), None, "p", false).expect("an issue").detail
    };
    let reduced = detail(RedundancyState::Reduced, 0);
    assert!(!reduced.contains("0 B") && reduced.contains("nothing is being copied"), "{reduced}");
    assert!(!detail(RedundancyState::Restoring, 0).contains("copy)"));
    assert!(detail(RedundancyState::Restoring, 3 << 30).contains("3.00 GiB to copy"));
}

#[test]
fn a_check_is_advised_for_damage_only() {
    let closed = [volume(false, Some("it had stopped"), None)];
    let todo = |known: Option<&str>| of_volumes(&closed, true, &|_| known.map(str::to_owned))[0].todo.clone();
    assert_eq!(todo(Some("check it")), "check it");
    assert!(todo(None).contains("volume reopen v") && !todo(None).contains("volume check"));
    let opening = of_volumes(&[volume(false, None, None)], false, &|_| None);
    assert_eq!(opening[0].severity, Severity::Info);
}
