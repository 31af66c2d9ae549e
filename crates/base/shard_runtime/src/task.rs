//! Tasks and timers of the shard that calls.

use std::future::Future;
use std::time::Duration;

pub use tokio::task::JoinHandle;

/// Starts a task on this shard. Must be called on a shard (inside a `LocalSet`).
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(future)
}

/// Ends after `duration`, in virtual time under simulation. Resolution: 1 ms.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Lets other tasks of this shard run.
pub async fn yield_now() {
    tokio::task::yield_now().await;
}

/// The future's output, or `None` when `duration` passes first.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(duration, future).await.ok()
}
