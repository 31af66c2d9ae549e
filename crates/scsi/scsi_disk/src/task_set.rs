//! The task set: which commands run, in which order they start, and how they are aborted.
//!
//! A command that changes something goes on when the transport drops it (see `TargetDevice::execute`), and stays in
//! the set until it has ended: as an *orphan*. Newer commands on the medium wait for it, and so does everything that
//! aborts commands. So a write in flight can surprise neither a retry nor the one who has fenced its sender.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use scsi_core::{ScsiStatus, TaskAttribute};
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::reply::{Failure, gone};
use crate::sanitize::Sanitize;
use crate::target::Caller;
use crate::unit::{Inner, LogicalUnit, MAX_TASKS};

/// A command in the task set.
pub(crate) struct Task {
    nexus: u64,
    ordered: bool,
    started: bool,
    aborted: bool,
    /// The transport has dropped it, but it goes on: what it has begun cannot be taken back.
    orphan: bool,
    /// What of it is in the task sets of other units.
    guests: Vec<(Weak<LogicalUnit>, u64)>,
}

/// Takes a command out of the task set when it ends or is dropped.
pub(crate) struct TaskGuard<'a>(&'a LogicalUnit, pub(crate) u64);

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        let Some(task) = inner.tasks.remove(&self.1) else { return };
        inner.ordered -= usize::from(task.ordered);
        inner.orphans -= usize::from(task.orphan);
        let waiting = task.aborted || inner.ordered > 0 || task.ordered || inner.sanitize != Sanitize::Idle;
        drop(inner);
        if waiting {
            self.0.tasks_changed.notify_waiters();
        }
    }
}

/// Makes a command an orphan if this is dropped before the command has ended.
pub(crate) struct Attended {
    pub(crate) unit: Arc<LogicalUnit>,
    /// The command's number, once it is in the set.
    pub(crate) task: Rc<Cell<Option<u64>>>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            self.unit.orphan(task);
        }
    }
}

impl Inner {
    fn add_task(&mut self, nexus: u64, ordered: bool, started: bool) -> u64 {
        let id = self.next_task;
        self.next_task += 1;
        self.ordered += usize::from(ordered);
        self.tasks
            .insert(id, Task { nexus, ordered, started, aborted: false, orphan: false, guests: Vec::new() });
        id
    }
}

impl LogicalUnit {
    /// Marks commands as aborted and waits until they have ended; so it does for those of nexuses that are gone.
    pub(crate) async fn abort(&self, concerns: impl Fn(u64) -> bool, except: Option<u64>) -> Vec<u64> {
        let mut nexuses = Vec::new();
        let marked: Vec<u64> = {
            let Inner { tasks, nexuses: known, .. } = &mut *self.inner.lock();
            let concerned = |t: &Task| concerns(t.nexus) || (t.orphan && !known.contains_key(&t.nexus));
            let tasks = tasks.iter_mut().filter(|(id, t)| concerned(t) && Some(**id) != except);
            tasks
                .map(|(id, task)| {
                    task.aborted = true;
                    nexuses.push(task.nexus);
                    *id
                })
                .collect()
        };
        self.tasks_changed.notify_waiters();
        self.ended(&marked).await;
        nexuses.dedup();
        nexuses
    }

    /// Whether the command was aborted; long commands look between steps.
    pub(crate) fn aborted(&self, task: u64) -> bool {
        self.inner.lock().tasks.get(&task).is_none_or(|task| task.aborted)
    }

    /// Puts a command into the task set, unless there is news for its nexus first.
    pub(crate) fn enter(
        &self,
        caller: &Caller<'_>,
        parsed: &Result<Cdb, Sense>,
        attribute: TaskAttribute,
    ) -> Result<TaskGuard<'_>, Failure> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(gone());
        }
        let hears =
            !matches!(parsed, Ok(cdb) if matches!(cdb.op, Op::Inquiry | Op::ReportLuns | Op::RequestSense));
        if attribute == TaskAttribute::Aca {
            return Err(Sense::cdb_field(0).into());
        }
        if inner.tasks.len() >= MAX_TASKS {
            return Err(Failure::Status(ScsiStatus::TaskSetFull));
        }
        if hears
            && let Some(entry) = inner.nexuses.get_mut(&caller.nexus.id)
            && !entry.attentions.is_empty()
        {
            return Err(Sense::new(SenseKey::UnitAttention, entry.attentions.remove(0)).into());
        }
        let ordered = attribute == TaskAttribute::Ordered;
        let started = match attribute {
            TaskAttribute::HeadOfQueue => true,
            TaskAttribute::Ordered => inner.tasks.is_empty(),
            _ => inner.ordered == 0,
        };
        let id = inner.add_task(caller.nexus.id, ordered, started);
        Ok(TaskGuard(self, id))
    }

    /// A command `of` another unit that writes here: it can be aborted here, and is waited for, also when the transport has dropped
    /// it.
    pub(crate) fn join(
        self: &Arc<Self>,
        nexus: u64,
        of: (&LogicalUnit, u64),
    ) -> Result<TaskGuard<'_>, Failure> {
        let guest = {
            let mut inner = self.inner.lock();
            if inner.closed {
                return Err(Sense::new(SenseKey::CopyAborted, asc::UNREACHABLE_COPY_TARGET).into());
            }
            if inner.tasks.len() >= MAX_TASKS {
                return Err(Failure::Status(ScsiStatus::TaskSetFull));
            }
            TaskGuard(self, inner.add_task(nexus, false, true))
        };
        // Known there before it begins to write here: whoever drops it makes both orphans.
        match of.0.inner.lock().tasks.get_mut(&of.1) {
            Some(task) if !task.aborted => task.guests.push((Arc::downgrade(self), guest.1)),
            _ => return Err(Failure::Status(ScsiStatus::TaskAborted)),
        }
        Ok(guest)
    }

    /// The transport has dropped a command: it ends soon, and nothing on the medium overtakes it.
    pub(crate) fn orphan(&self, id: u64) {
        let guests = {
            let Inner { tasks, orphans, .. } = &mut *self.inner.lock();
            let Some(task) = tasks.get_mut(&id) else { return };
            task.aborted = true;
            *orphans += usize::from(task.started && !task.orphan);
            task.orphan = task.started;
            std::mem::take(&mut task.guests)
        };
        self.tasks_changed.notify_waiters();
        // Without the lock of this unit, as theirs is taken.
        for (unit, guest) in guests {
            if let Some(unit) = unit.upgrade() {
                unit.orphan(guest);
            }
        }
    }

    /// Waits for the commands this one is ordered after and, if it concerns the `medium`, for older ones that were
    /// dropped. False: aborted meanwhile.
    pub(crate) async fn may_start(&self, id: u64, medium: bool) -> bool {
        loop {
            let changed = self.tasks_changed.notified();
            tokio::pin!(changed);
            {
                let mut inner = self.inner.lock();
                let Some(task) = inner.tasks.get(&id) else { return false };
                if task.aborted {
                    return false;
                }
                let ordered = task.ordered;
                let older = || inner.tasks.range(..id).map(|(_, older)| older);
                let free = task.started || !older().any(|older| ordered || older.ordered);
                let orphans = medium && inner.orphans > 0 && older().any(|older| older.orphan);
                if free && !orphans {
                    if let Some(task) = inner.tasks.get_mut(&id) {
                        task.started = true;
                    }
                    return true;
                }
                changed.as_mut().enable();
            }
            changed.await;
        }
    }

    /// A command begins or ends to wait for the unit's storage, or for its turn there: meanwhile it counts as one that has not started,
    /// so that nobody waits for its end. False: aborted meanwhile.
    pub(crate) fn rests(&self, id: u64, rests: bool) -> bool {
        match self.inner.lock().tasks.get_mut(&id) {
            Some(task) if !task.aborted => {
                task.started = !rests;
                true
            }
            _ => false,
        }
    }

    /// Waits until the commands that run now, other than `except`, have ended.
    pub(crate) async fn quiet(&self, except: u64) {
        let running: Vec<u64> = {
            let inner = self.inner.lock();
            inner.tasks.iter().filter(|(id, t)| t.started && **id != except).map(|(id, _)| *id).collect()
        };
        self.ended(&running).await;
    }

    async fn ended(&self, tasks: &[u64]) {
        loop {
            let changed = self.tasks_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !tasks.iter().any(|id| self.inner.lock().tasks.contains_key(id)) {
                return;
            }
            changed.await;
        }
    }
}
