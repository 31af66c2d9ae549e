//! What nodes have said last, for as long as they do not answer.

use std::collections::BTreeMap;

use control_api::many;
use parking_lot::Mutex;
use serde_json::Value;

use super::rule::Merge;
use crate::node::Node;

/// The most that is kept of one node's things of a kind.
const MOST: usize = 10_000;
/// The most lists that are kept: two kinds of 64 nodes.
const LISTS: usize = 128;

type Said = (u64, Vec<Value>);

/// The last answers of other nodes.
#[derive(Default)]
pub(in crate::http) struct Remembered(Mutex<BTreeMap<(String, &'static str), Said>>);

impl Remembered {
    /// A node has said this of its things of a kind, at this time.
    pub(super) fn keep(&self, node: &str, what: &'static str, items: &[Value], now: u64) {
        let mut all = self.0.lock();
        let key = (node.to_owned(), what);
        if items.len() > MOST || (all.len() >= LISTS && !all.contains_key(&key)) {
            all.remove(&key);
            return;
        }
        all.insert(key, (now, items.to_vec()));
    }

    /// The nodes that have said something of a kind.
    pub(super) fn nodes(&self, what: &'static str) -> Vec<String> {
        self.0.lock().keys().filter(|(_, of)| *of == what).map(|(node, _)| node.clone()).collect()
    }

    /// What it said last, and when.
    pub(super) fn of(&self, node: &str, what: &'static str) -> Option<Said> {
        self.0.lock().get(&(node.to_owned(), what)).cloned()
    }
}

/// `12:03` of a time of the day, UTC.
fn clock(at: u64) -> String {
    format!("{:02}:{:02}", at / 3600 % 24, at / 60 % 60)
}

/// What a node said of what it still has, marked as such, and a sentence about it.
pub(super) fn as_known(
    node: &Node,
    silent: &str,
    at: u64,
    mut items: Vec<Value>,
    merge: Merge,
) -> (String, Vec<Value>) {
    let cut_off = node.place().is_some_and(|place| place.hears_nobody());
    let pool_of =
        |item: &Value| item[if merge == Merge::Pools { "name" } else { "pool" }].as_str().map(str::to_owned);
    items.retain(|item| pool_of(item).and_then(|pool| node.owner_name(&pool)).as_deref() == Some(silent));
    mark(silent, at, items, merge, cut_off)
}

/// `cut_off`: it is the node that is asked that hears of nobody.
fn mark(silent: &str, at: u64, mut items: Vec<Value>, merge: Merge, cut_off: bool) -> (String, Vec<Value>) {
    let says_nothing =
        if cut_off { "this node is cut off and does not reach it" } else { "it does not answer" };
    let word = merge.lasting().unwrap_or("thing");
    if items.is_empty() {
        return (format!("{says_nothing}; whether it has a {word} is not known."), items);
    }
    let is = if items.len() == 1 { "is" } else { "are" };
    let was = if items.len() == 1 { "it was" } else { "they were" };
    let detail = format!(
        "{says_nothing}; its {} {is} shown as {was} known at {} UTC.",
        many(items.len() as u64, word),
        clock(at)
    );
    for item in &mut items {
        if let Value::Object(fields) = item {
            fields.insert("node".into(), silent.into());
            fields.insert("known_at".into(), at.into());
            let why = if cut_off {
                format!("this node is cut off and does not reach node {silent}")
            } else {
                format!("node {silent} does not answer")
            };
            fields.insert("reason".into(), why.into());
            // Nobody knows that it is.
            if fields.contains_key("online") {
                fields.insert("online".into(), false.into());
            }
            if merge == Merge::Pools {
                fields.insert("state".into(), "elsewhere".into());
            }
        }
    }
    (detail, items)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_heard_of_is_told_as_known_then() {
        let (told, items) =
            mark("n2", 43_380, vec![json!({ "name": "v", "online": true })], Merge::Volumes, false);
        assert_eq!(told, "it does not answer; its 1 volume is shown as it was known at 12:03 UTC.");
        assert_eq!(items[0]["online"], false);
        assert_eq!(items[0]["known_at"], 43_380);
        let (told, _) = mark("n2", 43_380, vec![json!({}), json!({})], Merge::Volumes, true);
        let expected = "this node is cut off and does not reach it; its 2 volumes are shown as they were known at 12:03 UTC.";
        assert_eq!(told, expected);
    }

    #[test]
    fn it_is_bounded() {
        let known = Remembered::default();
        for node in 0..1000 {
            known.keep(&format!("n{node}"), "volume", &[json!({})], 1);
        }
        assert_eq!(known.0.lock().len(), LISTS);
        known.keep("n1", "volume", &vec![json!({}); MOST + 1], 2);
        assert!(known.of("n1", "volume").is_none(), "too much to keep");
    }
}
