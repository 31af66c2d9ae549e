//! Commands for a unit that is on the way from one node to another: held for a moment, and tried again where it has come to.
//!
//! ```text
//!   not begun anywhere ──► waits in the room ──► the place may have changed, or a pause is over ──► tried, here or there
//!        ▲                      │ aborted: ends        │ nothing begun                                   │
//!        │                      │ too long, no room: BUSY                                              ▼ the answer
//!        └──────────────────────┴──────────────────────────────────────────────────────────────────────
//! ```
//! An initiator that is told BUSY comes again by a schedule of its own: QEMU's waits four times as long each time and gives up after
//! the seventh, and path checkers may take the way for broken. A move is over in less than the time that a command is held, so
//! that most of them hear only of the end. NOT READY with the asymmetric access state in transition would not be better: QEMU
//! gives a guest an error at once for that, and not every kernel takes it for a reason to try again.
//!
//! One that has been without an answer for long is away rather than on the way, and nothing is held for it: what comes again and again
//! would take the room of units that move.
//!
//! What is held has not begun, so it is carried out once. It is not held for longer than the owner would take it when it is
//! brought there: an initiator that has given a command up may have written something else over another path. Its age is
//! counted from where it came in on a clock that goes on while a machine sleeps.

use std::sync::Arc;
use std::time::Duration;

use scsi_core::{Nexus, ScsiCommand, ScsiResponse, ScsiStatus, TaskManagement, WireLun};
use scsi_defs::{Sense, SenseKey, asc};

use crate::execute::Ran;
use crate::forward::Forward;
use crate::reply::Failure;
use crate::target::{Arrival, TargetDevice, run_here};
use crate::unit::LogicalUnit;
use crate::view::{Caller, MappedUnit};

/// A command is tried no more when it is older: a last try is to reach the owner before it is too old there.
const HELD: Duration = Duration::from_millis(900);
/// Nor is it begun here, when the unit has come here, if it is older than what is taken from other nodes.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Nothing is held for a unit that has had no answer for this long: it is away rather than on the way, and what comes for it again
/// and again would take the room of those that move.
const MOVE: Duration = Duration::from_secs(15);
/// Unless none of its commands came for this long, so that nobody knows how it was meanwhile.
const APART: Duration = Duration::from_secs(60);
/// Between two tries when nothing is heard: twice as long each time, so that data is sent anew a few times only.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));

impl TargetDevice {
    /// Carries a command out for a unit that another node serves, or that is on the way.
    pub(crate) async fn bring(
        &self,
        nexus: &Arc<Nexus>,
        lun: WireLun,
        mut command: ScsiCommand,
        arrival: Arrival,
    ) -> Option<ScsiResponse> {
        let mut pause = PAUSES.0;
        loop {
            let changed = self.waiting.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view(nexus.id)?;
            let Some(mapped) = lun.number().and_then(|number| view.get(&number)).cloned() else {
                let caller = Caller { nexus, view: &view, read_only: false };
                return Some(Self::absent(&caller, lun, &command));
            };
            let unit = mapped.unit.clone();
            if unit.config.id != arrival.unit {
                // The number is another unit's by now, of which its initiator is to hear first.
                return Some(unit.respond(Err(Failure::Status(ScsiStatus::Busy))));
            }
            // One may have waited for its turn where the unit was, and the unit has been at another node since.
            if self.forward.is_some()
                && !unit.is_elsewhere()
                && self.age(&arrival).is_none_or(|age| age > MAX_AGE)
            {
                return Some(give_up(&unit, nexus));
            }
            let (attribute, bytes) = (command.attribute, command.data_out.len());
            let ran = if unit.is_elsewhere() {
                let caller = Caller { nexus, view: &view, read_only: mapped.read_only };
                let way = self.forward.as_deref().zip(arrival.at);
                unit.run_elsewhere(way, (nexus, lun), &caller, command).await
            } else {
                run_here(nexus, view, mapped, command).await
            };
            command = match ran {
                Ran::Ended(response) => return response,
                Ran::NotBegun(command) => command,
            };
            let left = self.age(&arrival).and_then(|age| HELD.checked_sub(age));
            let Some(left) = left.filter(|left| !left.is_zero()) else { return Some(give_up(&unit, nexus)) };
            if self.is_long_away(&unit) {
                return Some(give_up(&unit, nexus));
            }
            let of = (arrival.unit, attribute, arrival.ordered);
            let Some(waiting) = self.waiting.wait(of, nexus.id, bytes) else {
                return Some(give_up(&unit, nexus));
            };
            // Either way it is tried again.
            let _ = shard_runtime::timeout(pause.min(left), changed).await;
            if waiting.leave() {
                let tas = unit.inner.lock().mode.tas;
                return tas.then(|| unit.respond(Err(Failure::Status(ScsiStatus::TaskAborted))));
            }
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// How long ago a command came in; `None` where there are no other nodes.
    fn age(&self, arrival: &Arrival) -> Option<Duration> {
        let now = self.forward.as_deref()?.now();
        Some(Duration::from_nanos(now.checked_sub(arrival.at?)?))
    }

    /// Whether a unit, for which a command is not begun now, has been without an answer for so long that this is no move any more.
    fn is_long_away(&self, unit: &LogicalUnit) -> bool {
        let now = self.forward.as_deref().map(Forward::now);
        now.is_some_and(|now| unit.inner.lock().unanswered(now, APART) > MOVE)
    }

    /// Ends commands that wait for a unit as a task management function says that comes to it. What is to be waited for before the function
    /// ends.
    pub(crate) fn end_waiting(
        &self,
        nexus: &Nexus,
        mapped: &MappedUnit,
        function: TaskManagement,
    ) -> Vec<u64> {
        let unit = &mapped.unit;
        let (all, told) = match function {
            TaskManagement::AbortTaskSet => (false, None),
            _ if mapped.read_only => return Vec::new(),
            TaskManagement::ClearTaskSet => (true, Some(asc::COMMANDS_CLEARED)),
            // Whoever serves it tells of a reset; here is told who had something that waited, as maybe nobody does.
            _ => (true, unit.is_elsewhere().then_some(asc::DEVICE_RESET)),
        };
        let (ended, nexuses) = self.waiting.abort(unit.config.id, |id| all || id == nexus.id);
        if let Some(code) = told {
            let others = nexuses.into_iter().filter(|other| *other != nexus.id);
            others.for_each(|other| unit.attention(other, code));
        }
        ended
    }
}

/// What the initiator is told of a command that was held for as long as it may be: news if there is any, else to come again.
fn give_up(unit: &LogicalUnit, nexus: &Nexus) -> ScsiResponse {
    let news = if unit.is_elsewhere() { unit.take_news(nexus.id) } else { None };
    unit.respond(Err(match news {
        Some(code) => Sense::new(SenseKey::UnitAttention, code).into(),
        None => Failure::Status(ScsiStatus::Busy),
    }))
}
