//! Who is connected to the service address of a pool, in the shared state: whoever takes the pool over tells them.
//!
//! It only saves clients time: one who is not told finds out by itself that its connection is gone, when it sends something the next time.
//! One that sends nothing would never know, so neither what is said nor what is read is given up when the store is slow once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster_store::keys::{Key, PoolId};
use cluster_store::values::{Clients, Owner, Value as _};
use cluster_store::{Condition, Range};

use super::{Cluster, SAY_AGAIN};

/// One try waits for the shared state so long: clients wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

impl Cluster {
    /// Those who were connected to the pool's address last. `None`: the shared state does not answer, and is to be asked again.
    pub(crate) async fn clients_of(&self, pool: PoolId) -> Option<Vec<(SocketAddr, SocketAddr)>> {
        let key = Key::Clients(pool).path(&self.name);
        let read = tokio::time::timeout(PATIENCE, self.store.get(Range::Key(key))).await.ok()?.ok()?;
        let clients = read.found.first().and_then(|found| Clients::decode(&found.value).ok());
        Some(clients.unwrap_or_default().connections)
    }

    /// Says who they are, as long as this node has the pool, and until it is said. The newest that is said counts.
    pub(crate) fn say_clients(self: &Arc<Self>, pool: PoolId, connections: Vec<(SocketAddr, SocketAddr)>) {
        let connections = self.that_can_be_said(connections);
        let number = self.saying.next(pool);
        let cluster = self.clone();
        self.control.spawn(async move {
            while !cluster.say(pool, number, &connections).await {
                tokio::time::sleep(SAY_AGAIN).await;
            }
        });
    }

    /// Says who they were when the address went, and waits for that: the pool goes next.
    pub(crate) async fn say_last_clients(&self, pool: PoolId, connections: Vec<(SocketAddr, SocketAddr)>) {
        let connections = self.that_can_be_said(connections);
        let number = self.saying.next(pool);
        if tokio::time::timeout(PATIENCE, self.say(pool, number, &connections)).await != Ok(true) {
            tracing::debug!(%pool, "the next owner of a pool does not know all of its clients");
        }
    }

    /// Those of them that the shared state has room for: the oldest of them, which may be those that send nothing.
    fn that_can_be_said(&self, connections: Vec<(SocketAddr, SocketAddr)>) -> Vec<(SocketAddr, SocketAddr)> {
        let said = Clients::that_fit(&connections).connections;
        if said.len() < connections.len() && !self.saying.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                clients = connections.len(),
                known = said.len(),
                "not all clients of a pool's address will be told when another node takes it over: the others find out when they send something"
            );
        }
        said
    }

    /// Tries once. False: it has to be tried again.
    async fn say(&self, pool: PoolId, number: u64, connections: &[(SocketAddr, SocketAddr)]) -> bool {
        // One after the other, and what is older than what waits is left out.
        let _turn = self.saying.turn.lock().await;
        if !self.saying.is_newest(pool, number) {
            return true;
        }
        let written = tokio::time::timeout(PATIENCE, self.write_clients(pool, connections)).await;
        written == Ok(true)
    }

    async fn write_clients(&self, pool: PoolId, connections: &[(SocketAddr, SocketAddr)]) -> bool {
        let owner = Key::Owner(pool).path(&self.name);
        let Ok(owners) = self.store.get(Range::Key(owner.clone())).await else { return false };
        let of = |found: &cluster_store::Found| Owner::decode(&found.value).ok()?.holder;
        let Some(owned) =
            owners.found.first().filter(|found| of(found).is_some_and(|holder| holder.node == self.me))
        else {
            // Another node says it from now on.
            return true;
        };
        let Ok(value) = (Clients { connections: connections.to_vec() }).encode() else { return true };
        self.replace(Key::Clients(pool).path(&self.name), value, Condition::Modified(owner, owned.modified))
            .await
    }
}

/// What is being said, in order.
#[derive(Default)]
pub(super) struct Saying {
    turn: tokio::sync::Mutex<()>,
    newest: parking_lot::Mutex<std::collections::BTreeMap<PoolId, u64>>,
    /// Whether the log has it that there are more clients than can be said.
    told: AtomicBool,
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
