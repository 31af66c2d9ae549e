//! The queues before volumes, in which reads and writes wait for their turn (`commands/turn`).

use std::sync::Arc;

use qos_gate::{Asked, Disk};
use uuid::Uuid;

/// The queues before volumes, as the node has them.
pub trait Queues: Send + Sync + 'static {
    /// A number that changes whenever files may have other disks than before.
    fn generation(&self) -> u64;

    /// The disk that a file is in the queue of its volume: `path` is that in the volume, with `/` before each name. `None`: it waits for
    /// nothing.
    fn disk(&self, share: &str, path: &str, wanted: Option<&Wanted>) -> Option<Arc<Disk>>;
}

/// What a host wants for the virtual disk that it has a file open as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its flow: each that a host names has another one.
    pub flow: Uuid,
    /// The policy, or the terms.
    pub asked: Asked,
}

/// No queues: nothing waits.
pub struct NoQueues;

impl Queues for NoQueues {
    fn generation(&self) -> u64 {
        0
    }

    fn disk(&self, _share: &str, _path: &str, _wanted: Option<&Wanted>) -> Option<Arc<Disk>> {
        None
    }
}
