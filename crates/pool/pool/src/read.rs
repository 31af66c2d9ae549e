//! Reading a space: the usual way, one read of one copy, without a lock.
//!
//! What comes back is compared with its checksums. When it differs, or the copy failed, or there is none, the piece is
//! read again with care (`careful.rs`): under its lock, from every copy, and from parity.
//!
//! After a crash the first read of a region that was dirty waits until its copies are equal (`resync.rs`), which takes one
//! region's copying: what has been read must not be taken back when the disk that it came from fails. A pool that is opened
//! read-only cannot do that. It answers from the first copy that is good, and promises no more than that the value is one that
//! the crash may have left: the opening for writing that comes next may settle on another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, check_range};
use futures_util::future::join_all;
use pool_format::BLOCK;
use pool_layout::Piece;

use crate::at::At;
use crate::careful;
use crate::core::{Core, Space};
use crate::recall::recall;
use crate::resync;
use crate::row::{Copies, CopyState, Place};
use crate::sums::page_at;

impl Space {
    pub(crate) async fn read_range(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        check_range(offset, buf.len() as u64, BLOCK as u32, self.bytes())?;
        let core = self.core()?;
        let mut pieces = self.striping.pieces(offset, buf.len() as u64);
        let Some(first) = pieces.next() else { return Ok(buf) };
        if first.len == buf.len() as u64 {
            return self.read_piece(&core, first, buf).await;
        }
        let mut reads = vec![self.read_piece(&core, first, buf.split_to(first.len as usize))];
        reads.extend(pieces.map(|piece| self.read_piece(&core, piece, buf.split_to(piece.len as usize))));
        let parts = join_all(reads).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(join(parts))
    }

    async fn read_piece(&self, core: &Arc<Core>, piece: Piece, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let Some(row) = self.row(piece.row) else {
            buf.fill(0);
            return Ok(buf);
        };
        let place = Place { space: self.id(), row: piece.row, column: piece.column };
        let at = At::new(core, self, &row, place);
        let mask = at.regions(piece.offset, piece.len);
        let mut may_be_unsettled = core.read_only;
        loop {
            if !may_be_unsettled && at.group().is_unsettled(mask) {
                resync::settle_before_read(at, piece.offset, piece.len).await?;
                may_be_unsettled = true;
            }
            if at.group().awaited.load(Ordering::Acquire) & mask != 0 {
                return Err(row.awaits("read a stripe that waits for lost disks"));
            }
            // The list is held during the read: whoever gives a copy's slab up waits for that.
            let Some((_list, copy)) = copy_to_read(at, piece) else { break };
            let page = page_at(at, piece.offset).await;
            let forgotten = at.group().forgotten.load(Ordering::Acquire) & mask;
            if forgotten != 0 {
                // A pool that may not be written reads on as it is.
                let _ = recall(at, forgotten).await;
            }
            match copy.disk.read(copy.start + piece.offset, buf).await {
                Ok(read) => {
                    // Looked at after the read: what was unsettled before may have been settled meanwhile.
                    let unsettled = at.group().is_unsettled(mask);
                    if unsettled && !may_be_unsettled {
                        buf = read;
                        continue;
                    }
                    let lacks = page.as_ref().is_some_and(|page| page.lacks(mask));
                    let told = page.filter(|page| page.unknown.load(Ordering::Acquire) & mask == 0);
                    let wrong = lacks || told.is_some_and(|page| !page.matches(piece.offset, &read));
                    if !wrong || unsettled || core.faults.skip_verify.load(Ordering::Relaxed) {
                        return Ok(read);
                    }
                }
                // Of a disk that leaves, its leaving is told, once; not each read that was on its way.
                Err(error) if error.kind() == BlockErrorKind::Gone => {}
                Err(error) => tracing::warn!("{at}: {error}; trying what else there is"),
            }
            break;
        }
        careful::read(self.this()?, piece).await
    }
}

/// The good copy whose turn it is.
fn copy_to_read(at: At<'_>, piece: Piece) -> Option<(Copies, Arc<CopyState>)> {
    let mask = at.regions(piece.offset, piece.len);
    let copies = at.column().copies();
    // One copy serves a region, so that a stream stays on one disk; another region, another copy. After a
    // crash the first good one answers until the copies have been made equal.
    let settled = !at.group().is_unsettled(mask);
    let turn = if settled { (piece.offset / at.space.striping.region_size()) as usize } else { 0 };
    let mut in_turn = (0..copies.len()).map(|step| &copies[(turn + step) % copies.len()]);
    let copy = in_turn.find(|copy| copy.is_good(mask)).cloned();
    copy.map(|copy| (copies, copy))
}

/// The parts of a split buffer as one again; copied only when one of them came from a second attempt and so
/// lies elsewhere.
fn join(parts: Vec<IoBuf>) -> IoBuf {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut whole = IoBuf::new(0);
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let Err(part) = whole.join(part) else { continue };
        let mut copy = IoBuf::new(len);
        let mut at = 0;
        for piece in std::iter::once(whole).chain(std::iter::once(part)).chain(parts) {
            copy[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        return copy;
    }
    whole
}
