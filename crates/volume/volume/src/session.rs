//! What a change of the metadata works on, and the jobs that changes are.

use std::panic::{AssertUnwindSafe, catch_unwind};

use block_device::Durability;
use file_store::StoreError;

use crate::database_error::no_space;
use crate::extents::Extent;
use crate::jobs::{Before, When, Writes};
use crate::recent::{Found, Recent};
use crate::room::Allowance;
use crate::rows::Transaction;
use crate::space::Space;
use crate::stopped::given_up;
use crate::tables::MapKey;

/// What a change works on.
pub(crate) struct Session<'a> {
    pub(crate) txn: &'a Transaction,
    pub(crate) space: &'a mut Space,
    /// Set by whoever writes, so that a group of lookups needs no commit.
    pub(crate) changed: bool,
    /// The database failed: the group is given up.
    pub(crate) failed: bool,
    /// A job ended in the middle, over what its code does not expect: nothing more is done.
    pub(crate) gave_up: bool,
    /// Whether changes are taken.
    pub(crate) writes: Writes,
    /// What others read without a way to this thread, and what this group adds to it.
    pub(crate) recent: &'a Recent,
    pub(crate) found: Found,
    /// What may still be added; see `room.rs`.
    pub(crate) allowance: Allowance,
    pub(crate) began_with: Allowance,
    /// Rows of maps that are put there together, before anybody looks at them, and whether those of this job may be.
    pub(crate) staged: Vec<(MapKey, Extent)>,
    pub(crate) stages: bool,
    /// The number of the last change before those of this group, and of the last one that is durable.
    pub(crate) before: u64,
    pub(crate) durable: u64,
    /// Somebody waits for what was changed to be durable, although no job does.
    pub(crate) hurries: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        txn: &'a Transaction,
        space: &'a mut Space,
        recent: &'a Recent,
        allowance: Allowance,
    ) -> Self {
        let (found, gave_up, writes) = (Found::default(), false, Writes::Taken);
        let (changed, failed, staged, stages) = (false, false, Vec::new(), false);
        let (before, durable, hurries) = (0, 0, false);
        Self {
            txn,
            space,
            changed,
            failed,
            gave_up,
            writes,
            recent,
            found,
            allowance,
            began_with: allowance,
            staged,
            stages,
            before,
            durable,
            hurries,
        }
    }

    /// The number of the last change so far.
    pub(crate) fn last_change(&self) -> u64 {
        self.before + u64::from(self.changed)
    }

    /// Runs a job, whose end must not be that of the thread: whoever asked hears of it after the volume has stopped. Where there
    /// was no space it is refused before it begins, unless it only looks.
    pub(crate) fn attempt<T>(
        &mut self,
        before: Before,
        f: impl FnOnce(&mut Session<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let refused = match self.writes {
            Writes::Taken => None,
            Writes::Full { .. } if matches!(before, Before::Any | Before::Maps | Before::MakeRoom) => Some(
                "there was no space for its metadata when the volume was opened, so nothing of it is changed",
            ),
            Writes::Full { replayed: true } if before == Before::Commit => Some(
                "what the metadata log has is not in the database on the disks, as there is no space for it",
            ),
            Writes::Full { .. } => None,
        };
        if let Some(why) = refused {
            return Err(no_space(why));
        }
        let run = |session: &mut Self| {
            session.stages = before == Before::Maps;
            if !session.stages {
                session.unstage()?;
            }
            f(session)
        };
        catch_unwind(AssertUnwindSafe(|| run(self))).unwrap_or_else(|_| {
            self.gave_up = true;
            Err(given_up())
        })
    }

    /// Turns a failure of the database into one that ends the whole group.
    pub(crate) fn fatal<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.failed = true;
        }
        result
    }
}

pub(crate) type Answer = Box<dyn FnOnce(bool) + Send>;

pub(crate) type Run = Box<dyn FnOnce(&mut Session<'_>) -> Answer + Send>;

/// Something to be done in a transaction.
pub(crate) struct Job {
    pub(crate) run: Run,
    pub(crate) before: Before,
    pub(crate) durability: Durability,
}

impl Job {
    /// When it is answered.
    pub(crate) fn when(&self) -> When {
        match (self.before, self.durability) {
            (Before::Look, _) => When::Look,
            (_, Durability::Volatile) => When::Made,
            (_, Durability::Durable) => When::Durable,
        }
    }
}
