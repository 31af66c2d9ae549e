//! What is listed of several nodes: each thing with the node that tells of it, and the nodes that told nothing.

use std::ops::Deref;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A thing, and the node that tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}OnNode")]
pub struct OnNode<T> {
    /// The node that has it, or that its client uses; absent on a node that belongs to no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node does not answer: this is what it said then, in seconds since 1970. Absent for what is told now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_at: Option<u64>,
    /// The thing.
    #[serde(flatten)]
    pub item: T,
}

impl<T> From<T> for OnNode<T> {
    /// Of a node that is not said.
    fn from(item: T) -> Self {
        Self { node: None, known_at: None, item }
    }
}

impl<T> Deref for OnNode<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

/// A node that was asked and did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unanswered {
    /// The node.
    pub node: String,
    /// A sentence: what is missing because of it, or as of when it is shown.
    pub detail: String,
}

/// A thing with a number that each node gives by itself: `n2:7` is number 7 of node n2, `7` that of the node that is asked.
#[must_use]
pub fn numbered(node: Option<&str>, number: u64) -> String {
    node.map_or_else(|| number.to_string(), |node| format!("{node}:{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Thing {
        name: String,
    }

    #[test]
    fn a_node_alone_adds_nothing() {
        let thing = OnNode { node: None, known_at: None, item: Thing { name: "a".into() } };
        assert_eq!(serde_json::to_string(&thing).expect("JSON"), r#"{"name":"a"}"#);
        let told: OnNode<Thing> = serde_json::from_str(r#"{"node":"n2","name":"a"}"#).expect("a thing");
        assert_eq!((told.node.as_deref(), told.name.as_str()), (Some("n2"), "a"));
        assert_eq!((numbered(Some("n2"), 7), numbered(None, 7)), ("n2:7".into(), "7".into()));
    }
}
