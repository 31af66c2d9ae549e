//! What the cache promises, on disks in memory, simulated ones, and one that answers at awkward moments.

mod conforms;
mod policy;
mod races;
mod read_ahead;
mod sizes;

use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Device, MemoryDisk};

use crate::{CachedDevice, ReadCache};

const MIB: u64 = 1 << 20;

/// A cached disk of zeros in memory, with the disk beneath.
fn cached(limit: u64, size: u64) -> (Arc<ReadCache>, CachedDevice, Arc<MemoryDisk>) {
    let cache = ReadCache::with_shards(limit, 4);
    let disk = Arc::new(MemoryDisk::new(size as usize, 4096));
    let device = CachedDevice::new(&cache, Arc::clone(&disk) as Device, "disk");
    (cache, device, disk)
}

fn filled(byte: u8, len: usize) -> SharedBuf {
    IoBuf::copy_from(&vec![byte; len]).freeze()
}

async fn read(device: &dyn BlockDevice, offset: u64, len: usize) -> IoBuf {
    device.read(offset, IoBuf::zeroed(len)).await.expect("read")
}

fn check(cache: &ReadCache) {
    cache.shards().iter().for_each(|shard| shard.lock().check());
}
