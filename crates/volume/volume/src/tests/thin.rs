//! What files take of a volume, and when they give it back.

use std::time::Duration;

use file_store::SnapshotStore;
use futures_util::future::join_all;
use sim::SimClock;
use test_layers::{Left, until_wait};
use volume_format::CLUSTER;

use super::devices::{Fickle, Sparse};
use super::*;

/// Runs a test in virtual time, with the environment of its volumes.
pub(super) fn timely<F: Future>(test: impl FnOnce(Environment) -> F) -> F::Output {
    sim::on_shard(async {
        let clock = Arc::new(SimClock::default());
        clock.begin();
        test(Environment { clock, entropy: Arc::new(SeededEntropy::new(3)) }).await
    })
    .expect("event loop")
}

pub(super) async fn fresh_on(device: &Device, environment: &Environment) -> Arc<Volume> {
    let options = FormatOptions { name: "v".into() };
    Volume::format(Arc::clone(device), options, environment.clone()).await.expect("format");
    Volume::open(Arc::clone(device), environment.clone()).await.expect("open")
}

pub(super) async fn allocated(volume: &Volume, file: FileId) -> u64 {
    volume.info(file).await.expect("info").allocated
}

/// Waits until the volume uses so much, as long as that takes: no longer than a minute and what the background task sleeps.
pub(super) async fn uses(volume: &Volume, used: u64, what: &str) {
    for _ in 0..70 {
        if volume.usage().await.expect("usage").used == used {
            return;
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
    }
    panic!("{what}: {:?} is not {used}", volume.usage().await);
}

/// Whether a range holds one byte only.
pub(super) async fn holds(file: &Arc<dyn OpenFile>, from: u64, to: u64, byte: u8) -> bool {
    // Compared as a whole: byte by byte takes long in a build that is not optimised.
    read(file, from, (to - from) as usize).await == vec![byte; (to - from) as usize]
}

/// Leaves a volume as a crash would, with the disk going on from here.
pub(super) async fn crash(
    disk: &Arc<Sparse>,
    volume: Arc<Volume>,
    environment: &Environment,
) -> (Arc<Sparse>, Arc<Volume>) {
    let left = Arc::new(disk.image());
    volume.core.closing.store(true, std::sync::atomic::Ordering::SeqCst);
    let device: Device = Arc::clone(&left) as Device;
    let volume = Volume::open(device, environment.clone()).await.expect("open after a crash");
    (left, volume)
}

/// A file that is written once takes what it needs, and little more where it may go on.
#[test]
fn files_take_what_they_need() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        for (len, most) in [
            (1, 64 << 10),
            (100, 64 << 10),
            (64 << 10, 64 << 10),
            ((64 << 10) + 1, 128 << 10),
            (195 << 10, 256 << 10),
            (977 << 10, 1 << 20),
            (2930 << 10, 3712 << 10),
            (8 << 20, 11 << 20),
        ] {
            let id = volume.create(volume.root(), &format!("f{len}"), file()).await.expect("create");
            let handle = open(&volume, id).await;
            let bytes = vec![7; len];
            for at in (0..len).step_by(1 << 20) {
                let part = &bytes[at..len.min(at + (1 << 20))];
                write(&handle, at as u64, part, Durability::Durable).await;
            }
            let taken = volume.info(id).await.expect("info").allocated;
            assert!(taken >= len as u64 && taken <= most, "{len}: {taken} of {most}");
        }
    });
}

/// Random writes all over a large file take a cluster each.
#[test]
fn random_writes_take_their_clusters() {
    timely(async |environment| {
        let device: Device = Arc::new(Sparse::new(64 << 30));
        let volume = fresh_on(&device, &environment).await;
        let id = volume.create(volume.root(), "thin", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(60 << 30).await.expect("size");
        let (mut rng, mut written) = (Rng::new(7), 0u64);
        // The last is the part of 3.5 GiB for 43,000 writes.
        for (writes, most) in [(1000, 128 << 20), (4000, (3584 << 20) / 43_000 * 4000)] {
            while written < writes {
                let places: Vec<u64> = (0..40).map(|_| rng.below((60 << 30) / 4096) * 4096).collect();
                let writes = places.iter().map(|at| write(&handle, *at, &[5; 4096], Durability::Durable));
                join_all(writes).await;
                written += 40;
            }
            let taken = allocated(&volume, id).await;
            assert!(taken <= most, "{writes} writes take {taken} of {most}");
        }
    });
}

const PIECE: u64 = 512 << 10;

/// Writes pieces in order, several at a time, each byte of them `byte`.
pub(super) async fn stream(handle: &Arc<dyn OpenFile>, from: u64, to: u64, byte: u8) {
    for at in (from..to).step_by(4 * PIECE as usize) {
        let pieces = (at..to.min(at + 4 * PIECE)).step_by(PIECE as usize);
        let data = IoBuf::copy_from(&vec![byte; PIECE as usize]).freeze();
        let writes = pieces.map(|at| handle.write(at, data.clone(), Durability::Durable));
        join_all(writes).await.into_iter().for_each(|written| written.expect("write"));
    }
}

/// A stream finds its space mapped, with little of it ahead, and that is given back when the stream ends: while its file is open,
/// when it is closed, when the volume is, and after a crash.
#[test]
fn what_a_stream_leaves_unused_is_given_back() {
    const LEN: u64 = 48 << 20;
    for (end, size) in
        [("open", 0), ("closed", 0), ("crash", 0), ("open", 1 << 30), ("crash", 1 << 30), ("off", 1 << 30)]
    {
        timely(async |environment| {
            let mut disk = Arc::new(Sparse::new(2 << 30));
            let device: Device = Arc::clone(&disk) as Device;
            let mut volume = fresh_on(&device, &environment).await;
            let id = volume.create(volume.root(), "f", file()).await.expect("create");
            let handle = open(&volume, id).await;
            handle.set_size(size).await.expect("size");
            let from = if size > 0 { 300 << 20 } else { 0 };
            let groups = volume.groups();
            stream(&handle, from, from + LEN, 7).await;
            let mapped = volume.groups() - groups;
            // The file's growing sizes are changes, too.
            assert!(mapped <= 40 || size == 0, "{mapped} batches for a stream of {LEN} bytes");
            let taken = allocated(&volume, id).await;
            assert!(taken > LEN && taken <= LEN + LEN / 4, "{end} {size}: {taken}");
            match end {
                "open" => {
                    uses(&volume, LEN, end).await;
                    assert_eq!(allocated(&volume, id).await, LEN);
                    assert!(holds(&handle, from, from + LEN, 7).await);
                    // It goes on afterwards.
                    stream(&handle, from + LEN, from + LEN + (8 << 20), 7).await;
                    drop(handle);
                    uses(&volume, LEN + (8 << 20), end).await;
                }
                "closed" => drop(handle),
                "off" => {
                    drop(handle);
                    volume.close().await.expect("close");
                    volume = Volume::open(Arc::clone(&device), environment.clone()).await.expect("open");
                }
                _ => {
                    (disk, volume) = crash(&disk, volume, &environment).await;
                    drop(handle);
                    uses(&volume, LEN, end).await;
                    // What was said of it is gone as well: nothing is looked at twice.
                    let rows = volume.state_scan("volume/ahead", &[]).await.expect("rows");
                    assert!(rows.is_empty(), "{rows:?}");
                }
            }
            let len = if end == "open" { LEN + (8 << 20) } else { LEN };
            uses(&volume, len, end).await;
            let handle = open(&volume, id).await;
            assert!(holds(&handle, from, from + len, 7).await);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            drop((handle, disk));
            volume.close().await.expect("close");
        });
    }
}

/// A second writer beside a stream, and in what is mapped ahead of it, keeps all that it wrote.
#[test]
fn a_second_writer_beside_a_stream_loses_nothing() {
    timely(async |environment| {
        let disk = Arc::new(Sparse::new(2 << 30));
        let device: Device = Arc::clone(&disk) as Device;
        let volume = fresh_on(&device, &environment).await;
        let id = volume.create(volume.root(), "f", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(1 << 30).await.expect("size");
        let second = open(&volume, id).await;
        let (mut rng, mut places) = (Rng::new(5), std::collections::BTreeSet::new());
        for turn in 0..20u64 {
            let from = turn * (4 << 20);
            // Before the stream, beside it, and where nobody else is.
            let at =
                from + (4 << 20) + rng.below(if turn % 3 == 0 { 500 << 20 } else { 20 << 20 }) / 4096 * 4096;
            places.insert(at);
            let other = async {
                write(&second, at, &[9; 4096], Durability::Durable).await;
            };
            tokio::join!(stream(&handle, from, from + (4 << 20), 7), other);
            places.retain(|place| !(from..from + (4 << 20)).contains(place));
        }
        for crashed in [false, true] {
            let (_disk, volume) = match crashed {
                false => (Arc::clone(&disk), Arc::clone(&volume)),
                true => crash(&disk, Arc::clone(&volume), &environment).await,
            };
            let end = 80 << 20;
            let beyond: std::collections::BTreeSet<u64> =
                places.iter().filter(|at| **at >= end).map(|at| at / CLUSTER).collect();
            uses(&volume, end + beyond.len() as u64 * CLUSTER, "all that was written").await;
            let handle = open(&volume, id).await;
            for at in places.iter().filter(|at| **at >= end) {
                assert!(holds(&handle, *at, *at + 4096, 9).await, "{at}");
            }
        }
    });
}

/// Requests that nobody waits for any more, while space is mapped ahead.
#[test]
fn dropped_requests_of_a_stream_do_no_harm() {
    timely(async |environment| {
        let device: Device = Arc::new(Sparse::new(1 << 30));
        let volume = fresh_on(&device, &environment).await;
        let id = volume.create(volume.root(), "f", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(512 << 20).await.expect("size");
        let mut at = 0;
        for round in 0..60 {
            let data = IoBuf::copy_from(&vec![7; PIECE as usize]).freeze();
            let mut request = handle.write(at, data, Durability::Durable);
            let left = until_wait(round % 6, std::pin::Pin::new(&mut request)).await;
            assert!(!matches!(left, Left::ForEver), "round {round}");
            drop(request);
            at += PIECE;
        }
        // All of them come to their end.
        write(&handle, at, &[7; 4096], Durability::Durable).await;
        handle.flush().await.expect("flush");
        uses(&volume, at + CLUSTER, "what they wrote").await;
        assert!(holds(&handle, 0, at, 7).await);
        drop(handle);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// Runs, and all that may happen to what is ahead of them, against vectors.
async fn random_runs(seed: u64, environment: Environment) {
    const MAX: u64 = 16 << 20;
    let mut rng = Rng::new(seed);
    let mut disk = Arc::new(Sparse::new(512 << 20));
    let device: Device = Arc::clone(&disk) as Device;
    let mut volume = fresh_on(&device, &environment).await;
    let mut files = Vec::new();
    for number in 0..2 {
        files.push(volume.create(volume.root(), &format!("f{number}"), file()).await.expect("file"));
    }
    let (mut model, mut next) = ([Vec::<u8>::new(), Vec::new()], [0u64; 2]);
    let mut opens = [open(&volume, files[0]).await, open(&volume, files[1]).await];
    for step in 0..60u32 {
        let which = rng.below(2) as usize;
        let (mut at, other) = (rng.below(MAX) / 4096 * 4096, 1 - which);
        let (f, bytes) = (&opens[which], &mut model[which]);
        let kind = rng.below(14);
        match kind {
            0..6 => {
                // Goes on where it was, mostly.
                for n in 0..1 + rng.below(12) {
                    at = if next[which] < MAX && !rng.one_in(20) {
                        next[which]
                    } else {
                        rng.below(MAX) / 4096 * 4096
                    };
                    let data = vec![(u64::from(step) + n) as u8 | 1; 4096 * (1 + rng.below(80)) as usize];
                    write(f, at, &data, Durability::Durable).await;
                    next[which] = at + data.len() as u64;
                    bytes.resize(bytes.len().max(next[which] as usize), 0);
                    bytes[at as usize..next[which] as usize].copy_from_slice(&data);
                }
            }
            6 => {
                f.set_size(at).await.expect("size");
                bytes.resize(at as usize, 0);
            }
            7 => {
                let at = next[which].min(at);
                f.punch_hole(at, 3 << 20).await.expect("punch");
                let end = bytes.len().min(at as usize + (3 << 20));
                if (at as usize) < end {
                    bytes[at as usize..end].fill(0);
                }
            }
            8 => f.allocate(at, 1 << 20, false).await.expect("allocate"),
            9 => {
                let source = model[other].clone();
                let len = (source.len() as u64).min(6 << 20);
                let (from, to) = (0, rng.below(MAX) / CLUSTER * CLUSTER);
                if len > 0 {
                    volume.clone_range((files[other], from), (files[which], to), len).await.expect("clone");
                    let bytes = &mut model[which];
                    bytes.resize(bytes.len().max((to + len) as usize), 0);
                    bytes[to as usize..(to + len) as usize].copy_from_slice(&source[..len as usize]);
                }
            }
            10 => shard_runtime::sleep(Duration::from_secs(1 + rng.below(40))).await,
            11 => {
                opens[which] = open(&volume, files[which]).await;
            }
            12 => {
                let new = format!("s{step}");
                let clone = volume.clone_tree(files[which], volume.root(), &new).await.expect("clone");
                if rng.one_in(2) {
                    let frozen = model[which].clone();
                    shard_runtime::sleep(Duration::from_secs(30)).await;
                    assert_eq!(
                        read(&open(&volume, clone).await, 0, frozen.len()).await,
                        frozen,
                        "seed {seed} step {step}"
                    );
                }
                volume.remove(volume.root(), &new).await.expect("remove");
            }
            _ => {
                if rng.one_in(2) {
                    opens.iter().for_each(|open| drop(Arc::clone(open)));
                    (disk, volume) = crash(&disk, volume, &environment).await;
                } else {
                    let device: Device = Arc::clone(&disk) as Device;
                    volume.close().await.expect("close");
                    volume = Volume::open(device, environment.clone()).await.expect("open");
                }
                opens = [open(&volume, files[0]).await, open(&volume, files[1]).await];
            }
        }
        for which in if step % 4 == 3 { vec![0, 1] } else { vec![which] } {
            let (f, bytes) = (&opens[which], &model[which]);
            assert_eq!(f.size(), bytes.len() as u64, "seed {seed} step {step} kind {kind}");
            let got = read(f, 0, bytes.len()).await;
            if got != *bytes {
                let wrong = got.iter().zip(bytes).position(|(a, b)| a != b);
                panic!("seed {seed} step {step} kind {kind} file {which}: byte {wrong:?}");
            }
        }
    }
    drop(opens);
    shard_runtime::sleep(Duration::from_secs(60)).await;
    assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "seed {seed}");
    volume.close().await.expect("close");
}

#[test]
fn random_runs_agree_with_vectors() {
    for seed in 0..6 {
        timely(async |environment| random_runs(seed, environment).await);
    }
}

/// Power cuts in a stream: what was promised is there, and what was ahead of it comes back.
#[test]
fn power_may_go_anywhere_in_a_stream() {
    const STEP: u64 = 256 << 10;
    for cut in [1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 60, 75, 90] {
        timely(async |environment| {
            let disk = Arc::new(Fickle::new(40 << 20, cut));
            let device: Device = disk.clone();
            let volume = fresh_on(&device, &environment).await;
            let id = volume.create(volume.root(), "f", file()).await.expect("create");
            let handle = open(&volume, id).await;
            handle.set_size(16 << 20).await.expect("size");
            disk.cut_after(cut);
            let mut at = 0;
            while at < 12 << 20 {
                let data = IoBuf::copy_from(&vec![7; STEP as usize]).freeze();
                if handle.write(at, data, Durability::Durable).await.is_err() {
                    break;
                }
                at += STEP;
            }
            let after = Arc::new(disk.after_power_cut(cut));
            disk.cut_after(0);
            volume.core.closing.store(true, std::sync::atomic::Ordering::SeqCst);
            let device: Device = after;
            let volume = Volume::open(device, environment.clone()).await.expect("open");
            let handle = open(&volume, id).await;
            assert!(holds(&handle, 0, at, 7).await, "cut {cut}");
            assert!(holds(&handle, at + STEP, 16 << 20, 0).await, "cut {cut}");
            shard_runtime::sleep(Duration::from_secs(30)).await;
            let taken = allocated(&volume, id).await;
            assert!(taken >= at && taken <= at + STEP, "cut {cut}: {taken} of {at}");
            drop(handle);
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "cut {cut}");
            volume.close().await.expect("close");
        });
    }
}
