//! What administrators say to a node of a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_store::keys::{NodeId, PoolId};
use control_api::{Code, Problem};

use super::Cluster;

/// It is looked so often whether other nodes can know of something, for so long.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const SAID_WITHIN: Duration = Duration::from_secs(5);
/// A pool that is to move is asked to so often: a node that came a moment ago cannot be given one yet.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// After so many times it is said that the other node takes none.
const ASKED_MOST: u32 = 20;

/// The number of the node of this name: a node that has left and joined again has another one than before, and members come before those that are
/// only remembered.
fn called(
    names: &BTreeMap<NodeId, String>,
    is_member: impl Fn(NodeId) -> bool,
    name: &str,
) -> Option<NodeId> {
    let all = names.iter().filter(|(_, known)| known.as_str() == name).map(|(id, _)| *id);
    all.max_by_key(|id| (is_member(*id), *id))
}

impl Cluster {
    /// The number of a node, by its name or number.
    pub(crate) fn number_of(&self, node: &str) -> Result<NodeId, Problem> {
        let status = self.now();
        self.learn_names(&status);
        let by_name =
            called(&self.names.lock(), |id| status.members.iter().any(|seen| seen.node == id), node);
        let by_number = || {
            let number = node.parse().ok().and_then(NodeId::new)?;
            status.members.iter().any(|seen| seen.node == number).then_some(number)
        };
        by_name.or_else(by_number).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("There is no node {node} in the cluster."))
                .todo("`holdfast node list` shows which there are.")
        })
    }

    /// Whether this is the node itself.
    pub(crate) fn is_me(&self, node: NodeId) -> bool {
        node == self.me
    }

    /// Pauses this node, or drains it, or neither. Ends when the other nodes can know of it: who is drained next finds this one paused.
    pub(crate) async fn set_own_mode(&self, paused: bool, draining: bool) -> Result<(), Problem> {
        if paused {
            self.refuse_last(draining)?;
        }
        let mode = self.mode.get().ok_or_else(ended)?;
        mode.keep(paused).map_err(|error| {
            Problem::new(Code::Io, format!("it cannot be kept that node {} is paused: {error}.", self.called))
        })?;
        let running = self.running.read().await;
        running.as_ref().ok_or_else(ended)?.set_mode(paused, draining).await.map_err(|_| ended())?;
        drop(running);
        let said = async {
            while !self.has_mode(paused, draining) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(SAID_WITHIN, said).await.map_err(|_| {
            Problem::new(Code::Unavailable, "the other nodes have not heard of it yet: the shared state does not answer; it is said when it does.")
                .todo("`holdfast cluster status` says how it is.")
        })
    }

    fn has_mode(&self, paused: bool, draining: bool) -> bool {
        let now = self.now();
        let own = now.members.iter().find(|seen| seen.node == self.me).and_then(|seen| seen.member.as_ref());
        own.is_some_and(|own| (own.paused, own.draining) == (paused, draining))
    }

    /// The last node that takes pools must not be drained, nor be paused while pools are on their way to it: they would be nobody's.
    fn refuse_last(&self, draining: bool) -> Result<(), Problem> {
        let now = self.now();
        let others = || now.members.iter().filter(|seen| seen.node != self.me);
        let gives = |node: NodeId| {
            let of =
                |seen: &cluster_node::MemberState| seen.member.as_ref().is_some_and(|member| member.draining);
            others().any(|seen| seen.node == node && of(seen))
        };
        let on_the_way = |pool: &PoolId| Self::owner_in(&now, pool.0).is_none_or(gives);
        if others().any(|seen| self.takes(seen))
            || !(draining || now.owners.iter().any(|(pool, _)| on_the_way(pool)))
        {
            return Ok(());
        }
        let detail = "No other node takes pools now: what is given away would be nobody's.";
        Err(Problem::new(Code::WrongState, detail)
            .todo("`holdfast node resume` lets another one take pools first; `holdfast node list` shows how they are."))
    }

    /// Has a pool of this node stopped and opened again, in another epoch. Ends when that is its epoch; the pool is opened then.
    ///
    /// # Errors
    /// When the pool is not this node's, or the node takes no pools now.
    pub(crate) async fn reopen_pool(&self, pool: PoolId) -> Result<(), Problem> {
        let owned = || {
            let now = self.now();
            let owner = now.owners.iter().find(|(id, _)| *id == pool).and_then(|(_, owner)| owner.clone());
            owner.filter(|owner| owner.holder.is_some_and(|holder| holder.node == self.me))
        };
        let before = owned().map(|owner| owner.epoch);
        for _ in 0..ASKED_MOST {
            if before.is_none() {
                break;
            }
            self.running
                .read()
                .await
                .as_ref()
                .ok_or_else(ended)?
                .move_pool(pool, self.me)
                .await
                .map_err(|_| ended())?;
            tokio::time::sleep(ASK_EVERY).await;
            // One that is being stopped is not asked again: that would be for the time after.
            while self
                .now()
                .pools
                .iter()
                .any(|here| here.pool == pool && here.order == cluster_node::Order::Stop)
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            if owned().map(|owner| owner.epoch) > before {
                return Ok(());
            }
        }
        Err(Problem::new(Code::WrongState, "This node does not have the pool, or takes no pools now.").todo(
            "`holdfast cluster status` says who has it; `holdfast node resume` lets a node take pools again.",
        ))
    }

    /// Moves a pool of this node to another one. Ends when that owns it.
    pub(crate) async fn move_pool(&self, (pool, name): (PoolId, &str), to: &str) -> Result<(), Problem> {
        let number = self.number_of(to)?;
        let owner = || Self::owner_in(&self.now(), pool.0);
        let mut asked = 0;
        while owner() != Some(number) {
            match owner() {
                Some(owner) if owner == self.me => {
                    self.refuse_blind((pool.0, name), number)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_the_member_that_has_it_now() {
        let id = |number| NodeId::new(number).expect("a number");
        let names: BTreeMap<NodeId, String> = [(1, "n1"), (3, "n3"), (4, "n3"), (5, "n2")]
            .map(|(number, name)| (id(number), name.into()))
            .into();
        let number = |members: &[u16], name: &str| {
            called(&names, |id| members.contains(&id.number()), name).map(NodeId::number)
        };
        assert_eq!(number(&[1, 4], "n3"), Some(4), "it has joined again");
        assert_eq!(number(&[1, 3], "n3"), Some(3), "what is remembered of another store is no member");
        assert_eq!(number(&[1], "n3"), Some(4), "the last that had it");
        assert_eq!(number(&[1], "n9"), None);
    }
}
