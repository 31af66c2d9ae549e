//! The tests that every [`ClusterStore`] must pass.
//!
//! A bench brings stores of several clients that see the same keys, and drives the futures. What faults may do to an answer is
//! not tested here: that differs, and each implementation shows it in tests of its own.

mod changes;
mod transactions;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster_store::{ClusterStore, Found, Outcome, Range, Revision, Step, Transaction};

/// A test as a future.
pub type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What an implementation brings.
pub trait Bench {
    /// The store as the client of this number has it; all see the same keys, of which there are none under `/conformance/` yet.
    fn store(&self, client: usize) -> Arc<dyn ClusterStore>;
    /// Runs this to its end.
    fn run(&self, work: Work<'_>);
    /// Makes the store forget its changes up to a revision; false when that cannot be asked of it.
    fn compact(&self, through: Revision) -> bool;
}

/// Runs the suite; `bench` makes a new, empty one for each test.
///
/// # Panics
/// When the store does not do what every store must.
pub fn run_all(bench: &dyn Fn() -> Box<dyn Bench>) {
    transactions::run(bench);
    changes::run(bench);
}

/// Polls until the future is ready: for stores that need nobody else to make progress.
///
/// # Panics
/// When it is not ready after a million polls: nothing will make it so.
#[expect(clippy::panic, reason = "a test helper: a store that never answers has failed")]
pub fn poll_to_end<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("a future is never ready");
}

/// Polls two futures in turn until both are ready.
pub(crate) async fn both(mut one: Work<'_>, mut other: Work<'_>) {
    let (mut one_ready, mut other_ready) = (false, false);
    std::future::poll_fn(move |context| {
        one_ready = one_ready || one.as_mut().poll(context).is_ready();
        other_ready = other_ready || other.as_mut().poll(context).is_ready();
        if one_ready && other_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

pub(crate) fn key(name: &str) -> String {
    format!("/conformance/{name}")
}

pub(crate) fn put(name: &str, value: &str) -> Step {
    Step::Put(key(name), value.as_bytes().to_vec())
}

pub(crate) fn delete(name: &str) -> Step {
    Step::Delete(key(name))
}

pub(crate) async fn steps(store: &dyn ClusterStore, steps: Vec<Step>) -> Outcome {
    let outcome =
        store.transact(Transaction { steps, ..Transaction::default() }).await.unwrap_or_else(refused);
    assert!(outcome.done, "a transaction without conditions is done");
    outcome
}

pub(crate) async fn find(store: &dyn ClusterStore, name: &str) -> Option<Found> {
    store.get(Range::Key(key(name))).await.unwrap_or_else(refused).found.pop()
}

#[expect(clippy::panic, reason = "a test helper: a store that refuses has failed")]
pub(crate) fn refused<T>(error: cluster_store::StoreError) -> T {
    panic!("the store refuses: {error}")
}
