//! Making, joining and leaving a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a running node the first one of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterInit {
    /// The cluster's name: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Where other nodes reach this one, `IP` or `IP:PORT`: the port is that of links, and the three after it are used, too; 7400 when absent.
    /// Without an address: the machine's own, if it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The node's name in the cluster; the machine's host name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// An etcd that is there already; without it, the node starts one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<GivenEtcd>,
}

/// An etcd that is there already.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenEtcd {
    /// Its endpoints, `https://HOST:PORT`; `http://HOST:PORT` without certificates.
    pub endpoints: Vec<String>,
    /// The authority of its certificates, in PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca: String,
    /// What nodes show to it, in PEM.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub certificate: String,
    /// Its key, in PEM. Never comes out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// Keys are not for logs.
impl std::fmt::Debug for GivenEtcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GivenEtcd").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

/// Lets this node join a cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterJoin {
    /// What a node of the cluster has made for this: it is a secret.
    pub token: String,
    /// Where other nodes reach this one, as in [`ClusterInit::address`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The node's name in the cluster; the machine's host name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// The token is a secret.
impl std::fmt::Debug for ClusterJoin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterJoin").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What another node joins with, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterToken {
    /// One line for `holdfast cluster join`. It is shown in this answer only.
    pub token: String,
    /// Until when it counts, in seconds since 1970.
    pub expires: u64,
    /// The node that is asked with it, `IP:PORT`.
    pub address: String,
}

/// The token is a secret.
impl std::fmt::Debug for ClusterToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterToken").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A node's place: on its own, or in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterPlace {
    /// The cluster that it belongs to; none for a node on its own.
    pub cluster: Option<String>,
    /// Its name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Where it answers other members, `IP:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// It is about to have another place: it stops, and starts again in a moment.
    #[serde(default)]
    pub changing: bool,
    /// Why it does not have the place that was asked for last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
