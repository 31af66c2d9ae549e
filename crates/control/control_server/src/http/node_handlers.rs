//! Handlers of the cluster's nodes, and of who owns which pool.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{NodePause, PoolMove};

use super::handle;
use super::handlers::S;
use super::parts::{Sent, answer};
use crate::node::Node;

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    Some(match id {
        "cluster_show" => handle(f, async |State(n): S| answer(n.cluster_show().await)),
        "node_pause" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<NodePause>| {
            answer(n.node_pause(&p, b.drain).await)
        }),
        "node_resume" => handle(f, async |State(n): S, Path(p): P| answer(n.node_resume(&p).await)),
        "pool_move" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<PoolMove>| {
            answer(n.pool_move(&p, &b.node).await)
        }),
        _ => return None,
    })
}
