//! The parts of a write to a space (its life is told in `core/space/requests.rs`): copies, acknowledgement.

use std::slice::from_ref;
use std::sync::atomic::Ordering;

use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::join_all;
use pool_layout::Piece;

use crate::at::At;
use crate::dirty::ensure_dirty_for_write;
use crate::edit::Edit;
use crate::row::Copies;
use crate::sums::{page_at, renew};

/// Changes a part of a column that no parity depends on, on all its copies.
pub(crate) async fn change_piece(
    at: At<'_>,
    piece: Piece,
    change: Edit,
    durability: Durability,
) -> Result<(), BlockError> {
    let group = at.group();
    let mask = at.regions(piece.offset, piece.len);
    let _range = group.locks.lock(piece.offset, piece.len).await;
    let _count = group.begin_write();
    // Looked at under the lock: whoever changes the list takes the whole group's lock afterwards.
    let copies = at.column().copies();
    let page = page_at(at, piece.offset).await;
    if group.marks || copies.len() > 1 {
        ensure_dirty_for_write(at, piece.offset, mask).await?;
    } else if durability == Durability::Volatile {
        group.mark_volatile(mask);
    }
    group.touched.fetch_or(mask, Ordering::AcqRel);
    let written = write_copies(&copies, (piece.offset, piece.len), mask, from_ref(&change), durability).await;
    acknowledge(at, &copies, mask, written).await?;
    if let Some(page) = page {
        renew(at, &page, piece.offset, piece.len).await;
        change.tell(&page, piece.offset, piece.len);
    }
    Ok(())
}

/// The result of each copy, `None` for those that were left out.
pub(crate) type Written = Vec<Option<Result<(), BlockError>>>;

/// Writes `(offset, length)` of every good copy: one edit, or several of one kind that follow each other there.
pub(crate) async fn write_copies(
    copies: &Copies,
    (offset, len): (u64, u64),
    mask: u64,
    edits: &[Edit],
    durability: Durability,
) -> Written {
    let writes = copies.iter().map(|copy| async {
        if !copy.is_good(mask) {
            return None;
        }
        let at = copy.start + offset;
        Some(match edits {
            [Edit::Data(data)] => copy.disk.write(at, data.clone(), durability).await,
            [Edit::Zero { unmap }, ..] => copy.disk.zero(at, len, *unmap, durability).await,
            parts => {
                let parts = parts.iter().filter_map(Edit::data).cloned();
                copy.disk.write_vectored(at, parts.collect(), durability).await
            }
        })
    });
    join_all(writes).await
}

/// Decides what a write came to: at least one copy has it, and the others are known to lack it.
async fn acknowledge(at: At<'_>, copies: &Copies, mask: u64, written: Written) -> Result<(), BlockError> {
    if written.iter().all(|result| matches!(result, Some(Ok(())))) {
        return Ok(());
    }
    let faults = &at.core.faults;
    if faults.skip_stale_mark.load(Ordering::Relaxed) || faults.pass_for_written(written.iter().flatten()) {
        return Ok(());
    }
    let mut kept = written.iter().any(|result| matches!(result, Some(Ok(()))));
    for (copy, result) in copies.iter().zip(&written) {
        if kept && !matches!(result, Some(Ok(()))) {
            // Not, when the copies that were written have been lost meanwhile.
            kept = at.core.mark_stale(at.place, at.row, copy, mask).await?;
        }
    }
    if !kept && at.group().marks {
        // The write is not acknowledged, but some copies may have it and others not.
        at.group().unsettled.fetch_or(mask, Ordering::AcqRel);
    }
    at.core.attention.notify_one();
    if kept || faults.acknowledge_without_copy.load(Ordering::Relaxed) {
        return Ok(());
    }
    let gone = || BlockError::new(BlockErrorKind::Gone, "write: no good copy is left");
    Err(match written.into_iter().flatten().find_map(Result::err) {
        Some(cause) if cause.kind() == BlockErrorKind::NoSpace => cause,
        // Whatever it says, its disk is not used any more until it comes back.
        Some(cause) => gone().because(cause),
        None => gone(),
    })
}
