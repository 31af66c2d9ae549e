//! What clients of shares administer without asking the node for it, for the record of changes: quotas, sessions, files.
//!
//! What is told comes from shards, which wait for no disk: it is written down by another thread. [`WAITING_MAX`] of such entries wait at most, as
//! clients could cause any number; those beyond are counted, and the record says how many they were.

use std::sync::atomic::Ordering;

use control_api::{AuditChange, AuditEntry, Proof, Role};
use file_store::{NO_LIMIT, QuotaLimits, QuotaMode, QuotaSettings};
use rpc::view::Attempt;
use rpc::{RpcClient, Win32};
use serde_json::{Value, json};
use smb_files::QuotaChange;
use smb_protocol::NtStatus;
use smb_protocol::security::Sid;
use smb_server::{OpenInfo, QuotasAsked, Record, SessionInfo};

use super::view::{NodeView, canonical};
use crate::audit::fields::{Fields, cut};

/// Most entries that wait to be written down.
const WAITING_MAX: usize = 256;

/// Bytes of what a client says that something is called.
const OBJECT_BYTES: usize = 512;

/// The route of the API that does what an operation asks for.
fn route_of(operation: &str) -> &'static str {
    match operation {
        "NetrShareAdd" => "share_create",
        "NetrShareSetInfo" => "share_update",
        "NetrSessionDel" => "session_end",
        "NetrFileClose" => "open_close",
        name if name.starts_with("NetrShareDel") => "share_delete",
        name if name.starts_with("Samr") && (name.contains("Group") || name.contains("Alias")) => {
            "user_group_update"
        }
        name if name.starts_with("Samr") || name.starts_with("Lsar") => "user_update",
        _ => "smb_update",
    }
}

/// Whoever is named has logged in with a password; who may change nothing is as good as nobody, and cannot fill the record.
fn entry(user: &str, may: bool, from: String, operation: &str, request: &str) -> AuditEntry {
    AuditEntry {
        who: format!("user {user}"),
        proof: may.then_some(Proof::Session),
        role: may.then_some(Role::Administrator),
        from,
        operation: operation.into(),
        request: request.into(),
        ..AuditEntry::default()
    }
}

fn bounded(entry: AuditEntry, fields: Fields) -> AuditEntry {
    let left_out = if fields.more > 0 { format!("{} more fields", fields.more) } else { String::new() };
    AuditEntry { changes: fields.changes, left_out, ..entry }
}

fn limit(limit: u64) -> Value {
    if limit == NO_LIMIT { "none".into() } else { limit.into() }
}

fn limits(limits: Option<QuotaLimits>) -> Value {
    let shown = |limits: QuotaLimits| json!({ "warning_bytes": limit(limits.warning), "limit_bytes": limit(limits.limit) });
    limits.map_or_else(|| Value::Object(Default::default()), shown)
}

fn settings(settings: QuotaSettings) -> Value {
    let mode = match settings.mode {
        QuotaMode::Off => "off",
        QuotaMode::Track => "track",
        QuotaMode::Enforce => "enforce",
    };
    json!({
        "mode": mode,
        "default_warning_bytes": limit(settings.default.warning),
        "default_limit_bytes": limit(settings.default.limit),
    })
}

/// The fields of a change of quotas; those of a user have the user before them.
fn fields_of(change: &QuotaChange, name: &dyn Fn(Sid) -> String) -> Vec<AuditChange> {
    match change {
        QuotaChange::Everybody { old, new } => {
            let old = old.map_or_else(|| Value::Object(Default::default()), settings);
            Fields::between(&old, &settings(*new)).changes
        }
        QuotaChange::User { sid, old, new } => {
            let fields = Fields::between(&limits(*old), &limits(*new)).changes.into_iter();
            let of = |change: AuditChange| AuditChange {
                field: format!("owners[{}].{}", name(*sid), change.field),
                ..change
            };
            fields.map(of).collect()
        }
    }
}

impl NodeView {
    /// Writes an entry down, on another thread.
    fn write_down(&self, entry: AuditEntry) {
        let Some(node) = self.node() else { return };
        // Before it takes a place: what is refused to somebody keeps nothing of others from being written down.
        let Some(entry) = node.admit(entry) else { return };
        let waiting = self.recording.clone();
        if waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            waiting.fetch_sub(1, Ordering::Relaxed);
            node.miss();
            return;
        }
        self.runtime().spawn_blocking(move || {
            node.record(entry);
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// An administrator has ended a session; none where there is none of this number.
    pub(super) fn session_closed(&self, by: &RpcClient, id: u64, session: Option<&SessionInfo>) {
        let was = session.map(|session| {
            let client = session.channels.first().map(|channel| canonical(channel.remote).to_string());
            json!({ "user": session.user, "address": client, "files": session.opens })
        });
        self.closed(by, "session_end", "RPC NetrSessionDel", format!("session {id}"), was);
    }

    /// An administrator has closed a file; none where there is none of this number.
    pub(super) fn open_closed(&self, by: &RpcClient, id: u32, open: Option<&OpenInfo>) {
        let was = open.map(|open| json!({ "user": open.user, "share": open.share, "path": open.path }));
        let object =
            open.map_or_else(|| format!("open {id}"), |open| format!("{} {}", open.share, open.path));
        self.closed(by, "open_close", "RPC NetrFileClose", object, was);
    }

    /// A change was refused before the node was asked for it. Who may change nothing is throttled like whoever the API turns away.
    pub(super) fn attempt_refused(&self, by: &RpcClient, attempt: &Attempt<'_>) {
        let Attempt { operation, object, why } = *attempt;
        let (status, result) = match why {
            _ if !by.is_administrator => (403, "forbidden"),
            Win32::ACCESS_DENIED => (403, "forbidden"),
            Win32::NET_NAME_NOT_FOUND | Win32::CLIENT_NAME_NOT_FOUND | Win32::NONE_MAPPED => {
                (404, "not-found")
            }
            Win32::NOT_SUPPORTED => (400, "unsupported"),
            _ => (400, "invalid-request"),
        };
        let reason = match why {
            _ if !by.is_administrator => format!("{} is no administrator of the node.", by.user),
            Win32::ACCESS_DENIED => "The server has made it for itself, and keeps it.".to_owned(),
            Win32::NET_NAME_NOT_FOUND => "There is no such share.".to_owned(),
            Win32::CLIENT_NAME_NOT_FOUND => "There is no such session.".to_owned(),
            Win32::NONE_MAPPED => "It names somebody whom nobody here knows.".to_owned(),
            Win32::NOT_SUPPORTED => format!("The node does not do what {operation} asks for over RPC."),
            Win32::INVALID_NAME => "A share cannot be called so.".to_owned(),
            other => format!("The request makes no sense ({other})."),
        };
        let mut object = object.to_owned();
        // It waits for the disk: what a client says may be long.
        cut(&mut object, OBJECT_BYTES);
        let of_share = operation.starts_with("NetrShare") && !object.is_empty();
        let object = if of_share { format!("share {object}") } else { object };
        let from = by.from.clone();
        let entry =
            entry(&by.user, by.is_administrator, from, route_of(operation), &format!("RPC {operation}"));
        let sid = Some(by.sid.to_string());
        self.write_down(AuditEntry { sid, object, status, result: result.into(), reason, ..entry });
    }

    fn closed(&self, by: &RpcClient, operation: &str, request: &str, object: String, was: Option<Value>) {
        let entry = entry(&by.user, by.is_administrator, by.from.clone(), operation, request);
        let (status, result) = if was.is_some() { (200, "done") } else { (404, "not-found") };
        let fields = was.as_ref().map(Fields::gone).unwrap_or_default();
        let sid = Some(by.sid.to_string());
        self.write_down(bounded(AuditEntry { sid, object, status, result: result.into(), ..entry }, fields));
    }
}

impl Record for NodeView {
    fn quotas(&self, asked: QuotasAsked) {
        let QuotasAsked { user, is_administrator, remote, share, changes, ended } = asked;
        let name = |sid: Sid| {
            rpc::ServerView::find_sid(self, sid).map_or_else(|| sid.to_string(), |found| found.name)
        };
        let begun = changes.begun.iter();
        let all = changes.done.iter().chain(begun).flat_map(|change| fields_of(change, &name)).collect();
        let (status, result, reason) = match ended {
            Some(Ok(())) => (200, "done", String::new()),
            Some(Err((status, reason))) => {
                let result = if status == NtStatus::ACCESS_DENIED { "forbidden" } else { "invalid-request" };
                (
                    if status == NtStatus::ACCESS_DENIED { 403 } else { 400 },
                    result,
                    format!("{reason} ({status})"),
                )
            }
            None => (0, "abandoned", "The client went away; the last one may not be done.".to_owned()),
        };
        let volume = self.volume_of(&share).map(|volume| format!("volume {volume}, ")).unwrap_or_default();
        let from = format!("smb {}", canonical(remote));
        let entry = entry(&user, is_administrator, from, "quota_set", "SMB SET_INFO quotas");
        let object = format!("{volume}share {share}");
        let entry = AuditEntry { object, status, result: result.into(), reason, ..entry };
        self.write_down(bounded(entry, Fields::sent(all, 0)));
    }
}
