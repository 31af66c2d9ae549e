//! Whether the superblock says that a log may stand before the device: older releases, which would not look for one, refuse
//! such a volume.
//!
//! The feature is set before a log is put there, and cleared when the log is gone. Copies that differ after a power cut count
//! as having it: so it may be there without a log, and a log never without it.

use std::sync::Arc;

use block_device::Device;
use file_store::StoreError;
use volume_format::{FEATURE_LOG, Superblock};

use crate::core::Core;
use crate::integrity;
use crate::volume::{Volume, write_superblocks};

impl Core {
    pub(crate) fn superblock_with(&self, features: u32) -> Superblock {
        Superblock { features, ..self.superblock.clone() }
    }
}

impl Volume {
    /// Whether the volume on a device says that a log may stand before that. False where there is no volume.
    ///
    /// # Errors
    /// When the device cannot be read and nothing is known.
    pub async fn expects_log(device: &Device) -> Result<bool, StoreError> {
        integrity::frame(device, None).await.expects_log()
    }

    /// Says in the superblock, durably, whether a log may stand before the device; writes nothing when both copies say so.
    ///
    /// # Errors
    /// When the volume is closed or the device fails: the feature counts as set then.
    pub async fn set_logged(&self, logged: bool) -> Result<(), StoreError> {
        let core = Arc::clone(&self.core);
        let write = async move {
            let _operation = core.begin()?;
            let mut features = core.features.lock().await;
            let others = *features & !FEATURE_LOG;
            let wanted = if logged { others | FEATURE_LOG } else { others };
            write_superblocks(&core.device, &core.superblock_with(wanted)).await?;
            *features = wanted;
            Ok(())
        };
        shard_runtime::finish_anyway(write).await
    }
}
