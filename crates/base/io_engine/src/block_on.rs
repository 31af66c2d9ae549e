//! Driving one future on a thread that has an engine but no event loop.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::EngineGuard;

struct Ignore;

impl Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

/// Runs `future` to its end, sleeping in the engine while it waits for I/O.
///
/// The future may wait for nothing but this thread's I/O (and short locks): there is no timer and no one else
/// to wake it.
///
/// # Errors
/// When the engine itself fails.
pub fn block_on<F: Future>(engine: &EngineGuard, future: F) -> io::Result<F::Output> {
    let waker = Waker::from(Arc::new(Ignore));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        if engine.engine().wait()? == 0 {
            // Nothing is in flight: the future waits for another thread (a lock held there). Let that one run.
            std::thread::yield_now();
        }
    }
}
