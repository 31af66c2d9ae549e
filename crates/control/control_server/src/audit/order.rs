//! The fields of an entry as people read them: what matters first, and users and groups by their names.

use control_api::AuditChange;
use serde_json::Value;

/// What a thing is, and whose: told before all else, in this order.
const FIRST: [&str; 16] = [
    "name",
    "user",
    "share",
    "lun",
    "target",
    "group",
    "volume",
    "path",
    "folder",
    "size_bytes",
    "number",
    "members",
    "initiators",
    "permissions",
    "roles",
    "role",
];
/// So many SIDs of an entry are given names: names can be longer than the SIDs, and an entry has a bounded size.
const NAMED: usize = 64;

/// Where a field belongs: what a thing is, what was changed, what was asked for, and last what is only said to be off or empty.
fn rank(change: &AuditChange) -> usize {
    if let Some(at) = FIRST.iter().position(|first| *first == change.field) {
        return at;
    }
    let says_little = |value: &Option<Value>| match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Number(number)) => number.as_u64() == Some(0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Bool(true)) => false,
    };
    let is_change = change.secret || change.old.is_some() && change.new.is_some();
    let last = says_little(&change.old) && says_little(&change.new);
    FIRST.len() + usize::from(!is_change) + usize::from(!is_change && last)
}

/// Puts what matters first; what is alike stays as it is.
pub(crate) fn in_order(changes: &mut [AuditChange]) {
    changes.sort_by_key(rank);
}

/// Puts the name before each SID that is a value, or names an element of a list. `name` says what somebody with a SID is called.
pub(crate) fn with_names(changes: &mut [AuditChange], name: &dyn Fn(&str) -> Option<String>) {
    let mut left = NAMED;
    for change in changes {
        if let Some(named) = named_element(&change.field, name) {
            change.field = named;
        }
        // A field that says what the SID of something is says it.
        if change.field != "sid" {
            [&mut change.old, &mut change.new]
                .into_iter()
                .flatten()
                .for_each(|value| put_names(value, name, &mut left));
        }
    }
}

fn put_names(value: &mut Value, name: &dyn Fn(&str) -> Option<String>, left: &mut usize) {
    match value {
        Value::String(text) if *left > 0 && text.starts_with("S-1-") => {
            if let Some(named) = name(text) {
                *text = format!("{named} ({text})");
                *left -= 1;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| put_names(value, name, left)),
        Value::Object(fields) => fields.values_mut().for_each(|value| put_names(value, name, left)),
        _ => {}
    }
}

/// `permission[S-1-…].right` with the name.
fn named_element(field: &str, name: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (before, rest) = field.split_once("[S-1-")?;
    let (rest, after) = rest.split_once(']')?;
    let sid = format!("S-1-{rest}");
    Some(format!("{before}[{} ({sid})]{after}", name(&sid)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(field: &str, old: Value, new: Value) -> AuditChange {
        let there = |value: Value| (!value.is_null()).then_some(value);
        AuditChange { field: field.into(), old: there(old), new: there(new), secret: false }
    }

    #[test]
    fn what_matters_comes_first() {
        let mut changes = vec![
            change("access_based_enumeration", Value::Null, json!(false)),
            change("caching", Value::Null, json!("manual")),
            change("comment", Value::Null, json!("")),
            change("encrypt", json!(false), json!(true)),
            change("hidden", Value::Null, json!(true)),
            AuditChange { secret: true, ..change("key", Value::Null, Value::Null) },
            change("name", Value::Null, json!("s")),
            change("volume", Value::Null, json!("v")),
        ];
        in_order(&mut changes);
        let fields: Vec<&str> = changes.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(
            fields,
            ["name", "volume", "encrypt", "key", "caching", "hidden", "access_based_enumeration", "comment"]
        );
    }

    #[test]
    fn sids_have_names_and_are_bounded() {
        let name = |sid: &str| (sid == "S-1-5-21-1-2-3-1000").then(|| "bob".to_owned());
        let sid = "S-1-5-21-1-2-3-1000";
        let mut changes = vec![
            change("shares[s].permission[S-1-5-21-1-2-3-1000].right", json!("read"), json!("full")),
            change("shares[s].permission[S-1-9]", Value::Null, json!({ "who": "S-1-9" })),
            change("http.operators", json!([]), json!([sid])),
            change("sid", json!(sid), Value::Null),
            change("many", Value::Null, json!(vec![sid; 1000])),
        ];
        with_names(&mut changes, &name);
        assert_eq!(changes[0].field, "shares[s].permission[bob (S-1-5-21-1-2-3-1000)].right");
        assert_eq!(changes[1].field, "shares[s].permission[S-1-9]");
        assert_eq!(changes[2].new, Some(json!(["bob (S-1-5-21-1-2-3-1000)"])));
        assert_eq!(changes[3].old, Some(json!(sid)));
        let many = changes[4].new.as_ref().map(Value::to_string).unwrap_or_default();
        assert_eq!(many.matches("bob").count(), NAMED - 1);
    }
}
