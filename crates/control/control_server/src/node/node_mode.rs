//! Nodes of a cluster that take no pools for a while, or give theirs away.

use cluster_store::values::NodeVerb;
use control_api::{Done, NodePause, Problem};

use super::Node;
use super::cached_writes::agreed;
use crate::cluster::By;

impl Node {
    /// Lets a node take no pools, and give away those that it has when it is drained.
    ///
    /// # Errors
    /// On a node of its own; when there is no such node, or it does not answer; when hosts lose what they have written to write caches, and
    /// that was not confirmed.
    pub(crate) async fn node_pause(&self, node: &str, pause: NodePause, by: &By) -> Result<Done, Problem> {
        let cluster = self.cluster()?;
        let name = cluster.name_of(cluster.number_of(node)?);
        let (drain, discards) = (pause.drain, agreed(&name, pause.confirm.as_deref())?);
        self.set_mode(node, (true, drain, discards), by).await?;
        Ok(Done::new(if drain {
            format!(
                "Node {node} takes no pools, and gives away those that it has; `holdfast cluster status` says when it has none."
            )
        } else {
            format!("Node {node} takes no pools; it keeps those that it has.")
        }))
    }

    /// Lets a node take pools again.
    ///
    /// # Errors
    /// As [`Node::node_pause`].
    pub(crate) async fn node_resume(&self, node: &str, by: &By) -> Result<Done, Problem> {
        self.set_mode(node, (false, false, false), by).await?;
        Ok(Done::new(format!("Node {node} takes pools again.")))
    }

    /// Pauses a node, or drains it and maybe discards what its write caches have, or neither; another node than this one is asked to.
    async fn set_mode(
        &self,
        node: &str,
        (paused, draining, discards): (bool, bool, bool),
        by: &By,
    ) -> Result<(), Problem> {
        let cluster = self.cluster()?;
        let number = cluster.number_of(node)?;
        if !cluster.is_me(number) {
            let verb = NodeVerb::Mode { paused, draining, discards };
            return cluster.ask_node(number, by, verb).await.map(drop);
        }
        self.set_own_mode((paused, draining, discards)).await
    }

    /// The same for this node, as somebody has asked it or another one.
    pub(super) async fn set_own_mode(
        &self,
        (paused, draining, discards): (bool, bool, bool),
    ) -> Result<(), Problem> {
        let cluster = self.cluster()?;
        if draining && !discards {
            self.refuse_to_discard(cluster.called(), None)?;
        }
        cluster.set_own_mode(paused, draining).await
    }
}
