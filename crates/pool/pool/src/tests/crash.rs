//! Power cuts at random writes, then every promise is checked; and proof that the check can fail.
//!
//! What it leaves out is the simulator's to come: tearing below 4 KiB, writes in flight together, cuts during resync.

use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::{BlockDevice, Durability};

use super::{Bench, SLAB, on_shard};
use crate::{OpenOptions, Pool, Resiliency, SpaceSpec};

const BLOCKS: usize = 96;
/// Blocks that lie side by side, so that they share a stripe: the write hole is between such.
const TOGETHER: usize = 8;

/// Where in the space a block lies.
fn position(index: usize) -> u64 {
    let (heap, within) = (index / TOGETHER, index % TOGETHER);
    6 * SLAB / (BLOCKS / TOGETHER) as u64 * heap as u64 / 4096 * 4096 + within as u64 * 4096
}

/// What may be read of a block: the last durable value or any written since.
#[derive(Clone, Default)]
struct History {
    durable: u32,
    latest: u32,
}

#[derive(Default)]
struct Defect {
    skip_flush: bool,
    skip_stale_mark: bool,
    skip_journal: bool,
}

fn block(value: u32, index: usize) -> aligned_buffer::SharedBuf {
    let mut bytes = IoBuf::zeroed(4096);
    if value > 0 {
        for word in bytes.chunks_exact_mut(8) {
            word[..4].copy_from_slice(&value.to_le_bytes());
            word[4..].copy_from_slice(&(index as u32).to_le_bytes());
        }
    }
    bytes.freeze()
}

/// Runs one seed; the first broken promise as an error.
fn campaign(seed: u64, resiliency: Resiliency, defect: &Defect) -> Result<(), String> {
    on_shard(async {
        let mut rng = Rng::new(seed);
        let disks = 3 + 2 * usize::from(resiliency.parity());
        let bench = Bench::new(disks);
        let pool = bench.create().await;
        let guid = pool.guid();
        let mut spec = SpaceSpec::thin("s", resiliency, 6 * SLAB);
        spec.interleave = if seed.is_multiple_of(2) { 4096 } else { 16384 };
        if resiliency.parity() > 0 {
            spec.columns = resiliency.parity() + 2 + (seed % 3) as u8;
        }
        pool.create_space(spec).await.expect("space");
        let mut history = vec![History::default(); BLOCKS];
        let mut next = 1;
        let mut pool = Some(pool);
        for _round in 0..4 {
            let open = pool.take().expect("open");
            open.faults().skip_flush.store(defect.skip_flush, Ordering::SeqCst);
            open.faults().skip_stale_mark.store(defect.skip_stale_mark, Ordering::SeqCst);
            open.faults().skip_journal.store(defect.skip_journal, Ordering::SeqCst);
            let space = open.space("s").expect("space");
            let lost =
                (resiliency.failures() > 0 && rng.below(2) == 0).then(|| rng.below(disks as u64) as usize);
            let cut = 10 + rng.below(300);
            bench.power.store(cut, Ordering::SeqCst);
            let lose_at = rng.below(60);
            for step in 0..200 {
                if let Some(lost) = lost.filter(|_| step == lose_at) {
                    bench.disks[lost].gone.store(true, Ordering::SeqCst);
                }
                let index = rng.below(BLOCKS as u64) as usize;
                let at = position(index);
                let failed = match rng.below(40) {
                    // A quiet time: regions become clean, the journals are tidied.
                    0 => {
                        shard_runtime::sleep(super::CLEAN).await;
                        false
                    }
                    1..5 => match space.flush().await {
                        Ok(()) => {
                            history.iter_mut().for_each(|h| h.durable = h.latest);
                            false
                        }
                        Err(_) => true,
                    },
                    kind => {
                        let durability = if kind < 20 { Durability::Durable } else { Durability::Volatile };
                        history[index].latest = next;
                        let written = space.write(at, block(next, index), durability).await;
                        if written.is_ok() && durability == Durability::Durable {
                            history[index].durable = next;
                        }
                        next += 1;
                        written.is_err()
                    }
                };
                if failed {
                    break;
                }
            }
            drop(space);
            drop(open);
            shard_runtime::sleep(std::time::Duration::from_secs(5)).await; // old tasks see that it is over
            bench.power.store(u64::MAX, Ordering::SeqCst);
            bench.disks.iter().for_each(|disk| disk.restore_power(|| rng.below(2) == 0));
            // The disk that was lost is still away at the opening, or back already.
            let gone = |disk: &usize| bench.disks[*disk].gone.load(Ordering::SeqCst);
            let away = lost.filter(gone).filter(|_| rng.below(2) == 0);
            if let (Some(lost), None) = (lost, away) {
                bench.disks[lost].gone.store(false, Ordering::SeqCst);
            }
            let opened =
                Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await;
            let reopened = opened.map_err(|error| format!("seed {seed}: {error}"))?;
            let space = reopened.space("s").ok_or("the space is gone")?;
            let mut seen = vec![0; BLOCKS];
            for pass in 0..2 {
                for (index, known) in history.iter_mut().enumerate() {
                    let at = position(index);
                    let read =
                        space.read(at, IoBuf::new(4096)).await.map_err(|e| format!("seed {seed}: {e}"))?;
                    let value = u32::from_le_bytes(read[..4].try_into().expect("4 bytes"));
                    if read[..] != block(value, index)[..] {
                        return Err(format!("seed {seed}: block {index} is a mix"));
                    }
                    if value < known.durable || value > known.latest {
                        let (low, high) = (known.durable, known.latest);
                        return Err(format!("seed {seed}: block {index} is {value}, not {low}..={high}"));
                    }
                    if pass == 1 && value != seen[index] {
                        return Err(format!("seed {seed}: block {index} was {} and is {value}", seen[index]));
                    }
                    seen[index] = value;
                }
                if pass == 0 {
                    if let Some(lost) = away {
                        bench.disks[lost].gone.store(false, Ordering::SeqCst);
                        reopened
                            .disk_returned(bench.device(lost))
                            .await
                            .map_err(|e| format!("seed {seed}: {e}"))?;
                    }
                    shard_runtime::sleep(super::CLEAN).await;
                }
            }
            for (known, value) in history.iter_mut().zip(&seen) {
                *known = History { durable: *value, latest: *value };
            }
            if !reopened.status().is_fully_redundant() {
                return Err(format!("seed {seed}: not redundant again: {:?}", reopened.status()));
            }
            if let Some(finding) = reopened.check(true).await.first() {
                return Err(format!("seed {seed}: {finding:?}"));
            }
            pool = Some(reopened);
        }
        Ok(())
    })
}

#[test]
fn power_cuts_break_no_promise() {
    let sound = Defect::default();
    for seed in 0..24 {
        for resiliency in [
            Resiliency::Simple,
            Resiliency::Mirror(2),
            Resiliency::Mirror(3),
            Resiliency::Parity(1),
            Resiliency::Parity(2),
        ] {
            campaign(seed, resiliency, &sound).unwrap_or_else(|broken| panic!("{resiliency:?} {broken}"));
        }
    }
}

#[test]
fn broken_builds_are_caught() {
    let caught =
        |resiliency, defect: Defect| (0..40).any(|seed| campaign(seed, resiliency, &defect).is_err());
    for resiliency in [Resiliency::Mirror(2), Resiliency::Parity(1)] {
        let no_flush = Defect { skip_flush: true, ..Defect::default() };
        assert!(caught(resiliency, no_flush), "{resiliency:?}: skipped flush");
        let no_mark = Defect { skip_stale_mark: true, ..Defect::default() };
        assert!(caught(resiliency, no_mark), "{resiliency:?}: skipped stale mark");
    }
    for parity in 1..=2 {
        let no_journal = Defect { skip_journal: true, ..Defect::default() };
        assert!(caught(Resiliency::Parity(parity), no_journal), "skipped journal of {parity} columns");
    }
}
