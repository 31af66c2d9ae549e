//! Tests of the gate, with a clock that is set by hand: permits, turns, drops at every moment, rules that change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use qos_policy::{FlowStatus, QosSettings};
use shard_runtime::{Clock, Monotonic, WallTime};
use uuid::Uuid;

use super::*;

mod resume;

#[derive(Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn pass(&self, millis: u64) {
        self.0.fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

fn gate(volume_depth: u32) -> (Arc<HandClock>, Arc<Gate>) {
    let clock = Arc::<HandClock>::default();
    let gate = Gate::new(clock.clone(), &QosSettings { volume_depth, ..QosSettings::default() });
    (clock, gate)
}

fn now(entry: Result<Entry, Refused>) -> Permit {
    match entry {
        Ok(Entry::Now(permit)) => permit,
        Ok(Entry::Later(_)) => panic!("it waits"),
        Err(Refused) => panic!("it was refused"),
    }
}

fn later(entry: Result<Entry, Refused>) -> Turn {
    match entry {
        Ok(Entry::Later(turn)) => turn,
        Ok(Entry::Now(_)) => panic!("it does not wait"),
        Err(Refused) => panic!("it was refused"),
    }
}

/// The permit of a turn that has come.
fn come(turn: &mut Turn) -> Option<Permit> {
    turn.now_or_never().map(|permit| permit.expect("its flow is there"))
}

fn limit(max_iops: u64) -> Rule {
    Rule::Alone(Terms { max_iops: Some(max_iops), burst: 0, ..Terms::default() })
}

fn only(disk: &str, rule: Rule) -> BTreeMap<String, Rule> {
    [(disk.to_owned(), rule)].into()
}

/// What is left to others is left to nobody once they have gone, though nothing completes then.
#[test]
fn who_goes_leaves_its_places_to_those_who_wait() {
    let (_, gate) = gate(8);
    let (a, b) = (gate.disk("a"), gate.disk("b"));
    let (one, other) = (a.flow("x").unwrap(), b.flow("x").unwrap());
    let _permits: Vec<Permit> = (0..7).map(|_| now(one.enter(Kind::Read, 4096))).collect();
    let mut last = later(one.enter(Kind::Read, 4096));
    assert!(come(&mut last).is_none(), "a place is left to the other");
    drop(other);
    assert!(come(&mut last).is_some());
}

#[test]
fn a_permit_is_one_place_at_the_volume_until_it_is_dropped() {
    let (_, gate) = gate(1);
    let disk = gate.disk("a");
    let (one, two) = (disk.flow("x").unwrap(), disk.flow("y").unwrap());
    let permit = now(one.enter(Kind::Read, 4096));
    let mut first = later(two.enter(Kind::Read, 4096));
    assert!(come(&mut first).is_none());
    drop(permit);
    let permit = come(&mut first).expect("its turn");
    let mut second = later(one.enter(Kind::Write, 4096));
    assert!(come(&mut second).is_none());
    drop(permit);
    drop(come(&mut second).expect("its turn"));
    assert_eq!(gate.state.lock().scheduler.in_flight(), 0);
}

#[test]
fn a_turn_that_is_dropped_at_any_moment_leaves_nothing_behind() {
    let (_, gate) = gate(1);
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    let permit = now(flow.enter(Kind::Read, 1));
    let waits = later(flow.enter(Kind::Read, 1));
    let mut behind = later(flow.enter(Kind::Read, 1));
    drop(waits);
    assert_eq!(gate.state.lock().scheduler.waiting(), 1);
    let came = later(flow.enter(Kind::Read, 1));
    drop(permit);
    drop(come(&mut behind).expect("the one before it is gone"));
    // The turn of the last came, and it goes without having looked.
    drop(came);
    let state = gate.state.lock();
    assert_eq!((state.scheduler.in_flight(), state.scheduler.waiting()), (0, 0));
}

#[test]
fn a_limit_opens_with_time_and_a_new_one_at_once() {
    let (clock, gate) = gate(64);
    gate.apply(&QosSettings::default(), only("a", limit(100)));
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    drop(now(flow.enter(Kind::Read, 8192)));
    let mut turns: Vec<Turn> = (0..3).map(|_| later(flow.enter(Kind::Read, 8192))).collect();
    clock.pass(9);
    gate.pump(gate.now(), None);
    assert!(come(&mut turns[0]).is_none());
    assert_eq!(gate.state.lock().wake_at, Some(10_000_000));
    clock.pass(1);
    gate.pump(gate.now(), None);
    drop(come(&mut turns[0]).expect("ten milliseconds have passed"));
    assert!(come(&mut turns[1]).is_none());
    gate.apply(&QosSettings::default(), BTreeMap::new());
    assert!(come(&mut turns[1]).is_some() && come(&mut turns[2]).is_some(), "the limit is gone");
    drop(now(flow.enter(Kind::Read, 8192)));
}

#[test]
fn disks_of_a_shared_rule_have_one_limit_and_others_none() {
    let (clock, gate) = gate(64);
    let terms = Terms { max_iops: Some(10), burst: 0, ..Terms::default() };
    let (a, b, c) = (gate.disk("a"), gate.disk("b"), gate.disk("c"));
    let flows: Vec<_> = [&a, &b, &c].map(|disk| disk.flow("x").unwrap()).into();
    let shared = Rule::Together(Uuid::from_u128(1), terms);
    gate.apply(&QosSettings::default(), BTreeMap::from([("a".to_owned(), shared), ("b".to_owned(), shared)]));
    drop(now(flows[0].enter(Kind::Read, 1)));
    let mut turn = later(flows[1].enter(Kind::Read, 1));
    drop(now(flows[2].enter(Kind::Read, 1)));
    let demand = gate.demands()[&Uuid::from_u128(1)];
    assert_eq!((demand.asked_units, demand.waiting), (2, 1));
    assert!(!gate.demands().contains_key(&Uuid::from_u128(2)));
    // Its part of what several gates have is raised, and what waits feels it: what is owed is an amount, which is paid at once now.
    let raised = Terms { max_iops: Some(1_000_000_000), ..terms };
    gate.set_part(Uuid::from_u128(2), raised);
    assert!(come(&mut turn).is_none(), "another rule's part");
    gate.set_part(Uuid::from_u128(1), raised);
    clock.pass(1);
    gate.pump(gate.now(), None);
    drop(come(&mut turn).expect("its part was raised"));
    // It is lowered again, and what passed before is owed by the lower one; then the rule goes.
    gate.set_part(Uuid::from_u128(1), terms);
    drop(later(flows[0].enter(Kind::Read, 1)));
    gate.apply(&QosSettings::default(), BTreeMap::new());
    assert!(gate.state.lock().shared.is_empty());
    drop(now(flows[1].enter(Kind::Read, 1)));
}

#[test]
fn clients_and_disks_go_when_nobody_holds_them_and_come_back_new() {
    let (_, gate) = gate(64);
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    assert!(Arc::ptr_eq(&flow, &disk.flow("x").unwrap()), "sessions of a client share it");
    let permit = now(flow.enter(Kind::Read, 1));
    drop((flow, disk));
    assert_eq!(gate.flows().len(), 1, "a request of it is at the volume");
    drop(permit);
    assert!(gate.flows().is_empty() && gate.state.lock().disks.is_empty());
    // Each takes the place of the one before it: nothing grows with those that were there.
    for _ in 0..1000 {
        let disk = gate.disk("a");
        let flow = disk.flow("x").unwrap();
        drop(now(flow.enter(Kind::Read, 1)));
        let places = format!("{:?} {:?}", flow.id, gate.state.lock().disks[&"a".into()].own);
        assert_eq!(places.matches("index: 0").count(), 2, "{places}");
    }
    let (disk, other) = (gate.disk("a"), gate.disk("b"));
    let _flows = (disk.flow("x"), other.flow("x"));
    assert_eq!(gate.flows().len(), 2);
}

#[test]
fn a_client_that_floods_is_refused_and_told() {
    let (_, gate) = gate(1);
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    let permit = now(flow.enter(Kind::Read, 1));
    let turns: Vec<_> = (0..4096).map(|_| later(flow.enter(Kind::Read, 1))).collect();
    assert!(matches!(flow.enter(Kind::Read, 1), Err(Refused)));
    let other = later(gate.disk("b").flow("y").unwrap().enter(Kind::Read, 1));
    drop((permit, other));
    drop(turns);
    assert_eq!(gate.flows()[0].refused, 1);
    assert_eq!(gate.state.lock().scheduler.in_flight(), 0);
}

#[test]
fn rates_tell_time_held_back_from_time_at_the_volume() {
    let (clock, gate) = gate(64);
    let terms = Terms { min_iops: Some(100), max_iops: Some(100), burst: 0, ..Terms::default() };
    gate.apply(&QosSettings::default(), only("a", Rule::Alone(terms)));
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    for _ in 0..100 {
        // Each waits for 8 ms and is at the volume for 2.
        let entry = flow.enter(Kind::Write, 4096).ok().unwrap();
        let permit = match entry {
            Entry::Now(permit) => permit,
            Entry::Later(mut turn) => {
                clock.pass(8);
                gate.pump(gate.now(), None);
                come(&mut turn).expect("its turn")
            }
        };
        clock.pass(2);
        drop(permit);
    }
    let reports = gate.flows();
    let report = &reports[0];
    assert_eq!((&report.disk, report.client.as_str()), (&"a".into(), "x"));
    assert!((99..=101).contains(&report.write_iops) && report.read_iops == 0, "{report:?}");
    assert_eq!(report.normalized_iops, report.write_iops);
    assert_eq!(report.write_bandwidth / 4096, report.write_iops);
    assert!((7_900_000..=8_000_000).contains(&report.held_nanos), "{report:?}");
    assert_eq!(report.disk_nanos, 2_000_000);
    assert_eq!(FlowStatus::of(terms.min_iops, report.measured), FlowStatus::Ok);
    clock.pass(5000);
    gate.sample(gate.now());
    clock.pass(5000);
    gate.sample(gate.now());
    assert_eq!(gate.flows()[0].write_iops, 0, "what was long ago does not count");
}

#[tokio::test(start_paused = true)]
async fn the_timer_starts_what_limits_held_back_and_ends_with_its_gate() {
    /// Tokio's clock, which the test's timers follow.
    struct Paused(tokio::time::Instant);
    impl Clock for Paused {
        fn now(&self) -> Monotonic {
            Monotonic(self.0.elapsed().as_nanos() as u64)
        }
        fn wall(&self) -> WallTime {
            WallTime(0)
        }
    }
    let clock = Arc::new(Paused(tokio::time::Instant::now()));
    let gate = Gate::new(clock.clone(), &QosSettings::default());
    gate.apply(&QosSettings::default(), only("a", limit(10)));
    let timer = tokio::spawn(keep_time(Arc::downgrade(&gate)));
    let disk = gate.disk("a");
    let flow = disk.flow("x").unwrap();
    for n in 0..20u64 {
        let permit = match flow.enter(Kind::Read, 1).ok().unwrap() {
            Entry::Now(permit) => permit,
            Entry::Later(turn) => turn.await.expect("its flow is there"),
        };
        drop(permit);
        assert!(clock.now().0 / 100_000_000 == n, "one each tenth of a second");
    }
    drop((flow, disk, gate));
    timer.await.expect("it ends");
}

/// A clock that goes on by one with each look.
#[derive(Default)]
struct Counting(AtomicU64);

impl Clock for Counting {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

#[test]
fn who_has_looked_at_the_clock_anyway_spares_the_gate_that() {
    let clock = Arc::<Counting>::default();
    let gate = Gate::new(clock.clone(), &QosSettings::default());
    let flow = gate.disk("a").flow("x").unwrap();
    let before = clock.now().0;
    let permit = now(flow.enter(Kind::Read, 1));
    assert_eq!(permit.since().0, before + 1);
    permit.leave(Monotonic(before + 1001));
    assert_eq!((clock.now().0, gate.state.lock().scheduler.in_flight()), (before + 2, 0));
    assert_eq!((flow.done.load(Ordering::Relaxed), flow.disk_nanos.load(Ordering::Relaxed)), (1, 1000));
}

/// On several threads, without limits and with ones that come and go: never more than there are places, nobody is forgotten, and in
/// the end all is counted and free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_place_is_taken_twice_and_nobody_waits_for_ever() {
    const DEPTH: u32 = 9;
    const EACH: u64 = 10_000;
    let settings = QosSettings { volume_depth: DEPTH, ..QosSettings::default() };
    let gate = Gate::new(Arc::new(shard_runtime::SystemClock::new()), &settings);
    let timer = tokio::spawn(keep_time(Arc::downgrade(&gate)));
    let disks = ["a", "b", "c"].map(|name| gate.disk(name));
    let flows: Vec<_> = (0..24).map(|n| disks[n % 3].flow(&format!("{}", n % 8)).unwrap()).collect();
    let (there, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = tokio::task::JoinSet::new();
    for (number, flow) in flows.iter().cloned().enumerate() {
        let (there, ended) = (there.clone(), ended.clone());
        clients.spawn(async move {
            for n in 0..EACH {
                let permit = match flow.enter(Kind::Write, 1).ok().unwrap() {
                    Entry::Now(permit) => permit,
                    // Some do not wait for it at first; whoever gives up also starts what may start.
                    Entry::Later(turn) if n < EACH / 3 && (n + number as u64).is_multiple_of(7) => {
                        drop(turn);
                        continue;
                    }
                    Entry::Later(turn) => turn.await.expect("its flow is there"),
                };
                let beside = there.fetch_add(1, Ordering::SeqCst);
                assert!(beside < u64::from(DEPTH), "{beside} were there before it");
                if n.is_multiple_of(3) {
                    tokio::task::yield_now().await;
                }
                ended.fetch_add(1, Ordering::SeqCst);
                there.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        });
    }
    let changes = tokio::spawn({
        let gate = Arc::downgrade(&gate);
        async move {
            let limited = Terms { max_iops: Some(200_000), ..Terms::default() };
            // Then no longer: each change also starts what may start.
            for n in 0..60u64 {
                let Some(gate) = gate.upgrade() else { return };
                let rules = match n % 4 {
                    0 => only("a", Rule::Alone(limited)),
                    1 => only("b", Rule::Together(Uuid::from_u128(1), limited)),
                    _ => BTreeMap::new(),
                };
                gate.apply(&settings, rules);
                drop(gate);
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
    });
    let all = async { while clients.join_next().await.transpose().expect("no place twice").is_some() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), all).await.expect("nobody waits for ever");
    let left = |gate: &Gate| {
        let state = gate.state.lock();
        (state.scheduler.in_flight(), state.scheduler.waiting())
    };
    assert_eq!(left(&gate), (0, 0));
    let flows_now = gate.flows();
    assert!(flows_now.iter().all(|flow| (flow.in_flight, flow.waiting) == (0, 0)), "{flows_now:?}");
    let done: u64 = flows.iter().map(|flow| flow.done.load(Ordering::SeqCst)).sum();
    // A permit may have come to one who did not wait for it.
    assert!(done >= ended.load(Ordering::SeqCst), "{done}");
    drop((flows, disks, gate));
    changes.await.expect("it ends");
    timer.await.expect("it ends");
}

/// A file has the rule of the nearest place, also when that comes later, and is another disk than a LUN of its name.
#[test]
fn files_have_the_rules_of_their_places() {
    let (clock, gate) = gate(8);
    let file = gate.disk(DiskName::File("/vms/a.vhdx".into()));
    let flow = file.flow("x").unwrap();
    let lun = gate.disk("/vms/a.vhdx").flow("x").unwrap();
    let mut rules = Rules::default();
    rules.places.insert(qos_policy::PlaceKind::Folder, "/VMS", limit(10));
    gate.apply(&QosSettings::default(), rules);
    drop(now(flow.enter(Kind::Read, 4096)));
    let mut held = later(flow.enter(Kind::Read, 4096));
    drop(now(lun.enter(Kind::Read, 4096)));
    drop(now(lun.enter(Kind::Read, 4096)));
    clock.pass(101);
    gate.pump(gate.now(), None);
    drop(come(&mut held).expect("its time has come"));
    let mut held = later(flow.enter(Kind::Read, 4096));
    gate.apply(&QosSettings::default(), Rules::default());
    assert!(come(&mut held).is_some(), "the folder has no policy any more");
}

/// A volume with one arm, and clients on it: the answers that its permits tell of are what is learnt, and who has a minimum gets it.
#[tokio::test(start_paused = true)]
async fn what_permits_tell_of_the_volume_makes_room_for_minimums() {
    struct Paused(tokio::time::Instant);
    impl Clock for Paused {
        fn now(&self) -> Monotonic {
            Monotonic(self.0.elapsed().as_nanos() as u64)
        }
        fn wall(&self) -> WallTime {
            WallTime(0)
        }
    }
    async fn request(flow: &Arc<Flow>, arm: &tokio::sync::Mutex<()>) {
        let permit = match flow.enter(Kind::Read, 4096).ok().unwrap() {
            Entry::Now(permit) => permit,
            Entry::Later(turn) => turn.await.expect("its flow is there"),
        };
        let busy = arm.lock().await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        drop(busy);
        drop(permit);
    }
    let gate = Gate::new(Arc::new(Paused(tokio::time::Instant::now())), &QosSettings::default());
    let timer = tokio::spawn(keep_time(Arc::downgrade(&gate)));
    gate.apply(
        &QosSettings::default(),
        only("a", Rule::Alone(Terms { min_iops: Some(50), ..Terms::default() })),
    );
    let arm = Arc::new(tokio::sync::Mutex::new(()));
    let mut clients = tokio::task::JoinSet::new();
    let protected = gate.disk("a").flow("x").unwrap();
    let neighbour = gate.disk("b").flow("y").unwrap();
    for flow in std::iter::once(&protected).chain(std::iter::repeat_n(&neighbour, 100)) {
        let (flow, arm) = (flow.clone(), arm.clone());
        clients.spawn(async move {
            loop {
                request(&flow, &arm).await;
            }
        });
    }
    // Behind a hundred others it would get two a second.
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let flows = gate.flows();
    let got = flows.iter().map(|flow| flow.normalized_iops).collect::<Vec<_>>();
    let volume = gate.volume();
    assert!(got[0] >= 49 && got[0] + got[1] >= 190, "{got:?}, {volume:?}");
    assert!(volume.learnt.depth < 10 && volume.learnt.units.abs_diff(200) <= 10, "{volume:?}");
    assert_eq!((volume.promised.units, volume.promised.classes), (50, 1));
    assert_eq!(protected.standing().status, FlowStatus::Ok);
    // More than one under way can have beside another: that it waits behind that in the volume is not seen at the node.
    gate.apply(
        &QosSettings::default(),
        only("a", Rule::Alone(Terms { min_iops: Some(120), ..Terms::default() })),
    );
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    assert_eq!(protected.standing().status, FlowStatus::InsufficientThroughput, "{:?}", gate.flows());
    clients.shutdown().await;
    drop((protected, neighbour, gate));
    timer.await.expect("it ends");
}

/// A gate knows all policies of its node and has a class for those only that its disks have.
#[test]
fn ten_thousand_policies_cost_a_gate_what_its_disks_use_of_them() {
    let (_, gate) = gate(64);
    let terms = |max| Terms { max_iops: Some(max), ..Terms::default() };
    let policies = |more: u64| {
        let of = |number: u64| {
            let guid = Uuid::from_u128(u128::from(number) + 1);
            (guid, Rule::Together(guid, terms(1000 + number + more)))
        };
        let mut rules = Rules::default();
        rules.policies = Arc::new((0..10_000).map(of).collect());
        rules
    };
    gate.apply(&QosSettings::default(), policies(0));
    let name = |number: u128| DiskName::Flow(Uuid::from_u128(number), format!("/{number}"));
    let disks: Vec<_> = (1..=10_u128).map(|number| gate.disk(name(number))).collect();
    for (disk, number) in disks.iter().zip(1..) {
        disk.ask(Asked::Policy(Uuid::from_u128(number)));
    }
    let flows: Vec<_> = disks.iter().map(|disk| disk.flow("x").unwrap()).collect();
    assert_eq!(gate.state.lock().shared.len(), 10);
    assert_eq!(flows[3].standing().terms, terms(1003));
    // Another configuration of them is felt by these.
    gate.apply(&QosSettings::default(), policies(5));
    assert_eq!(gate.state.lock().shared.len(), 10);
    assert_eq!(flows[3].standing().terms, terms(1008));
    let scheduled = |gate: &Gate| {
        let state = gate.state.lock();
        state.scheduler.terms(*state.shared.values().next().unwrap())
    };
    assert_eq!(scheduled(&gate), Some(terms(1005)));
    // This gate has a part only.
    let mut divided = policies(5);
    divided.divide([(Uuid::from_u128(1), terms(7))].into());
    gate.apply(&QosSettings::default(), divided);
    assert_eq!((scheduled(&gate), flows[0].standing().terms), (Some(terms(7)), terms(7)));
    gate.apply(&QosSettings::default(), Rules::default());
    assert!(gate.state.lock().shared.is_empty());
}
