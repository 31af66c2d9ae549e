//! What is remembered, for how long, and what damage and restarts do to it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use control_api::{CounterKind, Counters, HistoryStep, ObjectCounters, OperationCounters};
use proptest::prelude::*;

use super::*;

/// A moment that begins a minute.
const START: u64 = 1_700_000_040_000;

fn lun(name: &str, operations: u64) -> ObjectCounters {
    let write =
        OperationCounters { operations, bytes: operations * 4096, errors: 0, latency_ns: operations * 1000 };
    ObjectCounters { write: Some(write), ..ObjectCounters::new(CounterKind::Lun, name) }
}

fn look(process: u32, seconds: u64, items: Vec<ObjectCounters>) -> Counters {
    Counters { node: "n".into(), process, monotonic_ns: seconds * 1_000_000_000, items }
}

/// A history in a directory of its own.
struct World {
    dir: tempfile::TempDir,
    history: CounterHistory,
    limits: (Limits, Limits),
}

fn small() -> (Limits, Limits) {
    let seconds = Limits { seconds: 1, steps: 30, segments: 4, bytes: 1 << 20, things: 10, flows: 3 };
    (seconds, Limits { seconds: 60, steps: 5, segments: 3, bytes: 1 << 20, things: 10, flows: 3 })
}

impl World {
    fn new(limits: (Limits, Limits)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (history, told) = CounterHistory::with_limits(dir.path(), limits.0, limits.1).expect("opens");
        assert_eq!(told, Vec::<String>::new());
        Self { dir, history, limits }
    }

    fn reopen(&mut self) -> Vec<String> {
        let (history, told) =
            CounterHistory::with_limits(self.dir.path(), self.limits.0, self.limits.1).expect("opens again");
        self.history = history;
        told
    }

    /// A second of the process, in which LUN `a` has done as many operations as the second has passed.
    fn run(&mut self, process: u32, from: u64, seconds: u64) {
        for second in 0..=seconds {
            let look = look(process, second, vec![lun("a", 5 * second), lun("idle", 7)]);
            self.history.take(&look, START + (from + second) * 1000).expect("written");
        }
    }

    fn ask(&self, query: &Query) -> Found {
        self.history.snapshot().read(query).expect("an answer")
    }

    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.dir.path()).expect("read").map(|entry| entry.expect("entry").path());
        let named = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
        };
        let mut files: Vec<PathBuf> = all.filter(named).collect();
        files.sort();
        files
    }
}

fn span(from: u64, to: u64, step: u64) -> Query {
    Query {
        from_ms: START + from * 1000,
        to_ms: START + to * 1000,
        step_seconds: Some(step),
        ..Query::default()
    }
}

fn operations(step: &HistoryStep) -> Vec<(String, u64)> {
    let writes = |item: &ObjectCounters| item.write.map_or(0, |write| write.operations);
    step.items.iter().map(|item| (item.name.clone(), writes(item))).collect()
}

#[test]
fn seconds_are_what_grew_and_what_did_nothing_is_not_there() {
    let mut world = World::new(small());
    world.run(1, 0, 20);
    let found = world.ask(&span(10, 13, 1));
    assert_eq!((found.step_seconds, found.steps.len()), (1, 3));
    for (place, step) in found.steps.iter().enumerate() {
        assert_eq!(step.time_unix_ms, START + (11 + place as u64) * 1000);
        assert!((step.seconds - 1.0).abs() < 1e-9);
        assert_eq!(operations(step), [("a".to_owned(), 5)]);
        let write = step.items[0].write.expect("writes");
        assert_eq!((write.bytes, write.latency_ns), (5 * 4096, 5000));
    }
    assert_eq!(found.since_ms, Some(START + 1000));
}

#[test]
fn steps_are_made_longer_and_add_up() {
    let mut world = World::new(small());
    world.run(1, 0, 60);
    let found = world.ask(&span(0, 60, 20));
    assert_eq!(found.steps.iter().map(operations).collect::<Vec<_>>(), vec![vec![("a".to_owned(), 100)]; 3]);
    // Nobody said how long: as many as fit a chart.
    let all = world.ask(&Query { from_ms: START, to_ms: START + 60_000, ..Query::default() });
    assert_eq!((all.step_seconds, all.steps.len()), (1, 60));
}

#[test]
fn the_oldest_goes_and_minutes_remain() {
    let mut world = World::new(small());
    world.run(1, 0, 600);
    // Four segments of thirty seconds that are over, and the one that is not.
    let files = world.files("seconds-");
    assert!(files.len() <= 5, "{files:?}");
    let short = world.history.snapshot().read(&span(0, 600, 1));
    assert!(matches!(short, Err(QueryError::TooShort(Some(since))) if since > START + 400_000), "{short:?}");
    let minutes = world.ask(&span(0, 540, 60));
    assert_eq!(minutes.steps.len(), 9);
    assert_eq!(
        minutes.steps.iter().map(operations).collect::<Vec<_>>(),
        vec![vec![("a".to_owned(), 300)]; 9]
    );
    world.run(1, 601, 1200);
    assert!(world.files("minutes-").len() <= 4, "{:?}", world.files("minutes-"));
    assert!(world.ask(&span(0, 540, 60)).steps.len() < 9);
}

#[test]
fn bytes_are_bounded_whatever_is_served() {
    let tight = Limits { bytes: 4096, ..small().0 };
    let mut world = World::new((tight, small().1));
    for second in 0..500_u64 {
        let luns =
            (0..20).map(|lun_number| lun(&format!("lun{lun_number}"), second * (lun_number + 1))).collect();
        world.history.take(&look(1, second, luns), START + second * 1000).expect("written");
    }
    world.history.close().expect("written");
    let bytes: u64 = world.files("seconds-").iter().map(|path| path.metadata().expect("there").len()).sum();
    assert!(bytes <= 4096 + 4096 / 8 * 12, "{bytes} bytes");
    // The ten busiest by themselves, and the sum of all is right.
    let found = world.ask(&span(480, 490, 10));
    assert_eq!(found.steps[0].items.len(), 11, "{:?}", operations(&found.steps[0]));
    assert_eq!(operations(&found.steps[0])[0], (OTHERS.to_owned(), 10 * 55));
    // Of one that is not among the busiest nobody knows what it did: the answer says that there were others.
    let named = world.ask(&Query { name: Some("lun0".into()), ..span(480, 490, 10) });
    assert_eq!(operations(&named.steps[0]), [(OTHERS.to_owned(), 10 * 55)]);
    let sum = world.ask(&Query { sum: true, ..span(480, 490, 10) });
    assert_eq!(operations(&sum.steps[0]), [(TOTAL.to_owned(), 10 * 210)]);
}

#[test]
fn a_restart_goes_on_in_the_same_file_and_leaves_a_gap() {
    let mut world = World::new(small());
    world.run(1, 0, 10);
    world.history.close().expect("written");
    assert_eq!(world.reopen(), Vec::<String>::new());
    world.run(2, 15, 5);
    world.history.close().expect("written");
    assert_eq!(world.files("seconds-").len(), 1);
    let found = world.ask(&span(0, 30, 1));
    let times: Vec<u64> = found.steps.iter().map(|step| (step.time_unix_ms - START) / 1000).collect();
    assert_eq!(times, (1..=10).chain(16..=20).collect::<Vec<_>>());
    assert!(
        found.steps.iter().all(|step| operations(step) == [("a".to_owned(), 5)]),
        "none below, none above"
    );
    assert_eq!(world.files("minutes-").len(), 1, "the minute that was not over is kept at a stop");
    // Both processes are in the one minute.
    let minute = world.ask(&span(0, 60, 60));
    assert_eq!((minute.steps.len(), minute.steps[0].seconds as u64), (1, 15));
}

#[test]
fn what_a_crash_left_half_is_not_believed_and_nothing_is_lost_before_it() {
    let mut world = World::new(small());
    world.run(1, 0, 10);
    let file = world.files("seconds-").remove(0);
    let whole = std::fs::read(&file).expect("read");
    for cut in [1, 5, 9, 20] {
        std::fs::write(&file, &whole[..whole.len() - cut]).expect("write");
        assert_eq!(world.reopen(), Vec::<String>::new());
        assert_eq!(world.ask(&span(0, 10, 1)).steps.len(), 9, "{cut} bytes cut");
        world.run(2, 20, 3);
        world.history.close().expect("written");
        assert_eq!(world.ask(&span(0, 30, 1)).steps.len(), 12);
        world
            .files("")
            .iter()
            .filter(|path| **path != file)
            .for_each(|path| std::fs::remove_file(path).expect("gone"));
    }
}

#[test]
fn damaged_files_are_set_aside_by_name() {
    let mut world = World::new(small());
    world.run(1, 0, 150);
    let mut files = world.files("seconds-");
    let there = files.len();
    assert!(there >= 4, "{files:?}");
    std::fs::write(&files[0], b"garbage").expect("write");
    std::fs::write(&files[1], b"").expect("write");
    // In the middle: what is before it is read.
    let mut bytes = std::fs::read(&files[2]).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    std::fs::write(&files[2], &bytes).expect("write");
    let told = world.reopen();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("damaged") || told[1].contains("damaged"), "{told:?}");
    let left = world.files("seconds-");
    assert!(left.iter().any(|path| path.extension().is_some_and(|end| end == "damaged")), "{left:?}");
    files = left.into_iter().filter(|path| path.extension().is_some_and(|end| end == "history")).collect();
    assert_eq!(files.len(), there - 2);
    assert!((20..90).contains(&world.ask(&span(90, 150, 1)).steps.len()));
    world.run(2, 170, 3);
    assert_eq!(world.ask(&span(170, 180, 1)).steps.len(), 3);
}

#[test]
fn names_and_sizes_that_nobody_gave_stop_nothing() {
    let mut world = World::new(small());
    world.run(1, 0, 10);
    let whole = std::fs::read(world.files("seconds-").remove(0)).expect("read");
    std::fs::write(world.dir.path().join("seconds-18446744073709551615.history"), &whole).expect("written");
    let giant = world.dir.path().join("seconds-00000005.history");
    std::fs::write(&giant, &whole).expect("written");
    std::fs::File::options().write(true).open(&giant).and_then(|file| file.set_len(1 << 40)).expect("sparse");
    let told = world.reopen();
    assert!(told.len() == 1 && told[0].contains("bytes"), "{told:?}");
    world.run(2, 20, 10);
    assert_eq!(world.ask(&span(0, 30, 1)).steps.len(), 20);
    let last = std::fs::read(world.dir.path().join("seconds-18446744073709551615.history")).expect("there");
    assert_eq!(last, whole, "nothing comes after it, so it is nobody's");
}

#[test]
fn a_later_release_is_not_read_wrongly() {
    let mut world = World::new(small());
    world.run(1, 0, 10);
    let file = world.files("seconds-").remove(0);
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[8] = 2;
    std::fs::write(&file, &bytes).expect("write");
    let told = world.reopen();
    assert!(told[0].contains("newer release"), "{told:?}");
}

#[test]
fn another_process_has_counted_from_zero_whatever_its_clock_says() {
    let mut world = World::new(small());
    for (process, seconds, operations) in [(1, 1, 10), (1, 2, 20), (2, 50, 1000), (2, 51, 1003)] {
        let look = look(process, seconds, vec![lun("a", operations)]);
        world.history.take(&look, START + seconds * 1000).expect("written");
    }
    let steps = world.ask(&span(0, 60, 1)).steps;
    let done: Vec<u64> = steps.iter().flat_map(operations).map(|(_, operations)| operations).collect();
    assert_eq!(done, [10, 3]);
}

#[test]
fn no_changed_byte_is_believed() {
    let mut world = World::new(small());
    world.run(1, 0, 10);
    let file = world.files("seconds-").remove(0);
    let whole = std::fs::read(&file).expect("read");
    for at in whole.len() - 20..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&file, &bytes).expect("write");
        assert_eq!(world.reopen(), Vec::<String>::new());
        assert_eq!(world.ask(&span(0, 10, 1)).steps.len(), 9, "byte {at}");
    }
}

#[test]
fn a_step_that_is_too_long_is_lost_alone() {
    let limits = Limits { things: 5000, bytes: 64 << 20, ..small().0 };
    let mut world = World::new((limits, small().1));
    let many = |second: u64| (0..3000).map(|name| lun(&format!("{name:04000}"), second)).collect::<Vec<_>>();
    for second in 0..5 {
        let items = if second == 2 || second == 3 { many(second) } else { vec![lun("a", 5 * second)] };
        world.history.take(&look(1, second, items), START + second * 1000).expect("written");
    }
    for second in 5..9 {
        let look = look(1, second, vec![lun("a", 5 * second), lun("new", 7 * second)]);
        world.history.take(&look, START + second * 1000).expect("written");
    }
    let steps = world.ask(&span(0, 10, 1)).steps;
    assert_eq!(steps.last().map(operations), Some(vec![("a".to_owned(), 5), ("new".to_owned(), 7)]));
}

#[test]
fn a_clock_that_was_far_ahead_for_a_while_does_not_hide_what_came_after() {
    let mut world = World::new(small());
    world.run(1, 10_000_000, 40);
    for second in 41..90_u64 {
        let wall = START + second * 1000;
        world.history.take(&look(1, second, vec![lun("a", 5 * second)]), wall).expect("written");
    }
    assert!(world.files("seconds-").len() > 1);
    let found = world.ask(&span(80, 85, 1));
    assert_eq!((found.step_seconds, found.steps.len()), (1, 5));
    assert!(found.since_ms.is_some_and(|since| since < START + 90_000), "{:?}", found.since_ms);
}

/// A file of the first release that had a history is read for ever.
#[test]
fn a_segment_of_version_1_is_read() {
    let golden = include_bytes!("golden-1.history");
    assert_eq!(&fuzz::sample().0, golden, "what is written now differs: a new version is needed");
    let world = World::new(small());
    std::fs::write(world.dir.path().join("seconds-00000000.history"), golden).expect("written");
    let (history, told) =
        CounterHistory::with_limits(world.dir.path(), world.limits.0, world.limits.1).expect("opens");
    assert_eq!(told, Vec::<String>::new());
    let all = Query { from_ms: 0, to_ms: 1_700_000_002_000, step_seconds: Some(1), ..Query::default() };
    let found = history.snapshot().read(&all).expect("an answer");
    let names = |step: &HistoryStep| step.items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
    assert_eq!(found.steps.iter().map(names).collect::<Vec<_>>(), [["disk1", "0"], ["disk1", "p"]]);
    let read = found.steps[0].items[0].read.expect("reads");
    assert_eq!((read.bytes, read.errors, read.latency_ns), (1 << 2, 2 << 4, 3 << 6));
    assert_eq!(found.steps[1].items[1].size_bytes, Some(22 << 44));
}

#[test]
fn clocks_that_jump_lose_nothing_and_end() {
    let mut world = World::new(small());
    world.run(1, 1000, 50);
    // An hour back, then on.
    for second in 51..100_u64 {
        let wall = START + (second * 1000).saturating_sub(500_000);
        world.history.take(&look(1, second, vec![lun("a", 5 * second)]), wall).expect("written");
    }
    let back =
        world.ask(&Query { from_ms: 0, to_ms: u64::MAX, step_seconds: Some(3600), ..Query::default() });
    let sum: u64 = back.steps.iter().flat_map(operations).map(|(_, operations)| operations).sum();
    assert_eq!(sum, 5 * 99);
}

#[test]
fn what_cannot_be_written_is_kept_for_later_and_bounded() {
    let mut world = World::new(small());
    world.run(1, 0, 5);
    let dir = world.dir.path().to_owned();
    let aside = dir.with_extension("aside");
    std::fs::rename(&dir, &aside).expect("moved");
    let mut failed = 0;
    for second in 6..40_u64 {
        let look = look(1, second, vec![lun("a", 5 * second)]);
        failed += u32::from(world.history.take(&look, START + second * 1000).is_err());
    }
    assert!(failed > 0);
    std::fs::rename(&aside, &dir).expect("back");
    world.history.close().expect("written");
    assert_eq!(world.ask(&span(0, 60, 1)).steps.len(), 39);
}

#[test]
fn questions_that_cannot_be_answered_say_so() {
    let mut world = World::new(small());
    world.run(1, 0, 5);
    let ask = |query: Query| world.history.snapshot().read(&query);
    assert!(matches!(ask(span(0, 5, 0)), Err(QueryError::Empty)));
    assert!(matches!(ask(span(5, 0, 1)), Err(QueryError::Empty)));
    let none = Query { kinds: vec![CounterKind::Disk], ..span(0, 5, 1) };
    assert!(ask(none).expect("an answer").steps.iter().all(|step| step.items.is_empty()));
    let named = Query { name: Some("A*".into()), ..span(0, 5, 1) };
    assert_eq!(operations(&ask(named).expect("an answer").steps[0]), [("a".to_owned(), 5)]);
    for step in [1 << 61, u64::MAX, u64::MAX / 4000] {
        let huge = Query { from_ms: 0, to_ms: u64::MAX, step_seconds: Some(step), ..Query::default() };
        assert!(matches!(ask(huge), Err(QueryError::Empty)), "{step}");
    }
    ask(Query { from_ms: 0, to_ms: u64::MAX, ..Query::default() }).expect("an answer");
}

mod qos;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever things do, begin anew, come and go, restarts included: the sum over all steps is what a simple model has counted.
    #[test]
    fn sums_are_those_of_a_model(seconds in proptest::collection::vec((0_u8..20, proptest::collection::vec((0_usize..6, 0_u64..1000), 0..5)), 1..200)) {
        let mut world = World::new((SECONDS, MINUTES));
        let (mut totals, mut before): (BTreeMap<usize, u64>, Option<BTreeMap<usize, u64>>) = Default::default();
        let (mut process, mut clock, mut sum) = (1, 0, 0_u64);
        for (second, (what, done)) in seconds.iter().enumerate() {
            clock += 1;
            match what {
                0 => {
                    world.history.close().expect("written");
                    world.reopen();
                    process += 1;
                    clock = 1;
                    totals.clear();
                    before = None;
                }
                1 => drop(totals.remove(&3)),
                _ => {}
            }
            for (thing, operations) in done {
                *totals.entry(*thing).or_default() += operations;
            }
            if let Some(before) = &before {
                sum += totals.iter().filter_map(|(thing, now)| now.checked_sub(*before.get(thing)?)).sum::<u64>();
            }
            before = Some(totals.clone());
            let items = totals.iter().map(|(thing, operations)| lun(&format!("lun{thing}"), *operations)).collect();
            world.history.take(&look(process, clock, items), START + second as u64 * 1000).expect("written");
        }
        world.history.close().expect("written");
        let found = world.ask(&Query { from_ms: 0, to_ms: u64::MAX / 2, step_seconds: Some(3600), ..Query::default() });
        let remembered: u64 = found.steps.iter().flat_map(operations).map(|(_, operations)| operations).sum();
        prop_assert_eq!(remembered, sum);
    }

    #[test]
    fn hostile_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), at in 0_usize..300, to in any::<u8>()) {
        fuzz::segment(&bytes);
        fuzz::payloads(&bytes);
        let (mut segment, mut payloads) = fuzz::sample();
        if let Some(byte) = segment.get_mut(at) { *byte = to; }
        if let Some(byte) = payloads.get_mut(at) { *byte = to; }
        fuzz::segment(&segment);
        fuzz::payloads(&payloads);
    }
}
