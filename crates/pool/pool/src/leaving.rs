//! Disks that are to leave the pool: whether that can end, and taking it back.

use std::collections::BTreeMap;

use pool_format::{DiskId, DiskUse};

use crate::core::Core;
use crate::error::{PoolError, PoolErrorKind};
use crate::pool::Pool;

/// What the rows of a pool need of its disks.
#[derive(Default)]
struct Needs {
    rows: u64,
    slabs: u64,
    /// The most disks that a row of a space is on, and the name of the space.
    widest: (usize, String),
    /// The same of those with checksums: not every disk has room for these.
    widest_with_sums: (usize, String),
}

impl Pool {
    /// Begins to empty a disk (`Draining`), or to restore elsewhere what it held (`Retired`), if that can end.
    ///
    /// # Errors
    /// When there is no such disk, or the others cannot take what is on it: the detail says what would be missing.
    pub async fn empty_disk(&self, id: DiskId, usage: DiskUse) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_can_leave(id)?;
        self.set_disk_use_alone(id, usage).await
    }

    /// Takes back that a disk is to leave: it is used as before, and what has been copied from it meanwhile is given up.
    ///
    /// # Errors
    /// When there is no such disk, or it is not leaving.
    pub async fn keep_disk(&self, id: DiskId) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        let usage = self.core.meta.with_state(|state| state.disks.get(&id).map(|disk| disk.usage));
        match usage {
            None => Err(PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}"))),
            Some(DiskUse::Draining | DiskUse::Retired) => self.set_disk_use_alone(id, DiskUse::Active).await,
            Some(DiskUse::Active | DiskUse::Spare) => {
                let detail =
                    format!("disk {id} is not being emptied or retired: there is nothing to take back");
                Err(PoolError::new(PoolErrorKind::Invalid, detail))
            }
        }
    }
}

impl Core {
    /// Refuses that a disk leaves when the disks that stay could never take what is on it. They are those in use and here.
    fn check_can_leave(&self, id: DiskId) -> Result<(), PoolError> {
        let disk = self.disk(id);
        let disk =
            disk.ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}")))?;
        let on_it = self.meta.with_state(|state| {
            let copies = state.rows.values().flat_map(|row| &row.columns).flat_map(|column| &column.copies);
            copies.filter(|copy| copy.disk == id).count()
        });
        if on_it == 0 {
            return Ok(());
        }
        let (mut away, mut staying) = (0, BTreeMap::new());
        self.meta.with_state(|state| {
            for record in state.disks.values().filter(|disk| disk.id != id && disk.usage == DiskUse::Active) {
                match self.disk(record.id).filter(|disk| disk.is_online()) {
                    Some(disk) => {
                        let has_sums = disk.layout.read().sums_start > 0;
                        staying.insert(record.id, (u64::from(record.slab_count), has_sums));
                    }
                    None => away += 1,
                }
            }
        });
        let refuse = |missing: String| {
            let away =
                if away > 0 { format!(", and {away} more of them are missing") } else { String::new() };
            let detail = format!(
                "disk {id} cannot leave pool {}: {missing} ({} disks would stay in use{away})",
                self.name,
                staying.len()
            );
            Err(PoolError::new(PoolErrorKind::NoSpace, detail))
        };
        let needs = self.needs();
        for ((width, space), among) in [
            (&needs.widest, staying.len()),
            (&needs.widest_with_sums, staying.values().filter(|(_, has_sums)| *has_sums).count()),
        ] {
            if among < *width {
                return refuse(format!(
                    "what space {space} holds lies on {width} disks, each part of it on another one; add {} disks first",
                    width - among
                ));
            }
        }
        // Of what a disk held that is gone, some is better than nothing.
        if !disk.is_online() {
            return Ok(());
        }
        // No disk has two slabs of a row.
        let room: u64 = staying.values().map(|(slabs, _)| (*slabs).min(needs.rows)).sum();
        if room < needs.slabs {
            let bytes = (needs.slabs - room) * self.slab_size;
            return refuse(format!(
                "{bytes} bytes of what the pool holds would find no room on the others; add disks first"
            ));
        }
        Ok(())
    }

    /// What is allocated needs, when it is whole.
    fn needs(&self) -> Needs {
        self.meta.with_state(|state| {
            let mut needs = Needs::default();
            for ((id, _), row) in &state.rows {
                let Some(space) = state.spaces.get(id) else { continue };
                // The journal's row has one column, and a copy more than a stripe has parity.
                let copies = match row.columns.len() {
                    1 if space.resiliency.parity() > 0 => usize::from(space.resiliency.parity()) + 1,
                    _ => space.resiliency.copies(),
                };
                let width = row.columns.len() * copies;
                needs.rows += 1;
                needs.slabs += width as u64;
                let widest =
                    if space.checksum.is_some() { &mut needs.widest_with_sums } else { &mut needs.widest };
                if width > widest.0 {
                    *widest = (width, space.name.clone());
                }
            }
            needs
        })
    }
}
