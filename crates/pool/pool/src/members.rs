//! Disks of an open pool: they return, get lost, join, change their use and leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::Device;
use pool_format::{BLOCK, Change, DiskId, DiskUse, Guid, Mark, Released};

use crate::cut_short::CutShort;
use crate::disk::{PoolDisk, SLOT_UNKNOWN};
use crate::error::{PoolError, PoolErrorKind};
use crate::find;
use crate::marks;
use crate::open::{self, NewDisk};
use crate::pool::Pool;
use crate::votes::AREA_FULL;
use crate::went_back;

impl Pool {
    /// Takes back a disk of this pool that was missing. What it missed is copied in the background.
    ///
    /// # Errors
    /// When the disk is not one of this pool's, is in use already, or is smaller than it was.
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
        if let Some(cut) = CutShort::of(device.size(), &probe.superblock) {
            disk.tell_why_offline(&cut.to_string());
            return Err(PoolError::new(
                PoolErrorKind::Damaged,
                format!("disk {} cannot be used: {cut}", disk.id),
            ));
        }
        let has = probe.superblock.mark();
        if has.epoch > self.core.meta.epoch() {
            let detail = format!("disk {} has been in another hand since: it knows {has}", disk.id);
            return Err(PoolError::new(PoolErrorKind::InUse, detail));
        }
        self.core.mark_losses(&disk).await?;
        let back = self.core.meta.with_state(|state| went_back::went_back(state, disk.id, has));
        let back = back.filter(|_| !self.core.faults.trust_stale_member.load(Ordering::Relaxed));
        if let Some(back) = back {
            tracing::warn!("disk {} of pool {}: {back}; its copies are made anew", disk.id, self.core.name);
            marks::distrust_returning(&self.core, &disk, back).await?;
        }
        let marking = self.core.marking.lock().await;
        let mark = Mark { epoch: self.core.meta.epoch(), seq: self.core.meta.seq() };
        let mut superblock = probe.superblock.clone();
        (superblock.epoch, superblock.seq) = (mark.epoch, mark.seq);
        if disk.newest_slot.load(Ordering::Acquire) == SLOT_UNKNOWN
            && let Some((slot, _)) = find::newest_checkpoint(&probe).await?
        {
            disk.newest_slot.store(slot, Ordering::Release);
        }
        open::write_superblock(&device, &superblock).await?;
        *disk.layout.write() = superblock;
        *disk.went_back.lock() = back;
        disk.bring_online(device);
        // Metadata that it missed comes with a checkpoint; until then its copy of the log has a gap.
        self.core.meta.checkpoint().await?;
        self.core.meta.commit(vec![Change::Mark { disk: disk.id, mark }]).await?;
        drop(marking);
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
        let mark = Mark { epoch: core.meta.epoch(), seq: core.meta.seq() };
        let entropy = &*self.surroundings.entropy;
        let mut superblock = open::prepare(&disk, id, &state, overwrite_foreign, mark.epoch, entropy).await?;
        superblock.seq = mark.seq;
        let usage = if spare { DiskUse::Spare } else { DiskUse::Active };
        let record = open::disk_record(&disk, &superblock, usage);
        if !core.has_metadata_room_for_a_disk(&record) {
            return Err(PoolError::new(
                PoolErrorKind::NoSpace,
                format!("{AREA_FULL}, after deleting a volume"),
            ));
        }
        open::clear_metadata(&disk.device, &superblock).await?;
        open::write_superblock(&disk.device, &superblock).await?;
        let count = record.slab_count;
        let surroundings = (Arc::clone(&core.clock), Arc::clone(core.meta.ownership()));
        let joining = PoolDisk::new(id, superblock, Some(disk.device), surroundings);
        core.disks.write().insert(id, Arc::new(joining));
        // Before the metadata has the disk: from then on rows are to find its slabs, and until then nobody looks for any.
        core.slabs.lock().add_disk(id, count);
        if let Err(failed) =
            core.meta.commit(vec![Change::PutDisk(record), Change::Mark { disk: id, mark }]).await
        {
            core.slabs.lock().remove_disk(id);
            core.disks.write().remove(&id);
            return Err(failed.into());
        }
        self.core.spread_metadata(0).await?;
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

    pub(crate) async fn set_disk_use_alone(&self, id: DiskId, usage: DiskUse) -> Result<(), PoolError> {
        {
            let _one = self.core.voting.lock().await;
            let record = self.core.meta.with_state(|state| state.disks.get(&id).cloned());
            let mut record = record
                .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}")))?;
            record.usage = usage;
            self.core.meta.commit(vec![Change::PutDisk(record)]).await?;
        }
        self.core.spread_metadata(0).await?;
        if usage == DiskUse::Active {
            self.core.balancer.tell_joined();
        }
        self.core.call_repair();
        Ok(())
    }

    /// Says of which node a disk is, when the pool does not know it so: copies and votes are spread over nodes from then on.
    ///
    /// # Errors
    /// When there is no such disk.
    pub async fn set_disk_node(&self, id: DiskId, node: &str) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        {
            let _one = self.core.voting.lock().await;
            let record = self.core.meta.with_state(|state| state.disks.get(&id).cloned());
            let mut record = record
                .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no disk {id}")))?;
            if record.node == node {
                return Ok(());
            }
            node.clone_into(&mut record.node);
            self.core.meta.commit(vec![Change::PutDisk(record)]).await?;
        }
        self.core.spread_metadata(0).await?;
        self.core.balancer.tell_joined();
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
        // No mark is written to it once it is nobody's.
        let _no_mark = self.core.marking.lock().await;
        self.core.meta.commit(vec![Change::RemoveDisk(id)]).await?;
        let disk = self.core.disks.write().remove(&id);
        self.core.slabs.lock().remove_disk(id);
        if let Some(disk) = disk
            && disk.is_online()
        {
            let size = disk.layout.read().disk_size;
            let mark = Released { pool: self.core.guid, pool_name: self.core.name.clone() }.encode();
            let mark = aligned_buffer::IoBuf::copy_from(&mark).freeze();
            // So that it is nobody's: the next probe finds no pool on it.
            for at in [0, size - BLOCK] {
                disk.write(at, mark.clone(), block_device::Durability::Durable).await?;
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
}
