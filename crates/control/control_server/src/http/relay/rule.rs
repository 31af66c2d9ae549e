//! Which node, or nodes, answer a route.

use axum::http::Uri;
use control_api::routes::Route;

use crate::node::elsewhere::Thing;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The node that is asked: what is its own, or what all have in common.
    Here,
    /// All nodes, and their answers are put together.
    Everywhere(Merge),
    /// The node that has what is asked for.
    AtOwner,
}

/// How answers are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The status: one verdict over all.
    Status,
    /// Pools, which each node knows, and the owner tells of.
    Pools,
    /// Volumes, which only owners tell of.
    Volumes,
    /// LUNs, which each node knows, and the owner of the pool tells of.
    Luns,
    /// Shares, likewise.
    Shares,
    /// Disks: of each node its own, those of pools as their owners see them.
    Disks,
    /// What each node has by itself: sessions, opens, jobs.
    Each,
    /// Flows of storage QoS and the volumes that they are on, the worst first over all nodes.
    Flows,
    /// Policies of storage QoS: all nodes have the same, and each says how its own flows fare.
    Policies,
    /// One of them, with its flows on all nodes.
    Policy,
}

impl Merge {
    /// What is shown of a node that does not answer as it was known last, if it is anything that stays what it is.
    pub(super) fn lasting(self) -> Option<&'static str> {
        match self {
            Self::Pools => Some("pool"),
            Self::Volumes => Some("volume"),
            _ => None,
        }
    }

    /// Whether a node lists what others have.
    pub(super) fn names_others(self) -> bool {
        matches!(self, Self::Pools | Self::Luns | Self::Shares)
    }
}

/// Operations on a pool that any node does, also for a pool that is nobody's.
const OF_ANY_NODE: [&str; 2] = ["pool_move", "pool_forget"];

/// Who answers this route.
pub(super) fn rule(route: &Route) -> Rule {
    match route.id {
        "status" => Rule::Everywhere(Merge::Status),
        "pool_list" => Rule::Everywhere(Merge::Pools),
        "volume_list" => Rule::Everywhere(Merge::Volumes),
        "lun_list" => Rule::Everywhere(Merge::Luns),
        "share_list" => Rule::Everywhere(Merge::Shares),
        "disk_list" => Rule::Everywhere(Merge::Disks),
        "finding_list" | "session_list" | "open_list" | "job_list" => Rule::Everywhere(Merge::Each),
        "qos_flow_list" | "qos_volume_list" => Rule::Everywhere(Merge::Flows),
        "qos_policy_list" => Rule::Everywhere(Merge::Policies),
        "qos_policy_show" => Rule::Everywhere(Merge::Policy),
        "session_end" | "open_close" | "job_show" | "finding_acknowledge" | "finding_unacknowledge" => {
            Rule::AtOwner
        }
        // All nodes have the same users; which of them one knows by now it is asked by others, too.
        "user_list" => Rule::AtOwner,
        // Where the volume is, they say themselves: it is in the body, or the only one.
        "volume_create" | "lun_create" | "share_create" => Rule::AtOwner,
        // They name the node that has the volume, where that is another one.
        "qos_assign" | "qos_unassign" => Rule::AtOwner,
        id if OF_ANY_NODE.contains(&id) => Rule::Here,
        _ => {
            let of_owner = ["/pools/{pool}", "/volumes/{volume}", "/luns/{lun}", "/shares/{share}"];
            if of_owner.iter().any(|prefix| route.path.starts_with(prefix)) {
                Rule::AtOwner
            } else {
                Rule::Here
            }
        }
    }
}

/// What a request is about, by its path.
pub(super) fn thing<'a>(
    route: &Route,
    params: &'a [(String, String)],
    pool: Option<&'a str>,
) -> Option<Thing<'a>> {
    let (name, value) = params.first().map(|(name, value)| (name.as_str(), value.as_str()))?;
    match (route.id, name) {
        ("session_end" | "open_close" | "job_show" | "finding_acknowledge" | "finding_unacknowledge", _) => {
            value.split_once(':').map(|(node, _)| Thing::Of(node))
        }
        (_, "pool") => Some(Thing::Pool(value)),
        (_, "volume") => Some(Thing::Volume(value, pool)),
        (_, "lun") => Some(Thing::Lun(value)),
        (_, "share") => Some(Thing::Share(value)),
        _ => None,
    }
}

/// The same for the node itself: `/sessions/7` for `/sessions/n2:7`.
pub(super) fn without_node(uri: &Uri, node: &str) -> Uri {
    let text = uri.to_string();
    [":", "%3A", "%3a"]
        .map(|colon| format!("/{node}{colon}"))
        .iter()
        .find(|prefix| text.contains(prefix.as_str()))
        .and_then(|prefix| text.replacen(prefix, "/", 1).parse().ok())
        .unwrap_or_else(|| uri.clone())
}

#[cfg(test)]
mod tests {
    use control_api::routes::{Method, ROUTES};

    use super::*;

    #[test]
    fn who_lets_in_or_changes_its_place_is_asked_itself() {
        for id in
            ["login", "logout", "token_create", "http_update", "cluster_leave", "node_remove", "config_apply"]
        {
            let route = ROUTES.iter().find(|route| route.id == id).unwrap_or_else(|| panic!("{id}"));
            assert_eq!(rule(route), Rule::Here, "{id}");
        }
        let merged = ROUTES.iter().filter(|route| matches!(rule(route), Rule::Everywhere(_)));
        for route in merged {
            assert_eq!(route.method, Method::Get, "what changes something is done by one node: {}", route.id);
        }
    }

    #[test]
    fn what_is_on_a_volume_is_asked_of_its_owner() {
        for route in ROUTES.iter().filter(|route| route.path.contains("{volume}")) {
            assert_eq!(rule(route), Rule::AtOwner, "{}", route.id);
            let params = [("volume".to_owned(), "v".to_owned())];
            assert_eq!(thing(route, &params, Some("p")), Some(Thing::Volume("v", Some("p"))));
        }
    }

    #[test]
    fn numbers_may_carry_their_node() {
        let route = ROUTES.iter().find(|route| route.id == "session_end").expect("a route");
        let params = |value: &str| [("session".to_owned(), value.to_owned())];
        assert_eq!(thing(route, &params("n2:7"), None), Some(Thing::Of("n2")));
        assert_eq!(thing(route, &params("7"), None), None);
        for from in ["/v1/sessions/n2:7", "/v1/sessions/n2%3A7", "/v1/sessions/n2%3a7"] {
            assert_eq!(without_node(&from.parse().expect("a URI"), "n2"), "/v1/sessions/7");
        }
    }
}
