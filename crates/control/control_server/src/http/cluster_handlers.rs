//! Handlers of making, joining and leaving a cluster.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{ClusterInit, ClusterJoin, Confirm};

use super::handle;
use super::parts::{S, Sent, answer};
use crate::node::Node;

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    Some(match id {
        "cluster_place" => handle(f, async |State(n): S| answer(n.cluster_place().await)),
        "cluster_init" => {
            handle(f, async |State(n): S, Sent(b): Sent<ClusterInit>| answer(n.cluster_init(b).await))
        }
        "cluster_token" => handle(f, async |State(n): S| answer(n.cluster_token().await)),
        "cluster_join" => {
            handle(f, async |State(n): S, Sent(b): Sent<ClusterJoin>| answer(n.cluster_join(b).await))
        }
        "cluster_leave" => handle(f, async |State(n): S| answer(n.cluster_leave().await)),
        "node_remove" => handle(f, async |State(n): S, Path(p): Path<String>, Sent(b): Sent<Confirm>| {
            answer(n.node_remove(&p, b.confirm.as_deref()).await)
        }),
        _ => return None,
    })
}
