//! What first writes to clones, and after snapshots, cost, and what becomes of what is made ready for them.

use std::sync::atomic::{AtomicU64, Ordering};

use block_device::{BlockDevice, BlockFuture};
use file_store::SnapshotStore;
use futures_util::future::join_all;
use test_layers::{DeviceLayer, Layered};
use volume_format::CLUSTER;

use super::*;

/// Counts the bytes that are read of where data is.
struct Counting {
    inner: MemoryDisk,
    data_start: u64,
    read: AtomicU64,
}

impl DeviceLayer for Counting {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        if offset >= self.data_start {
            self.read.fetch_add(buf.len() as u64, Ordering::SeqCst);
        }
        self.inner.read(offset, buf)
    }
}

const SIZE: usize = 192 << 20;
const LEN: u64 = 32 << 20;

async fn cloned() -> (Arc<Layered<Counting>>, Arc<Volume>, FileId, FileId) {
    let data_start = volume_format::layout_for(SIZE as u64).expect("layout").data_start;
    let inner = MemoryDisk::new(SIZE, 4096);
    let disk = Arc::new(Layered(Counting { inner, data_start, read: AtomicU64::new(0) }));
    let device: Device = Arc::clone(&disk) as Device;
    let options = FormatOptions { name: "v".into() };
    Volume::format(Arc::clone(&device), options, environment()).await.expect("format");
    let volume = Volume::open(device, environment()).await.expect("open");
    let golden = volume.create(volume.root(), "golden", file()).await.expect("file");
    write(&open(&volume, golden).await, 0, &vec![7; LEN as usize], Durability::Durable).await;
    let clone = volume.clone_tree(golden, volume.root(), "clone").await.expect("clone");
    (disk, volume, golden, clone)
}

/// A write copies what is around it in its clusters, and nothing of what it overwrites.
#[test]
fn only_what_is_not_overwritten_is_copied() {
    on_shard(async {
        let (disk, volume, golden, clone) = cloned().await;
        let handle = open(&volume, clone).await;
        for (at, len, copied) in [
            (0, 512 << 10, 0),
            (1 << 20, 4096, CLUSTER - 4096),
            ((2 << 20) + 8192, 2 * CLUSTER, CLUSTER),
            ((4 << 20) - 4096, 3 << 20, CLUSTER - 4096 + 4096),
            // The blocks of its ends are put together first.
            ((9 << 20) + 100, 50, CLUSTER - 4096 + 4096),
        ] {
            disk.read.store(0, Ordering::SeqCst);
            write(&handle, at, &vec![9; len as usize], Durability::Durable).await;
            assert_eq!(disk.read.load(Ordering::SeqCst), copied, "{len} bytes at {at}");
            let around = at.saturating_sub(CLUSTER) as usize;
            let mut expected = vec![7; len as usize + 2 * CLUSTER as usize];
            expected[at as usize - around..][..len as usize].fill(9);
            assert_eq!(read(&handle, around as u64, expected.len()).await, expected, "{len} bytes at {at}");
        }
        let golden = open(&volume, golden).await;
        assert_eq!(read(&golden, 0, LEN as usize).await, vec![7; LEN as usize]);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// Random writes to a clone cost one batch each, where there were two, and less when several come together. What was made
/// ready for more of them comes back.
#[test]
fn a_first_write_to_a_clone_is_one_batch() {
    on_shard(async {
        const WRITES: u64 = 200;
        let (_disk, volume, golden, clone) = cloned().await;
        let handle = open(&volume, clone).await;
        write(&handle, 0, &[9; 4096], Durability::Durable).await;
        let groups = volume.groups();
        for at in 1..=WRITES {
            write(&handle, at * 2 * CLUSTER, &[9; 4096], Durability::Durable).await;
        }
        let took = volume.groups() - groups;
        // Sizes and times, and what comes back meanwhile, are changes of others.
        assert!(took <= WRITES * 3 / 2, "{took} batches for {WRITES} writes");
        let places: Vec<u64> = (1..=WRITES).map(|at| (at * 2 + 1) * CLUSTER).collect();
        for places in places.chunks(32) {
            join_all(places.iter().map(|at| write(&handle, *at, &[8; 4096], Durability::Volatile))).await;
        }
        for at in 1..=WRITES {
            let two = read(&handle, at * 2 * CLUSTER, 2 * CLUSTER as usize).await;
            assert!(two[..4096] == [9; 4096] && two[4096..CLUSTER as usize] == [7; CLUSTER as usize - 4096]);
            let two = &two[CLUSTER as usize..];
            assert!(two[..4096] == [8; 4096] && two[4096..] == [7; CLUSTER as usize - 4096]);
        }
        drop(handle);
        let used = LEN + (2 * WRITES + 1) * CLUSTER;
        for _ in 0..4000 {
            if volume.usage().await.expect("usage").used == used {
                break;
            }
            shard_runtime::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(volume.usage().await.expect("usage").used, used);
        assert_eq!(read(&open(&volume, golden).await, 0, LEN as usize).await, vec![7; LEN as usize]);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
    });
}

/// Two writes to different blocks of one shared cluster at the same time.
#[test]
fn writes_that_meet_in_a_shared_cluster_both_stay() {
    for seed in 0..40 {
        on_shard(async {
            let device: Device = Arc::new(devices::Turns::new(SIZE / 4, seed));
            let options = FormatOptions { name: "v".into() };
            Volume::format(Arc::clone(&device), options, environment()).await.expect("format");
            let volume = Volume::open(device, environment()).await.expect("open");
            let golden = volume.create(volume.root(), "golden", file()).await.expect("file");
            write(&open(&volume, golden).await, 0, &[7; 4 * CLUSTER as usize], Durability::Durable).await;
            let clone = volume.clone_tree(golden, volume.root(), "clone").await.expect("clone");
            let handle = open(&volume, clone).await;
            let (mut rng, mut expected) = (Rng::new(seed), vec![7; 4 * CLUSTER as usize]);
            let mut places: Vec<usize> =
                (0..8).map(|n| 30 * 1024 * n + 100 + rng.below(9000) as usize).collect();
            places.push(0);
            for (n, at) in places.iter().enumerate() {
                expected[*at..at + 90].fill(n as u8);
            }
            let parts: Vec<(u64, Vec<u8>)> =
                places.iter().map(|at| (*at as u64, expected[*at..at + 90].to_vec())).collect();
            join_all(parts.iter().map(|(at, part)| write(&handle, *at, part, Durability::Durable))).await;
            assert_eq!(read(&handle, 0, expected.len()).await, expected, "seed {seed}");
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "seed {seed}");
        });
    }
}
