//! What is on a disk: a member of a pool, data of others, nothing.

use aligned_buffer::IoBuf;
use block_device::Device;
use control_api::{Code, Problem};
use pool_format::{SUPERBLOCK_BYTES, Superblock, foreign};
use uuid::Uuid;

use crate::backend::DiskContent;

/// Everything that names data of others lies in this much at either end of a disk (`pool_format::foreign`).
const SAMPLE: u64 = foreign::SAMPLE_BYTES as u64;

/// What is on a device.
pub(super) async fn look(device: Device) -> Result<DiskContent, Problem> {
    let block = u64::from(device.geometry().block_size);
    let size = device.size();
    // Whole blocks, of small disks too.
    let len = SAMPLE.min(size) / block * block;
    let read = async |offset| {
        device
            .read(offset, IoBuf::new(len as usize))
            .await
            .map_err(|error| Problem::new(Code::Io, error.to_string()))
    };
    let head = read(0).await?;
    let tail = read(size - len).await?;
    let last = tail.len().checked_sub(SUPERBLOCK_BYTES).and_then(|at| tail.get(at..));
    for block in [head.get(..SUPERBLOCK_BYTES), last].into_iter().flatten() {
        if let Ok(superblock) = Superblock::decode(block) {
            return Ok(DiskContent::Member {
                pool_name: superblock.pool_name,
                pool: Uuid::from_bytes(superblock.pool.0),
                disk: Uuid::from_bytes(superblock.disk.0),
            });
        }
    }
    Ok(foreign::detect(&head, &tail).map_or(DiskContent::Empty, DiskContent::Foreign))
}
