//! Routes of the cluster's nodes, and of who owns which pool.

use super::Method::Post;
use super::Role::{Operator, Viewer};
use super::{Body, Route, get, json, send};
use crate::*;

/// The routes.
pub(super) const NODES: &[Route] = &[
    get(
        Viewer,
        "/cluster",
        "cluster_show",
        "Who owns which pool, who is away, and what a further loss would do.",
        json::<ClusterStatus>(),
    ),
    get(
        Viewer,
        "/cluster/balance",
        "cluster_balance",
        "Which pools should move to which nodes: home, or to where there is less to do.",
        json::<ClusterBalance>(),
    ),
    send(
        Operator,
        Post,
        "/cluster/nodes/{node}/pause",
        "node_pause",
        "Lets a node take no pools, and give away those that it has when it is drained.",
        json::<NodePause>(),
        json::<Done>(),
    ),
    send(
        Operator,
        Post,
        "/cluster/nodes/{node}/resume",
        "node_resume",
        "Lets a node take pools again.",
        Body::Empty,
        json::<Done>(),
    ),
    send(
        Operator,
        Post,
        "/pools/{pool}/move",
        "pool_move",
        "Moves a pool to another node of the cluster.",
        json::<PoolMove>(),
        json::<Done>(),
    ),
];
