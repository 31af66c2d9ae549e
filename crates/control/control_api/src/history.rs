//! What counters were: a node's past, in steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ObjectCounters;

/// What of the past is asked for, in the query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// From this moment on, in milliseconds since 1970; an hour before the end if not given.
    pub from_unix_ms: Option<u64>,
    /// Until this one; now if not given.
    pub to_unix_ms: Option<u64>,
    /// The length of a step; as many steps as fit a chart if not given.
    pub step_seconds: Option<u64>,
    /// Kinds of things, separated by commas; all if not given.
    pub kind: Option<String>,
    /// Names that match this; `*` stands for anything.
    pub name: Option<String>,
    /// In place of things the sum of each kind, `_Total`.
    #[serde(default)]
    pub sum: bool,
}

/// A step of time, and what things did in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryStep {
    /// When it ends, in milliseconds since 1970.
    pub time_unix_ms: u64,
    /// For how many seconds of it something was counted: fewer than it is long while the node was down.
    pub seconds: f64,
    /// By how much counters grew, with what was under way or in use at the end. What did nothing is not there. Of kinds of which very many did
    /// something at once the busiest are there, and `_Others`, the sum of those that were left out.
    pub items: Vec<ObjectCounters>,
}

/// What counters were in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The node that counted.
    pub node: String,
    /// The length of the steps.
    pub step_seconds: u64,
    /// From when on anything is kept, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_ms: Option<u64>,
    /// The steps, the oldest first. Those in which the node was down all the time are not there.
    pub steps: Vec<HistoryStep>,
}

/// Whether a name matches a pattern, in which `*` stands for anything; case is not looked at, as in Get-Counter.
#[must_use]
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    let mut rest = rest;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, want) in [
            ("vm", "vm", true),
            ("vm", "vm2", false),
            ("VM*", "vm2", true),
            ("*", "", true),
            ("*disk*", "/d/disk1", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*aa", "a", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(name_matches(pattern, name), want, "{pattern} {name}");
        }
    }
}
