//! The commands, each family in a file of its own, and which of them carries a command out.

mod copy;
mod data;
mod inform;
mod mode;
mod reserve;
mod sanitize;
mod tokens;

use std::sync::Arc;

pub(crate) use inform::{absent_inquiry, report_luns};
use qos_gate::Permit;
pub use reserve::ClearError;
use scsi_core::ScsiCommand;
use scsi_defs::cdb::opcode_known;
use scsi_defs::{Cdb, Effect, Op, Sense, asc};

use crate::reply::Outcome;
use crate::sanitize::Sanitize;
use crate::unit::LogicalUnit;
use crate::view::Caller;

/// The opcode of SANITIZE, whatever its service action.
const SANITIZE: u8 = 0x48;

impl LogicalUnit {
    /// Whether the unit has commands of this opcode. SANITIZE is to leave nothing of what was on the medium, and a unit that discards what is
    /// written leaves all of what it lies over.
    pub(crate) fn has(&self, opcode: u8) -> bool {
        opcode_known(opcode) && !(self.config.discards_writes && opcode == SANITIZE)
    }

    /// Whether this asks a unit to go on that was sanitized without success: also one that has no SANITIZE, as its file may have been
    /// another unit's before.
    fn leaves_failure(&self, cdb: &[u8]) -> bool {
        let exits = Cdb::parse(cdb).is_ok_and(|cdb| cdb.op == Op::SanitizeExitFailure);
        exits && matches!(self.inner.lock().sanitize, Sanitize::Failed { .. })
    }

    /// Checks a CDB.
    ///
    /// # Errors
    /// The sense data to answer with.
    pub(crate) fn parse(&self, cdb: &[u8]) -> Result<Cdb, Sense> {
        match cdb.first() {
            Some(opcode) if !self.has(*opcode) && !self.leaves_failure(cdb) => {
                Err(Sense::illegal(asc::INVALID_OPCODE))
            }
            _ => Cdb::parse(cdb),
        }
    }

    /// Carries an admitted command out, whose place at the volume is kept until it has ended.
    pub(crate) async fn dispatch(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        command: &ScsiCommand,
        permit: Option<Permit>,
    ) -> Outcome {
        if !(self.config.discards_writes && cdb.effect == Effect::Write) {
            return self.carried_out(caller, task, cdb, command, permit).await;
        }
        // Also by commands that are durable elsewhere: whoever changes something here has that to lose.
        let (durability, caching) = self.durability(caller.nexus.id, false).await?;
        let outcome = self.carried_out(caller, task, cdb, command, permit).await;
        // What is there now is another storage than the one that an error may speak of, too.
        self.settle(durability, caching.as_ref()).await?;
        outcome
    }

    async fn carried_out(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        command: &ScsiCommand,
        permit: Option<Permit>,
    ) -> Outcome {
        match cdb.op {
            op if op.is_reservation_command() => {
                self.reservation_command(caller, task, cdb, &command.data_out).await
            }
            Op::ModeSense6 | Op::ModeSense10 => self.mode_sense(caller, cdb),
            Op::ModeSelect6 | Op::ModeSelect10 => self.mode_select(caller, cdb, &command.data_out).await,
            Op::ExtendedCopy1
            | Op::ExtendedCopy4
            | Op::ReceiveCopyStatus1
            | Op::ReceiveCopyStatus4
            | Op::ReceiveCopyParameters => self.copy_command(caller, task, cdb, &command.data_out).await,
            Op::SanitizeOverwrite | Op::SanitizeBlockErase | Op::SanitizeExitFailure => {
                self.sanitize_command(caller, task, cdb, &command.data_out).await
            }
            Op::PopulateToken | Op::WriteUsingToken | Op::ReceiveRodTokenInformation => {
                self.token_command(caller, task, cdb, &command.data_out).await
            }
            Op::RequestSense => self.request_sense(caller, cdb),
            Op::SendDiagnostic => self.self_test(cdb).await,
            _ if cdb.effect == Effect::Always => self.inform(caller, cdb),
            _ => {
                let work = self.data_command(caller, task, cdb, command.data_out.clone());
                self.meter.counted(caller.nexus, cdb.op, permit, work).await
            }
        }
    }
}
