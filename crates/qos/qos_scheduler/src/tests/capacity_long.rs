//! What is learnt of a volume that is busy for many minutes, and of minimums that no volume could meet.

use super::capacity::{jitter, neighbours, one_by_one, promised, settle, volume};
use super::volume::Volume;
use super::{MS, S};
use crate::Terms;

/// 8 arms of about 8 ms: 1,000 a second.
fn slow() -> Volume {
    volume(8, Box::new(|_, number| jitter(8 * MS, number)))
}

/// One request at a time beside 1,024, minute after minute: what is quiet is not forgotten meanwhile.
#[test]
fn who_is_protected_is_so_for_as_long_as_the_load_lasts() {
    let mut share = slow();
    let shallow = share.deep(Terms::default(), 1, 4096);
    settle(&mut share, 1);
    neighbours(&mut share, 16, 64);
    settle(&mut share, 60);
    for minute in 1..9 {
        let since = share.now;
        share.run(60 * S);
        let (got, sum) = (share.rate(shallow, since), share.sum(since));
        assert!(got >= 20 && sum >= 900, "minute {minute}: {got}, {sum}, {:?}", share.learnt());
    }
    let mut minimum = slow();
    let protected = minimum.deep(promised(50), 1, 4096);
    settle(&mut minimum, 1);
    neighbours(&mut minimum, 16, 64);
    settle(&mut minimum, 60);
    for minute in 1..9 {
        let since = minimum.now;
        minimum.run(60 * S);
        let got = minimum.rate(protected, since);
        assert!(got >= 49, "minute {minute}: {got}, {:?}", minimum.learnt());
    }
}

/// One request at a time on disks of 5 ms is 200 a second at most: a minimum of 500 costs others a sixth at most, and what the volume can do is known.
#[test]
fn a_minimum_that_no_volume_could_meet_costs_little() {
    for disks in [8_u64, 16] {
        let mut volume = volume(128, one_by_one(disks, 5 * MS));
        volume.deep(promised(500), 1, 4096);
        settle(&mut volume, 5);
        neighbours(&mut volume, 16, 64);
        settle(&mut volume, 20);
        let since = volume.now;
        volume.run(60 * S);
        // With 128 requests at random places these disks do nine tenths of what they can, and five sixths of that are left.
        let can = disks * 200;
        assert!(volume.sum(since) * 100 >= can * 74, "{} of {can}: {:?}", volume.sum(since), volume.learnt());
        assert!(volume.learnt().units * 100 >= can * 85, "{:?}", volume.learnt());
    }
}

/// Disks that are slow for some seconds can do no less afterwards, and the others pay no more for such a minimum.
#[test]
fn a_minimum_that_no_volume_could_meet_costs_no_more_after_disks_were_slow() {
    for slow_for in [1, 6, 30] {
        let (slow, fast) = (one_by_one(16, 5 * MS), one_by_one(16, MS / 2));
        let is_slow = move |at: u64| (20 * S..(20 + slow_for) * S).contains(&at);
        let service =
            move |at: u64, number: u64| if is_slow(at) { slow(at, number) } else { fast(at, number) };
        let mut volume = volume(128, Box::new(service));
        volume.deep(promised(5000), 1, 4096);
        settle(&mut volume, 2);
        neighbours(&mut volume, 16, 64);
        volume.run((22 + slow_for) * S - volume.now);
        let since = volume.now;
        volume.run(60 * S);
        assert!(
            volume.sum(since) >= 32_000 * 74 / 100,
            "{slow_for}: {}, {:?}",
            volume.sum(since),
            volume.learnt()
        );
    }
}

/// Disks that do their requests one after another, a millisecond each: what nobody knows of them was learnt when they were fast. 128 KiB of the
/// protected and 4 KiB of its neighbours take as long, and were never seen side by side on a quiet volume.
#[test]
fn a_minimum_is_met_on_disks_that_have_become_slow() {
    let cases = [
        (30, 8, 60, 4096),
        (30, 1, 60, 4096),
        (30, 8, 30, 4096),
        (30, 2, 60, 4096),
        (30, 4, 70, 4096),
        (4, 1, 60, 128 << 10),
        (10, 8, 70, 128 << 10),
        (30, 8, 60, 128 << 10),
    ];
    for (times, depth, part, bytes) in cases {
        let slow = one_by_one(4, MS);
        let service = move |at: u64, number: u64| if at < 10 * S { MS / times } else { slow(at, number) };
        let mut volume = volume(256, Box::new(service));
        let protected = volume.deep(Terms::default(), depth, bytes);
        settle(&mut volume, 12);
        let since = volume.now;
        volume.run(5 * S);
        let (alone, quick) = (volume.rate(protected, since), volume.p99(protected, since));
        let minimum = alone * part / 100;
        volume.give(protected, promised(minimum));
        neighbours(&mut volume, 16, 64);
        let since = settle(&mut volume, 4);
        volume.run(10 * S);
        let (got, p99, sum) =
            (volume.rate(protected, since), volume.p99(protected, since), volume.sum(since));
        let told = format!(
            "{times} times, depth {depth}, {bytes} bytes: {got} of {minimum} ({alone} alone), p99 {} of {} µs, {sum} in all: {:?}",
            p99 / 1000,
            quick / 1000,
            volume.learnt()
        );
        assert!(got * 100 >= minimum * 98, "{told}");
    }
}

/// They become slow while neighbours are held back already, and fast again: what such disks did before is not what they can now.
#[test]
fn a_minimum_is_met_on_disks_that_become_slow_under_load() {
    // Alone it does 1,000, 1,750 and 2,620 on the slow disks with 1, 2 and 4 requests under way.
    for (times, depth, minimum) in [(10, 1, 600), (4, 2, 525), (2, 4, 1800)] {
        let slow = one_by_one(4, MS);
        let fast = one_by_one(4, MS / times);
        let is_slow = |at: u64| (15 * S..35 * S).contains(&at);
        let service =
            move |at: u64, number: u64| if is_slow(at) { slow(at, number) } else { fast(at, number) };
        let mut volume = volume(256, Box::new(service));
        let protected = volume.deep(promised(minimum), depth, 4096);
        settle(&mut volume, 2);
        neighbours(&mut volume, 16, 64);
        for until in [15, 35, 55] {
            let since = settle(&mut volume, 5);
            volume.run(until * S - volume.now);
            let got = volume.rate(protected, since);
            assert!(
                got * 100 >= minimum * 98,
                "{times} times, depth {depth}, until {until}: {got} of {minimum}, {:?}",
                volume.learnt()
            );
        }
    }
}

/// Clients of all kinds without any policy, on disks that do their requests one after another.
#[test]
fn unequal_neighbours_share_alike() {
    let mut volume = volume(256, one_by_one(4, MS));
    let kinds = [(4, 4096), (8, 8192), (64, 16384), (256, 65536)];
    // The largest first: what the volume does then in normalised I/Os it never does again.
    let client = |number: usize| {
        let (depth, bytes) = kinds[3 - number / 8];
        volume.run(20 * MS);
        volume.deep(Terms::default(), depth, bytes)
    };
    let clients: Vec<usize> = (0..32).map(client).collect();
    let since = settle(&mut volume, 5);
    volume.run(20 * S);
    let rates: Vec<u64> = clients.iter().map(|client| volume.rate(*client, since)).collect();
    let (sum, squares) =
        rates.iter().fold((0, 0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    let jain = sum * sum * 1000 / (squares * rates.len() as u64);
    assert!(jain >= 990, "{jain}: {rates:?} {:?}", volume.learnt());
}
