//! A pool that is closed, or loses a disk, while it still settles what a crash has left: nothing is taken for damage that is
//! none, and nothing is written to a disk that has been given back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, Guid};
use shard_runtime::sleep;

use super::promises::open;
use super::told::warnings;
use super::{Bench, SLAB, on_shard};
use crate::{Pool, Resiliency, SpaceSpec};

const LAYOUTS: [(Resiliency, u8); 3] =
    [(Resiliency::Mirror(2), 1), (Resiliency::Mirror(3), 1), (Resiliency::Parity(1), 3)];

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; BLOCK as usize]).freeze()
}

/// A space with some dirty regions, whose process is killed: the disks keep what they were given.
async fn killed(bench: &Bench, (resiliency, columns): (Resiliency, u8)) -> Guid {
    let pool = bench.create().await;
    let mut spec = SpaceSpec::thin("s", resiliency, 2 * SLAB);
    (spec.interleave, spec.columns) = (4096, columns);
    let space = pool.create_space(spec).await.expect("space");
    for at in (0..2 * SLAB).step_by(SLAB as usize / 4) {
        space.write(at, block(7), Durability::Durable).await.expect("write");
    }
    let guid = pool.guid();
    drop(space);
    drop(pool);
    sleep(Duration::from_secs(5)).await;
    guid
}

fn checksum_errors(pool: &Pool) -> u64 {
    pool.status().disks.iter().map(|disk| disk.checksum_errors).sum()
}

fn written(bench: &Bench) -> Vec<u64> {
    bench.disks.iter().map(|disk| disk.written.load(Ordering::SeqCst)).collect()
}

/// As at the end of a node that has only just been started after a kill.
#[test]
fn a_pool_that_is_closed_while_it_settles_finds_no_damage() {
    let mut wrong = Vec::new();
    for layout in LAYOUTS {
        for moment in 0..40 {
            let ((errors, late), told) = warnings(|| {
                on_shard(async {
                    let bench = Bench::new(4);
                    let guid = killed(&bench, layout).await;
                    let pool = open(&bench, guid).await.expect("open");
                    bench.disks.iter().for_each(|disk| disk.delay.store(10, Ordering::SeqCst));
                    sleep(Duration::from_millis(5 * moment)).await;
                    pool.close().await.expect("close");
                    let given_back = written(&bench);
                    sleep(super::CLEAN).await;
                    (checksum_errors(&pool), written(&bench) != given_back)
                })
            });
            if errors > 0 || late || !told.is_empty() {
                wrong.push(format!(
                    "{layout:?}, closed at {moment}: {errors} errors, written late: {late}, {told:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_disk_that_leaves_while_its_checksums_are_read_is_not_damaged() {
    let mut wrong = Vec::new();
    for layout in LAYOUTS {
        for moment in 0..40 {
            for disk in 0..2 {
                let errors = on_shard(async {
                    let bench = Bench::new(4);
                    let guid = killed(&bench, layout).await;
                    let pool = open(&bench, guid).await.expect("open");
                    bench.disks.iter().for_each(|disk| disk.delay.store(10, Ordering::SeqCst));
                    sleep(Duration::from_millis(5 * moment)).await;
                    bench.disks[disk].gone.store(true, Ordering::SeqCst);
                    sleep(super::CLEAN).await;
                    checksum_errors(&pool)
                });
                if errors > 0 {
                    wrong.push(format!("{layout:?}, disk {disk} left at {moment}: {errors} errors"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
