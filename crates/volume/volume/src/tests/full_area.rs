//! A metadata area that becomes full, of a database that stays small and of one that has grown, in a pool that has space and in one that
//! ceases to: what was promised is there, what was refused had no room, and what goes makes room again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use file_store::StoreError;
use futures_util::future::join_all;
use parking_lot::Mutex;
use test_layers::{DeviceLayer, Layered};
use volume_format::{BLOCK, LengthRecord, layout_for};

use super::devices::Sparse;
use super::thin::{fresh_on, timely};
use super::*;
use crate::meter::reach;

/// A pool's unit of space.
const SLAB: u64 = 256 << 10;
/// Requests at once.
const DEPTH: usize = 16;

/// A pool that has no more slabs for pages of the database while it is full; what else there is has its space.
struct Pool {
    disk: Arc<Sparse>,
    pages: Range<u64>,
    slabs: Mutex<BTreeSet<u64>>,
    full: AtomicBool,
}

impl Pool {
    fn new(size: u64) -> Arc<Layered<Self>> {
        let layout = layout_for(size).expect("layout");
        let pages = layout.metadata_start..layout.metadata_start + layout.metadata_size;
        let disk = Arc::new(Sparse::new(size));
        Arc::new(Layered(Self { disk, pages, slabs: Mutex::default(), full: AtomicBool::new(false) }))
    }

    /// As power that goes now leaves it.
    fn image(&self) -> Arc<Layered<Self>> {
        let slabs = Mutex::new(self.slabs.lock().clone());
        let full = AtomicBool::new(self.full.load(Ordering::SeqCst));
        Arc::new(Layered(Self { disk: Arc::new(self.disk.image()), pages: self.pages.clone(), slabs, full }))
    }

    /// How long the database is, and whether that is as long as it can become.
    async fn length(&self) -> (u64, bool) {
        let start = layout_for(self.disk.size()).expect("layout").length_start;
        let mut last = LengthRecord::default();
        for at in [start, start + BLOCK] {
            let block = self.disk.read(at, IoBuf::new(BLOCK as usize)).await.expect("read");
            let record = LengthRecord::decode(&block).unwrap_or_default();
            last = if record.number > last.number { record } else { last };
        }
        (last.length, reach(last.length, self.pages.end - self.pages.start) == last.length)
    }
}

impl DeviceLayer for Pool {
    fn below(&self) -> &dyn BlockDevice {
        &*self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        if self.pages.contains(&offset) {
            let needed = offset / SLAB..(offset + data.len() as u64).div_ceil(SLAB);
            let mut slabs = self.slabs.lock();
            if self.full.load(Ordering::SeqCst) && !needed.clone().all(|slab| slabs.contains(&slab)) {
                return Box::pin(async { Err(BlockError::new(BlockErrorKind::NoSpace, "allocate a slab")) });
            }
            slabs.extend(needed);
        }
        self.disk.write(offset, data, durability)
    }
}

/// What a row or a block may be: what was promised last, and what ended with the volume after that.
type Maybe<T> = Vec<T>;

/// What was promised.
#[derive(Default)]
struct Promised {
    rows: BTreeMap<u32, Maybe<Option<(u8, usize)>>>,
    blocks: BTreeMap<u64, Maybe<u8>>,
    refused: u32,
}

fn now_maybe<K: Ord, T>(
    of: &mut BTreeMap<K, Maybe<T>>,
    key: K,
    before: T,
    value: T,
    result: Option<StoreErrorKind>,
) {
    let maybe = of.entry(key).or_insert_with(|| vec![before]);
    match result {
        None => *maybe = vec![value],
        Some(StoreErrorKind::NoSpace) => {}
        Some(StoreErrorKind::Stopped) => maybe.push(value),
        Some(kind) => panic!("{kind:?}"),
    }
}

fn kind(result: Result<(), StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind())
}

fn row(key: u32, value: Option<(u8, usize)>) -> StateChange {
    let value = value.map(|(byte, len)| vec![byte; len]);
    StateChange { table: "t".into(), key: key.to_be_bytes().to_vec(), value }
}

impl Promised {
    /// Puts rows, and writes blocks into holes and over others, many at once; whether anything was refused.
    async fn change(
        &mut self,
        volume: &Volume,
        opened: &Arc<dyn OpenFile>,
        rng: &mut Rng,
        of: &Load,
    ) -> bool {
        let (mut rows, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..DEPTH {
            if rng.one_in(3) {
                blocks.insert(rng.below(of.places), 1 + rng.below(250) as u8);
            } else {
                let value = (!rng.one_in(8)).then(|| (rng.below(250) as u8, 1 + rng.below(2500) as usize));
                rows.insert(rng.below(of.keys) as u32, value);
            }
        }
        let puts = rows.iter().map(|(key, value)| volume.state_write(vec![row(*key, *value)]));
        let writes = blocks.iter().map(|(place, byte)| {
            let data = IoBuf::copy_from(&[*byte; BLOCK as usize]).freeze();
            opened.write(place * CLUSTER, data, Durability::Durable)
        });
        let (put, written) = futures_util::join!(join_all(puts), join_all(writes));
        let before = self.refused;
        for ((key, value), result) in rows.into_iter().zip(put.into_iter().map(kind)) {
            self.refused += u32::from(result == Some(StoreErrorKind::NoSpace));
            now_maybe(&mut self.rows, key, None, value, result);
        }
        for ((place, byte), result) in blocks.into_iter().zip(written.into_iter().map(kind)) {
            self.refused += u32::from(result == Some(StoreErrorKind::NoSpace));
            now_maybe(&mut self.blocks, place, 0, byte, result);
        }
        self.refused > before
    }

    async fn are_there(&self, volume: &Volume, opened: &Arc<dyn OpenFile>, what: &str) {
        for (key, maybe) in &self.rows {
            let there = volume.state_get("t", &key.to_be_bytes()).await.expect("state");
            let is = |value: &Option<(u8, usize)>| value.map(|(byte, len)| vec![byte; len]) == there;
            assert!(maybe.iter().any(is), "{what}: row {key}, {maybe:?}: {:?}", there.map(|row| row.len()));
        }
        for (place, maybe) in &self.blocks {
            let there = read(opened, place * CLUSTER, BLOCK as usize).await;
            assert!(
                maybe.iter().any(|byte| there == [*byte; BLOCK as usize]),
                "{what}: block {place}, {maybe:?}"
            );
        }
    }
}

/// A volume and what is done to it.
struct Load {
    size: u64,
    /// Pieces that a file has before.
    pieces: u64,
    keys: u64,
    places: u64,
    rounds: u32,
}

/// The area has 7 MiB, and the database at most 4.
const SMALL: Load = Load { size: 48 << 20, pieces: 0, keys: 3000, places: 500, rounds: 400 };
/// The area has 28 MiB, and the database has grown several times before.
const LARGE: Load = Load { size: 2 << 30, pieces: 8000, keys: 11_000, places: 12_000, rounds: 1200 };

async fn opened(pool: &Arc<Layered<Pool>>, environment: &Environment) -> (Arc<Volume>, Arc<dyn OpenFile>) {
    let volume = Volume::open(pool.clone(), environment.clone()).await.expect("open");
    let id = volume.lookup(volume.root(), "lun").await.expect("the file").file;
    let handle = open(&volume, id).await;
    (volume, handle)
}

fn becomes_full(load: &Load, pool_ends: bool, seed: u64) {
    let what = format!("{} bytes, the pool ends: {pool_ends}, seed {seed}", load.size);
    timely(async |environment| {
        let (mut rng, pool) = (Rng::new(seed), Pool::new(load.size));
        let device: Device = pool.clone();
        let volume = fresh_on(&device, &environment).await;
        let root = volume.root();
        if load.pieces > 0 {
            let pieces = volume.create(root, "pieces", file()).await.expect("create");
            volume.fragment(pieces, load.pieces, 2).await.expect("pieces");
        }
        let id = volume.create(root, "lun", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(load.places * CLUSTER).await.expect("size");
        let mut promised = Promised::default();
        let ends = if pool_ends { rng.below(u64::from(load.rounds / 2)) as u32 } else { u32::MAX };
        for round in 0..load.rounds {
            pool.full.store(round >= ends, Ordering::SeqCst);
            let first = promised.refused == 0;
            if promised.change(&volume, &handle, &mut rng, load).await && first {
                assert!(pool.length().await.1, "{what}: refused in round {round}, and it could grow");
            }
            if pool_ends && volume.why_stopped().is_some() {
                break;
            }
            assert_eq!(volume.why_stopped(), None, "{what}, round {round}");
        }
        assert!(pool_ends || promised.refused > 0, "{what}: it is never full");
        assert!(!pool_ends || volume.why_stopped().is_some(), "{what}: the pool has what it needs");
        let pool = pool.image();
        volume.core.closing.store(true, Ordering::SeqCst);
        drop((handle, volume, device));
        if pool_ends {
            let (volume, handle) = opened(&pool, &environment).await;
            promised.are_there(&volume, &handle, &what).await;
            drop(handle);
            let _ = volume.close().await;
            pool.full.store(false, Ordering::SeqCst);
        }
        let (volume, handle) = opened(&pool, &environment).await;
        promised.are_there(&volume, &handle, &what).await;
        // What goes makes room.
        for key in (0..load.keys as u32).filter(|key| key % 3 > 0) {
            volume.state_write(vec![row(key, None)]).await.expect("removed");
            promised.rows.insert(key, vec![None]);
        }
        for _ in 0..20 {
            assert!(!promised.change(&volume, &handle, &mut rng, load).await, "{what}: there is room again");
        }
        promised.are_there(&volume, &handle, &what).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "{what}");
        drop(handle);
        volume.close().await.expect("close");
    });
}

#[test]
fn a_small_database_refuses_what_it_has_no_room_for() {
    (0..4).for_each(|seed| becomes_full(&SMALL, false, seed));
}

#[test]
fn a_large_database_refuses_what_it_has_no_room_for() {
    becomes_full(&LARGE, false, 1);
}

#[test]
fn a_small_database_in_a_pool_that_becomes_full_keeps_what_was_promised() {
    (0..6).for_each(|seed| becomes_full(&SMALL, true, seed));
}

#[test]
fn a_large_database_in_a_pool_that_becomes_full_keeps_what_was_promised() {
    (0..3).for_each(|seed| becomes_full(&LARGE, true, seed));
}

/// What is put at once is not refused over what all of it might take: two thirds of the database's length can be rows.
#[test]
fn as_much_fits_at_once_as_one_after_the_other() {
    const LEN: u64 = 8000;
    for depth in [1, 100] {
        timely(async |environment| {
            let pool = Pool::new(SMALL.size);
            let device: Device = pool.clone();
            let volume = fresh_on(&device, &environment).await;
            let mut count = 0;
            loop {
                let row = |key| row(key, Some((7, LEN as usize)));
                let rows = (count..count + depth).map(|key| volume.state_write(vec![row(key)]));
                let good = join_all(rows).await.iter().filter(|result| result.is_ok()).count() as u32;
                count += good;
                if good < depth {
                    break;
                }
            }
            let (length, grown) = pool.length().await;
            let used = u64::from(count) * LEN;
            assert!(grown && used > length / 3 * 2, "{depth} at once: {used} of {length} bytes are rows");
            assert_eq!(volume.why_stopped(), None);
        });
    }
}
