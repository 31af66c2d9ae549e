//! Policies and flows of several nodes: how the flows of all of them fare, the worst first.

use control_api::{FlowStatus, Unanswered};
use serde::Deserialize as _;
use serde_json::Value;

fn status(item: &Value) -> FlowStatus {
    FlowStatus::deserialize(&item["status"]).unwrap_or_default()
}

/// Puts flows, or volumes, in trouble first; then those that lose most by what holds them back, as in the list of one node.
pub(super) fn sort(items: &mut [Value]) {
    let number = |item: &Value, field: &str| item[field].as_u64().unwrap_or_default();
    let hurts = |item: &Value| {
        (status(item), number(item, "held_us").saturating_mul(number(item, "normalized_iops")))
    };
    let name = |item: &Value| {
        ["volume", "lun", "file", "initiator", "node"]
            .map(|field| item[field].as_str().unwrap_or_default().to_owned())
    };
    items.sort_by(|a, b| hurts(b).cmp(&hurts(a)).then_with(|| name(a).cmp(&name(b))));
}

/// The status of something of which others have told, too: the worst.
fn worsen(item: &mut Value, other: &Value) {
    if status(other) > status(item)
        && let Value::Object(fields) = item
    {
        fields.insert("status".to_owned(), other["status"].clone());
    }
}

/// The policies of the node that is asked, which told first, each as its flows fare on all nodes.
pub(super) fn policies(told: Vec<Vec<Value>>) -> Vec<Value> {
    let mut told = told.into_iter();
    let mut all = told.next().unwrap_or_default();
    let others: Vec<Value> = told.flatten().collect();
    for policy in &mut all {
        for other in &others {
            if other["guid"] == policy["guid"] {
                worsen(policy, other);
            }
        }
    }
    let name = |policy: &Value| policy["name"].as_str().unwrap_or_default().to_owned();
    all.sort_by(|a, b| status(b).cmp(&status(a)).then_with(|| name(a).cmp(&name(b))));
    all
}

/// A policy as the node has it that is asked, with its flows on the others.
pub(super) fn policy(mut own: Value, others: Vec<Value>, silent: Vec<String>) -> Value {
    let mut flows = own["flows"].take().as_array().cloned().unwrap_or_default();
    for mut other in others {
        worsen(&mut own, &other);
        if let Value::Array(more) = other["flows"].take() {
            flows.extend(more);
        }
    }
    sort(&mut flows);
    if let Value::Object(fields) = &mut own {
        fields.insert("flows".to_owned(), flows.into());
        let detail = "it does not answer; flows that it has are not shown.";
        let unanswered: Vec<Unanswered> =
            silent.into_iter().map(|node| Unanswered { node, detail: detail.to_owned() }).collect();
        if !unanswered.is_empty() {
            fields.insert("unanswered".to_owned(), serde_json::to_value(unanswered).unwrap_or_default());
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flow(node: &str, status: &str, held: u64) -> Value {
        json!({ "node": node, "status": status, "held_us": held, "normalized_iops": 10 })
    }

    #[test]
    fn what_hurts_most_comes_first_whichever_node_has_it() {
        let mut flows = vec![
            flow("n1", "Ok", 5),
            flow("n1", "UnknownPolicyId", 0),
            flow("n2", "Ok", 7),
            flow("n3", "InsufficientThroughput", 1),
        ];
        sort(&mut flows);
        let nodes: Vec<&str> = flows.iter().filter_map(|flow| flow["node"].as_str()).collect();
        assert_eq!(nodes, ["n3", "n1", "n2", "n1"]);
    }

    #[test]
    fn a_policy_fares_as_its_worst_flow_on_any_node() {
        let of = |name: &str, status: &str| json!({ "guid": name, "name": name, "status": status });
        let own = vec![of("a", "Ok"), of("b", "Ok"), of("c", "UnknownPolicyId")];
        let other = vec![of("b", "InsufficientThroughput"), of("c", "Ok"), of("d", "InsufficientThroughput")];
        let all = policies(vec![own, other]);
        let expected = [of("b", "InsufficientThroughput"), of("c", "UnknownPolicyId"), of("a", "Ok")];
        assert_eq!(all, expected, "each once, the worst first");
        let one = |status: &str, flow: Value| json!({ "name": "b", "status": status, "flows": [flow] });
        let told = policy(
            one("Ok", flow("n1", "Ok", 1)),
            vec![one("InsufficientThroughput", flow("n2", "InsufficientThroughput", 1))],
            vec!["n3".into()],
        );
        assert_eq!(
            (&told["status"], &told["flows"][0]["node"]),
            (&json!("InsufficientThroughput"), &json!("n2"))
        );
        assert_eq!(
            (told["flows"].as_array().map(Vec::len), &told["unanswered"][0]["node"]),
            (Some(2), &json!("n3"))
        );
    }
}
