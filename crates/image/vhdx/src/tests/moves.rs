//! Power cuts at every write while a table moves, and while the log goes on at its beginning.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability, UnmapBehavior};
use shard_runtime::{Entropy, SeededEntropy};
use sim::{Dice, Pace, Power, SimDisk, SimSpec, Survival, on_shard};

use super::sim_file::SimStorage;
use super::{MIB, dynamic, holds, open};
use crate::{ImageError, Mode, create};

/// One size that a table of 1 MiB has room for, and one that it has not, with blocks of 1 MiB.
const SMALL: u64 = 127 << 30;
const LARGE: u64 = 140 << 30;

/// Events of the whole, whether the power went, and whether the table had moved afterwards.
fn run(seed: u64, cut: Option<u64>) -> (u64, bool, bool) {
    on_shard(async {
        let power = Power::new(Dice::new(seed).fork());
        let spec = SimSpec {
            size: 24 << 20,
            block_size: 512,
            unmap: UnmapBehavior::Zeroes,
            pace: Pace { turns: 2, ..Pace::default() },
        };
        let disk = SimDisk::new(&power, &spec);
        let storage = SimStorage::new(Arc::clone(&power), disk);
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(seed));
        create(&storage.file(), &dynamic(SMALL, MIB), &*entropy).await.expect("made");
        let file = storage.file();
        let image = open(&file, Mode::Write).await.expect("opened");
        let content = |fill: u8| IoBuf::copy_from(&[fill; 4096]).freeze();
        image.write(SMALL - 4096, content(1), Durability::Durable).await.expect("written");
        // Sectors before the log's end, so that the entries of the moving go over it.
        image.inner.journal.lock().await.head = (MIB - 4096 * Dice::new(seed).between(1, 20)) as usize;
        let before = image.info().await.regions.bat;
        let survival = Survival::any(&Dice::new(seed * 1000 + cut.unwrap_or(0)));
        if let Some(cut) = cut {
            power.cut_after(cut, survival);
        }
        let start = power.events();
        let mut flushed = false;
        let lived = async {
            image.write(5 * MIB, content(2), Durability::Volatile).await.map_err(drop)?;
            image.resize(LARGE).await.map_err(drop)?;
            image.write(LARGE - 4096, content(3), Durability::Volatile).await.map_err(drop)?;
            image.flush().await.map_err(drop)?;
            flushed = true;
            image.write(9 * MIB, content(4), Durability::Durable).await.map_err(drop)
        };
        let lived: Result<(), ()> = lived.await;
        let (events, was_cut) = (power.events() - start, !power.is_on());
        assert!(lived.is_ok() || was_cut, "an operation failed without a reason");
        power.cut(survival);
        drop(image);
        storage.recover(&Dice::new(seed));
        // The power goes once more, while the log is replayed.
        let again = Dice::new(seed ^ cut.unwrap_or(0) << 8);
        power.cut_after(again.below(12), Survival::any(&again));
        let replayed = open(&storage.file(), Mode::Write).await;
        assert!(replayed.is_ok() || !power.is_on(), "{seed} {cut:?}: {:?}", replayed.err());
        power.cut(Survival::any(&again));
        drop(replayed);
        storage.recover(&again);
        let mut moved = false;
        for mode in [Mode::Read, Mode::Write, Mode::Read] {
            let opened: Result<_, ImageError> = open(&storage.file(), mode).await;
            let image = opened.unwrap_or_else(|error| panic!("{seed} {cut:?} {mode:?}: {error}"));
            moved = image.info().await.regions.bat != before;
            let size = image.size();
            assert!(size == if moved { LARGE } else { SMALL }, "{seed} {cut:?}: {size}, moved {moved}");
            assert!(!flushed || moved, "{seed} {cut:?}: what was flushed is gone");
            holds(&image, SMALL - 4096, 4096, 1).await;
            if flushed {
                holds(&image, LARGE - 4096, 4096, 3).await;
                holds(&image, 5 * MIB, 4096, 2).await;
            }
            holds(&image, 20 * MIB, MIB, 0).await;
            if mode == Mode::Write {
                image.write(SMALL - 8192, content(5), Durability::Volatile).await.expect("written");
                image.close().await.expect("closed");
            }
        }
        let report = crate::check(&storage.file()).await.expect("an image");
        assert!(report.error_count == 0 && report.warnings.is_empty(), "{seed} {cut:?}: {report:?}");
        (events, was_cut, moved)
    })
    .expect("an event loop")
}

#[test]
fn a_table_survives_a_cut_at_every_write_of_its_moving() {
    for seed in 0..3 {
        let (events, _, moved) = run(seed, None);
        assert!(moved, "nothing moved");
        let (mut before, mut after) = (0, 0);
        // Every event of one workload, and some of the others.
        for cut in (0..events).step_by(if seed == 0 { 1 } else { 7 }) {
            let (_, was_cut, moved) = run(seed, Some(cut));
            before += u64::from(was_cut && !moved);
            after += u64::from(was_cut && moved);
        }
        assert!(before > 3 && after > 1, "seed {seed}: {before} cuts before, {after} after of {events}");
    }
}
