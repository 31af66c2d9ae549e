//! What a node of a cluster keeps up with: the number of its own life, and what others change of the configuration.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cluster_node::{Phase, Status};
use cluster_store::keys::{Key, PATHS};
use cluster_store::{Range, StoreError, Watch};
use control_api::Problem;
use qos_exchange::Exchange;
use tokio::sync::watch;

use super::{Cluster, Life, paths, users};
use crate::backend::NodeSeen;

/// Between attempts to read what is shared.
const PAUSE: Duration = Duration::from_millis(500);

/// What takes up what others have changed: the node.
pub(crate) trait Follows: Send + Sync {
    /// The configuration's shared part; serves by it when this ends.
    fn configuration(&self) -> Pin<Box<dyn Future<Output = Result<(), Problem>> + Send + '_>>;
    /// Users and groups.
    fn users(&self) -> Result<(), Problem>;
    /// Who is a member of the cluster.
    fn members(&self, members: Vec<NodeSeen>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Pools need other disks than before.
    fn disks(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// LUNs are reached by other ways than before.
    fn paths(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Keeps the number of the present life up to date, for as long as the node takes part.
pub(super) async fn life(of: Life, mut status: watch::Receiver<Status>) {
    loop {
        let number = {
            let now = status.borrow_and_update();
            if now.phase == Some(Phase::Member) { now.incarnation } else { 0 }
        };
        of.set(number);
        if status.changed().await.is_err() {
            of.set(0);
            return;
        }
    }
}

/// Tells the node of the members whenever they change, for as long as it is one of them: a node that was left behind does not know who is away.
pub(super) async fn members(of: Arc<Cluster>, node: Arc<dyn Follows>, mut status: watch::Receiver<Status>) {
    let mut known = Vec::new();
    loop {
        let now = {
            let now = status.borrow_and_update();
            (now.phase == Some(Phase::Member)).then(|| of.seen(&now))
        };
        if let Some(now) = now.filter(|now| *now != known) {
            node.members(now.clone()).await;
            known = now;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Forgets what nodes have asked for whose beats do not arrive any more: their volumes have other nodes soon. Otherwise what a node said last
/// holds, while the link to it is broken and while nobody's beats can be read.
pub(super) async fn qos(of: Arc<Cluster>, exchange: Arc<Exchange>) {
    loop {
        // As often as [`Exchange::look`] wants it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !exchange.has_heard() {
            continue;
        }
        exchange.look();
        let now = of.now();
        if now.phase != Some(Phase::Member) || now.trouble.is_some() {
            continue;
        }
        exchange.keep(|node| now.members.iter().any(|seen| seen.node.number() == node && of.is_heard(seen)));
    }
}

/// Brings in what other nodes change of the configuration, for ever. What cannot be read leaves the one that is known.
pub(super) async fn config(of: Arc<Cluster>, node: Arc<dyn Follows>) {
    let key = Key::ConfigHead.path(&of.name);
    changes(&of, key, "configuration", || node.configuration()).await;
}

/// The same of users and groups.
pub(super) async fn users(of: Arc<Cluster>, node: Arc<dyn Follows>) {
    let key = users::key(&of.name);
    let take_up = || std::future::ready(node.users());
    changes(&of, key, "users", take_up).await;
}

/// The same of portals, and of which volumes are in which pool.
pub(super) async fn paths(of: Arc<Cluster>, node: Arc<dyn Follows>) {
    let prefix = of.name.root() + PATHS;
    let take_up = || async {
        if of.read_paths().await? {
            node.paths().await;
        }
        Ok(())
    };
    changes(&of, prefix, "paths", take_up).await;
}

/// Takes up who owns which pool and who takes part, as LUNs are reached by other ways when that changes.
pub(super) async fn owners(of: Arc<Cluster>, node: Arc<dyn Follows>) {
    let Some(mut status) = of.status.get().cloned() else { return };
    let mut known = None;
    loop {
        let now = paths::Owners::of(&status.borrow_and_update());
        if known.as_ref() != Some(&now) {
            known = Some(now);
            node.paths().await;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Tells the node whenever other disks are needed for pools than before: it may see some of them.
pub(super) async fn disks(of: Arc<Cluster>, node: Arc<dyn Follows>) {
    let Some(mut status) = of.status.get().cloned() else { return };
    let mut known = Vec::new();
    loop {
        let now = {
            let now = status.borrow_and_update();
            let now: Vec<_> = now.sights.iter().map(|of| (of.pool, of.disks.clone())).collect();
            (now != known).then_some(now)
        };
        if let Some(now) = now {
            node.disks().await;
            known = now;
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Does this at first, and whenever what is under a key has changed.
async fn changes<F>(of: &Cluster, key: String, what: &str, take_up: impl Fn() -> F + Send + Sync)
where
    F: Future<Output = Result<(), Problem>> + Send,
{
    loop {
        let mut watching = match begin(of, &key).await {
            Ok(watching) => watching,
            Err(error) => {
                tracing::debug!("the {what} of the cluster cannot be watched: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        loop {
            if let Err(problem) = take_up().await {
                tracing::warn!(%problem, "the {what} of the cluster cannot be taken up");
                tokio::time::sleep(PAUSE).await;
                break;
            }
            if watching.next().await.is_err() {
                break;
            }
        }
    }
}

/// A watch of a key from now on.
async fn begin(of: &Cluster, key: &str) -> Result<Box<dyn Watch>, StoreError> {
    let now = of.store.get(Range::Key(key.to_owned())).await?.revision;
    of.store.watch(key.to_owned(), now).await
}
