//! Dropping a future at each of its waits.
//!
//! ```text
//!   for point in 0.. { a world as it was;  until_wait(request, point);  cut what the product cuts;  look at the world }
//! ```

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// After so much time without an end a future counts as one that waits for ever.
const FOR_EVER: Duration = Duration::from_secs(1000);

/// Where a future was left.
#[derive(Debug)]
pub enum Left<T> {
    /// It has ended by itself, at an earlier wait than the one that was asked for.
    Ended(T),
    /// At the wait that was asked for.
    Waiting,
    /// It waits for somebody else, and nobody comes.
    ForEver,
}

/// Lets `future` go on until it has waited `point` times before and waits again, and leaves it there: it is the caller's to drop.
pub async fn until_wait<F: Future>(point: usize, mut future: Pin<&mut F>) -> Left<F::Output> {
    let mut waits = 0;
    let going = poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Left::Ended(output)),
        Poll::Pending if waits == point => Poll::Ready(Left::Waiting),
        Poll::Pending => {
            waits += 1;
            Poll::Pending
        }
    });
    shard_runtime::timeout(FOR_EVER, going).await.unwrap_or(Left::ForEver)
}
