//! Names of volumes, each given once in the whole cluster: LUNs and shares find their volume by it, and one node may come to serve the pools of all.
//!
//! `volumes/NAME` says whose a name is. It is taken before a volume is made or gets another name, and settled with what is in the pool when the pool
//! has come up and after each change. Two that had one name before (pools that were imported, clusters of an earlier release) are both served while
//! different nodes have them, and told of: the node that comes to have both could serve one of them only.

use std::collections::BTreeMap;

use cluster_store::keys::{Key, PoolId};
use cluster_store::values::{Owner, Value as _, VolumeName};
use cluster_store::{Condition, Range, Revision, Step, StoreError, Transaction};
use control_api::{Code, Problem};
use uuid::Uuid;

use super::Cluster;

/// So often it is tried anew when others write at the same time.
const TRIES: u32 = 8;

impl Cluster {
    /// Takes a name for a volume that is to be made in a pool. The pool's turn is held.
    ///
    /// # Errors
    /// When a volume in another pool has it, or the store does not answer.
    pub(crate) async fn take_volume_name(
        &self,
        name: &str,
        pool: Uuid,
        pool_name: impl Fn(Uuid) -> String,
    ) -> Result<(), Problem> {
        let Some(key) = Key::of_volume(name).map(|key| key.path(&self.name)) else { return Ok(()) };
        for _ in 0..TRIES {
            let found = self.store.get(Range::Key(key.clone())).await.map_err(|error| away(&error))?;
            let found = found.found.into_iter().next();
            let holder = found.as_ref().and_then(|found| VolumeName::decode(&found.value).ok());
            match holder {
                // That it has none of this name, its pool says.
                Some(holder) if holder.pool.0 == pool => return Ok(()),
                Some(holder) if self.is_there(holder.pool).await? => {
                    let detail = format!(
                        "The cluster has a volume {name} already, in pool {}.",
                        pool_name(holder.pool.0)
                    );
                    return Err(Problem::new(Code::AlreadyExists, detail)
                        .todo("Choose another name: a volume has its name in the whole cluster, as its pool may come to any node."));
                }
                _ => {}
            }
            let seen = found.map_or(Revision(0), |found| found.modified);
            if self.write_name(&key, seen, VolumeName { pool: PoolId(pool), space: None }).await? {
                return Ok(());
            }
        }
        Err(Problem::new(Code::Unavailable, format!("Others take the name {name} at the same time."))
            .todo("Try again."))
    }

    /// Sees to it that the names of a pool are those of its volumes; those that a volume of another pool has, with that pool. The pool's turn is held.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn settle_volume_names(
        &self,
        pool: Uuid,
        volumes: &BTreeMap<String, Uuid>,
    ) -> Result<BTreeMap<String, Uuid>, Problem> {
        let all = self.store.get(Range::Prefix(self.name.root() + "volumes/")).await;
        let mut there = BTreeMap::new();
        for found in all.map_err(|error| away(&error))?.found {
            if let (Some(Key::Volume(name)), Ok(holder)) =
                (Key::parse(&self.name, &found.key), VolumeName::decode(&found.value))
            {
                there.insert(name, (found.modified, holder));
            }
        }
        let mut elsewhere = BTreeMap::new();
        for (name, space) in volumes {
            let Some(key) = Key::of_volume(name).map(|key| key.path(&self.name)) else { continue };
            let own = VolumeName { pool: PoolId(pool), space: Some(*space) };
            let seen = match there.get(name) {
                Some((_, holder)) if *holder == own => continue,
                Some((_, holder)) if holder.pool.0 != pool && self.is_there(holder.pool).await? => {
                    elsewhere.insert(name.clone(), holder.pool.0);
                    continue;
                }
                Some((seen, _)) => *seen,
                None => Revision(0),
            };
            // Somebody else was first: the next time shows who.
            self.write_name(&key, seen, own).await?;
        }
        for (name, (seen, _)) in there.iter().filter(|(_, (_, holder))| holder.pool.0 == pool) {
            if !volumes.contains_key(name) {
                let key = Key::Volume(name.clone()).path(&self.name);
                let conditions = vec![Condition::Modified(key.clone(), *seen)];
                let gone = Transaction { conditions, steps: vec![Step::Delete(key)], reads: Vec::new() };
                self.store.transact(gone).await.map_err(|error| away(&error))?;
            }
        }
        Ok(elsewhere)
    }

    async fn write_name(&self, key: &str, seen: Revision, name: VolumeName) -> Result<bool, Problem> {
        let value = name.encode().map_err(|why| Problem::new(Code::Internal, why.to_string()))?;
        let transaction = Transaction {
            conditions: vec![Condition::Modified(key.to_owned(), seen)],
            steps: vec![Step::Put(key.to_owned(), value)],
            reads: Vec::new(),
        };
        let outcome = self.store.transact(transaction).await.map_err(|error| away(&error))?;
        Ok(outcome.done)
    }

    /// Whether the cluster has this pool still: names of one that was exported, deleted or forgotten are free.
    async fn is_there(&self, pool: PoolId) -> Result<bool, Problem> {
        let owner = self.store.get(Range::Key(Key::Owner(pool).path(&self.name))).await;
        let found = owner.map_err(|error| away(&error))?.found;
        Ok(found.first().is_some_and(|found| Owner::decode(&found.value).is_ok()))
    }
}

fn away(error: &StoreError) -> Problem {
    Problem::new(Code::Unavailable, format!("Names of volumes are given in the whole cluster, and etcd does not answer: {error}."))
        .todo("Nothing was changed. Try again when etcd can be reached; `holdfast cluster status` says what is away.")
}
