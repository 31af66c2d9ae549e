//! A file system on a store in memory, with a clock that tests move, and clients that record what they are told.

mod caching;
mod create;
mod delete;
mod directory;
mod dropped;
mod fsctl;
mod hard_links;
mod locks;
mod previous;
mod quotas;
mod rename;
mod security;
mod set;
mod short_names;
mod streams;
mod volume;

use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::{FileId, FileStore, MemoryStore};
use parking_lot::Mutex;
use shard_runtime::{Clock, Monotonic, SeededEntropy, WallTime};
use smb_protocol::access::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, FileAttributes, OplockLevel, ShareAccess,
};
use smb_protocol::create::lease::{LeaseKey, LeaseState};
use smb_protocol::fscc::FileClass;
use smb_protocol::security::Sid;
use smb_protocol::utf16::utf16;
use smb_protocol::{FileTime, Guid, NtStatus, Utf16};
use smb_security::Token;

use crate::{
    CachingRequest, Caller, CreateRequest, Created, FileSystem, Granted, Holder, LeaseBreak, LeaseRequest,
    LeaseRequestV2, LeftBehind, Open, OpenId, OwnerId, ShareRoot, VolumeOptions, WriteFlags,
};

/// The timers' clock.
struct TestClock {
    start: tokio::time::Instant,
}

/// When tests begin: in 2026.
const BEGIN: u64 = 1_790_000_000_000_000_000;

impl Clock for TestClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.start.elapsed().as_nanos() as u64)
    }
    fn wall(&self) -> WallTime {
        WallTime(BEGIN + self.now().0)
    }
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Oplock(OplockLevel),
    Lease { key: u8, from: LeaseState, to: LeaseState, ack: bool, epoch: u16 },
    Closed,
}

/// A client that remembers.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Vec<Told>>);

impl Recorder {
    /// What was told since the last time.
    pub(super) fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Holder for Recorder {
    fn break_oplock(&self, _: OpenId, to: OplockLevel) {
        self.0.lock().push(Told::Oplock(to));
    }
    fn break_lease(&self, _: OpenId, change: LeaseBreak) {
        self.0.lock().push(Told::Lease {
            key: change.key.0[0],
            from: change.current,
            to: change.new,
            ack: change.ack_required,
            epoch: change.epoch,
        });
    }
    fn closed(&self, _: OpenId) {
        self.0.lock().push(Told::Closed);
    }
}

/// A file system with an ordinary user and an administrator.
pub(super) struct Fixture {
    pub(super) fs: FileSystem,
    pub(super) store: Arc<MemoryStore>,
    pub(super) user: Caller,
    pub(super) told: Arc<Recorder>,
}

pub(super) fn sid(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

/// What a test asks of CREATE; the rest is as in [`CreateRequest::open`].
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) access: AccessMask,
    pub(super) share: u32,
    pub(super) disposition: CreateDisposition,
    pub(super) options: CreateOptions,
    pub(super) attributes: FileAttributes,
    pub(super) caching: CachingRequest,
    pub(super) security: Option<Vec<u8>>,
    pub(super) ea: Option<Vec<u8>>,
    pub(super) allocation: Option<u64>,
    pub(super) left_behind: Vec<LeftBehind>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            access: AccessMask::GENERIC_READ | AccessMask::GENERIC_WRITE | AccessMask::DELETE,
            share: 7,
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::NONE,
            attributes: FileAttributes::NONE,
            caching: CachingRequest::None,
            security: None,
            ea: None,
            allocation: None,
            left_behind: Vec::new(),
        }
    }
}

impl Ask {
    pub(super) fn open() -> Self {
        Self { disposition: CreateDisposition::OPEN, ..Self::default() }
    }
    pub(super) fn directory() -> Self {
        Self { options: CreateOptions::DIRECTORY_FILE, ..Self::default() }
    }
    pub(super) fn access(self, access: AccessMask) -> Self {
        Self { access, ..self }
    }
    pub(super) fn share(self, share: u32) -> Self {
        Self { share, ..self }
    }
    pub(super) fn disposition(self, disposition: CreateDisposition) -> Self {
        Self { disposition, ..self }
    }
    pub(super) fn options(self, options: CreateOptions) -> Self {
        Self { options, ..self }
    }
    pub(super) fn attributes(self, attributes: FileAttributes) -> Self {
        Self { attributes, ..self }
    }
    pub(super) fn oplock(self, level: OplockLevel) -> Self {
        Self { caching: CachingRequest::Oplock(level), ..self }
    }
    pub(super) fn lease(self, key: u8, state: u32) -> Self {
        let request = LeaseRequest { key: LeaseKey([key; 16]), state: LeaseState(state), v2: None };
        Self { caching: CachingRequest::Lease(request), ..self }
    }
    pub(super) fn lease_v2(self, key: u8, state: u32, epoch: u16, parent: Option<u8>) -> Self {
        let parent = parent.map(|key| LeaseKey([key; 16]));
        let v2 = Some(LeaseRequestV2 { epoch, parent });
        let request = LeaseRequest { key: LeaseKey([key; 16]), state: LeaseState(state), v2 };
        Self { caching: CachingRequest::Lease(request), ..self }
    }
}

impl Fixture {
    /// On a store in memory, as `seen` shows it.
    pub(super) fn on(seen: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn FileStore>) -> Self {
        let store = Arc::new(MemoryStore::new(1 << 30));
        let clock = Arc::new(TestClock { start: tokio::time::Instant::now() });
        let options = VolumeOptions {
            label: "vms".into(),
            serial: 0x1234_5678_9abc_def0,
            id: Guid([7; 16]),
            created: FileTime(1),
            cluster: 65536,
            kind: "NTFS".into(),
        };
        let fs = FileSystem::new(seen(store.clone()), clock, Arc::new(SeededEntropy::new(1)), options);
        let root = ShareRoot {
            root: store.root(),
            maximal_access: AccessMask::FILE_ALL,
            access_based_enumeration: false,
            write_through: false,
        };
        let user = Caller {
            token: Arc::new(Token::new(sid(1000), Sid::USERS, &[], true)),
            share: Arc::new(root),
            client: Guid([1; 16]),
            owner: OwnerId(1),
        };
        Self { fs, store, user, told: Arc::default() }
    }

    /// The same user from another client.
    pub(super) fn client(&self, number: u8) -> Caller {
        Caller { client: Guid([number; 16]), ..self.user.clone() }
    }

    /// Another administrator.
    pub(super) fn administrator(&self, rid: u32) -> Caller {
        let token = Token::new(sid(rid), Sid::USERS, &[], true);
        Caller { token: Arc::new(token), ..self.user.clone() }
    }

    /// A user without privileges.
    pub(super) fn plain(&self, rid: u32) -> Caller {
        let token = Token::new(sid(rid), Sid::USERS, &[], false);
        Caller { token: Arc::new(token), ..self.user.clone() }
    }

    /// Somebody through a share of a folder that allows this much.
    pub(super) fn through(&self, caller: &Caller, root: FileId, maximal_access: AccessMask) -> Caller {
        let share = ShareRoot { root, maximal_access, ..(*caller.share).clone() };
        Caller { share: Arc::new(share), ..caller.clone() }
    }

    pub(super) async fn create_as(&self, caller: &Caller, name: &str, ask: &Ask) -> crate::Result<Created> {
        self.create_told(caller, name, ask, self.told.clone()).await
    }

    pub(super) async fn create_told(
        &self,
        caller: &Caller,
        name: &str,
        ask: &Ask,
        told: Arc<Recorder>,
    ) -> crate::Result<Created> {
        let name = utf16(name);
        let request = CreateRequest {
            desired_access: ask.access,
            share_access: ShareAccess(ask.share),
            disposition: ask.disposition,
            options: ask.options,
            attributes: ask.attributes,
            caching: ask.caching,
            security: ask.security.as_deref(),
            ea: ask.ea.as_deref(),
            allocation_size: ask.allocation,
            left_behind: &ask.left_behind,
            ..CreateRequest::open(Utf16::new(&name).unwrap(), told)
        };
        self.fs.create(caller, request).await
    }

    pub(super) async fn create(&self, name: &str, ask: &Ask) -> crate::Result<Created> {
        self.create_as(&self.user, name, ask).await
    }

    pub(super) async fn open(&self, name: &str, ask: &Ask) -> Arc<Open> {
        self.create(name, ask).await.unwrap_or_else(|error| panic!("{name}: {error}")).open
    }

    pub(super) async fn status(&self, name: &str, ask: &Ask) -> NtStatus {
        match self.create(name, ask).await {
            Ok(created) => {
                created.open.close(false).await.unwrap();
                NtStatus::SUCCESS
            }
            Err(error) => error.status,
        }
    }

    /// A file with content, closed again.
    pub(super) async fn file(&self, name: &str, content: &[u8]) {
        let open = self.open(name, &Ask::default()).await;
        open.write(0, buf(content), WriteFlags::default()).await.unwrap();
        open.close(false).await.unwrap();
    }

    pub(super) async fn directory(&self, name: &str) {
        self.open(name, &Ask::directory()).await.close(false).await.unwrap();
    }

    /// Closes what is open.
    pub(super) async fn close_all(&self) {
        let opens: Vec<_> = self.fs.core.opens.lock().values().cloned().collect();
        for open in opens {
            open.close(false).await.unwrap();
        }
    }

    /// Whether nothing is left in the tables.
    pub(super) fn assert_clean(&self) {
        let core = &self.fs.core;
        assert!(core.opens.lock().is_empty(), "opens are left");
        assert!(core.leases.lock().is_empty(), "leases are left");
        for (file, node) in core.nodes.lock().iter() {
            let state = node.state.lock();
            assert!(state.opens.is_empty() && state.streams.is_empty(), "{file:?} has something left");
        }
    }

    /// Files that something still pins, besides the root.
    pub(super) fn pinned(&self) -> Vec<FileId> {
        let nodes = self.fs.core.nodes.lock();
        nodes.keys().copied().filter(|file| *file != self.store.root()).collect()
    }
}

pub(super) fn buf(bytes: &[u8]) -> aligned_buffer::SharedBuf {
    IoBuf::copy_from(bytes).freeze()
}

pub(super) async fn read(open: &Open, offset: u64, len: usize) -> crate::Result<Vec<u8>> {
    open.read(offset, IoBuf::zeroed(len)).await.map(|buf| buf.to_vec())
}

pub(super) fn status<T>(result: crate::Result<T>) -> NtStatus {
    result.err().map_or(NtStatus::SUCCESS, |error| error.status)
}

/// A structure from QUERY_INFO.
pub(super) async fn query<T: smb_protocol::wire::Wire>(open: &Open, class: FileClass) -> T {
    let mut out = Vec::new();
    let none = smb_protocol::info::QueryInfoFlags::NONE;
    open.query_info(class, &[], 0, none, 4096, &mut out).await.unwrap();
    T::decode(&out).unwrap()
}

/// Runs a test on a thread that is like a shard, with time that passes only when everybody waits.
pub(super) fn run<F: Future<Output = ()>>(test: impl FnOnce(Fixture) -> F) {
    run_on(|store| store, test);
}

/// The same on a store that is seen otherwise.
pub(super) fn run_on<F: Future<Output = ()>>(
    seen: impl FnOnce(Arc<MemoryStore>) -> Arc<dyn FileStore>,
    test: impl FnOnce(Fixture) -> F,
) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        test(Fixture::on(seen)).await;
    });
}
