//! Giving up what a device holds.

use block_device::{BlockError, Device, Durability, UnmapBehavior};

/// Makes a range of the device read as zeros, without its space where the device can do that.
pub(crate) async fn clear(device: &Device, offset: u64, len: u64) -> Result<(), BlockError> {
    if device.geometry().unmap == UnmapBehavior::Zeroes {
        device.unmap(offset, len).await
    } else {
        device.write_zeroes(offset, len, Durability::Volatile).await
    }
}
