//! Space ahead of need where something else comes in between: the largest file, reservations, failures, snapshots and clones.

use std::time::Duration;

use file_store::{FILE_SIZE_MAX, NewSnapshot, SnapshotStore};
use volume_format::CLUSTER;

use super::devices::Sparse;
use super::thin::{allocated, crash, fresh_on, holds, stream, timely, uses};
use super::*;
use crate::extents::{END, Extent};
use crate::room::Allowance;

const LEN: u64 = 48 << 20;
const SIZE: u64 = 1 << 30;
const OTHER: u64 = 8 << 20;

/// As [`streamed`], with others before and behind that have as much ahead of them: an opening after a crash has more to do than this one.
async fn streamed_among_others(
    environment: &Environment,
) -> (Arc<Sparse>, Arc<Volume>, FileId, Arc<dyn OpenFile>) {
    let disk = Arc::new(Sparse::new(2 << 30));
    let device: Device = Arc::clone(&disk) as Device;
    let volume = fresh_on(&device, environment).await;
    let mut opens = Vec::new();
    for number in 0..7 {
        let id = volume.create(volume.root(), &format!("f{number}"), file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(SIZE).await.expect("size");
        let len = if number == 3 { LEN } else { OTHER };
        stream(&handle, 0, len, 7).await;
        opens.push((id, handle));
    }
    let left = Arc::new(disk.image());
    let (id, handle) = opens.swap_remove(3);
    assert!(allocated(&volume, id).await > LEN, "nothing is ahead of the writer");
    drop(opens);
    (left, volume, id, handle)
}

/// A volume with a file of a gigabyte that has been written in order from its start on, with space ahead of that.
async fn streamed(environment: &Environment) -> (Arc<Sparse>, Arc<Volume>, FileId, Arc<dyn OpenFile>) {
    let disk = Arc::new(Sparse::new(2 << 30));
    let device: Device = Arc::clone(&disk) as Device;
    let volume = fresh_on(&device, environment).await;
    let id = volume.create(volume.root(), "f", file()).await.expect("create");
    let handle = open(&volume, id).await;
    handle.set_size(SIZE).await.expect("size");
    stream(&handle, 0, LEN, 7).await;
    assert!(allocated(&volume, id).await > LEN, "nothing is ahead of the writer");
    (disk, volume, id, handle)
}

async fn take(volume: &Volume, name: &str, source: FileId) -> FileId {
    let new =
        NewSnapshot { name: name.into(), source, quiesce: false, maker: String::new(), path: String::new() };
    volume.take_snapshot(new).await.expect("snapshot").root
}

/// A stream that ends where the largest file does has nothing mapped behind that, so nothing on the disk says what cannot be.
#[test]
fn nothing_is_mapped_beyond_the_largest_file() {
    for ending in ["snapshot", "crash"] {
        timely(async |environment| {
            let disk = Arc::new(Sparse::new(2 << 30));
            let device: Device = Arc::clone(&disk) as Device;
            let mut volume = fresh_on(&device, &environment).await;
            let id = volume.create(volume.root(), "f", file()).await.expect("create");
            let handle = open(&volume, id).await;
            for cluster in END - 40..END {
                let at = cluster * CLUSTER;
                let bytes = vec![7; CLUSTER.min(FILE_SIZE_MAX - at) as usize];
                write(&handle, at, &bytes, Durability::Durable).await;
            }
            if ending == "snapshot" {
                take(&volume, "s", id).await;
                drop(handle);
                volume = reopen(&device, volume).await;
            } else {
                (_, volume) = crash(&disk, volume, &environment).await;
                drop(handle);
            }
            let handle = open(&volume, id).await;
            assert!(holds(&handle, (END - 40) * CLUSTER, FILE_SIZE_MAX, 7).await);
            drop(handle);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            volume.close().await.expect("close");
        });
    }
}

/// What cannot be mapped is refused where all of it passes, whoever asks.
#[test]
fn what_no_file_can_have_is_not_mapped() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let id = volume.create(volume.root(), "f", file()).await.expect("create");
        for hole in [(END - 1, 2), (END, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let mapped = volume.core.metadata.change(move |session| session.map((id.0, 0), &[hole])).await;
            assert_eq!(mapped.err().map(|e| e.kind()), Some(StoreErrorKind::InvalidArgument), "{hole:?}");
        }
    });
}

/// One extent that no file can have, as an earlier release may have left it, takes its file away and not the volume.
#[test]
fn an_extent_beyond_the_largest_file_costs_its_file_only() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let (bad, good) = (
            volume.create(volume.root(), "bad", file()).await.expect("create"),
            volume.create(volume.root(), "good", file()).await.expect("create"),
        );
        write(&open(&volume, good).await, 0, &[7; 4096], Durability::Durable).await;
        let put = volume.core.metadata.change(move |session| {
            session.changed = true;
            let run = session.space.free.take(2).and_then(|runs| runs.first().copied()).expect("free");
            session.put_rows(
                (bad.0, 0),
                &[Extent { first: END - 1, count: 2, device: run.start, shared: false }],
            )
        });
        put.await.expect("put");
        let volume = reopen(&device, volume).await;
        assert_eq!(read(&open(&volume, good).await, 0, 4096).await, [7; 4096]);
        let options = OpenOptions::shared(Access::READ);
        let refused = volume.open(bad, options).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(StoreErrorKind::Corrupt));
        assert!(!volume.check().await.expect("check").is_empty(), "a check says so");
        // What it has is not given to others.
        let other = open(&volume, volume.create(volume.root(), "other", file()).await.expect("create")).await;
        write(&other, 0, &[8; 1 << 20], Durability::Durable).await;
        drop(other);
        let volume = reopen(&device, volume).await;
        assert_eq!(read(&open(&volume, good).await, 0, 4096).await, [7; 4096]);
    });
}

/// Space that was ahead of a stream and is reserved after a crash stays, whenever the reservation comes, and after another crash.
#[test]
fn a_reservation_made_after_a_crash_stays() {
    const MORE: u64 = 6 << 20;
    for turns in 0..24 {
        timely(async |environment| {
            let (disk, volume, id, handle) = streamed_among_others(&environment).await;
            let (disk, volume) = crash(&disk, volume, &environment).await;
            drop(handle);
            let handle = open(&volume, id).await;
            for _ in 0..turns * 3 {
                shard_runtime::yield_now().await;
            }
            handle.allocate(LEN, MORE, false).await.expect("allocate");
            let (first, _) = crash(&disk, Arc::clone(&volume), &environment).await;
            drop(handle);
            let device: Device = Arc::new(first.image());
            let volume = Volume::open(device, environment.clone()).await.expect("open");
            uses(&volume, LEN + MORE + 6 * OTHER, "what was written and reserved").await;
            shard_runtime::sleep(Duration::from_secs(60)).await;
            assert_eq!(allocated(&volume, id).await, LEN + MORE, "{turns}");
            volume.close().await.expect("close");
        });
    }
}

/// The same without a second crash: the background work of the opening looks at space that is reserved meanwhile.
#[test]
fn a_reservation_is_not_given_back_by_the_opening_before_it() {
    const MORE: u64 = 6 << 20;
    for turns in 0..24 {
        timely(async |environment| {
            let (disk, volume, id, handle) = streamed_among_others(&environment).await;
            let (_disk, volume) = crash(&disk, volume, &environment).await;
            drop(handle);
            let handle = open(&volume, id).await;
            for _ in 0..turns * 3 {
                shard_runtime::yield_now().await;
            }
            handle.allocate(LEN, MORE, false).await.expect("allocate");
            shard_runtime::sleep(Duration::from_secs(60)).await;
            assert_eq!(allocated(&volume, id).await, LEN + MORE, "{turns}");
            drop(handle);
            volume.close().await.expect("close");
        });
    }
}

/// A reservation that there is no space for changes nothing: what was ahead of the writer is still given back, also after a crash.
#[test]
fn a_reservation_that_fails_keeps_nothing() {
    for crashed in [false, true] {
        timely(async |environment| {
            let (disk, mut volume, id, handle) = streamed(&environment).await;
            handle.set_size(8 << 30).await.expect("size");
            let refused = handle.allocate(LEN, 4 << 30, false).await.err().map(|error| error.kind());
            assert_eq!(refused, Some(StoreErrorKind::NoSpace));
            let mut disk = disk;
            if crashed {
                (disk, volume) = crash(&disk, volume, &environment).await;
                drop(handle);
            } else {
                shard_runtime::sleep(Duration::from_secs(60)).await;
                drop(handle);
            }
            uses(&volume, LEN, "what was written").await;
            assert_eq!(allocated(&volume, id).await, LEN);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            drop(disk);
            volume.close().await.expect("close");
        });
    }
}

/// Snapshots and clones have what was written, and not what was ahead of a writer; he goes on.
#[test]
fn snapshots_and_clones_have_nothing_ahead_of_need() {
    for kind in ["snapshot", "clone", "range"] {
        timely(async |environment| {
            let (_disk, volume, id, handle) = streamed(&environment).await;
            let copy = match kind {
                "snapshot" => take(&volume, "s", id).await,
                "clone" => volume.clone_tree(id, volume.root(), "c").await.expect("clone"),
                _ => {
                    let copy = volume.create(volume.root(), "c", file()).await.expect("create");
                    volume.clone_range((id, 0), (copy, 0), SIZE).await.expect("clone");
                    copy
                }
            };
            assert_eq!((allocated(&volume, id).await, allocated(&volume, copy).await), (LEN, LEN), "{kind}");
            stream(&handle, LEN, 2 * LEN, 8).await;
            assert!(holds(&handle, 0, LEN, 7).await && holds(&handle, LEN, 2 * LEN, 8).await, "{kind}");
            let copied = volume.open(copy, OpenOptions::shared(Access::READ)).await.expect("open");
            assert!(holds(&copied, 0, LEN, 7).await && holds(&copied, LEN, 2 * LEN, 0).await, "{kind}");
            drop((handle, copied));
            uses(&volume, 2 * LEN, kind).await;
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            volume.close().await.expect("close");
        });
    }
}

/// Two writers in one file: after a crash, what was ahead of either comes back.
#[test]
fn what_was_ahead_of_two_writers_comes_back_after_a_crash() {
    timely(async |environment| {
        let disk = Arc::new(Sparse::new(2 << 30));
        let device: Device = Arc::clone(&disk) as Device;
        let volume = fresh_on(&device, &environment).await;
        let id = volume.create(volume.root(), "f", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(SIZE).await.expect("size");
        let other = 512 << 20;
        tokio::join!(stream(&handle, 0, LEN, 7), stream(&handle, other, other + LEN, 7));
        assert!(allocated(&volume, id).await > 2 * LEN);
        let (_disk, volume) = crash(&disk, volume, &environment).await;
        drop(handle);
        uses(&volume, 2 * LEN, "two streams").await;
        volume.close().await.expect("close");
    });
}

/// What cannot be given back for want of room when the last user goes is told, and tried again.
#[test]
fn what_cannot_be_given_back_is_tried_again() {
    timely(async |environment| {
        let (_disk, volume, id, handle) = streamed(&environment).await;
        let key = (id.0, 0);
        // As if the area was full when the job runs: it takes all of the group's room away.
        let full = volume.core.metadata.look(|session| {
            session.allowance = Allowance::default();
            Ok(())
        });
        let mut full = Box::pin(full);
        // Queued, and so in the group of what the last user leaves.
        assert!(futures_util::poll!(full.as_mut()).is_pending());
        drop(handle);
        full.await.expect("look");
        uses(&volume, LEN, "what was written").await;
        assert!(volume.state_scan("volume/ahead", &[]).await.expect("rows").is_empty(), "{key:?}");
        volume.close().await.expect("close");
    });
}
