//! A model of a hard disk: one arm, which takes its time to get anywhere.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Device, Durability, Geometry};
use shard_runtime::{Clock, SystemClock};
use tokio::sync::Mutex;

/// Seek and half a turn at 7200 rpm, for a place that is not the next one.
const SEEK: Duration = Duration::from_micros(8500);
/// Seek to a place near by (within [`NEAR`]): a track or two, and half a turn.
const SHORT_SEEK: Duration = Duration::from_micros(5000);
/// What is near, in bytes.
const NEAR: u64 = 64 << 20;
/// What lies on one track, in bytes: a place that far ahead needs no seek, it comes by.
const TRACK: u64 = 1 << 20;
/// Nanoseconds for a byte under the head: 180 MB/s.
const NANOS_PER_BYTE: f64 = 5.5;

/// Operations one after another, each as long as the arm needs.
pub(crate) struct HardDisk {
    inner: Device,
    clock: Arc<SystemClock>,
    /// Where the head is, and until when it is busy.
    arm: Mutex<(u64, u64)>,
}

impl HardDisk {
    pub(crate) fn new(inner: Device, clock: Arc<SystemClock>) -> Self {
        Self { inner, clock, arm: Mutex::new((0, 0)) }
    }

    async fn go(&self, offset: u64, len: u64) {
        let mut arm = self.arm.lock().await;
        let ahead = offset.checked_sub(arm.0).filter(|gap| *gap <= TRACK);
        let passed = ahead.unwrap_or(0);
        let seek = match arm.0.abs_diff(offset) {
            _ if ahead.is_some() => Duration::ZERO,
            near if near <= NEAR => SHORT_SEEK,
            _ => SEEK,
        };
        let now = self.clock.now().0;
        let nanos = seek.as_nanos() as u64 + ((passed + len) as f64 * NANOS_PER_BYTE) as u64;
        let end = now.max(arm.1) + nanos;
        *arm = (offset + len, end);
        // Timers have a resolution of a millisecond: what is shorter adds up in `end` and is waited for together.
        let wait = Duration::from_nanos(end - now);
        if wait >= Duration::from_millis(2) {
            shard_runtime::sleep(wait).await;
        }
    }
}

impl BlockDevice for HardDisk {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.go(offset, buf.len() as u64).await;
            self.inner.read(offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.go(offset, data.len() as u64).await;
            self.inner.write(offset, data, durability).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        self.inner.flush()
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.inner.unmap(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.inner.write_zeroes(offset, len, durability)
    }
}
