//! What does not go through the log: long writes, unmaps, everything when there is no log; and flushes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::SharedBuf;
use block_device::{BlockError, Durability};
use write_log_format::{Entry, EntryKind};

use crate::core::{Admission, Core, poisoned, range};
use crate::status::LogMode;
#[cfg(test)]
use crate::tests::Sabotage;

/// A change of the back.
#[derive(Clone)]
pub(crate) enum Direct {
    Data(SharedBuf),
    Zeroes,
    Unmap,
}

impl Core {
    /// Makes a change straight on the back (L3). Must come to its end.
    pub(crate) async fn change_back(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        change: Direct,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let order = self.changes.lock(offset, len).await;
        let ticket = self.change_back_in_order(offset, len, change, durability).await?;
        drop(order);
        self.acknowledge(ticket, durability).await
    }

    /// The same for who holds the range of `changes`. Gives the ticket of the entry that voids older ones, 0 for none.
    pub(crate) async fn change_back_in_order(
        self: &Arc<Self>,
        offset: u64,
        len: u64,
        change: Direct,
        durability: Durability,
    ) -> Result<u64, BlockError> {
        let bytes = range(offset, len);
        {
            let _writing = self.writing_back.lock(offset, len).await;
            let waits = {
                let inner = self.inner.lock();
                if inner.mode == LogMode::Poisoned {
                    return Err(poisoned(&inner));
                }
                inner.pieces.overlap(&bytes)
            };
            // Pieces that it takes the place of may be all there is of acknowledged data.
            let needed = if waits { Durability::Durable } else { durability };
            #[cfg(test)]
            let needed = if self.is_broken(Sabotage::VolatileBack) { durability } else { needed };
            let at = self.shift + offset;
            let unmaps = matches!(change, Direct::Unmap);
            match change {
                Direct::Data(data) => self.back.write(at, data, needed).await?,
                Direct::Zeroes => self.back.write_zeroes(at, len, needed).await?,
                Direct::Unmap => self.back.unmap(at, len).await?,
            }
            if needed == Durability::Volatile || unmaps {
                self.unflushed.fetch_add(1, Ordering::AcqRel);
            }
            if waits && unmaps {
                // It has no durable form.
                self.flush_back().await?;
            }
            self.inner.lock().pieces.remove(&bytes);
        }
        self.counters.direct_writes.add(1);
        self.counters.direct_bytes.add(len);
        {
            let inner = self.inner.lock();
            if inner.mode != LogMode::Logging || !inner.could_replay() {
                return Ok(0);
            }
        }
        #[cfg(test)]
        if self.is_broken(Sabotage::ForgetNothing) {
            return Ok(0);
        }
        // When there is no room for it, the change fails, as any may: until the tail has passed the older entries a crash
        // brings back what was there before, which was acknowledged and the change was not.
        let entry = Entry { kind: EntryKind::Forget, offset, len };
        match self.admit(entry, None).await? {
            Admission::Queued(ticket) => Ok(ticket),
            Admission::Through => Ok(0),
        }
    }

    /// Waits as long as the durability wants it.
    pub(crate) async fn acknowledge(
        self: &Arc<Self>,
        ticket: u64,
        durability: Durability,
    ) -> Result<(), BlockError> {
        // While the front is being left, a crash would still replay it.
        self.settled().await?;
        if ticket == 0 {
            return Ok(());
        }
        if durability == Durability::Durable {
            return self.wait_for(ticket).await;
        }
        if self.start_committing() {
            self.commit().await;
        }
        Ok(())
    }

    /// Everything that was acknowledged becomes durable.
    pub(crate) async fn flush_all(self: &Arc<Self>) -> Result<(), BlockError> {
        let given = {
            let inner = self.inner.lock();
            if inner.mode == LogMode::Poisoned {
                return Err(poisoned(&inner));
            }
            inner.given
        };
        let unflushed = self.unflushed.load(Ordering::Acquire);
        self.wait_for(given).await?;
        self.settled().await?;
        if self.flushed.load(Ordering::Acquire) < unflushed {
            self.flush_back().await?;
        }
        Ok(())
    }
}
