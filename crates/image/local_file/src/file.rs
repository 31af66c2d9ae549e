//! One open file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{FILE_SIZE_MAX, FileId, OpenFile, Range, StoreError, StoreErrorKind, StoreFuture};
use io_engine::{IoOp, IoRequest, IoTarget, Zeroing, device_info, image_locks, plain_file, submit};
use shard_runtime::{RangeGuard, RangeLocks};
use tokio::sync::Notify;

/// Zeros are written in pieces of so many bytes where the file system cannot zero by itself.
const ZERO_CHUNK: u64 = 1 << 20;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be read.
    Read,
    /// To be read and written.
    Write,
    /// To be made; there must be none of that name.
    Create,
    /// To be written by whoever has just made it, under a name that nobody else knows.
    Fill,
}

/// An open file of this machine.
pub struct LocalFile {
    name: String,
    file: File,
    target: IoTarget,
    id: FileId,
    writable: bool,
    size: AtomicU64,
    ranges: RangeLocks,
    resized: Notify,
    stopped: AtomicBool,
    /// What the file system cannot do: zeros are written instead.
    zeroing: Zeroing,
}

impl LocalFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened, is no plain file, or is used by somebody else (kind `WouldBlock`).
    pub fn open(path: &Path, purpose: Purpose) -> io::Result<Arc<Self>> {
        let writable = purpose != Purpose::Read;
        let mut options = OpenOptions::new();
        options.read(true).write(writable).create_new(purpose == Purpose::Create);
        let file = plain_file::open(path, &options)?;
        let metadata = file.metadata()?;
        let locked = match purpose {
            Purpose::Read | Purpose::Write => image_locks::take(&file, writable),
            // A new file has no user whom its bytes could be locked for.
            Purpose::Create | Purpose::Fill => file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => plain_file::used(),
                TryLockError::Error(error) => error,
            }),
        };
        if locked.is_err() && purpose == Purpose::Create {
            // Whoever asked for it does not get it: nothing of it stays.
            let _ = std::fs::remove_file(path);
        }
        locked?;
        let target = IoTarget::of(OwnedFd::from(file.try_clone()?));
        Ok(Arc::new(Self {
            name: path.display().to_string(),
            file,
            target,
            id: FileId(metadata.ino()),
            writable,
            size: AtomicU64::new(metadata.len()),
            ranges: RangeLocks::default(),
            resized: Notify::new(),
            stopped: AtomicBool::new(false),
            zeroing: Zeroing::default(),
        }))
    }

    fn error(&self, doing: &str, error: &io::Error) -> StoreError {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreErrorKind::NoSpace
            }
            io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
            io::ErrorKind::PermissionDenied => StoreErrorKind::AccessDenied,
            _ => StoreErrorKind::Io,
        };
        StoreError::new(kind, format!("{}: {doing}: {error}", self.name))
    }

    fn may_write(&self) -> Result<(), StoreError> {
        if !self.writable {
            return Err(StoreError::new(
                StoreErrorKind::AccessDenied,
                format!("{}: opened to be read", self.name),
            ));
        }
        self.goes_on()
    }

    fn goes_on(&self) -> Result<(), StoreError> {
        if self.stopped.load(Ordering::Acquire) {
            let told = format!("{}: stopped after a write had failed", self.name);
            return Err(StoreError::new(StoreErrorKind::Stopped, told));
        }
        Ok(())
    }

    async fn request(&self, offset: u64, op: IoOp) -> (io::Result<usize>, IoOp) {
        let end = submit(IoRequest { target: self.target.clone(), offset, op }).await;
        (end.result, end.op)
    }

    async fn put(&self, offset: u64, data: SharedBuf, durable: bool) -> Result<(), StoreError> {
        let end = end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.request(offset, IoOp::Write { data, durable }).await.0 {
            if durable && error.kind() != io::ErrorKind::StorageFull {
                self.stopped.store(true, Ordering::Release);
            }
            return Err(self.error("write", &error));
        }
        self.grown_to(end);
        Ok(())
    }

    /// Locks a range that the file may have to be made longer for. If so, what lies behind it as well: who writes there makes the
    /// file longer than that, and would lose it.
    async fn lock_to(&self, offset: u64, len: u64, end: u64) -> RangeGuard<'_> {
        let held = self.ranges.lock(offset, len).await;
        if end <= self.size() {
            return held;
        }
        drop(held);
        self.ranges.lock(offset, u64::MAX).await
    }

    fn grown_to(&self, end: u64) {
        if self.size.fetch_max(end, Ordering::AcqRel) < end {
            self.resized.notify_waiters();
        }
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.goes_on()?;
        if let Err(error) = self.request(0, IoOp::Sync).await.0 {
            self.stopped.store(true, Ordering::Release);
            return Err(self.error("flush", &error));
        }
        self.goes_on()
    }

    async fn zero(&self, offset: u64, len: u64, punch: bool) -> Result<(), StoreError> {
        if len == 0 {
            return Ok(());
        }
        let zeroed = self.zeroing.zero(&self.target, offset, len, punch).await;
        if zeroed.map_err(|error| self.error("zero", &error))? {
            return Ok(());
        }
        let zeros = IoBuf::zeroed(ZERO_CHUNK.min(len) as usize).freeze();
        let mut done = 0;
        while done < len {
            let step = (len - done).min(zeros.len() as u64);
            self.put(offset + done, zeros.slice(0..step as usize), false).await?;
            done += step;
        }
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<(), StoreError> {
        self.may_write()?;
        end_of(size, 0)?;
        self.file.set_len(size).map_err(|error| self.error("change the size", &error))?;
        self.size.store(size, Ordering::Release);
        self.resized.notify_waiters();
        Ok(())
    }
}

/// The file system cannot reserve.
fn cannot(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

fn end_of(offset: u64, len: u64) -> Result<u64, StoreError> {
    offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or_else(|| {
        StoreError::new(StoreErrorKind::InvalidArgument, "the range ends beyond the largest size")
    })
}

impl OpenFile for LocalFile {
    fn file(&self) -> FileId {
        self.id
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            end_of(offset, buf.len() as u64)?;
            buf.truncate(self.size().saturating_sub(offset).min(buf.len() as u64) as usize);
            if buf.is_empty() {
                return Ok(buf);
            }
            let (result, op) = self.request(offset, IoOp::Read(buf)).await;
            let got = result.map_err(|error| self.error("read", &error))?;
            let IoOp::Read(mut buf) = op else {
                return Err(StoreError::new(StoreErrorKind::Io, "a buffer did not come back from the file"));
            };
            buf.truncate(got);
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.may_write()?;
            let _held = self.ranges.lock(offset, data.len() as u64).await;
            self.put(offset, data, durability == Durability::Durable).await
        })
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.sync())
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        Box::pin(async move {
            self.may_write()?;
            let _held = self.ranges.lock(offset, data.len() as u64).await;
            let end = end_of(offset, expected.len() as u64)?;
            if expected.len() != data.len() || end > self.size() {
                let told = "compare and write of different lengths, or beyond the end";
                return Err(StoreError::new(StoreErrorKind::InvalidArgument, told));
            }
            let present = self.read(offset, IoBuf::new(expected.len())).await?;
            if let Some(at) = present.iter().zip(expected.iter()).position(|(a, b)| a != b) {
                return Ok(Some(at as u64));
            }
            self.put(offset, data, true).await.map(|()| None)
        })
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.may_write()?;
            let end = end_of(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            match device_info::reserve(&self.file, offset, len) {
                Ok(()) => {}
                // A file system that cannot reserve has no space to run out of, or says so with each write.
                Err(error) if cannot(&error) => {}
                Err(error) => return Err(self.error("reserve space", &error)),
            }
            if grow {
                let _held = self.lock_to(offset, len, end).await;
                if end > self.size() {
                    return self.resize(end);
                }
            }
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.may_write()?;
            let end = end_of(offset, len)?.min(self.size());
            let _held = self.ranges.lock(offset, len).await;
            self.zero(offset, end.saturating_sub(offset), true).await
        })
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.may_write()?;
            let end = end_of(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            let _held = self.lock_to(offset, len, end).await;
            if end > self.size() {
                self.resize(end)?;
            }
            self.zero(offset, len, false).await?;
            if durability == Durability::Durable { self.sync().await } else { Ok(()) }
        })
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // Nothing may be written behind the end that is being cut.
            let _held = self.ranges.lock(0, u64::MAX).await;
            self.resize(size)
        })
    }

    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        Box::pin(async move {
            let end = end_of(offset, len)?.min(self.size());
            let mut ranges = Vec::new();
            let mut at = offset;
            while at < end && ranges.len() < limit {
                let next = device_info::next_data(&self.file, at);
                let Some(data) = next.map_err(|error| self.error("look for data", &error))? else { break };
                let (start, stop) = (data.start.max(at), data.end.min(end));
                if start >= end {
                    break;
                }
                ranges.push(Range { offset: start, len: stop - start });
                at = stop;
            }
            Ok(ranges)
        })
    }

    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            loop {
                let resized = self.resized.notified();
                let size = self.size();
                if size != known {
                    return Ok(size);
                }
                resized.await;
            }
        })
    }
}
