//! What a node that wants to join says, and what it is told: JSON over HTTP and TLS.

use std::net::{IpAddr, SocketAddr};

use cluster_identity::{CertificateRequest, EtcdAccess, MAX_ADDRESSES, NodeName};
use cluster_store::keys::NodeId;
use serde::{Deserialize, Serialize};

use crate::error::{JoinError, Kind};

/// Where a member is asked, with POST.
pub const ADMIT_PATH: &str = "/v1/cluster/admit";
/// The longest request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 16 << 10;
/// The longest answer that is taken, in bytes; certificates are the most of it.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What a node that wants to join says.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The token's secret.
    pub secret: String,
    /// The node's release, which has to be the member's.
    pub release: String,
    /// What it wants to be called.
    pub name: NodeName,
    /// Where it will answer other members.
    pub api: SocketAddr,
    /// The addresses of its machine, for its certificate.
    pub addresses: Vec<IpAddr>,
    /// The request for its certificate, in PEM.
    pub request: String,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinRequest({} at {})", self.name, self.api)
    }
}

impl JoinRequest {
    /// Checks it, and takes its key out.
    pub(crate) fn check(&self) -> Result<CertificateRequest, JoinError> {
        let wrong =
            |what: String| JoinError::new(Kind::Invalid, what, "This is a fault of the node that joins.");
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(wrong(format!("{} addresses; {MAX_ADDRESSES} are possible", self.addresses.len())));
        }
        if self.api.port() == 0 || self.api.ip().is_unspecified() {
            return Err(wrong(format!("nobody can reach {}", self.api)));
        }
        CertificateRequest::from_pem(&self.request).map_err(|why| wrong(why.to_string()))
    }
}

/// What a node is told that was let in.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// The cluster's name.
    pub cluster: String,
    /// The node's number.
    pub node: NodeId,
    /// The node's certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// Its key: this node can let others in, too.
    pub ca_key: String,
    /// Where etcd is.
    pub etcd: EtcdAccess,
    /// Certificates for an etcd that is not the cluster's own: authority, certificate, key.
    #[serde(default)]
    pub etcd_pem: Option<(String, String, String)>,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Admission(node {} of {})", self.node, self.cluster)
    }
}

/// How a member says no.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// What was wrong.
    #[serde(default)]
    pub(crate) detail: String,
    /// What to do.
    #[serde(default)]
    pub(crate) todo: String,
    /// Which kind of refusal.
    #[serde(default)]
    pub(crate) code: String,
}
