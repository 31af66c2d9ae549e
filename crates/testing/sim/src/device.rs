//! The disk as its users see it, for as long as it is attached.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, UnmapBehavior,
    check_range,
};

use crate::disk::{Lie, SimDisk, gone};
use crate::medium::{Change, Content};
use crate::{SECTOR, Survival};

/// A disk that is attached. It fails for ever once the power or the disk has gone.
pub struct SimDevice {
    /// Weak, so that what a simulated crash leaves behind does not keep the disk's memory.
    pub(crate) disk: Weak<SimDisk>,
    pub(crate) geometry: Geometry,
    pub(crate) attachment: u64,
}

/// Gives way so many times. Wakes itself, so that it works on every executor, also where there is no timer.
struct Turns(u64);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Counts an operation for as long as somebody waits for it.
struct Busy<'a>(&'a SimDisk);

impl<'a> Busy<'a> {
    fn new(disk: &'a SimDisk) -> Self {
        disk.busy.fetch_add(1, Ordering::AcqRel);
        Self(disk)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An operation that has begun. Dropped before its end, its effect is undecided.
struct Begun {
    disk: Arc<SimDisk>,
    number: u64,
    ended: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.ended {
            let mut inner = self.disk.inner.lock();
            if let Some(change) = inner.end(self.number)
                && self.disk.dice.one_in(2)
            {
                inner.medium.complete(change, false);
            }
        }
    }
}

impl SimDisk {
    /// The disk as a device, good until the power or the disk goes. It may be attached several times.
    #[must_use]
    pub fn attach(&self) -> Arc<SimDevice> {
        let attachment = self.inner.lock().attachment;
        Arc::new(SimDevice { disk: Weak::clone(&self.this), geometry: self.geometry.clone(), attachment })
    }

    /// The disk as a device of the first waist.
    #[must_use]
    pub fn device(&self) -> Device {
        self.attach()
    }
}

impl SimDevice {
    fn disk(&self) -> Result<Arc<SimDisk>, BlockError> {
        self.disk.upgrade().ok_or_else(gone)
    }

    async fn take_time(&self, disk: &SimDisk) {
        let _busy = Busy::new(disk);
        let pace = disk.pace;
        let slow = disk.dice.one_in(pace.slow_one_in);
        // Threads without an event loop have no timers.
        if slow && tokio::runtime::Handle::try_current().is_ok() {
            let millis = disk.dice.between(1, pace.slow_millis);
            shard_runtime::sleep(Duration::from_millis(millis)).await;
        } else {
            Turns(disk.dice.below(pace.turns + 1)).await;
        }
    }

    async fn change(
        &self,
        offset: u64,
        len: u64,
        content: Content,
        durability: Durability,
        takes_space: bool,
    ) -> Result<(), BlockError> {
        let disk = self.disk()?;
        check_range(offset, len, self.geometry.block_size, self.size())?;
        if len == 0 {
            return Ok(());
        }
        // What is dead does not count, and makes no choices.
        disk.inner.lock().check(self.attachment)?;
        disk.event()?;
        let mut begun = {
            let mut inner = disk.inner.lock();
            inner.check(self.attachment)?;
            let mut change = Change { offset: offset as usize, len: len as usize, content };
            if let Some(Lie::Misplace(one_in)) = inner.lie
                && disk.dice.one_in(one_in)
                && change.offset + change.len + 4096 <= inner.medium.size()
                && let Content::Data(_) = change.content
            {
                change.offset += 4096;
            }
            let number = inner.begin(change);
            Begun { disk: Arc::clone(&disk), number, ended: false }
        };
        self.take_time(&disk).await;
        // Also when this fails: who has ended it then is the cut.
        let powered = disk.event();
        let mut inner = disk.inner.lock();
        begun.ended = true;
        let change = inner.end(begun.number);
        powered?;
        inner.check(self.attachment)?;
        let change = change.ok_or_else(gone)?;
        if inner.fail_writes > 0 && inner.spare_writes > 0 {
            inner.spare_writes -= 1;
        } else if inner.fail_writes > 0 {
            inner.fail_writes -= 1;
            inner.medium.interrupt(vec![change], &disk.dice);
            return Err(BlockError::new(BlockErrorKind::Io, "simulated write failure").at(offset, len));
        }
        if takes_space && inner.is_too_full_for(&change) {
            if disk.dice.one_in(2) {
                inner.medium.interrupt(vec![change], &disk.dice);
            }
            return Err(BlockError::new(BlockErrorKind::NoSpace, "simulated full disk").at(offset, len));
        }
        if !inner.unreadable.is_empty() {
            let sectors = offset as usize / SECTOR..(offset + len) as usize / SECTOR;
            inner.unreadable.retain(|sector| !sectors.contains(sector));
        }
        let lied = matches!(inner.lie, Some(Lie::SkipForce(one_in)) if disk.dice.one_in(one_in));
        let durable = durability == Durability::Durable && !lied;
        if inner.losing.is_empty() {
            inner.medium.complete(change, durable);
        } else {
            let (lost, kept) = change.divide(&inner.losing);
            lost.iter().for_each(|part| inner.medium.lose(part));
            kept.into_iter().for_each(|part| inner.medium.complete(part, durable));
        }
        disk.written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    async fn flush_cache(&self) -> Result<(), BlockError> {
        let disk = self.disk()?;
        disk.inner.lock().check(self.attachment)?;
        disk.event()?;
        let covered = {
            let inner = disk.inner.lock();
            inner.check(self.attachment)?;
            inner.medium.completed()
        };
        self.take_time(&disk).await;
        disk.event()?;
        let mut inner = disk.inner.lock();
        inner.check(self.attachment)?;
        if inner.fail_flushes > 0 {
            inner.fail_flushes -= 1;
            // The disk itself goes on. What it has lost shows at once, or when it loses its cache.
            if disk.dice.one_in(2) {
                inner.medium.cut(Vec::new(), Survival::any(&disk.dice), &disk.dice);
            } else {
                inner.medium.fail_flush(covered, &disk.dice);
            }
            return Err(BlockError::new(BlockErrorKind::Io, "simulated flush failure"));
        }
        let lied = matches!(inner.lie, Some(Lie::SkipFlush(one_in)) if disk.dice.one_in(one_in));
        if !lied {
            inner.medium.flush(covered);
        }
        Ok(())
    }

    async fn read_range(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let disk = self.disk()?;
        let len = buf.len() as u64;
        check_range(offset, len, self.geometry.block_size, self.size())?;
        disk.inner.lock().check(self.attachment)?;
        self.take_time(&disk).await;
        if !disk.is_powered() {
            return Err(gone());
        }
        let inner = disk.inner.lock();
        inner.check(self.attachment)?;
        let sectors = offset as usize / SECTOR..(offset + len) as usize / SECTOR;
        if inner.unreadable.range(sectors).next().is_some() {
            return Err(BlockError::new(BlockErrorKind::Media, "simulated read failure").at(offset, len));
        }
        inner.medium.read(offset as usize, &mut buf);
        Ok(buf)
    }
}

impl BlockDevice for SimDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.disk.upgrade().map_or(0, |disk| disk.size())
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(self.read_range(offset, buf))
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let len = data.len() as u64;
            self.change(offset, len, Content::Data(data), durability, true).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(self.flush_cache())
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let content = match self.geometry.unmap {
                UnmapBehavior::Zeroes => Content::Zeros,
                UnmapBehavior::Unspecified => Content::Noise(0x5a),
                UnmapBehavior::Ignored => {
                    return check_range(offset, len, self.geometry.block_size, self.size());
                }
            };
            self.change(offset, len, content, Durability::Volatile, false).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(self.change(offset, len, Content::Zeros, durability, true))
    }
}
