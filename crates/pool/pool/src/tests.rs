//! The open pool over disks that can vanish, fail to flush and lose power.

mod age;
mod ahead;
mod area;
mod awaited;
mod balance;
mod bench_disk;
mod closing;
mod conformance;
mod crash;
mod cut_short;
mod disks;
mod earlier_life;
mod epochs;
mod exchange;
mod fenced;
mod first_reads;
mod full;
mod integrity;
mod lost;
mod lost_beside;
mod mended;
mod moments;
mod owners;
mod promises;
mod quorum;
mod replays;
mod reserve;
mod spaces;
mod told;
mod torn;
mod two_lost;
mod unknown;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use block_device::Device;
use shard_runtime::{Clock, Monotonic, SeededEntropy, WallTime};

use crate::{CreateOptions, DiskDescription, MemoryWitness, NewDisk, Pool, Surroundings};
use bench_disk::TestDisk;

/// Small slabs: regions of 16 KiB.
const SLAB: u64 = 1 << 20;
const DISK: usize = 24 << 20;

/// Runs a test as on a shard, with time that passes only when everybody waits.
fn on_shard<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("runtime"), async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

/// The paused time of the test's runtime.
struct VirtualClock;

impl Clock for VirtualClock {
    fn now(&self) -> Monotonic {
        thread_local! {
            static START: tokio::time::Instant = tokio::time::Instant::now();
        }
        Monotonic(START.with(|start| start.elapsed().as_nanos() as u64))
    }

    fn wall(&self) -> WallTime {
        WallTime(self.now().0)
    }
}

struct Bench {
    disks: Vec<Arc<TestDisk>>,
    /// Writes until the power goes.
    power: Arc<AtomicU64>,
    surroundings: Surroundings,
}

impl Bench {
    /// `count` disks, the first half in enclosure a, the others in b.
    fn new(count: usize) -> Self {
        let surroundings = Surroundings {
            clock: Arc::new(VirtualClock),
            entropy: Arc::new(SeededEntropy::new(1)),
            witness: Arc::new(MemoryWitness::default()),
        };
        let power = Arc::new(AtomicU64::new(u64::MAX));
        let disks = (0..count).map(|_| Arc::new(TestDisk::new(DISK, Arc::clone(&power)))).collect();
        Self { disks, power, surroundings }
    }

    fn new_disk(&self, index: usize) -> NewDisk {
        let enclosure = if index < self.disks.len().div_ceil(2) { "a" } else { "b" };
        let description = DiskDescription { enclosure: enclosure.into(), ..DiskDescription::default() };
        NewDisk { device: self.device(index), name: format!("disk{index}"), description }
    }

    fn device(&self, index: usize) -> Device {
        Arc::clone(&self.disks[index]) as Device
    }

    fn devices(&self) -> Vec<Device> {
        (0..self.disks.len()).map(|index| self.device(index)).collect()
    }

    async fn create(&self) -> Pool {
        self.create_on(self.disks.len()).await
    }

    /// A pool on the first `count` disks.
    async fn create_on(&self, count: usize) -> Pool {
        let disks = (0..count).map(|index| self.new_disk(index)).collect();
        let options = CreateOptions { name: "p".into(), slab_size: SLAB, overwrite_foreign: false };
        Pool::create(disks, options, self.surroundings.clone()).await.expect("create")
    }
}
