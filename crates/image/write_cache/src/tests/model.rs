//! Whatever is written, discarded and brought to the overflow file when: reads show what a plain array has.

use block_device::BlockDevice as _;
use futures_util::future::join_all;
use proptest::prelude::*;

use super::{Rig, holds, is_untouched, of_base, put, run};
use crate::cache::Inner;
use crate::{BLOCK, PAGE, SLAB};

/// Three blocks and a part of one, which ends within a page.
const SIZE: u64 = 3 * BLOCK + 5 * SLAB + 3 * 512;
const SECTOR: u64 = 512;

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64),
    Discard(u64, u64),
    Read(u64, u64),
    Leave,
}

/// Ranges in sectors: some of them whole pages, slabs and blocks.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let sectors = SIZE / SECTOR;
    let unit = prop_oneof![3 => Just(1), 3 => Just(PAGE / SECTOR), 2 => Just(SLAB / SECTOR), 1 => Just(BLOCK / SECTOR)];
    (unit, 0..sectors, 1..40_u64).prop_map(move |(unit, at, count)| {
        let at = at / unit * unit;
        let len = if unit == BLOCK / SECTOR { unit * (1 + count % 3) } else { unit * count.min(20) };
        (at, len.min(sectors - at))
    })
}

fn step() -> impl Strategy<Value = Step> {
    let of = |make: fn(u64, u64) -> Step| range().prop_map(move |(at, len)| make(at * SECTOR, len * SECTOR));
    prop_oneof![
        6 => of(Step::Write),
        2 => of(Step::Discard),
        4 => of(Step::Read),
        1 => Just(Step::Leave),
    ]
}

fn budget_is_kept(rig: &Rig) {
    assert!(rig.budget.used() <= rig.budget.total(), "{} of {}", rig.budget.used(), rig.budget.total());
}

/// What the cache counts is what it has.
fn accounts(rig: &Rig) {
    let inner: &Inner = rig.cache.inner();
    assert_eq!(inner.held_bytes(), rig.budget.used());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reads_show_what_was_written(steps in proptest::collection::vec(step(), 1..60), ram in 2..40_u64) {
        run(async {
            let rig = Rig::new(SIZE, ram * (SLAB + 200) + 1000, 1 << 30).await;
            let mut model: Vec<u8> = (0..SIZE).map(of_base).collect();
            let mut fill = 0_u8;
            for step in steps {
                match step {
                    Step::Write(at, len) => {
                        fill = fill.wrapping_add(1);
                        put(&rig.cache, at, len, fill).await;
                        model[at as usize..(at + len) as usize].fill(fill);
                    }
                    Step::Discard(at, len) => {
                        rig.cache.unmap(at, len).await.expect("discarded");
                        model[at as usize..(at + len) as usize].fill(0);
                    }
                    Step::Read(at, len) => holds(&rig.cache, at, len, |at| model[at as usize]).await,
                    Step::Leave => drop(rig.cache.inner().evict_here().await),
                }
                budget_is_kept(&rig);
                accounts(&rig);
            }
            holds(&rig.cache, 0, SIZE, |at| model[at as usize]).await;
            is_untouched(&rig.base).await;
            // All of it is given back.
            rig.cache.unmap(0, SIZE).await.expect("discarded");
            // What was on its way to the overflow file meanwhile has its slots until it is there.
            drop(rig.cache.inner().leaving.lock().await);
            let status = rig.cache.status();
            assert_eq!((status.ram_bytes, status.overflow_bytes), (0, 0));
            drop(rig.cache);
            assert_eq!(rig.budget.used(), 0);
        });
    }

    /// Several clients at once, each with slabs of its own in the same blocks, while blocks leave memory all the time.
    #[test]
    fn clients_beside_each_other_see_their_own(
        steps in proptest::collection::vec(proptest::collection::vec((0..8_u64, 0..16_u64, 1..17_u64, 0..5_u8), 1..25), 4)
    ) {
        run(async {
            let rig = Rig::new(SIZE, 12 * (SLAB + 200), 1 << 30).await;
            let rig = &rig;
            let clients = steps.into_iter().enumerate().map(|(client, steps)| async move {
                let client = client as u64;
                let place = |slab: u64, page: u64| (slab * 4 + client) * SLAB + page * PAGE;
                let mut model = [[None; 16]; 8];
                for (number, (slab, page, count, does)) in steps.into_iter().enumerate() {
                    let count = count.min(16 - page);
                    let fill = (number as u8).wrapping_mul(8).wrapping_add(client as u8 + 1);
                    let pages = &mut model[slab as usize][page as usize..(page + count) as usize];
                    match does {
                        0..3 => {
                            put(&rig.cache, place(slab, page), count * PAGE, fill).await;
                            pages.fill(Some(fill));
                        }
                        3 => {
                            rig.cache.unmap(place(slab, page), count * PAGE).await.expect("discarded");
                            pages.fill(Some(0));
                        }
                        _ => {}
                    }
                    let now = model[slab as usize];
                    holds(&rig.cache, place(slab, 0), SLAB, |at| {
                        now[(at % SLAB / PAGE) as usize].unwrap_or_else(|| of_base(at))
                    })
                    .await;
                    budget_is_kept(rig);
                }
                for (slab, pages) in model.iter().enumerate() {
                    holds(&rig.cache, place(slab as u64, 0), SLAB, |at| {
                        pages[(at % SLAB / PAGE) as usize].unwrap_or_else(|| of_base(at))
                    })
                    .await;
                }
            });
            join_all(clients).await;
            accounts(rig);
            is_untouched(&rig.base).await;
        });
    }
}
