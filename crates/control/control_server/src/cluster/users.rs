//! Users and groups, and the machine SID, that all nodes of a cluster have in common: one sealed value in the store.

use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::{ClusterName, Key};
use cluster_store::{ClusterStore, Condition, MAX_VALUE, Range, Revision, Step, Transaction};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use smb_users::{SealingKey, SharedUsers};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::Removal;

/// The name of the value under `users/`.
const DATABASE: &str = "database";
/// The store is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was read last is not known any more: nothing in the store is taken for it.
const UNKNOWN: Revision = Revision(u64::MAX);

/// The key that all nodes seal users with, made of a secret that all of them have and nobody else.
pub(crate) fn sealing_key(secret: &[u8]) -> SealingKey {
    let hash = |what: &[u8]| Sha256::new().chain_update(what).chain_update(secret).finalize();
    let (id, key) = (hash(b"holdfast users: which key"), hash(b"holdfast users: the key"));
    let mut short = [0; 8];
    short.copy_from_slice(&id[..8]);
    SealingKey::new(short, key.into())
}

/// The users' place in the store.
pub(crate) struct UsersInStore {
    store: Arc<dyn ClusterStore>,
    key: String,
    runtime: Handle,
    removal: Removal,
    /// The revision of what was read or written last.
    known: Mutex<Revision>,
}

impl UsersInStore {
    pub(crate) fn new(
        store: Arc<dyn ClusterStore>,
        cluster: &ClusterName,
        runtime: Handle,
        removal: Removal,
    ) -> Self {
        let key = key(cluster);
        Self { store, key, runtime, removal, known: Mutex::new(Revision(0)) }
    }

    fn ask<T>(&self, asked: impl Future<Output = Result<T, cluster_store::StoreError>>) -> Result<T, String> {
        self.runtime.block_on(async {
            let answered = tokio::time::timeout(PATIENCE, asked).await;
            answered.map_err(|_| format!("no answer in {PATIENCE:?}"))?.map_err(|error| error.to_string())
        })
    }
}

/// Where the users are.
pub(crate) fn key(cluster: &ClusterName) -> String {
    Key::User(DATABASE.into()).path(cluster)
}

impl SharedUsers for UsersInStore {
    fn news(&self) -> Result<Option<Vec<u8>>, String> {
        // What is shared is not that node's any more: it goes on with what it knew last.
        if self.removal.is_so() {
            return Ok(None);
        }
        let found = self.ask(self.store.get(Range::Key(self.key.clone())))?.found.into_iter().next();
        let mut known = self.known.lock();
        let there = found.as_ref().map_or(Revision(0), |found| found.modified);
        if *known == there {
            return Ok(None);
        }
        *known = there;
        Ok(found.map(|found| found.value))
    }

    fn forget(&self) {
        *self.known.lock() = UNKNOWN;
    }

    fn is_empty(&self) -> bool {
        *self.known.lock() == Revision(0)
    }

    fn replace(&self, sealed: Vec<u8>) -> Result<bool, String> {
        if self.removal.is_so() {
            return Err("the cluster has removed this node".to_owned());
        }
        if sealed.len() > MAX_VALUE {
            return Err(format!("they take {} bytes, {MAX_VALUE} are allowed in a cluster", sealed.len()));
        }
        let known = *self.known.lock();
        let transaction = Transaction {
            conditions: vec![Condition::Modified(self.key.clone(), known)],
            steps: vec![Step::Put(self.key.clone(), sealed)],
            reads: Vec::new(),
        };
        let outcome = self.ask(self.store.transact(transaction))?;
        if outcome.done {
            *self.known.lock() = outcome.revision;
        }
        Ok(outcome.done)
    }

    fn blocking(&self, work: &mut dyn FnMut()) {
        block_in_place(work);
    }
}
