//! What a node is made of, and why it does not start.

use std::io;

use cluster_store::keys::{ClusterName, NodeId};
use pool_ownership::{Sight, Timings};
use thiserror::Error;

use crate::incarnation::Incarnations;
use crate::links::Aside;
use crate::permit::NodePermit;
use crate::tls::LinkTls;

/// What a node is made of.
#[derive(Debug)]
pub struct NodeOptions {
    /// Its number.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Where the others find it, `HOST:PORT`.
    pub addresses: Vec<String>,
    /// Its release.
    pub release: String,
    /// What people call it.
    pub name: String,
    /// Where it answers what others ask of its API, `HOST:PORT`; empty when it does not.
    pub api: String,
    /// Where it lends its disks to other nodes, `HOST:PORT`; empty when it does not.
    pub bus: String,
    /// It takes no pools at first.
    pub paused: bool,
    /// What it sees of the disks of pools at first; none when that is not known, and it may see all.
    pub sight: Option<Sight>,
    /// Where links of others arrive.
    pub listener: std::net::TcpListener,
    /// Its certificates.
    pub tls: LinkTls,
    /// The cluster's times.
    pub timings: Timings,
    /// The numbers of its lives.
    pub incarnations: Incarnations,
    /// Whether it may answer, for whoever sends answers.
    pub permit: NodePermit,
    /// What else nodes tell each other.
    pub aside: Aside,
}

/// Why a node does not start, or a request is not taken.
#[derive(Debug, Error)]
pub enum NodeError {
    /// It cannot be reached by the others.
    #[error("links between nodes: {0}")]
    Listen(io::Error),
    /// It has ended.
    #[error("the node has ended")]
    Ended,
}
