//! Making copies equal again, and checksums right: after a crash, and when a disk returns.
//!
//! All of it works region by region under the region's range lock, so that clients wait for one region at the
//! most, and goes on where it stopped: what is left to do is in the masks.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::BLOCK;
use shard_runtime::finish_anyway;

use crate::at::At;
use crate::careful::{self, Content, heal, learn_sums, read_column};
use crate::core::caught_up;
use crate::dirty::ensure_dirty;
use crate::edit::{ColumnWrite, Edit};
use crate::examine;
use crate::page::{PAGE_SPAN, Page};
use crate::pages::{give_page, has_old_page, is_old};
use crate::recall::recall;
use crate::replay;
use crate::row::{Column, CopyState, Purpose, bits};
use crate::stripe;
use crate::sums::page_at;
use crate::write::write_copies;

/// Brings a column as far as the disks that are here allow. Returns the bytes copied.
pub(crate) async fn bring_up_to_date(at: At<'_>) -> Result<u64, BlockError> {
    let mut copied = 0;
    if at.lead() == at.place {
        for region in bits(at.group().unsettled.load(Ordering::Acquire)) {
            if at.row.is_given_up() {
                return Ok(copied);
            }
            copied += settle(at, region).await?;
        }
        recall(at, at.group().forgotten.load(Ordering::Acquire)).await?;
        for region in bits(at.group().suspect.swap(0, Ordering::AcqRel)) {
            examine::examine(at, region, true).await;
        }
    }
    let region_size = at.space.striping.region_size();
    let copies = at.column().copies();
    for copy in copies.iter().filter(|copy| copy.disk.has_room()) {
        let mut failed = None;
        for region in bits(copy.stale.load(Ordering::Acquire)) {
            if at.core.params.read().paused || !copy.disk.has_room() || at.row.is_given_up() {
                break;
            }
            match catch_up(at, copy, region).await {
                Ok(true) => {
                    copied += region_size;
                    pay(at, region_size).await;
                }
                Ok(false) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        tell_caught_up(at).await?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(copied)
}

/// After a crash, or a write that failed, a read has come to a region whose copies may differ: makes them equal before it is
/// answered, or what one copy says now, another could take back. The usual work on a region, but at once and not held back.
///
/// Where a region cannot be settled as a whole, because some of its blocks cannot be read anywhere, the part that is read is made
/// equal, for this answer. With parity, what the columns hold was in the journal and cannot become older.
pub(crate) async fn settle_before_read(at: At<'_>, offset: u64, len: u64) -> Result<(), BlockError> {
    /// A copy that fails meanwhile is marked stale, or is the only one, and another is asked.
    const ATTEMPTS: usize = 3;
    let (core, space, row, place) = (Arc::clone(at.core), at.space.this()?, Arc::clone(at.row), at.lead());
    // The locks would be free while older blocks are on their way to a disk, if the client went.
    finish_anyway(async move {
        let at = At::new(&core, &space, &row, place);
        let mask = at.regions(offset, len);
        for _ in 0..ATTEMPTS {
            let mut failed = false;
            for region in bits(at.group().unsettled.load(Ordering::Acquire) & mask) {
                if let Err(error) = settle_region(at, region).await {
                    core.check_writable().map_err(|_| error)?;
                    failed = true;
                }
            }
            if !at.group().is_unsettled(mask) {
                return Ok(());
            }
            if row.shape.parity > 0 {
                if failed {
                    continue;
                }
                return Ok(());
            }
            let _range = at.group().locks.lock(offset, len).await;
            let (copied, equal) = settle_copies(at, (offset, len)).await?;
            core.copied_bytes.fetch_add(copied, Ordering::Relaxed);
            if equal {
                return Ok(());
            }
        }
        if row.shape.parity > 0 {
            return Ok(());
        }
        Err(BlockError::new(BlockErrorKind::Media, "read: no copy can be read and made equal to the others"))
    })
    .await
}

/// Waits until `bytes` more may be copied. All who copy in a pool share its rate.
/// Whoever copies for a row that is given up meanwhile need not wait any longer.
async fn pay(at: At<'_>, bytes: u64) {
    if bytes == 0 {
        return;
    }
    let core = at.core;
    let params = *core.params.read();
    let wait = core.governor.charge(bytes, params, &*core.clock);
    if wait > Duration::from_millis(1) {
        at.row.pause(core.rest(wait)).await;
    }
}

/// As [`settle_region`], for the background: no faster than clients bear.
async fn settle(at: At<'_>, region: u32) -> Result<u64, BlockError> {
    let copied = settle_region(at, region).await?;
    pay(at, copied).await;
    Ok(copied)
}

/// After a crash, or a write that failed, copies of a region may differ and checksums lag: makes both right. Returns the bytes
/// copied. What was read is durable then wherever it counts.
async fn settle_region(at: At<'_>, region: u32) -> Result<u64, BlockError> {
    at.core.check_writable()?;
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = at.group().locks.lock(offset, size).await;
    if !at.group().is_unsettled(mask) {
        // Somebody else has done it meanwhile.
        return Ok(0);
    }
    // Its checksums change, so they are told of at the next cleaning.
    if at.group().dirty_durable.load(Ordering::SeqCst) & mask == 0 {
        ensure_dirty(at, mask).await?;
    }
    let (copied, settled) = if at.row.shape.parity > 0 {
        settle_stripes(at, (offset, size)).await?
    } else {
        settle_copies(at, (offset, size)).await?
    };
    if settled {
        // A disk may have gone since with what its column had: that is for another round.
        let _order = at.group().order.lock();
        if !at.group().is_torn(mask) {
            at.group().unsettled.fetch_and(!mask, Ordering::AcqRel);
        }
    }
    at.core.copied_bytes.fetch_add(copied, Ordering::Relaxed);
    Ok(copied)
}

/// Takes the first good copy as the truth. The range is a whole region, or a part of one: then nothing is learnt of checksums.
async fn settle_copies(at: At<'_>, (offset, size): (u64, u64)) -> Result<(u64, bool), BlockError> {
    let mask = at.regions(offset, size);
    let copies = at.column().copies();
    let mut good = None;
    // A disk that lost writes together with their checksums is asked last.
    let mut in_turn = Vec::new();
    for copy in copies.iter().filter(|copy| copy.is_good(mask)) {
        in_turn.push((has_old_page(at, copy, (offset, size)).await, copy));
    }
    in_turn.sort_by_key(|(old, _)| *old);
    for (_, copy) in in_turn {
        if let Ok(data) = copy.disk.read(copy.start + offset, IoBuf::new(size as usize)).await {
            good = Some((copy, data.freeze()));
            break;
        }
    }
    let Some((source, data)) = good else { return Ok((0, false)) };
    let mut copied = 0;
    if copies.len() == 1 && source.disk.was_away() {
        // A disk that has failed to flush may show what it will never keep, and nothing else has it: written anew, so that
        // what the checksums are of is on the disk.
        if source.disk.write(source.start + offset, data.clone(), Durability::Durable).await.is_err() {
            return Ok((0, false));
        }
        copied += size;
    }
    if !is_kept(source).await {
        return Ok((copied, false));
    }
    let mut equal = true;
    for copy in copies.iter().filter(|copy| !Arc::ptr_eq(copy, source)) {
        if copy.stale.load(Ordering::Acquire) & mask != 0 {
            continue;
        }
        match copy.disk.write(copy.start + offset, data.clone(), Durability::Durable).await {
            Ok(()) => copied += size,
            // Missing or failing: what it holds in this region is not what clients have been shown.
            Err(_) => equal &= at.core.mark_stale(at.place, at.row, copy, mask).await?,
        }
    }
    if equal && size == at.space.striping.region_size() {
        learn_sums(at, offset, &data).await;
    }
    Ok((copied, equal))
}

/// Makes durable what a copy shows: what is in its disk's cache only may be lost yet, when it has been read.
async fn is_kept(copy: &CopyState) -> bool {
    !copy.disk.has_unflushed() || copy.disk.flush().await.is_ok()
}

/// How often disks of a row have gone.
fn outages(at: At<'_>) -> u64 {
    let of = |column: &Column| column.copies().iter().map(|copy| copy.disk.outages()).sum::<u64>();
    at.row.columns.iter().map(of).sum()
}

/// Makes writes again that failed half-way, and takes what the columns hold then as the truth.
async fn settle_stripes(at: At<'_>, (offset, size): (u64, u64)) -> Result<(u64, bool), BlockError> {
    let mask = at.regions(offset, size);
    if at.group().is_torn(mask) {
        let outages = outages(at);
        let journal = at.space.journal()?;
        let _steady = journal.steady.read().await;
        if at.space.needs_journal() && !replay::bring_back(at, mask).await? {
            return Ok((0, false));
        }
        let mut redone = true;
        let touches = |write: &ColumnWrite| at.regions(write.offset, write.len) & mask != 0;
        for stuck in journal.take_stuck(at.place.row, touches) {
            if redone && stripe::redo(at, &stuck.writes).await? {
                journal.unstick(&stuck);
            } else {
                redone = false;
                journal.put_back(stuck);
            }
        }
        if !redone {
            // A redo that came to its end has taken the mark of the whole region away.
            at.tear(mask);
            return Ok((0, false));
        }
        // Under the order in which losses are marked: a disk that went meanwhile, with what was brought back, is seen here, or tears the
        // region after this.
        let _order = at.group().order.lock();
        if self::outages(at) != outages {
            at.tear(mask);
            return Ok((0, false));
        }
        at.group().mend(mask);
    }
    let lossy = lossy_copies(at, (offset, size), mask).await;
    let mut whole = true;
    let mut row: Vec<Content> = Vec::new();
    for column in 0..at.row.columns.len() {
        let column = at.other(column);
        // Of a column that is not here the checksums are unknown until it has been made anew: what a page has of
        // them may lag behind.
        if column.column().good() & mask == 0 {
            // A disk that is away brings back what is not the truth from here on; where the others can do without it, it lacks
            // the region. Where they cannot, the truth has to wait for it.
            for copy in column.column().copies().iter() {
                whole &= at.core.mark_stale(column.place, at.row, copy, mask).await?;
            }
            for (_, page) in column.column().sums.iter().flat_map(|sums| sums.loaded(offset, size)) {
                page.unknown.fetch_or(mask, Ordering::AcqRel);
                page.hinted.fetch_and(!mask, Ordering::AcqRel);
                page.old.fetch_and(!mask, Ordering::AcqRel);
            }
            continue;
        }
        // A block that its disk cannot read is calculated: data and parity agree, or the region would be torn.
        let mut bad = Vec::new();
        let mut content = read_column(column, offset, size, &lossy, &mut bad).await;
        if !lossy.is_empty() {
            // Where too few are left to calculate it, what the column has is taken as it is.
            fill_up(column, offset, &mut content, &mut bad).await;
        }
        whole &= content.is_complete();
        if content.is_complete() {
            heal(column, offset, &content, &bad).await;
            for copy in column.column().copies().iter().filter(|copy| copy.is_good(mask)) {
                whole &= is_kept(copy).await;
            }
            whole &= make_up(column, offset, &content, &lossy).await?;
            whole &= make_equal(column, offset, &content).await?;
            learn_sums(column, offset, &content.data).await;
            row.push(content);
        }
    }
    if row.len() == at.row.columns.len() {
        return Ok((make_parity(at, offset, &row).await?, whole));
    }
    Ok((0, whole))
}

/// Copies of a row on disks that have lost writes together with their checksums: their pages are older than what they were given
/// and had flushed. They are not asked where the others can do without them.
async fn lossy_copies(at: At<'_>, (offset, size): (u64, u64), mask: u64) -> Vec<Arc<CopyState>> {
    let mut lossy = Vec::new();
    for column in (0..at.row.columns.len()).map(|column| at.other(column)) {
        for copy in column.column().copies().iter().filter(|copy| copy.is_good(mask)) {
            if is_old(column, copy, (offset, size)).await {
                lossy.push(Arc::clone(copy));
            }
        }
    }
    lossy
}

/// Puts what a column holds itself where nothing else tells what it must be.
async fn fill_up(at: At<'_>, offset: u64, content: &mut Content, bad: &mut Vec<careful::Bad>) {
    if content.is_complete() {
        return;
    }
    let own = read_column(at, offset, content.data.len() as u64, &[], bad).await;
    for index in 0..own.have.len() {
        if let Some(block) = own.block(index).filter(|_| !content.have[index]) {
            content.put(index, block);
        }
    }
}

/// Gives copies that have lost writes what the others of the row say.
async fn make_up(
    at: At<'_>,
    offset: u64,
    content: &Content,
    lossy: &[Arc<CopyState>],
) -> Result<bool, BlockError> {
    let mut kept = true;
    let copies = at.column().copies();
    for copy in copies.iter().filter(|copy| lossy.iter().any(|other| Arc::ptr_eq(copy, other))) {
        let data = IoBuf::copy_from(&content.data).freeze();
        let mask = at.regions(offset, data.len() as u64);
        if copy.disk.write(copy.start + offset, data, Durability::Durable).await.is_ok() {
            copy.disk.healed.fetch_add(1, Ordering::Relaxed);
        } else {
            kept &= at.core.mark_stale(at.place, at.row, copy, mask).await?;
        }
    }
    Ok(kept)
}

/// Gives what was read of a column of a row with parity to all its copies: while its slab moves there are two of them, and a
/// write may have come to one only.
async fn make_equal(at: At<'_>, offset: u64, content: &Content) -> Result<bool, BlockError> {
    let copies = at.column().copies();
    if copies.len() < 2 {
        return Ok(true);
    }
    let mask = at.regions(offset, content.data.len() as u64);
    let data = IoBuf::copy_from(&content.data).freeze();
    let mut equal = true;
    for copy in copies.iter().filter(|copy| copy.stale.load(Ordering::Acquire) & mask == 0) {
        if copy.disk.write(copy.start + offset, data.clone(), Durability::Durable).await.is_err() {
            equal &= at.core.mark_stale(at.place, at.row, copy, mask).await?;
        }
    }
    Ok(equal)
}

/// Makes parity that of the data, where disks have come back without writes that they had acknowledged. Bytes written.
async fn make_parity(at: At<'_>, offset: u64, row: &[Content]) -> Result<u64, BlockError> {
    let mut written = 0;
    for (column, block, content) in examine::differences(at, offset, row) {
        let (column, start) = (at.other(column), offset + block * BLOCK);
        let mask = at.regions(start, BLOCK);
        let edit = Edit::Data(IoBuf::copy_from(&content).freeze());
        let copies = column.column().copies();
        let put = write_copies(&copies, (start, BLOCK), mask, from_ref(&edit), Durability::Durable).await;
        for (copy, error) in copies.iter().zip(put).filter_map(|(copy, put)| Some((copy, put?.err()?))) {
            // A full disk goes on without it, if the others of the row can do without that disk.
            let lacks = error.kind() == BlockErrorKind::NoSpace
                && at.core.mark_stale(column.place, at.row, copy, mask).await?;
            if !lacks {
                return Err(error);
            }
        }
        learn_sums(column, start, &content).await;
        written += BLOCK;
    }
    Ok(written)
}

/// Gives a region to a copy that is behind. Writes go to it again as soon as the lock is free.
async fn catch_up(at: At<'_>, copy: &Arc<CopyState>, region: u32) -> Result<bool, BlockError> {
    at.core.check_writable()?;
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let group = at.group();
    let turn = at.core.governor.turn().await;
    let _pages = group.pages.read().await;
    let _range = group.locks.lock(offset, size).await;
    if at.row.shape.parity > 0 && group.is_unsettled(mask) {
        // What the others hold is made right first.
        return Ok(false);
    }
    // Nobody has its checksums: what is calculated is what they are of. All of it at once, as they become known at once.
    let unknown = at.column().sums.is_some() && !group.is_unsettled(mask) && at.column().good() & mask == 0;
    if !unknown && pages_of(at, offset, mask).await.is_none() {
        return Ok(false);
    }
    let step = if unknown { size } else { turn.step().min(size) };
    for part in (offset..offset + size).step_by(step as usize) {
        let mut bad = Vec::new();
        let content = read_column(at, part, step, from_ref(copy), &mut bad).await;
        if !bad.is_empty() {
            heal(at, part, &content, &bad).await;
        }
        if !content.is_complete() {
            return Ok(false);
        }
        let data = content.data.freeze();
        if copy.disk.write(copy.start + part, data.clone(), Durability::Durable).await.is_err() {
            return Ok(false);
        }
        if unknown {
            // Not before it is dirty, so that they are told of.
            ensure_dirty(at, mask).await?;
            learn_sums(at, part, &data).await;
        }
    }
    // Once more: another disk may have left while the region was copied.
    let Some(pages) = pages_of(at, offset, mask).await else { return Ok(false) };
    for (index, page) in pages {
        if !give_page(at, copy, (index, &page), mask).await? {
            return Ok(false);
        }
    }
    copy.stale.fetch_and(!mask, Ordering::AcqRel);
    at.core.copied_bytes.fetch_add(size, Ordering::Relaxed);
    if at.column().copies().iter().any(|copy| copy.moves_for() == Some(Purpose::Balance)) {
        at.core.balanced_bytes.fetch_add(size, Ordering::Relaxed);
    }
    Ok(true)
}

/// The pages that a copy needs of a region, held in memory; none in a space without checksums. `None` when checksums of the region are
/// unknown. They are looked for first: what the page would say of the region is nothing that was ever known, so the copy would not count,
/// and what was copied to it would be copied again. Those of a region that is not settled are made anew with it. Under the region's lock.
async fn pages_of(at: At<'_>, offset: u64, mask: u64) -> Option<Vec<(usize, Arc<Page>)>> {
    let mut pages = Vec::new();
    for part in (offset..offset + at.space.striping.region_size()).step_by(careful::step(at.space) as usize) {
        pages.extend(page_at(at, part).await.map(|page| ((part / PAGE_SPAN) as usize, page)));
    }
    pages.dedup_by_key(|(index, _)| *index);
    let lacks = |page: &Page| page.unknown.load(Ordering::Acquire) & mask != 0;
    let lacking = !at.group().is_unsettled(mask) && pages.iter().any(|(_, page)| lacks(page));
    (!lacking).then_some(pages)
}

/// Tells the metadata what copies have caught up with.
async fn tell_caught_up(at: At<'_>) -> Result<(), BlockError> {
    let commit = {
        let _order = at.group().order.lock();
        let changes = caught_up(at.place, at.row);
        if changes.is_empty() {
            return Ok(());
        }
        at.core.meta.submit(changes)
    };
    Ok(commit.done().await?)
}
