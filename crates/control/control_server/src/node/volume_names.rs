//! Names of this node's volumes in the whole cluster, where it belongs to one: `cluster::volume_names` keeps them.

use std::collections::BTreeMap;

use control_api::{Issue, Problem, Severity};
use health_rules::{FindingCode, of_rule};
use uuid::Uuid;

use super::Node;
use super::path::Turn;

impl Node {
    fn pool_called(&self, pool: Uuid) -> String {
        self.pool_name(pool).unwrap_or_else(|| pool.to_string())
    }

    /// Takes a name for a volume that is to be made in a pool, whose turn is held.
    ///
    /// # Errors
    /// When a volume elsewhere in the cluster has it, or the cluster does not answer. Nothing on a node of its own.
    pub(super) async fn take_name(&self, name: &str, pool: Uuid) -> Result<(), Problem> {
        match self.cluster.get() {
            Some(cluster) => cluster.take_volume_name(name, pool, |pool| self.pool_called(pool)).await,
            None => Ok(()),
        }
    }

    /// Sees to it that the cluster knows the names of the volumes of an open pool, whose turn is held.
    pub(super) async fn settle_cluster_names(&self, pool: Uuid) {
        let Some(cluster) = self.cluster.get() else { return };
        let handle = self.pools.lock().get(&pool).and_then(|slot| slot.handle.clone());
        let Some(handle) = handle else { return };
        let volumes: BTreeMap<String, Uuid> = handle
            .info()
            .spaces
            .into_iter()
            .filter(|space| space.log_of.is_none())
            .map(|space| (space.state.name, space.guid))
            .collect();
        match cluster.settle_volume_names(pool, &volumes).await {
            Ok(elsewhere) => {
                for (name, other) in &elsewhere {
                    tracing::warn!(
                        volume = name,
                        pool = handle.info().name,
                        other = self.pool_called(*other),
                        "a volume of another pool of the cluster has this name"
                    );
                }
                self.names_elsewhere.lock().insert(pool, elsewhere);
            }
            Err(problem) => {
                tracing::warn!(%problem, "the cluster does not know the names of this pool's volumes yet")
            }
        }
    }

    /// The same in a task of its own, when the pool's turn comes.
    pub(super) fn settle_cluster_names_later(&self, turn: &Turn) {
        let (Some(node), pool) = (self.arc().filter(|_| self.cluster.get().is_some()), turn.pool()) else {
            return;
        };
        tokio::spawn(async move {
            let _turn = node.turn(pool).await;
            node.settle_cluster_names(pool).await;
        });
    }

    /// Volumes whose names volumes of other pools have.
    pub(super) fn findings_of_names(&self) -> Vec<Issue> {
        let all = self.names_elsewhere.lock().clone();
        let open = all.into_iter().filter(|(pool, _)| self.is_open(*pool));
        let mut found = Vec::new();
        for (pool, names) in open {
            let own = self.pool_called(pool);
            for (name, other) in names {
                let other = self.pool_called(other);
                found.push(Issue {
                    severity: Severity::Warning,
                    subject: format!("volume {name}"),
                    detail: format!(
                        "pools {own} and {other} have a volume of this name each: a node that comes to have both pools can serve one of the two only"
                    ),
                    todo: format!(
                        "Give one of them another name: `holdfast volume rename {name} NEW --pool {own}`; what is on it goes on."
                    ), ..of_rule(FindingCode::VolumeNameTwice) });
            }
        }
        found
    }
}
