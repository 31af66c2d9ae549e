//! Snapshots and clones: what they cost, what they give back, and what they wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockFuture};
use file_store::{NewSnapshot, Snapshot, SnapshotStore};
use test_layers::{DeviceLayer, Layered};
use volume_format::{BLOCK, CLUSTER, Superblock};

use super::*;
use crate::tables::{LINKS, SNAPSHOT_TABLES};

async fn take(volume: &Volume, name: &str, source: FileId) -> Snapshot {
    let new =
        NewSnapshot { name: name.into(), source, quiesce: true, maker: String::new(), path: String::new() };
    volume.take_snapshot(new).await.expect("snapshot")
}

async fn read_all(volume: &Volume, file: FileId) -> Vec<u8> {
    let open = volume.open(file, OpenOptions::shared(Access::READ)).await.expect("open");
    read(&open, 0, open.size() as usize).await
}

/// Waits until the space in use is `used`.
async fn space_returns(volume: &Volume, used: u64, referenced: u64) {
    for _ in 0..2000 {
        let now = volume.usage().await.expect("usage");
        if (now.used, now.referenced) == (used, referenced) {
            return;
        }
        shard_runtime::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?} is left of {used}", volume.usage().await);
}

async fn links(volume: &Volume) -> u64 {
    let counted = volume.core.metadata.change(|session| {
        let table = session.txn.open_table(LINKS).expect("table");
        Ok(redb::ReadableTableMetadata::len(&*table).expect("rows"))
    });
    counted.await.expect("links")
}

/// Holds writes up while it is told to.
struct Held {
    disk: MemoryDisk,
    hold: AtomicBool,
    written: AtomicBool,
}

impl DeviceLayer for Held {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        // The metadata go on.
        let data_start = volume_format::layout_for(SIZE as u64).expect("layout").data_start;
        Box::pin(async move {
            while offset >= data_start && self.hold.load(Ordering::SeqCst) {
                self.written.store(true, Ordering::SeqCst);
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
            self.disk.write(offset, data, durability).await
        })
    }
}

#[test]
fn a_write_under_way_is_in_a_snapshot_whole_or_not_at_all() {
    on_shard(async {
        let disk = MemoryDisk::new(SIZE, 4096);
        let held =
            Arc::new(Layered(Held { disk, hold: AtomicBool::default(), written: AtomicBool::default() }));
        let device: Device = held.clone();
        let options = FormatOptions { name: "v".into() };
        Volume::format(Arc::clone(&device), options, environment()).await.expect("format");
        let volume = Volume::open(device, environment()).await.expect("open");
        let id = volume.create(volume.root(), "f", file()).await.expect("file");
        let f = open(&volume, id).await;
        write(&f, 0, &[1; 3 * CLUSTER as usize], Durability::Durable).await;
        held.hold.store(true, Ordering::SeqCst);
        let writer = async { write(&f, 0, &[2; 3 * CLUSTER as usize], Durability::Durable).await };
        let taker = async {
            while !held.written.load(Ordering::SeqCst) {
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
            let mut taking = std::pin::pin!(take(&volume, "s", id));
            // Time enough, if it does not wait for the write; what it then held must not change.
            let early = shard_runtime::timeout(Duration::from_millis(300), &mut taking).await;
            let before = match &early {
                Some(taken) => Some(read_all(&volume, taken.root).await),
                None => None,
            };
            held.hold.store(false, Ordering::SeqCst);
            let taken = match early {
                Some(taken) => taken,
                None => taking.await,
            };
            (taken, before)
        };
        let ((), (taken, before)) = futures_util::join!(writer, taker);
        let now = read_all(&volume, taken.root).await;
        assert!(before.is_none_or(|before| before == now), "the snapshot changed");
        assert!(now.iter().all(|byte| *byte == now[0]), "half a write is in the snapshot");
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn clones_cost_rows_and_give_everything_back() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let start = volume.usage().await.expect("usage");
        let golden = volume.create(root, "golden", file()).await.expect("file");
        let content: Vec<u8> = (0..40 * CLUSTER).map(|at| (at >> 10) as u8).collect();
        write(&open(&volume, golden).await, 0, &content, Durability::Durable).await;
        let one = volume.usage().await.expect("usage");
        for number in 0..200 {
            volume.clone_tree(golden, root, &format!("clone{number}")).await.expect("clone");
        }
        assert_eq!(volume.usage().await.expect("usage").used, one.used);
        assert_eq!(links(&volume).await, 201, "a row for each, and one for their source");
        for number in (0..200).step_by(10) {
            let id = volume.resolve(&format!("/clone{number}")).await.expect("clone");
            let clone = open(&volume, id).await;
            write(&clone, number * 4096, &[number as u8; 5000], Durability::Durable).await;
        }
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        for number in 0..200u64 {
            let mut wanted = content.clone();
            if number % 10 == 0 {
                let at = number as usize * 4096;
                wanted[at..at + 5000].fill(number as u8);
            }
            let id = volume.resolve(&format!("/clone{number}")).await.expect("clone");
            assert!(read_all(&volume, id).await == wanted, "clone {number}");
        }
        volume.remove(volume.root(), "golden").await.expect("remove");
        for number in 0..200 {
            volume.remove(volume.root(), &format!("clone{number}")).await.expect("remove");
        }
        space_returns(&volume, start.used, start.referenced).await;
        assert_eq!(links(&volume).await, 0);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn no_chain_grows_with_clones_of_clones() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let root = volume.root();
        let mut last = volume.create(root, "c0", file()).await.expect("file");
        write(&open(&volume, last).await, 0, &[9; 20 * CLUSTER as usize], Durability::Durable).await;
        for depth in 1..60u64 {
            last = volume.clone_tree(last, root, &format!("c{depth}")).await.expect("clone");
            if depth % 4 == 0 {
                write(&open(&volume, last).await, depth * 4096, &[depth as u8; 4096], Durability::Durable)
                    .await;
            }
        }
        let rows = volume.core.metadata.change(move |session| {
            let links = session.links((last.0, 0), 0, u64::MAX)?;
            // Each leads to extents, not to where there are links again.
            let direct = links.iter().all(|link| {
                let beyond = session.links(link.map, link.first, link.end);
                beyond.is_ok_and(|beyond| beyond.iter().all(|next| next.map == link.map))
            });
            Ok((links.len(), direct))
        });
        assert_eq!(rows.await.expect("links"), (1, true));
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn deletion_goes_on_after_a_restart() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let start = volume.usage().await.expect("usage");
        let directory = NewFile { kind: FileKind::Directory, ..file() };
        let mut at = volume.root();
        for depth in 0..5 {
            at = volume.create(at, &format!("d{depth}"), directory.clone()).await.expect("directory");
            for number in 0..120 {
                let id = volume.create(at, &format!("f{number}"), file()).await.expect("file");
                if number % 20 == 0 {
                    write(&open(&volume, id).await, 0, &[7; 5000], Durability::Durable).await;
                }
            }
        }
        let taken = take(&volume, "s", volume.root()).await;
        let live = volume.usage().await.expect("usage");
        for name in ["a", "b"] {
            take(&volume, name, volume.root()).await;
        }
        for snapshot in volume.snapshots().await.expect("list") {
            volume.delete_snapshot(snapshot.id).await.expect("delete");
        }
        // Closed in the middle of it.
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.snapshots().await.expect("list"), Vec::new());
        space_returns(&volume, live.used, live.referenced / 2).await;
        for _ in 0..2000 {
            if volume.info(taken.root).await.is_err() {
                break;
            }
            shard_runtime::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(volume.info(taken.root).await.map_err(|e| e.kind()), Err(StoreErrorKind::NotFound));
        assert!(live.used > start.used);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// A volume as a release without snapshots leaves it.
async fn as_before_snapshots(device: &Device, volume: Arc<Volume>) {
    volume.close().await.expect("close");
    drop(volume);
    let changed = Arc::clone(device);
    let changing = std::thread::spawn(move || {
        let block = crate::backend::run(changed.read(0, IoBuf::new(BLOCK as usize))).expect("read");
        let superblock = Superblock::decode(&block).expect("superblock");
        let opened = crate::database::open_database(Arc::clone(&changed), &superblock).expect("database");
        let database = opened.database;
        let txn = database.begin_write().expect("begin");
        for name in SNAPSHOT_TABLES {
            let table = redb::TableDefinition::<u64, u64>::new(name);
            assert!(txn.delete_table(table).is_ok() || delete_any(&txn, name));
        }
        txn.commit().expect("commit");
        drop(database);
        let old = IoBuf::copy_from(&Superblock { features: 0, ..superblock }.encode()).freeze();
        for offset in Superblock::OFFSETS {
            crate::backend::run(changed.write(offset, old.clone(), Durability::Durable)).expect("write");
        }
    });
    changing.join().expect("as it was");
}

fn delete_any(txn: &redb::WriteTransaction, name: &str) -> bool {
    let found = txn.list_tables().expect("tables").find(|table| redb::TableHandle::name(table) == name);
    found.is_some_and(|table| txn.delete_table(table).expect("delete"))
}

#[test]
fn a_volume_of_an_older_release_is_brought_up_to_date() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let id = volume.create(volume.root(), "f", file()).await.expect("file");
        write(&open(&volume, id).await, 0, b"from before", Durability::Durable).await;
        as_before_snapshots(&device, volume).await;
        let options = crate::CheckOptions { deep: true, repair: crate::Repair::No };
        let found = crate::verify(Arc::clone(&device), environment(), options).await.expect("verify");
        assert_eq!(found, Vec::new(), "an old volume is sound");
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        let taken = take(&volume, "s", id).await;
        write(&open(&volume, id).await, 0, b"and after", Durability::Durable).await;
        assert_eq!(read_all(&volume, taken.root).await, b"from before");
        let volume = reopen(&device, volume).await;
        assert_eq!(read_all(&volume, taken.root).await, b"from before");
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
        // Power went between the two copies.
        let block = device.read(0, IoBuf::new(BLOCK as usize)).await.expect("read");
        let superblock = Superblock::decode(&block).expect("superblock");
        assert_eq!(superblock.features, volume_format::USUAL_FEATURES);
        let old = IoBuf::copy_from(&Superblock { features: 0, ..superblock.clone() }.encode()).freeze();
        device.write(Superblock::OFFSETS[1], old, Durability::Durable).await.expect("write");
        let found = crate::verify(Arc::clone(&device), environment(), options).await.expect("verify");
        assert!(found.iter().any(|f| f.detail.contains("upgrade") && f.repair.is_some()), "{found:?}");
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}
