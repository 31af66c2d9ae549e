//! Commands that move data wait for their turn at the volume (`qos_gate`): each initiator's use of the unit is a flow.
//!
//! One step of at most some MiB waits for itself: a READ or WRITE before it begins, what goes on in steps before each of them.
//! Whoever had to wait is admitted anew. A command that waits is in the task set as one that has not started: whoever aborts it
//! wakes it, it ends at once, and has changed nothing since. Flushes do not wait: what they wait for has had its turn.
//!
//! Where the storage is away or fails, nothing waits here and nothing counts: what waited leaves, is tried again as
//! `storage` says, and takes its place behind the others once the storage is back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use observe::IoKind;
use qos_gate::{Disk, Entry, Flow, Kind, Permit, Turn};
use scsi_core::{Nexus, ScsiStatus};
use scsi_defs::{Cdb, Op};

use crate::flow::Flows;
use crate::limits::MAX_TRANSFER_BYTES;
use crate::meter;
use crate::reply::Failure;
use crate::unit::LogicalUnit;
use crate::view::Caller;

/// How often a command that waits at another unit than its own looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a command asks of the units that it concerns, while it waits at one of them that is not its own.
pub(crate) struct Consent<'a> {
    /// Whether it is still wanted.
    pub(crate) wanted: &'a dyn Fn() -> Result<(), Failure>,
    /// Whether it may still go on, after it had to wait.
    pub(crate) allowed: &'a dyn Fn() -> Result<(), Failure>,
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

    /// Lets the commands of a nexus wait for their turn in this flow from now on, whichever disk of a queue the unit is; `None`: they wait
    /// as those of any nexus do. Those that wait already go on where they are.
    pub fn queue_nexus_as(&self, nexus: &Nexus, flow: Option<Arc<Flow>>) {
        let before = {
            let mut flows = self.flows.lock();
            let same = match (flows.of.get(&nexus.id), &flow) {
                (Some(have), Some(want)) => Arc::ptr_eq(have, want),
                (None, None) => true,
                _ => false,
            };
            if same {
                return;
            }
            match flow {
                // Of a nexus that is gone nobody would take the flow out again.
                Some(flow) if self.inner.lock().nexuses.contains_key(&nexus.id) => {
                    flows.of.insert(nexus.id, flow)
                }
                _ => flows.of.remove(&nexus.id),
            }
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

    /// Waits until a command that is carried out in one step may go to the volume, and holds its place there.
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
        self.own_turn(caller, task, cdb, kind, bytes).await
    }

    /// Waits for the turn of one step of a command of this unit that goes on in steps.
    pub(crate) async fn step(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        kind: Kind,
        bytes: u64,
    ) -> Result<Option<Permit>, Failure> {
        self.still_wanted(task)?;
        self.own_turn(caller, task, cdb, kind, bytes).await
    }

    /// Whoever had to wait is admitted anew: reservations and the unit's state may have changed.
    async fn own_turn(
        &self,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        kind: Kind,
        bytes: u64,
    ) -> Result<Option<Permit>, Failure> {
        let turn = match self.enter_queue(caller.nexus, kind, bytes)? {
            None => return Ok(None),
            Some(Entry::Now(permit)) => return Ok(Some(permit)),
            Some(Entry::Later(turn)) => turn,
        };
        let aborted = || Failure::Status(ScsiStatus::TaskAborted);
        if !self.tasks.rests(task, true) {
            return Err(aborted());
        }
        let permit = self.come(turn, &|| self.still_wanted(task), false).await;
        if !self.tasks.rests(task, false) {
            return Err(aborted());
        }
        let permit = permit?;
        self.admit(caller, cdb)?;
        Ok(Some(permit))
    }

    /// Waits for the turn of one step here of a command of any unit.
    pub(crate) async fn step_of_other(
        &self,
        nexus: &Nexus,
        kind: Kind,
        bytes: u64,
        consent: &Consent<'_>,
    ) -> Result<Option<Permit>, Failure> {
        (consent.wanted)()?;
        let turn = match self.enter_queue(nexus, kind, bytes)? {
            None => return Ok(None),
            Some(Entry::Now(permit)) => return Ok(Some(permit)),
            Some(Entry::Later(turn)) => turn,
        };
        let permit = self.come(turn, consent.wanted, true).await?;
        (consent.allowed)()?;
        Ok(Some(permit))
    }

    /// `None`: nothing waits for its turn here, or there is nothing to have a turn at. What is tried again until its storage is
    /// back must neither wait behind a limit meanwhile nor count as work.
    fn enter_queue(&self, nexus: &Nexus, kind: Kind, bytes: u64) -> Result<Option<Entry>, Failure> {
        if self.storage_fails() {
            return Ok(None);
        }
        let Some(flow) = self.flow_of(nexus) else { return Ok(None) };
        // The initiator sends less at once after that, which a queue that is full asks for.
        flow.enter(kind, bytes).map(Some).map_err(|_| Failure::Status(ScsiStatus::TaskSetFull))
    }

    async fn come(
        &self,
        mut turn: Turn,
        wanted: &dyn Fn() -> Result<(), Failure>,
        aborted_elsewhere: bool,
    ) -> Result<Permit, Failure> {
        loop {
            let changed = self.tasks.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            wanted()?;
            if self.storage_fails() {
                return Err(Failure::Away);
            }
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
                    return permit.ok_or(Failure::Status(ScsiStatus::TaskSetFull));
                }
                () = news => {}
            }
        }
    }
}
