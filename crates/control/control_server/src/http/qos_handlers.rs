//! Handlers of storage QoS.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::routing::{MethodFilter, MethodRouter};
use control_api::{
    List, QosAssign, QosPolicyCreate, QosPolicyRemove, QosPolicyUpdate, QosSubject, QosUpdate,
};
use serde::Deserialize;

use super::handle;
use super::parts::{Params, S, Sent, answer};
use crate::node::Node;

#[derive(Deserialize)]
struct AssignmentQuery {
    lun: Option<String>,
    file: Option<String>,
    folder: Option<String>,
    share: Option<String>,
    volume: Option<String>,
    policy: Option<String>,
}

/// The handler of the route named `id`.
pub(super) fn handler(id: &str, f: MethodFilter) -> Option<MethodRouter<Arc<Node>>> {
    type P = Path<String>;
    Some(match id {
        "qos_show" => handle(f, async |State(n): S| Json(n.qos_show())),
        "qos_update" => {
            handle(f, async |State(n): S, Sent(b): Sent<QosUpdate>| answer(n.qos_update(b).await))
        }
        "qos_policy_list" => handle(f, async |State(n): S| Json(List::from(n.qos_policy_list()))),
        "qos_policy_create" => handle(f, async |State(n): S, Sent(b): Sent<QosPolicyCreate>| {
            answer(n.qos_policy_create(b).await)
        }),
        "qos_policy_show" => handle(f, async |State(n): S, Path(p): P| answer(n.qos_policy_detail(&p))),
        "qos_policy_update" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<QosPolicyUpdate>| {
            answer(n.qos_policy_update(&p, b).await)
        }),
        "qos_policy_delete" => handle(f, async |State(n): S, Path(p): P, Sent(b): Sent<QosPolicyRemove>| {
            answer(n.qos_policy_delete(&p, b).await)
        }),
        "qos_assign" => {
            handle(f, async |State(n): S, Sent(b): Sent<QosAssign>| answer(n.qos_assign(b).await))
        }
        "qos_unassign" => handle(f, async |State(n): S, Params(q): Params<AssignmentQuery>| {
            let AssignmentQuery { lun, file, folder, share, volume, policy } = q;
            let named = QosSubject { lun, file, folder, share, volume };
            answer(n.qos_unassign(named, policy.as_deref()).await)
        }),
        "qos_flow_list" => handle(f, async |State(n): S| Json(List::from(n.qos_flow_list()))),
        "qos_volume_list" => handle(f, async |State(n): S| Json(List::from(n.qos_volume_list()))),
        _ => return None,
    })
}
