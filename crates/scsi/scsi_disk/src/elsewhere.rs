//! Commands for a unit that another node serves: what is answered here, and what the initiator is told when they do not get there.

use std::cell::Cell;
use std::sync::Arc;

use scsi_core::{
    Nexus, ScsiCommand, ScsiResponse, ScsiStatus, TaskManagement, TaskManagementOutcome, WireLun,
};
use scsi_defs::{Cdb, Effect, Op, Sense, SenseKey, asc};

use crate::execute::can_wait;
use crate::forward::{Brought, Forward, Place};
use crate::reply::Failure;
use crate::unit::{LogicalUnit, UnitState};
use crate::view::Caller;

impl LogicalUnit {
    /// Which node serves it, if that is known.
    fn place(&self, lun: WireLun) -> Option<Place> {
        match self.inner.lock().state {
            UnitState::Elsewhere(Some(node)) => Some(Place { node, lun, unit: self.config.id }),
            _ => None,
        }
    }

    /// Carries a command out where the unit is.
    pub(crate) async fn run_elsewhere(
        self: &Arc<Self>,
        forward: Option<&dyn Forward>,
        (nexus, lun): (&Arc<Nexus>, WireLun),
        caller: &Caller<'_>,
        command: ScsiCommand,
    ) -> Option<ScsiResponse> {
        let parsed = Cdb::parse(&command.cdb);
        let op = parsed.as_ref().ok().map(|cdb| cdb.op);
        let here = async |parsed, command| self.run(caller, parsed, command, &Cell::new(None)).await;
        // What every node knows. Who asks hears of other ways here, where they are known first.
        if matches!(op, Some(Op::ReportLuns | Op::ReportTargetPortGroups)) {
            return here(parsed, command).await;
        }
        if !matches!(op, Some(Op::Inquiry | Op::RequestSense))
            && let Some(news) = self.news(nexus.id)
        {
            return Some(self.respond(Err(news.into())));
        }
        let again = matches!(&parsed, Ok(cdb) if cdb.effect == Effect::Always && !cdb.op.is_reservation_command())
            || op.is_some_and(can_wait);
        let brought = match (forward, self.place(lun)) {
            (Some(forward), Some(place)) => forward.execute(place, nexus, command.clone()).await,
            _ => Brought::NotBegun,
        };
        match brought {
            Brought::Ended(response) => response,
            // Who asks what it is gets an answer, whether its owner is there or not.
            Brought::NotBegun | Brought::Unknown if matches!(op, Some(Op::Inquiry | Op::RequestSense)) => {
                here(parsed, command).await
            }
            Brought::NotBegun => Some(self.respond(Err(Failure::Status(ScsiStatus::Busy)))),
            Brought::Unknown if again => Some(self.respond(Err(Failure::Status(ScsiStatus::Busy)))),
            Brought::Unknown => Some(
                self.respond(Err(Sense::new(SenseKey::AbortedCommand, asc::COMMUNICATION_FAILURE).into())),
            ),
        }
    }

    /// Carries a task management function out where the unit is. Where nobody is, there are no commands either.
    pub(crate) async fn manage_elsewhere(
        &self,
        forward: Option<&dyn Forward>,
        (nexus, lun): (&Arc<Nexus>, WireLun),
        function: TaskManagement,
    ) -> TaskManagementOutcome {
        let (Some(forward), Some(place)) = (forward, self.place(lun)) else {
            return TaskManagementOutcome::Complete;
        };
        let outcome = forward.task_management(place, nexus, function).await;
        outcome.unwrap_or(TaskManagementOutcome::Rejected)
    }

    /// News that a nexus hears at this node, as its way to the unit begins here.
    fn news(&self, nexus: u64) -> Option<Sense> {
        let mut inner = self.inner.lock();
        let entry = inner.nexuses.get_mut(&nexus)?;
        let code = (!entry.attentions.is_empty()).then(|| entry.attentions.remove(0))?;
        Some(Sense::new(SenseKey::UnitAttention, code))
    }
}
