//! Routes of storage QoS.

use super::Method::{Delete, Patch, Post};
use super::Role::{Operator, Viewer};
use super::{Body, Route, get, json, send, with_query};
use crate::*;

/// The routes.
pub(super) const QOS: &[Route] = &[
    get(Viewer, "/qos", "qos_show", "What holds for all disks.", json::<QosSettings>()),
    send(
        Operator,
        Patch,
        "/qos",
        "qos_update",
        "Changes what holds for all disks.",
        json::<QosUpdate>(),
        json::<QosSettings>(),
    ),
    get(Viewer, "/qos/policies", "qos_policy_list", "Policies.", json::<List<QosPolicy>>()),
    send(
        Operator,
        Post,
        "/qos/policies",
        "qos_policy_create",
        "Makes a policy.",
        json::<QosPolicyCreate>(),
        json::<QosPolicy>(),
    ),
    get(
        Viewer,
        "/qos/policies/{policy}",
        "qos_policy_show",
        "A policy, what it is given to, and who uses it now.",
        json::<QosPolicyDetail>(),
    ),
    send(
        Operator,
        Patch,
        "/qos/policies/{policy}",
        "qos_policy_update",
        "Changes a policy, also for what waits.",
        json::<QosPolicyUpdate>(),
        json::<QosPolicy>(),
    ),
    send(
        Operator,
        Delete,
        "/qos/policies/{policy}",
        "qos_policy_delete",
        "Takes a policy away.",
        json::<QosPolicyRemove>(),
        json::<Done>(),
    ),
    send(
        Operator,
        Post,
        "/qos/assignments",
        "qos_assign",
        "Gives a LUN, file, folder, share or volume its policy, in place of the one that it has.",
        json::<QosAssign>(),
        json::<QosPolicy>(),
    ),
    with_query(
        send(
            Operator,
            Delete,
            "/qos/assignments",
            "qos_unassign",
            "Takes its policy from a LUN, file, folder, share or volume.",
            Body::Empty,
            json::<Done>(),
        ),
        &["lun", "file", "folder", "share", "volume", "policy"],
    ),
    get(
        Viewer,
        "/qos/flows",
        "qos_flow_list",
        "What initiators do with LUNs, and clients with files.",
        json::<List<QosFlow>>(),
    ),
    get(
        Viewer,
        "/qos/volumes",
        "qos_volume_list",
        "What volumes can do, and what is promised of that.",
        json::<List<QosVolume>>(),
    ),
];
