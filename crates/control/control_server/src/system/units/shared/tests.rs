//! Shared disks in a volume in memory: what is under way when a disk moves, an open is closed, or memory is short.

use std::sync::atomic::AtomicUsize;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{
    Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenFile, OpenOptions, StoreError,
    StoreErrorKind, StoreFuture,
};
use qos_gate::{Flow, Gate};
use shard_runtime::{Clock, Monotonic, SystemClock, WallTime};
use smb_files::VolumeOptions;
use smb_protocol::FileTime;
use smb_server::DiskAnswer;
use vhdx::{CreateOptions, Kind};

use super::*;
use crate::system::test_volume::TestVolume;

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
const POOL: Option<Uuid> = Some(Uuid::from_u128(1));

/// What writes to files wait for, and whether the store has stopped.
#[derive(Default)]
struct Hurdle {
    held: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    stopped: AtomicBool,
}

struct Gated(MemoryStore, Arc<Hurdle>);
struct GatedFile(Arc<dyn OpenFile>, Arc<Hurdle>);

impl test_layers::StoreLayer for Gated {
    fn below(&self) -> &dyn FileStore {
        &self.0
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        Box::pin(async move {
            if self.1.stopped.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Stopped, "a test"));
            }
            let file = self.0.open(file, options).await?;
            Ok(Arc::new(test_layers::Layered(GatedFile(file, self.1.clone()))) as Arc<dyn OpenFile>)
        })
    }
}

impl test_layers::FileLayer for GatedFile {
    fn below(&self) -> &dyn OpenFile {
        &*self.0
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.1.waiting.fetch_add(1, Ordering::SeqCst);
            let _passed = self.1.held.lock().await;
            self.1.waiting.fetch_sub(1, Ordering::SeqCst);
            self.0.write(offset, data, durability).await
        })
    }
}

/// So much memory.
struct Limited(AtomicUsize);

impl Memory for Limited {
    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::SeqCst);
    }

    fn is_tight(&self) -> bool {
        false
    }
}

/// A volume with images of 8 MiB.
struct World {
    gate: Arc<Hurdle>,
    memory: Arc<Limited>,
    store: Arc<dyn FileStore>,
    volume: Arc<dyn VolumeHandle>,
    files: FileSystem,
    disks: SharedVirtualDisks,
}

impl World {
    async fn new() -> Self {
        let gate: Arc<Hurdle> = Arc::default();
        let layer = Gated(MemoryStore::new(1 << 40), gate.clone());
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(layer));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = VolumeOptions {
            label: "v".into(),
            serial: 1,
            id: Guid([7; 16]),
            created: FileTime::from_unix_nanos(0),
            cluster: 4096,
            kind: "NTFS".into(),
        };
        let files = FileSystem::new(store.clone(), clock, Arc::new(SystemEntropy), options);
        let shards = SystemShards::start(Some(1)).expect("a shard");
        let memory = Arc::new(Limited(AtomicUsize::new(1 << 30)));
        let disks = SharedVirtualDisks::new(shards, memory.clone());
        let world = Self { gate, memory, store, volume, files, disks };
        world.serve();
        world
    }

    fn serve(&self) {
        self.disks.serve(POOL, &self.files, &self.volume);
    }

    async fn image(&self, name: &str) -> FileId {
        self.image_of(name, Kind::Dynamic).await
    }

    async fn image_of(&self, name: &str, kind: Kind) -> FileId {
        let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
        let id = self.store.create(self.store.root(), name, new).await.expect("made");
        let file = self.store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
        let options = CreateOptions { block_size: Some(MIB as u32), ..CreateOptions::new(8 * MIB, kind) };
        vhdx::create(&file, &options, &SystemEntropy).await.expect("made");
        id
    }

    async fn open(&self, name: &str, file: FileId, initiator: u8) -> Result<Arc<dyn SharedDisk>, NtStatus> {
        let initiator = (initiator > 0).then_some(Guid([initiator; 16]));
        let path = format!("/{name}");
        self.disks.open(DiskFile { files: self.files.clone(), file, path, initiator }).await
    }

    /// Until a write of a file waits.
    async fn waits(&self) {
        while self.gate.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

async fn run(test: impl Future<Output = ()>) {
    let local = tokio::task::LocalSet::new();
    let adopted = async {
        shard_runtime::adopt_detached_work();
        test.await;
    };
    local.run_until(adopted).await;
}

type Answered = Result<Option<DiskAnswer>, NtStatus>;

async fn command(disk: &dyn SharedDisk, cdb: &[u8], data: &[u8], limit: u32) -> Answered {
    disk.execute(cdb, IoBuf::copy_from(data).freeze(), limit, None).await
}

/// Writes one sector.
async fn put(disk: &dyn SharedDisk, sector: u8, fill: u8) -> Answered {
    let mut cdb = [0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    cdb[9] = sector;
    command(disk, &cdb, &[fill; SECTOR as usize], 0).await
}

/// Reads the first byte of a sector.
async fn get(disk: &dyn SharedDisk, sector: u8) -> u8 {
    let mut cdb = [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
    cdb[9] = sector;
    let answer = command(disk, &cdb, &[], SECTOR as u32).await.expect("answered").expect("not aborted");
    assert_eq!(answer.status, 0, "{:x?}", answer.sense);
    answer.data.expect("data")[0]
}

/// The status of what was answered by the disk.
fn ended(answered: Answered) -> Result<u8, NtStatus> {
    answered.map(|answer| answer.expect("not aborted").status)
}

#[tokio::test]
async fn of_two_growings_at_once_the_larger_one_stays() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        let disk = world.open("d", file, 1).await.expect("open");
        let (larger, smaller) = tokio::join!(disk.grow(30 * MIB), disk.grow(20 * MIB));
        assert_eq!((larger, smaller), (Ok(()), Err(NtStatus::INVALID_PARAMETER)));
        assert_eq!(disk.facts().size, 30 * MIB);
        disk.close().await;
    })
    .await;
}

/// The disk's pool moves while writes are under way: each is answered as it ended, or is to come again.
#[tokio::test]
async fn what_is_under_way_when_a_disk_moves_is_done_or_to_come_again() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        let disk = world.open("d", file, 1).await.expect("open");
        assert_eq!(ended(put(&*disk, 9, 9).await), Ok(0));
        let held = world.gate.held.lock().await;
        let writes = async { tokio::join!(put(&*disk, 1, 1), put(&*disk, 2, 2), put(&*disk, 3, 3)) };
        let moves = async {
            world.waits().await;
            // As the shares of the volume go first.
            let mut release = disk.release();
            assert!(futures_util::poll!(release.as_mut()).is_pending());
            let mut keep = std::pin::pin!(world.disks.keep(POOL, &[]));
            for _ in 0..100 {
                assert!(futures_util::poll!(keep.as_mut()).is_pending(), "what is under way is waited for");
                tokio::task::yield_now().await;
            }
            drop(held);
            keep.await;
            release.await;
        };
        let ((first, second, third), ()) = tokio::join!(writes, moves);
        let came: Vec<Result<u8, NtStatus>> = [first, second, third].into_iter().map(ended).collect();
        assert!(came.contains(&Ok(0)), "one had begun, and ended well: {came:?}");
        for told in &came {
            assert!(matches!(told, Ok(0) | Err(NtStatus::FILE_NOT_AVAILABLE)), "{came:?}");
        }
        let size = disk.facts().size;
        assert_eq!(size, 8 * MIB, "its size is known while it is away");
        assert_eq!(ended(put(&*disk, 4, 4).await), Err(NtStatus::FILE_NOT_AVAILABLE));
        let inquiry = command(&*disk, &[0x12, 0, 0, 0, 96, 0], &[], 96).await;
        assert_eq!(ended(inquiry), Err(NtStatus::FILE_NOT_AVAILABLE), "not that there is no such disk");
        let grown = disk.grow(20 * MIB).await;
        assert_eq!(grown, Err(NtStatus::FILE_NOT_AVAILABLE));
        assert_eq!(world.open("d", file, 1).await.err(), Some(NtStatus::FILE_NOT_AVAILABLE));
        world.serve();
        let again = world.open("d", file, 1).await.expect("open");
        for (sector, told) in (1..=3).zip(came) {
            let expected = if told == Ok(0) { sector } else { get(&*again, sector).await };
            assert_eq!(get(&*again, sector).await, expected);
        }
        assert_eq!(get(&*again, 9).await, 9);
        disk.close().await;
        again.close().await;
    })
    .await;
}

/// An application has another open by now, which takes the place of the one that is closed.
#[tokio::test]
async fn nothing_of_an_open_comes_after_its_end() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        let (old, other) = (world.open("d", file, 1).await.expect("open"), world.open("d", file, 1).await);
        let other = other.expect("open");
        assert_eq!(ended(put(&*old, 1, 1).await), Ok(0));
        let held = world.gate.held.lock().await;
        let write = put(&*old, 1, 2);
        let closes = async {
            world.waits().await;
            let mut close = old.close();
            for _ in 0..100 {
                assert!(futures_util::poll!(close.as_mut()).is_pending(), "the write is waited for");
                tokio::task::yield_now().await;
            }
            assert_eq!(ended(put(&*old, 1, 3).await), Err(NtStatus::FILE_CLOSED));
            drop(held);
            close.await;
            assert_eq!(world.gate.waiting.load(Ordering::SeqCst), 0, "nothing is under way any more");
        };
        let (told, ()) = tokio::join!(write, closes);
        assert_eq!(ended(told), Err(NtStatus::FILE_CLOSED));
        assert_eq!(ended(put(&*other, 1, 4).await), Ok(0), "those of the other open go on");
        assert_eq!(get(&*other, 1).await, 4);
        other.close().await;
    })
    .await;
}

/// A disk that grows by terabytes does not hold up who closes it, and its file is not written to after that.
#[tokio::test]
async fn a_growing_ends_with_the_open_that_asked_for_it() {
    run(async {
        let world = World::new().await;
        let file = world.image_of("d", Kind::Fixed).await;
        let disk = world.open("d", file, 1).await.expect("open");
        let mut grows = disk.grow(4 << 40);
        assert!(futures_util::poll!(grows.as_mut()).is_pending());
        let (grown, ()) = tokio::join!(grows, disk.close());
        assert_eq!(grown, Err(NtStatus::FILE_NOT_AVAILABLE));
        let again = world.open("d", file, 1).await.expect("the file is anybody's");
        assert_eq!(again.facts().size, 8 * MIB);
        again.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_volume_that_has_stopped_is_to_be_asked_again() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        world.gate.stopped.store(true, Ordering::SeqCst);
        assert_eq!(world.open("d", file, 1).await.err(), Some(NtStatus::FILE_NOT_AVAILABLE));
        world.gate.stopped.store(false, Ordering::SeqCst);
        world.open("d", file, 1).await.expect("open").close().await;
    })
    .await;
}

#[tokio::test]
async fn disks_that_are_open_take_memory_that_is_counted() {
    run(async {
        let world = World::new().await;
        let (one, two) = (world.image("a").await, world.image("b").await);
        world.memory.0.store(DISK_BYTES + DISK_BYTES / 2, Ordering::SeqCst);
        let first = world.open("a", one, 1).await.expect("open");
        assert_eq!(world.open("b", two, 1).await.err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
        let again = world.open("a", one, 2).await.expect("it is the same disk");
        first.close().await;
        again.close().await;
        let second = world.open("b", two, 1).await.expect("the memory was given back");
        second.close().await;
        assert_eq!(world.memory.0.load(Ordering::SeqCst), DISK_BYTES + DISK_BYTES / 2);
    })
    .await;
}

/// A reservation that would be lost with the node, without a word to who holds it.
#[tokio::test]
async fn reservations_that_do_not_last_are_refused() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        let disk = world.open("d", file, 1).await.expect("open");
        for cdb in [&[0x16, 0, 0, 0, 0, 0][..], &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            let answer = command(&*disk, cdb, &[], 0).await.expect("answered").expect("not aborted");
            assert_eq!((answer.status, answer.sense[2], answer.sense[12]), (2, 5, 0x20));
        }
        disk.close().await;
    })
    .await;
}

/// A clock that goes on when it is told to.
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }

    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

/// What moves data counts by what it moves, a step at a time, and what is refused moves nothing.
#[tokio::test]
async fn commands_of_every_kind_have_their_turn_in_the_flow_of_their_open() {
    run(async {
        let world = World::new().await;
        let file = world.image("d").await;
        let disk = world.open("d", file, 1).await.expect("open");
        let clock = Arc::new(HandClock(AtomicU64::new(1)));
        let gate = Gate::new(clock.clone(), &Default::default());
        let flow: Option<Arc<Flow>> = gate.disk("d").flow("host");
        assert!(flow.is_some());
        let send = async |cdb: &[u8], data: &[u8], limit: u32| {
            let data = IoBuf::copy_from(data).freeze();
            ended(disk.execute(cdb, data, limit, flow.clone()).await)
        };
        let block = [0x55; SECTOR as usize];
        let of = |op: u8, blocks: u32| [&[op, 0][..], &[0; 8], &blocks.to_be_bytes(), &[0, 0]].concat();
        assert_eq!(send(&of(0x8a, 1), &block, 0).await, Ok(0));
        // A second after the first command, so that rates are counts.
        clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
        let counted = || gate.flows().iter().map(|flow| flow.normalized_iops).sum::<u64>();
        for (cdb, data, limit, told, units) in [
            (of(0x8a, 1), &block[..], 0, Ok(0), 1),
            (of(0x93, 2048), &block, 0, Ok(0), 128),
            (of(0x8f, 2048), &[], 0, Ok(0), 128),
            (of(0x88, u32::MAX), &[], 4096, Err(NtStatus::INVALID_PARAMETER), 0),
            (of(0x8a, 2), &block, 0, Err(NtStatus::INVALID_PARAMETER), 0),
            (vec![0x12, 0, 0, 0, 96, 0], &[], 96, Ok(0), 0),
        ] {
            let before = counted();
            assert_eq!(send(&cdb, data, limit).await, told, "{cdb:x?}");
            assert_eq!(counted() - before, units, "{cdb:x?}");
        }
        disk.close().await;
    })
    .await;
}
