//! Work that must come to its end even when nobody waits for it any more.
//!
//! A write that is under way on several disks cannot be taken back: its range stays locked until every disk
//! has answered, also when the connection that asked for it is gone. [`finish_anyway`] gives such a future a
//! second home: dropped half-way, it moves to a task of the shard and ends there.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

type Detached = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static HOME: RefCell<Option<mpsc::UnboundedSender<Detached>>> = const { RefCell::new(None) };
}

/// Makes this thread a home for detached work; must be called inside its `LocalSet`. Shards and the simulator
/// do it at their start.
pub fn adopt_detached_work() {
    let (sender, mut queue) = mpsc::unbounded_channel();
    HOME.with(|home| *home.borrow_mut() = Some(sender));
    tokio::task::spawn_local(async move {
        while let Some(work) = queue.recv().await {
            tokio::task::spawn_local(work);
        }
    });
}

/// Runs `work` on this shard without anybody waiting. On a thread that is no home it does not run.
pub fn detach(work: impl Future<Output = ()> + 'static) {
    send_home(Box::pin(work));
}

/// Whether [`detach`] finds a home on this thread: for work that need not be done.
#[must_use]
pub fn can_detach() -> bool {
    HOME.try_with(|home| home.borrow().as_ref().is_some_and(|home| !home.is_closed())).unwrap_or(false)
}

fn send_home(work: Detached) {
    let home = HOME.try_with(|home| home.borrow().clone()).ok().flatten();
    let refused = match home {
        Some(home) => home.send(work).err().map(|refused| refused.0),
        None => Some(work),
    };
    // The shard is ending. Dropping the work would release what it locks while its I/O is still under way;
    // the engine waits for that I/O, and the process ends soon after: leaking is safe, dropping is not.
    std::mem::forget(refused);
}

/// `future`, which comes to its end on this shard even if the returned one is dropped.
pub fn finish_anyway<F: Future + 'static>(future: F) -> FinishAnyway<F> {
    FinishAnyway { future: Some(Box::pin(future)), started: false }
}

/// The future of [`finish_anyway`].
pub struct FinishAnyway<F: Future + 'static> {
    future: Option<Pin<Box<F>>>,
    started: bool,
}

impl<F: Future + 'static> Future for FinishAnyway<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.started = true;
        let Some(future) = &mut self.future else { return Poll::Pending };
        let output = match future.as_mut().poll(cx) {
            Poll::Ready(output) => output,
            Poll::Pending => return Poll::Pending,
        };
        self.future = None;
        Poll::Ready(output)
    }
}

impl<F: Future + 'static> Drop for FinishAnyway<F> {
    fn drop(&mut self) {
        // What never started has done nothing, and need not.
        if self.started
            && let Some(future) = self.future.take()
        {
            send_home(Box::pin(async move {
                future.await;
            }));
        }
    }
}
