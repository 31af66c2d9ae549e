//! What is learned of a change while it is made: what it is about, what is asked for, what is otherwise since.
//!
//! A node that passes a change on to another one learns from its answer what was changed ([`Passed`], in a header between nodes): the record of
//! the node that somebody has asked says as much as that of the node that did it.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use control_api::{AuditChange, REDACTED};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::Asker;
use crate::audit::addresses::without_secrets;
use crate::audit::fields::{Fields, secrets_of};

/// What a body that is not taken is said to be, before what is wrong with it. That may repeat what somebody has typed in the wrong place.
pub(crate) const BODY: &str = "The request's body";
/// What is shorter is found in any sentence, and keeps nothing secret.
const SECRET_BYTES: usize = 4;
/// The header in which a node tells another one what it has changed for it.
const PASSED: &str = "x-holdfast-changes";

/// What is learned of a change while it is made, by whoever reads its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject(Arc<Mutex<Learned>>);

#[derive(Debug, Default)]
pub(super) struct Learned {
    names: Vec<String>,
    pub(super) asker: Option<Asker>,
    /// What was asked for, and the secrets in it.
    given: Fields,
    secrets: Vec<String>,
    /// Nothing is to be changed: it is asked what would be.
    is_dry_run: bool,
    /// What was there before and is there after.
    changed: Option<Fields>,
    unseen: Option<String>,
    passed: Option<Passed>,
    /// The SID of the user or group that it is about: another one may have had the name, or get it.
    sid: Option<String>,
    /// What it was called before it got another name.
    renamed: Option<String>,
}

impl Subject {
    /// What it is about.
    pub(crate) fn names(&self, names: impl IntoIterator<Item = String>) {
        self.0.lock().names.extend(names.into_iter().map(|name| without_secrets(&name)));
    }

    /// Who it was, where that comes out only now.
    pub(crate) fn asker(&self, asker: Asker) {
        self.0.lock().asker = Some(asker);
    }

    /// What is asked for: a body that is what the route takes, so that nothing in it has a name that nobody knows.
    pub(crate) fn given(&self, body: &Value) {
        let (given, secrets) = (Fields::given(body), secrets_of(body));
        let mut learned = self.0.lock();
        learned.is_dry_run = body["dry_run"] == true;
        (learned.given, learned.secrets) = (given, secrets);
    }

    /// What was changed, as it was looked at before and after.
    pub(crate) fn changed(&self, fields: Fields) {
        self.0.lock().changed = Some(fields);
    }

    /// It is about the user or group with this SID.
    pub(crate) fn sid(&self, sid: impl Into<String>) {
        self.0.lock().sid = Some(sid.into());
    }

    /// It was called so, and gets the name that was asked for.
    pub(crate) fn renamed(&self, before: &str) {
        self.0.lock().renamed = Some(before.to_owned());
    }

    /// Why it is not known what was changed.
    pub(crate) fn unseen(&self, why: String) {
        self.0.lock().unseen = Some(why);
    }

    /// All that was learned; nothing of it is left.
    pub(super) fn take(&self) -> Learned {
        std::mem::take(&mut *self.0.lock())
    }

    /// Takes out of another node's answer what that one has changed.
    pub(crate) fn passed(&self, headers: &mut HeaderMap) {
        let Some(passed) = headers.remove(PASSED) else { return };
        self.0.lock().passed = serde_json::from_slice(passed.as_bytes()).ok();
    }
}

/// What a node tells another one of a change that it has made for it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Passed {
    #[serde(default)]
    pub(super) object: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) changes: Vec<AuditChange>,
    #[serde(default)]
    pub(super) left_out: String,
    /// It was asked what would be changed; earlier releases do not say.
    #[serde(default)]
    pub(super) is_dry_run: bool,
}

impl Passed {
    /// Puts it into the answer. What cannot be in a header is left out: the record of this node has it.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        let Ok(mut text) = serde_json::to_string(self) else { return };
        // Of what JSON leaves as it is, no header holds this one.
        text.retain(|c| c != '\u{7f}');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.insert(PASSED, value);
        }
    }
}

impl Learned {
    /// What is told of it.
    pub(super) fn told(self, done: bool, does: bool, reason: &str) -> Passed {
        if let Some(passed) = self.passed {
            let fields = Fields::sent(passed.changes, 0);
            let more = Some(fields.more).filter(|more| *more > 0).map(more_fields);
            // Who did it knows also what the body names; earlier releases have said nothing where the path says it.
            let object = if passed.object.is_empty() { self.names.join(" ") } else { passed.object };
            let left_out = more.unwrap_or(passed.left_out);
            // An owner of an earlier release does not say so.
            let is_dry_run = done && (passed.is_dry_run || self.is_dry_run);
            let reason = passed.reason;
            return Passed { object, reason, changes: fields.changes, left_out, is_dry_run };
        }
        let mut given = self.given;
        if let Some(before) = self.renamed.filter(|_| done) {
            let name = given.changes.iter_mut().find(|change| change.field == "name");
            name.into_iter().for_each(|name| name.old = Some(Value::String(before.clone())));
        }
        let object = match self.sid {
            Some(sid) => format!("{} ({sid})", self.names.join(" ")),
            None => self.names.join(" "),
        };
        let fields = match self.changed {
            Some(changed) if done && does => changed.and(given),
            // Secrets are in no answer, so that nothing differs where one is another one now.
            // One that was sent as it is shown stays what it is.
            Some(changed) if done && self.secrets.iter().any(|secret| secret != REDACTED) => {
                changed.and(given.only_secrets())
            }
            Some(changed) if done => changed,
            _ => given,
        };
        let more = (fields.more > 0).then(|| more_fields(fields.more));
        let left_out: Vec<String> = self.unseen.into_iter().filter(|_| done).chain(more).collect();
        let mut reason = if reason.starts_with(BODY) {
            format!("{BODY} is not what is taken here.")
        } else {
            reason.to_owned()
        };
        for secret in self.secrets.iter().filter(|secret| secret.len() >= SECRET_BYTES) {
            reason = reason.replace(secret.as_str(), REDACTED);
        }
        let (left_out, is_dry_run) = (left_out.join("; "), done && self.is_dry_run);
        Passed { object, reason, changes: fields.changes, left_out, is_dry_run }
    }
}

fn more_fields(more: usize) -> String {
    format!("{more} more fields")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn learned(given: Value) -> Learned {
        let subject = Subject::default();
        subject.given(&given);
        subject.take()
    }

    #[test]
    fn secrets_are_taken_out_of_reasons() {
        let asked = json!({ "name": "n", "password": "hunter22" });
        let told = learned(asked.clone()).told(false, true, "A password like hunter22 is too short.");
        assert_eq!(told.reason, format!("A password like {REDACTED} is too short."));
        assert_eq!(told.changes.len(), 2);
        let typed = "The request's body: unknown variant `hunter22`.";
        assert!(!learned(asked).told(false, true, typed).reason.contains("hunter22"));
    }

    #[test]
    fn what_another_node_says_is_taken_from_its_answer_and_bounded() {
        let mut headers = HeaderMap::new();
        let change = AuditChange {
            field: "size_bytes".into(),
            old: Some(json!(1)),
            new: Some(json!("ü\u{7f}\n")),
            secret: false,
        };
        let passed = Passed {
            object: "lün".into(),
            reason: "why".into(),
            changes: vec![change; 3],
            left_out: "2 more fields".into(),
            is_dry_run: true,
        };
        passed.put(&mut headers);
        let subject = Subject::default();
        subject.passed(&mut headers);
        assert!(headers.is_empty(), "clients are not shown it");
        let told = subject.take().told(true, false, "");
        assert_eq!((&*told.object, &*told.reason, &*told.left_out), ("lün", "why", "2 more fields"));
        assert_eq!((told.changes.len(), &told.changes[0].new), (3, &Some(json!("ü\n"))));
        assert!(told.is_dry_run);
    }

    #[test]
    fn what_was_not_seen_is_said() {
        let mut unseen = learned(json!({ "size_bytes": 1 }));
        unseen.unseen = Some("it did not answer".into());
        let told = unseen.told(true, false, "");
        assert_eq!((told.changes.len(), &*told.left_out), (1, "it did not answer"));
    }
}
