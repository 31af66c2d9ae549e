//! Commands for a unit that another node serves: what is answered here, and what the initiator is told when they do not get there.

use std::cell::Cell;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use scsi_core::{
    Nexus, ScsiCommand, ScsiStatus, TaskAttribute, TaskManagement, TaskManagementOutcome, WireLun,
};
use scsi_defs::{Cdb, Effect, Op, Reported, Sense, SenseKey, asc};

use crate::execute::{Ran, can_wait};
use crate::forward::{Brought, Forward, Place};
use crate::reply::Failure;
use crate::unit::{LogicalUnit, UnitState};
use crate::view::Caller;

/// What brings a command, and when it came in.
type Way<'a> = Option<(&'a dyn Forward, u64)>;

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
        way: Way<'_>,
        (nexus, lun): (&Arc<Nexus>, WireLun),
        caller: &Caller<'_>,
        command: ScsiCommand,
    ) -> Ran {
        let parsed = Cdb::parse(&command.cdb);
        let op = parsed.as_ref().ok().map(|cdb| cdb.op);
        let here = async |parsed, command| self.run(caller, parsed, command, &Cell::new(None)).await;
        // What every node knows. Who asks hears of other ways here, where they are known first.
        if matches!(op, Some(Op::ReportLuns | Op::ReportTargetPortGroups)) {
            return here(parsed, command).await;
        }
        let asks = matches!(op, Some(Op::Inquiry | Op::RequestSense));
        if !asks && self.next_news(nexus.id).is_some() {
            return self.tell_news(way, (nexus, lun), command).await;
        }
        let again = matches!(&parsed, Ok(cdb) if cdb.effect == Effect::Always && !cdb.op.is_reservation_command())
            || op.is_some_and(can_wait);
        let brought = self.brought(way, (nexus, lun), command.clone()).await;
        let failure = match brought {
            Brought::Ended(response) => {
                // What it is, also one says who does not serve it yet.
                if !asks {
                    self.inner.lock().answered();
                }
                return Ran::Ended(response);
            }
            // Who asks what it is gets an answer, whether its owner is there or not.
            Brought::NotBegun | Brought::Stale | Brought::Unknown if asks => {
                return here(parsed, command).await;
            }
            Brought::NotBegun => return Ran::NotBegun(command),
            Brought::Stale => Failure::Status(ScsiStatus::Busy),
            Brought::Unknown if again => Failure::Status(ScsiStatus::Busy),
            Brought::Unknown => Sense::new(SenseKey::AbortedCommand, asc::COMMUNICATION_FAILURE).into(),
        };
        Ran::Ended(Some(self.respond(Err(failure))))
    }

    async fn brought(
        &self,
        way: Way<'_>,
        (nexus, lun): (&Arc<Nexus>, WireLun),
        command: ScsiCommand,
    ) -> Brought {
        match (way, self.place(lun)) {
            (Some((forward, arrived)), Some(place)) => forward.execute(place, nexus, command, arrived).await,
            _ => Brought::NotBegun,
        }
    }

    /// Tells a nexus news that it hears at this node, as its way to the unit begins here. Initiators count what they are told: when the unit has
    /// a new owner, which has to tell of a reset, that tells of the other ways, too.
    async fn tell_news(&self, way: Way<'_>, at: (&Arc<Nexus>, WireLun), command: ScsiCommand) -> Ran {
        let nexus = at.0.id;
        if self.next_news(nexus) == Some(asc::ACCESS_STATE_CHANGED) {
            let test = ScsiCommand {
                cdb: vec![0; 6],
                data_out: IoBuf::copy_from(&[]).freeze(),
                data_in_limit: 0,
                attribute: TaskAttribute::Simple,
            };
            match self.brought(way, at, test).await {
                Brought::NotBegun => return Ran::NotBegun(command),
                Brought::Ended(Some(response)) if response.status == ScsiStatus::CheckCondition => {
                    let told = Reported::parse(&response.sense);
                    if let Some(told) = told.filter(|told| told.is(SenseKey::UnitAttention)) {
                        if told.code == asc::POWER_ON {
                            self.forget_news(nexus, asc::ACCESS_STATE_CHANGED);
                        }
                        return Ran::Ended(Some(response));
                    }
                }
                _ => {}
            }
        }
        match self.take_news(nexus) {
            Some(code) => {
                let sense = Sense::new(SenseKey::UnitAttention, code);
                Ran::Ended(Some(self.respond(Err(sense.into()))))
            }
            // Another command of the nexus has told it meanwhile.
            None => Ran::NotBegun(command),
        }
    }

    /// Carries a task management function out where the unit is. Where nobody is, there are no commands either but those that wait.
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

    fn next_news(&self, nexus: u64) -> Option<u16> {
        self.inner.lock().nexuses.get(&nexus)?.attentions.first().copied()
    }

    /// What a nexus is to be told next, which it is then.
    pub(crate) fn take_news(&self, nexus: u64) -> Option<u16> {
        let mut inner = self.inner.lock();
        let entry = inner.nexuses.get_mut(&nexus)?;
        (!entry.attentions.is_empty()).then(|| entry.attentions.remove(0))
    }

    fn forget_news(&self, nexus: u64, code: u16) {
        if let Some(entry) = self.inner.lock().nexuses.get_mut(&nexus) {
            entry.attentions.retain(|known| *known != code);
        }
    }
}
