//! What the scheduler promises, on a simulated disk: limits, minimums, shares, and that nobody starves.

use proptest::prelude::*;

use super::disk::Disk;
use super::{MS, S, scheduler};
use crate::{DEFAULT_BURST, Terms, divide};

fn limited(iops: u64) -> Terms {
    Terms { max_iops: Some(iops), ..Terms::default() }
}

fn promised(iops: u64) -> Terms {
    Terms { min_iops: Some(iops), ..Terms::default() }
}

/// Jain's index: 1 if all are equal, 1/n if one has all.
fn jain(rates: &[u64]) -> f64 {
    let sum: f64 = rates.iter().map(|rate| *rate as f64).sum();
    let squares: f64 = rates.iter().map(|rate| (*rate as f64).powi(2)).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn a_limit_is_met_within_one_percent_from_100_to_50000() {
    for iops in [100, 500, 5000, 50_000] {
        let mut disk = Disk::new(scheduler(256), 1_000_000);
        let class = disk.scheduler.add_class(0, limited(iops));
        disk.client(class, 32, 8192);
        disk.run(10 * S);
        let rate = disk.rates(0)[0];
        assert!(rate.abs_diff(iops) * 100 <= iops, "{rate} of {iops}");
        let worst = disk.excess(class, iops);
        assert!(worst <= iops * DEFAULT_BURST / S + 1, "{worst} above {iops}");
    }
}

#[test]
fn minimums_that_can_be_met_are_met_beside_greedy_neighbours() {
    let mut disk = Disk::new(scheduler(64), 10_000);
    let class = disk.scheduler.add_class(0, promised(2000));
    let protected = disk.client(class, 16, 4096);
    for _ in 0..16 {
        let class = disk.scheduler.add_class(0, Terms::default());
        disk.client(class, 64, 8192);
    }
    disk.run(10 * S);
    let rates = disk.rates(S);
    assert!(rates[protected] >= 2000 * 98 / 100, "{rates:?}");
    assert!(jain(&rates[1..]) > 0.999, "the others share the rest: {rates:?}");
    assert!(rates.iter().sum::<u64>() >= 9900, "nothing is wasted: {rates:?}");
}

#[test]
fn a_minimum_below_the_fair_share_costs_nobody_anything() {
    let mut disk = Disk::new(scheduler(8), 4000);
    for terms in [promised(500), Terms::default(), Terms::default(), Terms::default()] {
        let class = disk.scheduler.add_class(0, terms);
        disk.client(class, 16, 8192);
    }
    disk.run(5 * S);
    let rates = disk.rates(S);
    assert!(jain(&rates) > 0.999, "a minimum is no gift on top of the share: {rates:?}");
}

#[test]
fn minimums_above_what_there_is_are_scaled_alike_and_nobody_starves() {
    let mut disk = Disk::new(scheduler(8), 2000);
    for terms in [promised(3000), promised(1000), promised(2000), Terms::default(), Terms::default()] {
        let class = disk.scheduler.add_class(0, terms);
        disk.client(class, 64, 8192);
    }
    disk.run(10 * S);
    let rates = disk.rates(2 * S);
    let parts: Vec<u64> = rates.iter().zip([3000, 1000, 2000]).map(|(rate, min)| rate * 1000 / min).collect();
    let (least, most) = (parts.iter().min().unwrap(), parts.iter().max().unwrap());
    assert!(most - least <= 10, "each gets the same part of its minimum: {rates:?}");
    assert!(rates[3] >= 20 && rates[4] >= 20, "the others get something: {rates:?}");
    // The disk recovers: what was missed for ten seconds is not taken from the others now.
    disk.disk_speed(10_000);
    let since = disk.now;
    disk.run(5 * S);
    let rates = disk.rates(since + S);
    assert!(rates[0] >= 2940 && rates[2] >= 1960, "{rates:?}");
    // Three share what the two large minimums leave.
    assert!([1, 3, 4].iter().all(|client| rates[*client] >= 1600), "{rates:?}");
}

#[test]
fn without_policies_flows_share_alike_whatever_their_depths_and_sizes() {
    let mut disk = Disk::new(scheduler(32), 50_000);
    for n in 0..32u64 {
        let class = disk.scheduler.add_class(0, Terms::default());
        disk.client(class, [4, 8, 64, 256][n as usize % 4], 4096 << (n % 6));
    }
    disk.run(5 * S);
    let rates = disk.rates(S);
    assert!(jain(&rates) >= 0.99, "{rates:?}");
}

#[test]
fn depth_256_does_not_starve_depth_1() {
    let mut disk = Disk::new(scheduler(4), 5000);
    let deep = disk.scheduler.add_class(0, Terms::default());
    disk.client(deep, 256, 8192);
    let shallow = disk.scheduler.add_class(0, Terms::default());
    disk.client(shallow, 1, 8192);
    disk.run(5 * S);
    let rates = disk.rates(S);
    // One request at a time waits for what is at the volume before it: four, and itself.
    assert!(rates[1] >= 900, "{rates:?}");
    assert!(rates.iter().sum::<u64>() >= 4950, "{rates:?}");
}

#[test]
fn an_aggregated_limit_is_shared_by_demand() {
    let mut disk = Disk::new(scheduler(64), 100_000);
    let class = disk.scheduler.add_class(0, limited(8000));
    for n in 0..8 {
        disk.client(class, 1 << n, 8192);
    }
    disk.run(5 * S);
    let rates = disk.rates(S);
    assert!(rates.iter().sum::<u64>().abs_diff(8000) <= 80, "{rates:?}");
    assert!(jain(&rates) > 0.98, "{rates:?}");
    // Six become idle: the two that stay have all of it at once.
    (0..6).for_each(|client| disk.set_depth(client, 0));
    disk.run(500 * MS);
    let since = disk.now;
    disk.run(2 * S);
    let rates = disk.rates(since);
    assert!(rates[6].abs_diff(4000) <= 80 && rates[7].abs_diff(4000) <= 80, "{rates:?}");
    assert!(disk.excess(class, 8000) <= 8000 * DEFAULT_BURST / S + 1);
}

#[test]
fn one_that_loses_its_minimum_or_its_limit_neither_starves_nor_starves_others() {
    let mut disk = Disk::new(scheduler(4), 1000);
    let first = disk.scheduler.add_class(0, promised(900));
    disk.client(first, 8, 8192);
    let second = disk.scheduler.add_class(0, limited(50));
    disk.client(second, 8, 8192);
    disk.run(60 * S);
    let now = disk.now;
    assert!(disk.scheduler.set_terms(now, first, Terms::default()));
    assert!(disk.scheduler.set_terms(now, second, Terms::default()));
    disk.run(2 * S);
    let since = disk.now;
    disk.run(2 * S);
    let rates = disk.rates(since);
    assert!(jain(&rates) > 0.99, "after two seconds all is forgotten: {rates:?}");
}

#[test]
fn a_division_adds_up_gives_by_demand_and_leaves_nobody_at_a_standstill() {
    assert_eq!(divide(1000, &[]), [0; 0]);
    assert_eq!(divide(2, &[0, 5, 9]), [1, 1, 1]);
    assert_eq!(divide(1600, &[10_000, 0]), [1550, 50]);
    assert_eq!(divide(1600, &[500, 10_000]), [500, 1100]);
    assert_eq!(divide(1600, &[0, 0]), [800, 800]);
    assert_eq!(divide(1600, &[10_000, 20_000]), [800, 800]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn divisions_add_up(total in 100..u64::MAX, demands in proptest::collection::vec(0..u64::MAX, 1..20)) {
        let parts = divide(total, &demands);
        prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
        prop_assert!(parts.iter().all(|part| *part >= (total / 16 / demands.len() as u64).max(1)));
    }

    /// Limits hold in every span, minimums that can be met are, and everybody gets something, whatever is asked.
    #[test]
    fn promises_hold_for_any_mixture(
        clients in proptest::collection::vec((1..64u32, 0..7u32, 0..500u64, 0..2000u64), 2..8),
        depth in 1..64u32,
    ) {
        let mut disk = Disk::new(scheduler(depth), 10_000);
        let promise: u64 = clients.iter().map(|client| client.2).sum();
        for (depth, size, min, above) in &clients {
            let max_iops = (*above > 0).then_some(min + above);
            let class = disk.scheduler.add_class(0, Terms { min_iops: Some(*min), max_iops, ..Terms::default() });
            disk.client(class, *depth, 4096 << size);
        }
        disk.run(4 * S);
        let rates = disk.rates(S);
        for (number, (own, size, min, above)) in clients.iter().enumerate() {
            if *above > 0 {
                let excess = disk.excess(disk.clients[number].class, min + above);
                prop_assert!(excess <= (min + above) * DEFAULT_BURST / S + 1, "client {}: {}", number, excess);
            }
            prop_assert!(rates[number] > 0, "client {} of {:?}: {:?}", number, clients, rates);
            // What one can use with so many under way, if each waits for what is at the volume before it.
            let large = clients.iter().map(|client| 1u64 << client.1.saturating_sub(1)).max().unwrap_or(1);
            let units = 1 << size.saturating_sub(1);
            let usable = u64::from(*own) * units * 10_000 / (large * u64::from(depth + 1));
            if promise <= 9000 && usable > 2 * min && *above != 1 && units * 50 < *min {
                prop_assert!(rates[number] * 100 >= min * 97, "client {} of {:?}: {:?}", number, clients, rates);
            }
        }
    }
}
