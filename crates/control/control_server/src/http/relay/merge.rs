//! Lists of several nodes as one.

use std::collections::BTreeSet;

use control_api::{NodeDisk, natural_order};
use serde_json::Value;

use super::flows;
use super::rule::Merge;

/// What is known beside the lists.
pub(super) struct Told<'a> {
    /// The node that owns a pool, by the pool's name.
    pub(super) owner: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a thing in the list of the node that is asked is another node's to tell of.
    pub(super) is_elsewhere: &'a dyn Fn(&Value) -> bool,
}

fn text<'a>(item: &'a Value, field: &str) -> &'a str {
    item[field].as_str().unwrap_or_default()
}

fn set(item: &mut Value, field: &str, value: &str) {
    if let Value::Object(fields) = item {
        fields.insert(field.to_owned(), value.into());
    }
}

/// One list of what the nodes have told, each thing with its node; the first of them is the node that is asked, `me`.
pub(super) fn merged(
    merge: Merge,
    me: &str,
    told: Vec<(String, Vec<Value>)>,
    beside: &Told<'_>,
) -> Vec<Value> {
    if merge == Merge::Disks {
        return disks(me, told, beside);
    }
    if merge == Merge::Policies {
        return flows::policies(told.into_iter().map(|(_, list)| list).collect());
    }
    let mut items: Vec<Value> = Vec::new();
    let mut told_of: BTreeSet<String> = BTreeSet::new();
    let mut others_to_tell: Vec<Value> = Vec::new();
    for (node, list) in told {
        for mut item in list {
            if node == me && (beside.is_elsewhere)(&item) {
                others_to_tell.push(item);
                continue;
            }
            // LUNs and shares are in the configuration of all: told of by one node only, but between two owners by two.
            if merge.names_others() && !told_of.insert(identity(merge, &item)) {
                continue;
            }
            // Flows name their node themselves.
            if text(&item, "node").is_empty() {
                set(&mut item, "node", &node);
            }
            items.push(item);
        }
    }
    for mut item in others_to_tell {
        if told_of.insert(identity(merge, &item)) {
            // Its owner has not told of it.
            if let Some(owner) =
                (beside.owner)(text(&item, if merge == Merge::Pools { "name" } else { "pool" }))
            {
                set(&mut item, "node", &owner);
            }
            items.push(item);
        }
    }
    if merge == Merge::Flows {
        flows::sort(&mut items)
    } else {
        sort(merge, &mut items)
    }
    items
}

/// Adds what nodes that do not answer have told before, in place of what is known of it without them.
pub(super) fn add_known(merge: Merge, items: &mut Vec<Value>, known: Vec<Value>) {
    let known_of: BTreeSet<String> = known.iter().map(|item| identity(merge, item)).collect();
    items.retain(|there| there["state"] != "elsewhere" || !known_of.contains(&identity(merge, there)));
    let mut there: BTreeSet<String> = items.iter().map(|item| identity(merge, item)).collect();
    items.extend(known.into_iter().filter(|item| there.insert(identity(merge, item))));
    sort(merge, items);
}

/// What tells things of a list apart.
fn identity(merge: Merge, item: &Value) -> String {
    match merge {
        Merge::Pools => text(item, "guid").to_owned(),
        // A name has no `/`.
        Merge::Volumes => format!("{}/{}", text(item, "pool"), text(item, "name")),
        _ => text(item, "name").to_owned(),
    }
}

/// What hurts most comes first, as in the lists of one node.
fn sort(merge: Merge, items: &mut [Value]) {
    let redundancy = |item: &Value| match text(item, "redundancy") {
        "unavailable" => 0,
        "reduced" => 1,
        "restoring" => 2,
        _ => 3_u8,
    };
    let hurts = |item: &Value| match merge {
        Merge::Pools => (redundancy(item), u8::from(item["state"] != "closed")),
        Merge::Volumes => (u8::from(item["online"] == true), redundancy(item)),
        Merge::Luns => (u8::from(item["problem"].is_null()), u8::from(item["serving"] != "offline")),
        Merge::Shares => (u8::from(item["online"] == true), u8::from(item["problem"].is_null())),
        _ => (0, 0),
    };
    let named = matches!(merge, Merge::Pools | Merge::Volumes | Merge::Luns | Merge::Shares);
    items.sort_by(|a, b| {
        let by_name = || if named { text(a, "name").cmp(text(b, "name")) } else { std::cmp::Ordering::Equal };
        hurts(a).cmp(&hurts(b)).then_with(by_name)
    });
}

/// What a disk in the list of `node` is called at `me`.
fn disk_at(me: &str, node: &str, id: &str) -> String {
    match NodeDisk::parse(id) {
        Some(disk) if disk.node == me => disk.path.to_owned(),
        None if node != me && id.starts_with('/') => format!("{node}:{id}"),
        _ => id.to_owned(),
    }
}

/// Disks are listed by the nodes that have them and by those that they are lent to. The owner of the pool knows how it is with a disk, then the
/// node that it is in; what it is called is said as for the node that is asked.
fn disks(me: &str, told: Vec<(String, Vec<Value>)>, beside: &Told<'_>) -> Vec<Value> {
    struct Seen {
        item: Value,
        rank: u8,
    }
    let mut all: Vec<Seen> = Vec::new();
    for (node, list) in told {
        for mut item in list {
            let id = disk_at(me, &node, text(&item, "id"));
            let of = NodeDisk::parse(&id).map(|disk| disk.node.to_owned());
            // A disk of an iSCSI target, or one that is not there, is in no node.
            let place = of.or_else(|| id.starts_with('/').then(|| me.to_owned()));
            let owner = item["pool"].as_str().and_then(|pool| (beside.owner)(pool));
            let rank = match (&owner, &place) {
                (Some(owner), _) if *owner == node => 0,
                (_, Some(place)) if *place == node => 1,
                _ if node == me => 2,
                _ => 3,
            };
            if item["guid"].is_string() && id == text(&item, "guid") && rank > 0 {
                // Whoever owns the pool misses it, or nobody does.
                continue;
            }
            set(&mut item, "id", &id);
            if let Some(place) = place {
                set(&mut item, "node", &place);
            }
            let same = |seen: &&mut Seen| {
                seen.item["id"] == item["id"]
                    || (item["guid"].is_string() && seen.item["guid"] == item["guid"])
            };
            match all.iter_mut().find(same) {
                Some(seen) => {
                    let (better, other) =
                        if rank < seen.rank { (item, &seen.item) } else { (seen.item.clone(), &item) };
                    seen.item = completed(better, other);
                    seen.rank = seen.rank.min(rank);
                }
                None => all.push(Seen { item, rank }),
            }
        }
    }
    let mut items: Vec<Value> = all.into_iter().map(|seen| seen.item).collect();
    let hurts = |item: &Value| {
        ["missing", "failed", "retiring", "online", "spare", "other-pool", "foreign", "in-use", "free"]
            .iter()
            .position(|state| item["state"] == *state)
    };
    items.sort_by(|a, b| hurts(a).cmp(&hurts(b)).then_with(|| natural_order(text(a, "id"), text(b, "id"))));
    items
}

/// A disk with what only another node knows of it: the node that it is in knows model, serial number and place.
fn completed(mut better: Value, other: &Value) -> Value {
    if let (Value::Object(fields), Value::Object(other)) = (&mut better, other) {
        for field in ["path", "model", "serial", "vendor", "bus", "enclosure", "slot", "node", "pool"] {
            if !fields.contains_key(field)
                && let Some(value) = other.get(field)
            {
                fields.insert(field.to_owned(), value.clone());
            }
        }
    }
    better
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all(merge: Merge, told: Vec<(&str, Value)>) -> Vec<Value> {
        let owner = |pool: &str| match pool {
            "p1" => Some("n1".to_owned()),
            "p2" => Some("n2".to_owned()),
            _ => None,
        };
        let is_elsewhere = |item: &Value| item["state"] == "elsewhere" || item["problem"] == "elsewhere";
        let told = told
            .into_iter()
            .map(|(node, items)| (node.to_owned(), items.as_array().cloned().unwrap_or_default()))
            .collect();
        merged(merge, "n1", told, &Told { owner: &owner, is_elsewhere: &is_elsewhere })
    }

    #[test]
    fn a_pool_is_told_of_by_its_owner() {
        let own = json!([
            { "name": "p1", "guid": "1", "state": "online", "redundancy": "full" },
            { "name": "p2", "guid": "2", "state": "elsewhere", "redundancy": "full" },
        ]);
        let other = json!([{ "name": "p2", "guid": "2", "state": "degraded", "redundancy": "reduced" }]);
        let pools = all(Merge::Pools, vec![("n1", own.clone()), ("n2", other)]);
        let told: Vec<(&str, &str, &str)> =
            pools.iter().map(|pool| (text(pool, "name"), text(pool, "node"), text(pool, "state"))).collect();
        assert_eq!(told, [("p2", "n2", "degraded"), ("p1", "n1", "online")], "what hurts comes first");
        let alone = all(Merge::Pools, vec![("n1", own)]);
        assert_eq!(text(&alone[1], "node"), "n2", "it is said who has it");
    }

    #[test]
    fn a_lun_is_told_of_once() {
        let own = json!([{ "name": "a", "problem": "elsewhere" }, { "name": "b", "problem": null }]);
        let other = json!([{ "name": "a", "problem": null, "serving": "online" }]);
        let luns = all(Merge::Luns, vec![("n1", own), ("n2", other)]);
        assert_eq!(luns.len(), 2);
        assert!(luns.iter().all(|lun| lun["problem"].is_null()), "{luns:?}");
        assert_eq!(text(&luns[0], "node"), "n2");
    }

    #[test]
    fn a_disk_is_listed_once_as_its_owner_sees_it() {
        let own = json!([
            { "id": "/dev/sda", "path": "/dev/sda", "state": "online", "guid": "a", "pool": "p1" },
            { "id": "n2:/dev/sdb", "state": "failed", "guid": "b", "pool": "p2", "node": "n2" },
        ]);
        let other = json!([
            { "id": "n1:/dev/sda", "state": "failed", "guid": "a", "pool": "p1" },
            { "id": "/dev/sdb", "path": "/dev/sdb", "state": "online", "guid": "b", "pool": "p2", "serial": "S" },
            { "id": "/dev/sdc", "state": "free" },
            { "id": "c", "state": "missing", "guid": "c", "pool": "p1" },
        ]);
        let disks = all(Merge::Disks, vec![("n1", own), ("n2", other)]);
        let told: Vec<(&str, &str, &str)> =
            disks.iter().map(|disk| (text(disk, "id"), text(disk, "node"), text(disk, "state"))).collect();
        assert_eq!(
            told,
            [("/dev/sda", "n1", "online"), ("n2:/dev/sdb", "n2", "online"), ("n2:/dev/sdc", "n2", "free"),]
        );
        assert_eq!(disks[1]["serial"], "S");
    }

    #[test]
    fn sessions_have_their_node() {
        let told = vec![("n1", json!([{ "id": 1 }])), ("n2", json!([{ "id": 1 }]))];
        let sessions = all(Merge::Each, told);
        assert_eq!(sessions, [json!({ "id": 1, "node": "n1" }), json!({ "id": 1, "node": "n2" })]);
    }
}
