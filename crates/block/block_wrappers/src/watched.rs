//! A disk under watch: what goes through it is counted, and tests switch faults on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, Reservations, join,
};
use observe::{IoKind, IoTally, IoTotals};
use parking_lot::Mutex;
use shard_runtime::Clock;

use crate::fault::{Fault, FaultKind, FaultOperation, Met, Operation};

/// A disk with counters and faults. Without faults an operation costs two looks at the clock more.
pub struct WatchedDisk {
    inner: Device,
    clock: Arc<dyn Clock>,
    tally: IoTally,
    /// Whether there are faults at all: the one thing that is looked at when there are none.
    faulty: AtomicBool,
    faults: Mutex<Vec<Fault>>,
    /// When operations that go one after another have been done, in nanoseconds.
    serial_until: AtomicU64,
}

impl WatchedDisk {
    /// Watches a disk.
    #[must_use]
    pub fn new(inner: Device, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            clock,
            tally: IoTally::default(),
            faulty: AtomicBool::new(false),
            faults: Mutex::default(),
            serial_until: AtomicU64::new(0),
        }
    }

    /// Replaces the faults; none to switch them all off.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        let mut now = self.faults.lock();
        *now = faults;
        self.serial_until.store(0, Ordering::Relaxed);
        self.faulty.store(!now.is_empty(), Ordering::Release);
    }

    /// What went through it so far. Unmaps are counted with the writes.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        self.tally.totals()
    }

    /// The faults that meet an operation, counted down.
    fn meet(&self, operation: Operation) -> Met {
        let mut met = Met::default();
        if !self.faulty.load(Ordering::Acquire) {
            return met;
        }
        let mut faults = self.faults.lock();
        for fault in faults.iter_mut().filter(|fault| fault.meets(operation)) {
            match &mut fault.count {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            match fault.kind {
                FaultKind::Delay(time) => met.delay += time,
                // Under the lock of the faults, so nobody comes in between.
                FaultKind::Serial(time) => {
                    let now = self.clock.now().0;
                    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                    let done = self.serial_until.load(Ordering::Relaxed).max(now).saturating_add(time);
                    self.serial_until.store(done, Ordering::Relaxed);
                    met.delay += Duration::from_nanos(done - now);
                }
                kind => met.fault = Some(kind),
            }
        }
        met
    }

    /// Waits and fails as the faults want it; gives back what is left to do wrong.
    async fn pass(&self, operation: Operation) -> Result<Option<FaultKind>, BlockError> {
        let met = self.meet(operation);
        if !met.delay.is_zero() {
            wait(met.delay).await;
        }
        let kind = match met.fault {
            Some(FaultKind::Vanish) => BlockErrorKind::Gone,
            Some(FaultKind::Error) if operation.kind == FaultOperation::Read => BlockErrorKind::Media,
            Some(FaultKind::Error) => BlockErrorKind::Io,
            other => return Ok(other),
        };
        Err(BlockError::new(kind, operation.doing)
            .at(operation.offset, operation.len)
            .because("a fault that was switched on"))
    }

    /// Runs an operation, counted.
    async fn count<T>(
        &self,
        operation: Operation,
        run: impl Future<Output = Result<T, BlockError>>,
    ) -> Result<T, BlockError> {
        let _under_way = self.tally.begin();
        let began = self.clock.now();
        let result = run.await;
        let kind = match operation.kind {
            FaultOperation::Read => IoKind::Read,
            FaultOperation::Write => IoKind::Write,
            FaultOperation::Any | FaultOperation::Flush => IoKind::Flush,
        };
        self.tally.record(kind, operation.len, self.clock.now().since(began), result.is_ok());
        result
    }
}

impl WatchedDisk {
    /// A write as the fault would have it.
    async fn faulty_write(
        &self,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
        fault: Option<FaultKind>,
    ) -> Result<(), BlockError> {
        let (len, block) = (data.len() as u64, u64::from(self.geometry().block_size));
        match fault {
            Some(FaultKind::Lost) => Ok(()),
            Some(FaultKind::Torn) => {
                let half = len / 2 / block * block;
                let data = IoBuf::copy_from(&data[..half as usize]).freeze();
                self.inner.write(offset, data, durability).await?;
                Err(BlockError::new(BlockErrorKind::Io, "write, torn by a fault").at(offset, len))
            }
            Some(FaultKind::Misdirected) => {
                // To the next place, or to the start where there is none.
                let next = offset.saturating_add(len);
                let elsewhere = if next.saturating_add(len) <= self.size() { next } else { 0 };
                self.inner.write(elsewhere, data, durability).await
            }
            _ => self.inner.write(offset, data, durability).await,
        }
    }
}

/// Waits on any thread that does I/O. That of a volume's metadata has no timer, and nothing else to do meanwhile.
async fn wait(delay: Duration) {
    if tokio::runtime::Handle::try_current().is_ok() {
        return shard_runtime::sleep(delay).await;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a fault of tests, on a thread of its own that is no shard"
    )]
    std::thread::sleep(delay);
}

fn write(doing: &'static str, offset: u64, len: u64) -> Operation {
    Operation { kind: FaultOperation::Write, doing, offset, len }
}

impl BlockDevice for WatchedDisk {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        let operation =
            Operation { kind: FaultOperation::Read, doing: "read", offset, len: buf.len() as u64 };
        Box::pin(self.count(operation, async move {
            let fault = self.pass(operation).await?;
            let mut buf = self.inner.read(offset, buf).await?;
            if fault == Some(FaultKind::BitRot)
                && let Some(byte) = buf.first_mut()
            {
                *byte ^= 1;
            }
            Ok(buf)
        }))
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let len = data.len() as u64;
        let operation = write("write", offset, len);
        Box::pin(self.count(operation, async move {
            let fault = self.pass(operation).await?;
            self.faulty_write(offset, data, durability, fault).await
        }))
    }

    fn write_vectored(
        &self,
        offset: u64,
        parts: Vec<SharedBuf>,
        durability: Durability,
    ) -> BlockFuture<'_, ()> {
        let operation = write("write", offset, parts.iter().map(|part| part.len() as u64).sum());
        Box::pin(self.count(operation, async move {
            match self.pass(operation).await? {
                None => self.inner.write_vectored(offset, parts, durability).await,
                fault => self.faulty_write(offset, join(&parts), durability, fault).await,
            }
        }))
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        let operation = Operation { kind: FaultOperation::Flush, doing: "flush", offset: 0, len: 0 };
        Box::pin(self.count(operation, async move {
            match self.pass(operation).await? {
                Some(FaultKind::Lost) => Ok(()),
                _ => self.inner.flush().await,
            }
        }))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        let operation = write("unmap", offset, len);
        Box::pin(self.count(operation, async move {
            match self.pass(operation).await? {
                Some(FaultKind::Lost) => Ok(()),
                _ => self.inner.unmap(offset, len).await,
            }
        }))
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        let operation = write("write zeroes", offset, len);
        Box::pin(self.count(operation, async move {
            match self.pass(operation).await? {
                Some(FaultKind::Lost) => Ok(()),
                _ => self.inner.write_zeroes(offset, len, durability).await,
            }
        }))
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        self.inner.has_room_for(ranges)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.inner.allocate(offset, len)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.inner.wait_resize(known)
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        self.inner.reservations()
    }
}
