//! Places that are kept for minimums, and what others have beside them.

use super::capacity::{jitter, neighbours, one_by_one, promised, settle, volume};
use super::volume::Volume;
use super::{MS, S};
use crate::Terms;

/// 4 disks that do their requests one after another, a millisecond each.
fn four_disks() -> Volume {
    volume(256, one_by_one(4, MS))
}

/// A deep queue with a minimum of next to nothing wants no more places than that needs.
#[test]
fn a_small_minimum_of_a_deep_queue_takes_no_places_from_a_large_one() {
    let mut volume = four_disks();
    let greedy = volume.deep(promised(1), 64, 4096);
    let protected = volume.deep(promised(1900), 8, 4096);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 4);
    volume.run(10 * S);
    let (got, took) = (volume.rate(protected, since), volume.rate(greedy, since));
    assert!(got >= 1860, "{got} beside {took}, {:?}", volume.learnt());
    let share = (volume.sum(since) - got) / 17;
    assert!(took <= share * 3 / 2, "{took} of {share}");
}

/// A request that is never answered, a deep queue with a minimum, and others: nobody waits for ever.
#[test]
fn nobody_starves_beside_kept_places_and_requests_that_are_never_answered() {
    let mut volume = volume(8, Box::new(|_, n| jitter(400_000, n)));
    let protected = volume.deep(promised(1000), 1, 4096);
    let deep = volume.deep(promised(100), 64, 4096);
    settle(&mut volume, 1);
    let others = neighbours(&mut volume, 8, 64);
    settle(&mut volume, 4);
    let stuck = volume.deep(Terms::default(), 1, 4096);
    volume.swallows.push(stuck);
    let since = settle(&mut volume, 4);
    volume.run(10 * S);
    for client in others {
        assert!(volume.rate(client, since) >= 200, "{}, {:?}", volume.rate(client, since), volume.learnt());
    }
    assert!(volume.rate(protected, since) >= 950, "{}", volume.rate(protected, since));
    assert!(volume.rate(deep, since) >= 100, "{}", volume.rate(deep, since));
}

/// What it got by kept places is not held against it when nothing is held back any more.
#[test]
fn who_had_places_kept_has_its_share_afterwards() {
    let mut volume = four_disks();
    let protected = volume.deep(promised(1500), 8, 4096);
    neighbours(&mut volume, 4, 64);
    settle(&mut volume, 60);
    volume.give(protected, Terms::default());
    settle(&mut volume, 15);
    let since = volume.now;
    volume.run(5 * S);
    let (got, share) = (volume.rate(protected, since), volume.sum(since) / 5);
    assert!(got * 2 >= share, "{got} of {share}, {:?}", volume.learnt());
}

/// One request at a time cannot be 2,000 a second on these disks; who comes later does not pay for what was tried beside little load.
#[test]
fn a_trial_in_vain_leaves_the_places_that_there_were() {
    let mut volume = four_disks();
    volume.deep(promised(2000), 1, 4096);
    neighbours(&mut volume, 1, 2);
    settle(&mut volume, 5);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 5);
    volume.run(20 * S);
    assert!(volume.sum(since) >= 3000, "{}, {:?}", volume.sum(since), volume.learnt());
}

/// A minimum that no volume could meet takes nothing from one that can be met.
#[test]
fn an_absurd_minimum_does_not_end_the_protection_of_others() {
    let mut volume = four_disks();
    volume.deep(promised(10_000), 1, 4096);
    let protected = volume.deep(promised(1500), 8, 4096);
    neighbours(&mut volume, 16, 64);
    let since = settle(&mut volume, 5);
    volume.run(20 * S);
    let got = volume.rate(protected, since);
    assert!(got >= 1350, "{got}, {:?}", volume.learnt());
}

/// Places are of requests, minimums of normalised I/Os: 500 large requests in a second need fewer places than 1,500 small ones.
#[test]
fn large_requests_take_no_places_from_small_ones() {
    for (bytes, minimum) in [(64 << 10, 4000), (1 << 20, 64_000)] {
        let mut volume = four_disks();
        let protected = volume.deep(promised(1500), 8, 4096);
        settle(&mut volume, 2);
        let large = volume.deep(promised(minimum), 64, bytes);
        neighbours(&mut volume, 8, 64);
        let since = settle(&mut volume, 5);
        volume.run(10 * S);
        let (got, took) = (volume.rate(protected, since), volume.rate(large, since));
        assert!(got >= 1470 && took >= minimum, "{bytes}: {got} and {took}, {:?}", volume.learnt());
    }
}

/// 16 units in each of its requests, 600 requests a second of 1,000 that are done when it is alone: the neighbours are held back for it as
/// for one whose requests are small.
#[test]
fn a_minimum_of_large_requests_is_promised_as_any_other() {
    for theirs in [4096, 128 << 10] {
        let mut volume = four_disks();
        let protected = volume.deep(promised(9600), 1, 128 << 10);
        settle(&mut volume, 3);
        (0..16).for_each(|_| _ = volume.deep(Terms::default(), 64, theirs));
        let since = settle(&mut volume, 5);
        volume.run(10 * S);
        let got = volume.rate(protected, since);
        assert!(got >= 9400, "{theirs}: {got}, {:?}", volume.learnt());
    }
}
