//! `holdfast audit`: who has changed what.

use control_api::{AUDIT_ENTRIES_MAX, AuditChange, AuditEntry, List, human_bytes};
use serde_json::Value;

use crate::context::Context;
use crate::error::CliResult;
use crate::table::Table;
use crate::units::time;

/// Fields that the table shows of a change, and characters of one of their values.
const FIELDS: usize = 4;
const VALUE_CHARS: usize = 40;

/// Show who has changed what: the newest entries, in the order of time, so that the newest is the last, in the table and in JSON. With
/// --json, all fields that were changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many entries, from 1 to 100000.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_ENTRIES_MAX)))]
    limit: u32,
}

pub(crate) async fn run(args: Args, context: &Context) -> CliResult {
    let path = format!("/audit?limit={}", args.limit);
    let mut list: List<AuditEntry> = context.client.get(&path).await?;
    // The node gives the newest first.
    list.items.reverse();
    context.show(&list, |list| print(&list.items))
}

fn print(entries: &[AuditEntry]) {
    let headings = ["TIME (UTC)", "WHO", "FROM", "REQUEST", "OBJECT", "RESULT", "CHANGED"];
    let mut table = Table::new(&headings, "Nothing has been changed yet.");
    for entry in entries {
        table.row([
            time(entry.time),
            entry.who.clone(),
            entry.from.clone(),
            entry.request.clone(),
            entry.object.clone(),
            entry.result.clone(),
            changed(entry),
        ]);
    }
    table.print();
}

/// What was changed, or why it was not, in short.
fn changed(entry: &AuditEntry) -> String {
    if !entry.reason.is_empty() {
        return entry.reason.clone();
    }
    let mut told: Vec<String> = entry.changes.iter().take(FIELDS).map(field).collect();
    let more = entry.changes.len().saturating_sub(FIELDS);
    if more > 0 {
        told.push(format!("{more} more fields (--json)"));
    }
    if !entry.left_out.is_empty() {
        told.push(format!("left out: {}", entry.left_out));
    }
    told.join(", ")
}

fn field(change: &AuditChange) -> String {
    let AuditChange { field, old, new, secret } = change;
    let value = |value: &Value| value_of(field, value);
    match (old, new) {
        _ if *secret => format!("{field}: changed"),
        (Some(old), Some(new)) => format!("{field}: {} → {}", value(old), value(new)),
        (None, Some(new)) => format!("{field}: {}", value(new)),
        (Some(old), None) => format!("{field}: {} → nothing", value(old)),
        (None, None) => field.clone(),
    }
}

/// A value as people read it: sizes in their units, text without quotes, and cut.
fn value_of(field: &str, value: &Value) -> String {
    let text = match value {
        Value::Number(number) if field.ends_with("bytes") => {
            number.as_u64().map_or_else(|| number.to_string(), human_bytes)
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(VALUE_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default().trim_end_matches('…')),
        None => text,
    }
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
    fn the_table_is_short_and_says_what_it_leaves_out() {
        let secret = AuditChange { secret: true, ..change("password", Value::Null, Value::Null) };
        let mut entry = AuditEntry {
            changes: vec![
                change("size_bytes", json!(1 << 30), json!(2_u64 << 30)),
                change("comment", Value::Null, json!("ä".repeat(100))),
                change("map[all]", json!({ "number": 1 }), Value::Null),
                secret,
                change("a", json!(1), json!(2)),
            ],
            left_out: "3 more fields".into(),
            ..AuditEntry::default()
        };
        assert_eq!(
            changed(&entry),
            format!(
                "size_bytes: 1.00 GiB → 2.00 GiB, comment: {}…, map[all]: {{\"number\":1}} → nothing, password: changed, 1 more fields (--json), left out: 3 more fields",
                "ä".repeat(40)
            )
        );
        entry.reason = "There is no LUN x.".into();
        assert_eq!(changed(&entry), "There is no LUN x.");
    }
}
