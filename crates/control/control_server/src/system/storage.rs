//! What a volume lies on: a space of a pool, where it has one behind a log on another space.
//!
//! ```text
//!   a log comes:  its space ─► label "none" ─► the volume's superblock: a log may be there ─► label "this one counts"
//!   a log goes:   emptied ─► label "none" ─► the volume's superblock: there is none ─► its space is deleted
//! ```
//! Where the power goes in between, the label says at the next opening which of both it is: with a log that counts the volume
//! is opened through it; a space of a log that no label asks for is deleted, and the superblock follows the label.

use std::error::Error;
use std::sync::Arc;

use block_device::{BlockError, BlockErrorKind, Device};
use control_api::{Code, LogMode, Problem, VolumeLog};
use parking_lot::Mutex;
use pool::{Space, Surroundings};
use shard_runtime::Entropy;
use volume::Volume;
use write_log::{OptionalLog, Options, WriteLog};

use crate::files;

#[cfg(test)]
mod tests;

/// A volume's device, and that of its log, not opened.
#[derive(Clone)]
pub(super) struct Storage {
    /// The volume's, for messages; it may change while the volume is in use.
    name: Arc<Mutex<String>>,
    back: Device,
    log: Option<Device>,
    entropy: Arc<dyn Entropy>,
}

/// What is to be used as the volume's device. Whoever has opened it closes it: two at once would destroy the log.
#[derive(Clone)]
pub(super) struct OpenStorage {
    pub(super) device: Arc<OptionalLog>,
    /// There is a log's space that nobody asks for.
    pub(super) has_leftover: bool,
    storage: Storage,
}

/// Why a volume has no log now.
pub(super) struct NoLog {
    pub(super) problem: Problem,
    /// Whether nothing will ask for the log's space any more.
    pub(super) space_is_free: bool,
}

impl Storage {
    pub(super) fn new(space: Arc<Space>, log: Option<Arc<Space>>, surroundings: &Surroundings) -> Self {
        let log = log.map(|log| log as Device);
        let name = Arc::new(Mutex::new(space.name()));
        Self { name, back: space, log, entropy: surroundings.entropy.clone() }
    }

    pub(super) fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// Puts the log before the space, which is empty. On a shard.
    pub(super) async fn format(&self) -> Result<(), Problem> {
        let Some(log) = &self.log else { return Ok(()) };
        WriteLog::create(log, &self.back, &*self.entropy).await.map_err(|error| self.problem(&error))
    }

    /// Opens it, on the shard where the log works from then on.
    pub(super) async fn open(&self) -> Result<OpenStorage, Problem> {
        let opened = self.open_device(self.log.clone()).await.map_err(|error| self.problem(&error))?;
        if self.has_lost_its_label(&opened).await? {
            let detail = format!(
                "the label that says which log volume {} has is damaged: the log may hold acknowledged data",
                self.name()
            );
            return Err(Problem::new(Code::Damaged, detail).todo(format!(
                "`holdfast volume give-up-log {}` opens the volume without what is only in its log.",
                self.name()
            )));
        }
        let has_leftover = self.log.is_some() && !opened.has_log();
        // Whoever deletes the log's space later finds nobody who holds it.
        let storage = Self { log: None, ..self.clone() };
        Ok(OpenStorage { device: Arc::new(opened), has_leftover, storage })
    }

    async fn open_device(&self, log: Option<Device>) -> Result<OptionalLog, BlockError> {
        OptionalLog::open(log, Arc::clone(&self.back), Options::default(), &*self.entropy).await
    }

    /// Whether the volume says that a log may be there, and nothing says which: each log that was added has a label first.
    async fn has_lost_its_label(&self, opened: &OptionalLog) -> Result<bool, Problem> {
        if opened.had_label() {
            return Ok(false);
        }
        Volume::expects_log(&self.back).await.map_err(|error| files::problem(&error))
    }

    /// Gives up a log that is not there, with what was only in it. On a shard.
    pub(super) async fn give_up_log(&self) -> Result<(), Problem> {
        if let Ok(opened) = self.open_device(None).await {
            if self.has_lost_its_label(&opened).await? {
                return opened.prepare().await.map_err(|error| self.problem(&error));
            }
            if !opened.has_log() {
                return Err(no_log(&self.name()));
            }
        }
        if self.log.is_some() {
            return Err(Problem::new(
                Code::WrongState,
                format!("the log of volume {} is there.", self.name()),
            )
            .todo("`holdfast status` says why the volume is not open."));
        }
        let back = Arc::clone(&self.back);
        let log = WriteLog::open(None, back, Options::default(), &*self.entropy, true).await;
        let log = log.map_err(|error| self.problem(&error))?;
        log.close().await.map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &BlockError) -> Problem {
        let code = match error.kind() {
            BlockErrorKind::NoSpace => Code::NoSpace,
            BlockErrorKind::Media => Code::Damaged,
            BlockErrorKind::Gone => Code::NotEnoughDisks,
            _ => Code::Io,
        };
        let mut detail = format!("the log of volume {}: {error}", self.name());
        let mut cause = error.source();
        while let Some(below) = cause {
            detail.push_str(&format!(": {below}"));
            cause = below.source();
        }
        let problem = Problem::new(code, detail);
        match error.kind() {
            BlockErrorKind::Gone => problem.todo(format!(
                "Open the pool that the log lies in (`holdfast pool list`). If it is lost for good: `holdfast volume give-up-log {}`.",
                self.name()
            )),
            _ => problem,
        }
    }
}

impl OpenStorage {
    /// The volume has another name from now on.
    pub(super) fn renamed(&self, name: &str) {
        name.clone_into(&mut self.storage.name.lock());
    }

    /// How the log is doing, if there is one.
    pub(super) fn log(&self) -> Option<VolumeLog> {
        let status = self.device.status()?;
        Some(VolumeLog {
            mode: match status.mode {
                write_log::LogMode::Logging => LogMode::Logging,
                write_log::LogMode::Draining => LogMode::Draining,
                write_log::LogMode::Through => LogMode::Through,
                write_log::LogMode::Poisoned => LogMode::Stopped,
            },
            reason: status.reason,
            back_error: status.back_error,
            capacity_bytes: status.capacity_bytes,
            used_bytes: status.used_bytes,
            waiting_bytes: status.waiting_bytes,
            logged_writes: status.logged_writes,
            direct_writes: status.direct_writes,
            batches: status.batches,
            destaged_bytes: status.destaged_bytes,
        })
    }

    /// Brings what is in the log to the space; whether that works or not, nothing is written from then on. On a shard.
    pub(super) async fn close(&self) -> Result<(), Problem> {
        self.device.close().await.map_err(|error| {
            Problem::new(
                Code::Io,
                format!("not all that is in the log could be brought to the volume: {error}"),
            )
            .todo("It stays in the log, and is there when the volume is opened again.")
        })
    }

    /// Makes the superblock of a volume that was just opened say what the label says: a change of the log was interrupted.
    pub(super) async fn settle(&self, volume: &Volume) {
        if self.device.had_label() {
            self.follow_label(volume).await;
        }
    }

    async fn follow_label(&self, volume: &Volume) {
        if !self.device.is_inside() {
            return;
        }
        if let Err(error) = volume.set_logged(self.device.has_log()).await {
            let volume = self.storage.name();
            tracing::warn!(volume, %error, "until it is opened again, older releases refuse this volume, which has no log");
        }
    }

    /// Puts a log before the open volume; clients wait for a moment. On the shard where the log works from then on.
    pub(super) async fn add_log(&self, volume: &Volume, log: Device) -> Result<(), NoLog> {
        let free = |problem| NoLog { problem, space_is_free: true };
        self.device.prepare().await.map_err(|error| free(self.storage.problem(&error)))?;
        if self.device.is_inside() {
            volume.set_logged(true).await.map_err(|error| free(files::problem(&error)))?;
        }
        let attached = self.device.attach(log, Arc::clone(&self.storage.entropy)).await;
        let Err(failed) = attached else { return Ok(()) };
        if failed.front_is_free {
            self.follow_label(volume).await;
        }
        Err(NoLog { problem: self.storage.problem(&failed.error), space_is_free: failed.front_is_free })
    }

    /// Brings what is in the log to the volume and takes it away: its space is free then. On the volume's shard.
    pub(super) async fn remove_log(&self, volume: &Volume) -> Result<(), Problem> {
        if !self.device.has_log() {
            return Err(no_log(&self.storage.name()));
        }
        self.device.detach().await.map_err(|error| self.storage.problem(&error))?;
        self.follow_label(volume).await;
        Ok(())
    }
}

fn no_log(volume: &str) -> Problem {
    Problem::new(Code::NotFound, format!("volume {volume} has no log."))
        .todo(format!("`holdfast volume log add {volume} --size SIZE` gives it one."))
}
