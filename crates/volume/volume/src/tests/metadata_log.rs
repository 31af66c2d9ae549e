//! What was answered is in the metadata log before it is in the database: crashes, damage, and volumes from before there was one.

mod damage;

use std::sync::atomic::Ordering;

use volume_format::{BLOCK, Batch, DecodeError, FEATURE_METADATA_LOG, Head, LengthRecord, Superblock};

use super::devices::Fickle;
use super::*;
use crate::check::{CheckOptions, Repair, verify};
use crate::finding::{Finding, Severity};

const LOG: &str = "metadata log";

async fn block(device: &Device, at: u64) -> Vec<u8> {
    device.read(at, IoBuf::new(BLOCK as usize)).await.expect("read").to_vec()
}

async fn put(device: &Device, at: u64, bytes: &[u8]) {
    device.write(at, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await.expect("write");
}

async fn layout(device: &Device) -> Superblock {
    Superblock::decode(&block(device, 0).await).expect("superblock")
}

/// What is on the device now: what a crash would leave.
async fn crashed(device: &Device) -> Device {
    let copy: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    put(&copy, 0, &device.read(0, IoBuf::new(SIZE)).await.expect("read")).await;
    copy
}

async fn look(device: &Device, repair: Repair) -> Vec<Finding> {
    let options = CheckOptions { deep: true, repair };
    verify(Arc::clone(device), environment(), options).await.expect("verify")
}

async fn opened(device: &Device) -> Arc<Volume> {
    Volume::open(Arc::clone(device), environment()).await.expect("open")
}

async fn listing(volume: &Arc<Volume>) -> Vec<String> {
    let page = volume.read_directory(volume.root(), DirectoryCursor::default(), 10_000).await.expect("page");
    page.entries.into_iter().map(|entry| entry.name).collect()
}

async fn make(volume: &Volume, names: impl IntoIterator<Item = &str>) {
    for name in names {
        volume.create(volume.root(), name, file()).await.expect("create");
    }
}

fn commits(volume: &Volume) -> u64 {
    volume.core.metadata.shared.commits.load(Ordering::Relaxed)
}

async fn commit(volume: &Volume) {
    volume.core.metadata.change_committed(|_| Ok(())).await.expect("commit");
}

fn decode(bytes: &[u8]) -> Result<Batch<'_>, DecodeError> {
    Head::decode(bytes)?.verify(bytes)
}

/// Where sound batches are on the device, with their numbers.
async fn batches(device: &Device) -> Vec<(u64, u64)> {
    let (start, size) = layout(device).await.metadata_log().expect("a log");
    let bytes = device.read(start, IoBuf::new(size as usize)).await.expect("read");
    let blocks = (0..size).step_by(BLOCK as usize);
    blocks
        .filter_map(|at| decode(&bytes[at as usize..]).ok().map(|batch| (start + at, batch.id.sequence)))
        .collect()
}

/// Three files, each in a batch of its own, that are in the log and not in the database, as a crash leaves them.
async fn three() -> Device {
    let (device, volume) = fresh().await;
    let before = commits(&volume);
    make(&volume, ["a", "b", "c"]).await;
    assert_eq!(commits(&volume), before, "nothing is committed on the way of a change");
    let crash = crashed(&device).await;
    assert_eq!(batches(&crash).await.len(), 3);
    crash
}

#[test]
fn what_was_answered_is_there_before_the_database_has_it() {
    on_shard(async {
        let device = three().await;
        // It is the log that has it.
        let without = crashed(&device).await;
        let (start, size) = layout(&device).await.metadata_log().expect("a log");
        put(&without, start, &vec![0; size as usize]).await;
        assert_eq!(listing(&opened(&without).await).await, Vec::<String>::new());
        assert_eq!(look(&device, Repair::No).await, Vec::new(), "a look sees it, too");
        for _ in 0..3 {
            // Replayed, and crashed again before anything else: the database has it then.
            let volume = opened(&device).await;
            assert_eq!(listing(&volume).await, ["a", "b", "c"]);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        }
    });
}

#[test]
fn a_torn_batch_at_the_end_was_never_answered() {
    on_shard(async {
        let device = three().await;
        let (last, _) = *batches(&device).await.last().expect("three");
        for at in [8, 100, 300] {
            let torn = crashed(&device).await;
            let mut bytes = block(&torn, last).await;
            bytes[at] ^= 1;
            put(&torn, last, &bytes).await;
            assert_eq!(look(&torn, Repair::No).await, Vec::new());
            assert_eq!(listing(&opened(&torn).await).await, ["a", "b"]);
        }
    });
}

/// The log begins at its start after each commit and each opening: what lies behind is neither what follows nor damage.
#[test]
fn what_earlier_rounds_left_is_never_taken_for_what_follows() {
    on_shard(async {
        let device = three().await;
        let volume = opened(&device).await;
        // Over the first batch; "b" and "c" are sound ones of another opening behind it.
        volume.remove(volume.root(), "b").await.expect("remove");
        let next = crashed(&device).await;
        assert_eq!(batches(&next).await.len(), 3);
        assert_eq!(look(&next, Repair::No).await, Vec::new());
        let volume = opened(&next).await;
        assert_eq!(listing(&volume).await, ["a", "c"]);
        // The same opening, after a commit.
        make(&volume, ["d", "e", "f"]).await;
        let before = commits(&volume);
        commit(&volume).await;
        assert_eq!(commits(&volume), before + 1);
        commit(&volume).await;
        assert_eq!(commits(&volume), before + 1, "there was nothing to commit");
        volume.remove(volume.root(), "f").await.expect("remove");
        let last = crashed(&next).await;
        let sequences: Vec<u64> = batches(&last).await.into_iter().map(|(_, sequence)| sequence).collect();
        assert!(sequences[0] > sequences[1] && sequences[1] < sequences[2], "{sequences:?}");
        assert_eq!(listing(&opened(&last).await).await, ["a", "c", "d", "e"]);
        // Closed: the database has all.
        volume.close().await.expect("close");
        let closed = crashed(&next).await;
        let (start, size) = layout(&closed).await.metadata_log().expect("a log");
        put(&closed, start, &vec![0; size as usize]).await;
        assert_eq!(listing(&opened(&closed).await).await, ["a", "c", "d", "e"]);
    });
}

/// A batch that was torn when the volume was opened, and is whole later, as when a copy comes back: what it says was given up.
#[test]
fn a_batch_of_an_earlier_opening_stays_given_up() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        let crash = crashed(&device).await;
        let (at, _) = batches(&crash).await[0];
        let whole = block(&crash, at).await;
        put(&crash, at, &[0; BLOCK as usize]).await;
        let volume = opened(&crash).await;
        assert_eq!(listing(&volume).await, Vec::<String>::new());
        // Committed at once: the log stays as it is.
        let row = |key: u8| StateChange { table: "t".into(), key: vec![key], value: Some(vec![key; 8000]) };
        volume.state_write((0..40).map(row).collect()).await.expect("state");
        let next = crashed(&crash).await;
        put(&next, at, &whole).await;
        assert_eq!(look(&next, Repair::No).await, Vec::new());
        assert_eq!(listing(&opened(&next).await).await, Vec::<String>::new());
    });
}

#[test]
fn the_database_is_committed_by_itself_after_a_while() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        let before = commits(&volume);
        while commits(&volume) == before {
            shard_runtime::sleep(std::time::Duration::from_millis(20)).await;
        }
        make(&volume, ["b"]).await;
        let before = commits(&volume);
        while commits(&volume) == before {
            shard_runtime::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn a_change_that_is_too_large_for_the_log_is_committed() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["before"]).await;
        let before = commits(&volume);
        let row = |key: u8| StateChange { table: "t".into(), key: vec![key], value: Some(vec![key; 8000]) };
        volume.state_write((0..40).map(row).collect()).await.expect("state");
        assert_eq!(commits(&volume), before + 1);
        make(&volume, ["later"]).await;
        let volume = opened(&crashed(&device).await).await;
        assert_eq!(listing(&volume).await, ["before", "later"]);
        for key in 0..40 {
            assert_eq!(volume.state_get("t", &[key]).await.expect("state"), Some(vec![key; 8000]));
        }
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

/// Where the device has no space for a batch, the database is committed in its place, with what may be there of the batch.
#[test]
fn a_batch_that_finds_no_space_is_committed_instead() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        volume.close().await.expect("close");
        let (start, _) = layout(&device).await.metadata_log().expect("a log");
        let thin: Device = Arc::new(test_layers::Layered(Thin { disk: Arc::clone(&device), log: start }));
        let volume = opened(&thin).await;
        let before = commits(&volume);
        make(&volume, ["b", "c"]).await;
        assert_eq!(commits(&volume), before + 2);
        assert_eq!(listing(&opened(&crashed(&device).await).await).await, ["a", "b", "c"]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
    });
}

/// A disk that writes to the start of the log, and says that it had no space.
struct Thin {
    disk: Device,
    log: u64,
}

impl test_layers::DeviceLayer for Thin {
    fn below(&self) -> &dyn block_device::BlockDevice {
        &*self.disk
    }

    fn write(
        &self,
        offset: u64,
        data: aligned_buffer::SharedBuf,
        durability: Durability,
    ) -> block_device::BlockFuture<'_, ()> {
        Box::pin(async move {
            self.disk.write(offset, data, durability).await?;
            match offset == self.log {
                true => Err(block_device::BlockError::new(block_device::BlockErrorKind::NoSpace, "write")),
                false => Ok(()),
            }
        })
    }
}

/// Many more changes than the log holds, and the pages that they touch are more than a small area has twice.
#[test]
fn a_log_that_is_full_is_committed_and_begins_anew() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let before = commits(&volume);
        for number in 0..600 {
            make(&volume, [format!("{number:04}").as_str()]).await;
            if number % 3 == 0 {
                volume.remove(volume.root(), &format!("{number:04}")).await.expect("remove");
            }
        }
        assert!(commits(&volume) > before, "{}", commits(&volume));
        let volume = opened(&crashed(&device).await).await;
        assert_eq!(listing(&volume).await.len(), 400);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

/// As an older release has made it.
async fn without_log(device: &Device) {
    let new = layout(device).await;
    let (_, size) = new.metadata_log().expect("a log");
    let old = Superblock {
        features: new.features & !FEATURE_METADATA_LOG,
        metadata_size: new.metadata_size + size,
        ..new
    };
    for at in Superblock::OFFSETS {
        put(device, at, &old.encode()).await;
    }
}

#[test]
fn an_older_volume_gets_a_log_when_it_is_opened() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a", "b"]).await;
        volume.close().await.expect("close");
        without_log(&device).await;
        assert_eq!(look(&device, Repair::No).await, Vec::new());
        let old = crashed(&device).await;
        let volume = opened(&device).await;
        assert!(layout(&device).await.metadata_log().is_some());
        make(&volume, ["c"]).await;
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        let crash = crashed(&device).await;
        assert_eq!(listing(&opened(&crash).await).await, ["a", "b", "c"]);
        // Power went between the two superblocks.
        for at in Superblock::OFFSETS {
            let half = crashed(&crash).await;
            put(&half, at, &block(&old, at).await).await;
            let found = look(&half, Repair::No).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].detail.contains("upgrade"), "{found:?}");
            let volume = opened(&half).await;
            assert_eq!(listing(&volume).await, ["a", "b", "c"]);
            assert_eq!(volume.check().await.expect("check"), Vec::new());
        }
    });
}

/// Power goes at each request of an opening that replays, and of one that upgrades: the next one goes on.
#[test]
fn an_opening_may_be_cut_short_anywhere() {
    for upgrades in [false, true] {
        on_shard(async {
            let source = three().await;
            if upgrades {
                opened(&source).await.close().await.expect("close");
                without_log(&source).await;
            }
            let bytes = source.read(0, IoBuf::new(SIZE)).await.expect("read");
            for cut in 1.. {
                let disk = Arc::new(Fickle::new(SIZE, cut));
                let device: Device = disk.clone();
                put(&device, 0, &bytes).await;
                disk.cut_after(cut);
                let volume = Volume::open(device, environment()).await;
                let through = volume.is_ok();
                let device: Device = Arc::new(disk.after_power_cut(cut));
                if let Ok(volume) = volume {
                    volume.core.closing.store(true, Ordering::SeqCst);
                }
                let volume = opened(&device).await;
                assert_eq!(listing(&volume).await, ["a", "b", "c"], "cut {cut}");
                assert_eq!(volume.check().await.expect("check"), Vec::new(), "cut {cut}");
                volume.close().await.expect("close");
                if through {
                    assert!(cut > 3, "{cut}");
                    break;
                }
            }
        });
    }
}

/// The older record of a length is from before the log was there, when the database could be longer.
#[test]
fn an_older_length_that_the_area_had_room_for_is_no_damage() {
    on_shard(async {
        let (device, volume) = fresh().await;
        make(&volume, ["a"]).await;
        volume.close().await.expect("close");
        let superblock = layout(&device).await;
        let slot = |number: u64| superblock.length_start + number % 2 * BLOCK;
        let mut newest = LengthRecord::default();
        for number in 0..2 {
            let found = LengthRecord::decode(&block(&device, slot(number)).await).unwrap_or_default();
            newest = if found.number > newest.number { found } else { newest };
        }
        newest.number += 2;
        put(&device, slot(newest.number), &newest.encode()).await;
        let before = superblock.data_start - superblock.metadata_start;
        for (number, length, damaged) in [
            (newest.number - 1, before, false),
            (newest.number - 1, before + 1, true),
            (newest.number + 1, before, true),
        ] {
            let image = crashed(&device).await;
            put(&image, slot(number), &LengthRecord { number, length }.encode()).await;
            let found = look(&image, Repair::No).await;
            assert_eq!(!found.is_empty(), damaged, "{number} {length}: {found:?}");
        }
    });
}
