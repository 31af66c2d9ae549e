//! What must hold after a request was dropped, wherever that was.

use std::sync::Arc;
use std::time::Duration;

use file_store::{DirectoryCursor, FileStore};
use smb_protocol::access::{AccessMask, CreateOptions};
use smb_protocol::file::FileId;
use smb_protocol::fscc::FileClass;
use smb_protocol::info::InfoType;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::Request;
use smb_protocol::{Guid, NtStatus, Wire as _};

use super::cases::{Prepared, Scene};
use super::client::Client;
use super::dropped::Cut;
use super::world::{Ask, World, query_request, set_request, sid};
use crate::open::persistence::TABLE;
use crate::open::persistence::row::Row;
use crate::open::{Lasting, Open, Thing};
use crate::tree::Target;

/// Opens that only look, so that the server keeps what it knows of the files.
pub(super) struct Watcher(Vec<FileId>);

/// An open that only looks and is in nobody's way.
fn look_at(name: &str) -> Ask {
    let name: &'static str = name.to_owned().leak();
    Ask::open(name).access(AccessMask::READ_ATTRIBUTES)
}

impl Watcher {
    pub(super) async fn begin(scene: &Scene, but: &str) -> Self {
        let mut opens = Vec::new();
        for name in names(&scene.world).await.into_iter().filter(|name| name != but) {
            let got = scene.other.create(&look_at(&name)).await;
            if got.status() == NtStatus::SUCCESS {
                opens.push(super::world::file_id(&got));
            }
        }
        for id in &opens {
            scene.other.call(&query_request(*id, InfoType::FILE, FileClass::ALL.0)).await.good();
        }
        scene.other.told().await;
        Self(opens)
    }
}

/// What is in the root.
async fn names(world: &World) -> Vec<String> {
    let store = &world.memory;
    let page = store.read_directory(store.root(), DirectoryCursor::default(), 100).await.unwrap();
    page.entries.into_iter().map(|entry| entry.name).collect()
}

/// What the other client writes as soon as the connection is lost.
const AFTER: &[u8] = b"after";

/// The other client writes to the file; what it was told is written, is what the file has.
pub(super) async fn follow(scene: &Scene, prepared: &mut Prepared) {
    let Some((name, contents)) = prepared.files.iter_mut().find(|(name, _)| *name == "f") else { return };
    let got = scene.other.create(&Ask::open(name).access(AccessMask::WRITE_DATA)).await;
    if got.status() != NtStatus::SUCCESS {
        return;
    }
    let id = super::world::file_id(&got);
    let written = scene.other.call(&super::world::write_request(id, 0, AFTER)).await.status();
    if written == NtStatus::SUCCESS {
        for content in contents.iter_mut().flatten() {
            content.resize(content.len().max(AFTER.len()), 0);
            content[..AFTER.len()].copy_from_slice(AFTER);
        }
    }
    // Who deletes it or renames it was there before.
    scene.other.close(id).await;
}

/// Looks at everything, and then ends all that clients have and looks whether nothing is left.
pub(super) async fn after(scene: Scene, prepared: &Prepared, watcher: Watcher, cut: Cut) {
    let Scene { world, victim, second, other } = scene;
    assert!(victim.conn.pending.borrow().is_empty(), "a request can be cancelled that is gone");
    for traffic in ["plain", "held", "ca"].map(|share| world.server.share_traffic(share).unwrap()) {
        assert_eq!(traffic.io.in_flight, 0, "a read or write counts as under way");
    }
    for flow in world.gate.flows() {
        assert_eq!((flow.waiting, flow.in_flight), (0, 0), "a request holds its place at the volume");
    }
    stored_is_true(&world).await;
    known_is_true(&world).await;
    let survivor = match cut {
        Cut::Connection | Cut::Followed => None,
        Cut::Channel => Some(&second),
        Cut::Cancel => Some(&victim),
    };
    if let Some(client) = survivor.filter(|client| client.conn.channel(client.session.get()).is_some()) {
        let session = client.state();
        assert!(!session.is_writing(), "a write counts as under way");
        for open in world.server.shared.opens.all() {
            assert!(open.state.lock().sequence.is_quiet(), "a request of an open counts as under way");
        }
        client.call(&Request::Logoff).await;
        client.leave();
    }
    for id in watcher.0 {
        assert_eq!(other.close(id).await, NtStatus::SUCCESS);
    }
    if matches!(cut, Cut::Connection | Cut::Channel) {
        restarted_sees_the_same(&world, &other).await;
    }
    other.leave();
    // Longer than anything waits for its client.
    shard_runtime::sleep(Duration::from_secs(3000)).await;
    nothing_is_left(&world).await;
    let last = world.client(20, Guid([0xdd; 16]), "plain").await;
    for (name, allowed) in &prepared.files {
        content(&last, name, allowed).await;
    }
    for name in names(&world).await {
        take_away(&last, &name).await;
    }
    last.leave();
    shard_runtime::sleep(Duration::from_secs(10)).await;
    nothing_is_left(&world).await;
    let usage = world.memory.usage().await.unwrap();
    assert_eq!((usage.used, usage.referenced), (0, 0), "space that nobody has");
    for table in ["smb_ea", "smb_reparse"] {
        assert!(
            world.memory.state_scan(table, &[]).await.unwrap().is_empty(),
            "rows of {table} without a file"
        );
    }
}

/// The rows of persistent opens are those of the opens that there are.
pub(super) async fn stored_is_true(world: &World) {
    let persistent = |open: &Arc<Open>| open.state.lock().lasting == Lasting::V2 { persistent: true };
    let mut wanted: Vec<(Vec<u8>, Row)> = Vec::new();
    for open in world.server.shared.opens.all().iter().filter(|open| persistent(open)) {
        let (Thing::File(file), Target::Disk(disk)) = (&open.thing, &open.tree.target) else { continue };
        let mut row = Row::of(open, &open.state.lock(), file.record(), disk.share.config().name.clone());
        // Whose it is now says its client when it comes back.
        row.record.owner = smb_files::OwnerId(0);
        wanted.push((open.id.persistent.to_be_bytes().to_vec(), row));
    }
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    let rows = world.memory.state_scan(TABLE, &[]).await.unwrap();
    let decoded = |bytes: &[u8]| {
        let mut row = Row::decode(bytes).unwrap();
        row.record.owner = smb_files::OwnerId(0);
        row
    };
    let stored: Vec<_> = rows.into_iter().map(|row| (row.key, decoded(&row.value))).collect();
    let keys = |rows: &[(Vec<u8>, Row)]| rows.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&stored), keys(&wanted), "rows (left) and persistent opens");
    for ((_, stored), (_, wanted)) in stored.into_iter().zip(wanted) {
        let show = |row: &Row| {
            (
                row.record.name.clone(),
                row.record.lease,
                row.record.oplock,
                row.record.locks.clone(),
                row.record.delete_pending,
                row.record.delete_on_close,
                row.record.position,
            )
        };
        assert_eq!(show(&stored), show(&wanted), "what is stored of a persistent open (left)");
        assert_eq!(stored, wanted, "what is stored of a persistent open (left)");
    }
}

/// What the server knows of files that are open is what the store says.
async fn known_is_true(world: &World) {
    let ours = world.server.shared.opens.all();
    assert_eq!(ours.len(), world.files.open_count(), "opens of the server and of its files");
    for open in ours {
        let Thing::File(file) = &open.thing else { continue };
        let Ok(known) = file.info().await else { continue };
        let number = world.files.open_by_id(file.id()).unwrap().summary().file;
        world.files.refresh(number);
        assert_eq!(
            known,
            file.info().await.unwrap(),
            "what is known of {} (left) is out of date",
            file.path()
        );
    }
}

/// A server that starts now brings the same opens back, and clients find the same files.
async fn restarted_sees_the_same(world: &World, other: &Client) {
    let again = World::on(&world.memory, Arc::clone(&world.memory) as Arc<dyn FileStore>);
    let rows = world.memory.state_scan(TABLE, &[]).await.unwrap().len();
    let restored = again.server.restore(&again.files).await.unwrap();
    assert_eq!((restored.opens, restored.given_up), (rows, 0), "rows that cannot come back");
    let client = again.client(30, Guid([0xbb; 16]), "plain").await;
    for name in names(world).await {
        let before = other.create(&look_at(&name)).await;
        let after = client.create(&look_at(&name)).await;
        // A deletion that only this run knows of is no row's affair.
        if before.status() != NtStatus::DELETE_PENDING {
            assert_eq!(before.status(), after.status(), "{name}: opened before and after a restart");
        }
    }
    for open in again.server.shared.opens.all() {
        again.server.shared.opens.release(&open);
    }
}

/// Nobody has anything: no open, no row, nothing that stands for one.
async fn nothing_is_left(world: &World) {
    let opens: Vec<_> = world.files.opens().into_iter().map(|open| open.path).collect();
    assert!(opens.is_empty(), "opens are left: {opens:?}");
    assert!(world.server.opens().is_empty(), "the server has opens without a file");
    assert!(world.server.sessions().is_empty(), "a session is left");
    assert!(world.gate.flows().is_empty(), "a flow is left");
    let leftovers = world.files.leftovers();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let rows = world.memory.state_scan(TABLE, &[]).await.unwrap();
    assert!(rows.is_empty(), "{} rows of opens that are gone", rows.len());
    assert!(world.server.shared.opens.is_quiet(), "a CREATE counts as under way");
    let tables = &world.server.shared.tables;
    for places in [&tables.sessions, &tables.trees, &tables.opens, &tables.waiting] {
        assert_eq!(places.taken(sid(500)), (0, 0), "{} count that are gone", places.what);
    }
}

/// What a file has.
async fn content(client: &Client, name: &str, allowed: &[Option<Vec<u8>>]) {
    let name: &'static str = name.to_owned().leak();
    let got = client.create(&Ask::open(name)).await;
    let found = match got.status() {
        NtStatus::OBJECT_NAME_NOT_FOUND => None,
        _ => {
            let id = super::world::file_id(&got);
            let content = client.content(id).await;
            assert_eq!(client.close(id).await, NtStatus::SUCCESS);
            Some(content)
        }
    };
    if !allowed.contains(&found) {
        let shown = |content: &Option<Vec<u8>>| {
            let sum = |content: &Vec<u8>| content.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            content.as_ref().map(|content| (content.len(), sum(content)))
        };
        let could: Vec<_> = allowed.iter().map(shown).collect();
        panic!("{name} has {:?} (bytes, sum), and could have {could:?}", shown(&found));
    }
}

/// A file can be opened by one alone, locked, unlocked and deleted.
async fn take_away(client: &Client, name: &str) {
    let shown: &'static str = name.to_owned().leak();
    let ask = Ask::open(shown).alone().options(CreateOptions::OPEN_REPARSE_POINT);
    let got = client.create(&ask).await;
    assert_eq!(got.status(), NtStatus::SUCCESS, "{name} cannot be opened by one alone");
    let id = super::world::file_id(&got);
    for flags in [LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY, LockFlags::UNLOCK] {
        let element = LockElement { offset: 0, length: 1 << 40, flags }.to_bytes();
        let got = client.call(&Request::Lock(LockRequest::new(0, id, &element))).await;
        let folder = NtStatus::INVALID_PARAMETER;
        let good = got.status() == NtStatus::SUCCESS || got.status() == folder;
        assert!(good, "{name} cannot be locked: {}", got.status());
    }
    let basic = smb_protocol::fscc::file::BasicInformation {
        attributes: smb_protocol::access::FileAttributes::NORMAL,
        ..Default::default()
    };
    client.call(&set_request(id, InfoType::FILE, FileClass::BASIC.0, &basic.to_bytes())).await.good();
    client.call(&set_request(id, InfoType::FILE, FileClass::DISPOSITION.0, &[1])).await.good();
    assert_eq!(client.close(id).await, NtStatus::SUCCESS);
}
