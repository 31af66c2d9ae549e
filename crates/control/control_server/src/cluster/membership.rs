//! What a node's place in a cluster is made of, and where it comes from: `cluster/` of the data directory.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_node::{Incarnations, LinkTls, Settings, Timings};
use cluster_store::ClusterStore;
use cluster_store::keys::{ClusterName, NodeId};
use cluster_store_etcd::{EtcdStore, Options, Patience, Tls};
use control_api::{Code, Problem};
use tokio::runtime::{Handle, Runtime};

use super::mode::NodeMode;
use crate::system::BusPlace;

/// How a node takes part in a cluster.
pub struct Membership {
    /// The cluster.
    pub cluster: ClusterName,
    /// The node's number.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Where links of other nodes arrive.
    pub listener: TcpListener,
    /// Where the others find it, `HOST:PORT`.
    pub addresses: Vec<String>,
    /// Where it answers other nodes' requests, `HOST:PORT`; empty when it does not.
    pub api: String,
    /// Where it lends its disks to other nodes, `HOST:PORT`; empty when it does not.
    pub bus: String,
    /// Certificates of its links.
    pub tls: LinkTls,
    /// The cluster's times.
    pub timings: Timings,
    /// The numbers of its lives.
    pub incarnations: Incarnations,
    /// Whether it is paused, over its lives.
    pub mode: NodeMode,
    /// What all nodes of the cluster know and nobody else: users are sealed with it.
    pub secret: Vec<u8>,
    /// Its nodes run etcd themselves: up to three of them a member each.
    pub runs_etcd: bool,
    /// The etcd that it is in; none where it is elsewhere, as in tests.
    pub etcd: Option<EtcdStore>,
    /// What the cluster shares.
    pub store: Arc<dyn ClusterStore>,
    /// Where beats and the connections to the store run; none for where the node itself does.
    pub runtime: Option<OwnRuntime>,
}

impl Membership {
    /// What the node is where nodes use each other's disks.
    pub(crate) fn on_the_bus(&self) -> BusPlace {
        BusPlace {
            cluster: self.cluster.clone(),
            node: self.node,
            name: self.name.clone(),
            secret: self.secret.clone(),
            listen: self.bus.parse().ok(),
        }
    }
}

/// A thread for what must not wait for anything else of the node: a beat that is late costs the node its pools.
pub struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn new() -> std::io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("cluster").enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// For what runs there.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // Not waited for: the node stops on a runtime, too.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The place in a cluster that a data directory gives, with its store; none for a node on its own. Blocks on the disk; on a runtime of tokio.
///
/// # Errors
/// When there is one that cannot be read or used: such a node must not start as one on its own.
pub(crate) fn load(data: &Path) -> Result<Option<(Membership, EtcdStore)>, Problem> {
    let folder = data.join(CLUSTER_DIR);
    let damaged = |error: &dyn std::fmt::Display| {
        Problem::new(Code::Damaged, error.to_string()).todo(
            "The node belongs to a cluster and does not start without knowing which. Restore the folder from a backup, or let the node join anew with an empty data directory.",
        )
    };
    let Some(identity) = ClusterIdentity::load(&folder).map_err(|error| damaged(&error))? else {
        return Ok(None);
    };
    let runtime = OwnRuntime::new()
        .map_err(|error| Problem::new(Code::Io, format!("the system gives no thread: {error}")))?;
    let store = store(&identity, runtime.handle()).map_err(|why| damaged(&why))?;
    let (record, pem) = (&identity.record, &identity.pem);
    let tls = LinkTls::new(pem.ca.as_bytes(), pem.node.as_bytes(), pem.node_key.as_bytes())
        .map_err(|error| damaged(&error))?;
    let incarnations = Incarnations::open(&folder).map_err(|error| damaged(&error))?;
    let timings =
        Timings::new(Settings::default()).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let listener = TcpListener::bind(record.link_listen).map_err(|error| {
        Problem::new(Code::Io, format!("links of other nodes, {}: {error}", record.link_listen))
            .todo("The address is in cluster/identity.toml of the data directory.")
    })?;
    let membership = Membership {
        cluster: record.cluster.clone(),
        node: record.node,
        name: record.name.to_string(),
        listener,
        addresses: record.link_addresses.clone(),
        api: record.api_address.to_string(),
        bus: super::address::bus(record.link_listen).map(|bus| bus.to_string()).unwrap_or_default(),
        tls,
        timings,
        incarnations,
        mode: NodeMode::new(&folder, &record.cluster, record.node),
        secret: pem.ca_key.as_bytes().to_vec(),
        runs_etcd: !record.etcd.own_certificates
            && record.etcd.endpoints.iter().all(|endpoint| endpoint.starts_with("https:")),
        etcd: Some(store.clone()),
        store: Arc::new(store.clone()),
        runtime: Some(runtime),
    };
    Ok(Some((membership, store)))
}

/// The cluster's store; its connections run on `runtime`.
///
/// # Errors
/// What is wrong with its addresses or certificates, in a sentence.
pub(crate) fn store(identity: &ClusterIdentity, runtime: Handle) -> Result<EtcdStore, String> {
    let tls = identity.etcd_pem().map(|pem| Tls {
        ca: pem.ca.into_bytes(),
        certificate: pem.certificate.into_bytes(),
        key: pem.key.as_bytes().to_vec(),
    });
    let etcd = &identity.record.etcd;
    let options = Options {
        endpoints: etcd.endpoints.clone(),
        tls,
        patience: Patience::default(),
        cluster_id: etcd.id.map(|id| id.0),
    };
    EtcdStore::new(options, runtime).map_err(|error| error.to_string())
}

/// The cluster's store, for what may wait; its connections run where this is called.
///
/// # Errors
/// What is wrong with its addresses or certificates.
pub(super) fn store_here(identity: &ClusterIdentity) -> Result<EtcdStore, Problem> {
    store(identity, Handle::current()).map_err(|why| Problem::new(Code::InvalidRequest, format!("{why}.")))
}

/// Refuses to use what is in a data directory without its node: pools of a cluster may be another node's.
///
/// # Errors
/// When the directory is that of a node of a cluster.
pub(crate) fn refuse_offline(data: &Path) -> Result<(), Problem> {
    if !data.join(CLUSTER_DIR).join("identity.toml").exists() {
        return Ok(());
    }
    Err(Problem::new(
        Code::WrongState,
        format!("{} is a data directory of a node of a cluster: which of its pools are whose, only the cluster knows.", data.display()),
    )
    .todo("Start the node, and ask it or the cluster."))
}
