//! Policies and flows of QoS: their limits as they were, and how many are kept.

use control_api::QosCounters;

use super::*;

/// A policy or flow that has done so many normalised I/Os, each of which was held back for `held` nanoseconds.
fn qos(kind: CounterKind, name: &str, done: u64, held: u64, max_iops: Option<u64>) -> ObjectCounters {
    let write =
        OperationCounters { operations: done, bytes: done * 8192, errors: 0, latency_ns: done * 1000 };
    let counters = QosCounters {
        normalized: done,
        asked: 2 * done,
        held_ns: done * held,
        min_iops: Some(100),
        max_iops,
        max_bandwidth: None,
    };
    ObjectCounters {
        read: Some(OperationCounters::default()),
        write: Some(write),
        qos: Some(counters),
        ..ObjectCounters::new(kind, name)
    }
}

impl World {
    /// Seconds in which policy `gold` does 500 I/Os each under a limit, and `idle` nothing.
    fn limited(&mut self, process: u32, from: u64, seconds: u64, max_iops: Option<u64>) {
        for second in 0..=seconds {
            let items = vec![
                qos(CounterKind::QosPolicy, "gold", 500 * second, 2_000_000, max_iops),
                qos(CounterKind::QosPolicy, "idle", 7, 0, Some(5)),
            ];
            let look = look(process, second, items);
            self.history.take(&look, START + (from + second) * 1000).expect("written");
        }
    }
}

fn limits(found: &Found) -> Vec<Option<u64>> {
    let max = |step: &HistoryStep| step.items[0].qos.expect("numbers of QoS").max_iops;
    found.steps.iter().map(max).collect()
}

#[test]
fn limits_are_kept_as_they_were_over_restarts_and_changes() {
    let mut world = World::new(small());
    world.limited(1, 0, 10, Some(500));
    world.history.close().expect("written");
    assert_eq!(world.reopen(), Vec::<String>::new());
    world.limited(2, 20, 10, Some(800));
    // The policy has no limit any more, and then it is removed.
    world.limited(3, 31, 5, None);
    world.history.take(&look(3, 6, vec![lun("a", 1)]), START + 37_000).expect("written");
    world.history.take(&look(3, 7, vec![lun("a", 2)]), START + 38_000).expect("written");
    let gold = |from, to, step| world.ask(&Query { name: Some("gold".into()), ..span(from, to, step) });
    let before = gold(0, 10, 1);
    assert_eq!(limits(&before), [Some(500); 10]);
    let item = &before.steps[0].items[0];
    assert_eq!((item.kind, item.write.expect("writes").bytes), (CounterKind::QosPolicy, 500 * 8192));
    let counted = item.qos.expect("numbers of QoS");
    assert_eq!((counted.normalized, counted.asked, counted.held_ns), (500, 1000, 1_000_000_000));
    assert_eq!((counted.min_iops, counted.max_bandwidth), (Some(100), None));
    assert_eq!(limits(&gold(20, 30, 1)), [Some(800); 10]);
    assert_eq!(limits(&gold(31, 36, 1)), [None; 5]);
    assert!(gold(37, 38, 1).steps.iter().all(|step| step.items.is_empty()), "it is not there any more");
    // What it was is there for as long as anything else, in long steps with the limit that it had at their end.
    let all = gold(0, 60, 60);
    let counted = all.steps[0].items[0].qos.expect("numbers of QoS");
    assert_eq!((counted.normalized, counted.max_iops), (25 * 500, None));
    // A sum has none, also where it is of one policy only.
    let sum = world.ask(&Query { sum: true, ..span(0, 10, 1) });
    assert_eq!(limits(&sum), [None; 10]);
    // Limits alone take no room.
    let idle = world.ask(&Query { name: Some("idle".into()), ..span(0, 60, 1) });
    assert!(idle.steps.iter().all(|step| step.items.is_empty()));
}

#[test]
fn of_very_many_flows_the_worst_are_kept_and_the_sum_of_all_is_right() {
    let mut world = World::new(small());
    let flows = |second: u64| -> Vec<ObjectCounters> {
        // The busiest is not held back, the others the longer the higher their number.
        let held = |number: u64| if number == 0 { 0 } else { number };
        let done = |number: u64| if number == 0 { 1000 } else { 1 };
        let flow = |number: u64| {
            qos(CounterKind::QosFlow, &format!("f{number:05}"), done(number) * second, held(number), Some(9))
        };
        (0..10_000).map(flow).collect()
    };
    for second in 0..=20 {
        world.history.take(&look(1, second, flows(second)), START + second * 1000).expect("written");
    }
    let found = world.ask(&span(10, 20, 1));
    let names = |step: &HistoryStep| step.items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found.steps[0]), ["_Others", "f09997", "f09998", "f09999"]);
    let done: u64 = found.steps[0].items.iter().filter_map(|item| Some(item.qos?.normalized)).sum();
    assert_eq!(done, 1000 + 9999);
    // Limits have no sum, neither of those that are not by themselves nor of all.
    let most = |step: &HistoryStep| -> Vec<_> {
        step.items.iter().map(|item| item.qos.expect("numbers of QoS").max_iops).collect()
    };
    assert_eq!(most(&found.steps[0]), [None, Some(9), Some(9), Some(9)]);
    let sum = world.ask(&Query { sum: true, ..span(10, 20, 1) });
    assert_eq!((names(&sum.steps[0]), most(&sum.steps[0])), (vec![TOTAL.to_owned()], vec![None]));
    assert_eq!(sum.steps[0].items[0].qos.expect("numbers of QoS").normalized, 1000 + 9999);
    let bytes: u64 = world.files("").iter().map(|path| path.metadata().expect("there").len()).sum();
    assert!(bytes < 20 * 4 * 60, "{bytes} bytes for twenty steps of four things");
}

/// Six hours of minutes in which as many policies and flows as are kept read and write under limits all the time.
#[test]
fn thirty_days_of_busy_policies_and_flows_leave_room_for_other_things() {
    let mut world = World::new((SECONDS, MINUTES));
    let minutes = MINUTES.steps as u64;
    for minute in 0..=minutes {
        let thing = |kind, number: u64| {
            let done = minute * (600_000 + number);
            let mut thing = qos(kind, &format!("f{number:05}"), done, 5_000_000, Some(10_000));
            thing.read = thing.write;
            thing
        };
        let of = |kind| (0..100).map(move |number| thing(kind, number));
        let items = of(CounterKind::QosPolicy).chain(of(CounterKind::QosFlow)).collect();
        world.history.take(&look(1, 60 * minute, items), START + 60_000 * minute).expect("written");
    }
    world.history.close().expect("written");
    let bytes: u64 = world.files("minutes-").iter().map(|path| path.metadata().expect("there").len()).sum();
    let all = bytes * MINUTES.segments as u64;
    assert!(all < 110 << 20, "{all} bytes in thirty days");
    assert!(all > 80 << 20, "{all} bytes: the reckoning in lib.rs is out of date");
}

#[test]
fn a_minute_of_very_many_short_flows_is_bounded_and_its_sum_is_right() {
    let mut world = World::new(small());
    // Each second has a hundred flows that no other second has, and one that is there all the time and is held back for longest.
    let flows = |second: u64| -> Vec<ObjectCounters> {
        let short = |number: u64| {
            let done = u64::from(number / 100 < second);
            qos(CounterKind::QosFlow, &format!("f{number:05}"), done, 1 + number % 100, Some(9))
        };
        let worst = qos(CounterKind::QosFlow, "worst", second, 1_000_000, Some(9));
        (0..6000).map(short).chain([worst]).collect()
    };
    for second in 0..=60 {
        world.history.take(&look(1, second, flows(second)), START + second * 1000).expect("written");
    }
    let kept = world.history.minute.as_ref().map_or(0, |minute| minute.things.len());
    assert!(kept <= 60 * 4 * 3 + 1, "{kept} names");
    world.history.close().expect("written");
    // Not the seconds, which are there as well.
    let minutes = Snapshot { levels: vec![world.history.minutes.kept()] };
    let found = minutes.read(&span(0, 60, 60)).expect("an answer");
    let of = |item: &ObjectCounters| (item.name.clone(), item.qos.expect("numbers of QoS").normalized);
    let items: Vec<_> = found.steps[0].items.iter().map(of).collect();
    assert_eq!(items.iter().filter(|(name, _)| name == OTHERS).count(), 1, "{items:?}");
    assert_eq!(items.last(), Some(&("worst".to_owned(), 60)), "{items:?}");
    assert_eq!(items.iter().map(|(_, done)| done).sum::<u64>(), 6000 + 60);
}
