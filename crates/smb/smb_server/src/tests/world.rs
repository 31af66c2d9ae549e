//! A server on a slow store in memory, with virtual time, and what clients ask of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use file_store::{FileStore, MemoryStore};
use qos_gate::{Disk, DiskName, Gate, Rule, Rules, Terms, keep_time};
use qos_policy::{PlaceKind, QosSettings};
use shard_runtime::{Clock, Monotonic, SeededEntropy, WallTime, spawn_local};
use smb_auth::{Account, AccountState, Accounts, NtHash};
use smb_files::{FileSystem, VolumeOptions};
use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::create::contexts::ContextWriter;
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::network::NetworkInterface;
use smb_protocol::info::{InfoType, QueryInfoFlags, QueryInfoRequest, SetInfoRequest};
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::security::sid::Sid;
use smb_protocol::tree::CachingMode;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{FileTime, Guid, NtStatus};
use smb_security::Token;
use tcp_service::{Budget, ShardJob, Spawner};
use test_layers::{OnDrop, slow};
use uuid::Uuid;

use super::client::{Client, Got};
use crate::{
    Directory, Interfaces, NoPipes, NoRecord, NoSharedDisks, Parts, Queues, ServerConfig, ShareConfig,
    ShareKind, SharePermission, ShareRight, Signing, SmbServer, Wanted,
};

/// The client whose requests are dropped.
pub(super) const VICTIM: Guid = Guid([0xaa; 16]);
/// A client that is there, too.
pub(super) const OTHER: Guid = Guid([0xbb; 16]);
/// What files have in the beginning: two clusters, so that ranges can be cloned.
pub(super) static OLD: [u8; 131_072] = [b'o'; 131_072];

struct Admin;

pub(super) fn sid(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

/// What users are called in logs.
pub(super) fn user_name(rid: u32) -> &'static str {
    match rid {
        500 => "admin",
        1001 => "greedy",
        _ => "modest",
    }
}

impl Accounts for Admin {
    fn account(&self, _: &str, user: &str) -> Option<Account> {
        let nt_hash = NtHash::of_password("secret");
        let rid = if user == user_name(1001) { 1001 } else { 500 };
        Some(Account { name: user.to_owned(), sid: sid(rid), nt_hash, state: AccountState::Active })
    }
}

impl Directory for Admin {
    fn token(&self, user: Sid, _: &[Sid]) -> Option<Token> {
        Some(Token::new(user, sid(513), &[], true))
    }

    fn anonymous(&self) -> Token {
        Token::new(Sid::ANONYMOUS, Sid::ANONYMOUS, &[], false)
    }

    fn has_left(&self, _: Sid) -> bool {
        false
    }

    fn is_group(&self, _: Sid) -> bool {
        false
    }

    fn name_of(&self, _: Sid) -> Option<String> {
        None
    }
}

impl Interfaces for Admin {
    fn interfaces(&self, _: SocketAddr, _: SocketAddr) -> Vec<NetworkInterface> {
        Vec::new()
    }
}

/// The one thread.
struct Here;

impl Spawner for Here {
    fn shards(&self) -> usize {
        1
    }

    fn spawn(&self, _: usize, job: ShardJob) {
        spawn_local(job());
    }
}

/// The timers' clock.
struct VirtualClock(tokio::time::Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.elapsed().as_nanos() as u64)
    }

    fn wall(&self) -> WallTime {
        // In 2026.
        WallTime(1_790_000_000_000_000_000 + self.now().0)
    }
}

thread_local! {
    /// When this world began; the same for all that is in it.
    static BEGAN: std::cell::Cell<Option<tokio::time::Instant>> = const { std::cell::Cell::new(None) };
}

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock(BEGAN.get().unwrap_or_else(tokio::time::Instant::now)))
}

/// What files of the share `held` may do at most: what the first write of [`OLD`] costs takes a second to pay for.
const HELD_IOPS: u64 = 16;

/// A policy that hosts may ask for.
pub(super) const POLICY: Uuid = Uuid::from_u128(0x04b4_f24e);

/// The files of that share wait for their turn, and those that a host has given a flow.
struct HeldShare(Arc<Gate>);

impl Queues for HeldShare {
    fn generation(&self) -> u64 {
        0
    }

    fn disk(&self, share: &str, path: &str, wanted: Option<&Wanted>) -> Option<Arc<Disk>> {
        if share == "held" {
            return Some(self.0.disk(DiskName::File(format!("/held{path}"))));
        }
        let Wanted { flow, asked } = wanted?;
        let disk = self.0.disk(DiskName::Flow(*flow, path.to_owned()));
        disk.ask(*asked);
        Some(disk)
    }
}

fn slow_gate(clock: &Arc<VirtualClock>) -> Arc<Gate> {
    let gate = Gate::new(Arc::clone(clock) as Arc<dyn Clock>, &QosSettings::default());
    let mut rules = Rules::default();
    let terms = Terms { max_iops: Some(HELD_IOPS), ..Terms::default() };
    rules.places.insert(PlaceKind::Folder, "/held", Rule::Alone(terms));
    let known = Terms { max_iops: Some(100), max_bandwidth: Some(200 << 10), ..Terms::default() };
    Arc::make_mut(&mut rules.policies).insert(POLICY, Rule::Alone(known));
    gate.apply(&QosSettings::default(), rules);
    spawn_local(keep_time(Arc::downgrade(&gate)));
    gate
}

/// A server, and what it serves.
pub(super) struct World {
    pub(super) memory: Arc<MemoryStore>,
    pub(super) files: FileSystem,
    pub(super) server: SmbServer,
    pub(super) gate: Arc<Gate>,
}

impl World {
    /// On a store; what clients had open comes back with [`SmbServer::restore`].
    pub(super) fn on(memory: &Arc<MemoryStore>, store: Arc<dyn FileStore>) -> Self {
        let clock = clock();
        let options = VolumeOptions {
            label: "memory".to_owned(),
            serial: 7,
            id: Guid([7; 16]),
            created: FileTime(1),
            cluster: MemoryStore::UNIT as u32,
            kind: "NTFS".to_owned(),
        };
        let entropy = Arc::new(SeededEntropy::new(7));
        let files = FileSystem::new(store, Arc::clone(&clock) as Arc<dyn Clock>, entropy.clone(), options);
        let gate = slow_gate(&clock);
        let parts = Parts {
            spawner: Arc::new(Here),
            clock,
            entropy,
            directory: Arc::new(Admin),
            pipes: Arc::new(NoPipes),
            queues: Arc::new(HeldShare(Arc::clone(&gate))),
            disks: Arc::new(NoSharedDisks),
            interfaces: Arc::new(Admin),
            guid: Guid([9; 16]),
            record: Arc::new(NoRecord),
            budget: Budget::default(),
        };
        let server =
            SmbServer::new(ServerConfig { signing: Signing::Offered, ..ServerConfig::default() }, parts);
        for (name, kind) in
            [("plain", ShareKind::Plain), ("held", ShareKind::Plain), ("ca", ShareKind::Clustered)]
        {
            server
                .add_share(ShareConfig {
                    name: name.to_owned(),
                    comment: String::new(),
                    files: files.clone(),
                    folder: String::new(),
                    permissions: vec![SharePermission {
                        who: Sid::AUTHENTICATED_USERS,
                        right: ShareRight::Full,
                    }],
                    kind,
                    encrypt: false,
                    caching: CachingMode::Manual,
                    access_based_enumeration: false,
                    hidden: false,
                    read_only: false,
                })
                .unwrap();
        }
        Self { memory: Arc::clone(memory), files, server, gate }
    }

    /// On an empty store whose operations can be dropped.
    pub(super) fn new(on_drop: OnDrop) -> Self {
        BEGAN.set(Some(tokio::time::Instant::now()));
        let clock = clock();
        let memory = Arc::new(MemoryStore::with_clock(1 << 26, move || clock.wall().0));
        Self::on(&memory, slow(Arc::clone(&memory) as Arc<dyn FileStore>, on_drop))
    }

    /// A client on a share, over connection `number`.
    pub(super) async fn client(&self, number: u64, guid: Guid, share: &str) -> Client {
        Client::new(&self.server.shared, number, guid, (share, 500)).await
    }

    /// The same as another user.
    pub(super) async fn client_of(&self, rid: u32, number: u64, guid: Guid, share: &str) -> Client {
        Client::new(&self.server.shared, number, guid, (share, rid)).await
    }
}

/// Lets what was left behind come to its end, but not what waits for clients.
pub(super) async fn settle() {
    shard_runtime::sleep(Duration::from_secs(20)).await;
}

/// What is asked of CREATE.
pub(super) struct Ask {
    pub(super) name: &'static str,
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
    pub(super) disposition: CreateDisposition,
    pub(super) options: CreateOptions,
    pub(super) oplock: OplockLevel,
    pub(super) contexts: ContextWriter,
}

impl Ask {
    /// An open of a file that is there, for everything, with everybody.
    pub(super) fn open(name: &'static str) -> Self {
        Self {
            name,
            access: AccessMask::FILE_ALL,
            share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition: CreateDisposition::OPEN,
            options: CreateOptions::NONE,
            oplock: OplockLevel::NONE,
            contexts: ContextWriter::default(),
        }
    }

    pub(super) fn with(name: &'static str, disposition: CreateDisposition) -> Self {
        Self { disposition, ..Self::open(name) }
    }

    pub(super) fn alone(self) -> Self {
        Self { share: ShareAccess::NONE, ..self }
    }

    pub(super) fn access(self, access: AccessMask) -> Self {
        Self { access, ..self }
    }

    pub(super) fn options(self, options: CreateOptions) -> Self {
        Self { options, ..self }
    }

    pub(super) fn oplock(self, oplock: OplockLevel) -> Self {
        Self { oplock, ..self }
    }

    /// Does something with the request.
    pub(super) fn request<T>(&self, then: impl FnOnce(&Request<'_>) -> T) -> T {
        let name = utf16(self.name);
        then(&Request::Create(CreateRequest {
            oplock: self.oplock,
            desired_access: self.access,
            share_access: self.share,
            disposition: self.disposition,
            options: self.options,
            name: Utf16::new(&name).unwrap(),
            contexts: self.contexts.as_contexts(),
            ..CreateRequest::default()
        }))
    }

    pub(super) fn packet(&self, client: &Client) -> Vec<u8> {
        self.request(|request| client.packet(&[request]))
    }
}

pub(super) fn close_request(file_id: FileId) -> Request<'static> {
    Request::Close(CloseRequest { file_id, ..CloseRequest::default() })
}

pub(super) fn write_request(file_id: FileId, offset: u64, data: &[u8]) -> Request<'_> {
    Request::Write(WriteRequest { file_id, offset, ..WriteRequest::default() }, data)
}

pub(super) fn read_request(file_id: FileId, length: u32) -> Request<'static> {
    Request::Read(ReadRequest { file_id, length, ..ReadRequest::default() })
}

pub(super) fn ioctl_request(file_id: FileId, code: FsctlCode, input: &[u8]) -> Request<'_> {
    Request::Ioctl(IoctlRequest {
        code,
        file_id,
        input,
        max_input_response: 0,
        max_output_response: 65_536,
        flags: IoctlFlags::IS_FSCTL,
    })
}

pub(super) fn set_request(file_id: FileId, info_type: InfoType, class: u8, buffer: &[u8]) -> Request<'_> {
    Request::SetInfo(SetInfoRequest { info_type, class, buffer, additional: 0, file_id })
}

pub(super) fn query_request(file_id: FileId, info_type: InfoType, class: u8) -> Request<'static> {
    Request::QueryInfo(QueryInfoRequest {
        info_type,
        class,
        output_length: 65_536,
        input: &[],
        additional: 0,
        flags: QueryInfoFlags::NONE,
        file_id,
    })
}

impl Client {
    pub(super) async fn create(&self, ask: &Ask) -> Got {
        self.call_bytes(&ask.packet(self)).await
    }

    pub(super) async fn open(&self, ask: &Ask) -> FileId {
        file_id(&self.create(ask).await)
    }

    pub(super) async fn close(&self, id: FileId) -> NtStatus {
        self.call(&close_request(id)).await.status()
    }

    /// Makes a file with this in it.
    pub(super) async fn file(&self, name: &'static str, data: &[u8]) {
        let id = self.open(&Ask::with(name, CreateDisposition::CREATE)).await;
        if !data.is_empty() {
            self.call(&write_request(id, 0, data)).await.good();
        }
        assert_eq!(self.close(id).await, NtStatus::SUCCESS);
    }

    /// All that an open file has.
    pub(super) async fn content(&self, id: FileId) -> Vec<u8> {
        match self.call(&read_request(id, 1 << 20)).await {
            got if got.status() == NtStatus::END_OF_FILE => Vec::new(),
            got => match got.good() {
                Response::Read(_, data) => data.to_vec(),
                other => panic!("{other:?}"),
            },
        }
    }
}

pub(super) fn file_id(got: &Got) -> FileId {
    match got.good() {
        Response::Create(created) => created.file_id,
        other => panic!("{other:?}"),
    }
}
