//! Changes of shares that clients ask for over the network, and the record of them.

use control_api::{AuditEntry, Code, EventKind, Problem, Proof, Role, ShareCreate, ShareUpdate};
use serde::Serialize;
use serde_json::Value;

use super::Node;
use crate::audit::fields::Fields;
use crate::backend::{Remote, SmbAdministration, Work};

impl Node {
    /// Ends when no other change is under way. A node that stops takes no more: who asks would wait for it for ever, and
    /// it for who asks.
    async fn my_turn(&self) -> Result<(), Problem> {
        let stopping = || Problem::new(Code::Unavailable, "The node is stopping.");
        tokio::select! {
            biased;
            () = self.stopped() => Err(stopping()),
            _turn = self.changes.lock() => Ok(()),
        }
    }
}

/// A thing as the API shows it.
fn json(thing: &impl Serialize) -> Value {
    serde_json::to_value(thing).unwrap_or_default()
}

impl Node {
    /// Does what a client has asked for, and writes down what is otherwise since.
    async fn recorded(
        &self,
        by: Remote,
        (operation, request): (&str, &str),
        name: String,
        given: Fields,
        work: impl Future<Output = Result<(), Problem>>,
    ) -> Result<(), Problem> {
        let before = self.share_show(&name).await.ok().map(|share| json(&share));
        let done = work.await;
        let after = self.share_show(&name).await.ok().map(|share| json(&share));
        let fields = match (before, after) {
            (Some(before), Some(after)) if done.is_ok() => Fields::between(&before, &after),
            (Some(before), None) if done.is_ok() => Fields::gone(&before),
            _ => given,
        };
        let problem = done.as_ref().err();
        let entry = AuditEntry {
            who: format!("user {}", by.user),
            sid: Some(by.sid.to_string()),
            proof: Some(Proof::Session),
            role: Some(Role::Administrator),
            from: by.from,
            operation: operation.into(),
            request: request.into(),
            object: format!("share {name}"),
            status: problem.map_or(200, |problem| problem.status),
            result: problem.map_or("done", |problem| problem.code.as_str()).into(),
            reason: problem.map(|problem| problem.detail.clone()).unwrap_or_default(),
            left_out: if fields.more > 0 { format!("{} more fields", fields.more) } else { String::new() },
            changes: fields.changes,
            ..AuditEntry::default()
        };
        self.tell_changed(&entry);
        self.record(entry);
        done
    }

    /// Tells who watches that something is otherwise.
    fn tell_changed(&self, entry: &AuditEntry) {
        if entry.status == 200 {
            let path = match entry.operation.split_once('_').map_or("", |(thing, _)| thing) {
                "quota" => "/volumes",
                "session" => "/sessions",
                "open" => "/opens",
                _ => "/shares",
            };
            self.events().tell(EventKind::Changed, path);
        }
    }
}

impl SmbAdministration for Node {
    fn share_create(&self, by: Remote, mut request: ShareCreate) -> Work<'_, ()> {
        let (name, given) = (request.name.clone(), Fields::given(&json(&request)));
        let work = async move {
            self.my_turn().await?;
            // Case does not count in what clients say of paths.
            let said = request.volume.take().unwrap_or_default();
            let volumes: Vec<String> = self.volumes.lock().keys().cloned().collect();
            let is = |name: &&String| upcase::same(name, &said);
            let volume = volumes.iter().find(|name| **name == said).or_else(|| volumes.iter().find(is));
            let volume = volume
                .ok_or_else(|| Problem::new(Code::NotFound, format!("There is no volume {said}.")))?
                .clone();
            // On Windows, too, a folder is there before it is shared.
            self.file_stat(&volume, request.folder.as_deref().unwrap_or("/")).await?;
            request.volume = Some(volume);
            self.share_create(request).await.map(drop)
        };
        Box::pin(self.recorded(by, ("share_create", "RPC NetrShareAdd"), name, given, work))
    }

    fn share_update(&self, by: Remote, name: String, update: ShareUpdate) -> Work<'_, ()> {
        let (share, given) = (name.clone(), Fields::given(&json(&update)));
        let work = async move {
            self.my_turn().await?;
            self.share_update(&share, update).await.map(drop)
        };
        Box::pin(self.recorded(by, ("share_update", "RPC NetrShareSetInfo"), name, given, work))
    }

    fn share_delete(&self, by: Remote, name: String) -> Work<'_, ()> {
        let share = name.clone();
        let work = async move {
            self.my_turn().await?;
            self.share_delete(&share, Some(share.clone())).await.map(drop)
        };
        Box::pin(self.recorded(by, ("share_delete", "RPC NetrShareDel"), name, Fields::default(), work))
    }

    fn admit(&self, entry: AuditEntry) -> Option<AuditEntry> {
        self.admit(entry)
    }

    fn record(&self, entry: AuditEntry) {
        self.tell_changed(&entry);
        self.audit().write(entry);
    }

    fn miss(&self) {
        self.audit().miss();
    }
}
