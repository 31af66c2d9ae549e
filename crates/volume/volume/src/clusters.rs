//! Changes of who uses which clusters, inside a transaction.
//!
//! A cluster of the device is in exactly one of these states: free (in memory only), freed (in `freed`, waiting
//! to be zeroed), used once, or used several times (in `shares`, with the number of users).

use std::panic::{AssertUnwindSafe, catch_unwind};

use file_store::{StoreError, StoreErrorKind};
use redb::{ReadableTable, Table};
use volume_format::CLUSTER;

use crate::database_error::database_error;
use crate::extents::{END, Extent};
use crate::free::Run;
use crate::rows::Recorded;
use crate::session::Session;
use crate::tables::{EXTENTS, ExtentKey, ExtentValue, FREED, MapKey, SHARED, SHARES, StreamKey};

/// Bytes of a row of extents, links or users.
pub(crate) const ROW: u64 = 48;

pub(crate) fn no_space() -> StoreError {
    StoreError::new(
        StoreErrorKind::NoSpace,
        "the volume has no free clusters; delete files or grow the volume",
    )
}

impl Session<'_> {
    /// Maps holes of a stream to free clusters. All of them or none.
    ///
    /// # Errors
    /// [`StoreErrorKind::InvalidArgument`] where a hole reaches beyond what a stream can have: what is on the disk would be taken for
    /// damage. [`StoreErrorKind::NoSpace`].
    pub(crate) fn map(&mut self, stream: StreamKey, holes: &[(u64, u64)]) -> Result<Vec<Extent>, StoreError> {
        let fits = |(first, count): &(u64, u64)| first.checked_add(*count).is_some_and(|end| end <= END);
        if !holes.iter().all(fits) {
            let detail = "clusters beyond the end of the largest file cannot be mapped";
            return Err(StoreError::new(StoreErrorKind::InvalidArgument, detail));
        }
        let wanted = holes.iter().map(|(_, count)| count).sum();
        self.may_take(stream.0, wanted)?;
        let runs = self.take_free(wanted)?;
        if let Err(error) = self.spend(ROW * (runs.len() + 2 * holes.len()) as u64) {
            runs.into_iter().for_each(|run| self.space.free.add(run));
            return Err(error);
        }
        self.changed = true;
        let extents = lay_out(holes, runs);
        let unlinked = if self.stages { self.unlinked_map(stream) } else { Ok(None) };
        match self.fatal(unlinked)? {
            Some(map) => {
                let counted = self.count_in(stream, &extents);
                self.fatal(counted)?;
                self.space.forget_counts(map);
                self.staged.extend(extents.iter().map(|extent| (map, *extent)));
            }
            None => {
                self.unstage()?;
                let stored = self.insert_extents(stream, &extents);
                self.fatal(stored)?;
            }
        }
        Ok(extents)
    }

    /// Puts the rows of maps there that wait for it.
    ///
    /// # Errors
    /// When the database fails, which ends the group.
    pub(crate) fn unstage(&mut self) -> Result<(), StoreError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let mut staged = std::mem::take(&mut self.staged);
        staged.sort_unstable_by_key(|(map, extent)| (*map, extent.first));
        let stored = self.txn.open_table(EXTENTS).map_err(database_error).and_then(|mut table| {
            staged.iter().try_for_each(|(map, extent)| put_row(&mut table, *map, extent))
        });
        self.fatal(stored)
    }

    /// The group ends: nothing waits any more.
    pub(crate) fn end(&mut self) {
        let stored = catch_unwind(AssertUnwindSafe(|| self.unstage()));
        self.gave_up |= stored.is_err();
    }

    /// A stream has more clusters.
    fn count_in(&mut self, stream: StreamKey, extents: &[Extent]) -> Result<(), StoreError> {
        let count = extents.iter().map(|extent| extent.count).fold(0, u64::saturating_add);
        if let Some((mut info, measured)) = self.recent.take_info(stream.0, &mut self.found) {
            let more = if stream.1 == 0 { count.saturating_mul(CLUSTER) } else { 0 };
            info.allocated = info.allocated.saturating_add(more);
            self.found.add_info(info, measured);
        }
        self.charge(stream.0, count, true)
    }

    /// Puts extents where the stream has holes.
    pub(crate) fn insert_extents(&mut self, stream: StreamKey, extents: &[Extent]) -> Result<(), StoreError> {
        self.count_in(stream, extents)?;
        for extent in extents {
            // Where a linked map has a hole, too: the clusters are this stream's from now on.
            self.own(stream, extent.first, extent.end())?;
        }
        let map = self.own_map(stream)?;
        self.put_rows(map, extents)
    }

    /// Puts rows into a map.
    pub(crate) fn put_rows(&mut self, map: MapKey, extents: &[Extent]) -> Result<(), StoreError> {
        self.space.forget_counts(map);
        let mut table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        extents.iter().try_for_each(|extent| put_row(&mut table, map, extent))
    }

    /// Makes a hole of the clusters `first..end` of a stream; what nobody else uses becomes freed.
    pub(crate) fn unmap(&mut self, stream: StreamKey, first: u64, end: u64) -> Result<(), StoreError> {
        self.changed = true;
        self.forget(stream.0);
        let unmapped = (|| {
            let own = self.own_map(stream)?;
            let removed = self.cut_rows(own, first, end)?;
            self.uncharge(stream.0, &removed)?;
            self.give_up(removed)?;
            self.drop_links(stream, first, end)
        })();
        self.fatal(unmapped)
    }

    /// Clusters of rows that were taken out: one user less each.
    pub(crate) fn give_up(&mut self, removed: Vec<Extent>) -> Result<(), StoreError> {
        for extent in removed {
            let run = Run { start: extent.device, count: extent.count };
            if extent.shared {
                self.give_up_shared(run)?;
            } else {
                self.put_freed(run)?;
            }
        }
        Ok(())
    }

    /// Takes rows out of a map, putting back what reaches beyond the range.
    pub(crate) fn cut_rows(&mut self, map: MapKey, first: u64, end: u64) -> Result<Vec<Extent>, StoreError> {
        self.space.forget_counts(map);
        let mut table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        let met = meeting(&table, map, first, end)?;
        let mut removed = Vec::new();
        for extent in met {
            table.remove((map.0, map.1, extent.first)).map_err(database_error)?;
            let rests = [(extent.first, first), (end, extent.end())];
            for (from, to) in rests.into_iter().filter(|(from, to)| from < to) {
                let rest = extent.part(from, to);
                let flags = if rest.shared { SHARED } else { 0 };
                table
                    .insert((map.0, map.1, rest.first), (rest.device, rest.count, flags))
                    .map_err(database_error)?;
            }
            removed.push(extent.part(first, end));
        }
        Ok(removed)
    }

    /// The rows of a map that meet `first..end`, whole.
    pub(crate) fn rows(&self, map: MapKey, first: u64, end: u64) -> Result<Vec<Extent>, StoreError> {
        let table = self.txn.open_table(EXTENTS).map_err(database_error)?;
        meeting(&table, map, first, end)
    }

    /// Clusters that lost their last user wait in `freed` until they are zero.
    pub(crate) fn put_freed(&mut self, run: Run) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(FREED).map_err(database_error)?;
        table.insert(run.start, run.count).map_err(database_error)?;
        Ok(())
    }

    /// Clusters that waited in `freed` have a user.
    pub(crate) fn forget_freed(&mut self, run: Run) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(FREED).map_err(database_error)?;
        table.remove(run.start).map_err(database_error)?;
        Ok(())
    }

    /// Puts other extents where `old` was, without giving up or taking clusters.
    pub(crate) fn replace(
        &mut self,
        stream: StreamKey,
        old: Extent,
        new: &[Extent],
    ) -> Result<(), StoreError> {
        self.own(stream, old.first, old.end())?;
        let map = self.own_map(stream)?;
        self.forget(stream.0);
        self.cut_rows(map, old.first, old.end())?;
        self.put_rows(map, new)
    }

    /// One user less for each cluster of a run.
    fn give_up_shared(&mut self, run: Run) -> Result<(), StoreError> {
        for (part, users) in self.users(run)? {
            match users {
                0 | 1 => self.put_freed(part)?,
                _ => self.set_users(part, users - 1)?,
            }
        }
        Ok(())
    }

    /// Whether one user more can be counted for each cluster of a run.
    pub(crate) fn may_share(&self, run: Run) -> Result<(), StoreError> {
        if self.users(run)?.iter().all(|(_, users)| *users < u32::MAX) {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::InvalidArgument, "more clones than can be counted"))
    }

    /// One user more for each cluster of a run; [`Session::may_share`] was asked.
    pub(crate) fn share(&mut self, run: Run) -> Result<(), StoreError> {
        self.changed = true;
        for (part, users) in self.users(run)? {
            self.set_users(part, users.saturating_add(1))?;
        }
        Ok(())
    }

    /// The number of users of each part of a run that is in use.
    pub(crate) fn users(&self, run: Run) -> Result<Vec<(Run, u32)>, StoreError> {
        let table = self.txn.open_table(SHARES).map_err(database_error)?;
        let end = run.end();
        let mut parts = Vec::new();
        let mut at = run.start;
        for (start, (count, users)) in shares_meeting(&table, run.start, end)? {
            // Rows that overlap, or hold nothing, come from damage: no cluster counts twice.
            let from = start.max(at);
            let to = start.saturating_add(count).min(end);
            if from >= to {
                continue;
            }
            if from > at {
                parts.push((Run { start: at, count: from - at }, 1));
            }
            parts.push((Run { start: from, count: to - from }, users));
            at = to;
        }
        if at < end {
            parts.push((Run { start: at, count: end - at }, 1));
        }
        Ok(parts)
    }

    fn set_users(&mut self, run: Run, users: u32) -> Result<(), StoreError> {
        let mut table = self.txn.open_table(SHARES).map_err(database_error)?;
        let end = run.end();
        for (start, (count, old)) in shares_meeting(&table, run.start, end)? {
            table.remove(start).map_err(database_error)?;
            if start < run.start {
                table.insert(start, (run.start - start, old)).map_err(database_error)?;
            }
            if start.saturating_add(count) > end {
                table.insert(end, (start.saturating_add(count) - end, old)).map_err(database_error)?;
            }
        }
        if users > 1 {
            table.insert(run.start, (run.count, users)).map_err(database_error)?;
        }
        Ok(())
    }
}

fn put_row(
    table: &mut Recorded<'_, ExtentKey, ExtentValue>,
    map: MapKey,
    extent: &Extent,
) -> Result<(), StoreError> {
    let flags = if extent.shared { SHARED } else { 0 };
    let value = (extent.device, extent.count, flags);
    table.insert((map.0, map.1, extent.first), value).map_err(database_error)?;
    Ok(())
}

/// Spreads runs over holes.
pub(crate) fn lay_out(holes: &[(u64, u64)], runs: Vec<Run>) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut runs = runs.into_iter();
    let mut run = Run { start: 0, count: 0 };
    for (mut first, mut count) in holes.iter().copied() {
        while count > 0 {
            if run.count == 0 {
                let Some(next) = runs.next() else { return extents };
                run = next;
            }
            let step = run.count.min(count);
            extents.push(Extent { first, count: step, device: run.start, shared: false });
            run = Run { start: run.start + step, count: run.count - step };
            first += step;
            count -= step;
        }
    }
    extents
}

type ExtentRow<'a> = (redb::AccessGuard<'a, ExtentKey>, redb::AccessGuard<'a, ExtentValue>);

fn read_extent(row: Result<ExtentRow<'_>, redb::StorageError>) -> Result<Extent, StoreError> {
    let (key, value) = row.map_err(database_error)?;
    Ok(extent_of(key.value(), value.value()))
}

pub(crate) fn extent_of(key: ExtentKey, (device, count, flags): ExtentValue) -> Extent {
    Extent { first: key.2, count, device, shared: flags & SHARED != 0 }
}

/// The rows of a map that meet the clusters `first..end`, whole.
fn meeting(
    table: &Table<'_, ExtentKey, ExtentValue>,
    (file, stream): MapKey,
    first: u64,
    end: u64,
) -> Result<Vec<Extent>, StoreError> {
    let mut met = Vec::new();
    let mut before = table.range((file, stream, 0u64)..(file, stream, first)).map_err(database_error)?;
    if let Some(row) = before.next_back() {
        met.push(read_extent(row)?);
    }
    met.retain(|extent: &Extent| extent.end() > first);
    for row in table.range((file, stream, first)..(file, stream, end)).map_err(database_error)? {
        met.push(read_extent(row)?);
    }
    Ok(met)
}

type Share = (u64, (u64, u32));

fn shares_meeting(
    table: &Table<'_, u64, (u64, u32)>,
    first: u64,
    end: u64,
) -> Result<Vec<Share>, StoreError> {
    let mut met = Vec::new();
    let mut before = table.range(..first).map_err(database_error)?;
    if let Some(row) = before.next_back() {
        let (key, value) = row.map_err(database_error)?;
        met.push((key.value(), value.value()));
    }
    met.retain(|(start, (count, _)): &Share| start.saturating_add(*count) > first);
    for row in table.range(first..end).map_err(database_error)? {
        let (key, value) = row.map_err(database_error)?;
        met.push((key.value(), value.value()));
    }
    Ok(met)
}
