//! Where space ends: what finds none is refused as that, nothing that was acknowledged is lost, and the image goes on when there is room.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use aligned_buffer::SharedBuf;
use block_device::BlockErrorKind;
use file_store::{StoreError, StoreErrorKind, StoreFuture};
use parking_lot::Mutex;
use test_layers::{FileLayer, Layered};

use super::*;
use crate::ImageErrorKind;

/// A volume's unit of space.
const CLUSTER: u64 = 64 << 10;
const PLENTY: usize = usize::MAX / 2;

/// A file for which there are so many more clusters.
struct Short {
    file: Arc<dyn OpenFile>,
    mapped: Mutex<BTreeSet<u64>>,
    left: AtomicUsize,
}

impl Short {
    fn over(file: Arc<dyn OpenFile>, left: usize) -> Arc<Layered<Self>> {
        Arc::new(Layered(Self { file, mapped: Mutex::default(), left: left.into() }))
    }

    fn has(&self, left: usize) {
        self.left.store(left, Ordering::SeqCst);
    }

    /// As after a snapshot, of which all that is there is a part: what is written next takes other clusters.
    fn is_shared(&self) {
        self.mapped.lock().clear();
    }
}

impl FileLayer for Short {
    fn below(&self) -> &dyn OpenFile {
        &*self.file
    }
    fn write<'a>(&'a self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            for cluster in offset / CLUSTER..(offset + data.len() as u64).div_ceil(CLUSTER) {
                if self.mapped.lock().contains(&cluster) {
                    continue;
                }
                let left = self.left.load(Ordering::SeqCst);
                if left == 0 {
                    return Err(StoreError::new(StoreErrorKind::NoSpace, "no cluster is left"));
                }
                self.left.store(left - 1, Ordering::SeqCst);
                self.mapped.lock().insert(cluster);
            }
            self.file.write(offset, data, durability).await
        })
    }
}

async fn try_put(image: &Image, offset: u64, fill: u8, durability: Durability) -> Result<(), BlockErrorKind> {
    let data = IoBuf::copy_from(&[fill; 4096]).freeze();
    image.write(offset, data, durability).await.map_err(|error| error.kind())
}

async fn try_flush(image: &Image) -> Result<(), BlockErrorKind> {
    image.flush().await.map_err(|error| error.kind())
}

/// Nothing is wrong with it, but for a log that may have to be replayed.
async fn is_consistent(file: &Arc<dyn OpenFile>) {
    let report = crate::check(file).await.expect("an image");
    assert_eq!(report.error_count, 0, "{report:?}");
}

/// A dynamic disk whose table has many clusters, and its file.
async fn short(left: usize) -> (Image, Arc<Layered<Short>>, Arc<dyn OpenFile>) {
    let file = memory_file(&MemoryStore::new(1 << 50), "image").await;
    create(&file, &dynamic(256 << 30, MIB), &SeededEntropy::new(3)).await.expect("made");
    let short = Short::over(file, left);
    let layered: Arc<dyn OpenFile> = short.clone();
    (open(&layered, Mode::Write).await.expect("opened"), short, layered)
}

/// The flush of what was acknowledged finds no space for the table: it says so, and the data is there, and durable when there is room.
#[test]
fn what_was_acknowledged_outlives_a_table_without_space() {
    run(async {
        let (image, short, file) = short(PLENTY).await;
        put(&image, 0, 4096, 1).await;
        try_flush(&image).await.expect("durable");
        put(&image, 100 << 30, 4096, 2).await;
        short.has(0);
        for _ in 0..3 {
            assert_eq!(try_flush(&image).await, Err(BlockErrorKind::NoSpace));
            assert_eq!(try_put(&image, 0, 3, Durability::Volatile).await, Ok(()), "it has its place");
        }
        assert_eq!(try_put(&image, 200 << 30, 9, Durability::Volatile).await, Err(BlockErrorKind::NoSpace));
        holds(&image, 100 << 30, 4096, 2).await;
        short.has(PLENTY);
        try_flush(&image).await.expect("there is room");
        // As a crash leaves it.
        drop(image);
        is_consistent(&file).await;
        let image = open(&file, Mode::Write).await.expect("opened");
        holds(&image, 0, 4096, 3).await;
        holds(&image, 100 << 30, 4096, 2).await;
        holds(&image, 200 << 30, 4096, 0).await;
    });
}

/// A table without space for one block is the trouble of who wrote that, and of who flushes, and of nobody else.
#[test]
fn what_has_its_place_is_overwritten_durably_while_others_find_no_space() {
    run(async {
        let (image, short, file) = short(PLENTY).await;
        put(&image, 0, 4096, 1).await;
        try_flush(&image).await.expect("durable");
        // Blocks that are acknowledged, one in the same sector of the table, and whose places are in memory only.
        put(&image, 5 * MIB, 4096, 2).await;
        put(&image, 100 << 30, 4096, 2).await;
        short.has(0);
        for fill in 3..6 {
            assert_eq!(try_flush(&image).await, Err(BlockErrorKind::NoSpace), "these have none");
            assert_eq!(try_put(&image, 0, fill, Durability::Durable).await, Ok(()), "it has its place");
            assert_eq!(
                try_put(&image, 100 << 30, 9, Durability::Durable).await,
                Err(BlockErrorKind::NoSpace),
                "its place is not durable"
            );
        }
        // As a crash leaves it.
        drop(image);
        short.has(PLENTY);
        is_consistent(&file).await;
        let image = open(&file, Mode::Write).await.expect("opened");
        holds(&image, 0, 4096, 5).await;
    });
}

/// What was tried may be durable though it was refused: nothing that goes back to what was there before is taken for durable.
#[test]
fn what_a_failed_commit_may_have_left_is_in_doubt() {
    run(async {
        for left in 0..12 {
            let (image, short, file) = short(PLENTY).await;
            put(&image, 100 << 30, 4096, 1).await;
            try_flush(&image).await.expect("durable");
            image.unmap(100 << 30, MIB).await.expect("unmapped");
            try_flush(&image).await.expect("durable");
            put(&image, 100 << 30, 4096, 2).await;
            short.is_shared();
            short.has(left);
            let _ = try_flush(&image).await;
            short.has(0);
            let zeroed = image.write_zeroes(100 << 30, MIB, Durability::Durable).await;
            drop(image);
            short.has(PLENTY);
            is_consistent(&file).await;
            if zeroed.is_ok() {
                let image = open(&file, Mode::Write).await.expect("opened");
                holds(&image, 100 << 30, 4096, 0).await;
            }
        }
    });
}

/// Memory for changed sectors of the table is at its end, and there is no space for them.
#[test]
fn what_has_its_place_is_overwritten_while_memory_is_full_of_changes() {
    run(async {
        let (image, short, _file) = short(PLENTY).await;
        put(&image, 0, 4096, 1).await;
        try_flush(&image).await.expect("durable");
        for n in 1..=crate::pages::DIRTY_MAX as u64 - 1 {
            put(&image, n * 512 * MIB, 4096, 2).await;
        }
        short.is_shared();
        // For the content of one block more, and not for the log.
        short.has(1);
        let last = crate::pages::DIRTY_MAX as u64 * 512 * MIB;
        assert_eq!(try_put(&image, last, 2, Durability::Volatile).await, Ok(()), "acknowledged");
        assert_eq!(
            try_put(&image, last + 512 * MIB, 2, Durability::Volatile).await,
            Err(BlockErrorKind::NoSpace)
        );
        short.mapped.lock().insert(0);
        for durability in [Durability::Volatile, Durability::Durable] {
            let place = image.inner.payload(0).await.expect("there").1;
            short.mapped.lock().insert(place / CLUSTER);
            assert_eq!(try_put(&image, 0, 3, durability).await, Ok(()), "it has its place");
        }
        // A whole block's entry would change.
        let zeros = image.inner.zero(0, image.inner.block_size(), true, Durability::Volatile).await;
        assert_eq!(zeros.map_err(|error| error.kind()), Err(ImageErrorKind::NoSpace));
        assert_eq!(
            try_put(&image, last + 512 * MIB, 2, Durability::Volatile).await,
            Err(BlockErrorKind::NoSpace)
        );
        holds(&image, 0, 4096, 3).await;
    });
}

/// Space ends after any number of clusters, and as a snapshot leaves it; nothing acknowledged is lost, whether the image is closed, left
/// behind, or goes on.
#[test]
fn space_that_ends_anywhere_costs_nothing_that_was_acknowledged() {
    run(async {
        for left in 0..40 {
            for ends in 0..3 {
                let (image, short, file) = short(PLENTY).await;
                let at = |n: u64| (n % 5) * (50 << 30) + (n % 3) * 3 * MIB;
                let mut flushed = [0; 15];
                let mut acknowledged = [0; 15];
                for n in 0..45_u64 {
                    if n == 15 {
                        short.is_shared();
                        short.has(left);
                    }
                    let durability = if n % 7 == 3 { Durability::Durable } else { Durability::Volatile };
                    let place = (n % 15) as usize;
                    match try_put(&image, at(n % 15), n as u8 + 1, durability).await {
                        Ok(()) => {
                            acknowledged[place] = n as u8 + 1;
                            if durability == Durability::Durable {
                                flushed[place] = n as u8 + 1;
                            }
                        }
                        Err(kind) => {
                            assert_eq!(kind, BlockErrorKind::NoSpace, "left {left}, write {n}");
                            // It may have been written.
                            let read = image.read(at(n % 15), IoBuf::new(4096)).await.expect("read");
                            acknowledged[place] = read[0];
                        }
                    }
                    if n % 4 == 0 {
                        match try_flush(&image).await {
                            Ok(()) => flushed = acknowledged,
                            Err(kind) => assert_eq!(kind, BlockErrorKind::NoSpace, "left {left}, flush {n}"),
                        }
                    }
                }
                for place in 0..15_u64 {
                    holds(&image, at(place), 4096, acknowledged[place as usize]).await;
                }
                let promised = match ends {
                    0 => flushed,
                    _ => {
                        short.has(PLENTY);
                        match ends {
                            1 => try_flush(&image).await.expect("there is room"),
                            _ => image.close().await.expect("there is room"),
                        }
                        acknowledged
                    }
                };
                drop(image);
                short.has(PLENTY);
                is_consistent(&file).await;
                let image = open(&file, Mode::Write).await.expect("opened");
                for place in 0..15_u64 {
                    let read = image.read(at(place), IoBuf::new(4096)).await.expect("read");
                    let (found, least) = (read[0], promised[place as usize]);
                    // What was not promised may be there, too.
                    let right = if ends == 0 { found >= least } else { found == least };
                    assert!(right, "left {left}, ends {ends}, place {place}: {found}, {least} was promised");
                }
            }
        }
    });
}

/// A log that finds no space for what it has to put in its place: the image is opened when there is some, and can be read until then.
#[test]
fn a_log_without_space_waits_for_some() {
    run(async {
        let (image, short, file) = short(PLENTY).await;
        for n in 0..3 {
            put(&image, n * (50 << 30), 4096, n as u8 + 1).await;
            try_flush(&image).await.expect("durable");
        }
        // Left behind with its log.
        drop(image);
        for left in 0..6 {
            short.is_shared();
            short.has(left);
            match open(&file, Mode::Write).await {
                Ok(image) => drop(image),
                Err(error) => assert_eq!(error.kind(), ImageErrorKind::NoSpace, "{error}"),
            }
            let image = open(&file, Mode::Read).await.expect("it can be read");
            for n in 0..3 {
                holds(&image, n * (50 << 30), 4096, n as u8 + 1).await;
            }
        }
        short.has(PLENTY);
        let image = open(&file, Mode::Write).await.expect("there is room");
        for n in 0..3 {
            holds(&image, n * (50 << 30), 4096, n as u8 + 1).await;
        }
        image.close().await.expect("closed");
        is_consistent(&file).await;
    });
}
