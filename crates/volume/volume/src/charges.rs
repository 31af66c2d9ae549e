//! What the files of an owner take: charged where they get or give up clusters, and checked before they do.
//!
//! Everything here runs on the metadata thread, which alone gives out clusters. So there are no reservations that somebody could fail
//! to give back, whoever drops a request, and no number of writers gets past a limit: each is checked with all before it charged.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use file_store::{NO_LIMIT, Owner, QuotaLevel, QuotaMode, StoreError, StoreErrorKind};
use redb::ReadableTable;
use volume_format::{CLUSTER, Inode};

use crate::core::Core;
use crate::database_error::database_error;
use crate::extents::Extent;
use crate::session::Session;
use crate::tables::{COUNTERS, INODES, NEXT_FILE, ROOT, SECURITY, StreamKey};

/// Files that are counted in one job, so that others wait little for theirs.
const FILES_PER_ROUND: usize = 64;
/// How long the task sleeps when nobody wakes it.
const PAUSE: Duration = Duration::from_secs(5);

/// Counts what was there when quotas came on, at the opening or later. Ends soon after the volume is closed, or has stopped.
pub(crate) async fn count_now_and_then(core: Weak<Core>) {
    let mut is_due = true;
    loop {
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        if is_due && strong.quota_mode.get() != QuotaMode::Off {
            is_due = false;
            match strong.metadata.look(|session| session.count_quotas(FILES_PER_ROUND)).await {
                Ok(more) => is_due = more,
                Err(error) if strong.check_open().is_ok() => tracing::warn!(
                    "what users have on a volume cannot be counted, so no quota is enforced: {error}; check the volume"
                ),
                Err(_) => return,
            }
            if is_due {
                continue;
            }
        }
        let wanted = Arc::clone(&strong.count_quotas);
        // The volume can be dropped meanwhile.
        drop(strong);
        is_due = shard_runtime::timeout(PAUSE, wanted.notified()).await.is_some();
    }
}

/// A file that gets another owner, with so many clusters.
struct Handover {
    from: Owner,
    to: Owner,
    count: u64,
}

fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

impl Session<'_> {
    /// Whom a descriptor of a file names.
    fn named_owner(&self, file: u64) -> Result<Owner, StoreError> {
        let table = self.txn.open_table(SECURITY).map_err(database_error)?;
        let row = table.get(file).map_err(database_error)?;
        Ok(row.map_or(Owner::ADMINISTRATORS, |row| Owner::of(row.value())))
    }

    /// To whom a file is charged; nobody for one without a record, and one of a snapshot.
    fn owner(&mut self, file: u64) -> Result<Option<Owner>, StoreError> {
        if let Some(known) = self.space.quotas.tally.as_ref().and_then(|tally| tally.known(file)) {
            return Ok(known);
        }
        let counts = {
            let table = self.txn.open_table(INODES).map_err(database_error)?;
            let row = table.get(file).map_err(database_error)?;
            // One that cannot be read is met by whoever opens it. It takes space, and not of a snapshot's.
            row.is_some_and(|row| Inode::decode(row.value()).map_or(true, |inode| !inode.frozen))
        };
        let owner = if counts { Some(self.named_owner(file)?) } else { None };
        if let Some(tally) = &mut self.space.quotas.tally {
            tally.know(file, owner);
        }
        Ok(owner)
    }

    /// A file gets clusters, or gives them up.
    pub(crate) fn charge(&mut self, file: u64, count: u64, more: bool) -> Result<(), StoreError> {
        let used = &mut self.space.referenced;
        *used = if more { used.saturating_add(count) } else { used.saturating_sub(count) };
        // Without quotas there is nothing else to do; and what the count has not met it will meet.
        if self.space.quotas.tally.as_ref().is_none_or(|tally| !tally.has(file)) || count == 0 {
            return Ok(());
        }
        if let Some(owner) = self.owner(file)? {
            self.space.quotas.charge(owner, count, more);
        }
        Ok(())
    }

    /// As [`Session::charge`], for what rows had.
    pub(crate) fn uncharge(&mut self, file: u64, removed: &[Extent]) -> Result<(), StoreError> {
        self.charge(file, sum(removed.iter().map(|extent| extent.count)), false)
    }

    /// Clusters that a file may still get.
    pub(crate) fn left_for(&mut self, file: u64) -> Result<u64, StoreError> {
        if self.space.quotas.tally.is_none() {
            return Ok(u64::MAX);
        }
        Ok(self.owner(file)?.map_or(u64::MAX, |owner| self.space.quotas.left(&owner)))
    }

    /// Whether a file may get so many clusters.
    ///
    /// # Errors
    /// [`StoreErrorKind::QuotaExceeded`].
    pub(crate) fn may_take(&mut self, file: u64, count: u64) -> Result<(), StoreError> {
        if self.space.quotas.tally.is_none() {
            return Ok(());
        }
        match self.owner(file)? {
            Some(owner) => self.may_have(owner, count),
            None => Ok(()),
        }
    }

    fn may_have(&mut self, owner: Owner, count: u64) -> Result<(), StoreError> {
        let quotas = &mut self.space.quotas;
        if count == 0 || count <= quotas.left(&owner) {
            return Ok(());
        }
        let (used, limit) = (quotas.used(&owner), quotas.enforced(&owner));
        quotas.tell(owner, QuotaLevel::Limit);
        let detail = format!(
            "files of {owner} have {used} of the {limit} bytes that they may have on this volume, and {} more are wanted: delete some of \
             them, or give more (`holdfast volume quota`)",
            count.saturating_mul(CLUSTER)
        );
        Err(StoreError::new(StoreErrorKind::QuotaExceeded, detail))
    }

    /// Clusters that a stream has in a range.
    fn clusters_of(&self, stream: StreamKey, first: u64, end: u64) -> Result<u64, StoreError> {
        let mut count =
            sum(self.rows(self.own_map(stream)?, first, end)?.iter().map(|row| row.part(first, end).count));
        for link in self.links(stream, first, end)? {
            let rows = self.rows(link.map, link.first, link.end)?;
            count = count.saturating_add(sum(rows.iter().map(|row| row.part(link.first, link.end).count)));
        }
        Ok(count)
    }

    /// Clusters that all streams of a file have.
    fn clusters_of_file(&self, file: u64) -> Result<u64, StoreError> {
        let mut count: u64 = 0;
        for stream in self.streams_with_space(file)? {
            count = count.saturating_add(self.clusters_of((file, stream), 0, u64::MAX)?);
        }
        Ok(count)
    }

    /// Whether `target` may get, at `to`, what `source` has in `first..end`, in place of what it has there.
    ///
    /// # Errors
    /// [`StoreErrorKind::QuotaExceeded`].
    pub(crate) fn may_clone(
        &mut self,
        source: StreamKey,
        (first, end): (u64, u64),
        target: StreamKey,
        to: u64,
    ) -> Result<(), StoreError> {
        // Counting is long, and what nothing limits needs none.
        if self.left_for(target.0)? == u64::MAX {
            return Ok(());
        }
        let more = self.clusters_of(source, first, end)?;
        let fewer = self.clusters_of(target, to, to.saturating_add(end - first))?;
        self.may_take(target.0, more.saturating_sub(fewer))
    }

    /// Whether the owners of files may have copies of all of them.
    ///
    /// # Errors
    /// [`StoreErrorKind::QuotaExceeded`].
    pub(crate) fn may_copy(&mut self, files: impl Iterator<Item = u64>) -> Result<(), StoreError> {
        if self.space.quotas.tally.is_none() {
            return Ok(());
        }
        let mut wanted = BTreeMap::new();
        for file in files {
            // What a frozen file names, its copy is charged to.
            let owner = self.named_owner(file)?;
            if self.space.quotas.enforced(&owner) != NO_LIMIT {
                let more: &mut u64 = wanted.entry(owner).or_default();
                *more = more.saturating_add(self.clusters_of_file(file)?);
            }
        }
        wanted.into_iter().try_for_each(|(owner, count)| self.may_have(owner, count))
    }

    /// The record of a file goes; its clusters are charged until they do, too.
    pub(crate) fn leave_quota(&mut self, file: u64) -> Result<(), StoreError> {
        if self.space.quotas.tally.is_some() {
            let owner = self.owner(file)?;
            if let Some(tally) = &mut self.space.quotas.tally {
                tally.leave(file, owner);
            }
        }
        Ok(())
    }

    /// Replaces a descriptor; a file that has another owner by it goes to that one's charge.
    ///
    /// # Errors
    /// [`StoreErrorKind::QuotaExceeded`] where that one may not have so much.
    pub(crate) fn change_security(
        &mut self,
        file: u64,
        descriptor: &[u8],
        now: u64,
    ) -> Result<(), StoreError> {
        let moved = self.owners_to_change(file, descriptor)?;
        let stored = self
            .put_security(file, descriptor)
            .and_then(|()| self.set_info(file, file_store::InfoChange::default(), now));
        self.fatal(stored)?;
        let Some(Handover { from, to, count }) = moved else { return Ok(()) };
        let counted = self.space.quotas.tally.as_ref().is_some_and(|tally| tally.has(file));
        if let Some(tally) = &mut self.space.quotas.tally {
            tally.know(file, Some(to));
        }
        if counted {
            self.space.quotas.charge(from, count, false);
            self.space.quotas.charge(to, count, true);
        }
        Ok(())
    }

    /// From whom and to whom a file goes by a new descriptor, with how many clusters; `None` where it stays.
    fn owners_to_change(&mut self, file: u64, descriptor: &[u8]) -> Result<Option<Handover>, StoreError> {
        if self.space.quotas.tally.is_none() {
            return Ok(None);
        }
        let new = Owner::of(descriptor);
        let Some(old) = self.owner(file)?.filter(|old| *old != new) else { return Ok(None) };
        let count = self.clusters_of_file(file)?;
        self.may_have(new, count)?;
        Ok(Some(Handover { from: old, to: new, count }))
    }

    /// The number that the next file, map or snapshot gets: those that are there have smaller ones.
    pub(crate) fn next_number(&self) -> Result<u64, StoreError> {
        let counters = self.txn.open_table(COUNTERS).map_err(database_error)?;
        Ok(counters.get(NEXT_FILE).map_err(database_error)?.map_or(ROOT + 1, |row| row.value()))
    }

    /// Counts some more of what was there when counting began; whether there is more.
    pub(crate) fn count_quotas(&mut self, limit: usize) -> Result<bool, StoreError> {
        let Some(tally) = self.space.quotas.tally.as_ref().filter(|tally| !tally.is_complete()) else {
            return Ok(false);
        };
        let (from, mut end) = (tally.counted, tally.end);
        if end == u64::MAX {
            // Here it begins: whoever makes files from now on is charged at once, and cannot make the count longer.
            end = self.next_number()?;
            if let Some(tally) = &mut self.space.quotas.tally {
                tally.end = end;
            }
        }
        let mut found = Vec::with_capacity(limit);
        {
            let table = self.txn.open_table(INODES).map_err(database_error)?;
            for row in table.range(from..end.max(from)).map_err(database_error)?.take(limit) {
                found.push(row.map_err(database_error)?.0.value());
            }
        }
        let ended = found.len() < limit;
        for file in &found {
            if let Some(owner) = self.owner(*file)? {
                let count = self.clusters_of_file(*file)?;
                if count > 0 {
                    self.space.quotas.charge(owner, count, true);
                }
            }
            if let Some(tally) = &mut self.space.quotas.tally {
                tally.counted = file.saturating_add(1);
            }
        }
        if ended {
            if let Some(tally) = &mut self.space.quotas.tally {
                tally.counted = u64::MAX;
            }
            self.space.quotas.tell_all();
        }
        Ok(!ended)
    }
}
