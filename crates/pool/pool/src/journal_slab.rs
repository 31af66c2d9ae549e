//! Writing to the slab that the journal of a space lies in.

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::{BLOCK, JOURNAL_ANCHORS, JOURNAL_ROW, JournalAnchor};
use pool_layout::Striping;

use crate::at::At;
use crate::core::{Core, Space};
use crate::edit::Edit;
use crate::row::Place;
use crate::write::change_piece;

/// Writes an anchor to its block.
pub(crate) async fn write_anchor(
    core: &Arc<Core>,
    space: &Space,
    anchor: &JournalAnchor,
) -> Result<(), BlockError> {
    let block = IoBuf::copy_from(&anchor.encode()).freeze();
    put(core, space, anchor.number % JOURNAL_ANCHORS * BLOCK, block).await
}

/// Writes to the journal's slab, durably, on all its copies.
pub(crate) async fn put(
    core: &Arc<Core>,
    space: &Space,
    offset: u64,
    data: SharedBuf,
) -> Result<(), BlockError> {
    let gone = || BlockError::new(BlockErrorKind::Gone, "write to the journal");
    let row = space.row(JOURNAL_ROW).ok_or_else(gone)?;
    let striping = Striping::new(1, 0, BLOCK as u32, core.slab_size).ok_or_else(gone)?;
    let place = Place { space: space.id(), row: JOURNAL_ROW, column: 0 };
    let mut at = 0;
    let writes = striping.pieces(offset, data.len() as u64).map(|piece| {
        let part = data.slice(at..at + piece.len as usize);
        at += piece.len as usize;
        change_piece(At::new(core, space, &row, place), piece, Edit::Data(part), Durability::Durable)
    });
    futures_util::future::join_all(writes).await.into_iter().collect()
}
