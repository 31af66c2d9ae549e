//! READ, WRITE and FLUSH (MS-FSA 2.1.5.2, 2.1.5.3, 2.1.5.6).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use smb_protocol::NtStatus;
use smb_protocol::access::{AccessMask, CreateOptions};
use smb_protocol::directory::CompletionFilter;
use smb_protocol::fscc::notify::NotifyAction;

use crate::error::{Result, refuse};
use crate::file_system::{Core, Open, WriteFlags};
use crate::locks::ByteRange;

/// Rights that let data be read: who may run a program may read it (MS-SMB2 3.3.5.12).
pub(crate) const READS: AccessMask = AccessMask(AccessMask::READ_DATA.0 | AccessMask::EXECUTE.0);
/// Rights that let data be written.
pub(crate) const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);

impl Open {
    /// Reads into `buf` and gives it back, cut at the end of the file.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_DEVICE_REQUEST for a directory, FILE_LOCK_CONFLICT, END_OF_FILE beyond the end,
    /// INVALID_PARAMETER, FILE_CLOSED.
    pub async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        if self.directory {
            return refuse(NtStatus::INVALID_DEVICE_REQUEST, "a directory has no data");
        }
        self.needs_any(READS, "the open may not read")?;
        let range = checked_range(offset, buf.len())?;
        self.check_locks(range, false)?;
        let (data, asked) = (self.data()?, buf.len());
        if asked > 0 && offset >= data.size() {
            // The store need not be asked, whose own largest offset is below NTFS's.
            return refuse(NtStatus::END_OF_FILE, "");
        }
        let buf = if asked == 0 { buf } else { data.read(offset, buf).await? };
        if buf.is_empty() && asked > 0 {
            return refuse(NtStatus::END_OF_FILE, "");
        }
        Ok(buf)
    }

    /// Writes; u64::MAX as offset appends, for opens that may only append. Returns how many bytes.
    ///
    /// # Errors
    /// ACCESS_DENIED, INVALID_DEVICE_REQUEST, FILE_LOCK_CONFLICT, DISK_FULL, INVALID_PARAMETER, FILE_CLOSED.
    pub async fn write(self: &Arc<Self>, offset: u64, data: SharedBuf, flags: WriteFlags) -> Result<u32> {
        if self.directory {
            return refuse(NtStatus::INVALID_DEVICE_REQUEST, "a directory has no data");
        }
        self.needs_any(WRITES, "the open may not write")?;
        let open = Arc::clone(self);
        self.change(async move { open.write_now(offset, data, flags).await }).await
    }

    async fn write_now(&self, offset: u64, data: SharedBuf, flags: WriteFlags) -> Result<u32> {
        // Who may only append does so wherever it wants to write (MS-FSA 2.1.5.3); for others the offset of appending is a
        // negative one like any other, as Windows' server has it.
        if !self.granted.contains(AccessMask::WRITE_DATA) {
            let _turn = self.node.append.lock().await;
            let end = self.data()?.size();
            return self.write_at(end, data, flags).await;
        }
        self.write_at(offset, data, flags).await
    }

    async fn write_at(&self, offset: u64, bytes: SharedBuf, flags: WriteFlags) -> Result<u32> {
        let range = checked_range(offset, bytes.len())?;
        self.check_locks(range, true)?;
        let data = self.data()?;
        let len = bytes.len() as u32;
        if len == 0 {
            return Ok(0);
        }
        self.core.break_for_change(&self.node, &self.stream, &self.by()).await?;
        self.hold_write_time().await?;
        self.node.data_changes();
        let grows = self.core.watches.any() && data.size() < offset.saturating_add(u64::from(len));
        data.write(offset, bytes, self.durability_of(flags)).await?;
        self.wrote(grows).await?;
        Ok(len)
    }

    /// When a write is durable.
    pub(crate) fn durability_of(&self, flags: WriteFlags) -> block_device::Durability {
        let through = flags.write_through
            || self.caller.share.write_through
            || self.options.contains(CreateOptions::WRITE_THROUGH);
        if through { block_device::Durability::Durable } else { block_device::Durability::Volatile }
    }

    /// Data changed through this open: times that it froze stay as they are, and watchers hear of it.
    pub(crate) async fn wrote(&self, grew: bool) -> Result<()> {
        self.wrote.store(true, Ordering::Release);
        self.node.data_changes();
        let (written, changed) = {
            let state = self.state.lock();
            (state.sticky.written, state.sticky.changed)
        };
        if written.is_some() || changed.is_some() {
            // The store has moved the times on: back they go (MS-FSA 2.1.1.6 UserSetModificationTime).
            let before = self.core.info(&self.node).await?.times;
            let change = file_store::InfoChange {
                written,
                // Without one of its own, the time of change moves with the write.
                changed: changed.or(Some(self.core.clock.wall().0.max(before.changed))),
                ..file_store::InfoChange::default()
            };
            self.store().set_info(self.node.file, change).await?;
        }
        self.node.touched();
        if self.core.watches.any() {
            let size = if grew { CompletionFilter::SIZE } else { CompletionFilter::NONE };
            self.tell_data(CompletionFilter::LAST_WRITE | size);
        }
        Ok(())
    }

    /// Tells watchers that data changed.
    pub(crate) fn tell_data(&self, filter: CompletionFilter) {
        if self.stream.is_empty() {
            self.core.watches.tell(&self.node, NotifyAction::MODIFIED, filter);
        } else {
            let filter = CompletionFilter::STREAM_WRITE | CompletionFilter::STREAM_SIZE;
            let stream = self.stream_now();
            self.core.watches.tell_stream(&self.node, &stream, NotifyAction::MODIFIED_STREAM, filter);
        }
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// ACCESS_DENIED without a right to write (MS-SMB2 3.3.5.11), FILE_CLOSED.
    pub async fn flush(&self) -> Result<()> {
        self.needs_any(WRITES, "the open may not write, so neither flush")?;
        let data = self.data.read().clone();
        match data {
            Some(data) => data.flush().await?,
            // Names, and what else a client changes of a file without its data.
            None => self.core.store.sync().await?,
        }
        self.node.show_write_time();
        Ok(())
    }

    /// Refuses what byte-range locks keep out.
    pub(crate) fn check_locks(&self, range: ByteRange, write: bool) -> Result<()> {
        if self.node.locked.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let state = self.node.state.lock();
        let blocked =
            state.streams.get(&self.stream).is_some_and(|stream| stream.locks.blocks(self.id, range, write));
        if blocked {
            return refuse(NtStatus::FILE_LOCK_CONFLICT, "the range is locked");
        }
        Ok(())
    }
}

impl Core {
    /// Data or size changed other than by WRITE.
    pub(crate) async fn data_changed(self: &Arc<Self>, open: &Open, resized: bool) {
        if let Err(error) = self.break_for_change(&open.node, &open.stream, &open.by()).await {
            // The data have changed already. Whoever next relies on the break keeps the records first.
            tracing::warn!("a break of what a client caches is not durable yet: {error}");
        }
        open.node.show_write_time();
        if let Err(error) = open.wrote(resized).await {
            tracing::warn!("times of a file were not put back: {error}");
        }
    }

    /// Bytes that a stream has: known by its handle, or from the store.
    pub(crate) async fn stream_size(&self, open: &Open) -> Result<(u64, u64)> {
        if open.directory {
            return Ok((0, 0));
        }
        if open.stream.is_empty() {
            let info = self.info(&open.node).await?;
            let size = open.data.read().as_ref().map_or(info.size, |data| data.size());
            return Ok((size, info.allocated));
        }
        let streams = self.store.streams(open.node.file).await?;
        let name = crate::file_system::stream_key(&open.stream_now());
        let found = streams.iter().find(|stream| crate::file_system::stream_key(&stream.name) == name);
        match found {
            Some(stream) => Ok((stream.size, stream.allocated)),
            None => refuse(NtStatus::FILE_CLOSED, "the stream is gone"),
        }
    }
}

/// The range of a request; offsets are signed on NTFS.
pub(crate) fn checked_range(offset: u64, len: usize) -> Result<ByteRange> {
    let length = len as u64;
    match offset.checked_add(length) {
        Some(end) if end <= i64::MAX as u64 => Ok(ByteRange { offset, length }),
        _ => refuse(NtStatus::INVALID_PARAMETER, "the range ends beyond the largest offset"),
    }
}
