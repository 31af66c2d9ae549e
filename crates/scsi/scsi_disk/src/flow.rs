//! Commands that move data wait for their turn at the volume (`qos_gate`): each initiator's use of the unit is a flow.
//!
//! One step of at most some MiB waits for itself: a READ or WRITE before it begins, and is admitted anew if it had to wait; what
//! goes on in steps, before each of them. A command that waits is in the task set as one that runs: whoever aborts it wakes
//! it, it ends at once, and has changed nothing since. Flushes do not wait: what they wait for has had its turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use observe::IoKind;
use qos_gate::{Disk, Entry, Flow, Kind, Permit};
use scsi_core::{Nexus, ScsiStatus};
use scsi_defs::{Cdb, Op};

use crate::inquiry::MAX_TRANSFER_BYTES;
use crate::meter;
use crate::reply::Failure;
use crate::target::Caller;
use crate::unit::LogicalUnit;

/// How often a command that waits at another unit than its own looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where the unit's commands wait, and the flows of its nexuses.
#[derive(Default)]
pub(crate) struct Flows {
    disk: Option<Arc<Disk>>,
    of: BTreeMap<u64, Arc<Flow>>,
}

/// What a command that is carried out in one step moves: whether it changes the medium.
fn moved(op: Op) -> Option<Kind> {
    match meter::kind(op) {
        // It goes on in steps.
        IoKind::Write if matches!(op, Op::WriteSame10 | Op::WriteSame16) => None,
        IoKind::Write => Some(Kind::Write),
        IoKind::Read => Some(Kind::Read),
        _ => None,
    }
}

impl LogicalUnit {
    /// Lets the commands that move data wait for their turn as this disk of a volume's queue from now on, or for nothing any
    /// more. Those that wait already go on where they are.
    pub fn queue_as(&self, disk: Option<Arc<Disk>>) {
        let before = {
            let mut flows = self.flows.lock();
            let same = match (&flows.disk, &disk) {
                (Some(have), Some(want)) => Arc::ptr_eq(have, want),
                (None, None) => true,
                _ => false,
            };
            if same {
                return;
            }
            std::mem::replace(&mut *flows, Flows { disk, of: BTreeMap::new() })
        };
        drop(before);
    }

    /// The flow of a nexus, if commands wait for their turn here.
    fn flow_of(&self, nexus: &Nexus) -> Option<Arc<Flow>> {
        let mut flows = self.flows.lock();
        if let Some(flow) = flows.of.get(&nexus.id) {
            return Some(flow.clone());
        }
        let flow = flows.disk.as_ref()?.flow(&nexus.initiator)?;
        // A command may outlive its nexus; then nobody would take the flow out again.
        if self.inner.lock().nexuses.contains_key(&nexus.id) {
            flows.of.insert(nexus.id, flow.clone());
        }
        Some(flow)
    }

    /// A nexus is gone.
    pub(crate) fn end_flow(&self, nexus: u64) {
        let ended = self.flows.lock().of.remove(&nexus);
        drop(ended);
    }

    /// Waits until a command that is carried out in one step may go to the volume, and holds its place there. Whoever had to
    /// wait is admitted anew: reservations and the unit's state may have changed.
    pub(crate) async fn hold(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
    ) -> Result<Option<Permit>, Failure> {
        let Some(kind) = moved(cdb.op) else { return Ok(None) };
        let bytes = u64::from(cdb.length()) * self.block();
        // What is refused for its length moves nothing.
        if bytes == 0 || bytes > MAX_TRANSFER_BYTES {
            return Ok(None);
        }
        let Some(flow) = self.flow_of(caller.nexus) else { return Ok(None) };
        let (permit, waited) = self.turn(&flow, kind, bytes, &|| self.still_wanted(task), false).await?;
        if waited {
            self.admit(caller, cdb)?;
        }
        Ok(Some(permit))
    }

    /// Waits for the turn of one step of a command of this unit that goes on in steps.
    pub(crate) async fn step(
        &self,
        nexus: &Nexus,
        task: u64,
        kind: Kind,
        bytes: u64,
    ) -> Result<Option<Permit>, Failure> {
        self.still_wanted(task)?;
        let Some(flow) = self.flow_of(nexus) else { return Ok(None) };
        let (permit, _) = self.turn(&flow, kind, bytes, &|| self.still_wanted(task), false).await?;
        Ok(Some(permit))
    }

    /// Waits for the turn of one step here of a command of any unit.
    pub(crate) async fn step_of_other(
        &self,
        nexus: &Nexus,
        kind: Kind,
        bytes: u64,
        wanted: &dyn Fn() -> Result<(), Failure>,
    ) -> Result<Option<Permit>, Failure> {
        wanted()?;
        let Some(flow) = self.flow_of(nexus) else { return Ok(None) };
        let (permit, _) = self.turn(&flow, kind, bytes, wanted, true).await?;
        Ok(Some(permit))
    }

    async fn turn(
        &self,
        flow: &Arc<Flow>,
        kind: Kind,
        bytes: u64,
        wanted: &dyn Fn() -> Result<(), Failure>,
        aborted_elsewhere: bool,
    ) -> Result<(Permit, bool), Failure> {
        let full = || Failure::Status(ScsiStatus::TaskSetFull);
        let mut turn = match flow.enter(kind, bytes) {
            Ok(Entry::Now(permit)) => return Ok((permit, false)),
            Ok(Entry::Later(turn)) => turn,
            // The initiator sends less at once after that, which a queue that is full asks for.
            Err(_) => return Err(full()),
        };
        loop {
            let changed = self.tasks_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            wanted()?;
            let news = async {
                if aborted_elsewhere {
                    // Either way there is something to look at.
                    let _ = shard_runtime::timeout(LOOK_EVERY, changed).await;
                } else {
                    changed.await;
                }
            };
            tokio::select! {
                biased;
                permit = &mut turn => {
                    wanted()?;
                    return permit.map(|permit| (permit, true)).ok_or_else(full);
                }
                () = news => {}
            }
        }
    }
}
