//! Two nodes at one set of disks with reservations: whoever is fenced on a single disk stops altogether.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, MemoryDisk};
use shard_runtime::sleep;

use super::{Bench, DISK, SLAB, on_shard};
use crate::{
    CreateOptions, DiskDescription, NewDisk, OpenOptions, Pool, PoolErrorKind, Resiliency, Space, SpaceSpec,
    Surroundings,
};

/// Keys of the two nodes.
const FIRST: u64 = 1 << 16 | 1;
const SECOND: u64 = 2 << 16 | 2;

/// The same disks as two nodes see them.
struct Shared {
    first: Vec<Arc<MemoryDisk>>,
    second: Vec<Arc<MemoryDisk>>,
    surroundings: Surroundings,
}

impl Shared {
    fn new(count: usize) -> Self {
        let first: Vec<_> = (0..count).map(|_| Arc::new(MemoryDisk::new(DISK, 4096))).collect();
        let second = first.iter().map(|disk| Arc::new(disk.another_initiator())).collect();
        Self { first, second, surroundings: Bench::new(0).surroundings }
    }

    /// A pool of the first node, which has reserved all disks.
    async fn create(&self) -> Pool {
        for disk in &self.first {
            let reservations = disk.reservations().expect("reservations");
            reservations.register(FIRST).await.expect("register");
            reservations.reserve(FIRST).await.expect("reserve");
        }
        let disks = self.first.iter().enumerate().map(|(index, disk)| NewDisk {
            device: Arc::clone(disk) as Device,
            name: format!("disk{index}"),
            description: DiskDescription::default(),
        });
        let options = CreateOptions { name: "p".into(), slab_size: SLAB, overwrite_foreign: false };
        Pool::create(disks.collect(), options, self.surroundings.clone()).await.expect("create")
    }

    /// The second node takes one disk from the first.
    async fn fence(&self, index: usize) {
        let reservations = self.second[index].reservations().expect("reservations");
        reservations.register(SECOND).await.expect("register");
        reservations.preempt_and_abort(SECOND, FIRST).await.expect("preempt");
    }

    fn devices(disks: &[Arc<MemoryDisk>]) -> Vec<Device> {
        disks.iter().map(|disk| Arc::clone(disk) as Device).collect()
    }

    /// All that is on the disks.
    async fn content(&self) -> Vec<Vec<u8>> {
        let mut content = Vec::new();
        for disk in &self.second {
            content.push(disk.read(0, IoBuf::new(DISK)).await.expect("read").to_vec());
        }
        content
    }
}

fn data(byte: u8) -> aligned_buffer::SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

async fn put(space: &Space, at: u64, byte: u8) -> Result<(), BlockErrorKind> {
    space.write(at, data(byte), Durability::Durable).await.map_err(|error| error.kind())
}

async fn get(space: &Space, at: u64) -> Result<u8, BlockErrorKind> {
    space.read(at, IoBuf::new(4096)).await.map(|buf| buf[0]).map_err(|error| error.kind())
}

fn spec(resiliency: Resiliency) -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", resiliency, 6 * SLAB);
    spec.interleave = 4096;
    spec
}

const LAYOUTS: [(usize, Resiliency); 3] =
    [(1, Resiliency::Simple), (2, Resiliency::Mirror(2)), (4, Resiliency::Mirror(3))];

#[test]
fn one_fenced_disk_stops_the_whole_pool_at_once() {
    for (disks, resiliency) in LAYOUTS {
        on_shard(async {
            let shared = Shared::new(disks);
            let pool = shared.create().await;
            let space = pool.create_space(spec(resiliency)).await.expect("space");
            for row in 0..3 {
                put(&space, row * SLAB, 1).await.expect("the owner alone");
            }
            shared.fence(0).await;
            // Overwrites of dirty regions, which need no metadata: all rows, as not each lies on the fenced disk.
            let mut refused = false;
            for row in 0..3 {
                refused |= put(&space, row * SLAB, 2).await == Err(BlockErrorKind::Fenced);
            }
            assert!(refused, "{disks} disks: a write was called good that a fenced disk has refused");
            let before = shared.content().await;
            let fenced = Err(BlockErrorKind::Fenced);
            for row in 0..4 {
                assert_eq!(put(&space, row * SLAB, 3).await, fenced, "{disks} disks, row {row}");
                assert_eq!(get(&space, row * SLAB).await, fenced.map(|()| 0), "{disks} disks, row {row}");
                let zeroed = space.write_zeroes(row * SLAB, 4096, Durability::Volatile).await;
                assert_eq!(zeroed.map_err(|error| error.kind()), fenced);
                assert_eq!(space.unmap(row * SLAB, 4096).await.map_err(|error| error.kind()), fenced);
                assert_eq!(space.allocate(row * SLAB, SLAB).await.map_err(|error| error.kind()), fenced);
            }
            assert_eq!(space.flush().await.map_err(|error| error.kind()), fenced);
            let status = pool.status();
            assert!(status.stopped && status.superseded && pool.has_stopped());
            let made = pool.create_space(SpaceSpec::thin("t", Resiliency::Simple, SLAB)).await;
            assert_eq!(made.err().map(|error| error.kind()), Some(PoolErrorKind::Fenced));
            // Nothing of its background does anything either, to no disk.
            sleep(Duration::from_secs(600)).await;
            let closed = pool.close().await.map_err(|error| error.kind());
            assert_eq!(closed, Err(PoolErrorKind::Fenced));
            assert!(shared.content().await == before, "{disks} disks: something was written after the fence");
        });
    }
}

/// A majority of the votes would be there without the fenced disk: it is not asked for any more.
#[test]
fn metadata_is_not_committed_on_the_disks_that_are_left() {
    for (disks, resiliency) in [(3, Resiliency::Mirror(2)), (5, Resiliency::Mirror(3))] {
        on_shard(async {
            let shared = Shared::new(disks);
            let pool = shared.create().await;
            let space = pool.create_space(spec(resiliency)).await.expect("space");
            put(&space, 0, 1).await.expect("the owner alone");
            // One of three or five: the others would be a majority.
            shared.fence(disks - 1).await;
            let made = pool.create_space(SpaceSpec::thin("t", Resiliency::Simple, SLAB)).await;
            assert_eq!(made.err().map(|error| error.kind()), Some(PoolErrorKind::Fenced));
            assert!(pool.has_stopped() && pool.space("t").is_none());
            assert_eq!(put(&space, 0, 2).await, Err(BlockErrorKind::Fenced));
        });
    }
}

#[test]
fn who_takes_over_has_everything_and_the_one_before_changes_nothing() {
    for (disks, resiliency) in LAYOUTS {
        on_shard(async {
            let shared = Shared::new(disks);
            let first = shared.create().await;
            let mine = first.create_space(spec(resiliency)).await.expect("space");
            for row in 0..5 {
                put(&mine, row * SLAB, 1).await.expect("the owner alone");
            }
            for disk in 0..disks {
                shared.fence(disk).await;
            }
            let devices = Shared::devices(&shared.second);
            let options = OpenOptions::default();
            let guid = first.guid();
            let second = Pool::open(guid, devices, options, shared.surroundings.clone()).await.expect("open");
            let space = second.space("s").expect("space");
            for row in 0..5 {
                assert_eq!(get(&space, row * SLAB).await, Ok(1), "{disks} disks, row {row}");
                put(&space, row * SLAB, 2).await.expect("the new owner");
                assert_eq!(put(&mine, row * SLAB, 3).await, Err(BlockErrorKind::Fenced));
            }
            assert!(first.close().await.is_err());
            for row in 0..5 {
                assert_eq!(get(&space, row * SLAB).await, Ok(2), "{disks} disks, row {row}");
            }
            second.close().await.expect("close");
        });
    }
}

#[test]
fn a_pool_with_one_fenced_disk_is_not_opened() {
    for fenced in 0..3 {
        on_shard(async {
            let shared = Shared::new(3);
            let pool = shared.create().await;
            pool.create_space(spec(Resiliency::Mirror(2))).await.expect("space");
            pool.close().await.expect("close");
            shared.fence(fenced).await;
            let devices = Shared::devices(&shared.first);
            let opened =
                Pool::open(pool.guid(), devices, OpenOptions::default(), shared.surroundings.clone()).await;
            assert_eq!(opened.err().map(|error| error.kind()), Some(PoolErrorKind::Fenced), "disk {fenced}");
            // Whoever only looks may.
            let look = OpenOptions { read_only: true, ..OpenOptions::default() };
            let devices = Shared::devices(&shared.first);
            Pool::open(pool.guid(), devices, look, shared.surroundings.clone()).await.expect("to look");
        });
    }
}
