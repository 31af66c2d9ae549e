//! Tags at their edges: every combination of extreme rates, amounts and times against wide arithmetic; clocks that jump.

use super::{MS, S, flow, scheduler, starts};
use crate::class::{SHARE_TOP, most_lead, share};
use crate::heap::TagHeap;
use crate::pace::{Limit, Pace};
use crate::{Kind, Next, Terms};

/// Numbers around which arithmetic goes wrong.
fn edges() -> Vec<u64> {
    let mut edges = vec![0, u64::MAX];
    for shift in [1, 2, 8, 16, 29, 30, 31, 32, 33, 34, 51, 52, 62, 63] {
        edges.extend([(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
    }
    for power in [S, 8192, 3, 7, u64::MAX / S, u64::MAX / 2, 18_446_744_073] {
        edges.extend([power - 1, power, power + 1]);
    }
    edges.extend([u64::MAX - 1, u64::MAX - S, u64::MAX - S + 1]);
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[test]
fn a_step_is_exact_and_stops_at_the_end_of_time() {
    let edges = edges();
    for rate in edges.iter().copied().filter(|rate| *rate > 0) {
        for amount in &edges {
            for tag in &edges {
                let exact = u128::from(*tag) + u128::from(*amount) * u128::from(S) / u128::from(rate);
                let expected = u64::try_from(exact).unwrap_or(u64::MAX);
                assert_eq!(Pace::new(Some(rate)).step(*tag, *amount), expected, "{tag} + {amount} at {rate}");
            }
        }
    }
    assert_eq!(Pace::new(None).step(5, u64::MAX), 5);
}

#[test]
fn many_steps_are_as_exact_as_one() {
    for rate in [1, 3, 7, 333, 999_983, S - 1, S, S + 1, 3 * S + 1, u64::MAX] {
        let mut pace = Pace::new(Some(rate));
        let (mut tag, mut sum) = (0, 0u128);
        for n in 0..10_000u64 {
            let amount = n * n % 129 + 1;
            sum += u128::from(amount);
            tag = pace.step(tag, amount);
            assert_eq!(u128::from(tag), sum * u128::from(S) / u128::from(rate), "at {rate}");
        }
    }
}

#[test]
fn a_limit_at_any_edge_neither_panics_nor_gives_more_than_it_says() {
    let edges = edges();
    for rate in edges.iter().copied() {
        for now in edges.iter().step_by(3) {
            for amount in edges.iter().step_by(2) {
                let mut limit = Limit::new(Some(rate), *now);
                let free = limit.opens(0);
                assert!(free <= *now, "nothing is owed yet");
                limit.charge(*now, *amount);
                let owed = if rate == 0 { 0 } else { u128::from(*amount) * u128::from(S) / u128::from(rate) };
                let expected =
                    if rate == 0 { 0 } else { u64::try_from(u128::from(*now) + owed).unwrap_or(u64::MAX) };
                assert_eq!(limit.opens(0), expected, "{amount} at {rate} from {now}");
                assert_eq!(limit.opens(u64::MAX), 0, "any burst is allowed");
                for other in edges.iter().step_by(7) {
                    let mut changed = limit;
                    changed.set_rate(Some(*other), *now);
                    assert!(*other == 0 || changed.opens(0) >= *now);
                    if *other > rate && rate > 0 {
                        assert!(
                            changed.opens(0) <= limit.opens(0),
                            "a raised limit makes nobody wait longer"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn shares_move_by_something_and_by_less_than_would_overflow() {
    for units in edges() {
        for weight in edges() {
            let step = share(units.max(1), weight);
            assert!(step > 0, "{units} at weight {weight}: without a step one would be served for ever");
            assert!(SHARE_TOP.checked_add(most_lead()).and_then(|top| top.checked_add(step)).is_some());
        }
    }
}

#[test]
fn a_heap_agrees_with_sorting_whatever_is_done_to_it() {
    let mut heap = TagHeap::default();
    let mut model = std::collections::BTreeMap::new();
    let mut seed = 9u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (id, tag) = ((seed >> 33) as u32 % 50, (seed >> 40) % 64);
        match seed >> 60 {
            0..6 => {
                heap.remove(id);
                model.remove(&id);
            }
            6 => {
                heap.lower(10);
                model.values_mut().for_each(|tag: &mut u64| *tag = tag.saturating_sub(10));
            }
            _ => {
                heap.set(id, tag);
                model.insert(id, tag);
            }
        }
        assert_eq!(heap.first(), model.iter().map(|(id, tag)| (*tag, *id)).min());
        assert_eq!((heap.contains(id), heap.is_empty()), (model.contains_key(&id), model.is_empty()));
    }
}

/// What starts when several flows compete, some by minimums, with the share tags beginning at `at`.
fn order_from(at: u64) -> Vec<u64> {
    let mut scheduler = scheduler(1);
    let shared = scheduler.add_class(0, Terms { min_iops: Some(200), ..Terms::default() });
    let mut flows = vec![scheduler.add_flow(shared, 1).unwrap(), scheduler.add_flow(shared, 3).unwrap()];
    for n in 0..6 {
        let terms = Terms { min_iops: (n % 3 == 0).then_some(300), ..Terms::default() };
        let class = scheduler.add_class(0, terms);
        flows.push(scheduler.add_flow(class, n + 1).unwrap());
    }
    scheduler.start_shares_at(at);
    let mut out = Vec::new();
    for n in 0..400u64 {
        for (number, flow) in flows.iter().enumerate() {
            // Now and then one has nothing to do.
            if !(n + number as u64).is_multiple_of(11) {
                let bytes = (number as u64 + 1) * 9000;
                scheduler.enqueue(n * MS, *flow, Kind::Read, bytes, number as u64).unwrap();
            }
        }
        for _ in 0..5 {
            if let Next::Start(started) = scheduler.next(n * MS) {
                out.push(started.payload);
                scheduler.complete(started.flow);
            }
        }
    }
    out
}

#[test]
fn lowering_the_share_tags_changes_nothing_that_comes_out() {
    let expected = order_from(0);
    assert_eq!(expected.len(), 2000);
    let step = share(1, 1);
    for back in [0, 1, 2, 10, 100, 1000] {
        for off in [0, 1, step / 2] {
            assert_eq!(
                order_from(SHARE_TOP - back * step - off),
                expected,
                "{back} steps and {off} before the top"
            );
        }
    }
}

#[test]
fn a_clock_that_goes_back_neither_stops_flows_nor_gives_them_more() {
    let mut scheduler = scheduler(1000);
    let (id, _) = flow(&mut scheduler, Terms { max_iops: Some(100), burst: 0, ..Terms::default() });
    for n in 0..100 {
        scheduler.enqueue(1000 * S, id, Kind::Read, 1, n).unwrap();
    }
    assert_eq!(starts(&mut scheduler, 1000 * S), [0]);
    assert_eq!(starts(&mut scheduler, 1000 * S + 15 * MS), [1]);
    // The clock goes back by a quarter of an hour: the next is due as much later by the new clock as it was by the old one.
    assert_eq!(scheduler.next(100 * S), Next::Wait(100 * S + 10 * MS));
    assert_eq!(starts(&mut scheduler, 100 * S + 10 * MS), [2]);
    assert_eq!(starts(&mut scheduler, 0), [0; 0]);
    assert_eq!(scheduler.next(0), Next::Wait(10 * MS));
}

#[test]
fn threads_that_read_the_clock_in_another_order_than_they_come_do_not_make_time_run_faster() {
    let mut scheduler = scheduler(10_000);
    let (id, _) = flow(&mut scheduler, Terms { max_iops: Some(1000), burst: 0, ..Terms::default() });
    for n in 0..3000 {
        scheduler.enqueue(0, id, Kind::Read, 1, n).unwrap();
    }
    let mut started = 0;
    for turn in 1..=10_000u64 {
        let now = turn * 100_000;
        started += starts(&mut scheduler, now).len() + starts(&mut scheduler, now - 50_000).len();
    }
    assert!((990..=1001).contains(&started), "{started} in a second at 1000 a second");
}

#[test]
fn a_clock_that_jumps_ahead_gives_a_burst_and_no_more() {
    let mut scheduler = scheduler(10_000);
    let (limited, _) =
        flow(&mut scheduler, Terms { max_iops: Some(1000), burst: 20 * MS, ..Terms::default() });
    for n in 0..1000 {
        scheduler.enqueue(0, limited, Kind::Read, 1, n).unwrap();
    }
    assert_eq!(starts(&mut scheduler, 0).len(), 21, "twenty milliseconds of a thousand a second, and one");
    assert_eq!(starts(&mut scheduler, 86_400 * S).len(), 21);
    assert_eq!(starts(&mut scheduler, u64::MAX / 2).len(), 21);
    assert_eq!(scheduler.next(u64::MAX / 2), Next::Wait(u64::MAX / 2 + MS));
    let late = u64::MAX - 5 * MS;
    starts(&mut scheduler, late);
    scheduler.set_settings(scheduler.settings());
    let _ = scheduler.next(u64::MAX);
}

#[test]
fn minimums_after_a_jump_are_caught_up_for_no_longer_than_allowed() {
    let mut scheduler = scheduler(1);
    let (promised, _) = flow(&mut scheduler, Terms { min_iops: Some(1000), ..Terms::default() });
    let (other, _) = flow(&mut scheduler, Terms::default());
    for n in 0..1000 {
        scheduler.enqueue(0, promised, Kind::Read, 1, n).unwrap();
        scheduler.enqueue(0, other, Kind::Read, 1, 5000 + n).unwrap();
    }
    let mut first = Vec::new();
    for n in 0..300 {
        let now = if n < 4 { 0 } else { 3600 * S };
        let Next::Start(started) = scheduler.next(now) else { panic!("both have much to do") };
        first.push(started.payload >= 5000);
        scheduler.complete(started.flow);
    }
    let others = first.iter().take(100).filter(|other| **other).count();
    assert!(others <= 8, "first 100 ms of 1000 a second are caught up, but for one start in 32: {others}");
    let others = first.iter().filter(|other| **other).count();
    assert!((140..=160).contains(&others), "then the other has its share: {others}");
}
