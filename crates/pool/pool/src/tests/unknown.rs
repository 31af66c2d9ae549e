//! Checksums that nobody knows for a while: they are not taken for known because something else has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, CopyRecord, DiskId};
use shard_runtime::{sleep, spawn_local};

use super::replays::{INTERLEAVE, noise, spec};
use super::{Bench, on_shard};
use crate::at::At;
use crate::column_repair::add_copy;
use crate::core::{Core, Space};
use crate::resync::bring_up_to_date;
use crate::row::{Place, Row};
use crate::sums::page_at;
use crate::{Pool, RepairParams};

/// A column that is not the first of its row: what is done for the row as a whole is not done with it.
const COLUMN: u8 = 1;

struct Parts {
    core: Arc<Core>,
    space: Arc<Space>,
    row: Arc<Row>,
}

impl Parts {
    fn at(&self) -> At<'_> {
        let place = Place { space: self.space.id(), row: 0, column: COLUMN };
        At::new(&self.core, &self.space, &self.row, place)
    }
}

/// A space with parity whose first region is written and clean; nothing is repaired by itself.
async fn written(pool: &Pool) -> Parts {
    let space = pool.create_space(spec(1)).await.expect("space");
    space.write(0, noise(6 * INTERLEAVE, 1), Durability::Durable).await.expect("write");
    sleep(Duration::from_secs(30)).await;
    pool.set_repair_params(RepairParams { paused: true, ..RepairParams::default() });
    let row = space.row(0).expect("row");
    Parts { core: Arc::clone(&pool.core), space, row }
}

/// A copy must not count as whole in a region whose checksums are being looked for: its page would say something that was never
/// known, and be believed.
#[test]
fn a_copy_does_not_catch_up_where_checksums_are_unknown() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let parts = written(&pool).await;
        let at = parts.at();
        let used: Vec<DiskId> = (0..4).flat_map(|column| ids(at.other(column))).collect();
        let spare = (0..5).map(DiskId).find(|disk| !used.contains(disk)).expect("a fifth disk");
        // Its slab moves: it has two copies for a while.
        let slab = at.core.slabs.lock().take(spare).expect("room");
        let record = CopyRecord { disk: spare, slab, stale: u64::MAX };
        add_copy(at.core, at.place, at.column(), record).await.expect("added");
        let copy = Arc::clone(&at.column().copies()[1]);
        let page = page_at(at, 0).await.expect("a page");
        page.unknown.fetch_or(1, Ordering::AcqRel);
        at.group().forgotten.fetch_or(1, Ordering::AcqRel);
        pool.set_repair_params(RepairParams::default());
        bring_up_to_date(at).await.expect("brought up to date");
        let stale = copy.stale.load(Ordering::Acquire);
        assert_eq!(stale & 1, 1, "its checksums are not known");
        assert_eq!(stale & 2, 0, "those of another region are");
        // Once they are, it does.
        sleep(Duration::from_secs(60)).await;
        assert!(pool.status().is_fully_redundant());
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

fn ids(at: At<'_>) -> Vec<DiskId> {
    at.column().copies().iter().map(|copy| copy.id()).collect()
}

/// A page is asked for anew for what is unknown of it, and takes its time; meanwhile a write tells what a block is. That stays,
/// whether the disk's page is sound or damaged.
#[test]
fn what_is_learnt_while_a_page_is_read_stays_known() {
    for damaged in [false, true] {
        on_shard(async {
            let bench = Bench::new(5);
            let pool = bench.create().await;
            let parts = written(&pool).await;
            let at = parts.at();
            let page = page_at(at, 0).await.expect("a page");
            page.unknown.fetch_or(1, Ordering::AcqRel);
            let copy = Arc::clone(&at.column().copies()[0]);
            let disk = Arc::clone(&bench.disks[copy.id().0 as usize]);
            if damaged {
                disk.corrupt(copy.sums_start.expect("pages") as usize, &[0xa5; BLOCK as usize]);
            }
            disk.delay.store(1000, Ordering::SeqCst);
            let reader = {
                let parts = Parts {
                    core: Arc::clone(at.core),
                    space: Arc::clone(&parts.space),
                    row: Arc::clone(at.row),
                };
                spawn_local(async move { page_at(parts.at(), 0).await.is_some() })
            };
            sleep(Duration::from_millis(500)).await;
            let new = noise(INTERLEAVE, 2);
            page.learn_all(0, &new);
            page.unknown.fetch_and(!1, Ordering::AcqRel);
            assert!(reader.await.expect("read"));
            assert_eq!(page.unknown.load(Ordering::Acquire) & 1, 0, "damaged {damaged}: it is known");
            assert!(page.matches(0, &new), "damaged {damaged}: as it was learnt");
        });
    }
}
