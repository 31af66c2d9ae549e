//! Disks of an open pool: they return, get lost, join, change their use and leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::Device;
use pool_format::{BLOCK, Change, DiskId, DiskUse, Guid};

use crate::disk::{PoolDisk, SLOT_UNKNOWN};
use crate::error::{PoolError, PoolErrorKind};
use crate::open::{self, NewDisk};
use crate::pool::Pool;

impl Pool {
    /// Takes back a disk of this pool that was missing. What it missed is copied in the background.
    ///
    /// # Errors
    /// When the disk is not one of this pool's, or is in use already.
    pub async fn disk_returned(&self, device: Device) -> Result<DiskId, PoolError> {
        let _one = self.core.administering.lock().await;
        let probe = open::probe(&device).await?.filter(|probe| probe.superblock.pool == self.core.guid);
        let known = probe.and_then(|probe| {
            let disk = self.core.disk(probe.superblock.disk_id)?;
            (disk.guid == probe.superblock.disk).then_some((probe, disk))
        });
        let Some((probe, disk)) = known else {
            return Err(PoolError::new(PoolErrorKind::NotFound, "the disk does not belong to this pool"));
        };
        if disk.is_online() {
            return Err(PoolError::new(PoolErrorKind::InUse, format!("disk {} is in use already", disk.id)));
        }
        self.core.mark_losses(&disk).await?;
        let mut superblock = probe.superblock.clone();
        superblock.epoch = self.core.meta.epoch();
        if disk.newest_slot.load(Ordering::Acquire) == SLOT_UNKNOWN
            && let Some((slot, _)) = open::newest_checkpoint(&probe).await?
        {
            disk.newest_slot.store(slot, Ordering::Release);
        }
        open::write_superblock(&device, &superblock).await?;
        disk.bring_online(device);
        // Metadata that it missed comes with a checkpoint; until then its copy of the log has a gap.
        self.core.meta.checkpoint().await?;
        self.core.open_closed(|| Guid(self.surroundings.entropy.next_id())).await;
        self.core.call_repair();
        Ok(disk.id)
    }

    /// Stops using a disk at once, as if it had vanished.
    ///
    /// # Errors
    /// When there is no such disk.
    pub async fn disk_lost(&self, id: DiskId, why: &str) -> Result<(), PoolError> {
        let disk = self.present(id)?;
        disk.take_offline(why);
        disk.release_device();
        self.core.mark_losses(&disk).await?;
        Ok(())
    }

    fn present(&self, id: DiskId) -> Result<Arc<PoolDisk>, PoolError> {
        self.core
            .disk(id)
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}")))
    }

    /// Adds a disk, for use at once or as a spare.
    ///
    /// # Errors
    /// When it carries something else, is too small, or fails.
    pub async fn add_disk(
        &self,
        disk: NewDisk,
        spare: bool,
        overwrite_foreign: bool,
    ) -> Result<DiskId, PoolError> {
        let core = &self.core;
        let _one = core.administering.lock().await;
        core.check_writable()?;
        let state = core.meta.with_state(Clone::clone);
        let id = DiskId(state.next_disk);
        let epoch = core.meta.epoch();
        let superblock =
            open::prepare(&disk, id, &state, overwrite_foreign, epoch, &*self.surroundings.entropy).await?;
        open::clear_metadata(&disk.device, &superblock).await?;
        open::write_superblock(&disk.device, &superblock).await?;
        let usage = if spare { DiskUse::Spare } else { DiskUse::Active };
        let record = open::disk_record(&disk, &superblock, usage);
        let count = record.slab_count;
        core.disks
            .write()
            .insert(id, Arc::new(PoolDisk::new(id, superblock, Some(disk.device), Arc::clone(&core.clock))));
        if let Err(failed) = core.meta.commit(vec![Change::PutDisk(record)]).await {
            core.disks.write().remove(&id);
            return Err(failed.into());
        }
        core.slabs.lock().add_disk(id, count);
        self.spread_metadata().await?;
        core.balancer.tell_joined();
        core.call_repair();
        Ok(id)
    }

    /// Changes what a disk is used for: puts a spare to work, drains, retires, or takes a change of mind back.
    ///
    /// # Errors
    /// When there is no such disk.
    pub async fn set_disk_use(&self, id: DiskId, usage: DiskUse) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.set_disk_use_alone(id, usage).await
    }

    async fn set_disk_use_alone(&self, id: DiskId, usage: DiskUse) -> Result<(), PoolError> {
        let record = self.core.meta.with_state(|state| state.disks.get(&id).cloned());
        let mut record = record
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}")))?;
        record.usage = usage;
        self.core.meta.commit(vec![Change::PutDisk(record)]).await?;
        self.spread_metadata().await?;
        if usage == DiskUse::Active {
            self.core.balancer.tell_joined();
        }
        self.core.call_repair();
        Ok(())
    }

    /// Removes a disk that holds nothing any more (drain or retire it first).
    ///
    /// # Errors
    /// When copies are still on it, with how many.
    pub async fn remove_disk(&self, id: DiskId) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.present(id)?;
        let slabs = self.slabs_on(id);
        if slabs > 0 {
            let detail =
                format!("disk {id} still holds {slabs} slabs; drain or retire it and wait for the repair");
            return Err(PoolError::new(PoolErrorKind::InUse, detail));
        }
        self.set_disk_use_alone(id, DiskUse::Retired).await?;
        // Nothing is allocated on it from now on; what was being allocated has its slabs already.
        let _none_meanwhile = self.core.allocating.lock().await;
        let (free, slabs) = self.core.slabs.lock().count(id);
        if free < slabs {
            let detail = format!("disk {id} has just been given data; wait for the repair");
            return Err(PoolError::new(PoolErrorKind::InUse, detail));
        }
        self.core.meta.commit(vec![Change::RemoveDisk(id)]).await?;
        let disk = self.core.disks.write().remove(&id);
        self.core.slabs.lock().remove_disk(id);
        if let Some(disk) = disk
            && disk.is_online()
        {
            // So that it is nobody's: the next probe finds no pool on it.
            let size = disk.layout.read().disk_size;
            for at in [0, size - BLOCK] {
                let zeros = aligned_buffer::IoBuf::zeroed(BLOCK as usize).freeze();
                disk.write(at, zeros, block_device::Durability::Durable).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn slabs_on(&self, id: DiskId) -> usize {
        self.core.meta.with_state(|state| {
            let columns = state.rows.values().flat_map(|row| &row.columns);
            columns.flat_map(|column| &column.copies).filter(|copy| copy.disk == id).count()
        })
    }

    /// Keeps the metadata on up to five disks of different fault domains, one change of the voters at a time:
    /// a disk gets the whole state before its vote counts.
    async fn spread_metadata(&self) -> Result<(), PoolError> {
        let wanted = self.core.meta.with_state(open::choose_metadata_disks);
        let present: Vec<_> = self.core.meta.with_state(|s| s.metadata_disks().cloned().collect());
        let missing = wanted.iter().filter(|id| present.iter().all(|disk| disk.id != **id));
        let leaving =
            present.iter().filter(|disk| matches!(disk.usage, DiskUse::Retired | DiskUse::Draining));
        let room = open::choose_metadata_disks(&self.core.meta.with_state(Clone::clone)).len();
        let mut count = present.len();
        let mut leaving = leaving.cloned().collect::<Vec<_>>().into_iter();
        for id in missing {
            let online = self.core.disk(*id).is_some_and(|disk| disk.is_online());
            let replaced = leaving.next();
            if !online || (count >= room && replaced.is_none()) {
                continue;
            }
            let record = self.core.meta.with_state(|state| state.disks.get(id).cloned());
            let Some(mut record) = record else { continue };
            record.metadata = true;
            self.core.meta.add_voter(record).await?;
            count += 1;
            if let Some(mut old) = replaced {
                old.metadata = false;
                self.core.meta.commit(vec![Change::PutDisk(old)]).await?;
                count -= 1;
            }
        }
        for mut old in leaving {
            if count <= 1 {
                break;
            }
            old.metadata = false;
            self.core.meta.commit(vec![Change::PutDisk(old)]).await?;
            count -= 1;
        }
        Ok(())
    }
}
