//! `cluster join`: a node on its own is let into a cluster by a token.

use std::time::Duration;

use cluster_identity::{CLUSTER_DIR, ClusterIdentity, EtcdPem, JoinToken, NodePem, NodeRecord};
use cluster_join::{Admission, JoinRequest, ask, wait_for_etcd};
use cluster_store::keys::ClusterName;
use control_api::{ClusterJoin, ClusterPlace, Code, Config, Problem};
use zeroize::Zeroizing;

use super::address::{self, Addresses};
use super::init::{place_of, refuse_member};
use super::membership::store_here as etcd_store;
use super::order::Place;
use super::told::told;
use crate::node::Node;

/// The cluster's etcd answers at once, or this node does not reach it.
const ETCD_ANSWERS: Duration = Duration::from_secs(15);

impl Node {
    /// Asks the member that the token names to be let in, and orders the change. What is begun is finished by asking again with the same token:
    /// the member knows this node by its key.
    ///
    /// # Errors
    /// When this node belongs to a cluster, has something of its own, or is not let in. The node is what it was then.
    pub(crate) async fn cluster_join(&self, request: ClusterJoin) -> Result<ClusterPlace, Problem> {
        let preparing = self.changing().begin()?;
        let data = self.data_dir().to_owned();
        refuse_member(&data)?;
        let token = JoinToken::parse(&request.token)
            .map_err(|why| Problem::new(Code::InvalidRequest, format!("{why}.")))?;
        let name = address::node_name(request.node_name.as_deref(), &self.config_show(true).node.name)?;
        let addresses = address::addresses(request.address.as_deref())?;
        self.refuse_own_things()?;
        let folder = data.join(CLUSTER_DIR);
        let made = tokio::task::spawn_blocking({
            let folder = folder.clone();
            move || ClusterIdentity::joining_key(&folder)
        });
        let io = |why: &dyn std::fmt::Display| Problem::new(Code::Io, format!("{why}."));
        let (key, csr) = made.await.map_err(|why| io(&why))?.map_err(|why| io(&why))?;
        let asked = JoinRequest {
            secret: token.secret().to_string(),
            release: env!("CARGO_PKG_VERSION").into(),
            name,
            api: addresses.api,
            addresses: address::for_certificate(addresses.api.ip()),
            request: csr,
        };
        let admission = ask(&token, &asked).await.map_err(told)?;
        let identity = identity(admission, &asked, addresses, key)?;
        // It is let in, and may ask again: what is wrong here can be put right before it goes on.
        let store = etcd_store(&identity)?;
        wait_for_etcd(&store, ETCD_ANSWERS).await.map_err(|error| {
            let problem = told(error);
            let detail =
                format!("This node was let in, but does not reach the cluster's etcd: {}", problem.detail);
            Problem::new(problem.code, detail).todo(format!(
                "See that it reaches {}; then join again with the same token.",
                identity.record.etcd.endpoints.join(" and ")
            ))
        })?;
        tracing::info!(cluster = %identity.record.cluster, "this node joins a cluster");
        let place = place_of(&identity, true);
        preparing.order(&data, Place::Further(Box::new(identity)), self.clocks().1);
        Ok(place)
    }

    /// What a cluster has in common comes from the cluster: a node that has such things of its own would lose them.
    fn refuse_own_things(&self) -> Result<(), Problem> {
        let (own, _) = self.config_show(false).split();
        let (none, _) = Config::default().split();
        let mut what = Vec::new();
        let mut has = |name: &str, differs: bool| {
            if differs {
                what.push(name.to_owned());
            }
        };
        has("pools", own.pools != none.pools);
        has("shares", own.shares != none.shares);
        has("LUNs", own.luns != none.luns);
        has("targets", own.targets != none.targets);
        has("initiator groups", own.groups != none.groups);
        has("QoS policies", own.qos_policies != none.qos_policies);
        has("users", self.has_users());
        if what.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            Code::WrongState,
            format!("This node has {} of its own; a node that joins takes over those of the cluster.", what.join(", ")),
        )
        .todo("Export its pools (`holdfast pool export`) and take the rest away, or join with an empty data directory; the pools can be imported in the cluster afterwards."))
    }
}

fn identity(
    admission: Admission,
    asked: &JoinRequest,
    addresses: Addresses,
    node_key: Zeroizing<String>,
) -> Result<ClusterIdentity, Problem> {
    let bad = |why: &str| {
        Problem::new(Code::Damaged, format!("What the cluster has answered makes no sense: {why}."))
    };
    let record = NodeRecord {
        cluster: ClusterName::new(&admission.cluster).ok_or_else(|| bad("the cluster's name"))?,
        node: admission.node,
        name: asked.name.clone(),
        link_listen: addresses.link,
        link_addresses: vec![addresses.link.to_string()],
        api_address: addresses.api,
        etcd: admission.etcd,
    };
    let etcd = admission.etcd_pem.map(|(ca, certificate, key)| EtcdPem { ca, certificate, key: key.into() });
    let pem = NodePem {
        ca: admission.ca,
        ca_key: admission.ca_key.into(),
        node: admission.certificate,
        node_key,
        etcd,
    };
    Ok(ClusterIdentity { record, pem })
}
