//! Groups of changes, on the metadata thread: run together, made durable together, answered together.
//!
//! ```text
//!   group ─► one transaction, which stays open over many groups ─► the rows that changed: one batch of the log, durable ─► answers
//!            half of the log is used · the area is nearly full · a second has passed · closing ─► the transaction is committed, durably
//! ```
//! Jobs see all that was changed before them, as they read through the same transaction. A group that is too large for a
//! batch is committed at once, and so is each group of a volume that has no log.

use std::sync::atomic::{AtomicU64, Ordering};

use file_store::{StoreError, StoreErrorKind};
use redb::Database;
use tokio::sync::Notify;

use crate::database::{Answer, Before, Job, Session, Stopped, database_error, stopped};
use crate::load::Space;
use crate::metadata_log::{Appended, MetadataLog};
use crate::recent::Recent;
use crate::replay;
use crate::room::{Allowance, Room};
use crate::rows::Transaction;

/// What others see of the metadata thread.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) stopped: Stopped,
    pub(crate) recent: Recent,
    /// Groups that have changed something.
    pub(crate) groups: AtomicU64,
    /// Transactions that were committed.
    pub(crate) commits: AtomicU64,
    /// Something is in the log and not in the database: the first such change since the last commit.
    pub(crate) waiting: Notify,
}

/// What the metadata thread works with.
pub(crate) struct Groups<'a> {
    database: &'a Database,
    shared: &'a Shared,
    room: Room,
    space: Space,
    log: Option<MetadataLog>,
    open: Option<Transaction>,
    /// The most bytes of pages that changes since the last commit have taken; zero where there is none.
    pending: u64,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(
        database: &'a Database,
        shared: &'a Shared,
        room: Room,
        space: Space,
        log: Option<MetadataLog>,
    ) -> Self {
        Self { database, shared, room, space, log, open: None, pending: 0 }
    }

    fn begin(&self) -> Result<Transaction, StoreError> {
        let mut txn = self.database.begin_write().map_err(database_error)?;
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        Ok(Transaction::new(txn, self.log.as_ref().map_or(0, MetadataLog::batch_max)))
    }

    /// The open transaction, and what may be added in it.
    fn ready(&mut self) -> Result<(Transaction, Allowance), StoreError> {
        if self.room.is_short_of(self.pending) {
            self.commit()?;
        }
        let txn = match self.open.take() {
            Some(txn) => txn,
            None => self.begin()?,
        };
        let allowance = self.room.allowance(txn.raw(), self.pending)?;
        Ok((txn, allowance))
    }

    /// Runs jobs, makes what they change durable, and answers.
    ///
    /// # Errors
    /// When that fails: the volume has stopped then.
    pub(crate) fn run(&mut self, group: Vec<Job>) -> Result<(), StoreError> {
        if group.is_empty() {
            return Ok(());
        }
        let shared = self.shared;
        let (txn, allowance) = self.ready().inspect_err(|error| shared.stopped.tell(error))?;
        let mut session = Session::new(&txn, &mut self.space, &shared.recent, allowance);
        let answers: Vec<Answer> = group.into_iter().map(|job| (job.run)(&mut session)).collect();
        let Session { changed, failed, found, .. } = session;
        let ended = if failed || txn.is_broken() {
            drop(txn);
            Err(stopped())
        } else {
            self.make_durable(txn, changed)
        };
        let durable = ended.as_ref().inspect_err(|error| shared.stopped.tell(error)).is_ok();
        if durable {
            shared.recent.add(found);
        }
        answers.into_iter().for_each(|answer| answer(durable));
        ended?;
        if self.log.as_ref().is_some_and(MetadataLog::is_due) {
            self.commit().inspect_err(|error| shared.stopped.tell(error))?;
        }
        Ok(())
    }

    fn make_durable(&mut self, mut txn: Transaction, changed: bool) -> Result<(), StoreError> {
        let rows = txn.changed_rows();
        if rows == 0 {
            self.open = Some(txn);
            return Ok(());
        }
        debug_assert!(changed, "a change of {rows} rows does not say that it is one");
        self.shared.groups.fetch_add(1, Ordering::Relaxed);
        let first = self.pending == 0;
        self.pending = self.pending.saturating_add(self.room.taken(txn.batch()));
        let appended = match &mut self.log {
            Some(log) => log.append(txn.batch()),
            None => Ok(Appended::CommitInstead),
        };
        txn.batch().clear();
        self.open = Some(txn);
        match appended {
            Ok(Appended::Durable) => {
                if first {
                    self.shared.waiting.notify_one();
                }
                Ok(())
            }
            Ok(Appended::CommitInstead) => self.commit(),
            Err(error) => {
                Err(StoreError::new(StoreErrorKind::Stopped, "the metadata log cannot be written")
                    .because(error))
            }
        }
    }

    /// Does what a job needs before it.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn prepare(&mut self, before: Before) -> Result<(), StoreError> {
        match before {
            Before::Any => Ok(()),
            Before::MakeRoom if !self.room.is_narrowed_by(self.pending) => Ok(()),
            Before::MakeRoom | Before::Commit => self.commit(),
        }
    }

    /// Commits what has been changed since the last commit, durably. The log begins anew.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.pending == 0 {
            return Ok(());
        }
        let Some(txn) = self.open.take() else { return Ok(()) };
        if let Some(log) = &self.log {
            replay::write_mark(txn.raw(), log.mark())?;
        }
        txn.into_raw().commit().map_err(database_error)?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.pending = 0;
        self.room.committed();
        self.log.iter_mut().for_each(MetadataLog::committed);
        Ok(())
    }
    /// As [`Groups::commit`], for the last time: the database says that nothing else follows in the log, and so what of that cannot be
    /// read at the next opening is no damage.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        let Some(mark) = self.log.as_ref().and_then(MetadataLog::closing_mark) else { return self.commit() };
        let txn = match self.open.take() {
            Some(txn) => txn,
            None => self.begin()?,
        };
        let txn = self.open.insert(txn);
        replay::write_mark(txn.raw(), mark)?;
        let Some(txn) = self.open.take() else { return Ok(()) };
        txn.into_raw().commit().map_err(database_error)?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.pending = 0;
        self.room.committed();
        Ok(())
    }
}
