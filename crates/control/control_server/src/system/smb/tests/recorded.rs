//! What clients administer without asking the node for it is told to the record of changes.

use control_api::{AuditEntry, Problem, ShareCreate, ShareUpdate};
use file_store::{QuotaLimits, QuotaMode, QuotaSettings};
use rpc::{RpcClient, ServerView as _, Win32};
use serde_json::{Value, json};
use smb_files::{QuotaChange, QuotaChanges};
use smb_protocol::NtStatus;
use smb_server::{QuotasAsked, Record as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::pipes::alice_from;
use super::*;
use crate::backend::Remote;

/// A node that passes on what it is to write down; `None` is a change that it is only to count.
struct Told(UnboundedSender<Option<AuditEntry>>, Mutex<()>);

impl SmbAdministration for Told {
    fn share_create(&self, _: Remote, _: ShareCreate) -> Work<'_, ()> {
        Box::pin(async { Err(Problem::new(Code::Unsupported, "not here")) })
    }

    fn share_update(&self, _: Remote, _: String, _: ShareUpdate) -> Work<'_, ()> {
        Box::pin(async { Err(Problem::new(Code::Unsupported, "not here")) })
    }

    fn share_delete(&self, _: Remote, _: String) -> Work<'_, ()> {
        Box::pin(async { Err(Problem::new(Code::Unsupported, "not here")) })
    }

    fn admit(&self, entry: AuditEntry) -> Option<AuditEntry> {
        Some(entry)
    }

    fn record(&self, entry: AuditEntry) {
        let _disk = self.1.lock();
        self.0.send(Some(entry)).expect("heard");
    }

    fn miss(&self) {
        self.0.send(None).expect("heard");
    }
}

fn told(bench: &Bench) -> (Arc<Told>, UnboundedReceiver<Option<AuditEntry>>) {
    let (sender, receiver) = unbounded_channel();
    let node = Arc::new(Told(sender, Mutex::default()));
    let weak: Weak<dyn SmbAdministration> = Arc::<Told>::downgrade(&node);
    bench.smb.view.administered_by(weak);
    (node, receiver)
}

fn limits(warning: u64, limit: u64) -> Option<QuotaLimits> {
    Some(QuotaLimits { warning, limit })
}

fn asked(changes: QuotaChanges) -> QuotasAsked {
    QuotasAsked {
        user: "boss".into(),
        is_administrator: true,
        remote: "[::ffff:192.0.2.1]:50000".parse().expect("an address"),
        share: "VMSTORE".into(),
        changes,
        ended: Some(Ok(())),
    }
}

fn fields(entry: &AuditEntry) -> Vec<(String, Value, Value)> {
    let value = |value: &Option<Value>| value.clone().unwrap_or_default();
    let of =
        |change: &control_api::AuditChange| (change.field.clone(), value(&change.old), value(&change.new));
    entry.changes.iter().map(of).collect()
}

#[tokio::test]
async fn quotas_that_a_client_sets_are_recorded() {
    let bench = Bench::new();
    let alice = bench.user("alice");
    bench.folder("vms").await;
    bench.apply(&config(), true).await;
    let (_node, mut entries) = told(&bench);
    let user = QuotaChange::User { sid: alice.sid, old: limits(1, 2), new: limits(1, 3) };
    let off = QuotaSettings { mode: QuotaMode::Off, default: QuotaLimits::NONE };
    let all =
        QuotaChange::Everybody { old: Some(off), new: QuotaSettings { mode: QuotaMode::Enforce, ..off } };
    bench.smb.view.quotas(asked(QuotaChanges { done: vec![user, all], begun: None }));
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!(
        (&*entry.who, &*entry.from, &*entry.object),
        ("user boss", "smb 192.0.2.1:50000", "volume v, share VMSTORE")
    );
    assert_eq!((entry.status, &*entry.result, &*entry.operation), (200, "done", "quota_set"));
    assert_eq!(
        fields(&entry),
        [
            ("owners[alice].limit_bytes".into(), json!(2), json!(3)),
            ("mode".into(), json!("off"), json!("enforce"))
        ]
    );
    // A request that was dropped, and one of somebody who may not: nobody can fill the record with those.
    let begun = QuotaChanges { done: Vec::new(), begun: Some(user) };
    bench.smb.view.quotas(QuotasAsked { ended: None, ..asked(begun) });
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((entry.status, &*entry.result, entry.changes.len()), (0, "abandoned", 1));
    let refused = Some(Err((NtStatus::ACCESS_DENIED, "quotas are the administrators'".into())));
    bench.smb.view.quotas(QuotasAsked {
        is_administrator: false,
        ended: refused,
        ..asked(QuotaChanges::default())
    });
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((entry.status, &*entry.result, entry.proof), (403, "forbidden", None));
    assert!(entry.reason.contains("administrators'"), "{}", entry.reason);
}

#[tokio::test]
async fn what_is_not_there_to_be_closed_is_recorded_too() {
    let bench = Bench::new();
    let alice = alice_from(bench.user("alice").sid);
    let (_node, mut entries) = told(&bench);
    assert_eq!(bench.smb.view.close_session(&alice, 7), Err(Win32::CLIENT_NAME_NOT_FOUND));
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!(
        (&*entry.operation, &*entry.object, &*entry.result),
        ("session_end", "session 7", "not-found")
    );
    assert_eq!((&*entry.who, &*entry.from), ("user alice", "smb 192.0.2.1:50000"));
    assert_eq!(bench.smb.view.close_open(&alice, 9), Err(Win32::FILE_ID_NOT_FOUND));
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((&*entry.operation, &*entry.object), ("open_close", "open 9"));
}

#[tokio::test]
async fn changes_that_are_refused_are_recorded() {
    use rpc::view::{Attempt, NewShare, ShareChange};

    let bench = Bench::new();
    let alice = alice_from(bench.user("alice").sid);
    let eve = RpcClient { user: "eve".into(), is_administrator: false, ..alice.clone() };
    let (_node, mut entries) = told(&bench);
    let view = bench.smb.view.clone();
    let long = "x".repeat(100_000);
    view.change_refused(
        &eve,
        &Attempt { operation: "NetrShareDel", object: &long, why: Win32::ACCESS_DENIED },
    );
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((&*entry.who, &*entry.from, entry.proof), ("user eve", "smb 192.0.2.1:50000", None));
    assert_eq!(
        (&*entry.operation, &*entry.request, entry.status, &*entry.result),
        ("share_delete", "RPC NetrShareDel", 403, "forbidden")
    );
    assert!(entry.object.starts_with("share xxx") && entry.object.len() < 600, "{}", entry.object.len());
    assert_eq!(entry.reason, "eve is no administrator of the node.");
    let made = Attempt { operation: "SamrCreateUser2InDomain", object: "", why: Win32::NOT_SUPPORTED };
    view.change_refused(&alice, &made);
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((&*entry.operation, entry.status, &*entry.result), ("user_update", 400, "unsupported"));
    assert!(entry.proof.is_some() && entry.reason.contains("SamrCreateUser2InDomain"), "{entry:?}");
    // What the node could not even be asked for.
    let new = NewShare { name: "new".into(), path: "D:\\elsewhere".into(), ..NewShare::default() };
    assert_eq!(view.add_share(&alice, &new), Err(Win32::UNKNOWN_DIRECTORY));
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((&*entry.operation, &*entry.object, entry.status), ("share_create", "share new", 400));
    let change = ShareChange::default();
    assert_eq!(view.change_share(&alice, "none", &change), Err(Win32::NET_NAME_NOT_FOUND));
    let entry = entries.recv().await.flatten().expect("recorded");
    assert_eq!((&*entry.operation, &*entry.object, entry.status), ("share_update", "share none", 404));
}

/// A disk that does not answer holds up no shard, and no more than so many entries wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_does_not_answer_is_waited_for_by_a_bounded_number() {
    let bench = Bench::new();
    let (node, mut entries) = told(&bench);
    let disk = node.1.lock();
    for _ in 0..400 {
        bench.smb.view.quotas(asked(QuotaChanges::default()));
    }
    // What is beyond is counted at once, while the others wait.
    let mut missed = 0;
    while let Ok(told) = entries.try_recv() {
        assert_eq!(told, None);
        missed += 1;
    }
    assert_eq!(missed, 400 - 256);
    drop(disk);
    for _ in 0..256 {
        assert!(entries.recv().await.flatten().is_some());
    }
}
