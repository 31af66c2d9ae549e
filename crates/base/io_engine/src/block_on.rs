//! Driving one future on a thread that has an engine but no event loop.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::EngineGuard;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` to its end, sleeping in the engine while it waits for I/O.
///
/// The future may wait for this thread's I/O and for other threads, but has no timer. While I/O is in flight
/// it is woken by that I/O; a wake-up from another thread is then seen at the next completion.
///
/// # Errors
/// When the engine itself fails.
pub fn block_on<F: Future>(engine: &EngineGuard, future: F) -> io::Result<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        if engine.engine().wait()? == 0 {
            // Nothing is in flight: another thread will wake the future (or already has: then this returns at once).
            std::thread::park();
        }
    }
}
