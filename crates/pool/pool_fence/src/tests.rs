//! Contenders for one disk, interleaved at every step: all ways of two with few changes, many of three and four, with answers that get lost.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, MemoryDisk, Reservation,
    Reservations,
};
use shard_runtime::{Entropy, SeededEntropy};

use super::{FenceError, FenceKey, can_fence, fence};

/// What becomes of the next operation of a contender.
const WORKS: u8 = 0;
const ANSWER_LOST: u8 = 1;
const NOT_DONE: u8 = 2;

/// A disk that waits before each operation on its reservation, so that others come between.
struct Stepped {
    disk: Arc<MemoryDisk>,
    fate: Arc<AtomicU8>,
}

/// A disk that takes registrations and reservations, and does not know how to preempt: nobody who has it is ever kept from it.
struct Unpreemptable(MemoryDisk);

impl Stepped {
    fn step<'a, T: 'a>(&'a self, operation: BlockFuture<'a, T>) -> BlockFuture<'a, T> {
        Box::pin(async move {
            let waited = AtomicBool::new(false);
            std::future::poll_fn(|_| match waited.swap(true, Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            let lost = || Err(BlockError::new(BlockErrorKind::Gone, "ask a disk that goes away"));
            match self.fate.swap(WORKS, Ordering::Relaxed) {
                NOT_DONE => lost(),
                ANSWER_LOST => {
                    let _ = operation.await;
                    lost()
                }
                _ => operation.await,
            }
        })
    }
}

impl BlockDevice for Stepped {
    fn geometry(&self) -> &Geometry {
        self.disk.geometry()
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.disk.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        self.disk.write(offset, data, durability)
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        self.disk.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.disk.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.disk.write_zeroes(offset, len, durability)
    }
    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
}

impl Reservations for Stepped {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        self.step(self.disk.register(key))
    }
    fn unregister(&self) -> BlockFuture<'_, ()> {
        self.step(self.disk.unregister())
    }
    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        self.step(self.disk.keys())
    }
    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        self.step(self.disk.reservation())
    }
    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        self.step(self.disk.reserve(key))
    }
    fn preempt_and_abort(&self, key: u64, victim: u64) -> BlockFuture<'_, ()> {
        self.step(self.disk.preempt_and_abort(key, victim))
    }
}

impl BlockDevice for Unpreemptable {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.0.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        self.0.write(offset, data, durability)
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        self.0.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.0.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.0.write_zeroes(offset, len, durability)
    }
    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }
}

impl Reservations for Unpreemptable {
    fn register(&self, key: u64) -> BlockFuture<'_, ()> {
        self.0.register(key)
    }
    fn unregister(&self) -> BlockFuture<'_, ()> {
        self.0.unregister()
    }
    fn keys(&self) -> BlockFuture<'_, BTreeSet<u64>> {
        self.0.keys()
    }
    fn reservation(&self) -> BlockFuture<'_, Option<Reservation>> {
        self.0.reservation()
    }
    fn reserve(&self, key: u64) -> BlockFuture<'_, ()> {
        self.0.reserve(key)
    }
    fn preempt_and_abort(&self, _key: u64, _victim: u64) -> BlockFuture<'_, ()> {
        Box::pin(async { Err(BlockError::new(BlockErrorKind::Unsupported, "preempt and abort")) })
    }
}

type Attempt = Pin<Box<dyn Future<Output = Result<(), FenceError>>>>;

/// A node with a claim of its own.
struct Contender {
    mine: FenceKey,
    disk: Arc<MemoryDisk>,
    fate: Arc<AtomicU8>,
    attempt: Option<Attempt>,
    outcome: Option<Result<(), FenceError>>,
    attempts_left: usize,
}

impl Contender {
    fn new(disk: MemoryDisk, epoch: u64, node: u16) -> Self {
        let mine = FenceKey::new(epoch, node).expect("an epoch");
        let (disk, fate) = (Arc::new(disk), Arc::new(AtomicU8::new(WORKS)));
        let mut made = Self { mine, disk, fate, attempt: None, outcome: None, attempts_left: 3 };
        made.begin();
        made
    }

    fn begin(&mut self) {
        let stepped = Stepped { disk: Arc::clone(&self.disk), fate: Arc::clone(&self.fate) };
        let mine = self.mine;
        self.attempts_left -= 1;
        self.attempt = Some(Box::pin(async move { fence(&stepped, mine).await }));
    }

    /// Goes one step on.
    fn step(&mut self) {
        let Some(attempt) = &mut self.attempt else { return };
        if let Poll::Ready(outcome) = attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            self.attempt = None;
            let again = matches!(outcome, Err(FenceError::Disk(_))) && self.attempts_left > 0;
            self.outcome = Some(outcome);
            if again {
                self.begin();
            }
        }
    }

    fn has_won(&self) -> bool {
        matches!(self.outcome, Some(Ok(())))
    }

    fn can_write(&self) -> bool {
        let data = IoBuf::zeroed(512).freeze();
        let mut write = self.disk.write(0, data, Durability::Durable);
        match write.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.is_ok(),
            Poll::Pending => panic!("memory does not wait"),
        }
    }
}

/// How the disk was before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Nobody,
    /// An owner of epoch 1 that has died, or has not yet noticed.
    Owner,
    /// The same, and it is the first contender's own earlier claim, over the same way.
    Own,
    /// Registrations of owners that are long gone, and nobody holds it.
    Rests,
}

fn now<T>(mut future: BlockFuture<'_, T>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.expect("memory"),
        Poll::Pending => panic!("memory does not wait"),
    }
}

/// Runs contenders of epochs 2, 3, … as `choose` says: it is given who can go on, and says who does and what happens to it.
fn contest(
    count: u16,
    before: Before,
    mut choose: impl FnMut(&[usize]) -> (usize, u8, bool),
) -> Vec<Contender> {
    let disk = MemoryDisk::new(4096, 512);
    let key = |epoch, node| FenceKey::new(epoch, node).expect("an epoch").get();
    let mut all: Vec<Contender> =
        (0..count).map(|n| Contender::new(disk.another_initiator(), u64::from(n) + 2, n + 1)).collect();
    let old = match before {
        Before::Owner => disk.another_initiator(),
        // The contender's own way; what was begun through it has ended, so nobody writes as the old owner.
        Before::Own => {
            now(all[0].disk.register(key(1, 1)));
            now(all[0].disk.reserve(key(1, 1)));
            disk.another_initiator()
        }
        Before::Nobody => disk.another_initiator(),
        Before::Rests => {
            for node in 20..23 {
                now(disk.another_initiator().register(key(1, node)));
            }
            disk.another_initiator()
        }
    };
    if before == Before::Owner {
        now(old.register(key(1, 9)));
        now(old.reserve(key(1, 9)));
        let mut owner = Contender::new(old, 1, 9);
        (owner.attempt, owner.outcome) = (None, Some(Ok(())));
        all.push(owner);
    }
    loop {
        let ready: Vec<usize> = (0..all.len()).filter(|index| all[*index].attempt.is_some()).collect();
        if ready.is_empty() {
            return all;
        }
        let (who, fate, dies) = choose(&ready);
        all[who].fate.store(fate, Ordering::Relaxed);
        if dies {
            all[who].attempt = None;
        } else {
            all[who].step();
        }
        // Whoever has won and can write is of the highest epoch that has won.
        let highest = all.iter().filter(|one| one.has_won()).map(|one| one.mine.epoch()).max();
        for one in all.iter().filter(|one| one.has_won()) {
            let late = Some(one.mine.epoch()) != highest;
            assert!(!(late && one.can_write()), "{} writes, and epoch {highest:?} has won", one.mine);
        }
    }
}

fn ends_well(all: &[Contender], context: &str) {
    let best = all.iter().max_by_key(|one| one.mine).expect("contenders");
    assert!(best.has_won(), "{context}: {} has not won: {:?}", best.mine, best.outcome);
    for one in all {
        let writes = one.can_write();
        assert_eq!(writes, one.mine == best.mine, "{context}: {} can write: {writes}", one.mine);
        if !one.has_won() {
            assert!(
                one.outcome.as_ref().is_some_and(|outcome| outcome.as_ref().is_err_and(FenceError::is_over))
            );
        }
    }
}

/// How often the turn changes while the one that has it could go on: with more, there are too many ways to go through.
const CHANGES: usize = 5;

/// Goes through all ways in which two contenders come between each other's steps up to [`CHANGES`] times.
#[test]
fn two_contenders_in_every_order() {
    for before in [Before::Nobody, Before::Owner, Before::Own] {
        // The choices of the last run, and how many there were at each place.
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut runs = 0_u64;
        loop {
            let (mut depth, mut changes, mut last) = (0, 0, None);
            let all = contest(2, before, |ready| {
                let stays = last.filter(|last| ready.contains(last));
                let mut ways: Vec<usize> = stays.into_iter().collect();
                if stays.is_none() || changes < CHANGES {
                    ways.extend(ready.iter().copied().filter(|who| Some(*who) != stays));
                }
                if depth == path.len() {
                    path.push((0, ways.len()));
                }
                let (choice, _) = path[depth];
                depth += 1;
                changes += usize::from(stays.is_some() && choice > 0);
                last = Some(ways[choice]);
                (ways[choice], WORKS, false)
            });
            ends_well(&all, &format!("{before:?}, {path:?}"));
            runs += 1;
            // The next way: the last choice that has an alternative.
            while path.last().is_some_and(|(choice, count)| choice + 1 == *count) {
                path.pop();
            }
            match path.last_mut() {
                Some(last) => last.0 += 1,
                None => break,
            }
        }
        assert!(runs > 1000, "{before:?}: {runs} ways");
    }
}

#[test]
fn three_and_four_contenders_in_many_orders() {
    let random = SeededEntropy::new(18);
    for run in 0..5_000_u64 {
        let before = [Before::Nobody, Before::Owner, Before::Own, Before::Rests][(run % 4) as usize];
        let count = if run % 3 == 0 { 4 } else { 3 };
        // Long turns, too: where one gets through while the others stand still.
        let turn = 1 + random.next_u64() % 6;
        let mut last = None;
        let all = contest(count, before, |ready| {
            let stays = last.filter(|last| ready.contains(last) && !random.next_u64().is_multiple_of(turn));
            let who = stays.unwrap_or_else(|| ready[(random.next_u64() % ready.len() as u64) as usize]);
            last = Some(who);
            (who, WORKS, false)
        });
        ends_well(&all, &format!("run {run}, {before:?}"));
    }
}

/// Answers that get lost, operations that do not arrive, nodes that die: nobody may win then, but never two.
#[test]
fn contenders_whose_answers_get_lost() {
    let random = SeededEntropy::new(81);
    let mut won = 0;
    for run in 0..5_000_u64 {
        let before = [Before::Nobody, Before::Owner, Before::Own, Before::Rests][(run % 4) as usize];
        let mut deaths = 1;
        let all = contest(2 + (run % 3) as u16, before, |ready| {
            let who = ready[(random.next_u64() % ready.len() as u64) as usize];
            let dice = random.next_u64() % 40;
            let fate = if dice < 3 {
                ANSWER_LOST
            } else if dice < 6 {
                NOT_DONE
            } else {
                WORKS
            };
            let dies = dice == 6 && deaths > 0;
            deaths -= u32::from(dies);
            (who, fate, dies)
        });
        won += u32::from(all.iter().any(|one| one.mine.epoch() > 1 && one.has_won()));
    }
    assert!(won > 2_000, "only {won} runs had a winner");
}

#[test]
fn keys_are_epochs_and_nodes() {
    let key = FenceKey::new(5, 3).expect("an epoch");
    assert_eq!((key.get(), key.epoch(), key.node()), (0x5_0003, 5, 3));
    assert_eq!(FenceKey::of(0x5_0003), key);
    assert_eq!((FenceKey::new(0, 1), FenceKey::new(1 << 48, 1)), (None, None));
    assert_eq!(key.to_string(), "epoch 5 of node 3 (key 0x0000000000050003)");
}

/// Two nodes with one epoch should not be. If they are, one of them at the most has the disk.
#[test]
fn one_epoch_is_one_owner() {
    let disk = MemoryDisk::new(4096, 512);
    let (first, second) = (disk.another_initiator(), disk.another_initiator());
    let owner = |node| FenceKey::new(7, node).expect("an epoch");
    futures_util::FutureExt::now_or_never(fence(&first, owner(1))).expect("no wait").expect("alone");
    let error = futures_util::FutureExt::now_or_never(fence(&second, owner(2))).expect("no wait");
    assert!(matches!(error, Err(FenceError::Superseded(later)) if later == owner(1)));
    // Again for the same owner.
    futures_util::FutureExt::now_or_never(fence(&first, owner(1))).expect("no wait").expect("its own");
}

/// The first owner of a disk has nobody to preempt, and would find out only when the next one cannot take it over.
#[test]
fn a_disk_that_cannot_preempt_is_not_fenced_by_its_first_owner_either() {
    let disk = Unpreemptable(MemoryDisk::new(4096, 512));
    let key = FenceKey::new(5, 3).expect("an epoch");
    let fenced = futures_util::FutureExt::now_or_never(fence(&disk, key)).expect("no wait");
    assert!(matches!(fenced, Err(FenceError::Unsupported)), "{fenced:?}");
    assert!(now(disk.0.keys()).is_empty() && now(disk.0.reservation()).is_none(), "nothing was changed");
    let looked = futures_util::FutureExt::now_or_never(can_fence(&disk)).expect("no wait");
    assert!(matches!(looked, Err(FenceError::Unsupported)), "{looked:?}");
}

/// What is tried changes nothing, whoever has the disk.
#[test]
fn trying_whether_a_disk_can_be_fenced_changes_nothing() {
    let disk = MemoryDisk::new(4096, 512);
    let key = FenceKey::new(5, 3).expect("an epoch");
    let other = disk.another_initiator();
    let can = |disk: &MemoryDisk| futures_util::FutureExt::now_or_never(can_fence(disk)).expect("no wait");
    can(&disk).expect("it can");
    futures_util::FutureExt::now_or_never(fence(&other, key)).expect("no wait").expect("nobody has it");
    for initiator in [&disk, &other] {
        can(initiator).expect("it can");
        assert_eq!(now(initiator.keys()), BTreeSet::from([key.get()]));
        assert_eq!(now(initiator.reservation()).map(|held| held.holder), Some(key.get()));
    }
}
