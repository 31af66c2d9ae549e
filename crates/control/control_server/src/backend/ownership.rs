//! What the node needs to own a pool: an epoch, and disks on which nobody of a lower epoch writes.

use control_api::{Code, Problem};
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
    fn fence(&self, pool: Uuid, epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Fenced>;
    /// Refuses disks that other machines reach and that do not have what fencing them needs. Changes nothing on them.
    fn check<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, ()>;
    /// Those of these disks, by their ids, that other nodes of the cluster may reach and that nothing keeps them from: a pool with one stays with
    /// who had it last. Changes nothing on them.
    fn unfenced<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Vec<String>>;
    /// The owner of the highest epoch that one of these disks knows, if that is another node. Asks only.
    fn held<'a>(&'a self, disks: &'a [PoolDisk]) -> Work<'a, Option<Held>>;
}

/// Whose a pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Nobody's: whoever had it has let go of it.
    Free,
    /// This node's.
    Own,
    /// That of another node, which has not let go of it.
    Another {
        /// By what pools know it.
        identity: Uuid,
        /// What it is called.
        name: String,
    },
}

/// What came of fencing disks.
pub enum Fenced {
    /// These are the owner's of the epoch.
    Disks(Vec<PoolDisk>),
    /// One of them has an owner of an epoch that is not below. Nothing of the pool was changed.
    Held(Held),
}

/// Who has a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The epoch.
    pub epoch: u64,
    /// The number by which disks tell nodes apart.
    pub node: u16,
}

impl Held {
    /// Why the pool on the disk cannot be had.
    pub(crate) fn problem(self, pool: &str) -> Problem {
        let Self { epoch, node } = self;
        another_nodes(
            pool,
            &format!("another node's now (number {node:#06x}), which has taken its disks in epoch {epoch}"),
        )
    }
}

/// That a pool is another node's, and what to do about it.
pub(crate) fn another_nodes(pool: &str, whose: &str) -> Problem {
    Problem::new(Code::InUse, format!("pool {pool} is {whose}")).todo(format!(
        "It is served there. To have it here: `holdfast pool export {pool}` there first; where that node is dead, `holdfast pool import {pool}` here keeps it from the disks."
    ))
}

/// How far an epoch may lie above what was known: no owner was ever so far ahead of another. What is further was not written by an owner (other
/// software's key on a disk looks so), and would use up the epochs that there are.
const FURTHEST: u64 = 1 << 32;

/// Whether an epoch that a disk tells of is one to go above.
pub(crate) fn is_followed(above: u64, known: u64) -> bool {
    known > above && known - above < FURTHEST
}

/// For disks that only this machine reaches: its processes open a disk one at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFence;

impl DiskFence for NoFence {
    fn fence(&self, _pool: Uuid, _epoch: u64, disks: Vec<PoolDisk>) -> Work<'_, Fenced> {
        Box::pin(std::future::ready(Ok(Fenced::Disks(disks))))
    }

    fn check<'a>(&'a self, _disks: &'a [PoolDisk]) -> Work<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unfenced<'a>(&'a self, _disks: &'a [PoolDisk]) -> Work<'a, Vec<String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn held<'a>(&'a self, _disks: &'a [PoolDisk]) -> Work<'a, Option<Held>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
