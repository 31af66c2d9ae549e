//! Routes of making, joining and leaving a cluster.

use super::Method::{Delete, Post};
use super::Role::{Administrator, Viewer};
use super::{Body, Route, get, json, send};
use crate::*;

/// The routes.
pub(super) const CLUSTER: &[Route] = &[
    get(
        Viewer,
        "/cluster/place",
        "cluster_place",
        "Whether this node belongs to a cluster, and which one.",
        json::<ClusterPlace>(),
    ),
    send(
        Administrator,
        Post,
        "/cluster/init",
        "cluster_init",
        "Makes this node the first one of a cluster; it stops and starts again for that.",
        json::<ClusterInit>(),
        json::<ClusterPlace>(),
    ),
    send(
        Administrator,
        Post,
        "/cluster/tokens",
        "cluster_token",
        "Makes a token with which one other node can join, shown in this answer only.",
        Body::Empty,
        json::<ClusterToken>(),
    ),
    send(
        Administrator,
        Post,
        "/cluster/join",
        "cluster_join",
        "Lets this node join a cluster; it stops and starts again for that.",
        json::<ClusterJoin>(),
        json::<ClusterPlace>(),
    ),
    send(
        Administrator,
        Post,
        "/cluster/leave",
        "cluster_leave",
        "Takes this node out of its cluster; it stops and starts again for that.",
        Body::Empty,
        json::<ClusterPlace>(),
    ),
    send(
        Administrator,
        Delete,
        "/cluster/nodes/{node}",
        "node_remove",
        "Takes another node out of the cluster, which is gone for good.",
        json::<Confirm>(),
        json::<Done>(),
    ),
];
