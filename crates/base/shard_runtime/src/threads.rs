//! Threads of their own for work that blocks, and how a simulation runs them one at a time.
//!
//! ```text
//!   as they ship                         where turns are taken ([`take_turns`])
//!   event loop ──────────►               event loop ───┐     ┌── a task gives the turn ──┐     ┌──►
//!   thread     ──────────►               thread        └─────┘ ◄── it waits for a future └─────┘
//! ```
//! Where turns are taken, either the event loop runs or one thread, which gives the turn back when it has to wait.
//! So what happens, and in which order, follows from the order of the event loop alone, and virtual time stands
//! still while a thread works. The price is that a thread started otherwise than here is not seen.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The turns that this thread takes part in; an event loop has no number.
    static TURNS: RefCell<Option<(Arc<Turns>, Option<u64>)>> = const { RefCell::new(None) };
}

/// How often a future that only lets others run is polled in one turn: a change of turns costs two of threads.
const POLLS_A_TURN: u32 = 6;

/// The event loop or the thread that runs now.
#[derive(Default)]
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread that runs; none when the event loop does.
    running: Option<u64>,
    /// Threads that want a turn.
    ready: VecDeque<u64>,
    alive: BTreeSet<u64>,
    last: u64,
    /// The task that gives turns.
    giver: Option<Waker>,
    /// The event loop has ended: everybody runs as it likes.
    over: bool,
}

impl Turns {
    fn want(&self, number: u64) {
        let mut state = self.state.lock();
        if state.alive.contains(&number) && !state.ready.contains(&number) {
            state.ready.push_back(number);
        }
        let giver = state.giver.take();
        drop(state);
        if let Some(giver) = giver {
            giver.wake();
        }
    }

    /// Waits on this thread for its turn; `false` when nobody gives turns any more.
    fn wait(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        while state.running != Some(number) && !state.over {
            self.changed.wait(&mut state);
        }
        !state.over
    }

    /// Takes the wish for another turn back, if there is one.
    fn goes_on(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let wishes = state.ready.len();
        state.ready.retain(|other| *other != number);
        state.ready.len() < wishes
    }

    fn give_back(&self, number: u64) {
        let mut state = self.state.lock();
        if state.running == Some(number) {
            state.running = None;
            self.changed.notify_all();
        }
    }

    /// Gives one turn and waits for its end; `Ready` when there are no more to give.
    fn give_one(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(next) = state.ready.pop_front() else {
            state.giver = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.running = Some(next);
        self.changed.notify_all();
        while state.running.is_some() {
            self.changed.wait(&mut state);
        }
        // One turn at a time, so that the event loop's own tasks come between.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Ends the turns with the event loop.
struct Giver(Arc<Turns>);

impl Drop for Giver {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.over = true;
        self.0.changed.notify_all();
    }
}

/// Makes threads that are started from here take turns with this event loop. Call inside its `LocalSet`; for
/// simulators.
pub fn take_turns() {
    let turns = Arc::new(Turns::default());
    TURNS.with(|here| *here.borrow_mut() = Some((Arc::clone(&turns), None)));
    let giver = Giver(turns);
    tokio::task::spawn_local(async move { std::future::poll_fn(|context| giver.0.give_one(context)).await });
}

/// Threads that take turns with this event loop and have not ended.
#[must_use]
pub fn threads_alive() -> usize {
    turns().map_or(0, |(turns, _)| turns.state.lock().alive.len())
}

fn turns() -> Option<(Arc<Turns>, Option<u64>)> {
    TURNS.try_with(|here| here.borrow().clone()).ok().flatten()
}

/// A thread started by [`spawn_thread`].
pub struct Thread {
    handle: std::thread::JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

impl Thread {
    /// Whether its work has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for its end, which blocks; a panic of its work is not passed on.
    pub fn join(self) {
        let _ = self.handle.join();
    }
}

/// A thread's part in the turns; dropped at its end, also when it panics.
struct Part {
    turn: Option<(Arc<Turns>, u64)>,
    ended: Arc<AtomicBool>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some((turns, number)) = &self.turn {
            let mut state = turns.state.lock();
            state.alive.remove(number);
            state.ready.retain(|other| other != number);
            drop(state);
            turns.give_back(*number);
        }
    }
}

/// Starts a thread for work that blocks, which must wait by [`block_on`] or in ways that end by themselves.
///
/// # Errors
/// When the system has no more threads.
pub fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    let ended = Arc::new(AtomicBool::new(false));
    let turn = turns().map(|(turns, _)| {
        let mut state = turns.state.lock();
        state.last += 1;
        let number = state.last;
        state.alive.insert(number);
        drop(state);
        (turns, number)
    });
    let part = Part { turn: turn.clone(), ended: Arc::clone(&ended) };
    let handle = std::thread::Builder::new().name(name.into()).spawn(move || {
        let part = part;
        if let Some((turns, number)) = &part.turn {
            TURNS.with(|here| *here.borrow_mut() = Some((Arc::clone(turns), Some(*number))));
            turns.wait(*number);
        }
        work();
    })?;
    if let Some((turns, number)) = turn {
        turns.want(number);
    }
    Ok(Thread { handle, ended })
}

/// Whether this thread takes turns: then it waits for futures by [`block_on`], for device I/O too.
#[must_use]
pub fn takes_turns() -> bool {
    turns().is_some_and(|(_, number)| number.is_some())
}

/// What a future that this thread waits for wakes.
struct Sleeper {
    thread: std::thread::Thread,
    turn: Option<(Arc<Turns>, u64)>,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        if let Some((turns, number)) = &self.turn {
            turns.want(*number);
        }
        self.thread.unpark();
    }
}

/// Waits on this thread for `future`, which needs neither this thread's timers nor its I/O engine.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let turn = turns().and_then(|(turns, number)| Some((turns, number?)));
    let sleeper = Arc::new(Sleeper { thread: std::thread::current(), turn: turn.clone() });
    let waker = Waker::from(sleeper);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let goes_on = turn.as_ref().is_some_and(|(turns, number)| {
            if polls % POLLS_A_TURN != 0 && turns.goes_on(*number) {
                return true;
            }
            turns.give_back(*number);
            turns.wait(*number)
        });
        if !goes_on {
            std::thread::park();
        }
    }
}
