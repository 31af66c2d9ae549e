//! The parts of a write to a space (its life is told in [`crate::space`]): dirty marks, copies, acknowledgement.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::SharedBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::join_all;
use pool_format::Change;
use pool_layout::Piece;

use crate::core::Core;
use crate::row::{Column, Copies, Place};

/// What a write does to its range.
#[derive(Clone)]
pub(crate) enum Edit {
    Data(SharedBuf),
    Zero { unmap: bool },
}

/// Makes sure that the metadata calls the regions dirty before they are written.
pub(crate) async fn ensure_dirty(
    core: &Core,
    place: Place,
    column: &Column,
    mask: u64,
) -> Result<(), BlockError> {
    if column.dirty_durable.load(Ordering::SeqCst) & mask == mask
        || core.faults.skip_dirty_mark.load(Ordering::Relaxed)
    {
        return Ok(());
    }
    let commit = {
        let mut order = column.order.lock();
        let back = order.cleaning & mask;
        order.cleaning &= !mask;
        column.dirty_durable.fetch_or(back, Ordering::SeqCst);
        if column.dirty_durable.load(Ordering::SeqCst) & mask == mask {
            return Ok(());
        }
        let Place { space, row, column } = place;
        core.meta.submit(vec![Change::Dirty { space, row, column, mask }])
    };
    commit.done().await?;
    column.dirty_durable.fetch_or(mask, Ordering::SeqCst);
    Ok(())
}

/// Writes every good copy; the result of each, `None` for those that were left out.
pub(crate) async fn write_copies(
    copies: &Copies,
    piece: Piece,
    mask: u64,
    change: &Edit,
    durability: Durability,
) -> Vec<Option<Result<(), BlockError>>> {
    let writes = copies.iter().map(|copy| async {
        if !copy.is_good(mask) {
            return None;
        }
        let at = copy.start + piece.offset;
        Some(match change {
            Edit::Data(data) => copy.disk.write(at, data.clone(), durability).await,
            Edit::Zero { unmap } => copy.disk.zero(at, piece.len, *unmap, durability).await,
        })
    });
    join_all(writes).await
}

/// Decides what a write came to: at least one copy has it, and the others are known to lack it.
pub(crate) async fn acknowledge(
    core: &Core,
    place: Place,
    column: &Column,
    copies: &Copies,
    mask: u64,
    written: Vec<Option<Result<(), BlockError>>>,
) -> Result<(), BlockError> {
    if written.iter().all(|result| matches!(result, Some(Ok(())))) {
        return Ok(());
    }
    if core.faults.skip_stale_mark.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut kept = written.iter().any(|result| matches!(result, Some(Ok(()))));
    for (copy, result) in copies.iter().zip(&written) {
        if kept && !matches!(result, Some(Ok(()))) {
            // Not, when the copies that were written have been lost meanwhile.
            kept = core.mark_stale(place, column, copy, mask).await?;
        }
    }
    if !kept && copies.len() > 1 {
        // The write is not acknowledged, but some copies may have it and others not.
        column.unsettled.fetch_or(mask, Ordering::AcqRel);
    }
    core.attention.notify_one();
    if kept {
        return Ok(());
    }
    let cause = written.into_iter().flatten().find_map(Result::err);
    Err(cause.unwrap_or_else(|| BlockError::new(BlockErrorKind::Gone, "write: no good copy is left")))
}

/// Makes everything that was written to the pool's disks durable, and marks what disks may have lost.
pub(crate) async fn flush_disks(core: &Arc<Core>) -> Result<(), BlockError> {
    let disks = core.all_disks();
    let online = disks.iter().filter(|disk| disk.is_online());
    // A disk that fails to flush goes offline; the marks below and the caller's look at the copies deal with it.
    join_all(online.map(|disk| async move { disk.flush().await })).await;
    for disk in disks.iter().filter(|disk| !disk.is_online()) {
        core.mark_losses(disk).await?;
    }
    Ok(())
}
