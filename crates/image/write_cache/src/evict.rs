//! How blocks leave memory for the overflow file.
//!
//! ```text
//!   the least recently used blocks, up to 32 slabs ──► slots for them, in one run if there is one
//!     ──► what the file has of these slabs is read ──► what memory has is copied over it ──► one write for each run
//!     ──► pages that nobody changed meanwhile are in the file, their memory is free
//! ```
//! Who writes, reads or discards waits for none of it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, BlockFuture};
use shard_runtime::finish_anyway;

use crate::block::{BLOCK_SLABS, Block, Freed, PAGE, SLAB};
use crate::budget::{Ability, Evict};
use crate::cache::{Inner, Problem};
use crate::overflow::Overflow;
use crate::status::add;

/// A slab that is to leave.
struct Leaving {
    block: Arc<Block>,
    slab: u64,
    slot: u64,
    /// The pages that its copy has.
    pages: u16,
}

impl Evict for Inner {
    fn evict(self: Arc<Self>) -> BlockFuture<'static, u64> {
        Box::pin(async move { self.evict_here().await })
    }

    fn ability(&self) -> Ability {
        match self.leaving.try_lock() {
            Err(_) => Ability::Busy,
            Ok(_) if self.problem.lock().is_some() => Ability::Failed,
            Ok(_) => Ability::Ready,
        }
    }
}

impl Inner {
    /// Brings up to 2 MiB of what was used least recently to the overflow file. Bytes of memory that are free by it. Comes to its end when nobody
    /// waits for it: a slot is not to be written to later than it is known to be. Whoever only waits for its turn may leave.
    pub(crate) async fn evict_here(self: &Arc<Self>) -> Result<u64, BlockError> {
        let one = Arc::clone(&self.leaving).lock_owned().await;
        let inner = Arc::clone(self);
        let done = finish_anyway(async move {
            let _one = one;
            let Some(overflow) = inner.overflow.as_ref().filter(|_| !inner.has_ended()) else { return Ok(0) };
            let (done, is_limit) = inner.spill(overflow).await;
            if inner.has_ended() {
                return Ok(0);
            }
            let told = match &done {
                Ok(0) => return done,
                Ok(_) => None,
                Err(error) => Some(Problem { why: error.to_string(), is_limit }),
            };
            let before = std::mem::replace(&mut *inner.problem.lock(), told.clone());
            if let (Some(told), None) = (&told, &before) {
                tracing::warn!(problem = told.why, "a write cache cannot use its overflow file");
            } else if told.is_none() && before.is_some() {
                tracing::info!("a write cache uses its overflow file again");
            }
            done
        });
        done.await
    }

    /// Blocks that were used least recently, with their slabs in memory: up to `most` of them.
    fn least_used(&self, most: u64) -> Vec<(Arc<Block>, Vec<u64>)> {
        let (mut chosen, mut count) = (Vec::new(), 0);
        while count < most {
            let Some(Reverse((queued, number))) = self.order.lock().pop() else { break };
            let Ok(block) = self.block(number) else { continue };
            {
                let mut state = block.state.lock();
                if state.queued != queued {
                    continue;
                }
                let used = block.used();
                if used > queued {
                    // Known now when it was used last; the others in the order were not used before what they are there by.
                    state.queued = used;
                    self.order.lock().push(Reverse((used, number)));
                    continue;
                }
                state.queued = 0;
            }
            let slabs: Vec<u64> = block.state.lock().in_memory().take((most - count) as usize).collect();
            count += slabs.len() as u64;
            chosen.push((block, slabs));
        }
        chosen
    }

    /// Puts a block back that has something in memory still.
    fn queue_again(&self, block: &Block) {
        let mut state = block.state.lock();
        if state.queued == 0 && !state.is_gone && state.is_in_memory() {
            let used = block.used().max(1);
            state.queued = used;
            self.order.lock().push(Reverse((used, block.number)));
        }
    }

    /// Bytes of memory that are free by it; and whether nothing went because the file is as large as it may be.
    async fn spill(&self, overflow: &Overflow) -> (Result<u64, BlockError>, bool) {
        let chosen = self.least_used(BLOCK_SLABS);
        let count: usize = chosen.iter().map(|(_, slabs)| slabs.len()).sum();
        let slots: Vec<u64> =
            overflow.take(count as u64).into_iter().flat_map(|(start, end)| start..end).collect();
        let mut free = slots.into_iter().peekable();
        let full = count > 0 && free.peek().is_none();
        let mut failed =
            full.then(|| BlockError::new(BlockErrorKind::NoSpace, "make the overflow file larger"));
        // What is read below is not used for others meanwhile.
        let _reading = overflow.reading();
        let mut leaving: Vec<Leaving> = Vec::with_capacity(count);
        let mut copies = IoBuf::zeroed(count * SLAB as usize);
        for (block, slab) in
            chosen.iter().flat_map(|(block, slabs)| slabs.iter().map(move |slab| (block, *slab)))
        {
            if free.peek().is_none() {
                break;
            }
            let copy = &mut copies[leaving.len() * SLAB as usize..][..SLAB as usize];
            let read = match self.read_spilled(overflow, block, slab, copy).await {
                Ok(read) => read,
                Err(error) => {
                    // It stays in memory, and others go.
                    failed = Some(error);
                    block.touch(self.now());
                    continue;
                }
            };
            if let Some(pages) = block.state.lock().leave(slab, read, copy)
                && let Some(slot) = free.next()
            {
                leaving.push(Leaving { block: Arc::clone(block), slab, slot, pages });
            } else {
                copy.fill(0);
            }
        }
        let unused: Vec<(u64, u64)> = free.map(|slot| (slot, slot + 1)).collect();
        overflow.never_used(&unused);
        copies.truncate(leaving.len() * SLAB as usize);
        let copies = copies.freeze();
        let (mut freed, mut done) = (0, 0);
        while done < leaving.len() {
            let follow = leaving[done..].windows(2).take_while(|pair| pair[1].slot == pair[0].slot + 1);
            let end = done + follow.count() + 1;
            let data = copies.slice(done * SLAB as usize..end * SLAB as usize);
            match self.write_run(overflow, &leaving[done..end], data).await {
                Ok(more) => freed += more,
                Err(error) => failed = Some(error),
            }
            done = end;
        }
        for (block, _) in &chosen {
            self.queue_again(block);
        }
        match failed {
            Some(error) if freed == 0 => (Err(error), full),
            _ => (Ok(freed), false),
        }
    }

    /// Puts what the overflow file has of a slab that is in memory, too, into its copy, so that what is written there next has all of it. Which
    /// pages that is.
    async fn read_spilled(
        &self,
        overflow: &Overflow,
        block: &Block,
        slab: u64,
        copy: &mut [u8],
    ) -> Result<u16, BlockError> {
        let spilled = block.state.lock().spilled(slab);
        let Some((slot, pages)) = spilled else { return Ok(0) };
        let (first, end) = (u64::from(pages.trailing_zeros()), 16 - u64::from(pages.leading_zeros()));
        let read = overflow.read(slot, first * PAGE, (end - first) * PAGE).await?;
        copy[(first * PAGE) as usize..(end * PAGE) as usize].copy_from_slice(&read);
        Ok(pages)
    }

    /// Writes slabs to slots that follow each other. Bytes that are free by it.
    async fn write_run(
        &self,
        overflow: &Overflow,
        run: &[Leaving],
        data: SharedBuf,
    ) -> Result<u64, BlockError> {
        let first = run.first().map_or(0, |leaving| leaving.slot);
        let len = data.len() as u64;
        let written = overflow.write(first, data).await;
        let mut free = 0;
        for Leaving { block, slab, slot, pages } in run {
            let mut freed = Freed::default();
            {
                let mut state = block.state.lock();
                match &written {
                    Ok(()) => state.left(*slab, *pages, *slot as u32, &mut freed),
                    Err(_) => state.stay(*slab, &mut freed),
                }
            }
            free += freed.bytes;
            self.free(freed);
        }
        match written {
            Ok(()) => {
                add(&self.counts.overflow_written, len);
                self.counts.overflow_writes.fetch_add(1, Ordering::Relaxed);
                Ok(free)
            }
            Err(error) => {
                overflow.never_used(&[(first, first + run.len() as u64)]);
                Err(error)
            }
        }
    }
}
