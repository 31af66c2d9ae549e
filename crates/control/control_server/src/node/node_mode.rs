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
        let number = cluster.number_of(node)?;
        let name = cluster.name_of(number);
        let (drain, discards) = (pause.drain, agreed(&name, pause.confirm.as_deref())?);
        self.set_mode(node, (true, drain, discards), by).await?;
        let stay = if drain { cluster.only_at(number) } else { Vec::new() };
        let mut stay: Vec<String> =
            stay.into_iter().map(|pool| self.pool_name(pool).unwrap_or_else(|| pool.to_string())).collect();
        stay.sort();
        Ok(Done::new(if !stay.is_empty() {
            let stay = stay.join(", ");
            format!(
                "Node {node} takes no pools, and gives away those that others can serve. It keeps {stay}: no other node that takes pools can open what it keeps. What is kept is served for as long as the node runs, and not while it is off; `holdfast cluster status` says what it has."
            )
        } else if drain {
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
