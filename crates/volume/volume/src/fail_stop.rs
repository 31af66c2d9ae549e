//! A device whose flushes and durable writes all fail once a flush has failed.
//!
//! A device may tell of a loss only once, and whoever it tells is whoever flushes first: one file of many, the
//! background task, the database. The others' data is as lost, and a later flush of theirs would succeed. So the
//! volume keeps in mind that it was told, until it is opened again and begins from what is durable. Durable writes fail from then
//! on, too: whoever was refused a flush must not be told of a name or a size that is durable all the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The device of an open volume.
pub(crate) struct FailStop {
    device: Device,
    flushes: Arc<Flushes>,
}

/// The flushes of a volume's device.
#[derive(Default)]
pub(crate) struct Flushes {
    /// One has failed. Set before the failure is told to anybody.
    failed: AtomicBool,
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    last: u64,
    under_way: BTreeSet<u64>,
    /// What the first failure said.
    failure: Option<String>,
}

impl FailStop {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, flushes: Arc::default() }
    }

    /// Its flushes, for whoever wants to know whether one has failed.
    pub(crate) fn flushes(&self) -> Arc<Flushes> {
        Arc::clone(&self.flushes)
    }
}

impl Flushes {
    pub(crate) fn have_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// What the first one that failed said.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    fn check(&self, op: &'static str) -> Result<(), BlockError> {
        match self.have_failed() {
            true => Err(BlockError::new(BlockErrorKind::Poisoned, op)),
            false => Ok(()),
        }
    }

    /// Goes on with a write unless a flush has failed, or does so meanwhile.
    async fn write(&self, write: BlockFuture<'_, ()>) -> Result<(), BlockError> {
        let op = "write durably after a flush that has failed";
        self.check(op)?;
        write.await?;
        self.check(op)
    }

    async fn flush(self: Arc<Self>, device: Device) -> Result<(), BlockError> {
        let op = "flush after one that has failed";
        self.check(op)?;
        let number = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            state.under_way.insert(number);
            number
        };
        let flushed = device.flush().await;
        {
            let mut state = self.state.lock();
            state.under_way.remove(&number);
            if let Err(error) = &flushed {
                state.failure.get_or_insert_with(|| error.to_string());
                self.failed.store(true, Ordering::Release);
            }
        }
        self.ended.notify_waiters();
        flushed.map_err(|error| match error.kind() {
            // What was written is in doubt all the same: nobody takes this for a want of room after which all goes on.
            BlockErrorKind::NoSpace => BlockError::new(BlockErrorKind::Poisoned, "flush").because(error),
            _ => error,
        })?;
        // One that began before this one may have been told of a loss, and not have said so here yet.
        loop {
            let ended = self.ended.notified();
            let earlier = self.state.lock().under_way.first().is_some_and(|first| *first < number);
            if !earlier {
                return self.check(op);
            }
            ended.await;
        }
    }
}

impl BlockDevice for FailStop {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.device.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let write = self.device.write(offset, data, durability);
        match durability {
            Durability::Durable => Box::pin(self.flushes.write(write)),
            Durability::Volatile => write,
        }
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        // Also when nobody waits for it any more: it may be the one that is told.
        let flush = Arc::clone(&self.flushes).flush(Arc::clone(&self.device));
        Box::pin(shard_runtime::finish_anyway(flush))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.device.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        let write = self.device.write_zeroes(offset, len, durability);
        match durability {
            Durability::Durable => Box::pin(self.flushes.write(write)),
            Durability::Volatile => write,
        }
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        self.device.has_room_for(ranges)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.device.allocate(offset, len)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.device.wait_resize(known)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicU64, Ordering};

    use block_device::MemoryDisk;
    use test_layers::{DeviceLayer, Layered};

    use super::*;

    /// Fails the flush of this number, after letting others run.
    struct Once {
        disk: MemoryDisk,
        flushes: AtomicU64,
        fails: u64,
    }

    impl DeviceLayer for Once {
        fn below(&self) -> &dyn BlockDevice {
            &self.disk
        }
        fn flush(&self) -> BlockFuture<'_, ()> {
            let number = self.flushes.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                if number == self.fails {
                    for _ in 0..5 {
                        shard_runtime::yield_now().await;
                    }
                    return Err(BlockError::new(BlockErrorKind::Gone, "flush"));
                }
                Ok(())
            })
        }
    }

    fn on_shard<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            shard_runtime::adopt_detached_work();
            future.await
        })
    }

    fn device(fails: u64) -> FailStop {
        FailStop::new(Arc::new(Layered(Once {
            disk: MemoryDisk::new(4096, 4096),
            flushes: AtomicU64::new(0),
            fails,
        })))
    }

    #[test]
    fn after_a_failed_flush_none_succeeds() {
        on_shard(async {
            let device = device(1);
            assert!(device.flush().await.is_ok());
            assert_eq!(device.flush().await.map_err(|error| error.kind()), Err(BlockErrorKind::Gone));
            for _ in 0..2 {
                assert_eq!(device.flush().await.map_err(|error| error.kind()), Err(BlockErrorKind::Poisoned));
            }
        });
    }

    /// Nothing is called durable after a failure, and nothing that a failure has overtaken.
    #[test]
    fn a_durable_write_after_or_beside_a_failed_flush_fails() {
        on_shard(async {
            let device = device(0);
            let data = IoBuf::zeroed(4096).freeze();
            let write = || device.write(0, data.clone(), Durability::Durable);
            assert!(write().await.is_ok());
            let begun = write();
            assert!(device.flush().await.is_err());
            let failed = Err(BlockErrorKind::Poisoned);
            assert_eq!(begun.await.map_err(|error| error.kind()), failed);
            assert_eq!(write().await.map_err(|error| error.kind()), failed);
            let zeros = device.write_zeroes(0, 4096, Durability::Durable).await;
            assert_eq!(zeros.map_err(|error| error.kind()), failed);
            assert!(device.write(0, data, Durability::Volatile).await.is_ok());
        });
    }

    #[test]
    fn a_flush_beside_a_failing_one_fails_too() {
        on_shard(async {
            let device = device(0);
            let (first, second) = futures_util::join!(device.flush(), device.flush());
            assert_eq!(first.map_err(|error| error.kind()), Err(BlockErrorKind::Gone));
            assert_eq!(second.map_err(|error| error.kind()), Err(BlockErrorKind::Poisoned));
        });
    }

    #[test]
    fn a_failure_that_nobody_waits_for_counts() {
        on_shard(async {
            let device = device(0);
            let mut dropped = device.flush();
            assert!(futures_util::poll!(&mut dropped).is_pending());
            drop(dropped);
            assert_eq!(device.flush().await.map_err(|error| error.kind()), Err(BlockErrorKind::Poisoned));
        });
    }
}
