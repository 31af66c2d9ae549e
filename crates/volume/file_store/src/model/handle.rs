//! An open stream of the store in memory.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;

use super::state::{StreamId, end_of, invalid};
use super::{Shared, at_once, lock};
use crate::{Access, FileId, OpenFile, Range, StoreError, StoreErrorKind, StoreFuture};

/// One open.
pub(super) struct OpenHandle {
    state: Shared,
    id: u64,
    file: FileId,
    access: Access,
}

impl OpenHandle {
    pub(super) fn new(state: Shared, id: u64, file: FileId, access: Access) -> Self {
        Self { state, id, file, access }
    }

    /// Its stream, under the name that it has now.
    fn stream(&self) -> StreamId {
        lock(&self.state).stream_of(self.file, self.id)
    }

    fn may(&self, read: bool, write: bool) -> Result<(), StoreError> {
        if (read && !self.access.read) || (write && !self.access.write) {
            return Err(StoreError::new(StoreErrorKind::AccessDenied, "not opened for this"));
        }
        Ok(())
    }

    fn written(&self, offset: u64, data: &SharedBuf) -> Result<(), StoreError> {
        self.may(false, true)?;
        end_of(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let stream = self.stream();
        let mut state = lock(&self.state);
        state.may_reach(&stream, Some(self.id), offset + data.len() as u64)?;
        state.change(&stream, |content| content.write(offset, data))
    }

    fn compared(
        &self,
        offset: u64,
        expected: &SharedBuf,
        data: &SharedBuf,
    ) -> Result<Option<u64>, StoreError> {
        self.may(true, true)?;
        let end = end_of(offset, expected.len() as u64)?;
        if expected.len() != data.len() || end > self.size() {
            return Err(invalid("compare and write of different lengths, or beyond the end"));
        }
        let stream = self.stream();
        let present = lock(&self.state).content(&stream)?.read(offset, data.len() as u64);
        if let Some(at) = present.iter().zip(expected.iter()).position(|(a, b)| a != b) {
            return Ok(Some(at as u64));
        }
        self.written(offset, data).map(|()| None)
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        lock(&self.state).close(self.file, self.id);
    }
}

impl OpenFile for OpenHandle {
    fn file(&self) -> FileId {
        self.file
    }

    fn size(&self) -> u64 {
        let stream = self.stream();
        lock(&self.state).content(&stream).map_or(0, |content| content.size)
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        let bytes = (|| {
            self.may(true, false)?;
            end_of(offset, buf.len() as u64)?;
            let stream = self.stream();
            Ok(lock(&self.state).content(&stream)?.read(offset, buf.len() as u64))
        })();
        at_once(bytes.map(|bytes| {
            buf.truncate(bytes.len());
            buf.copy_from_slice(&bytes);
            buf
        }))
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> StoreFuture<'_, ()> {
        at_once(self.written(offset, &data))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        at_once(Ok(()))
    }

    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        at_once(self.compared(offset, &expected, &data))
    }

    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        let allocated = (|| {
            self.may(false, true)?;
            let end = end_of(offset, len)?;
            let stream = self.stream();
            let mut state = lock(&self.state);
            if len == 0 {
                return Ok(());
            }
            if grow {
                state.may_reach(&stream, Some(self.id), end)?;
            }
            // Asked for before units are made: the range may be larger than memory.
            let missing = state.content(&stream)?.missing(offset, end);
            state.has_room(missing)?;
            state.change(&stream, |content| {
                content.allocate(offset, end);
                if grow {
                    content.size = content.size.max(end);
                }
            })
        })();
        at_once(allocated)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        let punched = (|| {
            self.may(false, true)?;
            let end = end_of(offset, len)?;
            let stream = self.stream();
            lock(&self.state).change(&stream, |content| content.zero(offset, end, true))
        })();
        at_once(punched)
    }

    fn zero_range(&self, offset: u64, len: u64, _durability: Durability) -> StoreFuture<'_, ()> {
        let zeroed = (|| {
            self.may(false, true)?;
            let end = end_of(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            let stream = self.stream();
            let mut state = lock(&self.state);
            state.may_reach(&stream, Some(self.id), end)?;
            state.change(&stream, |content| {
                content.zero(offset, end, false);
                content.size = content.size.max(end);
            })
        })();
        at_once(zeroed)
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        let resized = (|| {
            self.may(false, true)?;
            end_of(size, 0)?;
            let stream = self.stream();
            let mut state = lock(&self.state);
            state.may_resize(&stream, Some(self.id), size)?;
            state.change(&stream, |content| content.resize(size))
        })();
        at_once(resized)
    }

    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        let ranges = (|| {
            let end = end_of(offset, len)?;
            let stream = self.stream();
            Ok(lock(&self.state).content(&stream)?.ranges(offset, end, limit))
        })();
        at_once(ranges)
    }

    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        let state = Arc::clone(&self.state);
        Box::pin(poll_fn(move |context| {
            let stream = self.stream();
            let mut state = lock(&state);
            match state.content(&stream).map(|content| content.size) {
                Ok(size) if size == known => {
                    state.wakers.push(context.waker().clone());
                    Poll::Pending
                }
                other => Poll::Ready(other),
            }
        }))
    }
}
