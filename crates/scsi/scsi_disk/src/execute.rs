//! A command from admission to response.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use scsi_core::{ScsiCommand, ScsiResponse, ScsiStatus};
use scsi_defs::{Cdb, Effect, Op, Sense};

use crate::reply::{Failure, Outcome};
use crate::unit::LogicalUnit;
use crate::view::Caller;

/// How often a command that waits is tried again when nobody says that the storage is back.
const TRY_EVERY: Duration = Duration::from_millis(250);
/// How often at most: 20 seconds, less than initiators give a command (Linux 30, Windows 60), as an aborted command is
/// worse for them than one that is not ready.
const TRIES: u32 = 80;

/// What became of a command.
pub(crate) enum Ran {
    /// It has ended; `None` when it was aborted and must not be answered.
    Ended(Option<ScsiResponse>),
    /// It was not begun: its unit is on the way, to another node or to this one.
    NotBegun(ScsiCommand),
}

impl LogicalUnit {
    /// Carries a command out, from admission to response.
    ///
    /// `number` is told the command's number in the task set.
    pub(crate) async fn run(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        parsed: Result<Cdb, Sense>,
        command: ScsiCommand,
        number: &Cell<Option<u64>>,
    ) -> Ran {
        let guard = match self.enter(caller, &parsed, command.attribute) {
            Ok(guard) => guard,
            Err(Failure::OnTheWay) => return Ran::NotBegun(command),
            Err(failure) => return Ran::Ended(Some(self.respond(Err(failure)))),
        };
        let task = guard.id;
        number.set(Some(task));
        let medium = matches!(&parsed, Ok(cdb) if cdb.effect != Effect::Always);
        let mut outcome: Outcome = Err(Failure::Status(ScsiStatus::TaskAborted));
        let begun = Cell::new(false);
        if guard.ready || self.tasks.may_start(task, medium).await {
            outcome = match parsed {
                Ok(cdb) => self.carry_out(caller, task, &cdb, &command, &begun).await,
                Err(sense) => Err(sense.into()),
            };
        }
        if guard.end() {
            let (tas, closed) = {
                let inner = self.inner.lock();
                (inner.mode.tas, inner.closed.then(|| (inner.moves, inner.gone())))
            };
            match closed {
                // It was not aborted by anybody: what was done by the time that the unit was closed, was done.
                Some((true, _)) if outcome.is_ok() => return Ran::Ended(Some(self.respond(outcome))),
                Some((true, _)) if !begun.get() => return Ran::NotBegun(command),
                Some((_, gone)) => return Ran::Ended(Some(self.respond(Err(gone)))),
                None => {}
            }
            return Ran::Ended(tas.then(|| self.respond(Err(Failure::Status(ScsiStatus::TaskAborted)))));
        }
        match outcome {
            Err(Failure::OnTheWay) if !begun.get() => Ran::NotBegun(command),
            outcome => Ran::Ended(Some(self.respond(outcome))),
        }
    }

    /// Carries an admitted command out, again and again while the storage is away and that changes nothing. Says when it has begun.
    pub(crate) async fn carry_out(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        command: &ScsiCommand,
        begun: &Cell<bool>,
    ) -> Outcome {
        let mut tries = 0;
        loop {
            let outcome = match self.admit(caller, cdb) {
                Ok(()) => match self.hold(caller, task, cdb).await {
                    Ok(permit) => {
                        begun.set(true);
                        self.dispatch(caller, task, cdb, command, permit).await
                    }
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            // Others may say something of another unit's storage, or nothing of any.
            let tells = can_wait(cdb.op);
            match &outcome {
                Err(Failure::Away) if tells => self.heard(true),
                Ok(_) if tells => self.heard(false),
                _ => {}
            }
            if !matches!(outcome, Err(Failure::Away)) || !tells || tries == TRIES {
                return outcome;
            }
            let back = self.storage_changed.notified();
            if !self.tasks.rests(task, true) {
                return Err(Failure::Status(ScsiStatus::TaskAborted));
            }
            tries += u32::from(shard_runtime::timeout(TRY_EVERY, back).await.is_none());
            if !self.tasks.rests(task, false) {
                return Err(Failure::Status(ScsiStatus::TaskAborted));
            }
        }
    }

    pub(crate) fn respond(&self, outcome: Outcome) -> ScsiResponse {
        match outcome {
            Ok(reply) => ScsiResponse {
                status: ScsiStatus::Good,
                sense: Vec::new(),
                data_in: reply.data,
                transfer_length: reply.transfer,
            },
            Err(failure @ (Failure::Status(_) | Failure::OnTheWay)) => {
                let status = if let Failure::Status(status) = failure { status } else { ScsiStatus::Busy };
                ScsiResponse { status, sense: Vec::new(), data_in: None, transfer_length: 0 }
            }
            Err(failure @ (Failure::Sense(_) | Failure::Away)) => {
                let descriptor = self.inner.lock().mode.d_sense;
                ScsiResponse {
                    status: ScsiStatus::CheckCondition,
                    sense: failure.sense().map(|sense| sense.encode(descriptor)).unwrap_or_default(),
                    data_in: None,
                    transfer_length: 0,
                }
            }
        }
    }
}

/// Whether a command whose storage was away may be carried out once more: one that may have done a part of its work, and gives
/// another answer then, may not.
pub(crate) fn can_wait(op: Op) -> bool {
    matches!(
        op,
        Op::Read6
            | Op::Read10
            | Op::Read12
            | Op::Read16
            | Op::Write6
            | Op::Write10
            | Op::Write12
            | Op::Write16
            | Op::WriteVerify10
            | Op::WriteVerify12
            | Op::WriteVerify16
            | Op::WriteSame10
            | Op::WriteSame16
            | Op::Unmap
            | Op::Verify10
            | Op::Verify12
            | Op::Verify16
            | Op::GetLbaStatus
            | Op::SyncCache10
            | Op::SyncCache16
    )
}
