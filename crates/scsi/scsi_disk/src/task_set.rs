//! The task set: which commands run, in which order they start, and how they are aborted.
//!
//! A command that changes something goes on when the transport drops it (see `TargetDevice::execute`), and stays in
//! the set until it has ended: as an *orphan*. Newer commands on the medium wait for it, and so does everything that
//! aborts commands. So a write in flight can surprise neither a retry nor the one who has fenced its sender.
//!
//! It has a lock of its own, which is the innermost: nothing else is locked while it is held.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use scsi_core::{ScsiStatus, Shares, TaskAttribute};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::reply::Failure;

/// Most commands a unit holds, of all nexuses: bounds memory; more get TASK SET FULL.
pub const MAX_TASKS: usize = 4096;
/// What of them one initiator may hold, over all its sessions: the first are more than it takes to go on at full speed.
pub(crate) const SHARES: Shares = Shares::half_kept(MAX_TASKS, 32);
/// With fewer than these in the set, nobody holds more than its share.
const CROWDED: usize = MAX_TASKS / 4;

/// A command in the task set.
struct Task {
    nexus: u64,
    ordered: bool,
    started: bool,
    aborted: bool,
    /// The transport has dropped it, but it goes on: what it has begun cannot be taken back.
    orphan: bool,
    /// What of it is in the task sets of other units.
    guests: Vec<(Weak<TaskSet>, u64)>,
}

#[derive(Default)]
struct Tasks {
    of: BTreeMap<u64, Task>,
    next: u64,
    /// Tasks that are ordered.
    ordered: usize,
    /// Tasks that are orphans.
    orphans: usize,
    /// How many commands there are of a nexus; none that has none.
    held: BTreeMap<u64, usize>,
    /// Who waits for the end of some tasks, whichever they are.
    watchers: usize,
}

/// The commands that a unit holds.
#[derive(Default)]
pub(crate) struct TaskSet {
    tasks: Mutex<Tasks>,
    changed: Notify,
}

/// Takes a command out of the task set when it ends or is dropped.
pub(crate) struct TaskGuard<'a> {
    tasks: &'a TaskSet,
    /// The command's number.
    pub(crate) id: u64,
    /// Nothing was before it in the set that it has to wait for.
    pub(crate) ready: bool,
}

impl TaskGuard<'_> {
    /// The command has ended; whether it was aborted before.
    pub(crate) fn end(self) -> bool {
        let aborted = self.tasks.remove(self.id);
        std::mem::forget(self);
        aborted
    }
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.tasks.remove(self.id);
    }
}

/// Makes a command an orphan if this is dropped before the command has ended.
pub(crate) struct Attended {
    pub(crate) tasks: Arc<TaskSet>,
    /// The command's number, once it is in the set.
    pub(crate) task: Rc<Cell<Option<u64>>>,
}

impl Drop for Attended {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            self.tasks.orphan(task);
        }
    }
}

/// Somebody waits for the end of tasks as long as this is there.
struct Watcher<'a>(&'a TaskSet);

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.0.tasks.lock().watchers -= 1;
    }
}

impl Tasks {
    fn is_full(&self, same: impl Fn(u64) -> bool) -> bool {
        if self.of.len() < CROWDED {
            return false;
        }
        let own = self.held.iter().filter(|(nexus, _)| same(**nexus)).map(|(_, held)| held).sum();
        !SHARES.may_take(self.of.len(), own)
    }

    fn add(&mut self, nexus: u64, ordered: bool, started: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        self.ordered += usize::from(ordered);
        *self.held.entry(nexus).or_insert(0) += 1;
        self.of
            .insert(id, Task { nexus, ordered, started, aborted: false, orphan: false, guests: Vec::new() });
        id
    }
}

impl TaskSet {
    /// Wakes all that wait for something of a task or of the unit to change, so that they look again.
    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// The next time that something changes; to be enabled before the look at what may change.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether no further command finds room of those nexuses that `same` says yes of: they are one initiator's.
    pub(crate) fn is_full(&self, same: impl Fn(u64) -> bool) -> bool {
        self.tasks.lock().is_full(same)
    }

    /// Puts a command into the set; `same` says whether another nexus is of the same initiator.
    ///
    /// # Errors
    /// TASK SET FULL.
    pub(crate) fn enter(
        &self,
        nexus: u64,
        attribute: TaskAttribute,
        same: impl Fn(u64) -> bool,
    ) -> Result<TaskGuard<'_>, Failure> {
        let mut tasks = self.tasks.lock();
        if tasks.is_full(same) {
            return Err(Failure::Status(ScsiStatus::TaskSetFull));
        }
        let ordered = attribute == TaskAttribute::Ordered;
        let started = match attribute {
            TaskAttribute::HeadOfQueue => true,
            TaskAttribute::Ordered => tasks.of.is_empty(),
            _ => tasks.ordered == 0,
        };
        let ready = started && tasks.orphans == 0;
        let id = tasks.add(nexus, ordered, started);
        Ok(TaskGuard { tasks: self, id, ready })
    }

    /// Takes a command out; whether it was aborted.
    fn remove(&self, id: u64) -> bool {
        let mut tasks = self.tasks.lock();
        let Some(task) = tasks.of.remove(&id) else { return true };
        if let Entry::Occupied(mut held) = tasks.held.entry(task.nexus) {
            match *held.get() {
                0 | 1 => drop(held.remove()),
                more => *held.get_mut() = more - 1,
            }
        }
        tasks.ordered -= usize::from(task.ordered);
        tasks.orphans -= usize::from(task.orphan);
        let waiting = task.aborted || tasks.ordered > 0 || task.ordered || tasks.watchers > 0;
        drop(tasks);
        if waiting {
            self.changed.notify_waiters();
        }
        task.aborted
    }

    /// Makes a command `of` another set, that has a task here, known there before it begins to write here: whoever drops it makes both
    /// orphans.
    ///
    /// # Errors
    /// It was aborted.
    pub(crate) fn is_guest(self: &Arc<Self>, guest: u64, of: (&Self, u64)) -> Result<(), Failure> {
        match of.0.tasks.lock().of.get_mut(&of.1) {
            Some(task) if !task.aborted => task.guests.push((Arc::downgrade(self), guest)),
            _ => return Err(Failure::Status(ScsiStatus::TaskAborted)),
        }
        Ok(())
    }

    /// Marks as aborted the commands, other than `except`, that it concerns: it is asked for the nexus of each, and whether it is an
    /// orphan. Their numbers, and the nexuses that they are of.
    pub(crate) fn mark_aborted(
        &self,
        concerns: impl Fn(u64, bool) -> bool,
        except: Option<u64>,
    ) -> (Vec<u64>, Vec<u64>) {
        let mut tasks = self.tasks.lock();
        let concerned =
            tasks.of.iter_mut().filter(|(id, t)| concerns(t.nexus, t.orphan) && Some(**id) != except);
        concerned
            .map(|(id, task)| {
                task.aborted = true;
                (*id, task.nexus)
            })
            .unzip()
    }

    /// Whether the command was aborted; long commands look between steps.
    pub(crate) fn aborted(&self, task: u64) -> bool {
        self.tasks.lock().of.get(&task).is_none_or(|task| task.aborted)
    }

    /// The transport has dropped a command: it ends soon, and nothing on the medium overtakes it.
    fn orphan(&self, id: u64) {
        let guests = {
            let Tasks { of, orphans, .. } = &mut *self.tasks.lock();
            let Some(task) = of.get_mut(&id) else { return };
            task.aborted = true;
            *orphans += usize::from(task.started && !task.orphan);
            task.orphan = task.started;
            std::mem::take(&mut task.guests)
        };
        self.changed.notify_waiters();
        // Without the lock of this set, as theirs is taken.
        for (tasks, guest) in guests {
            if let Some(tasks) = tasks.upgrade() {
                tasks.orphan(guest);
            }
        }
    }

    /// Waits for the commands this one is ordered after and, if it concerns the `medium`, for older ones that were
    /// dropped. False: aborted meanwhile.
    pub(crate) async fn may_start(&self, id: u64, medium: bool) -> bool {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            {
                let mut tasks = self.tasks.lock();
                let Some(task) = tasks.of.get(&id) else { return false };
                if task.aborted {
                    return false;
                }
                let ordered = task.ordered;
                let older = || tasks.of.range(..id).map(|(_, older)| older);
                let free = task.started || !older().any(|older| ordered || older.ordered);
                let orphans = medium && tasks.orphans > 0 && older().any(|older| older.orphan);
                if free && !orphans {
                    if let Some(task) = tasks.of.get_mut(&id) {
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
        match self.tasks.lock().of.get_mut(&id) {
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
            let tasks = self.tasks.lock();
            tasks.of.iter().filter(|(id, t)| t.started && **id != except).map(|(id, _)| *id).collect()
        };
        self.ended(&running).await;
    }

    /// Waits until the orphans that there are now have ended.
    pub(crate) async fn orphans_ended(&self) {
        let orphans: Vec<u64> = {
            let tasks = self.tasks.lock();
            tasks.of.iter().filter(|(_, task)| task.orphan).map(|(id, _)| *id).collect()
        };
        self.ended(&orphans).await;
    }

    /// Waits until these commands have ended.
    pub(crate) async fn ended(&self, these: &[u64]) {
        self.tasks.lock().watchers += 1;
        let _watcher = Watcher(self);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !these.iter().any(|id| self.tasks.lock().of.contains_key(id)) {
                return;
            }
            changed.await;
        }
    }

    /// How many commands it holds, and how many of them are ordered and orphans.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let tasks = self.tasks.lock();
        assert_eq!(tasks.held.values().sum::<usize>(), tasks.of.len());
        (tasks.of.len(), tasks.ordered, tasks.orphans)
    }
}
