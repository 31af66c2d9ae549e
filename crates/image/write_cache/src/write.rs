//! What is written and discarded, and how room is found for it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind};
use tokio::time::Instant;

use crate::block::{BLOCK, BLOCK_COST, Block, BlockState, Freed, PAGE, SLAB, pages, slab_cost};
use crate::budget::{Ability, Short, Taken};
use crate::cache::{Inner, Part, parts};
use crate::status::add;

/// How often a write that waits for room looks whether the overflow file has some again.
const TRY_EVERY: Duration = Duration::from_millis(250);
/// How long a write waits for other caches, all together, to bring something to their overflow files: a batch takes a disk less.
const OTHERS_TAKE: Duration = Duration::from_secs(1);
/// How long it waits for its own cache to do so, before others have their turn.
const OWN_TAKES: Duration = Duration::from_secs(1);
/// Slabs that are changed before others of the shard have their turn: a whole disk can be discarded by one command.
const TURN: usize = 1024;
/// Entries of the order of use that lead nowhere are borne up to so many, or as many as there are blocks.
const STALE: usize = 1024;

/// What a change of a slab came to.
enum Put {
    Done,
    /// So many bytes of the budget are needed for it.
    Needs(u64),
}

impl Inner {
    /// Writes a range that lies in the disk.
    pub(crate) async fn write(self: &Arc<Self>, offset: u64, data: SharedBuf) -> Result<(), BlockError> {
        let len = data.len() as u64;
        self.write_bytes(offset, data).await?;
        add(&self.counts.absorbed_writes, 1);
        add(&self.counts.absorbed, len);
        Ok(())
    }

    async fn write_bytes(self: &Arc<Self>, offset: u64, data: SharedBuf) -> Result<(), BlockError> {
        let len = data.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let (start, end) = (offset / PAGE * PAGE, (offset + len).next_multiple_of(PAGE));
        let _alone = self.locks.lock(start, end - start).await;
        let data = if end - start == len { data } else { self.widen(offset, &data).await? };
        self.put(start, &data, (offset, len)).await
    }

    /// The whole pages that a write touches, with what they have around it.
    async fn widen(&self, offset: u64, data: &[u8]) -> Result<SharedBuf, BlockError> {
        let end = offset + data.len() as u64;
        let (first, last) = (offset / PAGE * PAGE, end.next_multiple_of(PAGE));
        let mut whole = IoBuf::zeroed((last - first) as usize);
        let head = (offset > first).then_some(first);
        let tail = (end < last).then_some(last - PAGE).filter(|tail| head != Some(*tail));
        for page in head.into_iter().chain(tail) {
            // The last page may reach beyond the end of the disk.
            let there = PAGE.min(self.size - page);
            let before = self.read(page, IoBuf::new(there as usize)).await?;
            let at = (page - first) as usize;
            whole[at..at + before.len()].copy_from_slice(&before);
        }
        whole[(offset - first) as usize..][..data.len()].copy_from_slice(data);
        Ok(whole.freeze())
    }

    /// Puts whole pages into memory; `told` is the range that was asked for.
    async fn put(self: &Arc<Self>, start: u64, data: &[u8], told: (u64, u64)) -> Result<(), BlockError> {
        let mut done = 0;
        for part in parts(start, data.len() as u64) {
            let bytes = &data[done as usize..(done + part.len) as usize];
            self.each(part, told, |taken| self.put_part(part, bytes, taken)).await?;
            done += part.len;
        }
        Ok(())
    }

    /// Carries a change of one slab out, with as much of the budget as it needs.
    async fn each(
        self: &Arc<Self>,
        part: Part,
        told: (u64, u64),
        mut change: impl FnMut(Option<&mut Taken<'_>>) -> Put,
    ) -> Result<(), BlockError> {
        debug_assert!(part.at.is_multiple_of(PAGE) && part.len.is_multiple_of(PAGE));
        let Put::Needs(mut needs) = change(None) else { return Ok(()) };
        loop {
            // What was taken and is too little now, as the slab has left memory meanwhile, is given back first.
            let mut taken = self.room_for(needs, told).await?;
            match change(Some(&mut taken)) {
                Put::Done => return Ok(()),
                Put::Needs(more) => needs = more,
            }
        }
    }

    fn put_part(&self, part: Part, bytes: &[u8], taken: Option<&mut Taken<'_>>) -> Put {
        self.change(part, false, taken, |block, state, freed| {
            let is_new = state.write(part.slab, part.at, bytes, freed);
            let now = self.now();
            block.touch(now);
            self.in_ram.fetch_add(is_new.into(), Ordering::Relaxed);
            if is_new && state.queued == 0 && self.overflow.is_some() {
                state.queued = now;
                self.order.lock().push(Reverse((now, block.number)));
            }
        })
    }

    /// Changes a slab, whose pages nobody else changes now, if `taken` is enough for it.
    fn change(
        &self,
        part: Part,
        zero: bool,
        taken: Option<&mut Taken<'_>>,
        change: impl FnOnce(&Block, &mut BlockState, &mut Freed),
    ) -> Put {
        let mut taken = taken;
        loop {
            let has = taken.as_ref().map_or(0, |taken| taken.bytes());
            let known = {
                let mut map = self.map.lock();
                match map.blocks.get(&part.block) {
                    Some(block) => Arc::clone(block),
                    None if BLOCK_COST + slab_cost(zero) > has => {
                        return Put::Needs(BLOCK_COST + slab_cost(zero));
                    }
                    None => {
                        let block = Arc::new(Block::new(part.block, map.zeros.contains(part.block)));
                        map.blocks.insert(part.block, Arc::clone(&block));
                        if let Some(taken) = &mut taken {
                            taken.keep(BLOCK_COST);
                        }
                        block
                    }
                }
            };
            let mut freed = Freed::default();
            {
                let mut state = known.state.lock();
                if state.is_gone {
                    continue;
                }
                let needs = state.lacks(part.slab, zero);
                if needs > taken.as_ref().map_or(0, |taken| taken.bytes()) {
                    return Put::Needs(needs);
                }
                if let Some(taken) = taken {
                    taken.keep(needs);
                }
                change(&known, &mut state, &mut freed);
            }
            self.free(freed);
            return Put::Done;
        }
    }

    /// Gives back what a change has freed.
    pub(crate) fn free(&self, freed: Freed) {
        if let Some(overflow) = &self.overflow {
            overflow.give_back(&freed.slots);
        }
        self.in_ram.fetch_sub(freed.slabs, Ordering::Relaxed);
        self.share.give(freed.bytes);
    }

    /// Makes a range that lies in the disk read as zeros, and frees what it held.
    pub(crate) async fn discard(self: &Arc<Self>, offset: u64, len: u64) -> Result<(), BlockError> {
        if len == 0 {
            return Ok(());
        }
        let end = offset + len;
        // The last page of the disk is whole when the disk ends in it.
        let whole_end = if end == self.size { end.next_multiple_of(PAGE) } else { end };
        let (first, last) = (offset.next_multiple_of(PAGE), whole_end / PAGE * PAGE);
        if first >= last {
            return self.zero_edge(offset, end).await;
        }
        self.zero_edge(offset, first.min(end)).await?;
        self.discard_pages(first, last, (offset, len)).await?;
        self.zero_edge(last.min(end), end).await?;
        add(&self.counts.discarded, len);
        Ok(())
    }

    /// Zeros a part of a page.
    async fn zero_edge(self: &Arc<Self>, from: u64, until: u64) -> Result<(), BlockError> {
        // Without pages between them, the edges of a range may lie in two.
        let middle = from.next_multiple_of(PAGE).clamp(from, until);
        for (from, until) in [(from, middle), (middle, until)] {
            if from < until {
                self.write_bytes(from, IoBuf::zeroed((until - from) as usize).freeze()).await?;
            }
        }
        Ok(())
    }

    async fn discard_pages(
        self: &Arc<Self>,
        first: u64,
        last: u64,
        told: (u64, u64),
    ) -> Result<(), BlockError> {
        let _alone = self.locks.lock(first, last - first).await;
        // The last block is whole when the disk ends in it.
        let covered = if last >= self.size { last.next_multiple_of(BLOCK) } else { last };
        let (from, until) = (first.div_ceil(BLOCK), covered / BLOCK);
        if from < until {
            self.discard_blocks(from, until).await;
        }
        let (head, tail) = if from < until {
            ((first, from * BLOCK), ((until * BLOCK).min(last), last))
        } else {
            ((first, last), (last, last))
        };
        for (start, end) in [head, tail] {
            for part in parts(start, end - start) {
                // Zeros that nothing is held over stay so without an entry.
                if self.block(part.block).is_err_and(|is_zero| is_zero) {
                    continue;
                }
                self.each(part, told, |taken| self.discard_part(part, taken)).await?;
            }
        }
        Ok(())
    }

    fn discard_part(&self, part: Part, taken: Option<&mut Taken<'_>>) -> Put {
        let mask = pages(part.at / PAGE, (part.at + part.len) / PAGE);
        let mut is_all_zero = false;
        let put = self.change(part, true, taken, |_, state, freed| {
            state.discard(part.slab, mask, freed);
            is_all_zero = state.is_all_zero();
        });
        if is_all_zero {
            self.forget_zeros(part.block);
        }
        put
    }

    /// Takes a block out of the index of which all pages are discarded still.
    fn forget_zeros(&self, number: u64) {
        let mut freed = Freed::default();
        {
            let mut map = self.map.lock();
            let Some(block) = map.blocks.get(&number).cloned() else { return };
            let mut state = block.state.lock();
            if !state.is_all_zero() {
                return;
            }
            state.discard_all(&mut freed);
            map.blocks.remove(&number);
            map.zeros.add(number, number + 1);
        }
        self.free(freed);
        self.tidy_order(1);
    }

    /// Discards whole blocks, which nobody else changes now.
    async fn discard_blocks(&self, from: u64, until: u64) {
        let mut done = from;
        while done < until {
            let mut freed = Freed::default();
            let held: Vec<u64> = {
                let mut map = self.map.lock();
                let held: Vec<u64> =
                    map.blocks.range(done..until).take(TURN).map(|(number, _)| *number).collect();
                let end = if held.len() < TURN { until } else { held.last().map_or(until, |last| last + 1) };
                map.zeros.add(done, end);
                for block in held.iter().filter_map(|number| map.blocks.remove(number)) {
                    // Who has found it before reads zeros in it.
                    block.state.lock().discard_all(&mut freed);
                }
                done = end;
                held
            };
            self.free(freed);
            self.tidy_order(held.len());
            if done < until {
                shard_runtime::yield_now().await;
            }
        }
    }

    /// Blocks have left the index: now and then what the order of use has of such ones goes, too.
    fn tidy_order(&self, left: usize) {
        let stale = self.stale.fetch_add(left, Ordering::Relaxed) + left;
        let map = self.map.lock();
        if self.overflow.is_none() || stale < STALE.max(map.blocks.len()) {
            return;
        }
        self.stale.store(0, Ordering::Relaxed);
        let queued: Vec<Reverse<(u64, u64)>> = std::mem::take(&mut *self.order.lock()).into_vec();
        let counts = |entry: &Reverse<(u64, u64)>| {
            let Reverse((queued, number)) = entry;
            map.blocks.get(number).is_some_and(|block| block.state.lock().queued == *queued)
        };
        let kept: Vec<_> = queued.into_iter().filter(counts).collect();
        self.order.lock().extend(kept);
    }

    /// Takes so much of the budget, as soon as it is there.
    async fn room_for(self: &Arc<Self>, bytes: u64, told: (u64, u64)) -> Result<Taken<'_>, BlockError> {
        let until = Instant::now() + self.patience;
        let mut has_waited = false;
        loop {
            let freed = self.share.freed();
            self.still()?;
            let short = match self.share.take(bytes) {
                Ok(taken) => {
                    let used = self.share.used();
                    self.counts.ram_high.fetch_max(used, Ordering::Relaxed);
                    self.look_ahead();
                    return Ok(taken);
                }
                Err(short) => short,
            };
            if !std::mem::replace(&mut has_waited, true) {
                add(&self.counts.waited, 1);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                add(&self.counts.refused, 1);
                let why = self.why_full(short);
                return Err(BlockError::new(BlockErrorKind::NoSpace, "find room in the write cache")
                    .at(told.0, told.1)
                    .because(why));
            }
            // What goes to a file takes its time, or never comes to an end.
            if shard_runtime::timeout(left, self.make_room(short)).await == Some(true) {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            let _ = shard_runtime::timeout(TRY_EVERY.min(left), freed).await;
        }
    }

    /// What the error of a write says that finds no room.
    fn why_full(&self, short: Short) -> String {
        let memory = match short {
            Short::Own => "all the memory that it may have is in use",
            Short::All => "the memory of all write caches of the node is in use",
        };
        match (&self.overflow, self.problem.lock().as_ref().map(|problem| problem.why.clone())) {
            (None, _) => format!("{memory}, and it has no overflow file"),
            (Some(_), Some(problem)) => format!("{memory}, and nothing goes to its overflow file: {problem}"),
            (Some(_), None) if short == Short::All => format!("{memory}, and others hold it"),
            (Some(_), None) => format!(
                "{memory}: {} of {} bytes by what it knows of the blocks that it has, the rest by data that its overflow file has not taken in time",
                self.index_bytes(),
                self.ram_limit
            ),
        }
    }

    /// Has blocks leave memory before there is none left, in the background.
    fn look_ahead(self: &Arc<Self>) {
        let wanted = self.overflow.is_some() && shard_runtime::can_detach() && self.share.is_tight();
        if !wanted || self.ahead.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = Arc::clone(self);
        shard_runtime::detach(async move {
            while !inner.has_ended()
                && inner.share.is_tight()
                && inner.evict_here().await.is_ok_and(|freed| freed > 0)
            {}
            inner.ahead.store(false, Ordering::Release);
        });
    }

    /// Has something leave memory, here or where most is. Whether something did.
    ///
    /// What others have lies on volumes of theirs: one that is busy is passed over, one whose last try failed has its turn after all the rest, and
    /// all of them are waited for no longer than a moment. What one has begun goes on, and tells those who wait when it has freed something.
    async fn make_room(self: &Arc<Self>, short: Short) -> bool {
        let heaviest = if short == Short::All { self.share.heaviest() } else { Vec::new() };
        let until = Instant::now() + OTHERS_TAKE;
        let own = async || shard_runtime::timeout(OWN_TAKES, self.evict_here()).await.and_then(Result::ok);
        let mut has_tried = false;
        for wanted in [Ability::Ready, Ability::Failed] {
            for (id, other) in &heaviest {
                let freed = if *id == self.id {
                    if std::mem::replace(&mut has_tried, true) {
                        continue;
                    }
                    own().await
                } else if let Some(other) = other.upgrade().filter(|other| other.ability() == wanted) {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        continue;
                    }
                    shard_runtime::timeout(left, other.evict()).await.and_then(Result::ok)
                } else {
                    None
                };
                if freed.is_some_and(|freed| freed > 0) {
                    return true;
                }
            }
            let is_last = self.overflow.is_some() && !std::mem::replace(&mut has_tried, true);
            if is_last && own().await.is_some_and(|freed| freed > 0) {
                return true;
            }
        }
        false
    }
}

const _: () = assert!(BLOCK.is_multiple_of(SLAB) && SLAB.is_multiple_of(PAGE));
