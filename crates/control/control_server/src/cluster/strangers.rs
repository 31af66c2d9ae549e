//! Whom pools know: a pool says on its disks which node had it last, by an identity of that node's data directory. One that is none of this cluster's
//! nodes (another cluster, a machine that has imported the pool) has not let go of it: taking the pool from it by itself would begin a fight that
//! nobody wins, each fencing the other off for ever. So that is for a person, who says which of the two is to have it.

use cluster_join::nodes;
use cluster_store::keys::{Key, NodeId};
use cluster_store::values::{Named, Value as _};
use cluster_store::{Condition, Range, Step, StoreError, Transaction};
use control_api::{Code, Problem};
use uuid::Uuid;

use super::Cluster;

impl Cluster {
    /// Pools know this node by this identity. To be called before it takes part.
    pub(crate) fn is_known_as(&self, identity: Uuid) {
        let _ = self.known_as.set(identity);
    }

    /// Sees to it that the cluster knows this node by the identity that it leaves in pools. Before it opens one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn make_known(&self) -> Result<(), Problem> {
        let Some(identity) = self.known_as.get() else { return Ok(()) };
        let written = self.is_written.get_or_try_init(|| self.write_known(*identity)).await;
        written.map(drop).map_err(|error| away(&error))
    }

    async fn write_known(&self, identity: Uuid) -> Result<(), StoreError> {
        let key = Key::Known(identity).path(&self.name);
        let value = Named { node: self.me }.encode().map_err(|why| StoreError::NotDone(why.to_string()))?;
        // It is there already, but at the first time: that is as good.
        let transaction = Transaction {
            conditions: vec![Condition::Absent(key.clone())],
            steps: vec![Step::Put(key, value)],
            reads: Vec::new(),
        };
        self.store.transact(transaction).await.map(drop)
    }

    /// Whether who had a pool last was a node of this cluster, as far as is known: nodes of an earlier release have not said by what pools know them.
    ///
    /// # Errors
    /// When the store does not answer, or has what cannot be understood.
    pub(crate) async fn has_had(&self, identity: Uuid) -> Result<bool, Problem> {
        if self.known_as.get() == Some(&identity) {
            return Ok(true);
        }
        let all = self.store.get(Range::Prefix(self.name.root() + "known/")).await;
        let mut said: Vec<NodeId> = Vec::new();
        for found in all.map_err(|error| away(&error))?.found {
            match Key::parse(&self.name, &found.key) {
                Some(Key::Known(known)) if known == identity => return Ok(true),
                Some(Key::Known(_)) => said.extend(Named::decode(&found.value).ok().map(|named| named.node)),
                _ => {}
            }
        }
        let all = nodes(&*self.store, &self.name).await.map_err(super::told::told)?;
        Ok(all.iter().any(|(node, _, entry)| !entry.removed && !said.contains(node)))
    }
}

fn away(error: &StoreError) -> Problem {
    Problem::new(Code::Unavailable, format!("whose the pool was last cannot be looked up in etcd: {error}"))
        .todo("It is tried again; `holdfast cluster status` says what is away.")
}
