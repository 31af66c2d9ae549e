//! A node changes its place: it stops, what makes it another one is written, and it starts again in the same process.
//!
//! ```text
//!   request ─► prepared while the node serves ─► ordered ─► the node has stopped ─► carried out ─► started again
//!                 (etcd runs, a certificate is there)          (no pool is open)      last of all: identity.toml comes or goes
//! ```
//! Invariants:
//! * While a pool is open nothing that decides about it changes: epochs and votes are taken over after all pools are closed.
//! * The last step is one file that comes or goes. A crash before it leaves the place that was, and what was prepared counts for nothing.
//! * What fails before that is told afterwards ([`ClusterPlace::failed`](control_api::ClusterPlace)), and the node is what it was.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_join::found;
use cluster_store::keys::ClusterName;
use cluster_store_etcd::EtcdStore;
use control_api::{Code, Config, Problem};
use managed_etcd::EtcdProcess;

use super::config;
use super::order::{Carried, ChangeOver, Place, keep_failed};
use super::seal::ConfigSeal;
use super::told::told;
use crate::config_store::ConfigStore;
use crate::system;

impl ChangeOver {
    /// Carries it out. The node has stopped, and is to be started again, whatever comes of this; [`Carried`] goes along.
    ///
    /// # Errors
    /// Why the node is what it was before. It is also kept for who asks the node.
    pub async fn carry_out(self) -> Result<Carried, Problem> {
        let folder = self.data.join(CLUSTER_DIR);
        let result = match self.to {
            Place::First(identity, store, process) => {
                first(&self.data, *identity, &store, process, self.now).await
            }
            Place::Further(identity) => {
                let created = tokio::task::spawn_blocking(move || identity.create(&folder)).await;
                written(created).map(|()| Carried::default())
            }
            Place::Same(problem) => Err(*problem),
            Place::Alone => {
                let data = self.data.clone();
                written(tokio::task::spawn_blocking(move || alone(&data)).await).map(|()| Carried::default())
            }
        };
        if let Err(problem) = &result {
            tracing::error!(%problem, "the node does not change its place");
            keep_failed(&self.data, problem);
        }
        result
    }
}

fn written<E: std::fmt::Display>(
    result: Result<Result<(), E>, tokio::task::JoinError>,
) -> Result<(), Problem> {
    let failed = |why: &dyn std::fmt::Display| {
        Problem::new(Code::Io, why.to_string())
            .todo("Make space or repair the file system of the data directory, and try again.")
    };
    result.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// The first node brings what it kept of its pools.
async fn first(
    data: &Path,
    identity: ClusterIdentity,
    store: &EtcdStore,
    process: Option<EtcdProcess>,
    now: u64,
) -> Result<Carried, Problem> {
    let own = system::own_store(data).await?;
    let alone = ClusterName::new(system::ALONE).ok_or_else(|| Problem::new(Code::Internal, "no name"))?;
    let release = env!("CARGO_PKG_VERSION");
    let cluster = &identity.record.cluster;
    found(store, &identity.record, release, &own, &alone, now).await.map_err(told)?;
    // The name is this node's now. Whoever joins finds a configuration, and never gives its own empty one.
    let (shared, _) = ConfigStore::open(data.join("config.toml"))?.get().split();
    let seal = ConfigSeal::new(identity.pem.ca_key.as_bytes(), cluster);
    let seen = config::read(store, cluster, &seal, None).await?.and_then(|stored| stored.head);
    config::write(store, cluster, &seal, seen.as_ref(), &shared).await?;
    let folder = data.join(CLUSTER_DIR);
    written(tokio::task::spawn_blocking(move || identity.create(&folder)).await)?;
    Ok(Carried(process))
}

/// The node keeps its own part of the configuration. The cluster's goes first, before anything says that the node is on its own: it must
/// not take for its own what is the cluster's.
fn alone(data: &Path) -> Result<(), Problem> {
    let io = |error: std::io::Error| Problem::new(Code::Io, format!("{}: {error}.", data.display()));
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => Ok(()),
    };
    let config = ConfigStore::open(data.join("config.toml"))?;
    config.change(|config| {
        let (shared, _) = Config::default().split();
        *config = Config::join(shared, config.clone().split().1);
        Ok(())
    })?;
    // Users are the cluster's; epochs and votes of before the cluster are older than what its disks have.
    for file in ["users.db", "users.key"] {
        gone(fs::remove_file(data.join(file)))?;
    }
    gone(fs::remove_dir_all(data.join(system::STORE)))?;
    let folder = data.join(CLUSTER_DIR);
    ClusterIdentity::remove(&folder).map_err(|error| Problem::new(Code::Io, error.to_string()))?;
    // What was seen of this cluster says nothing of another one of the same name.
    cluster_node::forget(&folder).map_err(io)?;
    gone(fs::remove_dir_all(folder.join("etcd")))
}
