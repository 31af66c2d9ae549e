//! The engine of a thread: how it is installed, and the future of a request.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::carry_out::carry_out;
use crate::{IoCompletion, IoRequest, IoTarget};

/// Names a request in flight; meaningful only to the engine that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitToken(pub u64);

/// What carries requests out on one thread.
///
/// Methods take `&self`: an engine lives on one thread and keeps its state in cells; none of them re-enters.
pub trait Engine {
    /// The engine's name for logs and metrics: `ring`, `blocking`, `simulated`.
    fn kind(&self) -> &'static str;

    /// A descriptor that polls readable when [`Engine::reap`] has something to collect, if there is one.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    fn event_fd(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Takes a request; it may wait in a queue until [`Engine::flush`].
    fn submit(&self, request: IoRequest) -> SubmitToken;

    /// The completion of `token` if it is there; else keeps `waker` for it. After `Ready` the token is spent.
    fn poll(&self, token: SubmitToken, waker: &Waker) -> Poll<IoCompletion>;

    /// The caller lost interest: free the slot when the request ends, and its buffers with it.
    fn abandon(&self, token: SubmitToken);

    /// Hands queued requests to the kernel: once per turn of the event loop, and before parking.
    fn flush(&self) -> io::Result<()>;

    /// Collects completions that are there and wakes their futures; never blocks.
    fn reap(&self) -> usize;

    /// Blocks until at least one request has ended, then reaps. For threads without an event loop.
    fn wait(&self) -> io::Result<usize>;
}

thread_local! {
    static ENGINE: RefCell<Option<Rc<dyn Engine>>> = const { RefCell::new(None) };
}

/// Keeps a thread's engine installed; dropping it takes the engine away.
pub struct EngineGuard {
    engine: Rc<dyn Engine>,
    _not_send: PhantomData<*const ()>,
}

impl EngineGuard {
    /// The installed engine, for whoever drives it.
    #[must_use]
    pub fn engine(&self) -> Rc<dyn Engine> {
        Rc::clone(&self.engine)
    }
}

impl Drop for EngineGuard {
    fn drop(&mut self) {
        let _ = ENGINE.try_with(|slot| slot.borrow_mut().take());
    }
}

/// Makes `engine` this thread's engine, in place of any that was there.
#[must_use]
pub fn install(engine: Rc<dyn Engine>) -> EngineGuard {
    ENGINE.with(|slot| *slot.borrow_mut() = Some(Rc::clone(&engine)));
    EngineGuard { engine, _not_send: PhantomData }
}

/// The kind of this thread's engine, if it has one.
#[must_use]
pub fn kind() -> Option<&'static str> {
    ENGINE.with(|slot| slot.borrow().as_ref().map(|engine| engine.kind()))
}

/// Submits a request to this thread's engine.
///
/// On a thread without an engine the future ends at once with [`io::ErrorKind::Unsupported`].
#[must_use]
pub fn submit(request: IoRequest) -> IoFuture {
    let engine = ENGINE.with(|slot| slot.borrow().clone());
    match engine {
        Some(_) if matches!(request.target, IoTarget::InMemory(_)) => {
            IoFuture { state: State::Ended(Some(carry_out(request))) }
        }
        Some(engine) => {
            let token = engine.submit(request);
            IoFuture { state: State::Pending(engine, token) }
        }
        None => {
            let result = Err(io::Error::new(io::ErrorKind::Unsupported, "this thread has no I/O engine"));
            IoFuture { state: State::Ended(Some(IoCompletion { result, op: request.op })) }
        }
    }
}

/// Hands this thread's queued requests to the kernel. Event loops do it before parking; a task that has
/// started a batch may do it at once so that the disks start while it goes on.
pub fn flush() {
    let engine = ENGINE.with(|slot| slot.borrow().clone());
    if let Some(engine) = engine {
        // A ring that cannot be entered shows in the requests, which then never end: nothing to add here.
        let _ = engine.flush();
    }
}

/// Collects completions of this thread's engine and wakes their futures.
pub fn reap() -> usize {
    let engine = ENGINE.with(|slot| slot.borrow().clone());
    engine.map_or(0, |engine| engine.reap())
}

enum State {
    Pending(Rc<dyn Engine>, SubmitToken),
    Ended(Option<IoCompletion>),
    Done,
}

/// A request in flight.
pub struct IoFuture {
    state: State,
}

impl Future for IoFuture {
    type Output = IoCompletion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoCompletion> {
        let completion = match &mut self.state {
            State::Pending(engine, token) => match engine.poll(*token, cx.waker()) {
                Poll::Ready(completion) => completion,
                Poll::Pending => return Poll::Pending,
            },
            State::Ended(completion) => match completion.take() {
                Some(completion) => completion,
                None => return Poll::Pending,
            },
            // Polled after it ended, which a correct caller does not do: stay pending rather than panic.
            State::Done => return Poll::Pending,
        };
        self.state = State::Done;
        Poll::Ready(completion)
    }
}

impl Drop for IoFuture {
    fn drop(&mut self) {
        if let State::Pending(engine, token) = &self.state {
            engine.abandon(*token);
        }
    }
}
