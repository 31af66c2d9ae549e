//! Copies: on one lane, and between two that are waited for together.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread::park_timeout;

use super::*;

const BLOCK: u32 = 4096;
/// The file does not end with a whole block, and it has more blocks than may be under way at once.
const SIZE: usize = 40 * 4096 + 100;

fn copies(from: &str, to: &str) -> TimeSpan {
    let target =
        |path, write_percent| Target { block: BLOCK, requests: 8, write_percent, ..Target::new(path) };
    let targets = vec![target(from, 0), target(to, 100)];
    TimeSpan { copy: true, duration: 60, warm_up: 0, targets, ..TimeSpan::default() }
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|index| (index / 7) as u8).collect()
}

#[test]
fn a_copy_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    // Not a whole number of pieces.
    let content: Vec<u8> = (0..1_000_003u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&from, &content).unwrap();
    std::fs::write(&to, vec![0; content.len() + 10]).unwrap();
    let target = |path: &std::path::Path, write_percent| Target {
        block: 64 << 10,
        requests: 3,
        write_percent,
        ..Target::new(path.display().to_string())
    };
    let mut span = span(target(&from, 0));
    span.targets.push(target(&to, 100));
    (span.copy, span.duration) = (true, 60);
    let paths: Vec<String> = span.targets.iter().map(|target| target.path.clone()).collect();
    let backend = LocalBackend::open(&span.targets, &paths, false).unwrap();
    let outcome = run(&span, &backend, &Until(None));
    assert_eq!(outcome.ended_early, None);
    let (read, write) = outcome.sum();
    assert_eq!((read.bytes, write.bytes, write.count), (1_000_003, 1_000_003, 16));
    let copied = std::fs::read(&to).unwrap();
    assert!(copied[..content.len()] == content && copied[content.len()..] == [0; 10]);
    std::fs::write(&to, [1]).unwrap();
    span.targets[1].block = 1;
    let backend = LocalBackend::open(&span.targets, &paths, false).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let why = run_span(&span, &backend, &System::default(), &clock, &Until(None), None).unwrap_err();
    assert!(why.0.contains("only 1"), "{why}");
}

/// Two targets in memory with a lane each, whose operations end after a while, and when none of the others is waited for.
struct Apart {
    contents: [Arc<Mutex<Vec<u8>>>; 2],
    /// Whether the lanes can be waited for together.
    together: bool,
    /// Writes from this byte on fail.
    full: u64,
    threads: Mutex<Vec<usize>>,
}

struct ApartLane {
    content: Arc<Mutex<Vec<u8>>>,
    together: bool,
    full: u64,
    buffers: Vec<Vec<u8>>,
    ops: VecDeque<Op>,
    /// Gets a byte for each operation that has ended.
    ends: UnixStream,
    begin: Sender<()>,
}

fn apart(together: bool, full: u64) -> Apart {
    let contents = [content(), vec![0xff; SIZE + 1]].map(|content| Arc::new(Mutex::new(content)));
    Apart { contents, together, full, threads: Mutex::default() }
}

impl Backend for Apart {
    fn sizes(&self) -> Vec<u64> {
        self.contents.iter().map(|content| content.lock().unwrap().len() as u64).collect()
    }
    fn joins_targets(&self) -> bool {
        false
    }
    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        let [target] = plan.targets else { panic!("one target for each lane, not {:?}", plan.targets) };
        self.threads.lock().unwrap().push(plan.thread);
        let (ends, mut other) = UnixStream::pair().unwrap();
        let (begin, begun) = channel();
        std::thread::spawn(move || {
            while begun.recv().is_ok() {
                park_timeout(Duration::from_micros(500));
                if other.write_all(b"x").is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(ApartLane {
            content: Arc::clone(&self.contents[*target]),
            together: self.together,
            full: self.full,
            buffers: plan.slots.iter().map(|slot| vec![0; slot.read.max(slot.write)]).collect(),
            ops: VecDeque::new(),
            ends,
            begin,
        }))
    }
}

impl Lane for ApartLane {
    fn read_buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot]
    }
    fn write_buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot]
    }
    fn queue(&mut self, op: &Op) -> io::Result<()> {
        assert_eq!(op.target, 0);
        self.ops.push_back(*op);
        self.begin.send(()).unwrap();
        Ok(())
    }
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let timeout = timeout.unwrap();
        assert!(!self.together || timeout.is_zero(), "the other lane is left alone meanwhile");
        assert!(!self.ops.is_empty(), "nothing to wait for");
        self.ends.set_nonblocking(timeout.is_zero()).unwrap();
        self.ends.set_read_timeout((!timeout.is_zero()).then_some(timeout)).unwrap();
        let mut bytes = [0; 64];
        let Ok(count) = self.ends.read(&mut bytes) else { return Ok(()) };
        let mut content = self.content.lock().unwrap();
        for op in self.ops.drain(..count) {
            let (place, buffer) = (op.offset as usize, &mut self.buffers[op.slot][..op.len as usize]);
            let place = &mut content[place..place + op.len as usize];
            let mut result = Ok(());
            match op.data {
                Data::Read => buffer.copy_from_slice(place),
                _ if op.offset >= self.full => result = Err(LaneFailure::System(libc::ENOSPC)),
                _ => place.copy_from_slice(buffer),
            }
            done.push(Done { slot: op.slot, result });
        }
        Ok(())
    }
    fn awaited(&self) -> Option<Awaited<'_>> {
        self.together.then(|| Awaited { file: self.ends.as_fd(), write: false })
    }
}

#[test]
fn ends_apart_are_waited_for_together_and_each_alone_when_that_cannot_be() {
    for together in [true, false] {
        let backend = apart(together, u64::MAX);
        let outcome = run(&copies("a", "b"), &backend, &Until(None));
        assert!(outcome.ended_early.is_none(), "{:?}", outcome.ended_early);
        let copy = backend.contents[1].lock().unwrap().clone();
        assert!(copy[..SIZE] == content() && copy[SIZE] == 0xff, "together: {together}");
        let (read, write) = outcome.sum();
        assert_eq!((read.count, write.count, write.bytes), (41, 41, SIZE as u64));
        assert_eq!(*backend.threads.lock().unwrap(), [0, 1], "a server tells them apart");
    }
}

#[test]
fn a_piece_that_cannot_be_written_ends_the_copy() {
    let outcome = run(&copies("a", "b"), &apart(true, 20 * u64::from(BLOCK)), &Until(None));
    let why = outcome.ended_early.clone().unwrap();
    assert!(why.starts_with("writing 4096 bytes at ") && why.contains("No space left"), "{why}");
    assert_eq!(outcome.sum().1.count, 20, "what was written counts");
}

#[test]
fn joined_targets_are_each_behind_their_own_backend() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("to").display().to_string();
    std::fs::write(&path, vec![0; SIZE]).unwrap();
    let span = copies("a", &path);
    let to = LocalBackend::open(&span.targets[1..], std::slice::from_ref(&path), false).unwrap();
    let outcome = run(&span, &Joined::new(Box::new(One(apart(true, 0))), Box::new(to)), &Until(None));
    assert!(outcome.ended_early.is_none(), "{:?}", outcome.ended_early);
    assert!(std::fs::read(&path).unwrap() == content());
    // A deleted target is missed also behind a joint backend.
    let to = LocalBackend::open(&span.targets[1..], std::slice::from_ref(&path), false).unwrap();
    let joined = Joined::new(Box::new(One(apart(true, 0))), Box::new(to));
    assert_eq!((joined.sizes(), joined.gone()), (vec![SIZE as u64; 2], None));
    std::fs::remove_file(&path).unwrap();
    assert!(joined.gone().unwrap().contains("was deleted"));
}

/// Only the first target of the two.
struct One(Apart);

impl Backend for One {
    fn sizes(&self) -> Vec<u64> {
        self.0.sizes().into_iter().take(1).collect()
    }
    fn lane(&self, plan: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        self.0.lane(plan)
    }
}
