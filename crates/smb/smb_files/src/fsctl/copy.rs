//! Copies within the server: COPYCHUNK and DUPLICATE_EXTENTS. What can share storage is not copied.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use smb_protocol::NtStatus;
use smb_protocol::access::AccessMask;
use smb_protocol::fsctl::copy::{CopyReply, CopyRequest, DuplicateExtents, DuplicateExtentsEx, MAX_CHUNKS};
use smb_protocol::wire::Wire;

use super::{Answer, done};
use crate::WriteFlags;
use crate::data::checked_range;
use crate::error::{Detail, FileError, Result, refuse};
use crate::file_system::{Open, OpenLookup};
use crate::locks::ByteRange;

/// Most bytes of a piece, and of a request: Windows' limits (MS-SMB2 3.3.3, ServerSideCopyMax…).
const CHUNK_BYTES: u32 = 1 << 20;
const TOTAL_BYTES: u32 = 16 << 20;
/// Bytes that are copied at once where data have to move.
const PIECE: u64 = 1 << 20;
/// What the ranges of DUPLICATE_EXTENTS are made of: a cluster as most clients expect it. Of the larger ones that the store
/// may have it shares those that are whole, and copies the edges.
const GRAIN: u64 = 4096;
/// STATUS_INVALID_VIEW_SIZE: a piece ends beyond the source.
const INVALID_VIEW_SIZE: NtStatus = NtStatus(0xc000_001f);

/// The limits, as the client is told them (MS-SMB2 3.3.5.15.6).
fn limits() -> FileError {
    let limits = CopyReply { chunks: MAX_CHUNKS, chunk_bytes: CHUNK_BYTES, total_bytes: TOTAL_BYTES };
    FileError::new(NtStatus::INVALID_PARAMETER, "more is to be copied at once than the limits allow")
        .with(Detail::Output(limits.to_bytes().into_boxed_slice()))
}

impl Open {
    /// FSCTL_SRV_COPYCHUNK and _WRITE (MS-SMB2 3.3.5.15.6); this open is the target.
    pub(super) async fn copy_chunks(
        self: &Arc<Self>,
        input: &[u8],
        limit: usize,
        others: &dyn OpenLookup,
        needs_read: bool,
    ) -> Result<Answer> {
        let Ok(request) = CopyRequest::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the pieces are not whole");
        };
        if limit < CopyReply::SIZE {
            return refuse(NtStatus::INVALID_PARAMETER, "the answer does not fit");
        }
        let Some(source) = others.by_resume_key(request.source) else {
            return refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "no open of the session has that resume key");
        };
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        self.needs_any(writes, "the target may not be written")?;
        if needs_read {
            self.needs(AccessMask::READ_DATA, "the target may not be read")?;
        }
        // Who may run a program may read it.
        let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
        source.needs_any(reads, "the source may not be read")?;
        let total = request.chunks().fold(0_u64, |sum, chunk| sum + u64::from(chunk.length));
        let bad = |length: u32| length == 0 || length > CHUNK_BYTES;
        if request.claimed > MAX_CHUNKS
            || total > u64::from(TOTAL_BYTES)
            || request.chunks().any(|chunk| bad(chunk.length))
        {
            return Err(limits());
        }
        let mut reply = CopyReply::default();
        for chunk in request.chunks() {
            let length = u64::from(chunk.length);
            let copied = self.copy_range(&source, chunk.source_offset, chunk.target_offset, length).await;
            if let Err(error) = copied {
                // What was copied before is told (MS-SMB2 3.3.5.15.6).
                return Err(error.with(Detail::Output(reply.to_bytes().into_boxed_slice())));
            }
            reply.chunks += 1;
            reply.total_bytes += chunk.length;
        }
        done(reply.to_bytes())
    }

    /// Bytes that a COPYCHUNK has to move: what can share its storage is not copied. `None` when it will be refused.
    pub(super) fn bytes_to_copy(&self, input: &[u8], others: &dyn OpenLookup) -> Option<u64> {
        let request = CopyRequest::decode(input).ok()?;
        let source = others.by_resume_key(request.source)?;
        let mut bytes = 0_u64;
        for chunk in request.chunks() {
            let len = usize::try_from(chunk.length).ok()?;
            let from = checked_range(chunk.source_offset, len).ok()?.offset;
            let to = checked_range(chunk.target_offset, len).ok()?.offset;
            if !self.can_share(&source, from, to, u64::from(chunk.length)) {
                bytes += u64::from(chunk.length);
            }
        }
        (bytes <= u64::from(TOTAL_BYTES)).then_some(bytes)
    }

    /// Makes a range of this open the same as one of `source`.
    pub(super) async fn copy_range(
        self: &Arc<Self>,
        source: &Arc<Self>,
        from: u64,
        to: u64,
        length: u64,
    ) -> Result<()> {
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        let (source_range, target_range) = (checked_range(from, len)?, checked_range(to, len)?);
        if source_range.offset + source_range.length > source.data()?.size() {
            return refuse(INVALID_VIEW_SIZE, "the piece ends beyond the source");
        }
        if self.can_share(source, from, to, length) {
            return self.share_range(source, from, to, length, true).await;
        }
        // All or nothing where somebody has locked a part; where only appending is allowed, the write finds its own range.
        source.check_locks(source_range, false)?;
        if self.granted.contains(AccessMask::WRITE_DATA) {
            self.check_locks(target_range, true)?;
        }
        let mut done = 0;
        while done < length {
            let piece = PIECE.min(length - done) as usize;
            let buf = source.read(from + done, IoBuf::new(piece)).await?;
            if buf.len() != piece {
                return refuse(INVALID_VIEW_SIZE, "the source became shorter");
            }
            self.write(to + done, buf.freeze(), WriteFlags::default()).await?;
            done += piece as u64;
        }
        Ok(())
    }

    /// Lets a range of this open share its storage with one of `source`: a read there and a write here, for which locks
    /// count, caches are broken and tokens become void as for any other.
    async fn share_range(
        self: &Arc<Self>,
        source: &Arc<Self>,
        from: u64,
        to: u64,
        length: u64,
        may_grow: bool,
    ) -> Result<()> {
        self.needs(AccessMask::WRITE_DATA, "the target may not be written")?;
        source.check_locks(ByteRange { offset: from, length }, false)?;
        self.check_locks(ByteRange { offset: to, length }, true)?;
        let (open, source) = (Arc::clone(self), Arc::clone(source));
        self.change(async move {
            let core = &open.core;
            core.break_for_change(&open.node, &open.stream, &open.by()).await?;
            open.node.data_changes();
            core.store.clone_range((source.node.file, from), (open.node.file, to), length).await?;
            core.data_changed(&open, may_grow).await;
            Ok(())
        })
        .await
    }

    /// Whether the store can let both ranges share their clusters. Who may only append writes to the end, wherever it asks
    /// to, so its data are copied there.
    fn can_share(&self, source: &Open, from: u64, to: u64, length: u64) -> bool {
        let cluster = u64::from(self.core.options.cluster.max(1));
        let aligned = [from, to, length].iter().all(|value| value.is_multiple_of(cluster));
        let apart = self.node.file != source.node.file || from + length <= to || to + length <= from;
        aligned
            && apart
            && self.granted.contains(AccessMask::WRITE_DATA)
            && length > 0
            && self.stream.is_empty()
            && source.stream.is_empty()
            && Arc::ptr_eq(&self.core, &source.core)
    }

    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE and _EX (MS-FSA 2.1.5.10.4); this open is the target.
    pub(super) async fn duplicate(
        self: &Arc<Self>,
        input: &[u8],
        others: &dyn OpenLookup,
        ex: bool,
    ) -> Result<Answer> {
        let asked = if ex {
            DuplicateExtentsEx::decode(input)
                .ok()
                .filter(|asked| asked.structure_size == DuplicateExtentsEx::STRUCTURE_SIZE)
                .map(|asked| asked.extents)
        } else {
            DuplicateExtents::decode(input).ok()
        };
        let Some(asked) = asked else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        self.needs(AccessMask::WRITE_DATA, "the target may not be written")?;
        let Some(source) = others.by_file_id(asked.source) else {
            return refuse(NtStatus::INVALID_HANDLE, "no open of the session has that identifier");
        };
        source.needs(AccessMask::READ_DATA, "the source may not be read")?;
        let range = [asked.source_offset, asked.target_offset, asked.byte_count].map(u64::try_from);
        let [Ok(from), Ok(to), Ok(length)] = range else {
            return refuse(NtStatus::INVALID_PARAMETER, "a negative range");
        };
        if !Arc::ptr_eq(&self.core, &source.core) {
            return refuse(NtStatus::NOT_SAME_DEVICE, "the files are on different volumes");
        }
        if !self.stream.is_empty() || !source.stream.is_empty() {
            return refuse(NtStatus::NOT_SUPPORTED, "extents of named streams are not shared");
        }
        if length == 0 {
            return done(Vec::new());
        }
        let end = from.checked_add(length).filter(|end| *end <= i64::MAX as u64);
        let Some((end, target_end)) = end.zip(to.checked_add(length).filter(|end| *end <= i64::MAX as u64))
        else {
            return refuse(NtStatus::INVALID_PARAMETER, "a range beyond the largest offset");
        };
        let size = source.data()?.size();
        if end > size {
            return refuse(NtStatus::NOT_SUPPORTED, "the range ends beyond the source");
        }
        // The target does not grow: clients set its size before (MS-FSCC 2.3.8). What its last cluster has behind the end
        // may be meant too.
        let cluster = u64::from(self.core.options.cluster.max(1));
        let target_size = self.data()?.size();
        if target_end > target_size.next_multiple_of(cluster) {
            return refuse(NtStatus::NOT_SUPPORTED, "the range ends beyond the target");
        }
        let fits = length.min(target_size.saturating_sub(to));
        // The last block of the source may be a part of one.
        let whole = length.is_multiple_of(GRAIN) || end == size;
        if !from.is_multiple_of(GRAIN) || !to.is_multiple_of(GRAIN) || !whole {
            return refuse(NtStatus::INVALID_PARAMETER, "the ranges are not made of blocks");
        }
        if self.node.file == source.node.file && from < target_end && to < end {
            return refuse(NtStatus::NOT_SUPPORTED, "the ranges overlap");
        }
        if source.is_sparse().await? && !self.is_sparse().await? {
            return refuse(NtStatus::NOT_SUPPORTED, "the source is sparse and the target is not");
        }
        self.share_range(&source, from, to, fits, false).await?;
        done(Vec::new())
    }
}
