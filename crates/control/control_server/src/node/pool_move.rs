//! A pool that moves to another node because somebody says so.

use std::time::Duration;

use cluster_store::keys::PoolId;
use cluster_store::values::NodeVerb;
use control_api::{ClusterPoolState, Code, Done, PoolMove, Problem};
use tokio::time::timeout;
use uuid::Uuid;

use super::cached_writes::agreed;
use super::{Node, missing};
use crate::cluster::By;

/// How long a pool may take to be given away.
const GOES_WITHIN: Duration = Duration::from_secs(60);
/// Who has moved a pool is told of it when the next owner serves it, or after this.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// A pool is looked at so often meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Node {
    /// Moves a pool to another node, and waits until that serves it. The node that has it now is asked to, where that is another one.
    ///
    /// # Errors
    /// When there is no such pool or node, the pool cannot be moved, or that node takes no pools now; when hosts lose what they have written to
    /// write caches, and that was not confirmed.
    pub(crate) async fn pool_move(&self, pool: &str, wanted: &PoolMove, by: &By) -> Result<Done, Problem> {
        let node = wanted.node.as_str();
        let cluster = self.cluster()?;
        let found = self.config.with(|config| {
            let named =
                |known: &&control_api::PoolConfig| known.name == pool || known.guid.to_string() == pool;
            config.pools.iter().find(named).cloned()
        });
        let found = found.ok_or_else(|| missing("pool", pool, "holdfast cluster status"))?;
        let to = cluster.number_of(node)?;
        let discards = agreed(&found.name, wanted.confirm.as_deref())?;
        match cluster.other_owner(found.guid) {
            Some(owner) if owner == to => {}
            Some(owner) => {
                let verb = NodeVerb::Move { pool: PoolId(found.guid), to, discards };
                drop(cluster.ask_node(owner, by, verb).await?);
            }
            None => self.move_own((found.guid, &found.name), node, discards).await?,
        }
        // An owner opens it first: what is told of before is told of too early.
        let serving = async {
            loop {
                let state = cluster.state_of(found.guid).await;
                if state.is_none_or(|state| state == ClusterPoolState::Online) {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let name = &found.name;
        Ok(Done::new(match timeout(SERVED_WITHIN, serving).await {
            Ok(()) => format!("Pool {name} is with node {node}."),
            Err(_) => format!(
                "Pool {name} is node {node}'s, which does not serve it yet: `holdfast cluster status` says how far it is."
            ),
        }))
    }

    /// Moves a pool of this node, which `discards` what hosts have written to its write caches, or has nothing of the kind.
    pub(super) async fn move_own(
        &self,
        (pool, name): (Uuid, &str),
        node: &str,
        discards: bool,
    ) -> Result<(), Problem> {
        let cluster = self.cluster()?;
        if let Some(problem) = self.not_here(pool) {
            return Err(Problem { detail: format!("pool {name}: {}.", problem.detail), ..problem });
        }
        let handle = self.pools.lock().get(&pool).and_then(|slot| slot.handle.clone());
        if let Some(info) = handle.map(|handle| handle.info()) {
            // A volume and its log have one owner.
            self.refuse_log_elsewhere(pool, &info)?;
            self.refuse_log_of_another(pool, &info)?;
        }
        cluster.refuse_blind((pool, name), cluster.number_of(node)?)?;
        // To where it is already nothing goes.
        if !discards && !cluster.is_me(cluster.number_of(node)?) {
            self.refuse_to_discard(name, Some(pool))?;
        }
        let moved = timeout(GOES_WITHIN, cluster.move_pool((PoolId(pool), name), node)).await;
        moved.unwrap_or_else(|_| {
            Err(Problem::new(Code::Unavailable, format!("pool {name} is still on its way to node {node}."))
                .todo("`holdfast cluster status` says where it is."))
        })
    }
}
