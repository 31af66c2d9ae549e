//! Writing stripes of a space with parity.
//!
//! ```text
//!  a part of it:       old data and parity, or the rest of the data ─► new parity
//!                        ─► new data and parity to the journal, durably ─► the changed columns, in place
//!  all of it:          new data ─► parity of it ─► the data to the journal ─► all columns, in place
//!  all of it, zeros before: new data ─► parity ─► only checksums to the journal ─► all columns, in place
//! ```
//! **No write hole.** What is written in place is in the journal before. After a crash (`replay.rs`) it is written
//! again from there, so that data and parity agree, whatever had reached the disks. Over durable zeros, which is where large
//! writes mostly go, checksums suffice: they tell how far the write came, and what did not come was zero.
//!
//! The lock that a write holds covers its bytes in every column of the row, so parity and data change together for
//! all who take it. Budget of 4 KiB on single parity: two reads, one journal write (gathered with others', on two
//! disks), two writes in place as durable as asked for.
//!
//! A write that fails on more columns than there is parity for leaves its regions *torn*: nothing is calculated from
//! parity there and no write is taken until the columns are back and the write has been made again ([`redo`]).

use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::join_all;
use pool_format::{BLOCK, JournalEntry, JournalKind};
use pool_layout::{Piece, parity};

use crate::at::At;
use crate::careful::{from_copies, loss_of, read_column};
use crate::dirty::ensure_dirty_for_write;
use crate::edit::{ColumnWrite, Edit};
use crate::journal::Ticket;
use crate::recall::{forgotten, recall};
use crate::row::Copies;
use crate::sums::{is_zero, page_at, renew};
use crate::write::{Written, write_copies};

/// Changes a part of one stripe, all of it, or all of several that follow each other in one region: those take one place
/// in the journal, and one request on each disk. `at` is any column of the row; `parts` are pieces of the stripes' data, in order.
pub(crate) async fn change(
    at: At<'_>,
    parts: Vec<(Piece, Edit)>,
    durability: Durability,
) -> Result<(), BlockError> {
    let mut in_vain = 0;
    while let Err(forgotten) = attempt(at, &parts, durability, in_vain).await? {
        // What nobody can tell yet does not keep a write from the rest.
        in_vain |= recall(at, forgotten).await?;
    }
    Ok(())
}

/// As [`change`]; or the regions whose checksums must be recalled first, unless that was `in_vain`: parity is not calculated from what
/// nothing proves, and what the columns hold of a region that is dirty is believed if the power goes.
async fn attempt(
    at: At<'_>,
    parts: &[(Piece, Edit)],
    durability: Durability,
    in_vain: u64,
) -> Result<Result<(), u64>, BlockError> {
    let start = parts.iter().map(|(piece, _)| piece.offset).min().unwrap_or(0);
    let end = parts.iter().map(|(piece, _)| piece.offset + piece.len).max().unwrap_or(0);
    let (group, mask) = (at.group(), at.regions(start, end - start));
    let _range = group.locks.lock(start, end - start).await;
    let _count = group.begin_write();
    if group.is_torn(mask) {
        return Err(at.row.awaits("write to a stripe that waits for lost disks"));
    }
    if group.dirty_durable.load(Ordering::SeqCst) & mask != mask {
        let forgotten = forgotten(at, mask).await & !in_vain;
        if forgotten != 0 {
            return Ok(Err(forgotten));
        }
    }
    ensure_dirty_for_write(at, start, mask).await?;
    group.touched.fetch_or(mask, Ordering::AcqRel);
    let bytes: u64 = parts.iter().map(|(piece, _)| piece.len).sum();
    let striping = &at.space.striping;
    let whole = bytes == (end - start) / striping.interleave() * striping.stripe_size();
    let writes = if whole {
        let stripes =
            parts.chunk_by(|(a, _), (b, _)| striping.stripe_at(a.offset) == striping.stripe_at(b.offset));
        stripes.flat_map(|parts| whole_stripe(at, parts)).collect()
    } else {
        let writes = part_of_stripe(at, (start, end), parts).await?;
        // What it was calculated from may have been on a disk that went, and came back, meanwhile.
        if group.is_torn(mask) {
            return Err(at.row.awaits("write to a stripe that waits for lost disks"));
        }
        writes
    };
    let forgotten = group.forgotten.load(Ordering::Acquire) & mask & !in_vain;
    if !whole && forgotten != 0 {
        return Ok(Err(forgotten));
    }
    let mut pages = Vec::with_capacity(writes.len());
    for write in &writes {
        pages.push(page_at(at.other(write.column), write.offset).await);
    }
    // What is only checksummed in the journal must lie over zeros that a crash cannot take back.
    let fresh = whole
        && group.zeroed.load(Ordering::Acquire) & mask == 0
        && writes
            .iter()
            .zip(&pages)
            .all(|(write, page)| is_zero(at.other(write.column), page.as_ref(), write.offset, write.len));
    if !fresh && writes.iter().any(|write| write.sums.contains(&at.space.checksum.of_zeros())) {
        group.zeroed.fetch_or(mask, Ordering::AcqRel);
    }
    let kind = |index: usize| match &writes[index].edit {
        _ if fresh => JournalKind::Fresh,
        Edit::Zero { .. } => JournalKind::Zeroes,
        Edit::Data(_) if whole && index % at.row.columns.len() >= striping.data() => JournalKind::Derived,
        Edit::Data(_) => JournalKind::Payload,
    };
    let ticket = log(at, &writes, kind).await?;
    // In place as durably as asked for: the journal is read at an opening only, and a disk may go and come back before.
    let written = put(at, &writes, mask, durability).await;
    if let Err(error) = acknowledge(at, mask, written).await {
        group.unsettled.fetch_or(mask, Ordering::AcqRel);
        at.tear(mask);
        ticket.stuck(at.place.row, writes);
        return Err(error);
    }
    for (write, page) in writes.iter().zip(pages) {
        if let Some(page) = page {
            renew(at.other(write.column), &page, write.offset, write.len).await;
            page.set_all(write.offset, &write.sums);
        }
    }
    ticket.done();
    Ok(Ok(()))
}

/// The new content of every column, parity calculated from data.
fn whole_stripe(at: At<'_>, parts: &[(Piece, Edit)]) -> Vec<ColumnWrite> {
    let striping = &at.space.striping;
    let interleave = striping.interleave();
    let mut writes: Vec<ColumnWrite> = Vec::with_capacity(at.row.columns.len());
    for (piece, edit) in parts {
        writes.push(ColumnWrite::new(
            at.space.checksum,
            usize::from(piece.column),
            piece.offset,
            piece.len,
            edit.clone(),
        ));
    }
    let Some((first, _)) = parts.first() else { return writes };
    let stripe = striping.stripe_at(first.offset);
    let mut units: Vec<&[u8]> = vec![&[]; striping.data()];
    for (piece, edit) in parts {
        if let Edit::Data(data) = edit {
            units[striping.unit_of(stripe, usize::from(piece.column))] = data;
        }
    }
    let zero = units.iter().all(|unit| unit.is_empty());
    let mut sums: Vec<Edit> = Vec::new();
    if zero {
        let unmap = matches!(parts.first(), Some((_, Edit::Zero { unmap: true })));
        sums.resize(striping.parity(), Edit::Zero { unmap });
    } else {
        let mut p = IoBuf::new(interleave as usize);
        let mut q = (striping.parity() > 1).then(|| IoBuf::new(interleave as usize));
        parity::generate(&units, &mut p, q.as_deref_mut());
        sums.push(Edit::Data(p.freeze()));
        sums.extend(q.map(|q| Edit::Data(q.freeze())));
    }
    for (which, edit) in sums.into_iter().enumerate() {
        let column = striping.column_of(stripe, striping.data() + which);
        writes.push(ColumnWrite::new(at.space.checksum, column, stripe * interleave, interleave, edit));
    }
    writes
}

/// The new content of the columns that a write to `start..end` of the slabs changes.
async fn part_of_stripe(
    at: At<'_>,
    (start, end): (u64, u64),
    parts: &[(Piece, Edit)],
) -> Result<Vec<ColumnWrite>, BlockError> {
    let striping = &at.space.striping;
    let cheap = parts.len() + striping.parity() < striping.data();
    let changed = if cheap { from_difference(at, (start, end), parts).await } else { None };
    let parity = match changed {
        Some(parity) => parity,
        None => from_rest(at, (start, end), parts).await?,
    };
    let data = parts
        .iter()
        .map(|(piece, edit)| (usize::from(piece.column), piece.offset, piece.len, as_data(edit, piece.len)));
    let data = data
        .map(|(column, offset, len, edit)| ColumnWrite::new(at.space.checksum, column, offset, len, edit));
    let stripe = striping.stripe_at(start);
    let parity = parity.into_iter().enumerate().map(|(which, sum)| {
        let column = striping.column_of(stripe, striping.data() + which);
        ColumnWrite::new(at.space.checksum, column, start, end - start, Edit::Data(sum.freeze()))
    });
    Ok(data.chain(parity).collect())
}

/// The journal has content, not verbs.
fn as_data(edit: &Edit, len: u64) -> Edit {
    match edit {
        Edit::Data(_) => edit.clone(),
        Edit::Zero { .. } => Edit::Data(IoBuf::zeroed(len as usize).freeze()),
    }
}

/// New parity from the old and from what changes; `None` when that is not there in full: then the other way.
async fn from_difference(
    at: At<'_>,
    (start, end): (u64, u64),
    parts: &[(Piece, Edit)],
) -> Option<Vec<IoBuf>> {
    let striping = &at.space.striping;
    let stripe = striping.stripe_at(start);
    let read = |column: usize, offset: u64, len: u64| async move {
        let content = from_copies(at.other(column), offset, len, &[], &mut Vec::new()).await;
        content.is_complete().then_some(content.data)
    };
    let parity = (0..striping.parity()).map(|which| striping.column_of(stripe, striping.data() + which));
    let parity = join_all(parity.map(|column| read(column, start, end - start)));
    let data =
        join_all(parts.iter().map(|(piece, _)| read(usize::from(piece.column), piece.offset, piece.len)));
    let (parity, data) = futures_util::join!(parity, data);
    let mut parity = parity.into_iter().collect::<Option<Vec<IoBuf>>>()?;
    for ((piece, edit), old) in parts.iter().zip(data) {
        let mut change = old?;
        if let Edit::Data(new) = edit {
            parity::add(&mut change, new);
        }
        let within = (piece.offset - start) as usize..(piece.offset - start + piece.len) as usize;
        let unit = striping.unit_of(stripe, usize::from(piece.column));
        if let Some(q) = parity.get_mut(1).and_then(|q| q.get_mut(within.clone())) {
            parity::update_q(q, unit, change.to_vec());
        }
        parity::add(parity.first_mut()?.get_mut(within)?, &change);
    }
    Some(parity)
}

/// New parity from the whole data of the range: what is not written is read, or calculated when its disk is lost.
async fn from_rest(
    at: At<'_>,
    (start, end): (u64, u64),
    parts: &[(Piece, Edit)],
) -> Result<Vec<IoBuf>, BlockError> {
    let striping = &at.space.striping;
    let (stripe, len) = (striping.stripe_at(start), end - start);
    let units = (0..striping.data()).map(|unit| async move {
        let column = striping.column_of(stripe, unit);
        let mine = parts.iter().filter(|(piece, _)| usize::from(piece.column) == column);
        let written: u64 = mine.clone().map(|(piece, _)| piece.len).sum();
        let mut data = if written == len {
            IoBuf::zeroed(len as usize)
        } else {
            let content = read_column(at.other(column), start, len, &[], &mut Vec::new()).await;
            if !content.is_complete() {
                let what = "write to a stripe: the rest of it cannot be read";
                return Err(BlockError::new(loss_of(at.row), what).at(start, len));
            }
            content.data
        };
        for (piece, edit) in mine {
            let at = (piece.offset - start) as usize;
            match edit {
                Edit::Data(new) => data[at..at + new.len()].copy_from_slice(new),
                Edit::Zero { .. } => data[at..at + piece.len as usize].fill(0),
            }
        }
        Ok(data)
    });
    let units = join_all(units).await.into_iter().collect::<Result<Vec<IoBuf>, _>>()?;
    let units: Vec<&[u8]> = units.iter().map(|unit| &**unit).collect();
    let mut p = IoBuf::new(len as usize);
    let mut q = (striping.parity() > 1).then(|| IoBuf::new(len as usize));
    parity::generate(&units, &mut p, q.as_deref_mut());
    Ok(std::iter::once(p).chain(q).collect())
}

/// Tells the journal; `kind` says what of each write.
async fn log(
    at: At<'_>,
    writes: &[ColumnWrite],
    kind: impl Fn(usize) -> JournalKind,
) -> Result<Ticket, BlockError> {
    let entries = writes.iter().enumerate().map(|(index, write)| {
        let (row, column, first) = (at.place.row, write.column as u8, (write.offset / BLOCK) as u32);
        JournalEntry { row, column, kind: kind(index), first, sums: write.sums.clone() }
    });
    let with_payload = writes.iter().enumerate().filter(|(index, _)| kind(*index) == JournalKind::Payload);
    let payload = with_payload.filter_map(|(_, write)| match &write.edit {
        Edit::Data(data) => Some(data.clone()),
        Edit::Zero { .. } => None,
    });
    let journal = at.space.journal()?;
    journal.append(at.core, at.space, entries.collect(), payload.collect()).await
}

/// What became of a column: the copies it had when it was written, and the result of each.
struct Put {
    column: usize,
    copies: Copies,
    written: Written,
}

fn has_it(result: &Option<Result<(), BlockError>>) -> bool {
    matches!(result, Some(Ok(())))
}

/// Writes the columns in place, each on all its good copies. What follows each other in a column is one request.
async fn put(at: At<'_>, writes: &[ColumnWrite], mask: u64, durability: Durability) -> Vec<Put> {
    let mut writes: Vec<&ColumnWrite> = writes.iter().collect();
    writes.sort_by_key(|write| (write.column, write.offset));
    let follows = |a: &&ColumnWrite, b: &&ColumnWrite| {
        a.column == b.column && a.offset + a.len == b.offset && a.edit.goes_with(&b.edit)
    };
    let puts = writes.chunk_by(follows).map(|run| async move {
        let (column, offset) = (run[0].column, run[0].offset);
        let len = run.iter().map(|write| write.len).sum();
        let edits: Vec<Edit> = run.iter().map(|write| write.edit.clone()).collect();
        // The list may be another one when the write has ended: a copy can be given up meanwhile.
        let copies = at.row.columns[column].copies();
        let written = write_copies(&copies, (offset, len), mask, &edits, durability).await;
        Put { column, copies, written }
    });
    join_all(puts).await
}

/// How many of the columns no copy took.
fn lacking(puts: &[Put]) -> usize {
    puts.iter().filter(|put| !put.written.iter().any(has_it)).count()
}

/// Decides what a write came to: every column has it, or is known to lack it and can be calculated.
async fn acknowledge(at: At<'_>, mask: u64, puts: Vec<Put>) -> Result<(), BlockError> {
    if puts.iter().all(|put| !put.written.is_empty() && put.written.iter().all(has_it)) {
        return Ok(());
    }
    let faults = &at.core.faults;
    let results = puts.iter().flat_map(|put| &put.written).flatten();
    if faults.skip_stale_mark.load(Ordering::Relaxed) || faults.pass_for_written(results) {
        return Ok(());
    }
    let mut kept = lacking(&puts) <= at.row.shape.parity;
    for put in &puts {
        let place = at.other(put.column).place;
        for (copy, result) in put.copies.iter().zip(&put.written) {
            if kept && !has_it(result) {
                // Not, when columns that were written, or must make up for this one, have been lost meanwhile.
                kept = at.core.mark_stale(place, at.row, copy, mask).await?;
            }
        }
    }
    at.core.attention.notify_one();
    if kept {
        return Ok(());
    }
    let cause = puts.into_iter().flat_map(|put| put.written).flatten().find_map(Result::err);
    Err(cause.unwrap_or_else(|| {
        BlockError::new(BlockErrorKind::Gone, "write: too many disks of the stripe are lost")
    }))
}

/// Makes a write again that failed when its disks went away. The caller holds the lock of the region. `true` when
/// nothing of it is owed any more.
pub(crate) async fn redo(at: At<'_>, writes: &[ColumnWrite]) -> Result<bool, BlockError> {
    let mask = writes.iter().fold(0, |mask, write| mask | at.regions(write.offset, write.len));
    let written = put(at, writes, mask, Durability::Durable).await;
    if lacking(&written) > at.row.shape.parity {
        return Ok(false);
    }
    // Parity holds again what the columns lack that are still away.
    at.group().torn.fetch_and(!mask, Ordering::AcqRel);
    let kept = acknowledge(at, mask, written).await;
    if kept.is_err() {
        at.tear(mask);
    }
    Ok(kept.is_ok())
}
