//! What a change has changed, field by field, out of the JSON of a thing before and after it.
//!
//! ```text
//!   before ─┐
//!           ├─► differences ─► figures left out, secrets hidden, values cut ─► as many as there is room for, and how many there were
//!   after  ─┘
//! ```
//! Invariants:
//! * No value of a field that is a secret comes out, however deep it lies.
//! * What comes out has a bounded size, whatever goes in.

use std::collections::{BTreeMap, BTreeSet};

use control_api::{AuditChange, REDACTED};
use serde_json::{Map, Value};

use super::addresses::without_secrets;

/// Bytes of one value.
const VALUE_BYTES: usize = 256;
/// Bytes of a field's name.
const FIELD_BYTES: usize = 160;
/// Bytes of all fields of a change, so that eight files of lines reach back far enough.
const ALL_BYTES: usize = 8 << 10;

/// Fields that are secrets wherever they are. `key` is also the path of a file, which is nobody's business either.
const SECRETS: [&str; 5] = ["password", "secret", "target_secret", "token", "key"];

/// Figures and states that change by themselves, or follow from what is told anyway: nobody has changed them.
const FIGURES: &[&str] = &[
    "allocated_bytes",
    "balance",
    "checksum_errors",
    "commands",
    "connections",
    "copied_bytes",
    "counters",
    "delivered",
    "digests",
    "epoch",
    "failed",
    "forecast",
    "free_bytes",
    "full_seconds",
    "healed_blocks",
    "held_bytes",
    "here",
    "io",
    "io_errors",
    "known_at",
    "last_seen",
    "last_used",
    "limit_in_force_bytes",
    "listeners",
    "load",
    "log",
    "luns",
    "offered",
    "opens",
    "password_set",
    "read",
    "read_bytes",
    "redundancy",
    "repair_bytes",
    "scrub",
    "sessions",
    "shares",
    "since",
    "slow_seconds",
    "smb1_attempts",
    "smb1_count",
    "space",
    "status",
    "times",
    "traffic",
    "tsih",
    "used_bytes",
    "volumes",
    "waiting",
    "write",
    "written_bytes",
];

/// Of the whole configuration these are what it is made of, and no figures.
const NAMES_OF_LISTS: [&str; 4] = ["luns", "shares", "volumes", "log"];

/// What names an element of a list, the best first.
const NAMES: [&str; 9] = ["name", "id", "user", "owner", "who", "address", "disk", "guid", "path"];

/// What was changed, as far as there is room for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) changes: Vec<AuditChange>,
    /// Bytes of those.
    bytes: usize,
    /// Fields that there was no room for.
    pub(crate) more: usize,
}

impl Fields {
    /// What differs between a thing before and after.
    pub(crate) fn between(before: &Value, after: &Value) -> Self {
        let mut fields = Self::default();
        fields.differ("", Some(before), Some(after), true);
        fields
    }

    /// What was there and is not any more.
    pub(crate) fn gone(was: &Value) -> Self {
        let mut fields = Self::default();
        fields.differ("", Some(was), None, true);
        fields
    }

    /// What was asked for, without what only says that it is meant.
    pub(crate) fn given(asked: &Value) -> Self {
        let mut fields = Self::default();
        if let Value::Object(asked) = asked {
            for (name, value) in asked.iter().filter(|(name, _)| *name != "confirm") {
                fields.differ(name, None, Some(value), false);
            }
        }
        fields
    }

    /// The fields of `other` that are not told already.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.more += other.more;
        for change in other.changes {
            if !self.changes.iter().any(|known| known.field == change.field) {
                self.push(change);
            }
        }
        self
    }

    /// Those of which a part is a secret, and what stands beside one: whose it is.
    pub(crate) fn only_secrets(mut self) -> Self {
        let hides =
            |value: &Option<Value>| value.as_ref().is_some_and(|value| value.to_string().contains(REDACTED));
        let place = |change: &AuditChange| Some(change.field.rsplit_once('.')?.0.to_owned());
        let places: Vec<String> =
            self.changes.iter().filter(|change| change.secret).filter_map(place).collect();
        let beside = |change: &AuditChange| place(change).is_some_and(|place| places.contains(&place));
        self.changes.retain(|change| change.secret || hides(&change.new) || beside(change));
        self.more = 0;
        self
    }

    /// As another node has sent them, which is not believed to have kept to any size.
    pub(crate) fn sent(changes: Vec<AuditChange>, more: usize) -> Self {
        let mut fields = Self { more, ..Self::default() };
        for AuditChange { field, old, new, secret } in changes {
            let value = |value: Option<Value>| value.filter(|_| !secret).map(|value| shown(&field, &value));
            let (old, new) = (value(old), value(new));
            fields.push(AuditChange { field, old, new, secret });
        }
        fields
    }

    fn push(&mut self, mut change: AuditChange) {
        cut(&mut change.field, FIELD_BYTES);
        let size = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.to_string().len());
        let bytes = change.field.len() + size(&change.old) + size(&change.new) + 32;
        if self.bytes + bytes > ALL_BYTES {
            self.more += 1;
            return;
        }
        self.bytes += bytes;
        self.changes.push(change);
    }

    fn tell(&mut self, field: &str, old: Option<&Value>, new: Option<&Value>) {
        if self.bytes >= ALL_BYTES {
            self.more += 1;
            return;
        }
        self.push(AuditChange {
            field: field.to_owned(),
            old: old.map(|old| shown(field, old)),
            new: new.map(|new| shown(field, new)),
            secret: false,
        });
    }

    /// Adds what differs of the field called `field`; of a thing itself that is nothing.
    fn differ(&mut self, field: &str, old: Option<&Value>, new: Option<&Value>, figures: bool) {
        let (old, new) = (old.filter(|old| !is_nothing(old)), new.filter(|new| !is_nothing(new)));
        if old == new {
            return;
        }
        match (old, new) {
            _ if is_secret(field) => {
                self.push(AuditChange { field: field.to_owned(), old: None, new: None, secret: true });
            }
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.objects(field, old, new, figures),
            (Some(Value::Object(old)), None) => self.objects(field, old, &Map::new(), figures),
            (None, Some(Value::Object(new))) => self.objects(field, &Map::new(), new, figures),
            (Some(Value::Array(old)), Some(Value::Array(new))) => self.lists(field, old, new, figures),
            _ => self.tell(field, old, new),
        }
    }

    fn objects(&mut self, field: &str, old: &Map<String, Value>, new: &Map<String, Value>, figures: bool) {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        // The whole configuration is known by what no other thing has.
        let config = field.is_empty() && old.contains_key("schema");
        for name in names {
            let is_list = config && NAMES_OF_LISTS.contains(&name.as_str());
            if figures && !is_list && FIGURES.contains(&name.as_str()) {
                continue;
            }
            let path = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
            self.differ(&path, old.get(name), new.get(name), figures);
        }
    }

    /// Elements that have names are looked at one by one. Lists of plain values are told whole where they are short, as their order may
    /// mean something; of others, what came and what went.
    fn lists(&mut self, field: &str, old: &[Value], new: &[Value], figures: bool) {
        let plain = !old.iter().chain(new).any(Value::is_object);
        let length = |list: &[Value]| list.iter().map(|value| value.to_string().len() + 1).sum::<usize>();
        if plain && length(old).max(length(new)) < VALUE_BYTES {
            let list = |list: &[Value]| Value::Array(list.to_vec());
            self.tell(field, Some(&list(old)), Some(&list(new)));
            return;
        }
        let (old, new) = (named(old), named(new));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let path = format!("{field}[{name}]");
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) => self.differ(&path, Some(old), Some(new), figures),
                (old, new) => self.tell(&path, old.copied(), new.copied()),
            }
        }
    }
}

/// What says that there is nothing: a field is left out where it has none of its own.
fn is_nothing(value: &Value) -> bool {
    value.is_null()
        || value.as_array().is_some_and(Vec::is_empty)
        || value.as_str().is_some_and(str::is_empty)
}

/// The last name of a path.
fn last_name(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or_default()
}

/// Whether the last name of a path is that of a secret.
fn is_secret(field: &str) -> bool {
    SECRETS.contains(&last_name(field))
}

/// The elements of a list by what names them; those that share a name, or have none, by their place as well.
fn named(list: &[Value]) -> BTreeMap<String, &Value> {
    let mut all = BTreeMap::new();
    for (at, value) in list.iter().enumerate() {
        let name = match name_of(value) {
            Some(name) if !all.contains_key(&name) => name,
            Some(name) => format!("{name} #{at}"),
            None => format!("#{at}"),
        };
        all.insert(name, value);
    }
    all
}

/// What an element of a list is called.
pub(crate) fn name_of(value: &Value) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let Value::Object(fields) = value else { return text(value) };
    let name = NAMES.iter().find_map(|name| fields.get(*name).and_then(text));
    name.or_else(|| {
        // Where a LUN is shown.
        let group = fields.get("group").and_then(text)?;
        Some(fields.get("target").and_then(text).map_or(group.clone(), |target| format!("{target} {group}")))
    })
}

/// A value of a field as it is told: without secrets, and cut.
fn shown(field: &str, value: &Value) -> Value {
    let value = hidden(last_name(field), value);
    let text = match &value {
        Value::String(text) if text.len() > VALUE_BYTES => text.clone(),
        Value::Array(_) | Value::Object(_) => {
            let text = value.to_string();
            if text.len() <= VALUE_BYTES {
                return value;
            }
            text
        }
        _ => return value,
    };
    let mut short = text;
    cut(&mut short, VALUE_BYTES);
    Value::String(short)
}

/// A value without the secrets in it.
fn hidden(name: &str, value: &Value) -> Value {
    match value {
        _ if SECRETS.contains(&name) && !is_nothing(value) => Value::String(REDACTED.into()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), hidden(name, value)));
            Value::Object(fields.collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(|value| hidden(name, value)).collect()),
        // What cannot be one may be half of one, typed in the wrong place.
        Value::String(text) if name == "url" && !text.is_empty() && !text.contains("://") => {
            Value::String(REDACTED.into())
        }
        Value::String(text) => Value::String(without_secrets(text)),
        _ => value.clone(),
    }
}

/// Secrets in what somebody has asked for: texts that must not come out in another place.
pub(crate) fn secrets_of(asked: &Value) -> Vec<String> {
    fn find(name: &str, value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) if SECRETS.contains(&name) && !text.is_empty() => found.push(text.clone()),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| find(name, value, found)),
            Value::Array(list) => list.iter().for_each(|value| find(name, value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    find("", asked, &mut found);
    found
}

/// Cuts a text, and says that it was.
pub(crate) fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
