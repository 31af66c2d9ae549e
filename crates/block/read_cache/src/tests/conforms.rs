//! The contract of block devices holds with the cache in front, however small it is.

use std::sync::Arc;

use block_conformance::{Options, Subject, SubjectFuture};
use block_device::{BlockDevice, Device, MemoryDisk, UnmapBehavior};
use parking_lot::Mutex;
use sim::{Dice, Pace, Power, SimDisk, SimSpec, Survival, on_shard};

use super::MIB;
use crate::{CachedDevice, ReadAhead, ReadCache};

struct Memory {
    cache: Arc<ReadCache>,
    block_size: u32,
    mode: ReadAhead,
}

impl Subject for Memory {
    fn create(&self) -> SubjectFuture<'_, Device> {
        let disk = Arc::new(MemoryDisk::new(12 << 20, self.block_size));
        let device = CachedDevice::new(&self.cache, disk, "disk");
        device.set_read_ahead(self.mode);
        let device: Device = Arc::new(device);
        Box::pin(async { device })
    }
}

#[test]
fn a_cached_disk_conforms() {
    for (seed, limit) in [(1, 0), (2, MIB), (3, 64 * MIB)] {
        for (block_size, mode) in
            [(4096, ReadAhead::None), (512, ReadAhead::Adaptive), (4096, ReadAhead::Fixed(96 << 10))]
        {
            let subject = Memory { cache: ReadCache::with_shards(limit, 4), block_size, mode };
            on_shard(block_conformance::run(&subject, Options::seeded(seed)))
                .expect("event loop")
                .unwrap_or_else(|failure| panic!("{limit} {block_size} {mode:?}: {failure}"));
            super::check(&subject.cache);
        }
    }
}

struct Simulated {
    power: Arc<Power>,
    block_size: u32,
    last: Mutex<Option<Arc<SimDisk>>>,
}

impl Simulated {
    fn attach(&self, disk: &SimDisk) -> Device {
        // What was in memory is gone with the power.
        let device = CachedDevice::new(&ReadCache::with_shards(2 * MIB, 4), disk.device(), "disk");
        device.set_read_ahead(ReadAhead::Adaptive);
        Arc::new(device)
    }
}

impl Subject for Simulated {
    fn create(&self) -> SubjectFuture<'_, Device> {
        let spec = SimSpec {
            size: 12 << 20,
            block_size: self.block_size,
            unmap: UnmapBehavior::Zeroes,
            pace: Pace::default(),
        };
        let disk = SimDisk::new(&self.power, &spec);
        let device = self.attach(&disk);
        *self.last.lock() = Some(disk);
        Box::pin(async { device })
    }

    fn power_cut(&self, device: Device) -> SubjectFuture<'_, Option<Device>> {
        drop(device);
        self.power.cut(Survival::Sectors(50));
        self.power.restore();
        let disk = self.last.lock().clone();
        Box::pin(async move { disk.map(|disk| self.attach(&disk)) })
    }
}

#[test]
fn a_cached_simulated_disk_conforms_and_promises_no_more_than_the_disk() {
    for (seed, block_size) in [(5, 512), (6, 4096)] {
        let power = Power::new(Dice::new(seed));
        let subject = Simulated { power, block_size, last: Mutex::default() };
        on_shard(block_conformance::run(&subject, Options::seeded(seed)))
            .expect("event loop")
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn geometry_and_size_are_the_devices() {
    let (_, device, disk) = super::cached(MIB, 2 * MIB);
    assert_eq!((device.geometry(), device.size()), (disk.geometry(), disk.size()));
}
