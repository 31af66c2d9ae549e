//! Controls about ranges: sparse files, zeros, allocation, trim, regions.

use std::sync::Arc;

use file_store::{Attributes, InfoChange};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, FileAttributes};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;
use smb_protocol::fsctl::ranges::{
    AllocatedRange, FileLevelTrim, Region, RegionInput, RegionUsage, TrimReply, ZeroData, put_regions,
    set_sparse,
};
use smb_protocol::wire::Wire;

use super::{Answer, CHANGES, done};
use crate::error::{Result, refuse};
use crate::file_system::Open;
use crate::locks::ByteRange;

/// Most allocated ranges of one answer: 64 KiB of them, a common buffer. Clients ask again behind the last.
const RANGES_MAX: usize = 4096;

/// Most bytes that are zeroed or trimmed as one change. Once begun it goes on to its end whoever asks, and whoever changes the file next
/// waits for it: a file system keeps nobody waiting for a terabyte that nobody wants zeroed any more.
const PIECE: u64 = 1 << 30;

/// A range in pieces of at most [`PIECE`] bytes that end where a multiple of it does.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset.saturating_add(length);
    let mut from = offset;
    std::iter::from_fn(move || {
        let to = (from / PIECE + 1).saturating_mul(PIECE).min(end);
        let piece = (from, to.saturating_sub(from));
        from = to;
        (piece.1 > 0).then_some(piece)
    })
}

/// A range with signed fields, as offsets.
fn signed(offset: i64, length: i64) -> Result<(u64, u64)> {
    match (u64::try_from(offset), u64::try_from(length), offset.checked_add(length)) {
        (Ok(offset), Ok(length), Some(_)) => Ok((offset, length)),
        _ => refuse(NtStatus::INVALID_PARAMETER, "a range that is none"),
    }
}

impl Open {
    /// FSCTL_SET_SPARSE (MS-FSA 2.1.5.10.37).
    pub(super) async fn set_sparse(&self, input: &[u8]) -> Result<Answer> {
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory is not sparse");
        }
        self.needs_any(CHANGES, "the open may not change the file")?;
        let info = self.core.store.info(self.node.file).await?;
        let old = FileAttributes(info.attributes.0);
        let sparse = FileAttributes::SPARSE_FILE;
        let new = if set_sparse(input) { old | sparse } else { old.without(sparse) };
        if new != old {
            let change = InfoChange { attributes: Some(Attributes(new.0)), ..InfoChange::default() };
            self.store().set_info(self.node.file, change).await?;
            self.node.touched();
            self.core.watches.tell(&self.node, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
        }
        done(Vec::new())
    }

    pub(super) async fn is_sparse(&self) -> Result<bool> {
        let info = self.core.info(&self.node).await?;
        Ok(FileAttributes(info.attributes.0).contains(FileAttributes::SPARSE_FILE))
    }

    /// FSCTL_SET_ZERO_DATA (MS-FSA 2.1.5.10.39). A sparse file gives the space back, another one keeps it.
    pub(super) async fn set_zero_data(self: &Arc<Self>, input: &[u8]) -> Result<Answer> {
        let Ok(zero) = ZeroData::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no data");
        }
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        let Some(length) = zero.beyond_final_zero.checked_sub(zero.file_offset) else {
            return refuse(NtStatus::INVALID_PARAMETER, "a range that is none");
        };
        let (offset, length) = signed(zero.file_offset, length)?;
        if length == 0 {
            return done(Vec::new());
        }
        let data = self.data()?;
        // The file does not grow (MS-FSA 2.1.5.10.39).
        let length = length.min(data.size().saturating_sub(offset));
        self.check_locks(ByteRange { offset, length }, true)?;
        if length == 0 {
            self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        }
        for (offset, length) in pieces(offset, length) {
            let open = Arc::clone(self);
            self.change(async move { open.zero_piece(offset, length).await }).await?;
        }
        done(Vec::new())
    }

    async fn zero_piece(self: &Arc<Self>, offset: u64, length: u64) -> Result<()> {
        let data = self.data()?;
        // Somebody may have cut the file since the piece before.
        let length = length.min(data.size().saturating_sub(offset));
        self.check_locks(ByteRange { offset, length }, true)?;
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        if length == 0 {
            return Ok(());
        }
        self.node.data_changes();
        if self.is_sparse().await? {
            // To the end of the file: its last cluster goes whole, there is nothing else in it.
            let cluster = u64::from(self.core.options.cluster.max(1));
            let end = offset + length;
            let end = if end == data.size() { end.next_multiple_of(cluster) } else { end };
            data.punch_hole(offset, end - offset).await?;
        } else {
            data.zero_range(offset, length, self.durability_of(crate::WriteFlags::default())).await?;
        }
        self.core.data_changed(self, false).await;
        Ok(())
    }

    /// FSCTL_QUERY_ALLOCATED_RANGES (MS-FSA 2.1.5.10.22).
    pub(super) async fn query_allocated(&self, input: &[u8], limit: usize) -> Result<Answer> {
        let Ok(asked) = AllocatedRange::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole");
        };
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no data");
        }
        self.needs(AccessMask::READ_DATA, "the open may not read")?;
        let (offset, length) = signed(asked.file_offset, asked.length)?;
        let data = self.data()?;
        let end = offset.saturating_add(length).min(data.size());
        if end <= offset {
            return done(Vec::new());
        }
        let fits = limit / AllocatedRange::SIZE;
        let ranges = if self.is_sparse().await? {
            data.allocated_ranges(offset, end - offset, RANGES_MAX.min(fits + 1)).await?
        } else {
            // All of a file that is not sparse is allocated.
            vec![file_store::Range { offset, len: end - offset }]
        };
        let mut out = Vec::new();
        for range in ranges.iter().take(fits) {
            let from = range.offset.max(offset);
            let to = range.offset.saturating_add(range.len).min(end);
            if from < to {
                AllocatedRange { file_offset: from as i64, length: (to - from) as i64 }.put(&mut out);
            }
        }
        if ranges.len() <= fits {
            return Ok((NtStatus::SUCCESS, out));
        }
        if out.is_empty() {
            return refuse(NtStatus::BUFFER_TOO_SMALL, "not one range fits");
        }
        Ok((NtStatus::BUFFER_OVERFLOW, out))
    }

    /// FSCTL_FILE_LEVEL_TRIM (MS-FSA 2.1.5.10.7): the data of the ranges are not needed any more.
    pub(super) async fn trim(self: &Arc<Self>, input: &[u8], limit: usize) -> Result<Answer> {
        let Ok(trim) = FileLevelTrim::decode(input) else {
            return refuse(NtStatus::INVALID_PARAMETER, "the ranges are not whole");
        };
        if self.directory || trim.key != 0 {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory, or a key");
        }
        self.needs(AccessMask::WRITE_DATA, "the open may not write")?;
        let data = self.data()?;
        let size = data.size();
        let mut processed = 0;
        for range in trim.ranges() {
            let Some(end) = range.offset.checked_add(range.length) else {
                return refuse(NtStatus::INVALID_PARAMETER, "a range that is none");
            };
            let length = end.min(size).saturating_sub(range.offset);
            self.check_locks(ByteRange { offset: range.offset, length }, true)?;
            for (offset, length) in pieces(range.offset, length) {
                let open = Arc::clone(self);
                self.change(async move { open.trim_piece(offset, length).await }).await?;
            }
            processed += 1;
        }
        let out = if limit >= TrimReply::SIZE { TrimReply { processed }.to_bytes() } else { Vec::new() };
        done(out)
    }

    async fn trim_piece(self: &Arc<Self>, offset: u64, length: u64) -> Result<()> {
        let data = self.data()?;
        let length = length.min(data.size().saturating_sub(offset));
        self.check_locks(ByteRange { offset, length }, true)?;
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        if length > 0 {
            self.node.data_changes();
            data.punch_hole(offset, length).await?;
            self.core.data_changed(self, false).await;
        }
        Ok(())
    }

    /// FSCTL_QUERY_FILE_REGIONS (MS-FSA 2.1.5.10.24): all of a file is valid, as what was never written reads as zeros.
    pub(super) async fn query_regions(&self, input: &[u8], limit: usize) -> Result<Answer> {
        let asked = match input {
            [] => RegionInput { file_offset: 0, length: i64::MAX, usage: RegionUsage::VALID_CACHED_DATA },
            input => match RegionInput::decode(input) {
                Ok(asked) => asked,
                Err(_) => return refuse(NtStatus::INVALID_PARAMETER, "the input is not whole"),
            },
        };
        if self.directory {
            return refuse(NtStatus::INVALID_PARAMETER, "a directory has no data");
        }
        self.needs(AccessMask::READ_DATA, "the open may not read")?;
        let (offset, length) = signed(asked.file_offset, asked.length)?;
        let usage = RegionUsage::VALID_CACHED_DATA | RegionUsage::VALID_NONCACHED_DATA;
        if !asked.usage.intersects(usage) {
            return refuse(NtStatus::INVALID_PARAMETER, "no usage that is known");
        }
        if limit < 16 {
            return refuse(NtStatus::BUFFER_TOO_SMALL, "the output does not fit");
        }
        let end = offset.saturating_add(length).min(self.data()?.size());
        let mut regions = Vec::new();
        if end > offset {
            regions.push(Region {
                file_offset: offset as i64,
                length: (end - offset) as i64,
                usage: asked.usage & usage,
            });
        }
        let mut out = Vec::new();
        let all = put_regions(&regions, limit, &mut out);
        Ok((if all { NtStatus::SUCCESS } else { NtStatus::BUFFER_OVERFLOW }, out))
    }
}
