//! The log as a device.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, UnmapBehavior,
    check_range,
};
use shard_runtime::{Entropy, can_detach, detach, finish_anyway};
use write_log_format::{Entry, EntryKind};

use crate::core::{Admission, Core, Pending, error, poisoned, range};
use crate::destage::keep_destaging;
use crate::direct::Direct;
use crate::labels;
use crate::open;
use crate::options::Options;
use crate::status::{LogMode, LogStatus};

/// Zeroing up to this length goes to the log: it takes no data there, in bytes.
const SMALL_ZEROES: u64 = 1 << 20;

/// A device that writes small changes to a fast one first. See the crate's page.
pub struct WriteLog {
    pub(crate) core: Arc<Core>,
}

impl WriteLog {
    /// Makes a log on `front` before `back`. Destroys what is on the front and the first MiB (whole stripes) of the back;
    /// the device that the log shows is shorter by that.
    ///
    /// # Errors
    /// When a device is too small or fails, or a log with acknowledged data stands before the back already.
    pub async fn create(front: &Device, back: &Device, entropy: &dyn Entropy) -> Result<(), BlockError> {
        if labels::is_attached(back).await? {
            let why = "the device is already behind one: detach that first";
            return Err(error(BlockErrorKind::Unsupported, "make a write log", why));
        }
        labels::format(front, back, entropy).await
    }

    /// Opens a log and replays what it holds, which writes nothing. Must be called on a shard, where destaging runs.
    ///
    /// When there is no front, a back whose log is void is used directly. With `accept_loss` any back is, and what only its front
    /// had is given up.
    ///
    /// # Errors
    /// When a device fails, is not of this log or is missing, or when the log is damaged.
    pub async fn open(
        front: Option<Device>,
        back: Device,
        options: Options,
        entropy: &dyn Entropy,
        accept_loss: bool,
    ) -> Result<Self, BlockError> {
        if !can_detach() {
            return Err(BlockError::new(BlockErrorKind::Unsupported, "open a write log outside of a shard"));
        }
        Ok(Self::run(open::open(front, back, options, entropy, accept_loss).await?))
    }

    /// A log that works from now on. On a shard.
    pub(crate) fn run(core: Core) -> Self {
        let quiet = core.options.quiet;
        let core = Arc::new(core);
        detach(keep_destaging(Arc::downgrade(&core), quiet.max(Duration::from_millis(1))));
        Self { core }
    }

    /// Brings everything that is in the log to the back, durably.
    ///
    /// # Errors
    /// When the back fails: what it lacks stays in the log.
    pub async fn drain(&self) -> Result<(), BlockError> {
        let core = Arc::clone(&self.core);
        if core.geometry.read_only {
            return Ok(());
        }
        finish_anyway(async move {
            core.flush_all().await?;
            core.round().await
        })
        .await
    }

    /// Brings what is in the log to the back if that works; after this nothing is written any more, and the log may be
    /// opened anew. For who has ended all use of it.
    ///
    /// # Errors
    /// What kept something in the log; it is closed all the same.
    pub async fn close(&self) -> Result<(), BlockError> {
        let core = Arc::clone(&self.core);
        let emptied = self.drain().await;
        finish_anyway(async move {
            // Who destages or writes a label has ended then, and finds nothing to do afterwards.
            // In the order of a fall-back, which waits for the round while it holds the label.
            let _label = core.labels.lock().await;
            let _round = core.rounds.lock().await;
            core.end("it was closed");
        })
        .await;
        emptied
    }

    /// Ends logging: brings everything to the back, durably, and writes there that the log is void. The front can be taken
    /// away then; a log opened with a front logs again. Where no log runs any more the back is flushed.
    ///
    /// # Errors
    /// When the back fails, nothing is acknowledged any more; a log that is read-only stays what it is.
    pub async fn detach(&self) -> Result<(), BlockError> {
        let core = Arc::clone(&self.core);
        if core.geometry.read_only {
            return Err(BlockError::new(BlockErrorKind::ReadOnly, "detach a write log"));
        }
        finish_anyway(async move {
            if core.leave_front_in_peace() {
                core.fall_back().await;
            }
            // Does nothing when the fall-back has flushed all there is.
            core.flush_all().await
        })
        .await
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> LogStatus {
        let inner = self.core.inner.lock();
        let counters = &self.core.counters;
        LogStatus {
            mode: inner.mode,
            reason: inner.reason.clone(),
            back_error: inner.back_error.clone(),
            capacity_bytes: if inner.mode == LogMode::Logging { self.core.capacity(&inner) } else { 0 },
            used_bytes: Core::used(&inner),
            waiting_bytes: inner.pieces.bytes(),
            logged_writes: counters.logged_writes.get(),
            logged_bytes: counters.logged_bytes.get(),
            direct_writes: counters.direct_writes.get(),
            direct_bytes: counters.direct_bytes.get(),
            batches: counters.batches.get(),
            destaged_runs: counters.destaged_runs.get(),
            destaged_bytes: counters.destaged_bytes.get(),
            rounds: counters.rounds.get(),
            memory_reads: counters.memory_reads.get(),
            replayed_batches: counters.replayed_batches.get(),
        }
    }

    /// How many bytes of `back` a log takes for itself.
    #[must_use]
    pub fn overhead(back: &Device) -> u64 {
        labels::shift_of(back)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.core.geometry.block_size, self.size())
    }

    fn check_change(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.check(offset, len)?;
        if self.core.geometry.read_only {
            return Err(BlockError::new(BlockErrorKind::ReadOnly, "write").at(offset, len));
        }
        Ok(())
    }
}

impl Core {
    /// Writes up to this length are logged, in bytes.
    fn small(&self) -> u64 {
        let ring = self.inner.lock().front_label.ring;
        self.options.small.min(self.largest_data(ring))
    }

    /// A change by way of the log, or straight if there is none (any more).
    async fn change_log(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        data: Option<SharedBuf>,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let order = self.changes.lock(offset, len).await;
        let kind = if data.is_some() { EntryKind::Data } else { EntryKind::Zeroes };
        let entry = Entry { kind, offset, len };
        debug_assert!(Pending::cost(&entry) <= self.inner.lock().front_label.ring);
        match self.admit(entry, data.clone()).await? {
            Admission::Queued(ticket) => {
                drop(order);
                self.counters.logged_writes.add(1);
                self.counters.logged_bytes.add(len);
                // What is volatile is acknowledged now; its batch is on its way.
                if durability == Durability::Durable {
                    return self.wait_for(ticket).await;
                }
                if self.start_committing() {
                    self.commit().await;
                }
                Ok(())
            }
            Admission::Through => {
                let change = data.map_or(Direct::Zeroes, Direct::Data);
                let ticket = self.change_back_in_order(offset, len, change, durability).await?;
                drop(order);
                self.acknowledge(ticket, durability).await
            }
        }
    }

    async fn read(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let bytes = range(offset, buf.len() as u64);
        // Before the back is read: a piece that leaves meanwhile is not missed, its data is what was acknowledged now.
        let pieces = self.inner.lock().pieces.within(&bytes);
        let covered: u64 = pieces.iter().map(|piece| piece.len).sum();
        if covered < buf.len() as u64 {
            buf = self.back.read(self.shift + offset, buf).await?;
        } else {
            self.counters.memory_reads.add(1);
        }
        for piece in pieces {
            let place = (piece.offset - offset) as usize..(piece.end() - offset) as usize;
            piece.content.copy_to(&mut buf[place]);
        }
        Ok(buf)
    }

    fn leave_front_in_peace(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.mode != LogMode::Logging {
            return false;
        }
        inner.mode = LogMode::Draining;
        inner.reason = Some("it was detached".into());
        drop(inner);
        self.room.notify_waiters();
        self.progress.notify_waiters();
        true
    }

    fn is_poisoned(&self) -> Result<(), BlockError> {
        let inner = self.inner.lock();
        if inner.mode == LogMode::Poisoned { Err(poisoned(&inner)) } else { Ok(()) }
    }
}

impl BlockDevice for WriteLog {
    fn geometry(&self) -> &Geometry {
        &self.core.geometry
    }

    fn size(&self) -> u64 {
        self.core.back.size().saturating_sub(self.core.shift)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(offset, buf.len() as u64)?;
            if buf.is_empty() { Ok(buf) } else { self.core.read(offset, buf).await }
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let len = data.len() as u64;
        Box::pin(async move {
            self.check_change(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            let core = Arc::clone(&self.core);
            if len <= core.small() {
                return finish_anyway(
                    async move { core.change_log(offset, len, Some(data), durability).await },
                )
                .await;
            }
            finish_anyway(async move { core.change_back(offset, len, Direct::Data(data), durability).await })
                .await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move { core.flush_all().await }))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_change(offset, len)?;
            self.core.is_poisoned()?;
            if len == 0 || self.core.geometry.unmap == UnmapBehavior::Ignored {
                return Ok(());
            }
            let core = Arc::clone(&self.core);
            finish_anyway(
                async move { core.change_back(offset, len, Direct::Unmap, Durability::Volatile).await },
            )
            .await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_change(offset, len)?;
            if len == 0 {
                return Ok(());
            }
            let core = Arc::clone(&self.core);
            if len <= SMALL_ZEROES {
                return finish_anyway(async move { core.change_log(offset, len, None, durability).await })
                    .await;
            }
            finish_anyway(async move { core.change_back(offset, len, Direct::Zeroes, durability).await })
                .await
        })
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        let shifted = ranges.into_iter().map(|(offset, len)| (offset + self.core.shift, len)).collect();
        self.core.back.has_room_for(shifted)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check_change(offset, len)?;
            self.core.back.allocate(offset + self.core.shift, len).await
        })
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        Box::pin(async move {
            let size = self.core.back.wait_resize(known + self.core.shift).await?;
            Ok(size.saturating_sub(self.core.shift))
        })
    }
}
