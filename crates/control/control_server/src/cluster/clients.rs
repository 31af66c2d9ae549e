//! Who is connected to the service address of a pool, in the shared state: whoever takes the pool over tells them.
//!
//! It only saves clients time: one who is not told finds out by itself that its connection is gone, when it sends something the next time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{Key, PoolId};
use cluster_store::values::{Clients, Owner, Value as _};
use cluster_store::{Condition, Range, Step, Transaction};

use super::Cluster;

/// The shared state is waited for so long: clients wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Those who were connected to the pool's address last, as far as is known.
    pub(crate) async fn clients_of(&self, pool: PoolId) -> Vec<(SocketAddr, SocketAddr)> {
        let key = Key::Clients(pool).path(&self.name);
        let reading = tokio::time::timeout(PATIENCE, self.store.get(Range::Key(key))).await;
        let found = reading.ok().and_then(Result::ok).and_then(|read| read.found.into_iter().next());
        let clients = found.and_then(|found| Clients::decode(&found.value).ok());
        clients.unwrap_or_default().connections
    }

    /// Says who they are, as long as this node has the pool. The newest that is said counts.
    pub(crate) fn say_clients(
        self: &Arc<Self>,
        pool: PoolId,
        mut connections: Vec<(SocketAddr, SocketAddr)>,
    ) {
        connections.truncate(Clients::MAX);
        let number = self.saying.next(pool);
        let cluster = self.clone();
        self.control.spawn(async move { cluster.say(pool, number, connections).await });
    }

    /// Says who they were when the address went, and waits for that: the pool goes next.
    pub(crate) async fn say_last_clients(
        &self,
        pool: PoolId,
        mut connections: Vec<(SocketAddr, SocketAddr)>,
    ) {
        connections.truncate(Clients::MAX);
        let number = self.saying.next(pool);
        self.say(pool, number, connections).await;
    }

    async fn say(&self, pool: PoolId, number: u64, connections: Vec<(SocketAddr, SocketAddr)>) {
        let saying = async {
            // One after the other, and what is older than what waits is left out.
            let _turn = self.saying.turn.lock().await;
            !self.saying.is_newest(pool, number) || self.write_clients(pool, connections).await
        };
        if tokio::time::timeout(PATIENCE, saying).await != Ok(true) {
            tracing::debug!(%pool, "the next owner of a pool does not know all of its clients");
        }
    }

    async fn write_clients(&self, pool: PoolId, connections: Vec<(SocketAddr, SocketAddr)>) -> bool {
        let owner = Key::Owner(pool).path(&self.name);
        let Ok(found) = self.store.get(Range::Key(owner.clone())).await else { return false };
        let Some(found) = found.found.first() else { return false };
        let own = Owner::decode(&found.value).ok().and_then(|owner| owner.holder);
        if own.is_none_or(|holder| holder.node != self.me) {
            return false;
        }
        let Ok(value) = (Clients { connections }).encode() else { return false };
        let transaction = Transaction {
            conditions: vec![Condition::Modified(owner, found.modified)],
            steps: vec![Step::Put(Key::Clients(pool).path(&self.name), value)],
            reads: Vec::new(),
        };
        self.store.transact(transaction).await.is_ok_and(|outcome| outcome.done)
    }
}

/// What is being said, in order.
#[derive(Default)]
pub(super) struct Saying {
    turn: tokio::sync::Mutex<()>,
    newest: parking_lot::Mutex<std::collections::BTreeMap<PoolId, u64>>,
}

impl Saying {
    fn next(&self, pool: PoolId) -> u64 {
        let mut newest = self.newest.lock();
        let number = newest.entry(pool).or_default();
        *number += 1;
        *number
    }

    fn is_newest(&self, pool: PoolId, number: u64) -> bool {
        self.newest.lock().get(&pool) == Some(&number)
    }
}
