//! Handlers of quotas.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{QuotaLimits, QuotaUpdate};

use super::handle;
use super::parts::{Sent, answer};
use crate::node::Node;

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type S = State<Arc<Node>>;
    type V = Path<String>;
    type Two = Path<(String, String)>;
    Some(match id {
        "quota_list" => handle(f, async |State(n): S, Path(v): V| answer(n.quota_list(&v).await)),
        "quota_update" => handle(f, async |State(n): S, Path(v): V, Sent(b): Sent<QuotaUpdate>| {
            answer(n.quota_update(&v, b).await)
        }),
        "quota_set" => handle(f, async |State(n): S, Path((v, o)): Two, Sent(b): Sent<QuotaLimits>| {
            answer(n.quota_set(&v, &o, b).await)
        }),
        _ => return None,
    })
}
