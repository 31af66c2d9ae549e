//! The simulated store for code that waits: futures, and who drives them.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster_store::{
    Change, ClusterStore, Outcome, Range, Revision, Snapshot, StoreError, StoreFuture, Transaction, Watch,
};
use parking_lot::Mutex;

use crate::store::{ClientId, Reply, Request, RequestId, SimStore, Time};

/// A client waits so long for an answer.
const PATIENCE: Time = 2_000_000_000;

struct Shared {
    store: SimStore,
    now: Time,
    answers: BTreeMap<RequestId, VecDeque<Reply>>,
    deadlines: BTreeMap<(Time, RequestId), ()>,
}

/// A client of a simulated store. Clones with another number share the store.
#[derive(Clone)]
pub struct SimClient {
    shared: Arc<Mutex<Shared>>,
    client: ClientId,
}

impl SimClient {
    /// The first client of a store.
    #[must_use]
    pub fn new(store: SimStore) -> Self {
        let shared = Shared { store, now: 0, answers: BTreeMap::new(), deadlines: BTreeMap::new() };
        Self { shared: Arc::new(Mutex::new(shared)), client: 0 }
    }

    /// Another client of the same store.
    #[must_use]
    pub fn client(&self, client: ClientId) -> Self {
        Self { client, ..self.clone() }
    }

    /// Changes what the store does from now on.
    pub fn with<T>(&self, change: impl FnOnce(&mut SimStore) -> T) -> T {
        change(&mut self.shared.lock().store)
    }

    fn send(&self, request: Request) -> RequestId {
        let mut shared = self.shared.lock();
        let now = shared.now;
        let lasting = matches!(request, Request::Watch(..));
        let id = shared.store.send(now, self.client, request);
        if !lasting {
            shared.deadlines.insert((now + PATIENCE, id), ());
        }
        id
    }

    async fn answer(&self, id: RequestId) -> Option<Reply> {
        std::future::poll_fn(|_| {
            let mut shared = self.shared.lock();
            let now = shared.now;
            if let Some(reply) = shared.answers.get_mut(&id).and_then(VecDeque::pop_front) {
                return Poll::Ready(Some(reply));
            }
            let late = shared.deadlines.keys().any(|(at, of)| *of == id && *at <= now);
            if late { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Goes on to the next event; false when there is none.
    fn step(&self) -> bool {
        let mut shared = self.shared.lock();
        let deadline = shared.deadlines.keys().map(|(at, _)| *at).find(|at| *at > shared.now);
        let Some(at) = shared.store.next_at().into_iter().chain(deadline).min() else { return false };
        shared.now = shared.now.max(at);
        let now = shared.now;
        for delivery in shared.store.advance(now) {
            shared.answers.entry(delivery.request).or_default().push_back(delivery.reply);
        }
        true
    }
}

/// Runs a future to its end; time goes on when it waits.
///
/// # Panics
/// When it waits for what never happens.
#[expect(clippy::panic, reason = "a test helper: nothing more can happen")]
pub fn run<T>(client: &SimClient, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        if !client.step() {
            panic!("waits for what never happens");
        }
    }
}

fn silent() -> String {
    "no answer in time".into()
}

impl ClusterStore for SimClient {
    fn get(&self, range: Range) -> StoreFuture<'_, Snapshot> {
        Box::pin(async move {
            match self.answer(self.send(Request::Get(range))).await {
                Some(Reply::Got(answer)) => answer,
                _ => Err(StoreError::NotDone(silent())),
            }
        })
    }

    fn transact(&self, transaction: Transaction) -> StoreFuture<'_, Outcome> {
        Box::pin(async move {
            match self.answer(self.send(Request::Transact(transaction))).await {
                Some(Reply::Done(answer)) => answer,
                _ => Err(StoreError::Unknown(silent())),
            }
        })
    }

    fn watch(&self, prefix: String, after: Revision) -> StoreFuture<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let id = self.send(Request::Watch(prefix, after));
            Ok(Box::new(SimWatch { client: self.clone(), id }) as Box<dyn Watch>)
        })
    }
}

struct SimWatch {
    client: SimClient,
    id: RequestId,
}

impl Watch for SimWatch {
    fn next(&mut self) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async move {
            match self.client.answer(self.id).await {
                Some(Reply::Changed(changes)) => changes,
                _ => Err(StoreError::NotDone(silent())),
            }
        })
    }
}
