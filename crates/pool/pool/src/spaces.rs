//! The spaces of a pool: making, growing, opening and deleting them.
//!
//! A space that cannot be opened (its journal is on disks that are not here) is *closed*: it keeps what it has on the
//! disks, and nothing of it is read, written, cleaned or repaired, while the rest of the pool serves. It is tried
//! again whenever a disk returns.

use std::sync::Arc;
use std::time::Duration;

use block_device::BlockErrorKind;
use pool_format::{
    BLOCK, Change, Checksum, DiskId, DiskUse, Guid, JOURNAL_ROW, Provisioning, ROWS_MAX, Resiliency, SpaceId,
    SpaceRecord,
};
use pool_layout::Striping;
use shard_runtime::spawn_local;

use crate::core::{Closed, Core, Space};
use crate::error::{PoolError, PoolErrorKind};
use crate::page::PAGE_SPAN;
use crate::pool::Pool;
use crate::replay;
use crate::row::Row;
use crate::votes::AREA_FULL;

/// How often rows are looked at that are to be given back.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Columns of a space, at most.
const COLUMNS_MAX: u8 = 32;

/// How to make a space.
#[derive(Clone, Debug)]
pub struct SpaceSpec {
    /// Its name, unique in the pool.
    pub name: String,
    /// How it keeps its data.
    pub resiliency: Resiliency,
    /// When it takes slabs.
    pub provisioning: Provisioning,
    /// Disks that data is striped over.
    pub columns: u8,
    /// Bytes that go to one column before the next.
    pub interleave: u32,
    /// Size in bytes; rounded up to 4 KiB.
    pub size: u64,
    /// Whether every block has a checksum (parity needs them).
    pub integrity: bool,
}

impl SpaceSpec {
    /// A thin space with checksums, one column and the usual interleave of 256 KiB.
    #[must_use]
    pub fn thin(name: &str, resiliency: Resiliency, size: u64) -> Self {
        let name = name.to_owned();
        Self {
            name,
            resiliency,
            provisioning: Provisioning::Thin,
            columns: 1,
            interleave: 256 << 10,
            size,
            integrity: true,
        }
    }
}

impl Core {
    /// Opens the spaces that a pool has. One that cannot be opened is closed. With `accept_loss` none waits for what disks that are away
    /// were to get from its journal.
    pub(crate) async fn open_spaces(
        self: &Arc<Self>,
        mut secret: impl FnMut() -> Guid,
        accept_loss: bool,
    ) -> Result<(), PoolError> {
        for space in self.all_spaces() {
            if space.striping.parity() > 0 && space.row(JOURNAL_ROW).is_none() {
                // Its making was cut short before it was answered.
                self.meta.commit(vec![Change::DeleteSpace(space.id())]).await?;
                self.spaces.write().remove(&space.id());
                continue;
            }
            if let Err(error) = open_journal(self, &space, secret(), accept_loss).await {
                tracing::error!("space {} of pool {} stays closed: {error}", space.name(), self.name);
                self.spaces.write().remove(&space.id());
                let closed = Closed { why: error.to_string(), space };
                self.closed.write().insert(closed.space.id(), closed);
                continue;
            }
            // Its growing was cut short before it was answered.
            self.give_up_rows_beyond_end(&space).await?;
        }
        Ok(())
    }

    /// Tries the closed spaces again. Under `administering`.
    pub(crate) async fn open_closed(self: &Arc<Self>, mut secret: impl FnMut() -> Guid) {
        let closed: Vec<Arc<Space>> =
            self.closed.read().values().map(|closed| Arc::clone(&closed.space)).collect();
        for space in closed {
            match open_journal(self, &space, secret(), false).await {
                Ok(()) => {
                    tracing::info!("space {} of pool {} is open again", space.name(), self.name);
                    self.spaces.write().insert(space.id(), Arc::clone(&space));
                    self.closed.write().remove(&space.id());
                }
                Err(error) => {
                    if let Some(closed) = self.closed.write().get_mut(&space.id()) {
                        closed.why = error.to_string();
                    }
                }
            }
        }
    }
}

impl Core {
    /// Gives the slabs of rows back that the metadata does not know any more: at once, or as soon as whoever still works on
    /// them has ended. Nobody waits for that.
    fn give_back_rows(self: &Arc<Self>, mut rows: Vec<Arc<Row>>) {
        rows.iter().for_each(|row| row.give_up());
        rows.retain(|row| !self.give_back_row(row));
        if rows.is_empty() {
            return;
        }
        let core = Arc::clone(self);
        spawn_local(async move {
            while !rows.is_empty() && !core.is_over() {
                shard_runtime::sleep(LOOK_AGAIN).await;
                rows.retain(|row| !core.give_back_row(row));
            }
        });
    }

    /// Gives a row's slabs back if nobody else has it. It is in no map any more, so nobody will.
    fn give_back_row(&self, row: &Arc<Row>) -> bool {
        if Arc::strong_count(row) > 1 {
            return false;
        }
        let mut slabs = self.slabs.lock();
        for column in &row.columns {
            column.copies().iter().for_each(|copy| slabs.give_back(copy.id(), copy.slab));
        }
        true
    }

    /// Gives up the rows behind the end of a space: it was to grow and did not, so they hold nothing. Under `administering`:
    /// a row of the same number must not be made before this one is free.
    async fn give_up_rows_beyond_end(self: &Arc<Self>, space: &Space) -> Result<(), PoolError> {
        let end = space.striping.rows(space.bytes());
        let beyond = |number: u32| number != JOURNAL_ROW && u64::from(number) >= end;
        let rows = space.rows().into_iter().filter(|(number, _)| beyond(*number)).map(|(number, _)| number);
        for number in rows.collect::<Vec<_>>() {
            let Some(row) = space.take_row(number) else { continue };
            row.give_up();
            while Arc::strong_count(&row) > 1 {
                shard_runtime::sleep(LOOK_AGAIN).await;
            }
            self.meta.commit(vec![Change::FreeRow { space: space.id(), row: number }]).await?;
            self.give_back_row(&row);
        }
        Ok(())
    }

    /// Refuses a name that no space can have, or that one has.
    fn check_space_name(&self, name: &str) -> Result<(), PoolError> {
        if name.is_empty() || name.len() > 255 {
            return Err(PoolError::new(PoolErrorKind::Invalid, "a space's name has 1 to 255 bytes"));
        }
        if self.meta.with_state(|state| state.spaces.values().any(|space| space.name == name)) {
            let detail = format!("there is a space {name} already");
            return Err(PoolError::new(PoolErrorKind::AlreadyExists, detail));
        }
        Ok(())
    }

    /// Refuses a record of a space that the metadata has no room for.
    async fn check_room_for(&self, record: &SpaceRecord) -> Result<(), PoolError> {
        self.check_metadata_room(record.encoded_len() as u64).await.map_err(|error| match error.kind() {
            BlockErrorKind::NoSpace => PoolError::new(PoolErrorKind::NoSpace, AREA_FULL),
            _ => error.into(),
        })
    }
}

impl Pool {
    /// Makes a space.
    ///
    /// # Errors
    /// When the name is taken, the numbers make no sense, or a fixed space does not fit.
    pub async fn create_space(&self, spec: SpaceSpec) -> Result<Arc<Space>, PoolError> {
        let core = &self.core;
        let _one = core.administering.lock().await;
        core.check_writable()?;
        let invalid = |detail: String| PoolError::new(PoolErrorKind::Invalid, detail);
        core.check_space_name(&spec.name)?;
        if spec.size == 0 || spec.size > i64::MAX as u64 / 2 {
            return Err(invalid(format!("a space cannot have {} bytes", spec.size)));
        }
        check_shape(&spec).map_err(invalid)?;
        let parity = spec.resiliency.parity();
        let Some(striping) = Striping::new(spec.columns, parity, spec.interleave, core.slab_size) else {
            let most = core.slab_size / u64::from(pool_format::REGIONS);
            return Err(invalid(format!(
                "the interleave must be a power of two from {BLOCK} to {most} bytes with slabs of {} bytes",
                core.slab_size
            )));
        };
        if u64::from(spec.interleave) < BLOCK {
            return Err(invalid(format!("the interleave must be at least {BLOCK} bytes")));
        }
        check_rows(&striping, spec.size)?;
        let needed = spec.resiliency.copies() * usize::from(spec.columns);
        let active: Vec<DiskId> = core.meta.with_state(|state| {
            state.disks.values().filter(|disk| disk.usage == DiskUse::Active).map(|disk| disk.id).collect()
        });
        if active.len() < needed {
            let detail = format!(
                "the pool has {} active disks; {needed} are needed for this many copies and columns",
                active.len()
            );
            return Err(PoolError::new(PoolErrorKind::NoSpace, detail));
        }
        let has_room = |id: DiskId| core.disk(id).is_some_and(|disk| disk.layout.read().sums_start > 0);
        let without = active.iter().filter(|id| !has_room(**id)).count();
        if spec.integrity && active.len() - without < needed {
            let detail = format!(
                "{without} of the pool's {} active disks were made by a release without checksums, and {needed} with room \
                 for them are needed: drain these disks, remove them and add them again, one after the other",
                active.len()
            );
            return Err(PoolError::new(PoolErrorKind::NoSpace, detail));
        }
        let record = SpaceRecord {
            id: SpaceId(core.meta.with_state(|state| state.next_space)),
            guid: Guid(self.surroundings.entropy.next_id()),
            name: spec.name,
            resiliency: spec.resiliency,
            provisioning: spec.provisioning,
            columns: spec.columns,
            interleave: spec.interleave,
            size: spec.size.next_multiple_of(BLOCK),
            checksum: spec.integrity.then(Checksum::default),
        };
        core.check_room_for(&record).await?;
        core.meta.commit(vec![Change::PutSpace(record.clone())]).await?;
        let space = Space::new(&Arc::downgrade(core), record.clone(), striping, false);
        let id = record.id;
        core.spaces.write().insert(id, Arc::clone(&space));
        if parity > 0
            && let Err(error) = self.make_journal(&space).await
        {
            self.delete_space_alone(id).await?;
            return Err(error);
        }
        if record.provisioning == Provisioning::Fixed
            && let Err(error) = self.allocate_all(&space, 0, record.size).await
        {
            // Nothing half-done: a fixed space that does not fit is not there.
            self.delete_space_alone(id).await?;
            return Err(error);
        }
        Ok(space)
    }

    async fn make_journal(&self, space: &Arc<Space>) -> Result<(), PoolError> {
        space.row_for_write(&self.core, JOURNAL_ROW).await?;
        open_journal(&self.core, space, Guid(self.surroundings.entropy.next_id()), false).await
    }

    async fn allocate_all(&self, space: &Arc<Space>, from: u64, size: u64) -> Result<(), PoolError> {
        for row in space.striping.rows(from)..space.striping.rows(size) {
            space.row_for_write(&self.core, row as u32).await?;
        }
        Ok(())
    }

    /// The spaces, by number.
    #[must_use]
    pub fn spaces(&self) -> Vec<Arc<Space>> {
        self.core.all_spaces()
    }

    /// Names and identities of all spaces, those that are closed among them. Costs little, however large they are.
    #[must_use]
    pub fn space_names(&self) -> Vec<(String, Guid)> {
        let of = |space: &SpaceRecord| (space.name.clone(), space.guid);
        self.core.meta.with_state(|state| state.spaces.values().map(of).collect())
    }

    /// The space of that name.
    #[must_use]
    pub fn space(&self, name: &str) -> Option<Arc<Space>> {
        self.core.all_spaces().into_iter().find(|space| space.name() == name)
    }

    /// Grows a space while it is in use.
    ///
    /// # Errors
    /// When the new size is smaller, or a fixed space does not fit.
    pub async fn grow_space(&self, id: SpaceId, size: u64) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_writable()?;
        let space = self.core.spaces.read().get(&id).cloned();
        let space = space
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no space {id}")))?;
        let mut record = space.record();
        let size = size.next_multiple_of(BLOCK);
        if size < record.size || size > i64::MAX as u64 / 2 {
            let detail = format!("space {} has {} bytes and can only grow", record.name, record.size);
            return Err(PoolError::new(PoolErrorKind::Invalid, detail));
        }
        check_rows(&space.striping, size)?;
        if record.provisioning == Provisioning::Fixed
            && let Err(error) = self.allocate_all(&space, record.size, size).await
        {
            // Nothing half-done: what it took for the part that does not fit is free again.
            self.core.give_up_rows_beyond_end(&space).await?;
            return Err(error);
        }
        record.size = size;
        self.core.meta.commit(vec![Change::PutSpace(record.clone())]).await?;
        space.set_record(record);
        Ok(())
    }

    /// Gives a space another name, while it is in use; one that is closed, too. After a crash it has the one or the other.
    ///
    /// # Errors
    /// When no space can have the name, or one has it; when the space isn't there, or the metadata cannot be written.
    pub async fn rename_space(&self, id: SpaceId, name: &str) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_writable()?;
        let space = self.core.spaces.read().get(&id).cloned();
        let closed = || Some(Arc::clone(&self.core.closed.read().get(&id)?.space));
        let space = space
            .or_else(closed)
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no space {id}")))?;
        self.core.check_space_name(name)?;
        let record = SpaceRecord { name: name.to_owned(), ..space.record() };
        self.core.check_room_for(&record).await?;
        self.core.meta.commit(vec![Change::PutSpace(record.clone())]).await?;
        space.set_record(record);
        Ok(())
    }

    /// Deletes a space and its data.
    ///
    /// # Errors
    /// When it isn't there, or the metadata cannot be written.
    pub async fn delete_space(&self, id: SpaceId) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_writable()?;
        self.delete_space_alone(id).await
    }

    async fn delete_space_alone(&self, id: SpaceId) -> Result<(), PoolError> {
        let space = self.core.spaces.write().remove(&id);
        let space = space.or_else(|| Some(self.core.closed.write().remove(&id)?.space));
        let space = space
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no space {id}")))?;
        let _one = self.core.allocating.lock().await;
        space.set_deleted();
        self.core.meta.commit(vec![Change::DeleteSpace(id)]).await?;
        let rows = space.rows().into_iter().filter_map(|(number, _)| space.take_row(number)).collect();
        self.core.give_back_rows(rows);
        Ok(())
    }

    /// The space of that name if it is closed: good for nothing but to be deleted.
    #[must_use]
    pub fn closed_space(&self, name: &str) -> Option<Arc<Space>> {
        let closed = self.core.closed.read();
        let found = closed.values().find(|closed| closed.space.name() == name);
        found.map(|closed| Arc::clone(&closed.space))
    }

    /// Why the space of that name is closed, if it is.
    #[must_use]
    pub fn why_closed(&self, name: &str) -> Option<String> {
        let closed = self.core.closed.read();
        closed.values().find(|closed| closed.space.name() == name).map(|closed| closed.why.clone())
    }
}

/// Brings what a parity space's journal holds to its place, before anybody reads the space.
async fn open_journal(
    core: &Arc<Core>,
    space: &Arc<Space>,
    secret: Guid,
    accept_loss: bool,
) -> Result<(), PoolError> {
    if space.striping.parity() == 0 {
        return Ok(());
    }
    let journal = replay::replay(core, space, secret, accept_loss).await.map_err(|error| {
        let detail = format!("the journal of space {} cannot be brought to its place: {error}", space.name());
        PoolError::new(PoolErrorKind::Io, detail).because(error)
    })?;
    space.set_journal(journal);
    Ok(())
}

/// Whether a space can be made like this.
fn check_shape(spec: &SpaceSpec) -> Result<(), String> {
    if spec.columns == 0 || spec.columns > COLUMNS_MAX {
        return Err(format!("a space has 1 to {COLUMNS_MAX} columns"));
    }
    match spec.resiliency {
        Resiliency::Mirror(copies) if !(2..=3).contains(&copies) => Err("a mirror has 2 or 3 copies".into()),
        Resiliency::Parity(count) if !(1..=2).contains(&count) => {
            Err("parity is single or dual: 1 or 2 columns of each stripe".into())
        }
        Resiliency::Parity(count) if spec.columns < count + 2 => {
            let least = count + 2;
            Err(format!("a space with {count} columns of parity has {least} columns at least: two for data"))
        }
        Resiliency::Parity(_) if !spec.integrity => {
            Err("a space with parity needs checksums: they tell which column of a stripe is damaged".into())
        }
        Resiliency::Parity(_) if u64::from(spec.interleave) > PAGE_SPAN => {
            Err(format!("the interleave of a space with parity is {PAGE_SPAN} bytes at most"))
        }
        _ => Ok(()),
    }
}

/// Rows are numbered with 32 bits, and with parity the last number is the journal's.
fn check_rows(striping: &Striping, size: u64) -> Result<(), PoolError> {
    let numbers = ROWS_MAX - u64::from(striping.parity() > 0);
    if striping.rows(size) <= numbers {
        return Ok(());
    }
    let most = numbers.saturating_mul(striping.row_size());
    let detail = format!("a space of this shape can have {most} bytes at most, not {size}");
    Err(PoolError::new(PoolErrorKind::Invalid, detail))
}
