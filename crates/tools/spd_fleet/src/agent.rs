//! The agent: waits for a coordinator that knows the secret, does its job, tells what was measured.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shard_runtime::{Clock, Entropy};
use spd_engine::{Control, EngineError, Progress};
use spd_profile::TimeSpan;
use spd_report::{SpanOutcome, System, ThreadOutcome};

use crate::channel::{Receiver, Sender, accept};
use crate::message::{Job, ToAgent, ToCoordinator};
use crate::outcome::End;
use crate::secret::Secret;
use crate::{HEARTBEAT, SILENCE};

/// Connections that may be open at once; more are closed at once.
const CONNECTIONS: usize = 16;
/// How often the agent looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Before a beginning the thread no longer sleeps: the kernel would wake it up to so many nanoseconds too late.
const SPIN: u64 = 300_000;
/// A start further away than this, in nanoseconds, was meant for another clock.
const FARTHEST_START: u64 = 60_000_000_000;

/// What generates the load.
pub trait Runner: Sync {
    /// The machine.
    fn system(&self) -> System;

    /// Prepares a time span of a job and runs it; the load begins when `control` releases it.
    ///
    /// # Errors
    /// When it cannot be run.
    fn run(&self, job: &Job, span: &TimeSpan, control: &dyn Control) -> Result<SpanOutcome, EngineError>;
}

/// Serves coordinators on `listener`, one after the other, until `stop`; `say` gets a line for each of them.
///
/// # Errors
/// When the listener fails.
pub fn serve(
    listener: &TcpListener,
    secret: &Secret,
    (clock, entropy): (&Arc<dyn Clock>, &dyn Entropy),
    runner: &dyn Runner,
    stop: &AtomicBool,
    say: &(dyn Fn(&str) + Sync),
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let (connections, busy) = (AtomicUsize::new(0), Mutex::new(()));
    // Scoped threads of their own: they block, and what they borrow lives here.
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_passing(&error) => {
                    std::thread::park_timeout(LOOK);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if connections.load(Ordering::Relaxed) >= CONNECTIONS {
                continue;
            }
            connections.fetch_add(1, Ordering::Relaxed);
            let (connections, busy) = (&connections, &busy);
            let work = move || {
                match connection(stream, secret, (clock, entropy), runner, stop, busy) {
                    Ok(what) => say(&format!("{peer}: {what}")),
                    Err(why) => say(&format!("{peer}: refused: {why}")),
                }
                connections.fetch_sub(1, Ordering::Relaxed);
            };
            if let Err(error) =
                std::thread::Builder::new().name("coordinator".into()).spawn_scoped(scope, work)
            {
                say(&format!("{peer}: no thread for it: {error}"));
                connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    })
}

/// No connection is waiting, or the one that waited has gone, or descriptors are short for now.
fn is_passing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
        // EMFILE, ENFILE: connections that end give some back.
        || matches!(error.raw_os_error(), Some(23 | 24))
}

/// One coordinator, from its greeting to its end; what was done for it.
fn connection(
    stream: TcpStream,
    secret: &Secret,
    (clock, entropy): (&Arc<dyn Clock>, &dyn Entropy),
    runner: &dyn Runner,
    stop: &AtomicBool,
    busy: &Mutex<()>,
) -> Result<String, String> {
    let blocking = stream.set_nonblocking(false).map_err(|error| error.to_string());
    blocking?;
    let (sender, receiver) = accept(stream, secret, entropy).map_err(|error| error.to_string())?;
    let line = Line {
        sender: Mutex::new(Some(sender)),
        ended: stop,
        stop: AtomicBool::new(false),
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    let (jobs, inbox) = sync_channel(1);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| line.listen(receiver, &jobs, clock.as_ref()));
        let heart = scope.spawn(|| line.beat());
        let turn = busy.try_lock();
        let what = match turn {
            None => {
                line.tell(&ToCoordinator::Failed("it runs a test of another coordinator already".into()));
                "turned away: a test is running".to_owned()
            }
            Some(_) => work(&line, &inbox, runner),
        };
        // The coordinator closes when it has everything: closing first could take unread results from it.
        let _ = reader.join();
        line.close();
        let _ = heart.join();
        Ok(what)
    })
}

/// Takes the job and does it.
fn work(line: &Line<'_>, inbox: &Inbox<Job>, runner: &dyn Runner) -> String {
    let job = loop {
        // Asked before the inbox is: a job that came before the stop is taken, and its end told.
        let is_over = line.stop();
        match inbox.try_recv() {
            Ok(job) => break job,
            Err(TryRecvError::Disconnected) => return "went away without a job".into(),
            Err(TryRecvError::Empty) if is_over => return "went away without a job".into(),
            Err(TryRecvError::Empty) => std::thread::park_timeout(Duration::from_millis(1)),
        }
    };
    let checked = spd_profile::validate(&job.profile, true).map(drop).and_then(|()| {
        spd_profile::check_linux(&job.profile, |path| path.starts_with(r"\\") || path.contains("://"))
    });
    if let Err(why) = checked {
        line.tell(&ToCoordinator::Failed(why.0));
        return "its job made no sense".into();
    }
    line.tell(&ToCoordinator::Accepted(Box::new(runner.system())));
    // Another agent may not take part: what this one made and destroyed would be for nothing.
    if !line.may_prepare() {
        line.tell(&ToCoordinator::Failed("it was ended before it prepared anything".into()));
        return "ended before anything was prepared".into();
    }
    for (number, span) in job.profile.spans.iter().enumerate() {
        line.state.lock().span = number as u16;
        match runner.run(&job, span, line) {
            Ok(outcome) => line.report(outcome),
            Err(why) => {
                line.tell(&ToCoordinator::Failed(why.0.clone()));
                return format!("could not do the job: {why}");
            }
        }
        if line.stop() {
            return "ended before its time".into();
        }
    }
    "done".into()
}

/// What the reader has heard.
#[derive(Default)]
struct State {
    /// The time span that is prepared or run.
    span: u16,
    /// All agents take part.
    prepare: bool,
    /// When the load begins, by this machine's clock.
    start: Option<u64>,
    /// The connection's threads end.
    closed: bool,
}

/// The connection to the coordinator, as the threads of this side share it.
struct Line<'a> {
    sender: Mutex<Option<Sender>>,
    /// The agent ends.
    ended: &'a AtomicBool,
    /// The coordinator said so, or vanished.
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Line<'_> {
    /// Sends a message; a coordinator that cannot be told anything has vanished.
    fn tell(&self, message: &ToCoordinator) {
        let sent = self.sender.lock().as_mut().map(|sender| sender.send(&message.encode()));
        if !matches!(sent, Some(Ok(()))) {
            self.halt();
        }
    }

    fn halt(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Ends the connection and the threads that serve it.
    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        drop(self.sender.lock().take());
    }

    /// Hears the coordinator until it closes or vanishes, which ends the load.
    fn listen(&self, mut receiver: Receiver, jobs: &SyncSender<Job>, clock: &dyn Clock) {
        while let Ok(bytes) = receiver.receive() {
            let now = clock.now().0;
            match ToAgent::decode(&bytes) {
                Ok(ToAgent::Job(job)) => {
                    // A second job is none of this version's: it stays unheard.
                    let _ = jobs.try_send(*job);
                }
                Ok(ToAgent::Prepare) => {
                    self.state.lock().prepare = true;
                    self.changed.notify_all();
                }
                Ok(ToAgent::Ping(id)) => self.tell(&ToCoordinator::Pong(id, now)),
                Ok(ToAgent::Start(at)) => {
                    self.state.lock().start = Some(at);
                    self.changed.notify_all();
                }
                Ok(ToAgent::Stop) => self.halt(),
                Ok(ToAgent::Alive) => {}
                Err(_) => break,
            }
        }
        self.halt();
    }

    /// Waits until all agents have taken the job; `false` when it ends before.
    fn may_prepare(&self) -> bool {
        let mut state = self.state.lock();
        while !state.prepare && !self.stop() {
            // The agent's own end is only looked at.
            self.changed.wait_for(&mut state, LOOK);
        }
        !self.stop()
    }

    /// Says again and again that this side is there.
    fn beat(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            if self.changed.wait_for(&mut state, HEARTBEAT).timed_out() {
                parking_lot::MutexGuard::unlocked(&mut state, || self.tell(&ToCoordinator::Alive));
            }
        }
    }

    /// Tells all that was measured in a time span.
    fn report(&self, outcome: SpanOutcome) {
        for (number, thread) in outcome.threads.into_iter().enumerate() {
            for target in thread.targets {
                self.tell(&ToCoordinator::Part(number as u32, Box::new(target)));
            }
            let waits = ThreadOutcome { targets: Vec::new(), waits: thread.waits };
            self.tell(&ToCoordinator::Thread(number as u32, Box::new(waits)));
        }
        let end = End {
            seconds: outcome.seconds,
            cpus: outcome.cpus,
            ended_early: outcome.ended_early,
            open_loop: outcome.open_loop,
            verify: outcome.verify,
        };
        self.tell(&ToCoordinator::End(Box::new(end)));
    }
}

impl Control for Line<'_> {
    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.ended.load(Ordering::Relaxed)
    }

    fn progress(&self, progress: &Progress) {
        self.tell(&ToCoordinator::Progress(progress.clone()));
    }

    fn release(&self, clock: &dyn Clock) -> Option<u64> {
        let span = self.state.lock().span;
        self.tell(&ToCoordinator::Ready(span));
        let mut state = self.state.lock();
        let at = loop {
            if self.stop() {
                return None;
            }
            match state.start.take() {
                Some(at) => break at,
                // The agent's own end is only looked at.
                None => drop(self.changed.wait_for(&mut state, LOOK.min(SILENCE))),
            }
        };
        loop {
            let now = clock.now().0;
            match at.saturating_sub(now) {
                0 => break,
                FARTHEST_START.. => return None,
                left if left <= SPIN => std::hint::spin_loop(),
                left => drop(self.changed.wait_for(&mut state, Duration::from_nanos(left - SPIN))),
            }
            if self.stop() {
                return None;
            }
        }
        drop(state);
        let began = clock.now().0;
        self.tell(&ToCoordinator::Began(began));
        Some(began)
    }
}
