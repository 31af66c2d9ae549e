//! Reads, writes, unmaps, failures and dropped futures that interleave in every way: no reader ever sees stale bytes.
//!
//! The disk takes effect at any moment between an operation's beginning and its end, and takes its time before and after.
//! The oracle is that of an atomic register: a read may show what was written unless another write, begun after that one
//! ended, had ended or been seen before the read began. When all is quiet, the cache must show exactly what the disk has.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, MemoryDisk,
};
use futures_util::future::{join_all, select};
use shard_runtime::{finish_anyway, yield_now};
use sim::{Dice, on_shard};

use super::read;
use crate::{CachedDevice, PAGE, ReadAhead, ReadCache};

/// A disk whose operations take effect when the dice say. A write that is given up goes on, as in a kernel.
struct Racy(Arc<Medium>);

struct Medium {
    inner: MemoryDisk,
    dice: Dice,
}

impl Medium {
    async fn turns(&self) {
        for _ in 0..self.dice.below(8) {
            yield_now().await;
        }
    }

    fn fails(&self) -> Result<(), BlockError> {
        if self.dice.one_in(12) { Err(BlockError::new(BlockErrorKind::Io, "race")) } else { Ok(()) }
    }

    async fn write(&self, offset: u64, data: SharedBuf) -> Result<(), BlockError> {
        self.turns().await;
        // Half of it at one moment, half at another; or not at all, and then it fails.
        let half = (data.len() / 2).next_multiple_of(PAGE as usize);
        if !self.dice.one_in(16) {
            self.inner.write(offset, data.slice(0..half), Durability::Volatile).await?;
            self.turns().await;
        }
        self.fails()?;
        self.inner.write(offset, data, Durability::Volatile).await?;
        self.turns().await;
        Ok(())
    }
}

impl BlockDevice for Racy {
    fn geometry(&self) -> &Geometry {
        self.0.inner.geometry()
    }
    fn size(&self) -> u64 {
        self.0.inner.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.0.turns().await;
            let buf = self.0.inner.read(offset, buf).await?;
            self.0.turns().await;
            Ok(buf)
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, _: Durability) -> BlockFuture<'_, ()> {
        let medium = Arc::clone(&self.0);
        Box::pin(finish_anyway(async move { medium.write(offset, data).await }))
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async {
            self.0.turns().await;
            self.0.fails()
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.write_zeroes(offset, len, Durability::Volatile)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.write(offset, IoBuf::zeroed(len as usize).freeze(), durability)
    }
}

const PAGES: u64 = 40;

#[derive(Clone, Copy)]
struct Write {
    value: u8,
    begun: u64,
    /// When its caller knew that it had ended; none for ones that were given up.
    ended: Option<u64>,
    good: bool,
    /// When a read that showed it had ended: who reads later must not see what was there before it.
    seen: Option<u64>,
}

#[derive(Default)]
struct History {
    now: u64,
    pages: Vec<Vec<Write>>,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn saw(&mut self, page: u64, value: u8) {
        let now = self.tick();
        let mut writes = self.pages[page as usize].iter_mut().filter(|write| write.value == value);
        // Zeros are written more than once: then nobody knows which were seen.
        if let (Some(write), None) = (writes.next(), writes.next()) {
            write.seen.get_or_insert(now);
        }
    }

    fn is_right(&self, page: u64, value: u8, begun: u64) -> bool {
        let writes = &self.pages[page as usize];
        let shows = |write: &Write| {
            let after = |other: &Write| {
                let made = if other.good { other.ended } else { None };
                write.ended.is_some_and(|ended| other.begun > ended)
                    && (made.is_some_and(|made| made < begun) || other.seen.is_some_and(|seen| seen < begun))
            };
            write.value == value && !writes.iter().any(after)
        };
        writes.iter().any(shows)
    }
}

async fn client(device: Rc<CachedDevice>, history: Rc<RefCell<History>>, dice: Dice, next: Rc<RefCell<u8>>) {
    for _ in 0..6 {
        let first = dice.below(PAGES);
        let count = 1 + dice.below(6.min(PAGES - first));
        let (offset, len) = (first * PAGE, count * PAGE);
        let begun = history.borrow_mut().tick();
        match dice.below(10) {
            0..5 => {
                let buf = read(&*device, offset, len as usize).await;
                for (page, content) in (first..).zip(buf.chunks(PAGE as usize)) {
                    let value = content[0];
                    assert!(content.iter().all(|byte| *byte == value), "page {page} is torn");
                    assert!(history.borrow().is_right(page, value, begun), "page {page} shows {value}");
                    history.borrow_mut().saw(page, value);
                }
            }
            5..9 => {
                let value = match dice.below(4) {
                    0 => 0,
                    _ => {
                        let mut next = next.borrow_mut();
                        *next = next.wrapping_add(1).max(1);
                        *next
                    }
                };
                let mine = Write { value, begun, ended: None, good: false, seen: None };
                let mut numbers = Vec::new();
                for page in first..first + count {
                    let pages = &mut history.borrow_mut().pages[page as usize];
                    numbers.push(pages.len());
                    pages.push(mine);
                }
                let data = IoBuf::copy_from(&vec![value; len as usize]).freeze();
                let write = match (value, dice.one_in(2)) {
                    (0, true) => device.unmap(offset, len),
                    (0, false) => device.write_zeroes(offset, len, Durability::Volatile),
                    _ => device.write(offset, data, Durability::Durable),
                };
                let good = if dice.one_in(4) {
                    // Given up after some turns: it goes on, and nobody knows for how long.
                    let patience = Box::pin(async {
                        for _ in 0..dice.below(10) {
                            yield_now().await;
                        }
                    });
                    match select(write, patience).await {
                        futures_util::future::Either::Left((result, _)) => Some(result.is_ok()),
                        futures_util::future::Either::Right(_) => None,
                    }
                } else {
                    Some(write.await.is_ok())
                };
                let mut history = history.borrow_mut();
                let ended = history.tick();
                if let Some(good) = good {
                    for (page, number) in (first..).zip(numbers) {
                        let write = &mut history.pages[page as usize][number];
                        (write.ended, write.good) = (Some(ended), good);
                    }
                }
            }
            _ if dice.one_in(4) => device.set_on(dice.one_in(2)),
            _ => drop(device.flush().await),
        }
    }
}

#[test]
fn no_interleaving_shows_stale_bytes() {
    let mut hits = 0;
    for seed in 0..120 {
        let done = on_shard(async move {
            let dice = Dice::new(seed);
            // Small enough to evict now and then, and everything lies in few stripes of few shards.
            let cache = ReadCache::with_shards(256 << 10, 2);
            let disk = Arc::new(Medium { inner: MemoryDisk::new(1 << 20, 4096), dice: dice.fork() });
            let device = CachedDevice::new(&cache, Arc::new(Racy(Arc::clone(&disk))), "racy");
            device.set_read_ahead(
                [ReadAhead::None, ReadAhead::Adaptive, ReadAhead::Fixed(32768)][seed as usize % 3],
            );
            let device = Rc::new(device);
            let first = Write { value: 0, begun: 0, ended: Some(0), good: true, seen: None };
            let pages = vec![vec![first]; PAGES as usize];
            let history = Rc::new(RefCell::new(History { now: 0, pages }));
            let next = Rc::new(RefCell::new(0));
            for round in 0..12 {
                device.set_on(true);
                let clients =
                    (0..8).map(|_| client(device.clone(), history.clone(), dice.fork(), next.clone()));
                join_all(clients).await;
                for _ in 0..100 {
                    yield_now().await;
                }
                super::check(&cache);
                for page in 0..PAGES {
                    let shown = read(&*device, page * PAGE, PAGE as usize).await;
                    let real = read(&disk.inner, page * PAGE, PAGE as usize).await;
                    assert_eq!(shown[..], real[..], "seed {seed}: page {page} after round {round}");
                    // What is known now is where the next round begins.
                    let mut history = history.borrow_mut();
                    let now = history.tick();
                    let known =
                        Write { value: real[0], begun: now, ended: Some(now), good: true, seen: None };
                    history.pages[page as usize] = vec![known];
                }
            }
            device.stats().counters().hits
        });
        hits += done.expect("event loop");
    }
    assert!(hits > 10_000, "{hits} hits: too few to show anything");
}

/// The same on real threads: what a thread has written, and been told so, it reads.
#[test]
fn threads_see_their_own_writes_and_no_torn_pages() {
    let cache = ReadCache::with_shards(1 << 20, 4);
    let disk: Device = Arc::new(MemoryDisk::new(4 << 20, 4096));
    let device = Arc::new(CachedDevice::new(&cache, disk, "disk"));
    let threads: Vec<_> = (0..4_u64)
        .map(|number| {
            let device = Arc::clone(&device);
            std::thread::spawn(move || {
                let dice = Dice::new(number);
                for turn in 0..4000_u64 {
                    // Own pages lie among the others', in the same runs.
                    let page = dice.below(256) * 4 + number;
                    let value = (turn % 250) as u8 + 1;
                    shard_runtime::block_on(async {
                        let data = IoBuf::copy_from(&[value; PAGE as usize]).freeze();
                        device.write(page * PAGE, data, Durability::Volatile).await.expect("write");
                        assert_eq!(
                            read(&*device, page * PAGE, PAGE as usize).await[..],
                            [value; PAGE as usize]
                        );
                        let around = read(&*device, page / 16 * 16 * PAGE, 16 * PAGE as usize).await;
                        assert!(
                            around.chunks(PAGE as usize).all(|page| page.iter().all(|byte| *byte == page[0]))
                        );
                    });
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("thread"));
    super::check(&cache);
}
