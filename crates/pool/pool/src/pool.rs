//! An open pool. It is opened in `opening.rs` and closed in `closing.rs`; its spaces are in `spaces.rs`, its disks in `members.rs`.

use std::sync::Arc;

use block_device::Device;
use parking_lot::Mutex;
use pool_format::Guid;
use shard_runtime::{Clock, Entropy};
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::faults::Faults;
use crate::params::RepairParams;
use crate::witness::QuorumWitness;

/// What pools need from their surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for identities.
    pub entropy: Arc<dyn Entropy>,
    /// The vote apart from the disks.
    pub witness: Arc<dyn QuorumWitness>,
}

/// An open pool. Its tasks live on the shard that opened it; its spaces serve all shards.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    pub(crate) surroundings: Surroundings,
    /// Its background work.
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Pool {
    /// A pool that is dropped without [`Pool::close`] stops as in a crash: its tasks must not go on writing to disks that
    /// somebody else may open next.
    fn drop(&mut self) {
        self.core.stop();
    }
}

impl Pool {
    /// Its identity.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.core.guid
    }

    /// Whether its metadata did not reach a majority of its disks: it does nothing more until it is opened again.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.core.meta.is_poisoned()
    }

    /// Whether this device is what it has open for a member, and not only a disk that says that it is that member.
    #[must_use]
    pub fn uses(&self, member: Guid, device: &Device) -> bool {
        self.core.all_disks().iter().any(|disk| disk.guid == member && disk.has_open(device))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Size of its slabs, in bytes.
    #[must_use]
    pub fn slab_size(&self) -> u64 {
        self.core.slab_size
    }

    /// Deliberate defects for tests of the tests.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// How repair may use the disks from now on.
    pub fn set_repair_params(&self, params: RepairParams) {
        *self.core.params.write() = params;
        self.core.attention.notify_one();
    }

    /// How repair may use the disks.
    #[must_use]
    pub fn repair_params(&self) -> RepairParams {
        *self.core.params.read()
    }

    /// Keeps at most this many bytes of checksums in memory from now on (four for each 4 KiB of data in use).
    pub fn set_checksum_memory(&self, bytes: usize) {
        self.core.sums.set_limit(bytes);
    }
}
