//! What one user leaves to others of what all share, in a world whose tables are small.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use file_store::FileStore as _;
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel};
use smb_protocol::create::handles::DurableFlags;
use smb_protocol::directory::{ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter};
use smb_protocol::file::FileId;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::Request;
use smb_protocol::{Guid, NtStatus, Wire as _};
use test_layers::OnDrop;

use super::cases::{ME, RWH};
use super::client::{Client, Work};
use super::world::{Ask, OTHER, VICTIM, World, settle, sid};
use crate::places::Tables;

/// How much there is of everything, and what one user gets of it.
const LIMIT: usize = 64;
pub(super) const QUARTER: usize = LIMIT / 4;
pub(super) const GREEDY: u32 = 1001;
const MODEST: u32 = 1002;

pub(super) fn small() -> World {
    let mut world = World::new(OnDrop::Stops);
    make_small(&mut world);
    world
}

fn make_small(world: &mut World) {
    Arc::get_mut(&mut world.server.shared).expect("nobody uses it yet").tables = Tables::of(LIMIT);
}

impl World {
    /// How many opens a user has by the tables.
    fn opens_of(&self, rid: u32) -> usize {
        self.server.shared.tables.opens.taken(sid(rid)).1
    }
}

impl Client {
    /// Opens the file until it is refused; the opens, and how it was.
    async fn open_all(&self, name: &'static str) -> (Vec<FileId>, NtStatus) {
        let mut opens = Vec::new();
        loop {
            let got = self.create(&Ask::open(name).access(AccessMask::READ_ATTRIBUTES)).await;
            if got.status() != NtStatus::SUCCESS {
                return (opens, got.status());
            }
            opens.push(super::world::file_id(&got));
        }
    }
}

#[test]
fn a_user_gets_a_quarter_of_all_opens_and_another_one_its_own() {
    sim::on_shard(async {
        let world = small();
        let greedy = world.client_of(GREEDY, 1, VICTIM, "plain").await;
        greedy.file("f", b"content").await;
        let (opens, status) = greedy.open_all("f").await;
        assert_eq!((opens.len(), status), (QUARTER, NtStatus::TOO_MANY_OPENED_FILES));
        // Over another session of its, too, and what is refused has done nothing.
        let again = world.client_of(GREEDY, 2, VICTIM, "plain").await;
        for ask in [Ask::with("new", CreateDisposition::CREATE), Ask::with("f", CreateDisposition::OVERWRITE)]
        {
            assert_eq!(again.create(&ask).await.status(), NtStatus::TOO_MANY_OPENED_FILES);
        }
        assert!(
            world.memory.lookup(world.memory.root(), "new").await.is_err(),
            "a refused CREATE made a file"
        );
        let modest = world.client_of(MODEST, 3, OTHER, "plain").await;
        let id = modest.open(&Ask::open("f").access(AccessMask::FILE_READ)).await;
        assert_eq!(modest.content(id).await, b"content", "a refused CREATE emptied a file");
        modest.close(id).await;
        assert_eq!(modest.open_all("f").await.0.len(), QUARTER);
        // What is closed can be opened again.
        assert_eq!(greedy.close(opens[0]).await, NtStatus::SUCCESS);
        assert_eq!(again.open_all("f").await.0.len(), 1);
        assert_eq!((world.opens_of(GREEDY), world.opens_of(MODEST)), (QUARTER, QUARTER));
    })
    .unwrap();
}

#[test]
fn an_open_counts_until_it_ends_in_whichever_way() {
    sim::on_shard(async {
        let world = small();
        let durable = || Ask::open("f").oplock(OplockLevel::BATCH).durable();
        let first = world.client_of(GREEDY, 1, VICTIM, "plain").await;
        first.file("f", b"").await;
        assert_eq!(world.opens_of(GREEDY), 0, "after a close");

        first.open(&Ask::open("f")).await;
        first.call(&Request::TreeDisconnect).await;
        assert_eq!(world.opens_of(GREEDY), 0, "after the tree connect");

        first.to_share("plain").await;
        first.open(&Ask::open("f")).await;
        assert!(world.server.close_open(world.server.opens()[0].id));
        assert_eq!(world.opens_of(GREEDY), 0, "closed by an administrator");

        first.open(&Ask::open("f")).await;
        first.call(&Request::Logoff).await.good();
        assert_eq!(world.opens_of(GREEDY), 0, "after the session");

        let second = world.client_of(GREEDY, 2, VICTIM, "plain").await;
        let id = second.open(&durable()).await;
        second.leave();
        assert_eq!(world.opens_of(GREEDY), 1, "while it waits for its client");
        let third = world.client_of(GREEDY, 3, VICTIM, "plain").await;
        assert_eq!(
            third.open(&Ask::open("f").oplock(OplockLevel::BATCH).back(id, DurableFlags::NONE)).await,
            id
        );
        assert_eq!(world.opens_of(GREEDY), 1, "once, when its client is back");
        third.leave();
        shard_runtime::sleep(Duration::from_secs(3000)).await;
        assert_eq!(world.opens_of(GREEDY), 0, "when its client has not come in time");

        // What is in somebody's way while its client is away is closed.
        let fourth = world.client_of(GREEDY, 4, VICTIM, "plain").await;
        fourth.open(&durable()).await;
        fourth.leave();
        let other = world.client_of(MODEST, 5, OTHER, "plain").await;
        other.open(&Ask::open("f").alone()).await;
        assert_eq!((world.opens_of(GREEDY), world.opens_of(MODEST)), (0, 1), "closed from outside");

        // A CREATE that fails takes nothing.
        let fifth = world.client_of(GREEDY, 6, VICTIM, "plain").await;
        assert_eq!(fifth.create(&Ask::open("f")).await.status(), NtStatus::SHARING_VIOLATION);
        assert_eq!(fifth.create(&Ask::open("none")).await.status(), NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!(world.opens_of(GREEDY), 0);
        let tables = &world.server.shared.tables;
        assert_eq!(tables.trees.taken(sid(GREEDY)).1, 1, "of all tree connects one is left");
        assert_eq!(tables.sessions.taken(sid(GREEDY)).1, 1, "of all sessions one is left");
    })
    .unwrap();
}

#[test]
fn what_was_promised_comes_back_although_there_is_too_much_of_it() {
    sim::on_shard(async {
        // More than a user gets here, as after a takeover.
        let world = World::new(OnDrop::Stops);
        let client = world.client_of(GREEDY, 1, VICTIM, "ca").await;
        client.file("f", b"").await;
        let mut ids = Vec::new();
        for number in 0..QUARTER + 4 {
            let create_guid = Guid([number as u8 + 1; 16]);
            let ask = Ask::open("f").named(create_guid, DurableFlags::PERSISTENT);
            ids.push((client.open(&ask).await, create_guid));
        }
        let mut again = World::on(&world.memory, world.memory.clone());
        make_small(&mut again);
        let restored = again.server.restore(&again.files).await.unwrap();
        assert_eq!((restored.opens, restored.given_up), (QUARTER + 4, 0));
        assert_eq!(again.opens_of(GREEDY), QUARTER + 4, "they count");
        let client = again.client_of(GREEDY, 2, VICTIM, "ca").await;
        let refused = client.create(&Ask::with("more", CreateDisposition::CREATE)).await;
        assert_eq!(refused.status(), NtStatus::TOO_MANY_OPENED_FILES);
        for (id, create_guid) in &ids {
            let back = Ask::open("f").back_named(*id, *create_guid, DurableFlags::PERSISTENT);
            assert_eq!(client.open(&back).await, *id);
        }
        assert_eq!(again.opens_of(GREEDY), QUARTER + 4, "each once");
        let other = again.client_of(MODEST, 3, OTHER, "plain").await;
        other.open(&Ask::with("g", CreateDisposition::CREATE)).await;
        for (id, _) in &ids {
            assert_eq!(client.close(*id).await, NtStatus::SUCCESS);
        }
        assert_eq!(again.opens_of(GREEDY), 0);
    })
    .unwrap();
}

#[test]
fn a_user_gets_a_quarter_of_all_sessions_and_tree_connects() {
    sim::on_shard(async {
        let world = small();
        let greedy = Client::connect(&world.server.shared, 1, VICTIM).await;
        let sessions = (0..LIMIT).filter(|_| greedy.enter(GREEDY)).count();
        assert_eq!(sessions, QUARTER);
        // By its password, it is refused in the same way, but for one that stands for an earlier one.
        let last = greedy.session.get();
        let late = Client::connect(&world.server.shared, 2, VICTIM).await;
        let packet = late.last_of_login_as("greedy", 0).await;
        assert_eq!(late.call_bytes(&packet).await.status(), NtStatus::INSUFFICIENT_RESOURCES);
        let packet = late.last_of_login_as("greedy", last).await;
        assert_eq!(late.call_bytes(&packet).await.status(), NtStatus::SUCCESS);
        assert_eq!(world.server.shared.tables.sessions.taken(sid(GREEDY)).1, QUARTER);

        let trees = async |client: &Client| loop {
            let got = client.call_bytes(&client.connect_tree("plain")).await;
            if got.status() != NtStatus::SUCCESS {
                assert_eq!(got.status(), NtStatus::INSUFFICIENT_RESOURCES);
                return;
            }
        };
        trees(&late).await;
        assert_eq!(world.server.shared.tables.trees.taken(sid(GREEDY)).1, QUARTER);
        // IPC$ is one, too.
        let got = late.call_bytes(&late.connect_tree("IPC$")).await;
        assert_eq!(got.status(), NtStatus::INSUFFICIENT_RESOURCES);
        let modest = world.client_of(MODEST, 3, OTHER, "plain").await;
        modest.to_share("plain").await;
        late.leave();
        assert_eq!(world.server.shared.tables.trees.taken(sid(GREEDY)).1, 0);
        greedy.leave();
        assert_eq!(world.server.shared.tables.sessions.taken(sid(GREEDY)).1, 0);
    })
    .unwrap();
}

/// A request that waits for a change of a folder.
fn watch(client: &Client, id: FileId) -> Work {
    client.begin(&client.packet(&[&Request::ChangeNotify(ChangeNotifyRequest {
        flags: ChangeNotifyFlags::NONE,
        output_length: 4096,
        file_id: id,
        filter: CompletionFilter(0xfff),
    })]))
}

#[test]
fn a_user_gets_a_quarter_of_all_that_may_wait() {
    sim::on_shard(async {
        let world = small();
        let root = Ask::open("").access(AccessMask::FILE_READ).options(CreateOptions::DIRECTORY_FILE);
        let begin = async |client: &Client, id| {
            let mut work = watch(client, id);
            let ended = shard_runtime::timeout(Duration::from_millis(1), &mut work.future).await.is_some();
            (!ended).then_some(work)
        };
        // Over two connections.
        let greedy = world.client_of(GREEDY, 1, VICTIM, "plain").await;
        let second = world.client_of(GREEDY, 2, VICTIM, "plain").await;
        let (one, two) = (greedy.open(&root).await, second.open(&root).await);
        let mut works = Vec::new();
        for _ in 0..QUARTER / 2 {
            works.push(begin(&greedy, one).await.expect("it waits"));
            works.push(begin(&second, two).await.expect("it waits"));
        }
        let mut refused = watch(&greedy, one);
        assert!(shard_runtime::timeout(Duration::from_millis(1), &mut refused.future).await.is_some());
        assert_eq!(greedy.answer(refused.last).await.unwrap().status(), NtStatus::INSUFFICIENT_RESOURCES);
        let modest = world.client_of(MODEST, 3, OTHER, "plain").await;
        let id = modest.open(&root).await;
        let waits = begin(&modest, id).await.expect("another user's waits");
        // What ends makes room: cancelled, and with the connection.
        let first = works.remove(0);
        assert!(greedy.cancel(first.last));
        assert!(shard_runtime::timeout(Duration::from_millis(1), first.future).await.is_some());
        assert!(begin(&greedy, one).await.is_some());
        works.into_iter().for_each(|work| greedy.lose(work));
        drop(waits);
        settle().await;
        assert_eq!(world.server.shared.tables.waiting.taken(sid(GREEDY)), (0, 0));
    })
    .unwrap();
}

/// A LOCK of what persists is taken, then made durable: that is no wait for another, and needs no place among those that wait.
#[test]
fn what_is_locked_already_is_not_refused() {
    sim::on_shard(async {
        let world = small();
        let root = Ask::open("").access(AccessMask::FILE_READ).options(CreateOptions::DIRECTORY_FILE);
        let watching = world.client_of(GREEDY, 1, VICTIM, "plain").await;
        let folder = watching.open(&root).await;
        let mut works = Vec::new();
        for _ in 0..QUARTER {
            let mut work = watch(&watching, folder);
            assert!(shard_runtime::timeout(Duration::from_millis(1), &mut work.future).await.is_none());
            works.push(work);
        }
        let client = world.client_of(GREEDY, 2, VICTIM, "ca").await;
        client.file("f", b"content").await;
        let id = client.open(&Ask::open("f").named(ME, DurableFlags::PERSISTENT)).await;
        let element = |flags| LockElement { offset: 0, length: 4, flags }.to_bytes();
        let now = element(LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY);
        let patient = element(LockFlags::EXCLUSIVE);
        let unlock = element(LockFlags::UNLOCK);
        for (number, elements) in [(1, &now), (2, &unlock), (3, &patient)] {
            let request = Request::Lock(LockRequest::new(number << 4 | 1, id, elements));
            assert_eq!(client.call(&request).await.status(), NtStatus::SUCCESS, "{number}");
        }
        // In a compound, too.
        let (unlock_it, lock_it) = (
            Request::Lock(LockRequest::new(4 << 4 | 1, id, &unlock)),
            Request::Lock(LockRequest::new(5 << 4 | 1, id, &now)),
        );
        let packet = client.packet(&[&unlock_it, &lock_it, &super::world::read_request(id, 4)]);
        assert_eq!(client.call_bytes(&packet).await.status(), NtStatus::SUCCESS);
        for back in [1, 2] {
            let number = u64::from_le_bytes(packet[24..32].try_into().unwrap()) + 2 - back;
            assert_eq!(client.answer(number).await.unwrap().status(), NtStatus::SUCCESS, "{back} before it");
        }
        // What does wait for another is refused, and holds nothing.
        let other = client.open(&Ask::open("f").named(Guid([0xc2; 16]), DurableFlags::PERSISTENT)).await;
        let request = Request::Lock(LockRequest::new(1 << 4 | 1, other, &patient));
        assert_eq!(client.call(&request).await.status(), NtStatus::INSUFFICIENT_RESOURCES);
        drop(works);
        let waits = client.begin(&client.packet(&[&request]));
        let request = Request::Lock(LockRequest::new(6 << 4 | 1, id, &unlock));
        assert_eq!(client.call(&request).await.status(), NtStatus::SUCCESS);
        waits.future.await;
        assert_eq!(client.answer(waits.last).await.unwrap().status(), NtStatus::SUCCESS);
    })
    .unwrap();
}

/// A client says itself who it is, and whoever listens can say the same.
#[test]
fn another_user_with_the_same_names_is_in_nobodys_way() {
    sim::on_shard(async {
        let world = World::new(OnDrop::Stops);
        let owner = world.client_of(GREEDY, 1, VICTIM, "ca").await;
        let other = world.client_of(MODEST, 2, VICTIM, "ca").await;
        owner.file("f", b"owner").await;
        owner.file("g", b"other").await;
        let id = owner.open(&Ask::open("f").lease(super::cases::KEY, RWH).persistent()).await;
        // Neither is the other's CREATE the same, nor does it say that there is one.
        let got = other.create(&Ask::open("g").persistent()).await;
        assert_eq!(got.status(), NtStatus::SUCCESS, "the name for an open is another user's");
        let its = super::world::file_id(&got);
        assert_eq!(other.content(its).await, b"other");
        assert_eq!(owner.content(id).await, b"owner");
        assert_eq!(other.close(its).await, NtStatus::SUCCESS);
        // And one that is under way is in nobody's way.
        let name = |rid| ((VICTIM, sid(rid)), ME);
        let opens = &world.server.shared.opens;
        let _creating = opens.begin_create(name(GREEDY)).unwrap();
        assert!(opens.begin_create(name(GREEDY)).is_none());
        assert!(opens.begin_create(name(MODEST)).is_some());
        // Who knows the numbers, too, does not get the open.
        owner.leave();
        let back = Ask::open("f").lease(super::cases::KEY, RWH).back(id, DurableFlags::PERSISTENT);
        assert_eq!(other.create(&back).await.status(), NtStatus::ACCESS_DENIED);
        let unknown = FileId { persistent: 1, volatile: 1 };
        let back = Ask::open("f").lease(super::cases::KEY, RWH).back(unknown, DurableFlags::PERSISTENT);
        assert_eq!(
            other.create(&back).await.status(),
            NtStatus::OBJECT_NAME_NOT_FOUND,
            "nor hears of it by its name"
        );
        let again = world.client_of(GREEDY, 3, VICTIM, "ca").await;
        assert_eq!(again.open(&back).await, id, "its own user finds it by its name");
    })
    .unwrap();
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_says_once_in_a_minute_who_is_refused() {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(log, || {
        sim::on_shard(async {
            let world = small();
            let greedy = world.client_of(GREEDY, 1, VICTIM, "plain").await;
            greedy.file("f", b"").await;
            greedy.open_all("f").await;
            for _ in 0..10 {
                greedy.open_all("f").await;
            }
            shard_runtime::sleep(Duration::from_secs(60)).await;
            greedy.open_all("f").await;
        })
        .unwrap();
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told: Vec<_> = text.lines().filter(|line| line.contains("holds all that it may")).collect();
    assert_eq!(told.len(), 2, "{text}");
    assert!(told.iter().all(|line| line.contains("greedy") && line.contains("opens")), "{told:?}");
}
