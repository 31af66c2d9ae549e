//! CREATE and what is done with opens.

use std::pin::Pin;
use std::time::Duration;

use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel};
use smb_protocol::create::contexts::tag;
use smb_protocol::create::handles::{
    AppInstanceId, DurableFlags, DurableReconnect, DurableReconnectV2, DurableRequest, DurableRequestV2,
};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::directory::{
    ChangeNotifyFlags, ChangeNotifyRequest, CompletionFilter, QueryDirectoryFlags, QueryDirectoryRequest,
};
use smb_protocol::file::{CloseFlags, CloseRequest, FileId, FlushRequest};
use smb_protocol::fscc::FileClass;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::header::HeaderFlags;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::Request;
use smb_protocol::oplock::{BreakAck, LeaseBreakAck, OplockBreak};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, Guid, NtStatus, Wire as _};

use super::client::Client;
use super::world::{Ask, OLD, World, close_request, read_request, settle, write_request};

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Covers {
    Command(Command),
    Control(FsctlCode),
    Set(FileClass),
}

/// A world with two clients, one of them with two connections.
pub(super) struct Scene {
    pub(super) world: World,
    /// Whose request is dropped.
    pub(super) victim: Client,
    /// A further connection of its session.
    pub(super) second: Client,
    pub(super) other: Client,
}

/// What is sent, and what may come of it.
pub(super) struct Prepared {
    pub(super) packet: Vec<u8>,
    /// How the last message is answered if nobody drops it.
    pub(super) status: NtStatus,
    /// What files may have then; `None` is that there is none of the name.
    pub(super) files: Vec<(&'static str, Vec<Option<Vec<u8>>>)>,
    /// A file that nobody else may have open.
    pub(super) alone: &'static str,
}

impl Prepared {
    pub(super) fn new(packet: Vec<u8>) -> Self {
        Self { packet, status: NtStatus::SUCCESS, files: Vec::new(), alone: "" }
    }

    pub(super) fn status(self, status: NtStatus) -> Self {
        Self { status, ..self }
    }

    pub(super) fn alone(self, alone: &'static str) -> Self {
        Self { alone, ..self }
    }

    /// A file is there all the same, with one of these contents.
    pub(super) fn file(mut self, name: &'static str, contents: &[&[u8]]) -> Self {
        self.files.push((name, contents.iter().map(|content| Some(content.to_vec())).collect()));
        self
    }

    /// A file is there with one of these contents, or is not there.
    pub(super) fn or_none(mut self, name: &'static str, contents: &[&[u8]]) -> Self {
        let there = contents.iter().map(|content| Some(content.to_vec()));
        self.files.push((name, there.chain([None]).collect()));
        self
    }
}

pub(super) type Preparing<'a> = Pin<Box<dyn Future<Output = Prepared> + 'a>>;

/// A request.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) covers: Vec<Covers>,
    pub(super) share: &'static str,
    /// Whether it waits for others and goes on when it is cancelled.
    pub(super) of_others: bool,
    pub(super) prepare: for<'a> fn(&'a Scene) -> Preparing<'a>,
}

/// One case: its name, what it covers, the share, and how it is prepared.
macro_rules! case {
    ($name:literal, [$($covers:expr),*], $share:literal, |$scene:ident| $body:expr) => {
        Case {
            name: $name,
            covers: vec![$($covers),*],
            share: $share,
            of_others: false,
            prepare: |$scene| Box::pin(async move { $body }),
        }
    };
}
pub(super) use case;

/// The command of a case.
const fn of(command: Command) -> Covers {
    Covers::Command(command)
}

pub(super) const ME: Guid = Guid([0xc1; 16]);
pub(super) const KEY: LeaseKey = LeaseKey([5; 16]);
pub(super) const RWH: LeaseState =
    LeaseState(LeaseState::READ.0 | LeaseState::WRITE.0 | LeaseState::HANDLE.0);

impl Ask {
    pub(super) fn tagged(mut self, tag: &[u8], value: &impl smb_protocol::Wire) -> Self {
        self.contexts.push_value(tag, value);
        self
    }

    pub(super) fn persistent(self) -> Self {
        self.named(ME, DurableFlags::PERSISTENT)
    }

    pub(super) fn durable(self) -> Self {
        self.named(ME, DurableFlags::NONE)
    }

    /// Durable, or persistent, under this name.
    pub(super) fn named(self, create_guid: Guid, flags: DurableFlags) -> Self {
        let request = DurableRequestV2 { timeout: 200_000, flags, create_guid };
        self.tagged(tag::DURABLE_REQUEST_V2, &request)
    }

    pub(super) fn lease(self, key: LeaseKey, state: LeaseState) -> Self {
        let lease =
            LeaseV2 { key, state, flags: LeaseFlags::NONE, parent_key: LeaseKey::default(), epoch: 1 };
        self.oplock(OplockLevel::LEASE).tagged(tag::LEASE, &lease)
    }

    pub(super) fn back(self, file_id: FileId, flags: DurableFlags) -> Self {
        self.back_named(file_id, ME, flags)
    }

    pub(super) fn back_named(self, file_id: FileId, create_guid: Guid, flags: DurableFlags) -> Self {
        let reconnect = DurableReconnectV2 { file_id, create_guid, flags };
        self.tagged(tag::DURABLE_RECONNECT_V2, &reconnect)
    }
}

fn lock(client: &Client, id: FileId, flags: LockFlags) -> Vec<u8> {
    let elements: Vec<u8> = [(0, 10), (100, 10)]
        .iter()
        .flat_map(|(offset, length)| LockElement { offset: *offset, length: *length, flags }.to_bytes())
        .collect();
    client.packet(&[&Request::Lock(LockRequest::new(1 << 4 | 1, id, &elements))])
}

pub(super) fn all() -> Vec<Case> {
    let mut all = creates();
    all.extend(opens());
    all.extend(sessions());
    all
}

fn creates() -> Vec<Case> {
    use CreateDisposition as Do;
    vec![
        case!("create new", [of(Command::CREATE)], "plain", |s| {
            Prepared::new(Ask::with("new", Do::CREATE).packet(&s.victim)).or_none("new", &[b""])
        }),
        case!("create new with everything", [of(Command::CREATE)], "plain", |s| {
            let mut ask = Ask::with("new:stream", Do::OPEN_IF).options(CreateOptions::DELETE_ON_CLOSE);
            ask.contexts.push(tag::EA_BUFFER, &super::cases_info::ea());
            ask.contexts.push(tag::ALLOCATION_SIZE, &65_536_u64.to_le_bytes());
            ask.contexts.push(tag::MAXIMAL_ACCESS, &[]);
            ask.contexts.push(tag::ON_DISK_ID, &[]);
            Prepared::new(ask.packet(&s.victim)).or_none("new", &[b""])
        }),
        case!("create a folder", [of(Command::CREATE)], "plain", |s| {
            let ask = Ask::with("folder", Do::CREATE).options(CreateOptions::DIRECTORY_FILE);
            Prepared::new(ask.packet(&s.victim))
        }),
        case!("open with delete on close", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let ask = Ask::open("f").options(CreateOptions::DELETE_ON_CLOSE);
            Prepared::new(ask.packet(&s.victim)).or_none("f", &[&OLD])
        }),
        case!("overwrite", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let mut ask = Ask::with("f", Do::OVERWRITE_IF);
            ask.contexts.push(tag::EA_BUFFER, &super::cases_info::ea());
            Prepared::new(ask.packet(&s.victim)).file("f", &[&OLD, b""])
        }),
        case!("supersede", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            s.other.file("f:stream", b"stream").await;
            Prepared::new(Ask::with("f", Do::SUPERSEDE).packet(&s.victim)).file("f", &[&OLD, b""])
        }),
        case!("open against a batch oplock", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            s.other.open(&Ask::open("f").oplock(OplockLevel::BATCH)).await;
            Prepared::new(Ask::open("f").packet(&s.victim)).file("f", &[&OLD])
        }),
        case!("overwrite against a lease", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.other.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
            Prepared::new(Ask::with("f", Do::OVERWRITE).packet(&s.victim)).file("f", &[&OLD, b""])
        }),
        case!("open with a lease, durable", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            Prepared::new(Ask::open("f").lease(KEY, RWH).durable().packet(&s.victim)).file("f", &[&OLD])
        }),
        case!("open durable, first version", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let ask = Ask::open("f").oplock(OplockLevel::BATCH);
            let ask = ask.tagged(tag::DURABLE_REQUEST, &DurableRequest {});
            Prepared::new(ask.packet(&s.victim)).file("f", &[&OLD])
        }),
        case!("create persistent", [of(Command::CREATE)], "ca", |s| {
            let ask = Ask::with("new", Do::CREATE).alone().lease(KEY, RWH).persistent();
            Prepared::new(ask.packet(&s.victim)).or_none("new", &[b""])
        }),
        case!("share a lease that others have", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").lease(KEY, LeaseState::READ).persistent()).await;
            Prepared::new(Ask::open("f").lease(KEY, RWH).packet(&s.victim)).file("f", &[&OLD])
        }),
        case!("take over from another machine", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let app = AppInstanceId { id: Guid([0xee; 16]) };
            let ask = Ask::open("f").alone().persistent().tagged(tag::APP_INSTANCE_ID, &app);
            s.other.open(&ask).await;
            let ask = Ask::open("f").alone().persistent().tagged(tag::APP_INSTANCE_ID, &app);
            Prepared::new(ask.packet(&s.victim)).file("f", &[&OLD])
        }),
        case!("replay of a persistent create", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").persistent()).await;
            let ask = Ask::open("f").persistent();
            let packet = ask.request(|r| s.victim.packet_with(&[r], HeaderFlags::REPLAY_OPERATION));
            Prepared::new(packet).file("f", &[&OLD])
        }),
        case!("reconnect a persistent open", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
            let again = renewed(s, "ca").await;
            let ask = Ask::open("f").lease(KEY, RWH).back(id, DurableFlags::PERSISTENT);
            Prepared::new(ask.packet(again)).file("f", &[&OLD])
        }),
        case!("reconnect a durable open, first version", [of(Command::CREATE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let ask = Ask::open("f").oplock(OplockLevel::BATCH);
            let id = s.victim.open(&ask.tagged(tag::DURABLE_REQUEST, &DurableRequest {})).await;
            let again = renewed(s, "plain").await;
            let ask = Ask::open("f").oplock(OplockLevel::BATCH);
            let ask = ask.tagged(tag::DURABLE_RECONNECT, &DurableReconnect { file_id: id });
            Prepared::new(ask.packet(again)).file("f", &[&OLD])
        }),
        case!("create, write and close at once", [of(Command::CREATE)], "plain", |s| {
            let ask = Ask::with("new", Do::CREATE);
            let packet = ask.request(|create| {
                let write = write_request(FileId::RELATED, 0, b"data");
                s.victim.packet(&[create, &write, &close_request(FileId::RELATED)])
            });
            Prepared::new(packet).or_none("new", &[b"", b"data"])
        }),
        case!("create persistent, lock, write and flush at once", [of(Command::LOCK)], "ca", |s| {
            let ask = Ask::with("new", Do::CREATE).persistent();
            let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
            let element = LockElement { offset: 0, length: 4, flags }.to_bytes();
            let packet = ask.request(|create| {
                let lock = Request::Lock(LockRequest::new(0, FileId::RELATED, &element));
                let write = write_request(FileId::RELATED, 0, b"data");
                let flush = Request::Flush(FlushRequest { file_id: FileId::RELATED });
                s.victim.packet(&[create, &lock, &write, &flush])
            });
            Prepared::new(packet).or_none("new", &[b"", b"data"])
        }),
    ]
}

/// The client comes back with a new session over the same connection.
async fn renewed<'a>(scene: &'a Scene, share: &str) -> &'a Client {
    let old = scene.victim.session.get();
    scene.second.leave();
    scene.victim.login(old).await;
    scene.victim.to_share(share).await;
    settle().await;
    &scene.victim
}

fn opens() -> Vec<Case> {
    vec![
        case!("close", [of(Command::CLOSE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            s.victim.call(&write_request(id, 0, b"new")).await.good();
            let flags = CloseFlags::POSTQUERY_ATTRIB;
            let request = Request::Close(CloseRequest { file_id: id, flags });
            let new = [b"new", &OLD[3..]].concat();
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&new])
        }),
        case!("close of what is to be deleted, persistent", [of(Command::CLOSE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let ask = Ask::open("f").options(CreateOptions::DELETE_ON_CLOSE).lease(KEY, RWH).persistent();
            let id = s.victim.open(&ask).await;
            Prepared::new(s.victim.packet(&[&close_request(id)])).or_none("f", &[])
        }),
        case!("flush", [of(Command::FLUSH)], "plain", |s| {
            let id = s.victim.open(&Ask::with("f", CreateDisposition::CREATE)).await;
            s.victim.call(&write_request(id, 0, &OLD)).await.good();
            let request = Request::Flush(FlushRequest { file_id: id });
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("read", [of(Command::READ)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            Prepared::new(s.victim.packet(&[&read_request(id, 65_536)])).file("f", &[&OLD])
        }),
        case!("read that is held back", [of(Command::READ)], "held", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            Prepared::new(s.victim.packet(&[&read_request(id, 65_536)])).file("f", &[&OLD])
        }),
        case!("write that is held back", [of(Command::WRITE)], "held", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            let new = [b"new", &OLD[3..]].concat();
            Prepared::new(s.victim.packet(&[&write_request(id, 0, b"new")])).file("f", &[&OLD, &new])
        }),
        case!("write that grows the file", [of(Command::WRITE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            let grown = [&OLD[..], b"more"].concat();
            let write = write_request(id, OLD.len() as u64, b"more");
            Prepared::new(s.victim.packet(&[&write])).file("f", &[&OLD, &grown])
        }),
        case!("write against read leases", [of(Command::WRITE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.other.open(&Ask::open("f").lease(KEY, LeaseState::READ).persistent()).await;
            let id = s.victim.open(&Ask::open("f").persistent()).await;
            let new = [b"new", &OLD[3..]].concat();
            Prepared::new(s.victim.packet(&[&write_request(id, 0, b"new")])).file("f", &[&OLD, &new])
        }),
        case!("append", [of(Command::WRITE)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").access(AccessMask::APPEND_DATA)).await;
            let grown = [&OLD[..], b"more"].concat();
            Prepared::new(s.victim.packet(&[&write_request(id, 0, b"more")])).file("f", &[&OLD, &grown])
        }),
        case!("lock", [of(Command::LOCK)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").persistent()).await;
            let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
            Prepared::new(lock(&s.victim, id, flags)).file("f", &[&OLD])
        }),
        case!("lock that waits", [of(Command::LOCK)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let theirs = s.other.open(&Ask::open("f")).await;
            let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
            s.other.call_bytes(&lock(&s.other, theirs, flags)).await.good();
            let id = s.victim.open(&Ask::open("f").persistent()).await;
            let element = LockElement { offset: 0, length: 1, flags: LockFlags::EXCLUSIVE }.to_bytes();
            let request = Request::Lock(LockRequest::new(1 << 4 | 1, id, &element));
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("unlock", [of(Command::LOCK)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").persistent()).await;
            let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
            s.victim.call_bytes(&lock(&s.victim, id, flags)).await.good();
            let elements = [(0, 10), (100, 10)];
            let elements =
                elements.map(|(offset, length)| LockElement { offset, length, flags: LockFlags::UNLOCK });
            let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_bytes()).collect();
            let request = Request::Lock(LockRequest::new(2 << 4 | 1, id, &bytes));
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("query directory", [of(Command::QUERY_DIRECTORY)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("").options(CreateOptions::DIRECTORY_FILE)).await;
            let pattern = utf16("*");
            let request = Request::QueryDirectory(QueryDirectoryRequest {
                class: FileClass::ID_BOTH_DIRECTORY,
                flags: QueryDirectoryFlags::NONE,
                file_index: 0,
                file_id: id,
                pattern: Utf16::new(&pattern).unwrap(),
                output_length: 65_536,
            });
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("change notify", [of(Command::CHANGE_NOTIFY)], "plain", |s| {
            let id = s.victim.open(&Ask::open("").options(CreateOptions::DIRECTORY_FILE)).await;
            let request = Request::ChangeNotify(ChangeNotifyRequest {
                flags: ChangeNotifyFlags::WATCH_TREE,
                output_length: 4096,
                file_id: id,
                filter: CompletionFilter::FILE_NAME,
            });
            Prepared::new(s.victim.packet(&[&request]))
        }),
        case!("acknowledge an oplock break", [of(Command::OPLOCK_BREAK)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").oplock(OplockLevel::BATCH)).await;
            let work = s.other.begin(&Ask::open("f").packet(&s.other));
            shard_runtime::spawn_local(work.future);
            settle().await;
            let ack = BreakAck::Oplock(OplockBreak { level: OplockLevel::NONE, file_id: id });
            Prepared::new(s.victim.packet(&[&Request::OplockBreak(ack)])).file("f", &[&OLD])
        }),
        case!("acknowledge a lease break", [of(Command::OPLOCK_BREAK)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
            let work = s.other.begin(&Ask::open("f").packet(&s.other));
            shard_runtime::spawn_local(work.future);
            settle().await;
            let state = LeaseState::READ | LeaseState::HANDLE;
            let ack = BreakAck::Lease(LeaseBreakAck { flags: 0, key: KEY, state });
            Prepared::new(s.victim.packet(&[&Request::OplockBreak(ack)])).file("f", &[&OLD])
        }),
    ]
}

fn sessions() -> Vec<Case> {
    vec![
        case!("login in place of a lost session", [of(Command::SESSION_SETUP)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
            s.second.leave();
            let old = s.victim.session.get();
            Prepared::new(s.victim.last_of_login(old).await).file("f", &[&OLD])
        }),
        case!("login while the lost session writes", [of(Command::SESSION_SETUP)], "plain", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f")).await;
            s.second.leave();
            let old = s.victim.session.get();
            let write = s.victim.packet(&[&write_request(id, 0, b"new")]);
            let login = s.victim.last_of_login(old).await;
            shard_runtime::spawn_local(s.victim.begin(&write).future);
            shard_runtime::sleep(Duration::from_millis(50)).await;
            let new = [b"new", &OLD[3..]].concat();
            Prepared::new(login).file("f", &[&OLD, &new])
        }),
        case!("logoff", [of(Command::LOGOFF)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").persistent()).await;
            Prepared::new(s.victim.packet(&[&Request::Logoff])).file("f", &[&OLD])
        }),
        case!("tree connect", [of(Command::TREE_CONNECT)], "plain", |s| {
            Prepared::new(s.victim.connect_tree("ca"))
        }),
        case!("tree disconnect", [of(Command::TREE_DISCONNECT)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.victim.open(&Ask::open("f").persistent()).await;
            Prepared::new(s.victim.packet(&[&Request::TreeDisconnect])).file("f", &[&OLD])
        }),
        case!("open what an open that is away protects", [of(Command::CREATE)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let away = s.world.client(9, Guid([0xcc; 16]), "ca").await;
            away.open(&Ask::open("f").alone().persistent()).await;
            away.leave();
            settle().await;
            Prepared::new(Ask::open("f").packet(&s.victim))
                .status(NtStatus::FILE_NOT_AVAILABLE)
                .file("f", &[&OLD])
        }),
    ]
}
