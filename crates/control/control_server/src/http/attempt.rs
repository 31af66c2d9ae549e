//! A change that is asked for over the API, from when it is let in until it has ended and is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Query;
use axum::http::Uri;
use control_api::routes::{Method, Route};
use control_api::{AuditEntry, BASE_PATH, EventKind};

use super::subject::{Passed, Subject};
use crate::access::Asker;
use crate::network::Peer;
use crate::node::Node;

/// A change that is asked for. It is written down when it has ended; one that is dropped before was given up by its client.
pub(crate) struct Attempt {
    node: Arc<Node>,
    entry: Option<AuditEntry>,
    subject: Subject,
    /// It makes or does something, so what was asked for says more than what differs.
    does: bool,
}

impl Attempt {
    /// Somebody asks for `route`; `path_names` is what its path is filled in with.
    pub(crate) fn new(
        node: Arc<Node>,
        route: &Route,
        uri: &Uri,
        path_names: Vec<String>,
        asker: Option<&Asker>,
        peer: Peer,
    ) -> Self {
        let mut entry = AuditEntry {
            who: "nobody".into(),
            from: match peer {
                Peer::Socket(_) => "socket".into(),
                Peer::Network(from) => from.to_string(),
                Peer::Node(number) => format!("node {}", node.node_called(number)),
            },
            operation: route.id.into(),
            request: format!("{} {}", route.method.lower().to_uppercase(), uri.path()),
            ..AuditEntry::default()
        };
        if let Some(asker) = asker {
            sign(&mut entry, asker);
        }
        let subject = Subject::default();
        // The parameters that a route has are names and numbers; others may be anything.
        let query =
            Query::<BTreeMap<String, String>>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        // A flag that is not set is as good as none.
        let said = |key: &&str| query.get(*key).filter(|value| *value != "false");
        let known = route.query.iter().filter_map(|key| Some(format!("{key}={}", said(key)?)));
        subject.names(path_names.into_iter().chain(known));
        Self { node, entry: Some(entry), subject, does: route.method == Method::Post }
    }

    /// Where it is said what it is about.
    pub(crate) fn subject(&self) -> Subject {
        self.subject.clone()
    }

    /// It has ended. Returns what another node is told of it that has passed it on.
    pub(crate) fn ended(&mut self, status: u16, result: &str, reason: &str) -> Passed {
        let Some(mut entry) = self.entry.take() else { return Passed::default() };
        let learned = self.subject.take();
        if let Some(asker) = &learned.asker {
            sign(&mut entry, asker);
        }
        let passed = learned.told(status == 200, self.does, reason);
        let Passed { object, reason, changes, left_out, is_dry_run } = &passed;
        if status == 200 && !is_dry_run {
            let path = entry.request.split_once(' ').map_or("", |(_, path)| path);
            self.node.events().tell(EventKind::Changed, path.strip_prefix(BASE_PATH).unwrap_or(path));
        }
        self.node.record(AuditEntry {
            status,
            result: if *is_dry_run { "dry-run".into() } else { result.into() },
            object: object.clone(),
            reason: reason.clone(),
            changes: changes.clone(),
            left_out: left_out.clone(),
            ..entry
        });
        passed
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.ended(0, "abandoned", "");
    }
}

fn sign(entry: &mut AuditEntry, asker: &Asker) {
    (entry.who, entry.proof, entry.role) = (asker.who(), Some(asker.proof), Some(asker.role));
    entry.sid = asker.user.map(|user| user.to_string());
}
