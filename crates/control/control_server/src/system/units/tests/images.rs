//! Units that are the disks in images.

use block_device::{BlockDevice as _, Durability};
use file_store::{OpenFile, OpenOptions, StoreError, StoreFuture};
use shard_runtime::SystemEntropy;
use std::sync::atomic::{AtomicBool, Ordering};
use vhdx::{CreateOptions, Kind, Mode, ParentLocator};

use super::*;
use crate::images::{self, ImagePlace};

mod caches;
mod losses;
mod parents;

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;

async fn file(store: &dyn FileStore, name: &str) -> Arc<dyn OpenFile> {
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    let id = store.create(store.root(), name, new).await.expect("made");
    store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened")
}

/// A dynamic image of 8 MiB, or a child of one.
async fn image(store: &Arc<dyn FileStore>, name: &str, parent: Option<&str>) {
    let kind = match parent {
        None => Kind::Dynamic,
        Some(parent) => {
            let opened = open(store, parent, Mode::Read).await;
            let guid = opened.info().await.header.data_write_guid;
            Kind::Differencing(ParentLocator::new(guid, &format!(".\\{parent}"), None))
        }
    };
    let options = CreateOptions { block_size: Some(MIB as u32), ..CreateOptions::new(8 * MIB, kind) };
    vhdx::create(&file(&**store, name).await, &options, &SystemEntropy).await.expect("made");
}

async fn open(store: &Arc<dyn FileStore>, name: &str, mode: Mode) -> vhdx::Image {
    let place = ImagePlace { path: format!("/{name}"), parents_anywhere: false };
    images::open(store, &place, mode, &vhdx::unlimited()).await.expect("an image")
}

/// Opens a file as somebody else does, who shares everything.
async fn somebody(store: &dyn FileStore, name: &str, access: Access) -> Result<(), StoreErrorKind> {
    let entry = store.lookup(store.root(), name).await.expect("there");
    store.open(entry.file, OpenOptions::shared(access)).await.map(drop).map_err(|error| error.kind())
}

fn config() -> Config {
    let mut config = Config { qos_policies: vec![], qos_assignments: vec![], ..limited(Uuid::from_u128(9)) };
    config.luns[0].format = LunFormat::Vhdx;
    config
}

fn served(volume: &Arc<dyn VolumeHandle>) -> Vec<ServedLun> {
    vec![ServedLun {
        name: "l".into(),
        volume: Some(volume.clone()),
        comes: false,
        leaves: false,
        served_by: ServedBy::Here,
        groups: vec![PortGroup::optimized(1)],
    }]
}

/// An initiator that has heard the news.
async fn initiator(units: &SystemUnits, config: &Config) -> (Arc<dyn ScsiDevice>, Arc<Nexus>) {
    let device = units.device(&config.targets[0].name);
    let nexus = Arc::new(Nexus {
        id: 1,
        initiator: "iqn.2026-01.io.holdfast:i".into(),
        initiator_port: [1; 6],
        target: config.targets[0].name.clone(),
        target_port: 1,
        io: IoTally::default(),
    });
    device.nexus_established(&nexus);
    let ready = ScsiCommand { cdb: vec![0; 6], data_out: IoBuf::new(0).freeze(), ..write() };
    device.execute(&nexus, WireLun::from_number(0), ready).await.expect("answered");
    (device, nexus)
}

/// Writes one sector.
async fn put(
    device: &Arc<dyn ScsiDevice>,
    nexus: &Arc<Nexus>,
    sector: u64,
    fill: u8,
) -> (ScsiStatus, Vec<u8>) {
    let mut cdb = vec![0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    cdb[2..6].copy_from_slice(&(sector as u32).to_be_bytes());
    let data_out = IoBuf::copy_from(&[fill; SECTOR as usize]).freeze();
    let answer =
        device.execute(nexus, WireLun::from_number(0), ScsiCommand { cdb, data_out, ..write() }).await;
    let answer = answer.expect("answered");
    (answer.status, answer.sense.to_vec())
}

async fn holds(image: &vhdx::Image, sector: u64, fill: u8) {
    let read = image.read(sector * SECTOR, IoBuf::new(SECTOR as usize)).await.expect("read");
    assert!(read.iter().all(|byte| *byte == fill), "sector {sector} holds {}, not {fill}", read[0]);
}

/// Unmaps the first MiB.
async fn unmap(device: &Arc<dyn ScsiDevice>, nexus: &Arc<Nexus>) -> ScsiStatus {
    let cdb = vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    let mut list = [0; 24];
    (list[1], list[3]) = (22, 16);
    list[16..20].copy_from_slice(&((MIB / SECTOR) as u32).to_be_bytes());
    let data_out = IoBuf::copy_from(&list).freeze();
    let answer =
        device.execute(nexus, WireLun::from_number(0), ScsiCommand { cdb, data_out, ..write() }).await;
    answer.expect("answered").status
}

/// What the file has now, were the node to end.
async fn as_it_is(store: &Arc<dyn FileStore>) -> vhdx::Image {
    let _ = store.remove(store.root(), "now").await;
    let entry = store.lookup(store.root(), "l").await.expect("there");
    let snapshots = store.snapshot_store().expect("it has clones");
    snapshots.clone_tree(entry.file, store.root(), "now").await.expect("cloned");
    open(store, "now", Mode::Read).await
}

/// How long a test may take that waits for something: one that waits for ever fails instead.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test as on a shard.
async fn run<T>(test: impl Future<Output = T>) -> T {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            shard_runtime::adopt_detached_work();
            tokio::time::timeout(LIMIT, test).await.expect("what it waits for comes")
        })
        .await
}

#[tokio::test]
async fn an_image_is_a_lun_and_nobody_elses_meanwhile() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "l", None).await;
        let config = config();
        // Somebody has it open to write to it: it is no LUN until that is closed.
        let entry = store.lookup(store.root(), "l").await.expect("there");
        let other = store.open(entry.file, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
        let trouble = apply(&units, &config, served(&volume)).await;
        assert_eq!(trouble.len(), 1, "{trouble:?}");
        assert!(units.images().is_empty());
        drop(other);
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let size = |units: &SystemUnits| units.images().first().map(|(_, image)| image.size_bytes);
        assert_eq!(size(&units), Some(8 * MIB));
        let (device, nexus) = initiator(&units, &config).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        holds(&as_it_is(&store).await, 5, 0x5a).await;
        assert_eq!(unmap(&device, &nexus).await, ScsiStatus::Good);
        holds(&as_it_is(&store).await, 5, 0).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        for access in [Access::READ, Access::READ_WRITE] {
            assert_eq!(somebody(&*store, "l", access).await, Err(StoreErrorKind::SharingViolation));
        }
        assert_eq!(
            store.remove(store.root(), "l").await.map_err(|error| error.kind()),
            Err(StoreErrorKind::SharingViolation)
        );
        units.resize_image("l", 16 * MIB).await.expect("resized");
        assert_eq!(size(&units), Some(16 * MIB));
        // The unit learns of it from a task that watches the image, and tells initiators with the next command.
        while put(&device, &nexus, 16 * MIB / SECTOR - 1, 0x77).await.1.get(12) != Some(&0x2a) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(put(&device, &nexus, 16 * MIB / SECTOR - 1, 0x77).await.0, ScsiStatus::Good);
        // It goes: the file is whole, with no log that waits, and anybody's.
        apply(&units, &Config::default(), Vec::new()).await;
        assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
        let there = open(&store, "l", Mode::Read).await;
        assert!(!there.info().await.had_log);
        holds(&there, 5, 0x5a).await;
        holds(&there, 16 * MIB / SECTOR - 1, 0x77).await;
    })
    .await;
}

#[tokio::test]
async fn what_is_wrong_with_an_image_is_said_and_it_is_served_when_it_is_right() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        let config = config();
        let why = async || {
            let trouble = apply(&units, &config, served(&volume)).await;
            trouble.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ")
        };
        assert!(why().await.contains("/l"));
        // Bytes that are no image.
        let bytes = file(&*store, "l").await;
        bytes.set_size(8 * MIB).await.expect("sized");
        drop(bytes);
        assert!(why().await.contains("no VHDX file"), "{}", why().await);
        // It is the LUN's, whatever it is.
        assert_eq!(removed(&*store).await, Err(StoreErrorKind::SharingViolation));
        apply(&units, &Config::default(), Vec::new()).await;
        store.remove(store.root(), "l").await.expect("removed");
        // A child of a parent that goes, comes back, and is changed.
        image(&store, "parent", None).await;
        image(&store, "l", Some("parent")).await;
        let (root, aside) = (store.root(), (store.root(), "aside"));
        store.rename((root, "parent"), aside, false).await.expect("moved");
        assert!(why().await.contains("/parent is missing"), "{}", why().await);
        store.rename(aside, (root, "parent"), false).await.expect("moved");
        let entry = store.lookup(root, "parent").await.expect("there");
        let writer = store.open(entry.file, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
        assert!(why().await.contains("who may change it"), "{}", why().await);
        drop(writer);
        assert_eq!(why().await, "");
        assert_eq!(
            somebody(&*store, "parent", Access::READ).await,
            Ok(()),
            "others have it for a parent, too"
        );
        assert_eq!(
            somebody(&*store, "parent", Access::READ_WRITE).await,
            Err(StoreErrorKind::SharingViolation)
        );
        apply(&units, &Config::default(), Vec::new()).await;
        let parent = open(&store, "parent", Mode::Write).await;
        let data = IoBuf::copy_from(&[1; SECTOR as usize]).freeze();
        parent.write(0, data, Durability::Durable).await.expect("written");
        parent.close().await.expect("closed");
        drop(parent);
        assert!(why().await.contains("was changed"), "{}", why().await);
    })
    .await;
}

#[tokio::test]
async fn parents_elsewhere_are_opened_only_where_that_was_asked_for() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "l", None).await;
        let guid = open(&store, "l", Mode::Read).await.info().await.header.data_write_guid;
        let folder =
            NewFile { kind: FileKind::Directory, attributes: Attributes::default(), security: Vec::new() };
        let folder = store.create(store.root(), "d", folder).await.expect("made");
        let kind = Kind::Differencing(ParentLocator::new(guid, "..\\l", None));
        let made = file(&*store, "child").await;
        vhdx::create(&made, &CreateOptions::new(8 * MIB, kind), &SystemEntropy).await.expect("made");
        drop(made);
        store.rename((store.root(), "child"), (folder, "child"), false).await.expect("moved");
        let mut config = config();
        config.luns[0].path = "/d/child".into();
        let trouble = apply(&units, &config, served(&volume)).await;
        assert!(trouble[0].1.contains("outside of its folder"), "{trouble:?}");
        config.luns[0].parents_anywhere = true;
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
    })
    .await;
}

async fn removed(store: &dyn FileStore) -> Result<(), StoreErrorKind> {
    store.remove(store.root(), "l").await.map_err(|error| error.kind())
}

/// Nobody else may do anything with the file of the LUN.
async fn is_held(store: &dyn FileStore) {
    assert_eq!(removed(store).await, Err(StoreErrorKind::SharingViolation));
    for access in [Access::READ, Access::READ_WRITE] {
        assert_eq!(somebody(store, "l", access).await, Err(StoreErrorKind::SharingViolation));
    }
}

/// What was acknowledged is in the file: it is nobody else's while its image cannot be opened, at first or when its volume is back.
#[tokio::test]
async fn the_file_of_an_image_that_cannot_be_opened_is_kept() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "parent", None).await;
        image(&store, "l", Some("parent")).await;
        let (root, mut config) = (store.root(), config());
        let gone = || vec![ServedLun { volume: None, ..served(&volume).remove(0) }];
        for back in [false, true] {
            store.rename((root, "parent"), (root, "aside"), false).await.expect("moved");
            // Again and again, also by another configuration of it.
            for _ in 0..3 {
                let trouble = apply(&units, &config, served(&volume)).await;
                assert!(trouble[0].1.contains("/parent is missing"), "{trouble:?}");
                is_held(&*store).await;
                if !back {
                    config.luns[0].parents_anywhere ^= true;
                }
            }
            apply(&units, &config, gone()).await;
            assert_eq!(Arc::strong_count(&volume), 1, "nothing of the volume is held any more");
            assert_eq!(somebody(&*store, "l", Access::READ_WRITE).await, Ok(()));
            assert_eq!(apply(&units, &config, served(&volume)).await.len(), 1);
            store.rename((root, "aside"), (root, "parent"), false).await.expect("moved");
            assert_eq!(apply(&units, &config, served(&volume)).await, []);
            is_held(&*store).await;
            apply(&units, &config, gone()).await;
        }
        apply(&units, &Config::default(), Vec::new()).await;
        assert_eq!(removed(&*store).await, Ok(()));
    })
    .await;
}

/// A store whose files are not flushed, and not read, while that is said.
struct Fails(MemoryStore, Arc<[AtomicBool; 2]>);
struct FailingFile(Arc<dyn OpenFile>, Arc<[AtomicBool; 2]>);

impl test_layers::StoreLayer for Fails {
    fn below(&self) -> &dyn FileStore {
        &self.0
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        Box::pin(async move {
            let file = self.0.open(file, options).await?;
            Ok(Arc::new(test_layers::Layered(FailingFile(file, self.1.clone()))) as Arc<dyn OpenFile>)
        })
    }
}

impl test_layers::FileLayer for FailingFile {
    fn below(&self) -> &dyn OpenFile {
        &*self.0
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            match self.1[0].load(Ordering::SeqCst) {
                true => Err(StoreError::new(StoreErrorKind::Io, "a test")),
                false => self.0.flush().await,
            }
        })
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            match self.1[1].load(Ordering::SeqCst) {
                true => Err(StoreError::new(StoreErrorKind::Io, "another test")),
                false => self.0.read(offset, buf).await,
            }
        })
    }
}

/// An image that could not make something durable has stopped; it is opened again when it can be, and has what was acknowledged. It
/// is nobody else's meanwhile, and neither is its parent.
#[tokio::test]
async fn an_image_that_has_stopped_is_opened_again() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let failing: Arc<[AtomicBool; 2]> = Arc::default();
        let layer = Fails(MemoryStore::new(1 << 30), failing.clone());
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(layer));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "parent", None).await;
        image(&store, "l", Some("parent")).await;
        let config = config();
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&units, &config).await;
        assert_eq!(put(&device, &nexus, 1, 0x11).await.0, ScsiStatus::Good);
        failing[0].store(true, Ordering::SeqCst);
        // A first write whose place cannot be made durable.
        let failed = put(&device, &nexus, 3 * MIB / SECTOR, 0x33);
        let goes_on = async {
            while units.images().iter().all(|(_, image)| image.problem.is_none()) {
                tokio::task::yield_now().await;
            }
            failing[1].store(true, Ordering::SeqCst);
            // It was tried.
            while units.images().iter().all(|(_, image)| {
                !image.problem.as_ref().is_some_and(|problem| problem.contains("another test"))
            }) {
                tokio::task::yield_now().await;
            }
            is_held(&*store).await;
            let parent = somebody(&*store, "parent", Access::READ_WRITE).await;
            assert_eq!(parent, Err(StoreErrorKind::SharingViolation));
            failing.iter().for_each(|fails| fails.store(false, Ordering::SeqCst));
        };
        let (failed, ()) = tokio::join!(failed, goes_on);
        while units.images().iter().any(|(_, image)| image.problem.is_some()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(put(&device, &nexus, 2, 0x22).await.0, ScsiStatus::Good);
        apply(&units, &Config::default(), Vec::new()).await;
        let there = open(&store, "l", Mode::Read).await;
        holds(&there, 1, 0x11).await;
        holds(&there, 2, 0x22).await;
        if failed.0 == ScsiStatus::Good {
            holds(&there, 3 * MIB / SECTOR, 0x33).await;
        }
    })
    .await;
}

/// What an initiator writes into a write cache is in the file soon, though nobody flushes it: a node that is killed then has it.
#[tokio::test]
async fn what_is_in_a_write_cache_comes_to_the_file_by_itself() {
    run(async {
        let units = units_on(SystemShards::start(Some(1)).expect("a shard"));
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let volume: Arc<dyn VolumeHandle> = Arc::new(TestVolume::new(store.clone()));
        image(&store, "l", None).await;
        let mut config = config();
        config.luns[0].write_cache = true;
        assert_eq!(apply(&units, &config, served(&volume)).await, []);
        let (device, nexus) = initiator(&units, &config).await;
        assert_eq!(put(&device, &nexus, 5, 0x5a).await.0, ScsiStatus::Good);
        loop {
            let now = as_it_is(&store).await;
            let read = now.read(5 * SECTOR, IoBuf::new(SECTOR as usize)).await.expect("read");
            if read[0] == 0x5a {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        apply(&units, &Config::default(), Vec::new()).await;
    })
    .await;
}
