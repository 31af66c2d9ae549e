//! Reading when the first attempt did not give the right bytes: every copy, then parity, block by block.
//!
//! Done under the lock of the range, so that what is compared does not change meanwhile: a mismatch that is
//! seen without the lock may be a write under way, one that is seen here is damage. What was damaged is
//! written anew from what was right.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::join_all;
use pool_format::{BLOCK, SUMS_PER_PAGE};
use pool_layout::{Piece, parity};
use shard_runtime::finish_anyway;

use crate::at::At;
use crate::core::Space;
use crate::generations::Age;
use crate::page::PAGE_SPAN;
use crate::pages::{pages_on_disk, read_page_and_age};
use crate::row::{Column, CopyState, Place, Row};
use crate::sums::page_at;

/// Bytes of a block in memory.
const BYTES: usize = BLOCK as usize;

/// A part of a column as far as it is known.
pub(crate) struct Content {
    pub(crate) data: IoBuf,
    /// For each block whether `data` has it.
    pub(crate) have: Vec<bool>,
}

impl Content {
    pub(crate) fn nothing(len: u64) -> Self {
        Self { data: IoBuf::new(len as usize), have: vec![false; (len / BLOCK) as usize] }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.have.iter().all(|have| *have)
    }

    pub(crate) fn block(&self, index: usize) -> Option<&[u8]> {
        let have = self.have.get(index).copied().unwrap_or(false);
        self.data.get(index * BYTES..(index + 1) * BYTES).filter(|_| have)
    }

    pub(crate) fn put(&mut self, index: usize, block: &[u8]) {
        if let Some(place) = self.data.get_mut(index * BYTES..(index + 1) * BYTES) {
            place.copy_from_slice(block);
            self.have[index] = true;
        }
    }
}

/// Blocks of a copy that could not be read, or are not what was written.
pub(crate) struct Bad {
    pub(crate) copy: Arc<CopyState>,
    place: Place,
    blocks: Vec<bool>,
    /// Those of them that are what the copy's own checksums say, which are as new as the others': see [`disputed`].
    pub(crate) disputed: Vec<u64>,
}

impl Bad {
    /// How many blocks there are.
    pub(crate) fn count(&self) -> u64 {
        self.blocks.iter().filter(|bad| **bad).count() as u64
    }
}

/// Reads a piece of a space from whatever holds it, and heals what was found damaged.
pub(crate) async fn read(space: Arc<Space>, piece: Piece) -> Result<IoBuf, BlockError> {
    let work = async move {
        let core = space.core()?;
        let Some(row) = space.row(piece.row) else { return Ok(IoBuf::zeroed(piece.len as usize)) };
        let place = Place { space: space.id(), row: piece.row, column: piece.column };
        let at = At::new(&core, &space, &row, place);
        let _range = at.group().locks.lock(piece.offset, piece.len).await;
        if at.group().awaited.load(Ordering::Acquire) & at.regions(piece.offset, piece.len) != 0 {
            return Err(row.awaits("read a stripe that waits for lost disks"));
        }
        let mut bad = Vec::new();
        let content = read_column(at, piece.offset, piece.len, &[], &mut bad).await;
        if !bad.is_empty() {
            heal(at, piece.offset, &content, &bad).await;
        }
        if content.is_complete() {
            return Ok(content.data);
        }
        let wrong =
            if bad.is_empty() { "read: no good copy is left" } else { "read: no intact copy is left" };
        Err(BlockError::new(loss_of(&row), wrong).at(piece.offset, piece.len))
    };
    // What heals must not be left half-way: the range would be free while an older block is on its way to a disk.
    finish_anyway(work).await
}

/// What it means that a part of a row cannot be read: what is not here may come back with its disk, and only what all disks are
/// here for is lost.
pub(crate) fn loss_of(row: &Row) -> BlockErrorKind {
    let is_away = |column: &Column| column.copies().iter().any(|copy| !copy.disk.is_online());
    if row.columns.iter().any(is_away) { BlockErrorKind::Gone } else { BlockErrorKind::Media }
}

/// Reads a part of a column under its lock: from its copies, and what these do not have from the rest of the row.
/// `except` are copies that are not asked. Damage is put in `bad`.
pub(crate) async fn read_column(
    at: At<'_>,
    offset: u64,
    len: u64,
    except: &[Arc<CopyState>],
    bad: &mut Vec<Bad>,
) -> Content {
    let mut content = from_copies(at, offset, len, except, bad).await;
    if !content.is_complete() && at.row.shape.parity > 0 {
        solve(at, offset, &mut content, except, bad, Proof::IfThereIs).await;
    }
    content
}

/// What one copy of a column holds.
pub(crate) async fn from_one_copy(
    at: At<'_>,
    offset: u64,
    len: u64,
    copy: &Arc<CopyState>,
    bad: &mut Vec<Bad>,
) -> Content {
    let data = match copy.disk.read(copy.start + offset, IoBuf::new(len as usize)).await {
        Ok(data) => data,
        Err(error) => {
            if error.kind() != BlockErrorKind::Gone {
                let blocks = vec![true; (len / BLOCK) as usize];
                bad.push(Bad { copy: Arc::clone(copy), place: at.place, blocks, disputed: Vec::new() });
            }
            return Content::nothing(len);
        }
    };
    let mut wrong = mismatches(at, offset, &data).await;
    // The disk has lost writes here, data and checksums, and nobody has said yet which.
    for (wrong, number) in wrong.iter_mut().zip(offset / BLOCK..) {
        *wrong |= lacks_writes(at, number * BLOCK).await;
    }
    let count = wrong.iter().filter(|wrong| **wrong).count();
    let have = wrong.iter().map(|wrong| !wrong).collect();
    if count > 0 {
        let seen = copy.disk.checksum_errors.fetch_add(count as u64, Ordering::Relaxed);
        // The first, and then ever fewer of them: a disk that fails everywhere must not fill the log.
        if seen == 0 || seen.is_power_of_two() {
            tracing::warn!(
                "{at}: {count} blocks from {offset} on disk {} are not what was written",
                copy.id()
            );
        }
        at.core.attention.notify_one();
        let disputed = disputed(at, copy, offset, &data, &wrong).await;
        bad.push(Bad { copy: Arc::clone(copy), place: at.place, blocks: wrong, disputed });
    }
    Content { data, have }
}

/// Blocks of a copy that are wrong by the page in memory, but right by the copy's own page, which is no older: two copies that
/// differ while each fits its own checksums. Nobody knows which is right, so nothing is written over either of them.
async fn disputed(at: At<'_>, copy: &CopyState, offset: u64, data: &[u8], wrong: &[bool]) -> Vec<u64> {
    let mut disputed = Vec::new();
    if at.column().copies().len() < 2 || at.row.shape.parity > 0 {
        return disputed;
    }
    let mut own: Option<(usize, Vec<u32>)> = None;
    for ((block, number), _) in
        data.chunks_exact(BYTES).zip(offset / BLOCK..).zip(wrong).filter(|(_, wrong)| **wrong)
    {
        if lags(at, at.regions(number * BLOCK, BLOCK)) {
            continue;
        }
        let index = (number / SUMS_PER_PAGE) as usize;
        if own.as_ref().is_none_or(|(page, _)| *page != index) {
            let Some(known) = page_at(at, number * BLOCK).await else { continue };
            let _still = known.writing.lock().await;
            let page = read_page_and_age(at, copy, index).await.ok();
            let current = page.filter(|(_, age)| *age == Age::Current);
            own = Some((index, current.map(|(page, _)| page.sums).unwrap_or_default()));
        }
        let sum = own.as_ref().and_then(|(_, sums)| sums.get((number % SUMS_PER_PAGE) as usize));
        if sum.is_some_and(|sum| *sum == at.space.checksum.of(block)) {
            disputed.push(number);
        }
    }
    disputed
}

/// Whether pages on disk may be older than acknowledged data in these regions.
fn lags(at: At<'_>, mask: u64) -> bool {
    let order = at.group().order.lock();
    at.group().unflushed(&order) & mask != 0
}

/// What the copies of a column hold.
pub(crate) async fn from_copies(
    at: At<'_>,
    offset: u64,
    len: u64,
    except: &[Arc<CopyState>],
    bad: &mut Vec<Bad>,
) -> Content {
    let mask = at.regions(offset, len);
    let copies = at.column().copies();
    let good = copies
        .iter()
        .filter(|copy| copy.is_good(mask) && !except.iter().any(|other| Arc::ptr_eq(copy, other)));
    let mut whole: Option<Content> = None;
    for copy in good {
        let found = from_one_copy(at, offset, len, copy, bad).await;
        let content = match whole.take() {
            None => found,
            Some(mut content) => {
                for index in 0..found.have.len() {
                    if let Some(block) = found.block(index).filter(|_| !content.have[index]) {
                        content.put(index, block);
                    }
                }
                content
            }
        };
        let complete = content.is_complete();
        whole = Some(content);
        if complete {
            break;
        }
    }
    let mut content = whole.unwrap_or_else(|| Content::nothing(len));
    if !content.is_complete() && !bad.is_empty() {
        arbitrate(at, offset, &mut content, bad).await;
    }
    content
}

/// Which blocks of `data` are not what their checksums say; none where nothing can be said.
async fn mismatches(at: At<'_>, offset: u64, data: &[u8]) -> Vec<bool> {
    let mut wrong = Vec::with_capacity(data.len() / BYTES);
    for (block, number) in data.chunks_exact(BYTES).zip(offset / BLOCK..) {
        let page = page_at(at, number * BLOCK).await;
        let mask = at.regions(number * BLOCK, BLOCK);
        let told = page.filter(|page| page.unknown.load(Ordering::Acquire) & mask == 0);
        let told = told.filter(|_| !at.group().is_unsettled(mask));
        let told = told.filter(|_| !at.core.faults.skip_verify.load(Ordering::Relaxed));
        wrong.push(told.is_some_and(|page| !page.fits(number, block)));
    }
    wrong
}

/// Whether the checksums of a block of a settled region are not known, so that nothing proves what its column holds.
async fn is_unproven(at: At<'_>, offset: u64, mask: u64) -> bool {
    let page = page_at(at, offset).await;
    !at.group().is_unsettled(mask)
        && page.is_some_and(|page| page.unknown.load(Ordering::Acquire) & mask != 0)
}

/// Whether a block is in a settled region of which the column's disk has lost writes that have not been made again: what it
/// has there is neither read nor calculated with. (A region that is not settled is made right as a whole.)
pub(crate) async fn lacks_writes(at: At<'_>, offset: u64) -> bool {
    let mask = at.regions(offset, BLOCK);
    let page = page_at(at, offset).await;
    let skipped = at.core.faults.skip_verify.load(Ordering::Relaxed);
    !skipped && !at.group().is_unsettled(mask) && page.is_some_and(|page| page.lacks(mask))
}

/// When no copy of a block is what the page in memory says, the page may be what is wrong: a disk has lost the write of
/// a page. Another copy's page that some copy's data agrees with is right then.
async fn arbitrate(at: At<'_>, offset: u64, content: &mut Content, bad: &mut Vec<Bad>) {
    let copies = at.column().copies();
    if copies.len() < 2 {
        return;
    }
    for index in (0..content.have.len()).filter(|index| !content.have[*index]).collect::<Vec<_>>() {
        let number = offset / BLOCK + index as u64;
        let mask = at.regions(number * BLOCK, BLOCK);
        if lags(at, mask) {
            continue;
        }
        let good: Vec<_> = copies.iter().filter(|copy| copy.is_good(mask)).collect();
        let Some(page) = page_at(at, number * BLOCK).await else { continue };
        let pages = pages_on_disk(at, &good, ((number / SUMS_PER_PAGE) as usize, &page)).await;
        let said = pages.iter().filter_map(|page| page.get((number % SUMS_PER_PAGE) as usize));
        let sums: Vec<u32> = said.copied().collect();
        let mut right: Vec<(&Arc<CopyState>, IoBuf)> = Vec::new();
        for copy in good {
            let data = copy.disk.read(copy.start + number * BLOCK, IoBuf::new(BYTES)).await;
            right.extend(
                data.ok().filter(|data| sums.contains(&at.space.checksum.of(data))).map(|data| (copy, data)),
            );
        }
        let Some((_, data)) = right.first() else { continue };
        // Copies that differ and are what some page says each: nobody knows.
        if right.iter().any(|(_, other)| other[..] != data[..]) {
            continue;
        }
        page.correct(number, data);
        content.put(index, data);
        for (copy, _) in &right {
            for entry in bad.iter_mut().filter(|entry| Arc::ptr_eq(&entry.copy, copy)) {
                entry.blocks[index] = false;
            }
        }
    }
    bad.retain(|entry| entry.count() > 0);
}

/// What the other columns of the row, as far as their checksums prove them, say that a part of a column is.
pub(crate) async fn from_others(at: At<'_>, offset: u64, len: u64) -> Content {
    let mut content = Content::nothing(len);
    solve(at, offset, &mut content, &[], &mut Vec::new(), Proof::Needed).await;
    content
}

/// What is asked of the columns that something is calculated from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Their checksums are known and fit.
    Needed,
    /// The same, where enough of them are so; elsewhere those whose checksums are lost are believed.
    IfThereIs,
}

/// Calculates the blocks that `content` lacks from the other columns of the row, except from these copies.
async fn solve(
    at: At<'_>,
    offset: u64,
    content: &mut Content,
    except: &[Arc<CopyState>],
    bad: &mut Vec<Bad>,
    proof: Proof,
) {
    let len = content.data.len() as u64;
    let torn = at.group().torn.load(Ordering::Acquire);
    let others = (0..at.row.columns.len()).map(|column| async move {
        let mut bad = Vec::new();
        if column == usize::from(at.place.column) {
            return (Content::nothing(len), bad);
        }
        let content = from_copies(at.other(column), offset, len, except, &mut bad).await;
        (content, bad)
    });
    let mut row: Vec<Content> = Vec::new();
    for (content, found) in join_all(others).await {
        row.push(content);
        bad.extend(found);
    }
    for index in (0..content.have.len()).filter(|index| !content.have[*index]).collect::<Vec<_>>() {
        let at_block = offset + index as u64 * BLOCK;
        let mask = at.regions(at_block, BLOCK);
        if torn & mask != 0 {
            continue;
        }
        let blocks: Vec<Option<&[u8]>> = row.iter().map(|column| column.block(index)).collect();
        let mut proven = blocks.clone();
        for (column, block) in proven.iter_mut().enumerate() {
            if block.is_some() && is_unproven(at.other(column), at_block, mask).await {
                *block = None;
            }
        }
        let solve = |blocks: &[_]| solve_block(at.space, at_block, usize::from(at.place.column), blocks);
        let mut solved = solve(&proven);
        if solved.is_none() && proof == Proof::IfThereIs {
            solved = solve(&blocks);
        }
        let Some(block) = solved else { continue };
        if mismatches(at, at_block, &block).await.contains(&true) {
            continue;
        }
        content.put(index, &block);
    }
}

/// The block at `offset` of `column`, from those at the same place of the other columns.
pub(crate) fn solve_block(
    space: &Space,
    offset: u64,
    column: usize,
    blocks: &[Option<&[u8]>],
) -> Option<Vec<u8>> {
    let striping = &space.striping;
    let stripe = striping.stripe_at(offset);
    let unit = |unit: usize| blocks.get(striping.column_of(stripe, unit)).copied().flatten();
    let data: Vec<Option<&[u8]>> = (0..striping.data()).map(unit).collect();
    let p = unit(striping.data());
    let q = if striping.parity() > 1 { unit(striping.data() + 1) } else { None };
    let found = parity::recover(&data, p, q)?;
    if let Some((_, block)) = found.iter().find(|(unit, _)| striping.column_of(stripe, *unit) == column) {
        return Some(block.clone());
    }
    // What is asked for is parity.
    let mut all: Vec<&[u8]> = data.iter().map(|unit| unit.unwrap_or(&[])).collect();
    found.iter().for_each(|(unit, block)| all[*unit] = block);
    let (mut p, mut q) = (vec![0; BYTES], vec![0; BYTES]);
    parity::generate(&all, &mut p, Some(&mut q));
    Some(if striping.column_of(stripe, striping.data()) == column { p } else { q })
}

/// Writes what is right over what was found damaged in the range, all of it under the range's lock.
pub(crate) async fn heal(at: At<'_>, offset: u64, content: &Content, bad: &[Bad]) {
    // A pool that has stopped may have another owner by now.
    if at.core.check_writable().is_err() {
        return;
    }
    for entry in bad.iter().filter(|entry| entry.copy.disk.is_online()) {
        let other;
        let content = if entry.place == at.place {
            content
        } else {
            // Damage of another column, seen on the way: that column is read for its own sake.
            let column = at.other(usize::from(entry.place.column));
            other =
                Box::pin(read_column(column, offset, content.data.len() as u64, &[], &mut Vec::new())).await;
            &other
        };
        for (index, _) in entry.blocks.iter().enumerate().filter(|(_, bad)| **bad) {
            if entry.disputed.contains(&(offset / BLOCK + index as u64)) {
                continue;
            }
            let Some(block) = content.block(index) else { continue };
            rewrite(&entry.copy, offset + index as u64 * BLOCK, block).await;
        }
    }
}

/// Writes a block of a slab that was found damaged anew. Whether that succeeded.
pub(crate) async fn rewrite(copy: &CopyState, offset: u64, block: &[u8]) -> bool {
    let block = IoBuf::copy_from(block).freeze();
    // On failure the disk goes offline, and its copy is known to lack what is written next.
    let written = copy.disk.write(copy.start + offset, block, Durability::Durable).await.is_ok();
    if written {
        copy.disk.healed.fetch_add(1, Ordering::Relaxed);
    }
    written
}

/// Bytes that one page of checksums covers, or a region if that is less: a convenient step through a column.
pub(crate) fn step(space: &Space) -> u64 {
    space.striping.region_size().min(PAGE_SPAN)
}

/// Takes the checksums of what a region holds as right. Under its lock; the region is dirty.
pub(crate) async fn learn_sums(at: At<'_>, offset: u64, data: &[u8]) {
    let mask = at.regions(offset, data.len() as u64);
    let step = step(at.space);
    for (index, part) in data.chunks(step as usize).enumerate() {
        let offset = offset + index as u64 * step;
        if let Some(page) = page_at(at, offset).await {
            page.learn_all(offset, part);
        }
    }
    for (_, page) in at.column().sums.iter().flat_map(|sums| sums.loaded(offset, data.len() as u64)) {
        page.unknown.fetch_and(!mask, Ordering::AcqRel);
    }
}
