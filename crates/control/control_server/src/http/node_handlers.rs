//! Handlers of the cluster's nodes, and of who owns which pool.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{NodePause, PoolMove};

use super::gate::Known;
use super::handle;
use super::parts::{S, Sent, answer};
use crate::cluster::By;
use crate::node::Node;

fn by(known: Known) -> By {
    super::relay::by(known.as_ref())
}

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    type K = Extension<Known>;
    Some(match id {
        "cluster_show" => handle(f, async |State(n): S| answer(n.cluster_show().await)),
        "cluster_balance" => {
            handle(f, async |State(n): S, Extension(k): K| answer(n.cluster_balance(&by(k)).await))
        }
        "node_pause" => {
            handle(f, async |State(n): S, Extension(k): K, Path(p): P, Sent(b): Sent<NodePause>| {
                answer(n.node_pause(&p, b, &by(k)).await)
            })
        }
        "node_resume" => handle(f, async |State(n): S, Extension(k): K, Path(p): P| {
            answer(n.node_resume(&p, &by(k)).await)
        }),
        "pool_move" => {
            handle(f, async |State(n): S, Extension(k): K, Path(p): P, Sent(b): Sent<PoolMove>| {
                answer(n.pool_move(&p, &b, &by(k)).await)
            })
        }
        _ => return None,
    })
}
