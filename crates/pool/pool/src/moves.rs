//! Moving a slab that is sound to another disk: what a rebalancing does, and an exchange.
//!
//! A move is a repair of something sound: the column gets a further copy where the slab should be, that catches up, and the
//! one that moves is given up then. Until then it counts. Nothing of it is in the metadata but the copies themselves: after
//! a crash what was not finished is given up, and planned anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::BlockError;
use pool_format::{CopyRecord, DiskUse, SpaceId};
use pool_layout::{Move, RowSlabs};

use crate::at::At;
use crate::column_repair;
use crate::core::Core;
use crate::row::{Column, Place, Planned, Purpose, Row};

/// Where everything lies at one moment, for a plan.
#[derive(Default)]
pub(crate) struct Placement {
    /// The rows of all spaces, in their order.
    pub(crate) rows: Vec<RowSlabs>,
    /// For each column of a row whether it can spare a copy for another: it has all of them, and none is on its way.
    sound: Vec<Vec<bool>>,
    /// Which rows those are.
    places: Vec<(SpaceId, u32)>,
    /// Copies that make room, and are on their way.
    pub(crate) making_room: usize,
}

impl Placement {
    pub(crate) fn of(core: &Core) -> Self {
        let mut placement = Self::default();
        core.for_each_column(|_, place, row| {
            if place.column > 0 {
                return;
            }
            let disks = |column: &Column| column.copies().iter().map(|copy| copy.id()).collect();
            let columns = row.columns.iter().map(disks).collect();
            let (parity, sums) = (row.shape.parity > 0, row.shape.sums_pages > 0);
            placement.rows.push(RowSlabs { columns, parity, sums });
            let sound = (0..row.columns.len()).map(|column| is_sound(core, row, column as u8));
            placement.sound.push(sound.collect());
            placement.places.push((place.space, place.row));
            let copies = row.columns.iter().flat_map(|column| column.copies().to_vec());
            placement.making_room += copies.filter(|copy| copy.moves_for() == Some(Purpose::Room)).count();
        });
        placement
    }

    /// A column by its index and that of its row.
    pub(crate) fn place(&self, row: usize, column: usize) -> Option<Place> {
        let (space, number) = *self.places.get(row)?;
        Some(Place { space, row: number, column: u8::try_from(column).ok()? })
    }

    /// The indices of a column and of its row.
    pub(crate) fn index(&self, place: Place) -> Option<(usize, usize)> {
        let row = self.places.binary_search(&(place.space, place.row)).ok()?;
        Some((row, usize::from(place.column)))
    }

    pub(crate) fn is_sound(&self, row: usize, column: usize) -> bool {
        self.sound.get(row).and_then(|row| row.get(column)).is_some_and(|sound| *sound)
    }

    pub(crate) fn planned(&self, step: Move) -> Option<Planned> {
        Some(Planned { place: self.place(step.row, step.column)?, from: step.from, to: step.to })
    }
}

/// Whether a column has all its copies, all of them stay, and nothing is owed to them.
fn is_sound(core: &Core, row: &Row, column: u8) -> bool {
    let (copies, group) = (row.column(column).copies(), row.group(column));
    let owed = group.unsettled.load(Ordering::Acquire) | group.forgotten.load(Ordering::Acquire);
    owed == 0
        && copies.len() == row.shape.copies
        && copies.iter().all(|copy| copy.is_good(u64::MAX) && !column_repair::is_leaving(core, copy))
}

/// Moves a slab, if that is still what should be done. Whether it has moved.
pub(crate) async fn carry_out(
    core: &Arc<Core>,
    planned: Planned,
    purpose: Purpose,
) -> Result<bool, BlockError> {
    let Planned { place, from, to } = planned;
    let space = core.spaces.read().get(&place.space).cloned();
    let Some(space) = space else { return Ok(false) };
    let Some(row) = space.row(place.row) else { return Ok(false) };
    let at = At::new(core, &space, &row, place);
    {
        let _one = core.adding.lock().await;
        let copies = at.column().copies();
        let sound = copies.len() == row.shape.copies && copies.iter().all(|copy| copy.is_good(u64::MAX));
        let Some(moving) = copies.iter().find(|copy| copy.id() == from).filter(|_| sound) else {
            return Ok(false);
        };
        let taken = row.columns.iter().any(|column| column.copies().iter().any(|copy| copy.id() == to));
        let usage = core.meta.with_state(|state| state.disks.get(&to).map(|record| record.usage));
        if taken
            || usage != Some(DiskUse::Active)
            || !core.has_room(to)
            || !core.has_metadata_room_for_a_copy()
        {
            return Ok(false);
        }
        let Some(slab) = core.slabs.lock().take(to) else { return Ok(false) };
        moving.set_moving(Some(purpose));
        let record = CopyRecord { disk: to, slab, stale: u64::MAX };
        if let Err(error) = column_repair::add_copy(core, place, at.column(), record).await {
            moving.set_moving(None);
            return Err(error);
        }
    }
    column_repair::work_on(core, &space, place).await?;
    Ok(at.column().copies().iter().all(|copy| copy.id() != from))
}
