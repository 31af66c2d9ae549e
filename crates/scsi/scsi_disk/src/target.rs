//! [`TargetDevice`]: which nexus sees which unit under which number.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::RwLock;
use scsi_core::{
    Nexus, ScsiCommand, ScsiDevice, ScsiFuture, ScsiResponse, ScsiStatus, TaskManagement,
    TaskManagementOutcome, WireLun,
};
use scsi_defs::{Cdb, Effect, Op, Sense, asc};

use crate::task_set::Attended;
use crate::view::{Caller, Group, MappedUnit, same, view_of};

struct Session {
    nexus: Arc<Nexus>,
    view: Arc<BTreeMap<u16, MappedUnit>>,
}

#[derive(Default)]
struct State {
    groups: Vec<Group>,
    sessions: BTreeMap<u64, Session>,
}

/// The device behind a target.
#[derive(Default)]
pub struct TargetDevice {
    state: RwLock<State>,
}

impl TargetDevice {
    /// A device without units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces who sees what. Sessions whose view changes are told at their next command.
    pub fn configure(&self, groups: Vec<Group>) {
        let mut state = self.state.write();
        for session in state.sessions.values_mut() {
            let view = view_of(&groups, &session.nexus.initiator);
            if same(&view, &session.view) {
                continue;
            }
            for mapped in session.view.values() {
                if !view.values().any(|new| Arc::ptr_eq(&new.unit, &mapped.unit)) {
                    mapped.unit.disconnect(session.nexus.id);
                }
            }
            for mapped in view.values() {
                mapped.unit.connect(&session.nexus);
                mapped.unit.attention(session.nexus.id, asc::REPORTED_LUNS_CHANGED);
            }
            session.view = Arc::new(view);
        }
        state.groups = groups;
    }

    fn view(&self, nexus: u64) -> Option<Arc<BTreeMap<u16, MappedUnit>>> {
        self.state.read().sessions.get(&nexus).map(|session| session.view.clone())
    }

    fn changes_something(cdb: &Cdb) -> bool {
        let mode = matches!(cdb.op, Op::ModeSelect6 | Op::ModeSelect10);
        cdb.effect == Effect::Write || cdb.op.is_reservation_command() || mode
    }

    /// Commands for a number without a unit.
    fn absent(caller: &Caller<'_>, lun: WireLun, command: &ScsiCommand) -> ScsiResponse {
        let outcome = Cdb::parse(&command.cdb).and_then(|cdb| {
            match cdb.op {
                Op::Inquiry => {
                    // Qualifier 1: could be connected, is not (LUN 0); 3: there cannot be such a unit.
                    let peripheral = if lun.number().is_some() { 0x3f } else { 0x7f };
                    crate::commands::absent_inquiry(&cdb, peripheral)
                }
                Op::ReportLuns => crate::commands::report_luns(caller.view, &cdb),
                Op::RequestSense => Ok(Sense::illegal(asc::LUN_NOT_SUPPORTED).encode(cdb.bit(1, 0))),
                _ => Err(Sense::illegal(asc::LUN_NOT_SUPPORTED)),
            }
            .map(|bytes| crate::reply::Reply::parameters(&bytes, cdb.length()))
        });
        match outcome {
            Ok(Ok(reply)) => ScsiResponse {
                status: ScsiStatus::Good,
                sense: Vec::new(),
                data_in: reply.data,
                transfer_length: reply.transfer,
            },
            Ok(Err(_)) => ScsiResponse {
                status: ScsiStatus::Busy,
                sense: Vec::new(),
                data_in: None,
                transfer_length: 0,
            },
            Err(sense) => ScsiResponse {
                status: ScsiStatus::CheckCondition,
                sense: Sense { code: asc::LUN_NOT_SUPPORTED, field: None, ..sense }.encode(false),
                data_in: None,
                transfer_length: 0,
            },
        }
    }
}

impl ScsiDevice for TargetDevice {
    fn reaches(&self, nexus: &Arc<Nexus>, other: &Arc<Nexus>) -> bool {
        let (Some(own), Some(theirs)) = (self.view(nexus.id), self.view(other.id)) else { return false };
        own.values()
            .any(|mine| !mine.read_only && theirs.values().any(|their| Arc::ptr_eq(&mine.unit, &their.unit)))
    }

    fn nexus_established(&self, nexus: &Arc<Nexus>) {
        let mut state = self.state.write();
        let view = view_of(&state.groups, &nexus.initiator);
        view.values().for_each(|mapped| mapped.unit.connect(nexus));
        state.sessions.insert(nexus.id, Session { nexus: nexus.clone(), view: Arc::new(view) });
    }

    fn nexus_lost(&self, nexus: &Arc<Nexus>) {
        if let Some(session) = self.state.write().sessions.remove(&nexus.id) {
            session.view.values().for_each(|mapped| mapped.unit.disconnect(nexus.id));
        }
    }

    fn execute<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        command: ScsiCommand,
    ) -> ScsiFuture<'a, Option<ScsiResponse>> {
        Box::pin(async move {
            let view = self.view(nexus.id)?;
            let mapped = lun.number().and_then(|number| view.get(&number));
            let Some(mapped) = mapped else {
                let caller = Caller { nexus, view: &view, read_only: false };
                return Some(Self::absent(&caller, lun, &command));
            };
            let (unit, read_only) = (mapped.unit.clone(), mapped.read_only);
            let parsed = Cdb::parse(&command.cdb);
            if !parsed.as_ref().is_ok_and(Self::changes_something) {
                let caller = Caller { nexus, view: &view, read_only };
                return unit.run(&caller, parsed, command, &Cell::new(None)).await;
            }
            // What has begun to change something comes to its end, whatever becomes of the connection: what is
            // durable and what is in memory stay the same, and whoever aborts the command can wait for it.
            let task = Rc::new(Cell::new(None));
            let _attended = Attended { tasks: unit.tasks.clone(), task: task.clone() };
            let nexus = nexus.clone();
            let work = async move {
                let caller = Caller { nexus: &nexus, view: &view, read_only };
                unit.run(&caller, parsed, command, &task).await
            };
            shard_runtime::finish_anyway(work).await
        })
    }

    fn task_management<'a>(
        &'a self,
        nexus: &'a Arc<Nexus>,
        lun: WireLun,
        function: TaskManagement,
    ) -> ScsiFuture<'a, TaskManagementOutcome> {
        Box::pin(async move {
            let Some(view) = self.view(nexus.id) else { return TaskManagementOutcome::Rejected };
            if matches!(function, TaskManagement::TargetWarmReset | TaskManagement::TargetColdReset) {
                for mapped in view.values() {
                    // One that may only read takes nothing from others.
                    match mapped.read_only {
                        true => drop(mapped.unit.abort(|id| id == nexus.id, None).await),
                        false => mapped.unit.reset().await,
                    }
                }
                return TaskManagementOutcome::Complete;
            }
            let Some(mapped) = lun.number().and_then(|number| view.get(&number)) else {
                return TaskManagementOutcome::IncorrectLun;
            };
            match function {
                TaskManagement::ClearTaskSet | TaskManagement::LogicalUnitReset if mapped.read_only => {
                    return TaskManagementOutcome::Rejected;
                }
                TaskManagement::AbortTaskSet => {
                    mapped.unit.abort(|id| id == nexus.id, None).await;
                }
                TaskManagement::ClearTaskSet => {
                    for other in mapped.unit.abort(|_| true, None).await {
                        if other != nexus.id {
                            mapped.unit.attention(other, asc::COMMANDS_CLEARED);
                        }
                    }
                }
                _ => mapped.unit.reset().await,
            }
            TaskManagementOutcome::Complete
        })
    }
}
