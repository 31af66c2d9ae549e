//! A connection whose loop stood still (a process that was stopped, a machine that slept) ends, and nothing more of it is read.
//!
//! What its client sent before may have been answered by another node since, and the client may have given it up: carried out now, it could
//! undo what came after it.

use std::future::Future;
use std::sync::Arc;

/// Notices that an event loop stood still.
pub trait LoopWatch: Send + Sync + 'static {
    /// The loop turns; how often it has stood still until now. Asked whenever a connection goes on: costs little.
    fn look(&self) -> u64;
}

/// Serves until the loop has stood still; asked before each step of serving.
pub(crate) async fn until_stand_still(watch: Option<Arc<dyn LoopWatch>>, serving: impl Future<Output = ()>) {
    let Some(watch) = watch else { return serving.await };
    let began = watch.look();
    let mut serving = std::pin::pin!(serving);
    std::future::poll_fn(|cx| {
        if watch.look() == began { serving.as_mut().poll(cx) } else { std::task::Poll::Ready(()) }
    })
    .await;
}
