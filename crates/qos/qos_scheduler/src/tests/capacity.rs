//! What is learnt of volumes: fast and slow ones, ones that stand still, change their speed or have a cache before them.

use super::volume::{Service, Volume};
use super::{MS, S};
use crate::{Settings, Terms};

const US: u64 = MS / 1000;

pub(super) fn volume(arms: usize, service: Service) -> Volume {
    Volume::new(Settings { depth: 128, ..Settings::default() }, arms, service)
}

/// 8 arms of 400 µs: 20,000 a second.
fn flash() -> Volume {
    volume(8, Box::new(|_, _| 400 * US))
}

/// One arm of 8 ms: 125 a second.
fn hard_disk() -> Volume {
    volume(1, Box::new(|_, _| 8 * MS))
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Disks at random, each of which does its requests one after another, so long each.
pub(super) fn one_by_one(disks: u64, nanos: u64) -> Service {
    let free = std::cell::RefCell::new(vec![0_u64; disks as usize]);
    Box::new(move |at: u64, number: u64| {
        let mut free = free.borrow_mut();
        let disk = &mut free[(mixed(number) % disks) as usize];
        *disk = at.max(*disk) + nanos;
        *disk - at
    })
}

/// Between three and five quarters of a time.
pub(super) fn jitter(nanos: u64, number: u64) -> u64 {
    nanos * 3 / 4 + mixed(number) % (nanos / 2)
}

pub(super) fn promised(iops: u64) -> Terms {
    Terms { min_iops: Some(iops), ..Terms::default() }
}

pub(super) fn neighbours(volume: &mut Volume, count: u32, depth: u32) -> Vec<usize> {
    (0..count).map(|_| volume.deep(Terms::default(), depth, 4096)).collect()
}

/// Runs until it has settled; since when it is to be looked at.
pub(super) fn settle(volume: &mut Volume, seconds: u64) -> u64 {
    volume.run(seconds * S);
    volume.now
}

#[test]
fn without_minimums_and_with_equal_neighbours_all_places_are_used() {
    for mut volume in [flash(), hard_disk()] {
        neighbours(&mut volume, 4, 64);
        let since = settle(&mut volume, 2);
        volume.run(5 * S);
        assert_eq!(volume.learnt().depth, 128);
        let can = if volume.sum(since) > 1000 { 20_000 } else { 125 };
        assert!(volume.learnt().units.abs_diff(can) * 20 <= can, "{:?}", volume.learnt());
        assert!(volume.sum(since) * 100 >= can * 99, "{}", volume.sum(since));
    }
}

/// One request at a time waits behind 127 others in the volume: 6.4 ms of flash, of which the minimum allows 1.
#[test]
fn a_minimum_of_who_has_one_under_way_is_met_on_flash() {
    let mut volume = flash();
    let protected = volume.deep(promised(1000), 1, 4096);
    let quiet = settle(&mut volume, 1);
    let alone = volume.p99(protected, quiet - S / 2);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 5);
    volume.run(10 * S);
    let rate = volume.rate(protected, since);
    assert!(rate >= 980, "{rate}, {:?}", volume.learnt());
    assert!(volume.p99(protected, since) <= 3 * alone, "{} µs", volume.p99(protected, since) / US);
    assert!(volume.sum(since) >= 19_400, "the others have what is left: {}", volume.sum(since));
}

#[test]
fn a_minimum_of_a_paced_client_is_met_with_the_latency_of_a_slow_disk_that_is_hardly_busy() {
    let mut volume = hard_disk();
    let protected = volume.paced(promised(50), 40, 4096);
    let quiet = settle(&mut volume, 4);
    let alone = volume.p99(protected, quiet - 2 * S);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 20);
    volume.run(20 * S);
    let rate = volume.rate(protected, since);
    assert!(rate >= 39, "{rate}, {:?}", volume.learnt());
    assert!(volume.p99(protected, since) <= 6 * alone, "{} ms", volume.p99(protected, since) / MS);
    assert!(volume.sum(since) >= 123, "{}", volume.sum(since));
}

/// Nobody has ever seen it quiet, so that what is quiet is found by trying.
#[test]
fn a_minimum_on_a_disk_that_was_never_quiet_is_met() {
    for depth in [1, 4, 16] {
        let mut volume = hard_disk();
        neighbours(&mut volume, 16, 64);
        settle(&mut volume, 30);
        let protected = volume.deep(promised(50), depth, 4096);
        let since = settle(&mut volume, 20);
        volume.run(20 * S);
        let rate = volume.rate(protected, since);
        assert!(rate >= 49, "depth {depth}: {rate}, {:?}", volume.learnt());
        assert!(volume.sum(since) >= 123, "{}", volume.sum(since));
    }
}

/// A cut is compared with what was before it: with a load that was still coming then, it would seem to be in vain.
#[test]
fn neighbours_that_come_one_by_one_are_held_back_as_well() {
    let mut volume = volume(4, Box::new(|_, n| jitter(MS, n)));
    let protected = volume.deep(promised(1200), 4, 4096);
    settle(&mut volume, 2);
    for _ in 0..16 {
        neighbours(&mut volume, 1, 64);
        volume.run(37 * MS);
    }
    let since = settle(&mut volume, 2);
    volume.run(5 * S);
    let rate = volume.rate(protected, since);
    assert!(rate >= 1180, "{rate}, {:?}", volume.learnt());
    assert!(volume.sum(since) >= 3900, "{}", volume.sum(since));
}

/// As on a busy machine, where the node itself stands still for moments: a cut that comes just then is not in vain.
#[test]
fn a_volume_that_stops_for_moments_is_not_taken_for_one_without_a_queue() {
    let service = |at: u64, n: u64| {
        let stops = (at / (300 * MS)).is_multiple_of(2) && mixed(at / (300 * MS)).is_multiple_of(3);
        jitter(MS, n) + if stops { 30 * MS } else { 0 }
    };
    let mut volume = volume(4, Box::new(service));
    let protected = volume.deep(promised(600), 8, 4096);
    settle(&mut volume, 3);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 3);
    let mut most = 0;
    for _ in 0..200 {
        volume.run(50 * MS);
        most = volume.learnt().depth.max(most);
    }
    assert!(most < 100, "{most}");
    assert!(volume.rate(protected, since) >= 540, "{}, {:?}", volume.rate(protected, since), volume.learnt());
}

#[test]
fn once_who_has_a_minimum_is_gone_all_places_are_used_again() {
    let mut volume = flash();
    let protected = volume.deep(promised(1000), 1, 4096);
    settle(&mut volume, 1);
    neighbours(&mut volume, 16, 64);
    settle(&mut volume, 5);
    assert!(volume.learnt().depth < 128, "{:?}", volume.learnt());
    volume.quit(protected);
    settle(&mut volume, 15);
    assert_eq!(volume.learnt().depth, 128);
}

/// It asks for a tenth of its minimum and hardly ever has anything under way, so that nobody is to be held back for it.
#[test]
fn a_minimum_that_is_hardly_used_holds_back_nobody() {
    let mut volume = flash();
    volume.paced(promised(400), 10, 4096);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 3);
    volume.run(5 * S);
    assert_eq!(volume.learnt().depth, 128);
    assert!(volume.sum(since) >= 19_800, "{}", volume.sum(since));
}

#[test]
fn what_a_volume_can_is_known_once_it_was_busy_for_a_while_and_by_which_requests() {
    let mut volume = flash();
    let few = neighbours(&mut volume, 4, 64);
    volume.run(S / 2);
    assert_eq!(volume.learnt().units, 0, "a burst shows nothing");
    volume.run(5 * S);
    let learnt = volume.learnt();
    assert!(learnt.units.abs_diff(20_000) <= 1000, "{learnt:?}");
    assert_eq!(learnt.request_units_permille, 1000, "4 KiB count as one");
    drop(few);
    let mut volume = flash();
    for _ in 0..4 {
        volume.deep(Terms::default(), 64, 1 << 20);
    }
    volume.run(5 * S);
    let learnt = volume.learnt();
    assert_eq!(learnt.request_units_permille, 128_000, "1 MiB counts as 128");
    assert!(learnt.units > 20_000, "{learnt:?}");
}

#[test]
fn a_configured_target_is_kept_while_a_minimum_is_in_use() {
    let mut volume = flash();
    let settings = Settings { depth: 128, latency_target: 1600 * US, ..Settings::default() };
    volume.scheduler.set_settings(settings);
    volume.deep(promised(2200), 4, 4096);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 5);
    volume.run(5 * S);
    let learnt = volume.learnt();
    assert!((1000 * US..=1760 * US).contains(&learnt.latency), "{learnt:?}");
    assert!(volume.sum(since) >= 19_800, "{}", volume.sum(since));
}

/// All are scaled alike where more is promised than there is.
#[test]
fn minimums_above_what_a_slow_disk_does_are_met_to_the_same_part() {
    let mut volume = hard_disk();
    let (large, small) = (volume.deep(promised(200), 4, 4096), volume.deep(promised(50), 4, 4096));
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 30);
    volume.run(60 * S);
    let (large, small) = (volume.rate(large, since), volume.rate(small, since));
    assert!((85..=100).contains(&large) && large.abs_diff(4 * small) <= 12, "{large} and {small}");
    assert_eq!(volume.scheduler.promised().units, 250);
    assert!(volume.learnt().units.abs_diff(125) <= 6, "{:?}", volume.learnt());
}

#[test]
fn a_disk_that_becomes_slower_or_faster_is_learnt_anew() {
    let mut volume =
        volume(4, Box::new(|at, n| if at < 30 * S { jitter(200 * US, n) } else { jitter(2 * MS, n) }));
    let protected = volume.deep(promised(1000), 2, 4096);
    neighbours(&mut volume, 16, 64);
    settle(&mut volume, 10);
    assert!(volume.learnt().units.abs_diff(20_000) <= 1000, "{:?}", volume.learnt());
    settle(&mut volume, 50);
    let since = volume.now;
    volume.run(20 * S);
    assert!(volume.learnt().units.abs_diff(2000) <= 100, "{:?}", volume.learnt());
    // Two under way that take 2 ms each are 1000, where no queue is left at all: one of four disks has nothing to do for that.
    assert!(volume.rate(protected, since) >= 980, "{}, {:?}", volume.rate(protected, since), volume.learnt());
    assert!(volume.sum(since) >= 1450, "{}", volume.sum(since));
    volume.service = Box::new(|_, n| jitter(200 * US, n));
    let since = settle(&mut volume, 10);
    volume.run(5 * S);
    assert!(volume.rate(protected, since) >= 980 && volume.sum(since) >= 19_000, "{}", volume.sum(since));
}

/// Nine of ten requests are answered by a cache. What looks like a queue is none, so places are not taken away for it.
#[test]
fn hits_of_a_cache_do_not_make_a_queue_of_misses() {
    let mut volume = volume(32, Box::new(|_, n| if mixed(n).is_multiple_of(10) { 8 * MS } else { 500 * US }));
    let protected = volume.deep(promised(2000), 4, 4096);
    neighbours(&mut volume, 16, 8);
    let since = settle(&mut volume, 10);
    volume.run(20 * S);
    // 32 arms of 1.25 ms on the average: 25,600.
    assert!(volume.sum(since) >= 23_000, "{}, {:?}", volume.sum(since), volume.learnt());
    assert!(volume.rate(protected, since) >= 1960, "{}", volume.rate(protected, since));
}

#[test]
fn a_volume_that_stands_still_and_goes_on_is_as_before() {
    let mut volume =
        volume(8, Box::new(|at, _| if (10 * S..10 * S + 4 * MS).contains(&at) { 5 * S } else { 400 * US }));
    let protected = volume.deep(promised(1000), 1, 4096);
    settle(&mut volume, 1);
    neighbours(&mut volume, 16, 64);
    settle(&mut volume, 13);
    assert_eq!(volume.learnt().depth, 128, "nothing is held back where nothing is answered");
    let since = settle(&mut volume, 10);
    volume.run(5 * S);
    assert!(volume.rate(protected, since) >= 980, "{}, {:?}", volume.rate(protected, since), volume.learnt());
}

/// Requests that are never answered take no places of the few that are left then.
#[test]
fn requests_that_are_never_answered_stop_their_class_only() {
    let mut volume = flash();
    let protected = volume.deep(promised(1000), 1, 4096);
    settle(&mut volume, 1);
    neighbours(&mut volume, 16, 64);
    settle(&mut volume, 5);
    let stuck = volume.deep(Terms::default(), 40, 4096);
    volume.swallows.push(stuck);
    let since = settle(&mut volume, 10);
    volume.run(10 * S);
    assert!(volume.rate(protected, since) >= 950, "{}, {:?}", volume.rate(protected, since), volume.learnt());
    assert!(volume.sum(since) >= 19_000, "{}", volume.sum(since));
}

/// One request at a time, without any policy, beside 1024: it gets more than behind 127 others.
#[test]
fn who_has_less_than_its_share_is_helped_as_far_as_that_costs_nothing() {
    let mut volume = flash();
    let shallow = volume.deep(Terms::default(), 1, 4096);
    settle(&mut volume, 1);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 5);
    volume.run(5 * S);
    assert!(volume.rate(shallow, since) >= 500, "{}, {:?}", volume.rate(shallow, since), volume.learnt());
    assert!(volume.sum(since) >= 19_800, "{}", volume.sum(since));
}
