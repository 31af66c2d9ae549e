//! What the node needs to own a pool: an epoch, and disks on which nobody of a lower epoch writes.

use uuid::Uuid;

use super::{PoolDisk, Work};

/// Says in which epoch this node owns a pool.
///
/// An epoch that was given out is never given out again, whatever becomes of the process: it is durable before it is answered.
pub trait PoolOwner: Send + Sync + 'static {
    /// Takes the pool: it is this node's in the epoch that comes back, which is above `above` and above all that is known of it. Where
    /// others may own it too, this is for nodes that have no others; there a claim decides, and orders say the epoch.
    fn take(&self, pool: Uuid, above: u64) -> Work<'_, u64>;
    /// A pool was made, and opened in this epoch.
    fn made(&self, pool: Uuid, epoch: u64) -> Work<'_, ()>;
    /// The pool is not this node's any more. Of a pool that is known nowhere this is no error.
    fn forget(&self, pool: Uuid) -> Work<'_, ()>;
}

/// Keeps those away from disks that owned their pool in a lower epoch.
pub trait DiskFence: Send + Sync + 'static {
    /// When this has ended, nobody of a lower epoch changes what is on these disks. Disks where that cannot be had are not among what
    /// comes back: they are not to be opened.
    fn fence(&self, pool: Uuid, epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Vec<PoolDisk>>;
}

/// For disks that only this machine reaches: its processes open a disk one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFence;

impl DiskFence for NoFence {
    fn fence(&self, _pool: Uuid, _epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Vec<PoolDisk>> {
        Box::pin(std::future::ready(Ok(disks)))
    }
}
