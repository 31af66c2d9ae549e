//! Operations that begin when they are queued, and those that begin together.

use super::*;

/// Nanoseconds that an operation takes to be queued.
const STEP: u64 = 1_000_000;

/// Time that only goes on when something is queued, or nothing is to be done.
#[derive(Default)]
struct Stepping(AtomicU64);

impl Clock for Stepping {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

/// A target whose operations all end with the next wait, which takes no time.
struct Stepped {
    clock: Arc<Stepping>,
    at_once: bool,
}

struct SteppedLane {
    clock: Arc<Stepping>,
    at_once: bool,
    queued: Vec<usize>,
    buffer: Vec<u8>,
}

impl Backend for Stepped {
    fn sizes(&self) -> Vec<u64> {
        vec![1 << 20]
    }
    fn lane(&self, _: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let (clock, at_once) = (Arc::clone(&self.clock), self.at_once);
        Ok(Box::new(SteppedLane { clock, at_once, queued: Vec::new(), buffer: Vec::new() }))
    }
}

impl Lane for SteppedLane {
    fn read_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }
    fn write_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }
    fn queue(&mut self, op: &Op) -> io::Result<()> {
        self.clock.0.fetch_add(STEP, Ordering::Relaxed);
        self.queued.push(op.slot);
        Ok(())
    }
    fn begins_at_once(&self) -> bool {
        self.at_once
    }
    fn wait(&mut self, _: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        if self.queued.is_empty() {
            self.clock.0.fetch_add(STEP, Ordering::Relaxed);
        }
        done.extend(self.queued.drain(..).map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }
}

/// The longest latency of a run with four requests, in steps.
fn longest(at_once: bool) -> u64 {
    let clock = Arc::new(Stepping::default());
    let backend = Stepped { clock: Arc::clone(&clock), at_once };
    let span = span(Target { requests: 4, ..Target::new("m") });
    let clock: Arc<dyn Clock> = clock;
    let outcome = run_span(&span, &backend, &System::default(), &clock, &Until(None), None).unwrap();
    let (read, _) = outcome.sum();
    assert!(read.count > 100 && read.errors == 0, "{outcome:?}");
    read.latency.max() / STEP
}

#[test]
fn time_counts_from_when_an_operation_begins() {
    // The first of four waits while three others are queued.
    assert_eq!(longest(true), 4);
    assert_eq!(longest(false), 0, "they begin together when all are queued");
}

#[test]
fn an_unbuffered_write_begins_when_it_is_queued() {
    // Beside the code: temporary directories may have no unbuffered files.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("f").display().to_string();
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    for (cache, at_once, byte) in [(CacheMode::Cached, false, 8), (CacheMode::DisableOsCache, true, 9)] {
        let target = Target { block: 4096, write_percent: 100, cache, ..Target::new(&path) };
        let backend = match LocalBackend::open(&[target], std::slice::from_ref(&path), false) {
            Ok(backend) => backend,
            Err(why) if why.0.contains("cannot do unbuffered") => return,
            Err(why) => panic!("{why}"),
        };
        let slots = [SlotPlan { read: 0, write: 4096 }];
        let plan = LanePlan { thread: 0, targets: &[0], slots: &slots, source: &[] };
        let mut lane = backend.lane(&plan).unwrap();
        assert_eq!(lane.begins_at_once(), at_once, "{cache:?}");
        lane.write_buffer(0).fill(byte);
        lane.queue(&Op { slot: 0, target: 0, data: Data::Write, offset: 0, len: 4096 }).unwrap();
        if at_once {
            // Nobody waits for it, and yet it is carried out.
            let begun = (0..10_000).any(|_| {
                std::thread::park_timeout(Duration::from_millis(5));
                std::fs::read(&path).unwrap()[..4096] == [byte; 4096]
            });
            assert!(begun, "it waits for the lane's wait");
        }
        let mut done = Vec::new();
        while done.is_empty() {
            lane.wait(None, &mut done).unwrap();
        }
        assert!(done[0].result.is_ok(), "{done:?}");
    }
}
