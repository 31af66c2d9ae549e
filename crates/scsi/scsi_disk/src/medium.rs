//! The medium as commands use it: ranges of blocks, reads, and when what was written counts as durable.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::StoreErrorKind;
use scsi_core::ScsiStatus;
use scsi_defs::{Sense, asc};

use crate::reply::Failure;
use crate::storage::Caching;
use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// The range of a command in bytes.
    pub(crate) fn range(&self, lba: u64, blocks: u64) -> Result<(u64, u64), Sense> {
        let all = self.blocks();
        match lba.checked_add(blocks) {
            Some(end) if end <= all && lba <= all && (blocks > 0 || lba < all || all == 0) => {
                Ok((lba * self.block(), blocks * self.block()))
            }
            _ => Err(Sense::illegal(asc::LBA_OUT_OF_RANGE).with_information(lba)),
        }
    }

    /// When a write of a nexus is durable. One is cached only when it is known to who opens the unit next, whatever becomes of this one,
    /// that the nexus has something to lose; it stays known while what comes with it is kept.
    ///
    /// Of a unit that discards what is written none is durable, whoever asks for that.
    ///
    /// # Errors
    /// Where none can be durable, and that its nexus has something to lose cannot be made known: it is to come again.
    pub(crate) async fn durability(
        &self,
        nexus: u64,
        fua: bool,
    ) -> Result<(Durability, Option<Caching<'_>>), Failure> {
        let discards = self.config.discards_writes;
        loop {
            {
                let inner = self.inner.lock();
                if !discards && (fua || !inner.mode.write_cache) {
                    return Ok((Durability::Durable, None));
                }
                if inner.nexuses.get(&nexus).is_some_and(|entry| entry.named) {
                    // Under the lock: whoever takes names out of the row, or lets go of the storage, sees it, or has done so before.
                    return Ok((Durability::Volatile, Some(self.cached.begin(inner.storages))));
                }
            }
            match self.name(nexus).await {
                Ok(true) => {}
                _ if !discards => return Ok((Durability::Durable, None)),
                Ok(false) => return Err(Failure::Status(ScsiStatus::Busy)),
                // What is away is waited for.
                Err(error) if error.kind() == StoreErrorKind::Stopped => return Err(Failure::Away),
                Err(_) => return Err(Failure::Status(ScsiStatus::Busy)),
            }
        }
    }

    /// Ends what was written: whoever turned the write cache off meanwhile relies on all that is answered from then on, and
    /// may have flushed before this was written.
    ///
    /// # Errors
    /// Of a unit that discards what is written, when it has let go of its storage since: nothing of it is there any more. What is answered
    /// before that is told of as lost when the storage goes, and so afterwards.
    pub(crate) async fn settle(
        &self,
        durability: Durability,
        caching: Option<&Caching<'_>>,
    ) -> Result<(), Failure> {
        if durability == Durability::Volatile {
            self.cached.note();
            let (caches, storages) = {
                let inner = self.inner.lock();
                (inner.mode.write_cache, inner.storages)
            };
            if self.config.discards_writes && caching.is_some_and(|caching| caching.storage != storages) {
                return Err(Failure::Away);
            }
            if !caches {
                self.backing().flush().await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn read_exact(&self, offset: u64, len: u64) -> Result<IoBuf, Failure> {
        let buf = self.backing().read(offset, IoBuf::new(len as usize)).await?;
        if buf.len() as u64 == len { Ok(buf) } else { Err(Sense::illegal(asc::LBA_OUT_OF_RANGE).into()) }
    }
}
