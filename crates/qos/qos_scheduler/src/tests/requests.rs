//! What becomes of single requests: passing, waiting, cancelling, flows that vanish, queues that are full.

use super::{MS, S, flow, scheduler, starts};
use crate::{Kind, Next, Refusal, Scheduler, Settings, Terms};

#[test]
fn a_flow_without_limits_passes_an_idle_volume_and_is_counted() {
    let mut scheduler = scheduler(2);
    let (id, _) = flow(&mut scheduler, Terms::default());
    assert!(scheduler.try_pass(5, id, Kind::Read, 4096));
    assert!(scheduler.try_pass(5, id, Kind::Write, 65536));
    assert!(!scheduler.try_pass(5, id, Kind::Read, 4096), "two are at the volume");
    let state = scheduler.flow(id).unwrap();
    let counters = state.counters;
    assert_eq!((counters.read.operations, counters.read.units, counters.read.bytes), (1, 1, 4096));
    assert_eq!((counters.write.operations, counters.write.units, counters.write.bytes), (1, 8, 65536));
    assert_eq!((state.in_flight, state.waiting, counters.asked_units, counters.held_nanos), (2, 0, 9, 0));
    scheduler.complete(id);
    assert!(scheduler.try_pass(6, id, Kind::Read, 0), "an empty request counts as one");
    assert_eq!(scheduler.flow(id).unwrap().counters.read.units, 2);
}

#[test]
fn cost_is_counted_in_units_begun() {
    let settings = Settings::default();
    let cases = [
        (0, 1),
        (1, 1),
        (512, 1),
        (8192, 1),
        (8193, 2),
        (12288, 2),
        (65536, 8),
        (1 << 20, 128),
        (u64::MAX, 1 << 51),
    ];
    for (bytes, units) in cases {
        assert_eq!(settings.units(bytes), units, "{bytes}");
    }
    assert_eq!(Settings { unit_bytes: 0, ..settings }.units(5), 5);
    assert_eq!(Settings { unit_bytes: 65536, ..settings }.units(65537), 2);
}

#[test]
fn nobody_passes_one_who_waits() {
    let mut scheduler = scheduler(1);
    let (a, _) = flow(&mut scheduler, Terms::default());
    let (b, _) = flow(&mut scheduler, Terms::default());
    assert!(scheduler.try_pass(0, a, Kind::Read, 1));
    scheduler.enqueue(1, b, Kind::Read, 1, 7).unwrap();
    scheduler.complete(a);
    assert!(!scheduler.try_pass(2, a, Kind::Read, 1));
    let Next::Start(started) = scheduler.next(3) else { panic!("it may start") };
    assert_eq!((started.payload, started.flow, started.held), (7, b, 2));
    assert_eq!(scheduler.flow(b).unwrap().counters.held_nanos, 2);
}

#[test]
fn a_limit_is_waited_for_without_a_timer_for_each_flow() {
    let mut scheduler = scheduler(100);
    let (a, _) = flow(&mut scheduler, Terms { max_iops: Some(100), burst: 0, ..Terms::default() });
    let (b, _) = flow(&mut scheduler, Terms { max_iops: Some(50), burst: 0, ..Terms::default() });
    for n in 0..3 {
        scheduler.enqueue(0, a, Kind::Read, 8192, n).unwrap();
        scheduler.enqueue(0, b, Kind::Read, 8192, 10 + n).unwrap();
    }
    assert_eq!(starts(&mut scheduler, 0), [0, 10]);
    assert_eq!(scheduler.next(0), Next::Wait(10 * MS));
    assert_eq!(starts(&mut scheduler, 10 * MS), [1]);
    assert_eq!(starts(&mut scheduler, 20 * MS), [11, 2], "the one that had fewer first");
    assert_eq!(scheduler.next(20 * MS), Next::Wait(40 * MS));
    assert_eq!(starts(&mut scheduler, 40 * MS), [12]);
    assert_eq!(scheduler.next(40 * MS), Next::Idle);
}

#[test]
fn whichever_limit_is_reached_first_holds_back() {
    let mut scheduler = scheduler(1000);
    let terms = Terms { max_iops: Some(500), max_bandwidth: Some(100 << 20), burst: 0, ..Terms::default() };
    let (id, _) = flow(&mut scheduler, terms);
    scheduler.enqueue(0, id, Kind::Read, 4096, 1).unwrap();
    scheduler.enqueue(0, id, Kind::Write, 4096, 2).unwrap();
    assert_eq!(starts(&mut scheduler, 0), [1]);
    assert_eq!(scheduler.next(0), Next::Wait(2 * MS), "500 small ones in a second");
    let (id, _) = flow(
        &mut scheduler,
        Terms { max_iops: Some(1_000_000), max_bandwidth: Some(1 << 20), burst: 0, ..terms },
    );
    scheduler.enqueue(0, id, Kind::Read, 1 << 19, 3).unwrap();
    scheduler.enqueue(0, id, Kind::Read, 1, 4).unwrap();
    assert_eq!(starts(&mut scheduler, 2 * MS), [3, 2]);
    assert_eq!(scheduler.next(2 * MS), Next::Wait(502 * MS), "half a MiB is half a second of a MiB/s");
}

#[test]
fn what_was_cancelled_never_comes_out_and_leaves_no_gap() {
    let mut scheduler = scheduler(1);
    let (a, _) = flow(&mut scheduler, Terms::default());
    let (b, _) = flow(&mut scheduler, Terms::default());
    let ids: Vec<_> = (0..6).map(|n| scheduler.enqueue(0, a, Kind::Read, 1, n).unwrap()).collect();
    let only = scheduler.enqueue(0, b, Kind::Read, 1, 9).unwrap();
    for id in [ids[0], ids[2], ids[5], only] {
        assert!(scheduler.cancel(0, id).is_some());
        assert_eq!(scheduler.cancel(0, id), None, "once");
    }
    let mut out = Vec::new();
    while let Next::Start(started) = scheduler.next(1) {
        out.push(started.payload);
        assert_eq!(scheduler.cancel(1, started.request), None, "it has started");
        scheduler.complete(started.flow);
    }
    assert_eq!(out, [1, 3, 4]);
    assert_eq!((scheduler.waiting(), scheduler.in_flight()), (0, 0));
}

#[test]
fn a_flow_that_vanishes_gives_back_what_waits_and_its_name_means_nothing_more() {
    let mut scheduler = scheduler(1);
    let (a, class) = flow(&mut scheduler, Terms::default());
    assert!(scheduler.try_pass(0, a, Kind::Read, 1));
    let waiting = scheduler.enqueue(0, a, Kind::Read, 1, 1).unwrap();
    scheduler.enqueue(0, a, Kind::Read, 1, 2).unwrap();
    assert!(!scheduler.remove_class(class), "it has a flow");
    assert_eq!(scheduler.remove_flow(1, a), [1, 2]);
    assert!(scheduler.remove_class(class));
    assert_eq!(scheduler.in_flight(), 1, "what is at the volume still has to complete");
    let (b, other) = flow(&mut scheduler, Terms::default());
    assert_ne!((a, class), (b, other));
    assert_eq!(scheduler.enqueue(2, a, Kind::Read, 1, 3), Err((Refusal::NoFlow, 3)));
    assert_eq!(scheduler.cancel(2, waiting), None);
    assert!(scheduler.flow(a).is_none() && !scheduler.try_pass(2, a, Kind::Read, 1));
    assert!(!scheduler.set_terms(2, class, Terms::default()) && scheduler.add_flow(class, 1).is_none());
    assert!(!scheduler.move_flow(2, a, other) && !scheduler.move_flow(2, b, class));
    scheduler.complete(a);
    assert_eq!((scheduler.in_flight(), scheduler.flow(b).unwrap().in_flight), (0, 0));
}

#[test]
fn queues_are_bounded_and_say_so() {
    let settings = Settings { depth: 1, flow_queue: 2, queue: 3, ..Settings::default() };
    let mut scheduler = Scheduler::new(settings);
    let (a, _) = flow(&mut scheduler, Terms::default());
    let (b, _) = flow(&mut scheduler, Terms::default());
    for n in 0..2 {
        scheduler.enqueue(0, a, Kind::Read, 1, n).unwrap();
    }
    assert_eq!(scheduler.enqueue(0, a, Kind::Read, 1, 2), Err((Refusal::FlowFull, 2)));
    scheduler.enqueue(0, b, Kind::Read, 1, 3).unwrap();
    assert_eq!(scheduler.enqueue(0, b, Kind::Read, 1, 4), Err((Refusal::Full, 4)));
    assert_eq!(scheduler.flow(a).unwrap().counters.refused, 1);
    assert_eq!(scheduler.flow(b).unwrap().counters.refused, 1);
    assert_eq!(starts(&mut scheduler, 0).len(), 1);
    assert!(scheduler.enqueue(0, a, Kind::Read, 1, 5).is_ok());
}

#[test]
fn new_terms_are_felt_by_what_waits_already() {
    let mut scheduler = scheduler(1000);
    let slow = Terms { max_iops: Some(1), burst: 0, ..Terms::default() };
    let (id, class) = flow(&mut scheduler, slow);
    for n in 0..20 {
        scheduler.enqueue(0, id, Kind::Read, 10 * 8192, n).unwrap();
    }
    assert_eq!(starts(&mut scheduler, 0), [0]);
    assert_eq!(scheduler.next(0), Next::Wait(10 * S));
    // Ten are owed; at 100 in a second that is a tenth of a second.
    assert!(scheduler.set_terms(0, class, Terms { max_iops: Some(100), ..slow }));
    assert_eq!(scheduler.next(0), Next::Wait(S / 10));
    assert!(scheduler.set_terms(0, class, slow), "to and fro gives nothing away");
    assert_eq!(scheduler.next(0), Next::Wait(10 * S));
    assert!(scheduler.set_terms(MS, class, Terms::default()));
    assert_eq!(starts(&mut scheduler, MS).len(), 19, "no limit, no wait");
}

#[test]
fn a_new_unit_counts_for_what_waits() {
    let mut scheduler = scheduler(10);
    let (id, _) = flow(&mut scheduler, Terms { max_iops: Some(10), burst: 0, ..Terms::default() });
    scheduler.enqueue(0, id, Kind::Read, 65536, 1).unwrap();
    scheduler.enqueue(0, id, Kind::Read, 65536, 2).unwrap();
    scheduler.set_settings(Settings { unit_bytes: 65536, ..scheduler.settings() });
    assert_eq!(starts(&mut scheduler, 0), [1]);
    assert_eq!(scheduler.next(0), Next::Wait(S / 10));
}

#[test]
fn a_flow_that_moves_takes_what_waits_along() {
    let mut scheduler = scheduler(10);
    let tight = Terms { max_iops: Some(1), burst: 0, ..Terms::default() };
    let (id, alone) = flow(&mut scheduler, Terms::default());
    let shared = scheduler.add_class(0, tight);
    assert!(scheduler.move_flow(0, id, shared));
    for n in 0..4 {
        scheduler.enqueue(0, id, Kind::Read, 1, n).unwrap();
    }
    assert_eq!(starts(&mut scheduler, 0), [0]);
    assert!(scheduler.move_flow(0, id, alone));
    assert_eq!(starts(&mut scheduler, 0), [1, 2, 3]);
    assert!(scheduler.remove_class(shared));
}

/// Whose requests are never answered keeps no others from the volume, however few those have under way.
#[test]
fn one_class_leaves_an_eighth_of_the_places_to_others() {
    let mut scheduler = scheduler(16);
    let (stuck, class) = flow(&mut scheduler, Terms::default());
    for n in 0..20 {
        assert_eq!(scheduler.try_pass(0, stuck, Kind::Write, 1), n < 16, "alone it may have them all");
    }
    (0..16).for_each(|_| scheduler.complete(stuck));
    let promised = Terms { min_iops: Some(1000), max_iops: Some(1000), ..Terms::default() };
    let (other, _) = flow(&mut scheduler, promised);
    for n in 0..20 {
        if !scheduler.try_pass(0, stuck, Kind::Write, 1) {
            scheduler.enqueue(0, stuck, Kind::Write, 1, n).unwrap();
        }
    }
    assert_eq!(scheduler.next(0), Next::Full);
    assert_eq!((scheduler.in_flight(), scheduler.waiting()), (14, 6));
    // The other one goes on beside it, at its limit.
    for n in 100..120 {
        scheduler.enqueue(MS, other, Kind::Read, 1, n).unwrap();
    }
    for second in 1..10 {
        assert_eq!(starts(&mut scheduler, second * S).len(), 2);
        assert_eq!((scheduler.in_flight(), scheduler.next(second * S)), (16, Next::Full));
        scheduler.complete(other);
        scheduler.complete(other);
    }
    // What a flow has at the volume goes with it to another class, and comes to an end without it.
    let own = scheduler.add_class(10 * S, Terms::default());
    let (third, _) = flow(&mut scheduler, Terms::default());
    assert!(scheduler.move_flow(10 * S, stuck, own));
    assert!(scheduler.remove_class(class));
    assert!(starts(&mut scheduler, 10 * S).iter().all(|payload| *payload >= 100), "it has its part still");
    assert_eq!(scheduler.remove_flow(10 * S, stuck).len(), 6);
    (0..14).for_each(|_| scheduler.complete(stuck));
    assert!(scheduler.try_pass(10 * S, third, Kind::Read, 1));
}

/// However many places there are, beyond the one that nobody can share.
#[test]
fn whatever_one_class_has_under_way_another_one_is_admitted() {
    for depth in 2..200 {
        let mut scheduler = scheduler(depth);
        let shared = scheduler.add_class(0, Terms::default());
        let stuck: Vec<_> = (0..3).map(|_| scheduler.add_flow(shared, 1).unwrap()).collect();
        let (other, _) = flow(&mut scheduler, Terms::default());
        for n in 0..u64::from(depth) {
            let flow = stuck[n as usize % stuck.len()];
            if !scheduler.try_pass(0, flow, Kind::Write, 1) {
                scheduler.enqueue(0, flow, Kind::Write, 1, n).unwrap();
            }
        }
        assert_eq!(scheduler.next(0), Next::Full);
        for _ in 0..3 {
            scheduler.enqueue(0, other, Kind::Read, 1, 1000).unwrap();
            assert_eq!(starts(&mut scheduler, 0), [1000], "depth {depth}");
            scheduler.complete(other);
        }
    }
}
