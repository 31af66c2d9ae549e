//! Clients that read and write blocks, go to another node when one does not answer, and know what they may be told.
//!
//! Each block has one client that writes it: the values are 1, 2, 3 …, and each is written until it is acknowledged. So a read is
//! right exactly when its value is at least that of the last write that was acknowledged, and of the last read that was answered,
//! before it began, and at most that of the last write that has begun when it ends: the block is linearizable.

use crate::disk::Block;
use crate::life::Time;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) id: u64,
    pub(crate) block: Block,
    pub(crate) write: Option<u64>,
    /// A read has to tell this or something newer.
    floor: u64,
    pub(crate) begun: Time,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) pool: usize,
    /// The block that only this client writes.
    pub(crate) own: Option<Block>,
    pub(crate) node: usize,
    pub(crate) connection: u64,
    pub(crate) operation: Option<Operation>,
    /// When the last operation was answered that began after everything had healed.
    pub(crate) served: Option<Time>,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) begun: u64,
    pub(crate) acknowledged: u64,
    seen: u64,
}

impl Known {
    /// A new operation; its write takes the next value.
    pub(crate) fn begin(&mut self, id: u64, block: Block, writes: bool, now: Time) -> Operation {
        let floor = self.acknowledged.max(self.seen);
        if writes {
            self.begun += 1;
        }
        Operation { id, block, write: writes.then_some(self.begun), floor, begun: now }
    }

    /// An answer arrives.
    pub(crate) fn end(&mut self, operation: &Operation, value: u64) -> Result<(), String> {
        if operation.write.is_some() {
            self.acknowledged = self.acknowledged.max(value);
            return Ok(());
        }
        if value < operation.floor || value > self.begun {
            let lost = if value < self.acknowledged {
                "an acknowledged write is lost or hidden"
            } else {
                "time goes back"
            };
            return Err(format!(
                "{lost}: block {} is read as {value}, {} was known before, {} was begun",
                operation.block, operation.floor, self.begun
            ));
        }
        self.seen = self.seen.max(value);
        Ok(())
    }
}
