//! What a node of a cluster does beside its pools: its member of etcd runs, members and nodes that join are answered.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_join::Steward;
use cluster_store_etcd::EtcdStore;
use control_api::{Code, Problem};
use shard_runtime::Clock;
use tokio::task::JoinHandle;

use super::Cluster;
use super::listener;
use super::membership::store_here as etcd_store;
use super::order::Carried;
use super::told::told;
use crate::network::Members;

/// A node's part in its cluster, while it runs.
pub(crate) struct Part {
    steward: Arc<Steward>,
    working: JoinHandle<()>,
    members: Option<Members>,
    api: listener::Api,
}

impl Part {
    /// Begins, where this data directory is that of a node of a cluster; before anything else needs the store. Blocks on the disk; on the control
    /// plane's runtime.
    ///
    /// # Errors
    /// When the identity cannot be read: such a node must not start as one on its own.
    pub(crate) fn begin(
        data: &Path,
        clock: Arc<dyn Clock>,
        carried: Carried,
    ) -> Result<Option<Self>, Problem> {
        let folder = data.join(CLUSTER_DIR);
        let damaged = |error: &dyn std::fmt::Display| Problem::new(Code::Damaged, format!("{error}."));
        let Some(identity) = ClusterIdentity::load(&folder).map_err(|error| damaged(&error))? else {
            return Ok(None);
        };
        let store = etcd_store(&identity)?;
        let steward = Steward::start(&folder, identity.clone(), store.clone(), carried.0).map_err(told)?;
        let working = tokio::spawn(steward.clone().work());
        let api = listener::Api::default();
        let members = match listener::listen(&identity, steward.clone(), store.clone(), clock, api.clone()) {
            Ok(members) => Some(members),
            Err(problem) => {
                tracing::error!(%problem, "nodes cannot join at this one");
                None
            }
        };
        Ok(Some(Self { steward, working, members, api }))
    }

    /// What other nodes pass on goes to this router from now on.
    pub(crate) fn answer_with(&self, router: Router, cluster: Arc<Cluster>) {
        let _ = self.api.set((router, cluster));
    }

    /// This store, too, is told where etcd is.
    pub(crate) fn keep(&self, store: EtcdStore) {
        self.steward.keep(store);
    }

    /// Looks after this node's part in etcd.
    pub(crate) fn steward(&self) -> &Arc<Steward> {
        &self.steward
    }

    /// Ends; the last thing that stops, as everything else may need the store.
    pub(crate) async fn stop(self) {
        if let Some(members) = self.members {
            members.stop().await;
        }
        self.working.abort();
        let _ = self.working.await;
        self.steward.stop().await;
    }
}
