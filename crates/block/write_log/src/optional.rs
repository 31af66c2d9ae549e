//! A device that may have a log before it, which is put there and taken away while the device is in use.
//!
//! ```text
//!   prepare: the back says "none" ─► (whoever owns the content says in it that there may be a log) ─► attach
//!   attach:  operations end, later ones wait ─► labels of the front ─► label of the back ─► they go on, through the log
//!   detach:  the log is emptied while it logs ─► what is left, with writes waiting ─► the back says "void"
//!            ─► operations end, later ones wait ─► the back says "none" ─► they go on, past the front
//! ```
//! Whenever the power goes the back's label says which of both counts, and each has every acknowledged write then: "none" and
//! "void" are written when the back has everything, a log that counts is empty when it begins to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, check_range,
};
use parking_lot::Mutex;
use shard_runtime::{Entropy, can_detach, finish_anyway};
use tokio::sync::{RwLock, RwLockWriteGuard};
use write_log_format::{Label, NO_LOG, Side, State};

use crate::core::error;
use crate::device::WriteLog;
use crate::labels::{first_inside, read_label, write_label};
use crate::open;
use crate::options::Options;
use crate::status::{LogMode, LogStatus};
#[cfg(test)]
use crate::tests::Sabotage;

/// How long operations under way may take to end before a log is put before them or taken away; later ones wait meanwhile.
/// Less than initiators wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// With less than this left, in bytes, writes are made to wait for the rest of a log that is taken away.
const LITTLE: u64 = 4 << 20;
/// How often a log that is taken away is emptied at most while more comes into it.
const ROUNDS: usize = 8;

const ATTACH: &str = "put a write log before a device";
const DETACH: &str = "take a write log away";

/// A device that may have a log before it.
pub struct OptionalLog {
    shared: Arc<Shared>,
}

struct Shared {
    back: Device,
    geometry: Geometry,
    /// Where the content begins on the back, in bytes.
    shift: u64,
    options: Options,
    /// The log. Operations hold it for as long as they take: whoever exchanges it does so between them.
    current: RwLock<Option<Arc<WriteLog>>>,
    /// The same, for whoever asks how it does and waits for nothing.
    shown: Mutex<Option<Arc<WriteLog>>>,
    /// One change of the label at a time. Whether the back has one.
    labelled: tokio::sync::Mutex<bool>,
    /// What of that was found at the opening.
    had_label: bool,
    /// A label that says that a log counts may have been written, or not.
    is_unsure: AtomicBool,
}

/// Why no log stands before a device now.
#[derive(Debug)]
pub struct NotAttached {
    /// What went wrong.
    pub error: BlockError,
    /// Whether nothing will ever ask for the front. Otherwise the back may say that the log counts, though nothing went to
    /// it: the front has to be there at the next opening, which finds out.
    pub front_is_free: bool,
}

impl NotAttached {
    fn free(error: BlockError) -> Self {
        Self { error, front_is_free: true }
    }
}

impl OptionalLog {
    /// Opens a device with the log that its label names, if it names one. A front that is not asked for is not touched.
    /// On a shard, where the log works from then on.
    ///
    /// # Errors
    /// When a device fails, the front that is needed is missing or another one, or the log is damaged.
    pub async fn open(
        front: Option<Device>,
        back: Device,
        options: Options,
        entropy: &dyn Entropy,
    ) -> Result<Self, BlockError> {
        let label = read_label(&back, Side::Back).await?;
        let shift = label.map_or(0, |label| label.shift);
        if shift >= back.size() {
            return Err(error(
                BlockErrorKind::Media,
                "open a device behind a write log",
                "it is shorter than its label says",
            ));
        }
        let wanted = label.is_some_and(|label| !label.says_none());
        let front = front.filter(|_| wanted);
        let geometry = open::geometry(front.as_ref(), &back);
        let log = if wanted {
            Some(Arc::new(WriteLog::open(front, Arc::clone(&back), options, entropy, false).await?))
        } else {
            None
        };
        let shared = Shared {
            back,
            geometry,
            shift,
            options,
            shown: Mutex::new(log.clone()),
            current: RwLock::new(log),
            labelled: tokio::sync::Mutex::new(label.is_some()),
            had_label: label.is_some(),
            is_unsure: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether the back said anything about logs when it was opened.
    #[must_use]
    pub fn had_label(&self) -> bool {
        self.shared.had_label
    }

    /// Whether labels lie inside of the content: the back had content before it had a log.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.shared.shift == 0
    }

    /// Whether there is a log, working or not.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.shared.shown.lock().is_some()
    }

    /// Whether the last label could not be written, and the next opening finds out whether a log counts: its front has to be
    /// there then.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.shared.is_unsure.load(Ordering::Acquire)
    }

    /// How the log does; none when there is none.
    #[must_use]
    pub fn status(&self) -> Option<LogStatus> {
        let log = self.shared.shown.lock().clone();
        log.map(|log| log.status())
    }

    /// Makes the back say, durably, that it has no log, unless it says something already. Comes first: from then on no label
    /// at all is damage.
    ///
    /// # Errors
    /// When the back fails.
    pub async fn prepare(&self) -> Result<(), BlockError> {
        let shared = Arc::clone(&self.shared);
        finish_anyway(async move {
            let mut labelled = shared.labelled.lock().await;
            if !*labelled {
                write_label(&shared.back, Side::Back, &first_inside()).await?;
                *labelled = true;
            }
            Ok(())
        })
        .await
    }

    /// Puts a log on `front`, whose content is destroyed, before the device. Operations wait for as long as the labels take.
    /// On the shard where the log works from then on.
    ///
    /// # Errors
    /// When there is a log, nobody has prepared for one, operations under way do not end, or a device fails.
    pub async fn attach(&self, front: Device, entropy: Arc<dyn Entropy>) -> Result<(), NotAttached> {
        let shared = Arc::clone(&self.shared);
        finish_anyway(async move { shared.attach(front, &*entropy).await }).await
    }

    /// Brings everything in the log to the back and takes the log away: the front may be destroyed then. Reads go on; writes
    /// wait for the last of it.
    ///
    /// # Errors
    /// When there is no log, a device fails, or operations under way do not end: the front is still needed then.
    pub async fn detach(&self) -> Result<(), BlockError> {
        let shared = Arc::clone(&self.shared);
        finish_anyway(async move { shared.detach().await }).await
    }

    /// As [`WriteLog::close`]; without a log there is nothing to do.
    ///
    /// # Errors
    /// What kept something in the log; it is closed all the same.
    pub async fn close(&self) -> Result<(), BlockError> {
        let shared = Arc::clone(&self.shared);
        finish_anyway(async move {
            // Nobody puts a log there or takes one away meanwhile.
            let _labels = shared.labelled.lock().await;
            let log = shared.shown.lock().clone();
            match log {
                Some(log) => log.close().await,
                None => Ok(()),
            }
        })
        .await
    }
}

impl Shared {
    /// Waits until no operation is under way; none begins while this is held.
    async fn pause(
        &self,
        doing: &'static str,
    ) -> Result<RwLockWriteGuard<'_, Option<Arc<WriteLog>>>, BlockError> {
        let paused = shard_runtime::timeout(PATIENCE, self.current.write()).await;
        paused.ok_or_else(|| {
            error(
                BlockErrorKind::Io,
                doing,
                "operations under way do not end: try again when there are fewer",
            )
        })
    }

    async fn attach(&self, front: Device, entropy: &dyn Entropy) -> Result<(), NotAttached> {
        let refused =
            |kind, why: &str| Err(NotAttached { error: error(kind, ATTACH, why), front_is_free: true });
        let labelled = self.labelled.lock().await;
        if !can_detach() {
            return refused(BlockErrorKind::Unsupported, "this is no shard");
        }
        // Which front is meant is not known here.
        let kept = |why: &str| {
            let error = error(BlockErrorKind::Unsupported, ATTACH, why);
            Err(NotAttached { error, front_is_free: false })
        };
        if self.shown.lock().is_some() {
            return kept("there is one already");
        }
        if self.is_unsure.load(Ordering::Acquire) {
            return kept("its label could not be written the last time: open it again first");
        }
        if self.geometry.read_only || front.geometry().read_only {
            return refused(BlockErrorKind::ReadOnly, "a device is read-only");
        }
        let before = read_label(&self.back, Side::Back).await.map_err(NotAttached::free)?;
        let Some(before) = before.filter(|_| *labelled) else {
            return refused(BlockErrorKind::Unsupported, "nothing is prepared for it");
        };
        let mut current = self.pause(ATTACH).await.map_err(NotAttached::free)?;
        match open::attach(front, Arc::clone(&self.back), self.options, entropy).await {
            Ok(Ok(core)) => {
                let log = Arc::new(WriteLog::run(core));
                *self.shown.lock() = Some(Arc::clone(&log));
                *current = Some(log);
                Ok(())
            }
            Ok(Err(error)) => Err(NotAttached::free(error)),
            Err(error) => {
                // To the place of the label that may be there or not.
                let none =
                    Label { generation: before.generation + 3, state: State::Void, log: NO_LOG, ..before };
                let front_is_free = write_label(&self.back, Side::Back, &none).await.is_ok();
                self.is_unsure.store(!front_is_free, Ordering::Release);
                Err(NotAttached { error, front_is_free })
            }
        }
    }

    async fn detach(&self) -> Result<(), BlockError> {
        let _labels = self.labelled.lock().await;
        let log = self.shown.lock().clone();
        let Some(log) = log else {
            return Err(error(BlockErrorKind::Unsupported, DETACH, "there is none"));
        };
        // While it logs nobody waits. What comes in faster than it leaves is left for the end.
        for _ in 0..ROUNDS {
            if log.status().waiting_bytes <= LITTLE {
                break;
            }
            log.drain().await?;
        }
        #[cfg(test)]
        let is_whole = self.options.sabotage != Sabotage::DetachUnemptied;
        #[cfg(not(test))]
        let is_whole = true;
        if is_whole {
            log.detach().await?;
        }
        let mut current = self.pause(DETACH).await?;
        let status = log.status();
        if status.mode != LogMode::Through && is_whole {
            let why = status.reason.as_deref().unwrap_or("it still logs");
            return Err(error(BlockErrorKind::Poisoned, DETACH, why));
        }
        let void = log.core.inner.lock().back_label;
        let none = Label { generation: void.generation + 1, state: State::Void, log: NO_LOG, ..void };
        write_label(&self.back, Side::Back, &none).await?;
        *current = None;
        *self.shown.lock() = None;
        Ok(())
    }

    fn size(&self) -> u64 {
        self.back.size().saturating_sub(self.shift)
    }

    /// Where a range of the content lies on the back.
    fn on_back(&self, offset: u64, len: u64) -> Result<u64, BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())?;
        Ok(self.shift + offset)
    }

    async fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> Result<(), BlockError> {
        let current = self.current.read().await;
        match &*current {
            Some(log) => log.write(offset, data, durability).await,
            None => self.back.write(self.on_back(offset, data.len() as u64)?, data, durability).await,
        }
    }

    async fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> Result<(), BlockError> {
        let current = self.current.read().await;
        match &*current {
            Some(log) => log.write_zeroes(offset, len, durability).await,
            None => self.back.write_zeroes(self.on_back(offset, len)?, len, durability).await,
        }
    }

    async fn unmap(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let current = self.current.read().await;
        match &*current {
            Some(log) => log.unmap(offset, len).await,
            None => self.back.unmap(self.on_back(offset, len)?, len).await,
        }
    }

    async fn flush(&self) -> Result<(), BlockError> {
        let current = self.current.read().await;
        match &*current {
            Some(log) => log.flush().await,
            None => self.back.flush().await,
        }
    }
}

// Changes come to their end also when nobody waits for them any more: one that went on past the exchange of the log would
// undo what was acknowledged after it.
impl BlockDevice for OptionalLog {
    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn size(&self) -> u64 {
        self.shared.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let current = self.shared.current.read().await;
            match &*current {
                Some(log) => log.read(offset, buf).await,
                None => self.shared.back.read(self.shared.on_back(offset, buf.len() as u64)?, buf).await,
            }
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(finish_anyway(async move { shared.write(offset, data, durability).await }))
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(finish_anyway(async move { shared.flush().await }))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(finish_anyway(async move { shared.unmap(offset, len).await }))
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(finish_anyway(async move { shared.write_zeroes(offset, len, durability).await }))
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        let shifted = ranges.into_iter().map(|(offset, len)| (offset + self.shared.shift, len)).collect();
        self.shared.back.has_room_for(shifted)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.shared.back.allocate(self.shared.on_back(offset, len)?, len).await })
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        Box::pin(async move {
            let size = self.shared.back.wait_resize(known + self.shared.shift).await?;
            Ok(size.saturating_sub(self.shared.shift))
        })
    }
}
