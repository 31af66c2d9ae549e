//! What one node asks another to do for somebody who has asked it: to move a pool that the other one owns, to pause.
//!
//! ```text
//!   asked here ─► orders/N/UUID ─► node N sees it, writes that it begins, does it, writes what came of it ─► answered here, and the key is gone
//! ```
//! Only members can write there, so node N does what it finds as for the one who is named in it, and puts it into its own record of changes, too.
//! Whoever waits no longer takes the order away: what was not begun by then is never done.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{Key, NodeId};
use cluster_store::values::{NodeOrder, NodeVerb, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Revision, Step, StoreError, Transaction};
use control_api::{Code, Problem, Proof, Role};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Cluster;

/// An answer is looked for so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// It is waited for so long: a pool that moves is closed cleanly first, and opened.
const ANSWERED_WITHIN: Duration = Duration::from_secs(75);
/// A node that has not begun within this is not there.
const BEGUN_WITHIN: Duration = Duration::from_secs(5);
/// Orders at once.
const AT_ONCE: usize = 8;
/// Between attempts to see what this node is asked.
const PAUSE: Duration = Duration::from_millis(500);

/// Who asks, for the record of changes of the node that does it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct By {
    pub(crate) who: String,
    pub(crate) proof: Option<Proof>,
    pub(crate) role: Option<Role>,
}

/// What came of an order.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Done(String),
    Refused(Box<Problem>),
}

/// What carries out orders: the node.
pub(crate) trait Obeys: Send + Sync {
    /// Does it, and says what came of it.
    fn order(
        &self,
        through: String,
        by: By,
        verb: NodeVerb,
    ) -> Pin<Box<dyn Future<Output = Result<String, Problem>> + Send + '_>>;
}

/// An order that somebody waits for.
struct Asked {
    store: Arc<dyn ClusterStore>,
    key: String,
    runtime: tokio::runtime::Handle,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let gone = Transaction { steps: vec![Step::Delete(self.key.clone())], ..Transaction::default() };
        let store = self.store.clone();
        // One that stays, because the store is away, is taken away by whoever it is for.
        self.runtime.spawn(async move { store.transact(gone).await });
    }
}

/// What this node does for others now. It outlives a look at the store that breaks off.
struct AtWork {
    /// Nothing was looked at yet in this life of the node.
    is_first: bool,
    places: Arc<Semaphore>,
    keys: Arc<Mutex<BTreeSet<String>>>,
    /// Ends what is under way with the node.
    tasks: JoinSet<()>,
}

impl AtWork {
    fn new() -> Self {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { is_first: true, places, keys: Arc::default(), tasks: JoinSet::new() }
    }

    fn has(&self, key: &str) -> bool {
        self.keys.lock().contains(key)
    }

    /// A place for an order that is not at work yet.
    fn place(&mut self, key: &str) -> Option<Place> {
        while self.tasks.try_join_next().is_some() {}
        let place = self.places.clone().try_acquire_owned().ok()?;
        let fresh = self.keys.lock().insert(key.to_owned());
        fresh.then(|| Place { key: key.to_owned(), keys: self.keys.clone(), _place: place })
    }
}

/// An order at work.
struct Place {
    key: String,
    keys: Arc<Mutex<BTreeSet<String>>>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.key);
    }
}

impl Cluster {
    /// Has another node do something.
    ///
    /// # Errors
    /// What it says; when it is not there, or does not answer.
    pub(crate) async fn ask_node(&self, node: NodeId, by: &By, verb: NodeVerb) -> Result<String, Problem> {
        let name = self.name_of(node);
        let internal =
            |why: String| Problem::new(Code::Internal, format!("node {name} cannot be asked: {why}."));
        let away = |why: String| {
            Problem::new(Code::Unavailable, format!("node {name} {why}."))
                .todo(format!("`holdfast cluster status` says how it is; on node {name} itself the same command needs no other node."))
        };
        let id = Uuid::from_bytes(crate::entropy::<16>()?);
        let by = serde_json::to_string(by).map_err(|error| internal(error.to_string()))?;
        let order = NodeOrder { through: self.me, by, verb, begun: false, answer: None };
        let key = Key::Order(node, id).path(&self.name);
        let put = Transaction {
            conditions: vec![Condition::Present(Key::Member(node).path(&self.name))],
            steps: vec![Step::Put(key.clone(), order.encode().map_err(|why| internal(why.to_string()))?)],
            reads: Vec::new(),
        };
        let asked = Asked { store: self.store.clone(), key: key.clone(), runtime: self.control.clone() };
        if !self.store.transact(put).await.map_err(|error| away(format!("cannot be asked: {error}")))?.done {
            return Err(away("does not take part now".into()));
        }
        let asked_at = tokio::time::Instant::now();
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Ok(found) = self.store.get(Range::Key(key.clone())).await else { continue };
                let Some(found) = found.found.first() else {
                    return Err(away("has lost what it was asked".into()));
                };
                let order = NodeOrder::decode(&found.value).map_err(|why| internal(why.to_string()))?;
                if let Some(answer) = &order.answer {
                    return match serde_json::from_str(answer) {
                        Ok(Answer::Done(told)) => Ok(told),
                        Ok(Answer::Refused(problem)) => Err(*problem),
                        Err(error) => Err(internal(error.to_string())),
                    };
                }
                if !order.begun && asked_at.elapsed() > BEGUN_WITHIN {
                    // Taken back before anybody is told so: the node may begin in this moment.
                    let back = Transaction {
                        conditions: vec![Condition::Modified(key.clone(), found.modified)],
                        steps: vec![Step::Delete(key.clone())],
                        reads: Vec::new(),
                    };
                    if !self.store.transact(back).await.is_ok_and(|outcome| outcome.done) {
                        continue;
                    }
                    return Err(away(format!(
                        "has not begun within {} s: nothing was done",
                        BEGUN_WITHIN.as_secs()
                    )));
                }
            }
        };
        let ended = tokio::time::timeout(ANSWERED_WITHIN, looking).await;
        drop(asked);
        ended.unwrap_or_else(|_| Err(away("is still at it".into())))
    }

    /// Does what other nodes ask of this one, for ever.
    pub(super) async fn serve_orders(self: Arc<Self>, node: Arc<dyn Obeys>) {
        let prefix = format!("{}orders/{:05}/", self.name.root(), self.me.number());
        let mut at_work = AtWork::new();
        loop {
            if let Err(error) = self.serve_orders_once(&prefix, &node, &mut at_work).await {
                tracing::debug!("what other nodes ask of this one cannot be seen: {error}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Until changes cannot be seen any more: what was begun goes on meanwhile.
    async fn serve_orders_once(
        self: &Arc<Self>,
        prefix: &str,
        node: &Arc<dyn Obeys>,
        at_work: &mut AtWork,
    ) -> Result<(), StoreError> {
        let there = self.store.get(Range::Prefix(prefix.to_owned())).await?;
        let mut watch = self.store.watch(prefix.to_owned(), there.revision).await?;
        for left in there.found {
            match NodeOrder::decode(&left.value) {
                Ok(order) if !at_work.is_first && !order.begun && order.answer.is_none() => {
                    self.take_up(left, order, node, at_work);
                }
                // Whoever asked takes it away.
                Ok(order) if !at_work.is_first && (order.answer.is_some() || at_work.has(&left.key)) => {}
                // Of the life before: nobody knows how far it came, and who asked has been told that it does not answer.
                _ => {
                    // It may be answered by now: then it is for whoever asked to take away.
                    let conditions = vec![Condition::Modified(left.key.clone(), left.modified)];
                    let gone = Transaction {
                        conditions,
                        steps: vec![Step::Delete(left.key)],
                        ..Transaction::default()
                    };
                    self.store.transact(gone).await?;
                }
            }
        }
        at_work.is_first = false;
        loop {
            for found in watch.next().await?.into_iter().filter_map(|change| change.now) {
                let Ok(order) = NodeOrder::decode(&found.value) else { continue };
                if !order.begun && order.answer.is_none() {
                    self.take_up(found, order, node, at_work);
                }
            }
        }
    }

    /// Begins an order. One that finds no place is not begun, and whoever asks is told.
    fn take_up(
        self: &Arc<Self>,
        found: cluster_store::Found,
        order: NodeOrder,
        node: &Arc<dyn Obeys>,
        at_work: &mut AtWork,
    ) {
        let Some(place) = at_work.place(&found.key) else { return };
        let (this, node) = (self.clone(), node.clone());
        at_work.tasks.spawn(async move {
            let _place = place;
            if let Err(error) = this.obey(found.key, found.modified, order, &*node).await {
                tracing::warn!("an order of another node cannot be answered: {error}");
            }
        });
    }

    async fn obey(
        &self,
        key: String,
        seen: Revision,
        mut order: NodeOrder,
        node: &dyn Obeys,
    ) -> Result<(), StoreError> {
        order.begun = true;
        let Some(begun) = self.change_order(&key, seen, &order).await? else { return Ok(()) };
        let by = serde_json::from_str(&order.by).unwrap_or_else(|_| By {
            who: order.by.clone(),
            proof: None,
            role: None,
        });
        self.learn_names(&self.now());
        let answer = match node.order(self.name_of(order.through), by, order.verb).await {
            Ok(told) => Answer::Done(told),
            Err(problem) => Answer::Refused(Box::new(problem)),
        };
        order.answer = serde_json::to_string(&answer).ok();
        // None: nobody waits for it any more.
        self.change_order(&key, begun, &order).await.map(drop)
    }

    /// Writes an order if it is there as it was seen; its revision then. Again while the store does not answer: whoever asked waits for it.
    async fn change_order(
        &self,
        key: &str,
        seen: Revision,
        order: &NodeOrder,
    ) -> Result<Option<Revision>, StoreError> {
        let value = order.encode().map_err(|why| StoreError::NotDone(why.to_string()))?;
        let until = tokio::time::Instant::now() + ANSWERED_WITHIN;
        loop {
            let transaction = Transaction {
                conditions: vec![Condition::Modified(key.to_owned(), seen)],
                steps: vec![Step::Put(key.to_owned(), value.clone())],
                reads: vec![key.to_owned()],
            };
            match self.store.transact(transaction).await {
                Ok(outcome) if outcome.done => return Ok(Some(outcome.revision)),
                // An earlier try may have been made without an answer: nobody else writes this.
                Ok(outcome) => {
                    let there = outcome.reads.into_iter().flatten().next();
                    return Ok(there.filter(|found| found.value == value).map(|found| found.modified));
                }
                Err(error) if tokio::time::Instant::now() >= until => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
