//! What administrators say to a node of a cluster.

use std::time::Duration;

use cluster_store::keys::{NodeId, PoolId};
use cluster_store::values::NodeVerb;
use control_api::{Code, Problem};

use super::{By, Cluster};

/// A pool that is to move is asked to so often: a node that came a moment ago cannot be given one yet.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// After so many times it is said that the other node takes none.
const ASKED_MOST: u32 = 20;

impl Cluster {
    /// The number of a node, by its name or number.
    pub(crate) fn number_of(&self, node: &str) -> Result<NodeId, Problem> {
        let status = self.now();
        self.learn_names(&status);
        let by_name = self.names.lock().iter().find(|(_, name)| name.as_str() == node).map(|(id, _)| *id);
        let by_number = || {
            let number = node.parse().ok().and_then(NodeId::new)?;
            status.members.iter().any(|seen| seen.node == number).then_some(number)
        };
        by_name.or_else(by_number).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("There is no node {node} in the cluster."))
                .todo("`holdfast node list` shows which there are.")
        })
    }

    /// Pauses a node, or drains it, or neither; another node than this one is asked to.
    pub(crate) async fn set_mode(
        &self,
        node: &str,
        paused: bool,
        draining: bool,
        by: &By,
    ) -> Result<(), Problem> {
        let number = self.number_of(node)?;
        if number != self.me {
            return self.ask_node(number, by, NodeVerb::Mode { paused, draining }).await.map(drop);
        }
        self.set_own_mode(paused, draining).await
    }

    /// The same for this node.
    pub(crate) async fn set_own_mode(&self, paused: bool, draining: bool) -> Result<(), Problem> {
        let running = self.running.read().await;
        let running = running.as_ref().ok_or_else(ended)?;
        running.set_mode(paused, draining).await.map_err(|_| ended())
    }

    /// Moves a pool of this node to another one. Ends when that owns it.
    pub(crate) async fn move_pool(&self, pool: PoolId, to: &str) -> Result<(), Problem> {
        let number = self.number_of(to)?;
        let owner = || Self::owner_in(&self.now(), pool.0);
        let mut asked = 0;
        while owner() != Some(number) {
            match owner() {
                Some(owner) if owner == self.me => {
                    let running = self.running.read().await;
                    running.as_ref().ok_or_else(ended)?.move_pool(pool, number).await.map_err(|_| ended())?;
                    asked += 1;
                }
                // On its way, or somewhere else than it was meant to.
                _ => {}
            }
            let goes = self
                .now()
                .pools
                .iter()
                .any(|here| here.pool == pool && here.order == cluster_node::Order::Stop);
            if asked > ASKED_MOST && !goes {
                return Err(Problem::new(
                    Code::WrongState,
                    format!("Node {to} takes no pools now, or has not heard of all other nodes yet."),
                )
                .todo(
                    "`holdfast node list` says how it is; `holdfast node resume` lets it take pools again.",
                ));
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}

fn ended() -> Problem {
    Problem::new(Code::Unavailable, "this node does not take part in its cluster now.")
        .todo("`holdfast cluster status` says why.")
}
