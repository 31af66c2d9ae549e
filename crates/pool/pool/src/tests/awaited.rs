//! Stripes that wait for disks: the rest of their space goes on, for as long as it takes.

use std::error::Error;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};
use pool_format::JOURNAL_ROW;
use shard_runtime::sleep;

use super::promises::open;
use super::replays::{INTERLEAVE, crash, noise, places, spec};
use super::{Bench, SLAB, on_shard};
use crate::{DiskId, OpenOptions, Pool, Space};

const STRIPE: u64 = 3 * INTERLEAVE;
/// Bytes of a row.
const ROW: u64 = 3 * SLAB;
/// So many writes of two columns each need several times the ring, which has 256 blocks.
const WRITES: u64 = 300;

/// How the stripe comes to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Two disks go with an acknowledged write in their caches.
    Cached,
    /// They go while it is written.
    Failed,
    /// They go while all of the stripe is written, durably, so that nothing is in a cache.
    Whole,
    /// The power goes, with an acknowledged write in the caches, and they are missing when the pool is opened.
    Crashed,
}

/// A space of four rows on eight disks, of which row 0 waits for two.
struct Waiting {
    bench: Bench,
    pool: Option<Pool>,
    /// The disks that it waits for.
    away: [usize; 2],
    /// A row that lacks one of them at the most.
    other: u64,
    old: Vec<u8>,
    new: Vec<u8>,
    /// What was last written to the other row.
    last: Vec<u8>,
}

/// Two columns of row 0, one of which the write to its first unit changes, and a row that can do without their disks; so can the
/// journal.
fn choose(pool: &Pool, first: usize) -> Option<([usize; 2], u64)> {
    let disks = |row: u32| places(pool, row).concat().into_iter().map(|(disk, _)| disk).collect::<Vec<_>>();
    let row = disks(0);
    let can_do =
        |number: u32, away: &[usize; 2]| disks(number).iter().filter(|disk| away.contains(disk)).count() < 2;
    for second in (0..4).filter(|second| *second != first) {
        let away = [row[first], row[second]];
        if let Some(other) = (1..4).find(|other| can_do(*other, &away))
            && can_do(JOURNAL_ROW, &away)
        {
            return Some((away, u64::from(other)));
        }
    }
    None
}

impl Waiting {
    async fn new(how: How, first: usize, reversed: bool) -> Option<Self> {
        let bench = Bench::new(8);
        let pool = bench.create().await;
        let mut spec = spec(1);
        spec.size = 4 * ROW;
        let space = pool.create_space(spec).await.expect("space");
        let old = noise(STRIPE, 1).to_vec();
        for row in 0..4 {
            let data = IoBuf::copy_from(&old).freeze();
            space.write(row * ROW, data, Durability::Durable).await.expect("write");
        }
        sleep(super::CLEAN).await;
        let (mut away, other) = choose(&pool, first)?;
        if reversed {
            away.reverse();
        }
        let (len, durability) = match how {
            How::Whole => (STRIPE, Durability::Durable),
            _ => (INTERLEAVE, Durability::Volatile),
        };
        let new = noise(len, 2).to_vec();
        let write = || space.write(0, IoBuf::copy_from(&new).freeze(), durability);
        let fails = matches!(how, How::Failed | How::Whole);
        if !fails {
            write().await.expect("write");
        }
        for disk in away {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
        }
        let last = old[..INTERLEAVE as usize].to_vec();
        if how == How::Crashed {
            bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
            return Some(Self { bench, pool: Some(pool), away, other, old, new, last });
        }
        if fails {
            let error = write().await.expect_err("two disks of the stripe are away");
            assert_eq!(error.kind(), BlockErrorKind::Gone);
        }
        for disk in away {
            let _ = pool.disk_lost(DiskId(disk as u32), "pulled").await;
        }
        away.iter().for_each(|disk| bench.disks[*disk].restore_power(|| false));
        Some(Self { bench, pool: Some(pool), away, other, old, new, last })
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open")
    }

    fn space(&self) -> std::sync::Arc<Space> {
        self.pool().space("s").expect("the space is open")
    }

    /// Writes to the other row, and reads there.
    async fn others_go_on(&mut self, what: &str) {
        let space = self.space();
        for number in 0..WRITES {
            let data = noise(INTERLEAVE, 100 + number);
            self.last = data.to_vec();
            let written = space.write(self.other * ROW, data, Durability::Durable).await;
            written.unwrap_or_else(|error| panic!("{what}: write {number}: {error}: {:?}", error.source()));
        }
        let read = space.read(self.other * ROW, IoBuf::new(INTERLEAVE as usize)).await.expect("read");
        assert!(read[..] == self.last[..], "{what}");
        // What is cleaned and tidied now must not go further.
        sleep(super::CLEAN).await;
    }

    async fn crash_and_open(&mut self, options: OpenOptions) {
        let guid = self.pool().guid();
        crash(&self.bench, self.pool.take().expect("open")).await;
        let (devices, surroundings) = (self.bench.devices(), self.bench.surroundings.clone());
        self.pool = Some(Pool::open(guid, devices, options, surroundings).await.expect("open"));
        sleep(super::CLEAN).await;
    }

    async fn back(&self, disk: usize) {
        self.bench.disks[disk].gone.store(false, Ordering::SeqCst);
        self.pool().disk_returned(self.bench.device(disk)).await.expect("returned");
        sleep(super::CLEAN).await;
    }

    /// Row 0 is what it was, or the write that was under way.
    async fn is_whole(&self, what: &str) {
        let space = self.space();
        let read = space.read(0, IoBuf::new(STRIPE as usize)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: {error}: {:?}", error.source()));
        let (first, rest) = read.split_at(INTERLEAVE as usize);
        assert!(*first == self.new[..] || *first == self.old[..INTERLEAVE as usize], "{what}");
        assert!(*rest == self.old[INTERLEAVE as usize..], "{what}: what was there before");
        let read = space.read(self.other * ROW, IoBuf::new(INTERLEAVE as usize)).await.expect("read");
        assert!(read[..] == self.last[..], "{what}: the other row");
    }

    /// What was there before in row 0 is not calculated from what lacks the write.
    async fn is_right_or_an_error(&self, what: &str) {
        for at in (INTERLEAVE..STRIPE).step_by(4096) {
            let read = self.space().read(at, IoBuf::new(4096)).await;
            let right = read.map_or(true, |read| read[..] == self.old[at as usize..][..4096]);
            assert!(right, "{what}: {at}");
        }
    }

    async fn ends_well(self, what: &str) {
        self.is_whole(what).await;
        sleep(super::CLEAN).await;
        assert_eq!(self.pool().check(true).await, Vec::new(), "{what}");
        assert!(!self.space().needs_journal(), "{what}");
        // And once more after a crash: nothing of what was copied is newer than what was written since.
        let space = self.space();
        space.write(0, IoBuf::copy_from(&self.old).freeze(), Durability::Durable).await.expect("write");
        drop(space);
        let mut again = self;
        again.crash_and_open(OpenOptions::default()).await;
        let read = again.space().read(0, IoBuf::new(STRIPE as usize)).await.expect("read");
        assert!(read[..] == again.old[..], "{what}: written since");
        assert_eq!(again.pool().check(true).await, Vec::new(), "{what}");
    }
}

/// Runs with each column of the first stripe as the first that goes, where disks can be chosen so.
fn each(run: impl AsyncFn(Waiting, String)) {
    each_of([How::Cached, How::Failed], run);
}

fn each_of(ways: [How; 2], run: impl AsyncFn(Waiting, String)) {
    let mut runs = 0;
    for how in ways {
        for (first, reversed) in [(0, false), (0, true), (1, false), (2, true), (3, false), (3, true)] {
            on_shard(async {
                let Some(waiting) = Waiting::new(how, first, reversed).await else { return };
                runs += 1;
                run(waiting, format!("{how:?}, column {first}, reversed {reversed}")).await;
            });
        }
    }
    assert!(runs > 2, "{runs}");
}

#[test]
fn the_ring_goes_on_while_stripes_wait_for_disks() {
    each(async |mut waiting, what| {
        waiting.others_go_on(&what).await;
        for disk in waiting.away {
            waiting.back(disk).await;
        }
        waiting.ends_well(&what).await;
    });
}

#[test]
fn the_ring_goes_on_after_openings_without_the_disks() {
    each(async |mut waiting, what| {
        waiting.others_go_on(&what).await;
        for opening in 0..2 {
            waiting.crash_and_open(OpenOptions::default()).await;
            waiting.others_go_on(&format!("{what}, opening {opening}")).await;
        }
        let _ = waiting.space().flush().await;
        waiting.pool().close().await.expect("close");
        waiting.crash_and_open(OpenOptions::default()).await;
        for disk in waiting.away {
            waiting.back(disk).await;
        }
        waiting.ends_well(&what).await;
    });
}

/// A stripe of which a write failed half-way is half of each. When the ring has gone on, several times, and one of its disks comes back
/// while the other is lost for good, what that one held is not calculated from the halves.
#[test]
fn a_half_written_stripe_is_not_calculated_from() {
    each_of([How::Whole, How::Failed], async |mut waiting, what| {
        for _ in 0..3 {
            waiting.others_go_on(&what).await;
        }
        waiting.crash_and_open(OpenOptions::default()).await;
        waiting.others_go_on(&what).await;
        waiting.back(waiting.away[0]).await;
        let mut new = waiting.old.clone();
        new[..waiting.new.len()].copy_from_slice(&waiting.new);
        let space = waiting.space();
        let mut read = 0;
        for at in (0..STRIPE as usize).step_by(4096) {
            let Ok(block) = space.read(at as u64, IoBuf::new(4096)).await else { continue };
            let known = [&waiting.old, &new].iter().any(|known| block[..] == known[at..at + 4096]);
            assert!(known, "{what}: {at}");
            read += 1;
        }
        assert!(read > 0, "{what}: with one of them back, the journal makes it whole");
    });
}

#[test]
fn what_waits_for_disks_says_which() {
    each(async |mut waiting, what| {
        waiting.crash_and_open(OpenOptions::default()).await;
        let space = waiting.space();
        let mut errors = Vec::new();
        for unit in 0..3 {
            errors.push(space.read(unit * INTERLEAVE, IoBuf::new(INTERLEAVE as usize)).await.err());
        }
        errors.push(space.write(0, noise(INTERLEAVE, 5), Durability::Durable).await.err());
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{what}: it is torn"));
            assert_eq!(error.kind(), BlockErrorKind::Gone, "{what}");
            let why = error.source().map(ToString::to_string).unwrap_or_default();
            for disk in waiting.away {
                assert!(why.contains(&format!("disk {disk}")), "{what}: {error}: {why}");
            }
        }
        space.read(waiting.other * ROW, IoBuf::new(INTERLEAVE as usize)).await.expect("the rest is served");
    });
}

/// Who accepts the loss has the journal back, and gets what the disks have: what was flushed long before is right or an error,
/// whichever of them come back.
#[test]
fn accepting_the_loss_ends_the_waiting() {
    for second in [false, true] {
        each_of([How::Cached, How::Crashed], async |mut waiting, what| {
            let accept = OpenOptions { accept_loss: true, ..OpenOptions::default() };
            waiting.crash_and_open(accept).await;
            assert!(!waiting.space().needs_journal(), "{what}");
            waiting.others_go_on(&what).await;
            let [one, other] = waiting.away;
            waiting.back(if second { other } else { one }).await;
            waiting.is_right_or_an_error(&what).await;
            waiting.back(if second { one } else { other }).await;
            waiting.is_right_or_an_error(&what).await;
        });
    }
}

/// The sign that a write was torn is in a block of parity, or of data, of which a sector is what it was before, or all of it; the
/// opening that makes parity anew without it is cut short itself. The next one must not take the stripe for an acknowledged one
/// that is damaged.
#[test]
fn a_torn_stripe_beside_a_lost_disk_stays_readable_when_its_replay_is_cut_short() {
    for (torn, sectors) in [(3, 2..3), (3, 0..8), (0, 2..3)] {
        for absent in [1, 2] {
            for cut in 1..24 {
                let Range { start: first, end } = sectors.clone();
                on_shard(async {
                    let what = format!("column {torn} torn, {}, {absent} absent, cut at {cut}", end - first);
                    let bench = Bench::new(5);
                    let pool = bench.create().await;
                    let guid = pool.guid();
                    let space = pool.create_space(spec(1)).await.expect("space");
                    space.write(0, noise(STRIPE, 7), Durability::Volatile).await.expect("write");
                    let places = places(&pool, 0);
                    drop(space);
                    bench.power.store(0, Ordering::SeqCst);
                    drop(pool);
                    sleep(Duration::from_secs(5)).await;
                    bench.power.store(u64::MAX, Ordering::SeqCst);
                    bench.disks.iter().for_each(|disk| disk.restore_power(|| true));
                    let (disk, start) = places[torn][0];
                    bench.disks[disk].corrupt(start as usize + first * 512, &vec![0; (end - first) * 512]);
                    let (away, _) = places[absent][0];
                    bench.disks[away].gone.store(true, Ordering::SeqCst);
                    bench.power.store(cut, Ordering::SeqCst);
                    let first = open(&bench, guid).await;
                    bench.power.store(0, Ordering::SeqCst);
                    drop(first);
                    sleep(Duration::from_secs(5)).await;
                    bench.power.store(u64::MAX, Ordering::SeqCst);
                    bench.disks.iter().for_each(|disk| disk.restore_power(|| true));
                    for back in [false, true] {
                        bench.disks[away].gone.store(!back, Ordering::SeqCst);
                        let pool = open(&bench, guid).await.expect("open");
                        let space = pool.space("s").unwrap_or_else(|| panic!("{what}: closed"));
                        let read = space.read(0, IoBuf::new(STRIPE as usize)).await;
                        read.unwrap_or_else(|error| panic!("{what}, back {back}: {error}"));
                        drop(space);
                        crash(&bench, pool).await;
                    }
                });
            }
        }
    }
}

/// Closing says that all is durable. After a loss that nobody has been told of it is not.
#[test]
fn closing_tells_of_a_loss_that_no_flush_has_told_of() {
    let told = std::cell::Cell::new(0);
    each(async |waiting, what| {
        let untold = waiting.space().has_untold_loss();
        told.set(told.get() + u32::from(untold));
        assert_eq!(waiting.pool().close().await.is_err(), untold, "{what}");
    });
    assert!(told.get() > 0);
}
