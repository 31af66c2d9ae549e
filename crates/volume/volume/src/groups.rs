//! Groups of changes, on the metadata thread: run together, made durable together, answered together.
//!
//! ```text
//!   group ─► one transaction, which stays open over many groups ─► the rows that changed: one batch of the log, durable ─► answers
//!            half of the log is used · the area is nearly full · a second has passed · closing ─► the transaction is committed, durably
//! ```
//! Jobs see all that was changed before them, as they read through the same transaction. A group that is too large for a
//! batch is committed at once, and so is each group of a volume that has no log.
//!
//! **Volatile changes** are answered when they are made. Their rows wait for the batch of the next durable change, or for one of
//! their own: when they are many, and half a second after the first (`background.rs`). So the log has all changes in the order in which they were made, and a
//! durable one is answered when those before it are durable, too.
//!
//! *Numbers:* each group that changes something has the next one ([`Shared::made`]). What is durable goes up to one of them
//! ([`Shared::durable`]). Who promises something that stands on a change waits for its number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use file_store::{StoreError, StoreErrorKind};
use redb::Database;
use tokio::sync::Notify;

use crate::backend::Connection;
use crate::database_error::database_error;
use crate::jobs::{Before, When, Writes};
use crate::metadata_log::{Appended, Mark, MetadataLog};
use crate::recent::Recent;
use crate::replay::{self, Replayed};
use crate::room::{Allowance, Room};
use crate::rows::Transaction;
use crate::session::{Answer, Job, Session};
use crate::space::Space;
use crate::stopped::{Stopped, contained, given_up, stopped};

/// What others see of the metadata thread.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) stopped: Stopped,
    pub(crate) recent: Recent,
    /// Times that changes were made durable, a group or several.
    pub(crate) groups: AtomicU64,
    /// The number of the last group that has changed something; before anybody is answered.
    pub(crate) made: AtomicU64,
    /// The number of the last one that is durable, with all before it.
    pub(crate) durable: AtomicU64,
    /// Transactions that were committed.
    pub(crate) commits: AtomicU64,
    /// Something was changed and is not in the database: the first such change since the last commit.
    pub(crate) waiting: Notify,
}

/// Bytes of volatile changes after which they get a batch of their own: what waits takes little of the log, and a durable change
/// behind it writes no more than this besides its own.
const VOLATILE_MAX: usize = 256 << 10;
/// A part of the largest batch, for small logs.
const VOLATILE_PART: usize = 4;

/// What the metadata thread works with.
pub(crate) struct Groups<'a> {
    database: &'a Database,
    connection: &'a Connection,
    shared: &'a Shared,
    room: Room,
    space: Space,
    log: Option<MetadataLog>,
    writes: Writes,
    /// Left open after a failure: what the database does when it is dropped is for its connection to be cut first.
    open: Option<Transaction>,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(
        (database, connection): (&'a Database, &'a Connection),
        shared: &'a Shared,
        room: Room,
        space: Space,
        log: Option<MetadataLog>,
    ) -> Self {
        Self { database, connection, shared, room, space, log, writes: Writes::Taken, open: None }
    }

    fn begin(&self) -> Result<Transaction, StoreError> {
        let mut txn = self.database.begin_write().map_err(database_error)?;
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        Ok(Transaction::new(txn, self.log.as_ref().map_or(0, MetadataLog::batch_max)))
    }

    /// From now on only looks are taken: there was no space for the commit that begins an epoch of the log, and no batch is one of a
    /// former. They look at what the log has, too; nothing is pending, so nothing commits that.
    pub(crate) fn only_look(&mut self, Replayed { txn, any }: Replayed) {
        self.writes = Writes::Full { replayed: any };
        self.open = Some(Transaction::new(txn, 0));
    }

    /// The transaction that is open when no group runs any more.
    pub(crate) fn into_open(self) -> Option<Transaction> {
        self.open
    }

    /// The open transaction, and what may be added in it.
    fn ready(&mut self) -> Result<(Transaction, Allowance), StoreError> {
        if let Some(txn) = self.open.as_ref().filter(|_| self.room.is_short()) {
            contained(&self.shared.stopped, || self.room.count(txn.raw()))?;
        }
        if self.room.is_short() {
            self.room.look_closer();
            self.commit()?;
        }
        let txn = match self.open.take() {
            Some(txn) => txn,
            None => contained(&self.shared.stopped, || self.begin())?,
        };
        let txn = self.open.insert(txn);
        let allowance = contained(&self.shared.stopped, || self.room.allowance(txn.raw()))?;
        self.open.take().map(|txn| (txn, allowance)).ok_or_else(stopped)
    }

    /// Runs jobs, makes what they change durable, and answers: all at once, unless they need much of the room that there is.
    ///
    /// # Errors
    /// When that fails: the volume has stopped then.
    pub(crate) fn run(&mut self, group: Vec<Job>) -> Result<(), StoreError> {
        let mut jobs = group.into_iter();
        // Those that were not begun hear of a failure after the volume says that it has stopped.
        while jobs.len() > 0 {
            self.run_some(&mut jobs)?;
        }
        Ok(())
    }

    /// Runs jobs until half of what they may add is taken. What a row takes is reckoned high: what is really left, the next ones learn
    /// from another look, and so none is refused over those before it.
    fn run_some(&mut self, jobs: &mut vec::IntoIter<Job>) -> Result<(), StoreError> {
        let shared = self.shared;
        let (txn, allowance) = self.ready().inspect_err(|error| shared.stopped.tell(error))?;
        let mut session = Session::new(&txn, &mut self.space, &shared.recent, allowance);
        session.writes = self.writes;
        session.before = shared.made.load(Ordering::Relaxed);
        session.durable = shared.durable.load(Ordering::Relaxed);
        let mut answers: Vec<(When, Answer)> = Vec::new();
        while !session.gave_up
            && (!session.changed || session.allowance.has_half_of(&allowance))
            && let Some(job) = jobs.next()
        {
            let when = job.when();
            answers.push((when, (job.run)(&mut session)));
        }
        if !session.gave_up {
            session.end();
        }
        let Session { changed, failed, gave_up, found, hurries, .. } = session;
        let broken = failed || txn.is_broken();
        self.open = Some(txn);
        let ran = if gave_up {
            shared.stopped.give_up();
            Err(given_up())
        } else {
            // Its own failures come first, as they say more; also one that nobody here was told of.
            self.connection.check().and_then(|()| if broken { Err(stopped()) } else { Ok(()) })
        };
        let first = ran.is_ok() && self.count(changed);
        let somebody_waits = answers.iter().any(|(when, _)| *when == When::Durable);
        let (now, then): (Vec<_>, Vec<_>) = match ran {
            Err(_) => (Vec::new(), answers),
            Ok(()) => answers.into_iter().partition(|(when, _)| match when {
                When::Made => true,
                When::Look => !somebody_waits,
                When::Durable => false,
            }),
        };
        let mut found = Some(found);
        if ran.is_ok() && !somebody_waits {
            shared.recent.add(found.take().unwrap_or_default());
        }
        now.into_iter().for_each(|(_, answer)| answer(true));
        let ended = ran.and_then(|()| match somebody_waits || hurries || self.are_many() {
            true => self.make_durable(),
            false => Ok(()),
        });
        let durable = ended.as_ref().inspect_err(|error| shared.stopped.tell(error)).is_ok();
        if durable {
            shared.recent.add(found.unwrap_or_default());
        }
        then.into_iter().for_each(|(_, answer)| answer(durable));
        ended?;
        if self.log.as_ref().is_some_and(MetadataLog::is_due) {
            self.commit().inspect_err(|error| shared.stopped.tell(error))?;
        }
        if first && !self.room.is_committed() {
            shared.waiting.notify_one();
        }
        Ok(())
    }

    /// Takes note of what a group has changed; whether it is the first since the last commit.
    fn count(&mut self, changed: bool) -> bool {
        let Some(txn) = &mut self.open else { return false };
        let amount = txn.batch().take_amount();
        let any = amount.by_table.iter().any(|count| *count > 0);
        debug_assert!(changed || !any, "a change of rows does not say that it is one: {amount:?}");
        if !any {
            return false;
        }
        let first = self.room.is_committed();
        self.room.add(&amount);
        self.shared.made.fetch_add(1, Ordering::AcqRel);
        first
    }

    /// Whether so many volatile changes wait that they are made durable before others come.
    fn are_many(&mut self) -> bool {
        let most = self.log.as_ref().map_or(0, |log| (log.batch_max() / VOLATILE_PART).min(VOLATILE_MAX));
        // Without a log they wait for the commit.
        most > 0
            && self.open.as_mut().is_some_and(|txn| txn.batch().size() > most || txn.batch().is_overflown())
    }

    fn make_durable(&mut self) -> Result<(), StoreError> {
        let made = self.shared.made.load(Ordering::Relaxed);
        let Some(txn) = &mut self.open else { return Ok(()) };
        if txn.changed_rows() == 0 {
            return Ok(());
        }
        self.shared.groups.fetch_add(1, Ordering::Relaxed);
        let appended = match &mut self.log {
            Some(log) => log.append(txn.batch()),
            None => Ok(Appended::CommitInstead),
        };
        txn.batch().clear();
        match appended {
            Ok(Appended::Durable) => {
                self.shared.durable.store(made, Ordering::Release);
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
            Before::Look | Before::Any | Before::Maps => Ok(()),
            Before::MakeRoom if !self.room.is_narrowed() => Ok(()),
            Before::MakeRoom | Before::Commit => self.commit(),
        }
    }

    /// Commits what has been changed since the last commit, durably. The log begins anew.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn commit(&mut self) -> Result<(), StoreError> {
        if self.room.is_committed() {
            return Ok(());
        }
        self.commit_with(self.log.as_ref().map(MetadataLog::mark))
    }

    /// As [`Groups::commit`], for the last time: the database says that nothing else follows in the log, and so what of that cannot be
    /// read at the next opening is no damage.
    ///
    /// # Errors
    /// When the database fails. Having no space to say so is no failure, if that is all that there was to say.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        let Some(mark) = self.log.as_ref().and_then(MetadataLog::closing_mark) else { return self.commit() };
        let unsaid = self.room.is_committed();
        match self.commit_with(Some(mark)) {
            Err(error) if unsaid && error.kind() == StoreErrorKind::NoSpace => {
                tracing::warn!("a volume that is closed has no space to say so in its database: {error}");
                Ok(())
            }
            ended => ended,
        }
    }

    fn commit_with(&mut self, mark: Option<Mark>) -> Result<(), StoreError> {
        self.connection.check()?;
        if self.open.is_none() {
            self.open = Some(contained(&self.shared.stopped, || self.begin())?);
        }
        let Some(txn) = &self.open else { return Ok(()) };
        contained(&self.shared.stopped, || self.room.count(txn.raw()))?;
        if let Some(mark) = mark {
            contained(&self.shared.stopped, || replay::write_mark(txn.raw(), mark))?;
        }
        let Some(txn) = self.open.take() else { return Ok(()) };
        let committed = contained(&self.shared.stopped, || txn.into_raw().commit().map_err(database_error));
        committed.or_else(|error| match error.kind() {
            StoreErrorKind::NoSpace => Err(error),
            // The first failure says more than what follows from it.
            _ => self.connection.check().and(Err(error)),
        })?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        self.shared.durable.store(self.shared.made.load(Ordering::Relaxed), Ordering::Release);
        // What is known of links is known of one transaction.
        self.space.forget_links();
        self.room.committed();
        self.log.iter_mut().for_each(MetadataLog::committed);
        Ok(())
    }
}
