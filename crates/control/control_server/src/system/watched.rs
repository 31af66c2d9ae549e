//! A disk under watch: what goes through it is counted, and tests switch faults on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry};
use control_api::{FaultKind, FaultOperation, FaultRule, IoCounters};
use parking_lot::Mutex;
use shard_runtime::Clock;

/// An operation as faults see it.
#[derive(Clone, Copy)]
struct Operation {
    kind: FaultOperation,
    doing: &'static str,
    offset: u64,
    len: u64,
}

/// What the faults that meet an operation add up to.
#[derive(Default)]
struct Met {
    delay: Duration,
    /// The last one that is no delay.
    fault: Option<FaultKind>,
}

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

/// A disk with counters and faults. Without faults an operation costs two looks at the clock more.
pub(super) struct WatchedDisk {
    inner: Device,
    clock: Arc<dyn Clock>,
    counters: Counters,
    /// Whether there are rules at all: the one thing that is looked at when there are none.
    faulty: AtomicBool,
    rules: Mutex<Vec<FaultRule>>,
}

fn meets(rule: &FaultRule, operation: Operation) -> bool {
    let end = rule.len.map_or(u64::MAX, |len| rule.offset.saturating_add(len));
    let operation_end = operation.offset.saturating_add(operation.len);
    // A flush has no range: it is concerned by rules that have none either.
    let inside = match operation.kind {
        FaultOperation::Flush => rule.offset == 0 && rule.len.is_none(),
        _ => operation.offset < end && rule.offset < operation_end,
    };
    inside && (rule.operation == FaultOperation::Any || rule.operation == operation.kind)
}

impl WatchedDisk {
    pub(super) fn new(inner: Device, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            clock,
            counters: Counters::default(),
            faulty: AtomicBool::new(false),
            rules: Mutex::default(),
        }
    }

    /// Replaces the faults. `Return` is the same as none.
    pub(super) fn set_faults(&self, rules: &[FaultRule]) {
        let mut now = self.rules.lock();
        now.clear();
        if !rules.iter().any(|rule| rule.kind == FaultKind::Return) {
            now.extend_from_slice(rules);
        }
        self.faulty.store(!now.is_empty(), Ordering::Release);
    }

    pub(super) fn counters(&self) -> IoCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let operations = get(&counters.operations);
        IoCounters {
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
        let mut rules = self.rules.lock();
        for rule in rules.iter_mut().filter(|rule| meets(rule, operation)) {
            match &mut rule.count {
                Some(0) => continue,
                Some(left) => *left -= 1,
                None => {}
            }
            match rule.kind {
                FaultKind::Delay => met.delay += Duration::from_millis(rule.delay_ms),
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

#[cfg(test)]
mod tests {
    use block_device::MemoryDisk;
    use shard_runtime::SystemClock;

    use super::*;

    fn rule(kind: FaultKind) -> FaultRule {
        FaultRule { kind, operation: FaultOperation::Any, offset: 0, len: None, count: None, delay_ms: 0 }
    }

    fn disk() -> WatchedDisk {
        WatchedDisk::new(Arc::new(MemoryDisk::new(1 << 20, 4096)), Arc::new(SystemClock::new()))
    }

    fn block(byte: u8) -> SharedBuf {
        IoBuf::copy_from(&[byte; 4096]).freeze()
    }

    #[tokio::test]
    async fn vanishes_and_returns_with_its_data() {
        let disk = disk();
        disk.write(4096, block(7), Durability::Durable).await.expect("written");
        disk.set_faults(&[rule(FaultKind::Vanish)]);
        let gone = disk.read(4096, IoBuf::new(4096)).await.expect_err("gone");
        assert_eq!(gone.kind(), BlockErrorKind::Gone);
        assert_eq!(disk.flush().await.expect_err("gone").kind(), BlockErrorKind::Gone);
        disk.set_faults(&[rule(FaultKind::Return)]);
        assert_eq!(disk.read(4096, IoBuf::new(4096)).await.expect("back")[0], 7);
        let counters = disk.counters();
        assert_eq!((counters.reads, counters.writes, counters.errors), (1, 1, 2));
        assert_eq!((counters.read_bytes, counters.written_bytes), (4096, 4096));
    }

    #[tokio::test]
    async fn rules_meet_their_range_operation_and_count() {
        let disk = disk();
        let error = FaultRule {
            operation: FaultOperation::Write,
            offset: 8192,
            len: Some(4096),
            count: Some(1),
            ..rule(FaultKind::Error)
        };
        disk.set_faults(&[error]);
        disk.write(4096, block(1), Durability::Volatile).await.expect("before the range");
        disk.write(12288, block(1), Durability::Volatile).await.expect("after the range");
        disk.read(8192, IoBuf::new(4096)).await.expect("a read");
        disk.flush().await.expect("a flush has no range");
        assert!(disk.write(8192, block(1), Durability::Volatile).await.is_err());
        disk.write(8192, block(1), Durability::Volatile).await.expect("once only");
    }

    /// As the metadata thread of a volume does: its futures are driven without a runtime and its timers.
    #[test]
    fn a_delay_needs_no_timer() {
        let disk = disk();
        disk.set_faults(&[FaultRule { delay_ms: 1, ..rule(FaultKind::Delay) }]);
        let write = disk.write(0, block(4), Durability::Durable);
        futures_util::FutureExt::now_or_never(write).expect("done when the call is").expect("written");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let read = runtime.expect("runtime").block_on(disk.read(0, IoBuf::new(4096)));
        assert_eq!(read.expect("read")[0], 4);
    }

    #[tokio::test]
    async fn silent_faults_lie() {
        let disk = disk();
        disk.write(0, block(1), Durability::Volatile).await.expect("written");
        disk.set_faults(&[rule(FaultKind::Lost)]);
        disk.write(0, block(2), Durability::Volatile).await.expect("said to be written");
        disk.set_faults(&[rule(FaultKind::BitRot)]);
        assert_eq!(disk.read(0, IoBuf::new(4096)).await.expect("read")[0], 0);
        disk.set_faults(&[rule(FaultKind::Misdirected)]);
        disk.write(0, block(3), Durability::Volatile).await.expect("said to be written");
        disk.set_faults(&[rule(FaultKind::Torn)]);
        let two = IoBuf::copy_from(&[9; 8192]).freeze();
        assert!(disk.write(16384, two, Durability::Volatile).await.is_err());
        disk.set_faults(&[]);
        let at = async |offset| disk.read(offset, IoBuf::new(4096)).await.expect("read")[0];
        assert_eq!((at(0).await, at(4096).await, at(16384).await, at(20480).await), (1, 3, 9, 0));
    }
}
