//! The volume on a disk in memory: against a simple model, through reopening, clones, and hand-made damage.

mod ahead;
mod backend;
mod check;
mod conformance;
mod crash;
pub(crate) mod devices;
mod folding;
mod freed;
mod full;
mod full_area;
mod growth;
mod log_feature;
mod long_rows;
mod metadata_log;
mod names;
mod reserve;
mod room;
mod sizes;
mod snapshots;
mod stopped;
mod thin;
mod unshare;
mod volatile;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::{Device, Durability, MemoryDisk};
use file_store::{
    Access, Attributes, DirectoryCursor, FileId, FileKind, FileStore, NewFile, OpenFile, OpenOptions, Share,
    StateChange, StoreErrorKind,
};
use shard_runtime::{SeededEntropy, SystemClock};
use volume_format::CLUSTER;

use crate::{Environment, FormatOptions, Volume};

mod damage;
mod pages;
mod quotas;

const SIZE: usize = 48 << 20;

fn on_shard<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

fn environment() -> Environment {
    Environment { clock: Arc::new(SystemClock::new()), entropy: Arc::new(SeededEntropy::new(3)) }
}

fn file() -> NewFile {
    NewFile { kind: FileKind::File, attributes: Attributes(0x20), security: Vec::new() }
}

async fn fresh() -> (Device, Arc<Volume>) {
    let device: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    Volume::format(Arc::clone(&device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
    (device, volume)
}

async fn reopen(device: &Device, volume: Arc<Volume>) -> Arc<Volume> {
    volume.close().await.expect("close");
    drop(volume);
    Volume::open(Arc::clone(device), environment()).await.expect("reopen")
}

async fn open(volume: &Volume, file: FileId) -> Arc<dyn OpenFile> {
    volume.open(file, OpenOptions::shared(Access::READ_WRITE)).await.expect("open")
}

async fn read(file: &Arc<dyn OpenFile>, offset: u64, len: usize) -> Vec<u8> {
    file.read(offset, IoBuf::new(len)).await.expect("read").to_vec()
}

async fn write(file: &Arc<dyn OpenFile>, offset: u64, bytes: &[u8], durability: Durability) {
    file.write(offset, IoBuf::copy_from(bytes).freeze(), durability).await.expect("write");
}

#[test]
fn names_are_found_in_any_case_and_survive() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let directory = NewFile { kind: FileKind::Directory, ..file() };
        let luns = volume.create(root, "Luns", directory.clone()).await.expect("directory");
        let one = volume.create(luns, "Straße", file()).await.expect("file");
        assert_eq!(volume.lookup(luns, "STRAßE").await.expect("folded").name, "Straße");
        let taken = volume.create(luns, "straße", file()).await.map_err(|e| e.kind());
        assert_eq!(taken, Err(StoreErrorKind::AlreadyExists));
        for bad in ["", ".", "..", "a/b", "a:b", "a\0", "x\u{1}"] {
            assert_eq!(
                volume.create(luns, bad, file()).await.map_err(|e| e.kind()),
                Err(StoreErrorKind::InvalidName)
            );
        }
        assert_eq!(volume.remove(root, "luns").await.map_err(|e| e.kind()), Err(StoreErrorKind::NotEmpty));
        let inner = volume.create(luns, "inner", directory).await.expect("directory");
        let loops = volume.rename((root, "luns"), (inner, "x"), false).await.map_err(|e| e.kind());
        assert_eq!(loops, Err(StoreErrorKind::InvalidArgument));
        volume.rename((luns, "straße"), (root, "moved"), false).await.expect("rename");
        volume.set_security(one, vec![1, 2, 3]).await.expect("security");
        let rows = vec![StateChange { table: "t".into(), key: vec![1], value: Some(vec![9]) }];
        volume.state_write(rows).await.expect("state");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.resolve("/MOVED").await.expect("there"), one);
        assert_eq!(volume.security(one).await.expect("security"), vec![1, 2, 3]);
        assert_eq!(volume.state_get("t", &[1]).await.expect("state"), Some(vec![9]));
        let page = volume.read_directory(root, DirectoryCursor::default(), 1).await.expect("page");
        let rest = volume.read_directory(root, page.next.expect("more"), 10).await.expect("page");
        assert_eq!((page.entries.len(), rest.entries.len(), rest.next), (1, 1, None));
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

#[test]
fn a_removed_open_file_lives_until_its_last_close_and_its_space_comes_back_zero() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let root = volume.root();
        let before = volume.usage().await.expect("usage").used;
        let id = volume.create(root, "f", file()).await.expect("file");
        let open_file = open(&volume, id).await;
        write(&open_file, 0, &[7; 4 << 20], Durability::Durable).await;
        let exclusive = OpenOptions { share: Share::NONE, ..OpenOptions::shared(Access::READ) };
        assert_eq!(
            volume.open(id, exclusive).await.err().map(|e| e.kind()),
            Some(StoreErrorKind::SharingViolation)
        );
        volume.remove(root, "f").await.expect("shared for deletion");
        assert!(volume.lookup(root, "f").await.is_err());
        assert_eq!(read(&open_file, 100, 3).await, [7; 3]);
        drop(open_file);
        while volume.usage().await.expect("usage").used > before {
            shard_runtime::sleep(std::time::Duration::from_millis(2)).await;
        }
        // The next file may get the same clusters, and must not see what was in them.
        let next = volume.create(root, "g", file()).await.expect("file");
        let next = open(&volume, next).await;
        next.set_size(40 << 20).await.expect("size");
        write(&next, (33 << 20) + 5, b"x", Durability::Durable).await;
        for at in (0..40 << 20).step_by(1 << 20) {
            let bytes = read(&next, at, 1 << 20).await;
            assert!(bytes.iter().all(|b| *b == 0 || *b == b'x'), "stale data at {at}");
        }
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

#[test]
fn a_full_volume_refuses_new_space_and_serves_the_old() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let id = volume.create(volume.root(), "f", file()).await.expect("file");
        let f = open(&volume, id).await;
        f.set_size(1 << 30).await.expect("sparse");
        let mut at = 0;
        let error = loop {
            let data = IoBuf::copy_from(&[3; 4096]).freeze();
            match f.write(at, data, Durability::Durable).await {
                Ok(()) => at += 256 << 10,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), StoreErrorKind::NoSpace);
        assert!(at > 30 << 20, "{at}");
        write(&f, 0, &[4; 4096], Durability::Durable).await;
        assert_eq!(read(&f, 0, 4096).await, [4; 4096]);
        f.punch_hole(0, 8 << 20).await.expect("punch");
        assert_eq!(read(&f, 0, 4096).await, [0; 4096]);
        loop {
            let data = IoBuf::copy_from(&[3; 4096]).freeze();
            match f.write(at, data, Durability::Durable).await {
                Ok(()) => break,
                Err(_) => shard_runtime::sleep(std::time::Duration::from_millis(2)).await,
            }
        }
    });
}

#[test]
fn zeros_for_which_there_is_no_space_do_not_make_a_file_grow() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let root = volume.root();
        let golden = volume.create(root, "golden", file()).await.expect("file");
        write(&open(&volume, golden).await, 0, &[7; 256 << 10], Durability::Durable).await;
        let id = volume.create(root, "clone", file()).await.expect("file");
        volume.clone_range((golden, 0), (id, 0), 256 << 10).await.expect("clone");
        let filler = volume.create(root, "filler", file()).await.expect("file");
        let filler = open(&volume, filler).await;
        let mut full = 0;
        while filler.allocate(full, 64 << 10, true).await.is_ok() {
            full += 64 << 10;
        }
        let clone = open(&volume, id).await;
        // A part of a block: what is shared there needs a cluster of its own.
        let refused = clone.zero_range((128 << 10) + 100, 1 << 20, Durability::Durable).await;
        assert_eq!(refused.map_err(|error| error.kind()), Err(StoreErrorKind::NoSpace));
        assert_eq!(volume.info(id).await.expect("info").size, 256 << 10);
        assert_eq!(read(&clone, 0, 128 << 10).await, [7; 128 << 10]);
    });
}

#[test]
fn clones_share_space_and_go_their_own_ways() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let golden = volume.create(root, "golden", file()).await.expect("file");
        let g = open(&volume, golden).await;
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 4096) as u8 ^ i as u8).collect();
        write(&g, 0, &content, Durability::Durable).await;
        let used = volume.usage().await.expect("usage").used;
        let mut clones = Vec::new();
        for number in 0..8 {
            let id = volume.create(root, &format!("c{number}"), file()).await.expect("file");
            volume.clone_range((golden, 0), (id, 0), content.len() as u64).await.expect("clone");
            clones.push(id);
        }
        let after = volume.usage().await.expect("usage");
        assert_eq!(after.used, used, "clones take no clusters");
        assert!(after.referenced > 8 * content.len() as u64);
        let c3 = open(&volume, clones[3]).await;
        assert_eq!(read(&c3, 0, content.len()).await, content);
        write(&c3, 100_000, b"changed", Durability::Durable).await;
        write(&g, 70_000, b"GOLD", Durability::Volatile).await;
        let mut expected = content.clone();
        expected[100_000..100_007].copy_from_slice(b"changed");
        assert_eq!(read(&c3, 0, content.len()).await, expected);
        let c5 = open(&volume, clones[5]).await;
        assert_eq!(read(&c5, 0, content.len()).await, content);
        assert_eq!(read(&g, 70_000, 4).await, b"GOLD");
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        drop((g, c3, c5));
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        for number in 0..8 {
            volume.remove(volume.root(), &format!("c{number}")).await.expect("remove");
        }
        volume.remove(volume.root(), "golden").await.expect("remove");
        while volume.usage().await.expect("usage").used > 0 {
            shard_runtime::sleep(std::time::Duration::from_millis(2)).await;
        }
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

/// Random operations on three files against vectors, with reopening.
async fn random(seed: u64) {
    const MAX: u64 = 3 << 20;
    let mut rng = Rng::new(seed);
    let (device, mut volume) = fresh().await;
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut files = Vec::new();
    for number in 0..3 {
        let id = volume.create(volume.root(), &format!("f{number}"), file()).await.expect("file");
        model.insert(id.0, Vec::new());
        files.push(id);
    }
    let mut opens = Vec::new();
    for id in &files {
        opens.push(open(&volume, *id).await);
    }
    for step in 0..160u32 {
        let which = rng.below(3) as usize;
        let (f, bytes) = (&opens[which], model.get_mut(&files[which].0).expect("model"));
        let (offset, len) = (rng.below(MAX), 1 + rng.below(200_000));
        let kind = rng.below(12);
        if std::env::var("TRACE").is_ok() {
            eprintln!("{step}: file {which} op {kind} {offset}+{len} size {}", bytes.len());
        }
        match kind {
            0..=4 => {
                let data: Vec<u8> = (0..len).map(|i| (u64::from(step) * 7 + i) as u8).collect();
                let durability = if rng.below(2) == 0 { Durability::Durable } else { Durability::Volatile };
                write(f, offset, &data, durability).await;
                let end = (offset + len) as usize;
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&data);
            }
            5 => {
                f.set_size(offset).await.expect("size");
                bytes.resize(offset as usize, 0);
            }
            6 => {
                f.punch_hole(offset, len).await.expect("punch");
                let (from, to) =
                    ((offset as usize).min(bytes.len()), ((offset + len) as usize).min(bytes.len()));
                bytes[from..to].fill(0);
            }
            7 => {
                f.zero_range(offset, len, Durability::Durable).await.expect("zero");
                bytes.resize(bytes.len().max((offset + len) as usize), 0);
                bytes[offset as usize..(offset + len) as usize].fill(0);
            }
            8 | 9 => {
                let other = (which + 1) % 3;
                let from = if rng.below(2) == 0 { offset / 65536 * 65536 } else { offset };
                let source = model[&files[other].0].clone();
                let len = len.min((source.len() as u64).saturating_sub(from));
                let to = if rng.below(2) == 0 { from } else { rng.below(MAX) };
                if len > 0 {
                    volume.clone_range((files[other], from), (files[which], to), len).await.expect("clone");
                    let bytes = model.get_mut(&files[which].0).expect("model");
                    bytes.resize(bytes.len().max((to + len) as usize), 0);
                    bytes[to as usize..(to + len) as usize]
                        .copy_from_slice(&source[from as usize..(from + len) as usize]);
                }
            }
            10 => f.flush().await.expect("flush"),
            _ => {
                opens.clear();
                volume = reopen(&device, volume).await;
                assert_eq!(volume.check().await.expect("check"), Vec::new(), "seed {seed} step {step}");
                for id in &files {
                    opens.push(open(&volume, *id).await);
                }
            }
        }
        let (f, bytes) = (&opens[which], &model[&files[which].0]);
        assert_eq!(f.size(), bytes.len() as u64, "seed {seed} step {step}");
        // What a step is about and what lies around it; all of it now and then.
        let around = match step % 8 {
            0 => 0..bytes.len(),
            _ => offset.saturating_sub(2 * CLUSTER) as usize..((offset + len + 2 * CLUSTER) as usize),
        };
        let (from, to) = (around.start.min(bytes.len()), around.end.min(bytes.len()));
        let got = read(f, from as u64, to - from).await;
        if got != bytes[from..to] {
            let at = got.iter().zip(&bytes[from..to]).position(|(a, b)| a != b).unwrap_or_default();
            let (got, at) = (got[at], from + at);
            panic!("seed {seed} step {step}: byte {at} of file {which} is {got}, not {}", bytes[at]);
        }
    }
    for id in &files {
        let open = open(&volume, *id).await;
        assert!(read(&open, 0, model[&id.0].len()).await == model[&id.0], "seed {seed}: at the end");
    }
    assert_eq!(volume.check().await.expect("check"), Vec::new(), "seed {seed}");
}

#[test]
fn random_operations_agree_with_vectors() {
    for seed in 0..12 {
        on_shard(random(seed));
    }
}
