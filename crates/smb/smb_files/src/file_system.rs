//! One volume as a file system: what belongs to no single open.

use std::sync::Arc;

use file_store::FileStore;
use smb_protocol::{FileTime, Guid};
use shard_runtime::{Clock, Entropy};

/// How the volume presents itself.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Its label.
    pub label: String,
    /// Its serial number: of 64 bits in FileIdInformation, the lower half in FileFsVolumeInformation.
    pub serial: u64,
    /// Its identifier.
    pub id: Guid,
    /// When it was made.
    pub created: FileTime,
    /// Bytes of a cluster.
    pub cluster: u32,
    /// What it says it is: clients decide by the name what to try.
    pub kind: String,
}

/// The files of one volume with their opens. Cheap to clone.
#[derive(Clone)]
pub struct FileSystem {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) store: Arc<dyn FileStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: VolumeOptions,
    pub(crate) instance: [u8; 16],
}

impl FileSystem {
    /// The file system on a store. `entropy` makes resume keys and tokens that nobody can guess.
    #[must_use]
    pub fn new(
        store: Arc<dyn FileStore>,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        options: VolumeOptions,
    ) -> Self {
        let instance = entropy.next_id();
        Self { core: Arc::new(Core { store, clock, options, instance }) }
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn FileStore> {
        &self.core.store
    }
}
