//! A disk under watch: what goes through it is counted, and tests switch faults on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry};
use parking_lot::Mutex;
use shard_runtime::Clock;

use crate::fault::{Fault, FaultKind, FaultOperation, Met, Operation};

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    operations: AtomicU64,
    nanos: AtomicU64,
}

/// What went through a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Writes that succeeded, also of zeros, and unmaps.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Mean time of an operation that succeeded, in microseconds.
    pub mean_latency_us: f64,
}

/// A disk with counters and faults. Without faults an operation costs two looks at the clock more.
pub struct WatchedDisk {
    inner: Device,
    clock: Arc<dyn Clock>,
    counters: Counters,
    /// Whether there are faults at all: the one thing that is looked at when there are none.
    faulty: AtomicBool,
    faults: Mutex<Vec<Fault>>,
}

impl WatchedDisk {
    /// Watches a disk.
    #[must_use]
    pub fn new(inner: Device, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            clock,
            counters: Counters::default(),
            faulty: AtomicBool::new(false),
            faults: Mutex::default(),
        }
    }

    /// Replaces the faults; none to switch them all off.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        let mut now = self.faults.lock();
        *now = faults;
        self.faulty.store(!now.is_empty(), Ordering::Release);
    }

    /// What went through it so far.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let operations = get(&counters.operations);
        DiskCounters {
            reads: get(&counters.reads),
            writes: get(&counters.writes),
            read_bytes: get(&counters.read_bytes),
            written_bytes: get(&counters.written_bytes),
            errors: get(&counters.errors),
            mean_latency_us: match operations {
                0 => 0.0,
                operations => get(&counters.nanos) as f64 / 1000.0 / operations as f64,
            },
        }
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
        let began = self.clock.now();
        let result = run.await;
        let counters = &self.counters;
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        if result.is_err() {
            add(&counters.errors, 1);
            return result;
        }
        match operation.kind {
            FaultOperation::Read => {
                add(&counters.reads, 1);
                add(&counters.read_bytes, operation.len);
            }
            FaultOperation::Write => {
                add(&counters.writes, 1);
                add(&counters.written_bytes, operation.len);
            }
            FaultOperation::Any | FaultOperation::Flush => {}
        }
        let nanos = self.clock.now().since(began).as_nanos();
        add(&counters.nanos, u64::try_from(nanos).unwrap_or(u64::MAX));
        add(&counters.operations, 1);
        result
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
            let block = u64::from(self.geometry().block_size);
            match self.pass(operation).await? {
                Some(FaultKind::Lost) => Ok(()),
                Some(FaultKind::Torn) => {
                    let half = len / 2 / block * block;
                    self.inner
                        .write(offset, IoBuf::copy_from(&data[..half as usize]).freeze(), durability)
                        .await?;
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

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.inner.wait_resize(known)
    }
}
