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

use crate::execute::Ran;
use crate::forward::Forward;
use crate::reply::Failure;
use crate::task_set::Attended;
use crate::view::{Caller, Group, MappedUnit, Numbers, same, same_units};
use crate::waiting::WaitingRoom;

type View = BTreeMap<u16, MappedUnit>;

struct Session {
    nexus: Arc<Nexus>,
    view: Arc<View>,
    numbers: Numbers,
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
    /// What brings commands for units of other nodes there.
    pub(crate) forward: Option<Arc<dyn Forward>>,
    /// Where commands wait whose units are on the way.
    pub(crate) waiting: Arc<WaitingRoom>,
}

/// What is known of a command when it comes in.
pub(crate) struct Arrival {
    /// The unit that had the number then.
    pub(crate) unit: [u8; 16],
    /// When that was, where there are other nodes.
    pub(crate) at: Option<u64>,
    /// How many ordered commands had come by then.
    pub(crate) ordered: u64,
}

impl TargetDevice {
    /// A device without units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose commands for units of other nodes are brought there. What is on the way waits in the room, one for all targets of a node.
    #[must_use]
    pub fn forwarding(forward: Option<Arc<dyn Forward>>, waiting: Arc<WaitingRoom>) -> Self {
        Self { forward, waiting, ..Self::default() }
    }

    /// Carries a command out that has come by way of another node, if the unit under the number has this identity and is served here;
    /// `None` when not, and it was not begun. It does not wait here for a unit that is on the way: it does so where it came in.
    pub async fn execute_here(
        &self,
        nexus: &Arc<Nexus>,
        lun: WireLun,
        unit: [u8; 16],
        command: ScsiCommand,
    ) -> Option<Option<ScsiResponse>> {
        let (view, mapped) = self.served_here(nexus, lun, unit)?;
        self.waiting.arrives(unit, command.attribute)?;
        match run_here(nexus, view, mapped, command).await {
            Ran::Ended(response) => Some(response),
            Ran::NotBegun(_) => None,
        }
    }

    /// The same for a task management function.
    pub async fn manage_here(
        &self,
        nexus: &Arc<Nexus>,
        lun: WireLun,
        unit: [u8; 16],
        function: TaskManagement,
    ) -> Option<TaskManagementOutcome> {
        let (_, mapped) = self.served_here(nexus, lun, unit)?;
        let ended = self.end_waiting(nexus, &mapped, function);
        let outcome = manage(nexus, &mapped, function).await;
        self.waiting.ended(&ended).await;
        Some(outcome)
    }

    fn served_here(&self, nexus: &Nexus, lun: WireLun, unit: [u8; 16]) -> Option<(Arc<View>, MappedUnit)> {
        let view = self.view(nexus.id)?;
        let mapped = view.get(&lun.number()?)?.clone();
        (mapped.unit.config.id == unit && !mapped.unit.is_elsewhere()).then_some((view, mapped))
    }

    /// Replaces who sees what. Sessions whose view changes are told at their next command.
    pub fn configure(&self, groups: Vec<Group>) {
        let mut state = self.state.write();
        for session in state.sessions.values_mut() {
            let view = session.numbers.view(&groups, &session.nexus.initiator);
            if same(&view, &session.view) {
                continue;
            }
            for mapped in session.view.values() {
                if !view.values().any(|new| Arc::ptr_eq(&new.unit, &mapped.unit)) {
                    mapped.unit.disconnect(session.nexus.id);
                }
            }
            // The same units, one of which is served by another node now, or is no more: its paths are others.
            let moved = same_units(&view, &session.view);
            for (number, mapped) in &view {
                let before = session
                    .view
                    .get(number)
                    .filter(|before| moved && !Arc::ptr_eq(&before.unit, &mapped.unit));
                mapped.unit.connect(&session.nexus);
                if !moved {
                    mapped.unit.attention(session.nexus.id, asc::REPORTED_LUNS_CHANGED);
                } else if before.is_some_and(|before| before.unit.port_groups() != mapped.unit.port_groups())
                {
                    mapped.unit.attention(session.nexus.id, asc::ACCESS_STATE_CHANGED);
                }
            }
            session.view = Arc::new(view);
        }
        state.groups = groups;
        drop(state);
        self.waiting.wake();
    }

    pub(crate) fn view(&self, nexus: u64) -> Option<Arc<View>> {
        self.state.read().sessions.get(&nexus).map(|session| session.view.clone())
    }

    fn changes_something(cdb: &Cdb) -> bool {
        let mode = matches!(cdb.op, Op::ModeSelect6 | Op::ModeSelect10);
        cdb.effect == Effect::Write || cdb.op.is_reservation_command() || mode
    }

    /// Commands for a number without a unit.
    pub(crate) fn absent(caller: &Caller<'_>, lun: WireLun, command: &ScsiCommand) -> ScsiResponse {
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
        let common = |their: &MappedUnit, may: &dyn Fn(&MappedUnit) -> bool| {
            own.values().any(|mine| Arc::ptr_eq(&mine.unit, &their.unit) && may(mine))
        };
        let as_much = |their: &MappedUnit| common(their, &|mine| their.read_only || !mine.read_only);
        theirs.values().any(|their| common(their, &|mine| !mine.read_only)) && theirs.values().all(as_much)
    }

    fn nexus_established(&self, nexus: &Arc<Nexus>) {
        let mut state = self.state.write();
        let mut numbers = Numbers::default();
        let view = numbers.view(&state.groups, &nexus.initiator);
        view.values().for_each(|mapped| mapped.unit.connect(nexus));
        state.sessions.insert(nexus.id, Session { nexus: nexus.clone(), view: Arc::new(view), numbers });
        drop(state);
        self.forward.iter().for_each(|forward| forward.nexus_established(nexus));
    }

    fn nexus_lost(&self, nexus: &Arc<Nexus>) {
        if let Some(session) = self.state.write().sessions.remove(&nexus.id) {
            session.view.values().for_each(|mapped| mapped.unit.disconnect(nexus.id));
            self.forward.iter().for_each(|forward| forward.nexus_lost(nexus));
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
            let unit = mapped.unit.config.id;
            let Some(ordered) = self.waiting.arrives(unit, command.attribute) else {
                return Some(mapped.unit.respond(Err(Failure::Status(ScsiStatus::Busy))));
            };
            let at = self.forward.as_deref().map(Forward::now);
            let arrival = Arrival { unit, at, ordered };
            if mapped.unit.is_elsewhere() {
                return Box::pin(self.bring(nexus, lun, command, arrival)).await;
            }
            let mapped = mapped.clone();
            match run_here(nexus, view, mapped, command).await {
                Ran::Ended(response) => response,
                Ran::NotBegun(command) => Box::pin(self.bring(nexus, lun, command, arrival)).await,
            }
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
            let here_or_there = async |number: u16, mapped: &MappedUnit, function| {
                // Marked before: what is tried again meanwhile is ended by the unit itself.
                let ended = self.end_waiting(nexus, mapped, function);
                let outcome = if mapped.unit.is_elsewhere() {
                    let at = (nexus, WireLun::from_number(number));
                    mapped.unit.manage_elsewhere(self.forward.as_deref(), at, function).await
                } else {
                    manage(nexus, mapped, function).await
                };
                self.waiting.ended(&ended).await;
                outcome
            };
            if matches!(function, TaskManagement::TargetWarmReset | TaskManagement::TargetColdReset) {
                for (number, mapped) in &*view {
                    // One that may only read takes nothing from others.
                    let function = match mapped.read_only {
                        true => TaskManagement::AbortTaskSet,
                        false => TaskManagement::LogicalUnitReset,
                    };
                    here_or_there(*number, mapped, function).await;
                }
                return TaskManagementOutcome::Complete;
            }
            let number = lun.number();
            let Some((number, mapped)) = number.and_then(|number| Some((number, view.get(&number)?))) else {
                return TaskManagementOutcome::IncorrectLun;
            };
            here_or_there(number, mapped, function).await
        })
    }

    fn settled(&self) -> ScsiFuture<'_, ()> {
        match &self.forward {
            Some(forward) => forward.settled(),
            None => Box::pin(std::future::ready(())),
        }
    }
}

/// Carries a command out on a unit of this node.
pub(crate) async fn run_here(
    nexus: &Arc<Nexus>,
    view: Arc<View>,
    mapped: MappedUnit,
    command: ScsiCommand,
) -> Ran {
    let MappedUnit { unit, read_only } = mapped;
    let parsed = unit.parse(&command.cdb);
    if !parsed.as_ref().is_ok_and(TargetDevice::changes_something) {
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
}

/// Carries a task management function out on a unit of this node.
async fn manage(nexus: &Nexus, mapped: &MappedUnit, function: TaskManagement) -> TaskManagementOutcome {
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
}
