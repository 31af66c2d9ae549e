//! What a volume lies on: a space of a pool, where it has one behind a log on another space.

use std::error::Error;
use std::sync::Arc;

use block_device::{BlockError, BlockErrorKind, Device};
use control_api::{Code, LogMode, Problem, VolumeLog};
use pool::{Space, Surroundings};
use shard_runtime::Entropy;
use write_log::{Options, WriteLog};

/// A space, and the space of its log, not opened.
#[derive(Clone)]
pub(super) struct Storage {
    pub(super) space: Arc<Space>,
    pub(super) log: Option<Arc<Space>>,
    pub(super) entropy: Arc<dyn Entropy>,
}

/// What is to be used as the volume's device. Whoever has opened it closes it: two at once would destroy the log.
#[derive(Clone)]
pub(super) struct OpenStorage {
    pub(super) device: Device,
    pub(super) space: Arc<Space>,
    log: Option<Arc<WriteLog>>,
}

impl Storage {
    pub(super) fn new(space: Arc<Space>, log: Option<Arc<Space>>, surroundings: &Surroundings) -> Self {
        Self { space, log, entropy: surroundings.entropy.clone() }
    }

    pub(super) fn name(&self) -> String {
        self.space.name()
    }

    /// Puts the log before the space, which is empty. On a shard.
    pub(super) async fn format(&self) -> Result<(), Problem> {
        let Some(log) = &self.log else { return Ok(()) };
        let (front, back): (Device, Device) = (log.clone(), self.space.clone());
        WriteLog::create(&front, &back, &*self.entropy).await.map_err(|error| self.problem(&error))
    }

    /// Opens it, on the shard where the log works from then on.
    pub(super) async fn open(&self) -> Result<OpenStorage, Problem> {
        let back: Device = self.space.clone();
        let is_behind = WriteLog::is_behind(&back).await.map_err(|error| self.problem(&error))?;
        if !is_behind {
            return Ok(OpenStorage { device: back, space: self.space.clone(), log: None });
        }
        let front = self.log.clone().map(|log| log as Device);
        let log = WriteLog::open(front, back, Options::default(), &*self.entropy, false).await;
        let log = Arc::new(log.map_err(|error| self.problem(&error))?);
        Ok(OpenStorage { device: log.clone(), space: self.space.clone(), log: Some(log) })
    }

    /// Gives up a log that is not there, with what was only in it. On a shard.
    pub(super) async fn give_up_log(&self) -> Result<(), Problem> {
        let back: Device = self.space.clone();
        if !WriteLog::is_behind(&back).await.map_err(|error| self.problem(&error))? {
            return Err(Problem::new(Code::NotFound, format!("volume {} has no log.", self.name())));
        }
        if self.log.is_some() {
            return Err(Problem::new(
                Code::WrongState,
                format!("the log of volume {} is there.", self.name()),
            )
            .todo("`holdfast status` says why the volume is not open."));
        }
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
    /// How the log is doing, if there is one.
    pub(super) fn log(&self) -> Option<VolumeLog> {
        let status = self.log.as_ref()?.status();
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
        let Some(log) = &self.log else { return Ok(()) };
        log.close().await.map_err(|error| {
            Problem::new(
                Code::Io,
                format!("not all that is in the log could be brought to the volume: {error}"),
            )
            .todo("It stays in the log, and is there when the volume is opened again.")
        })
    }
}
