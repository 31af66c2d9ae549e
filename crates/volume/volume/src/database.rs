//! The metadata database and its one thread, with group commit.
//!
//! ```text
//!  change(f) ──► queue ──► metadata thread: a group of all that is queued
//!                              f1, f2, f3 … ──► one batch of the metadata log, durable ──► answers
//!                              only volatile ones ──► answers; their rows come with the next batch
//!                              half of the log is used, or a second has passed ──► commit (two-phase)
//! ```
//! `groups.rs` has the details.
//!
//! A change checks everything before it writes anything, so an error it returns leaves no trace in the
//! transaction it shares with others. A failure of the database itself ends all of them, and the volume stops:
//! after a failed commit nobody knows what is on the disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{Device, Durability};
use file_store::{StoreError, StoreErrorKind};
use parking_lot::Mutex;
use redb::Database;
use shard_runtime::{Thread, spawn_thread};
use tokio::sync::{mpsc, oneshot};
use volume_format::Superblock;

use crate::backend::{Ahead, Connection, DeviceBackend};
use crate::database_error::database_error;
use crate::groups::{Groups, Shared};
use crate::jobs::Before;
use crate::metadata_log::MetadataLog;
use crate::meter::Meter;
use crate::recent::Recent;
use crate::replay::Replayed;
use crate::room::Room;
use crate::rows::Transaction;
use crate::session::{Job, Run, Session};
use crate::space::Space;
use crate::stopped::{Stopped, Stopping, contained, given_up, stopped};

/// Page cache of the database, in bytes: the hot part of a few million extents. Little in tests, so that the small databases of
/// theirs are read, and written in the middle of a transaction, as large ones are.
pub(crate) const CACHE_BYTES: usize = if cfg!(test) { 256 << 10 } else { 32 << 20 };
/// Changes committed together at most, so that the first of them does not wait for ever.
const GROUP_MAX: usize = 512;

/// What the opening of a database came to.
pub(crate) struct Prepared<T> {
    /// How the clusters are used.
    pub(crate) space: Space,
    /// Where changes are made durable before they are committed.
    pub(crate) log: Option<MetadataLog>,
    /// With what the log has, and not committed: there was no space for that, and nothing is changed. `None` where changes are taken.
    pub(crate) full: Option<Replayed>,
    pub(crate) value: T,
}

/// The database, as the rest of the volume sees it.
pub(crate) struct Metadata {
    jobs: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<Thread>>,
}

impl Metadata {
    /// Opens (or makes) the database on a new thread; `prepare` runs there first, and once more where it found no space: it must
    /// write nothing then, and is told so.
    pub(crate) async fn open<T: Send + 'static>(
        device: Device,
        superblock: Superblock,
        prepare: impl Fn(&Database, bool) -> Result<Prepared<T>, StoreError> + Send + 'static,
    ) -> Result<(Self, T), StoreError> {
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        let (ready, opened) = oneshot::channel();
        let shared: Arc<Shared> = Arc::default();
        let seen = Arc::clone(&shared);
        let spawned = spawn_thread("volume-metadata", move || {
            let _stopping = Stopping(&seen.stopped);
            let mut full = false;
            let (Opened { database, ahead, meter, connection }, prepared) = loop {
                let opened = match open_database(Device::clone(&device), &superblock) {
                    Ok(opened) => opened,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let error = match contained(&seen.stopped, || prepare(&opened.database, full)) {
                    Ok(prepared) => break (opened, prepared),
                    Err(error) => error,
                };
                opened.ahead.rest();
                give_up((None, opened.database), &opened.connection, &seen.stopped);
                if full || error.kind() != StoreErrorKind::NoSpace {
                    seen.stopped.tell(&error);
                    return drop(ready.send(Err(error)));
                }
                full = true;
            };
            let Prepared { space, log, full, value } = prepared;
            if ready.send(Ok(value)).is_err() {
                return;
            }
            let mut groups = Groups::new((&database, &connection), &seen, Room::new(meter), space, log);
            if let Some(replayed) = full {
                groups.only_look(replayed);
            }
            serve(&mut groups, &ahead, &mut queue, &seen);
            let open = groups.into_open();
            if seen.stopped.flag.load(Ordering::Acquire) {
                ahead.rest();
                return give_up((open, database), &connection, &seen.stopped);
            }
            let closed = contained(&seen.stopped, || {
                drop((open, database));
                Ok(())
            });
            let _ = closed.inspect_err(|error| seen.stopped.tell(error));
        });
        let thread = spawned.map_err(|error| {
            StoreError::new(StoreErrorKind::Io, "the metadata thread cannot be started").because(error)
        })?;
        let value = opened.await.map_err(|_| given_up())??;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        Ok((Self { jobs, shared, thread }, value))
    }

    /// Runs `f`, which changes nothing, with the next group.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::Look, Durability::Volatile).await
    }

    /// Runs `f` with the next group of changes; ends when what they change is durable.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::Any, Durability::Durable).await
    }

    /// As [`Metadata::change`]; if volatile, it ends when the change is made.
    pub(crate) async fn change_as<T: Send + 'static>(
        &self,
        durability: Durability,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::Any, durability).await
    }

    /// The number of the last change that was made.
    pub(crate) fn last_change(&self) -> u64 {
        self.shared.made.load(Ordering::Acquire)
    }

    /// Makes all changes durable up to this number.
    ///
    /// # Errors
    /// When the volume has stopped.
    pub(crate) async fn settle(&self, number: u64) -> Result<(), StoreError> {
        // What is durable says so before who waited for it is answered.
        if number <= self.shared.durable.load(Ordering::Acquire) {
            return if self.is_stopped() { Err(stopped()) } else { Ok(()) };
        }
        self.change(|_| Ok(())).await
    }

    /// As [`Metadata::change`], for what maps holes, and looks at no rows of maps: those of a group are put there together.
    pub(crate) async fn map<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::Maps, Durability::Durable).await
    }

    /// As [`Metadata::change`], after everything before it was committed: for what looks at the database as it is on the device.
    pub(crate) async fn change_committed<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::Commit, Durability::Durable).await
    }

    /// As [`Metadata::change`], with all the room in the database that there is: for what may add much at once.
    pub(crate) async fn change_much<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(f, Before::MakeRoom, Durability::Durable).await
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError> + Send + 'static,
        before: Before,
        durability: Durability,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let run: Run = Box::new(move |session| {
            let result = session.attempt(before, f);
            Box::new(move |durable| {
                let _ = sender.send(if durable { result } else { Err(stopped()) });
            })
        });
        let job = Job { run, before, durability };
        {
            let jobs = self.jobs.lock();
            let Some(jobs) = jobs.as_ref() else { return Err(stopped()) };
            jobs.send(job).map_err(|_| stopped())?;
        }
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Queues `f` without waiting for it; what it returns is reported in the log only, since nobody asks. A volatile change.
    pub(crate) fn submit(&self, f: impl FnOnce(&mut Session<'_>) -> Result<(), StoreError> + Send + 'static) {
        let run: Run = Box::new(move |session| {
            let result = session.attempt(Before::Any, f);
            Box::new(move |_| {
                if let Err(error) = result {
                    tracing::warn!("a change of a volume that nobody waits for has failed: {error}");
                }
            })
        });
        // Closed or stopped: what is to be done is found again at the next opening.
        let job = Job { run, before: Before::Any, durability: Durability::Volatile };
        let _ = self.jobs.lock().as_ref().map(|jobs| jobs.send(job));
    }

    /// Rows that need no way to the metadata thread; `None` when the volume has stopped or is closed.
    pub(crate) fn recent(&self) -> Option<&Recent> {
        (!self.is_stopped() && self.jobs.lock().is_some()).then_some(&self.shared.recent)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stopped.flag.load(Ordering::Acquire)
    }

    /// What stopped it.
    pub(crate) fn why_stopped(&self) -> Option<String> {
        let why = || {
            self.shared.stopped.why.lock().clone().unwrap_or_else(|| "its metadata thread has ended".into())
        };
        self.is_stopped().then(why)
    }

    /// Lets the thread end after what is queued, with everything committed, and waits for it.
    ///
    /// # Errors
    /// When it has stopped. What was promised is in the metadata log then.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        drop(self.jobs.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // The thread needs the shards for nothing but pool commits; poll instead of blocking this one.
            while !thread.is_finished() {
                shard_runtime::sleep(std::time::Duration::from_millis(1)).await;
            }
            thread.join();
        }
        if self.shared.stopped.why.lock().is_some() { Err(stopped()) } else { Ok(()) }
    }
}

/// An open database.
pub(crate) struct Opened {
    pub(crate) database: Database,
    /// Until it is told to rest, the database is read in large pieces.
    pub(crate) ahead: Ahead,
    meter: Arc<Meter>,
    connection: Connection,
}

/// Drops a database that is damaged, or failed. It would take back what its transaction has changed and commit once more, by pages
/// of which nobody knows what they say: nothing of that may reach the device, and it does none of it while a panic is under way.
///
/// Where its own code has ended in the middle, the transaction is left as it is, and the memory of the cache is lost: it would panic
/// again when it met its own locks, and that while a panic is under way ends the process.
fn give_up(
    (mut open, database): (Option<Transaction>, Database),
    connection: &Connection,
    stopped: &Stopped,
) {
    connection.cut();
    if stopped.has_given_up() {
        tracing::warn!("a metadata database that is damaged could not be closed; nothing of it was written");
        std::mem::forget(open.take());
    }
    let _ = catch_unwind(AssertUnwindSafe(move || {
        let _dropped = (open, database);
        resume_unwind(Box::new(()))
    }));
}

/// Opens the database, or makes it.
pub(crate) fn open_database(device: Device, superblock: &Superblock) -> Result<Opened, StoreError> {
    let backend = DeviceBackend::open(device, superblock).map_err(|error| {
        StoreError::new(StoreErrorKind::Io, "the metadata area cannot be read").because(error)
    })?;
    let (ahead, meter, connection) = (backend.read_ahead(), backend.meter(), backend.connection());
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create_with_backend(backend).map_err(database_error)?;
    Ok(Opened { database, ahead, meter, connection })
}

fn serve(groups: &mut Groups<'_>, ahead: &Ahead, queue: &mut mpsc::UnboundedReceiver<Job>, shared: &Shared) {
    let served = loop {
        let Some(first) = shard_runtime::block_on(queue.recv()) else { break groups.close() };
        let more = std::iter::from_fn(|| queue.try_recv().ok()).take(GROUP_MAX - 1);
        ahead.rest();
        let mut group = Vec::new();
        let ran = std::iter::once(first).chain(more).try_for_each(|job| {
            if matches!(job.before, Before::MakeRoom | Before::Commit) {
                groups.run(std::mem::take(&mut group))?;
                // Before the job goes, and whoever waits for it hears of that.
                groups.prepare(job.before).inspect_err(|error| shared.stopped.tell(error))?;
            }
            group.push(job);
            Ok(())
        });
        if let Err(error) = ran.and_then(|()| groups.run(group)) {
            break Err(error);
        }
    };
    if let Err(error) = served {
        shared.stopped.tell(&error);
        tracing::error!("a volume stops: {error}");
    }
}
