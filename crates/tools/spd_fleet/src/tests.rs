//! Agents and their coordinator in one process, over the loop-back network.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::{Clock, SystemClock, SystemEntropy};
use spd_engine::{Confirm, Control, EngineError, LocalBackend, Preparation, Progress};
use spd_profile::{Profile, Target, TimeSpan};
use spd_report::{CpuPlace, Outcome, SpanOutcome, System};

use crate::channel::{VERSION, accept, connect};
use crate::message::{ToAgent, ToCoordinator};
use crate::*;

mod preparing;

/// Longer than any of these tests takes on a busy machine. One that waits for what never comes fails then.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs a test that ends, one way or the other: what it waits for may never come when the code is broken.
fn bounded(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = sync_channel::<()>(1);
    let thread = std::thread::spawn(move || {
        // Dropped at the end, also of a test that fails.
        let _ended = ended;
        test();
    });
    match end.recv_timeout(LONGEST) {
        Err(RecvTimeoutError::Timeout) => panic!("the test still waits after {LONGEST:?}"),
        _ => thread.join().unwrap_or_else(|failure| std::panic::resume_unwind(failure)),
    }
}

/// Says stop when it goes, also when the test that it is of fails: a scope waits for its threads.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs jobs on files of this machine.
struct Local {
    clock: Arc<dyn Clock>,
    runs: AtomicU64,
}

struct Yes;

impl Confirm for Yes {
    fn may_destroy(&self, _: &str) -> bool {
        true
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        true
    }
}

impl Runner for Local {
    fn system(&self) -> System {
        System { computer: "box".into(), cpus: vec![CpuPlace::default(); 2], ..System::default() }
    }

    fn run(&self, _: &Job, span: &TimeSpan, control: &dyn Control) -> Result<SpanOutcome, EngineError> {
        let paths: Vec<String> = span.targets.iter().map(|target| target.path.clone()).collect();
        spd_engine::prepare(&span.targets, &paths, Preparation::default(), &Yes)?;
        let backend = LocalBackend::open(&span.targets, &paths, false)?;
        let outcome = spd_engine::run_span(span, &backend, &self.system(), &self.clock, control, None);
        self.runs.fetch_add(1, Ordering::SeqCst);
        outcome
    }
}

#[derive(Default)]
struct Quiet {
    stop: AtomicBool,
    notes: Mutex<Vec<String>>,
    /// Stop once there was progress.
    stop_on_progress: bool,
}

impl Watch for Quiet {
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    fn progress(&self, _: &Progress) {
        self.stop.fetch_or(self.stop_on_progress, Ordering::Relaxed);
    }
    fn note(&self, text: &str) {
        self.notes.lock().push(text.to_owned());
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn secret() -> Secret {
    Secret::new("the secret of these tests").unwrap()
}

/// Serves on a free port while `work` runs with its address; returns what that returned and the agent's lines.
fn with_agent<T>(secret: &Secret, runner: &Local, work: impl FnOnce(&str) -> T) -> (T, Vec<String>) {
    with_runner(secret, runner, &runner.clock, work)
}

/// The same with jobs of any kind.
fn with_runner<T>(
    secret: &Secret,
    runner: &dyn Runner,
    clock: &Arc<dyn Clock>,
    work: impl FnOnce(&str) -> T,
) -> (T, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let (stop, lines) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let result = std::thread::scope(|scope| {
        let say = |line: &str| lines.lock().push(line.to_owned());
        let stop = &stop;
        scope.spawn(move || serve(&listener, secret, (clock, &SystemEntropy), runner, stop, &say).unwrap());
        let _stops = Stops(stop);
        work(&name)
    });
    (result, lines.into_inner())
}

fn local() -> Local {
    Local { clock: clock(), runs: AtomicU64::new(0) }
}

fn job(folder: &Path, seconds: u32) -> Job {
    let path = folder.join("vm{agent}.dat").display().to_string();
    let target = Target {
        block: 4096,
        random_percent: 100,
        threads: 2,
        requests: 4,
        create: Some(1 << 20),
        ..Target::new(path)
    };
    let span = TimeSpan {
        duration: seconds,
        warm_up: 0,
        latency: true,
        targets: vec![target],
        ..TimeSpan::default()
    };
    Job { profile: Profile { spans: vec![span], ..Profile::default() }, ..Job::default() }
}

fn coordinate(names: &[String], job: &Job, watch: &Quiet) -> (Outcome, Option<FleetError>) {
    run(names, &secret(), (&clock(), &SystemEntropy), job, watch)
}

#[test]
fn three_agents_make_one_report_and_lose_no_latency() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let runners = [local(), local(), local()];
        let [a, b, c] = &runners;
        let secret = secret();
        let ((outcome, failed), _) = with_agent(&secret, a, |a| {
            let inner = with_agent(&secret, b, |b| {
                let names = |c: &str| [a, b, c].map(str::to_owned).to_vec();
                with_agent(&secret, c, |c| coordinate(&names(c), &job(dir.path(), 1), &Quiet::default())).0
            });
            inner.0
        });
        assert_eq!(failed, None);
        let span = &outcome.spans[0];
        assert_eq!((span.ended_early.as_deref(), span.threads.len(), span.agents.len()), (None, 6, 3));
        let paths: Vec<&str> = span.threads.iter().map(|thread| thread.targets[0].path.as_str()).collect();
        assert!(paths[0].ends_with("vm1.dat") && paths[5].ends_with("vm3.dat"), "{paths:?}");
        // Exactly what the agents have counted, bucket by bucket.
        let (read, _) = span.sum();
        let rows: u64 = span.agents.iter().map(|agent| agent.read.count).sum();
        assert!(span.agents.iter().all(|agent| agent.read.count > 0));
        assert_eq!((read.count, read.latency.count()), (rows, rows));
        let mut merged = spd_report::Histogram::new();
        span.agents.iter().for_each(|agent| merged.merge(&agent.read.latency));
        assert_eq!(merged.parts(), read.latency.parts());
        assert_eq!((outcome.system.cpus.len(), span.cpus.len()), (6, 6));
        assert_eq!(outcome.system.distinct(|cpu| cpu.id), 6);
        assert!(span.agents.iter().all(|agent| agent.start_ms.is_some()));
    });
}

#[test]
fn whoever_does_not_know_the_secret_learns_nothing() {
    bounded(|| {
        let runner = local();
        let dir = tempfile::tempdir().unwrap();
        let (_, lines) = with_agent(&secret(), &runner, |name| {
            let other = Secret::new("another secret, as long").unwrap();
            let (_, failed) = run(
                &[name.into()],
                &other,
                (&clock(), &SystemEntropy),
                &job(dir.path(), 1),
                &Quiet::default(),
            );
            assert!(failed.unwrap().0.contains("same secret"));
            // By hand: after the greeting, garbage is answered with the end of the connection and not with a byte.
            let mut stream = TcpStream::connect(name).unwrap();
            let mut hello = [0; 42];
            stream.read_exact(&mut hello).unwrap();
            let mut answer = hello.to_vec();
            answer.extend_from_slice(&[0; 32]);
            stream.write_all(&answer).unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            assert!(rest.is_empty(), "{rest:?}");
            // It still serves those who know it.
            let (outcome, failed) = coordinate(&[name.into()], &job(dir.path(), 1), &Quiet::default());
            assert_eq!((failed, outcome.spans.len()), (None, 1));
        });
        assert_eq!(
            lines.iter().filter(|line| line.contains("does not know the secret")).count(),
            2,
            "{lines:?}"
        );
        assert_eq!(runner.runs.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn who_is_no_agent_is_told_from_one() {
    bounded(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        std::thread::scope(|scope| {
            // It sends the proof back that it was given.
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut hello = b"HFSPDAGT".to_vec();
                hello.extend_from_slice(&VERSION.to_le_bytes());
                hello.extend_from_slice(&[7; 32]);
                stream.write_all(&hello).unwrap();
                let mut answer = [0; 74];
                stream.read_exact(&mut answer).unwrap();
                stream.write_all(&answer[42..]).unwrap();
            });
            let Err(why) = connect(&name, &secret(), &SystemEntropy) else { panic!("it was believed") };
            assert!(why.0.contains("does not know the secret"), "{why}");
        });
    });
}

#[test]
fn a_changed_message_ends_the_connection() {
    bounded(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let through = relay.local_addr().unwrap().to_string();
        std::thread::scope(|scope| {
            // Passes everything on, and changes one bit of the first message.
            scope.spawn(move || {
                let (mut client, _) = relay.accept().unwrap();
                let mut agent = TcpStream::connect(name).unwrap();
                let mut buffer = [0; 256];
                agent.read_exact(&mut buffer[..42]).unwrap();
                client.write_all(&buffer[..42]).unwrap();
                client.read_exact(&mut buffer[..74]).unwrap();
                agent.write_all(&buffer[..74]).unwrap();
                agent.read_exact(&mut buffer[..32]).unwrap();
                client.write_all(&buffer[..32]).unwrap();
                client.read_exact(&mut buffer[..41]).unwrap();
                buffer[5] ^= 1;
                agent.write_all(&buffer[..41]).unwrap();
                let _ = client.read(&mut buffer);
            });
            let agent = scope.spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let (_sender, mut receiver) = accept(stream, &secret(), &SystemEntropy).unwrap();
                receiver.receive().unwrap_err()
            });
            let (mut sender, _receiver) = connect(&through, &secret(), &SystemEntropy).unwrap();
            sender.send(&ToAgent::Ping(1).encode()).unwrap();
            assert!(agent.join().unwrap().0.contains("changed on the way"));
        });
    });
}

/// An agent that begins, tells of 42 operations, and is gone.
fn vanishes(listener: &TcpListener) {
    let (stream, _) = listener.accept().unwrap();
    let (mut sender, mut receiver) = accept(stream, &secret(), &SystemEntropy).unwrap();
    let clock = SystemClock::new();
    let mut tell = |message: ToCoordinator| sender.send(&message.encode()).unwrap();
    loop {
        match ToAgent::decode(&receiver.receive().unwrap()).unwrap() {
            ToAgent::Job(_) => tell(ToCoordinator::Accepted(Box::default())),
            ToAgent::Prepare => tell(ToCoordinator::Ready(0)),
            ToAgent::Ping(id) => tell(ToCoordinator::Pong(id, clock.now().0)),
            ToAgent::Start(at) => {
                while clock.now().0 < at {
                    std::thread::yield_now();
                }
                tell(ToCoordinator::Began(clock.now().0));
                tell(ToCoordinator::Progress(Progress { operations: vec![42], ..Progress::default() }));
                return;
            }
            ToAgent::Stop | ToAgent::Alive => {}
        }
    }
}

#[test]
fn a_vanished_agent_is_named_and_the_others_go_on() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let runner = local();
        let watch = Quiet::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bad = listener.local_addr().unwrap().to_string();
        let ((outcome, failed), _) = with_agent(&secret(), &runner, |good| {
            std::thread::scope(|scope| {
                scope.spawn(|| vanishes(&listener));
                coordinate(&[good.to_owned(), bad.clone()], &job(dir.path(), 1), &watch)
            })
        });
        assert_eq!(failed, None);
        let span = &outcome.spans[0];
        let why = span.ended_early.as_deref().unwrap();
        assert!(why.starts_with(&format!("agent {bad}: vanished ")) && why.contains(" 42 I/Os"), "{why}");
        assert!(span.agents[0].ended_early.is_none() && span.agents[0].read.count > 0);
        assert_eq!((span.agents[1].read.count, span.sum().0.count), (0, span.agents[0].read.count));
        assert_eq!(watch.notes.lock().len(), 1);
    });
}

#[test]
fn an_agent_whose_coordinator_vanished_ends_its_load() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let runner = local();
        // A year of load; it ends because nobody is there to report it to.
        let ((), lines) = with_agent(&secret(), &runner, |name| {
            let mut job = job(dir.path(), 366 * 86_400);
            job.profile.spans[0].targets[0].path = dir.path().join("f").display().to_string();
            let (mut sender, mut receiver) = connect(name, &secret(), &SystemEntropy).unwrap();
            sender.send(&ToAgent::Job(Box::new(job)).encode()).unwrap();
            loop {
                match ToCoordinator::decode(&receiver.receive().unwrap()).unwrap() {
                    ToCoordinator::Accepted(_) => sender.send(&ToAgent::Prepare.encode()).unwrap(),
                    ToCoordinator::Ready(0) => sender.send(&ToAgent::Start(0).encode()).unwrap(),
                    ToCoordinator::Progress(_) => break,
                    _ => {}
                }
            }
        });
        assert_eq!(runner.runs.load(Ordering::SeqCst), 1);
        assert!(lines[0].ends_with("ended before its time"), "{lines:?}");
    });
}

#[test]
fn a_stop_ends_all_with_what_they_measured() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let runner = local();
        let watch = Quiet { stop_on_progress: true, ..Quiet::default() };
        let ((outcome, failed), _) =
            with_agent(&secret(), &runner, |name| coordinate(&[name.into()], &job(dir.path(), 3600), &watch));
        assert_eq!(failed, None);
        let span = &outcome.spans[0];
        assert_eq!(span.ended_early.as_deref(), Some("interrupted"));
        assert!(span.seconds > 0.0 && span.seconds < 3600.0 && span.sum().0.count > 0);
    });
}

#[test]
fn what_several_cannot_do_is_refused_before_anything_happens() {
    bounded(|| {
        let dir = tempfile::tempdir().unwrap();
        let refused = |names: &[&str], job: &Job| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            coordinate(&names, job, &Quiet::default()).1.unwrap().0
        };
        let mut job = job(dir.path(), 1);
        assert!(refused(&["a", "a"], &job).contains("twice"));
        job.profile.spans[0].targets[0].path = "smb://server/share/f".into();
        assert!(refused(&["a", "b"], &job).contains("{agent}"));
        // A volume is each agent's own: what is refused is only that nobody listens there.
        job.profile.spans[0].targets[0].path = "holdfast://volume/f".into();
        assert!(refused(&["127.0.0.1:1", "127.0.0.1:2"], &job).contains("cannot be reached"));
        job.profile.spans[0].targets[0].threads = 4000;
        assert!(refused(&["a", "b"], &job).contains("4096 threads"));
    });
}

#[test]
fn an_agent_that_cannot_do_the_job_says_why() {
    bounded(|| {
        let runner = local();
        let ((_, failed), _) = with_agent(&secret(), &runner, |name| {
            let mut job = job(Path::new("/nonexistent"), 1);
            job.profile.spans[0].targets[0].create = None;
            coordinate(&[name.into()], &job, &Quiet::default())
        });
        assert!(failed.unwrap().0.contains("does not exist"));
    });
}

#[test]
fn messages_survive_the_way() {
    bounded(|| {
        for (_, bytes) in fuzz::samples() {
            fuzz::message(&bytes);
            let both = ToAgent::decode(&bytes).is_ok() || ToCoordinator::decode(&bytes).is_ok();
            assert!(both, "{bytes:?}");
        }
    });
}
