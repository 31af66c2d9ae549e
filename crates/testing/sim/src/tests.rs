//! The disk keeps its own promises, and breaks them when told to.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::{Options, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, UnmapBehavior};

use crate::{Dice, Lie, Pace, Power, SECTOR, SimDisk, SimSpec, Survival, on_shard};

const SIZE: usize = 2 << 20;

fn spec(block_size: u32, unmap: UnmapBehavior) -> SimSpec {
    SimSpec { size: SIZE, block_size, unmap, pace: Pace { turns: 4, slow_one_in: 50, slow_millis: 20 } }
}

fn disk(seed: u64) -> (Arc<Power>, Arc<SimDisk>) {
    let power = Power::new(Dice::new(seed));
    let disk = SimDisk::new(&power, &spec(512, UnmapBehavior::Zeroes));
    (power, disk)
}

struct Simulated {
    power: Arc<Power>,
    disk: Arc<SimDisk>,
}

impl Subject for Simulated {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            // Nothing is in flight between checks; what an earlier check wrote must not be seen.
            let device = self.disk.device();
            device.write_zeroes(0, device.size(), Durability::Durable).await.expect("clear");
            device
        })
    }

    fn power_cut(&self, device: Device) -> SubjectFuture<'_, Option<Device>> {
        drop(device);
        Box::pin(async {
            self.power.cut(Survival::Sectors(50));
            self.power.restore();
            Some(self.disk.device())
        })
    }
}

#[test]
fn the_contract_holds() {
    for (seed, block) in [(1, 512), (2, 4096)] {
        for unmap in [UnmapBehavior::Zeroes, UnmapBehavior::Unspecified, UnmapBehavior::Ignored] {
            let power = Power::new(Dice::new(seed));
            let disk = SimDisk::new(&power, &spec(block, unmap));
            let subject = Simulated { power, disk };
            let ended = on_shard(block_conformance::run(&subject, Options::seeded(seed)));
            ended.expect("event loop").expect("conformance");
        }
    }
}

async fn put(device: &impl BlockDevice, byte: u8, durability: Durability) -> Result<(), BlockErrorKind> {
    let data = IoBuf::copy_from(&[byte; 8 * SECTOR]).freeze();
    device.write(0, data, durability).await.map_err(|error| error.kind())
}

async fn get(disk: &SimDisk) -> Vec<u8> {
    let read = disk.attach().read(0, IoBuf::new(8 * SECTOR)).await.expect("read");
    read.chunks(SECTOR).map(|sector| sector[0]).collect()
}

#[test]
fn a_cut_keeps_what_is_durable_and_tears_the_rest() {
    let (mut torn, mut older) = (false, false);
    for seed in 0..50 {
        let (power, disk) = disk(seed);
        let found = on_shard(async {
            let device = disk.attach();
            put(&*device, 1, Durability::Durable).await.expect("write");
            put(&*device, 2, Durability::Volatile).await.expect("write");
            put(&*device, 3, Durability::Volatile).await.expect("write");
            power.cut(Survival::Sectors(60));
            assert_eq!(put(&*device, 4, Durability::Durable).await, Err(BlockErrorKind::Gone));
            power.restore();
            assert_eq!(
                put(&*device, 4, Durability::Durable).await,
                Err(BlockErrorKind::Gone),
                "an old device"
            );
            get(&disk).await
        });
        let found = found.expect("event loop");
        assert!(found.iter().all(|byte| (1..=3).contains(byte)), "{found:?}");
        torn |= found.iter().any(|byte| *byte != found[0]);
        older |= found.contains(&2);
    }
    assert!(torn && older, "a cut must tear, and may bring back what the cache had overwritten");
}

#[test]
fn a_durable_write_is_not_undone_by_what_the_cache_held_before() {
    for seed in 0..50 {
        let (power, disk) = disk(seed);
        let found = on_shard(async {
            let device = disk.attach();
            put(&*device, 1, Durability::Volatile).await.expect("write");
            put(&*device, 2, Durability::Durable).await.expect("write");
            power.cut(Survival::any(&Dice::new(seed)));
            power.restore();
            get(&disk).await
        });
        assert_eq!(found.expect("event loop"), [2; 8]);
    }
}

#[test]
fn an_event_budget_cuts_in_the_middle() {
    let mut partly = 0;
    for seed in 0..50 {
        let (power, disk) = disk(seed);
        // Event 0 is the beginning, event 1 the completion, which comes too late.
        power.cut_after(1, Survival::Sectors(50));
        let found = on_shard(async {
            let device = disk.attach();
            assert_eq!(put(&*device, 7, Durability::Durable).await, Err(BlockErrorKind::Gone));
            assert!(!power.is_on());
            power.restore();
            get(&disk).await
        });
        partly += usize::from(found.expect("event loop").contains(&7));
    }
    assert!(partly > 0, "an operation in flight may have been made in part");
}

#[test]
fn faults_do_what_they_say() {
    let (power, disk) = disk(5);
    let ended = on_shard(async {
        let device = disk.attach();
        put(&*device, 1, Durability::Durable).await.expect("write");
        disk.damage(1024, 512);
        let read = device.read(0, IoBuf::new(4096)).await.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(read, Err(BlockErrorKind::Media));
        put(&*device, 2, Durability::Durable).await.expect("write");
        assert_eq!(get(&disk).await, [2; 8], "a write heals");
        disk.fail_writes(1);
        assert_eq!(put(&*device, 3, Durability::Durable).await, Err(BlockErrorKind::Io));
        put(&*device, 4, Durability::Durable).await.expect("the next one");
        disk.fail_flushes(1);
        assert_eq!(device.flush().await.map_err(|error| error.kind()), Err(BlockErrorKind::Io));
        device.flush().await.expect("the next one");
        disk.unplug();
        assert_eq!(put(&*device, 5, Durability::Durable).await, Err(BlockErrorKind::Gone));
        disk.restore();
        assert_eq!(get(&disk).await, [4; 8]);
        let device = disk.attach();
        put(&*device, 6, Durability::Volatile).await.expect("write");
        disk.abandon();
        assert_eq!(get(&disk).await, [6; 8], "the cache outlives the process");
        disk.set_lie(Some(Lie::SkipFlush(1)));
        let device = disk.attach();
        device.flush().await.expect("a lie");
        power.cut(Survival::Nothing);
        power.restore();
        assert_eq!(get(&disk).await, [4; 8]);
        assert!(disk.written() > 0);
    });
    ended.expect("event loop");
}

#[test]
fn what_rots_stays_so_until_it_is_written() {
    let (power, disk) = disk(6);
    let dice = Dice::new(1);
    let ended = on_shard(async {
        let device = disk.attach();
        put(&*device, 1, Durability::Volatile).await.expect("write");
        assert!(disk.rot(512, &dice).is_none(), "not on the medium yet");
        device.flush().await.expect("flush");
        let rot = disk.rot(512, &dice).expect("on the medium");
        let read = device.read(512, IoBuf::new(512)).await.expect("no disk tells of it");
        assert_eq!(read.iter().filter(|byte| **byte != 1).count(), 1);
        put(&*device, 2, Durability::Volatile).await.expect("write");
        assert!(disk.is_rotten(&rot), "a cut brings it back");
        power.cut(Survival::Nothing);
        power.restore();
        let read = disk.attach().read(512, IoBuf::new(512)).await.expect("read");
        assert!(disk.is_rotten(&rot) && read.iter().any(|byte| *byte != 1));
        disk.unrot(&rot);
        let read = disk.attach().read(512, IoBuf::new(512)).await.expect("read");
        assert!(!disk.is_rotten(&rot) && read.iter().all(|byte| *byte == 1));
        let rot = disk.rot(0, &dice).expect("on the medium");
        put(&*disk.attach(), 3, Durability::Durable).await.expect("write");
        disk.unrot(&rot);
        assert_eq!(get(&disk).await, [3; 8], "what was written since stays");
    });
    ended.expect("event loop");
}

/// Nobody is left who knows of the failed flush: what can be read then, a later flush keeps.
#[test]
fn what_a_failed_flush_lost_shows_when_its_process_dies() {
    let mut lost = 0;
    for seed in 0..20 {
        let (power, disk) = disk(seed);
        let ended = on_shard(async {
            let device = disk.attach();
            put(&*device, 1, Durability::Durable).await.expect("write");
            put(&*device, 2, Durability::Volatile).await.expect("write");
            disk.fail_flushes(1);
            device.flush().await.expect_err("the failure that was ordered");
            disk.abandon();
            let seen = get(&disk).await;
            lost += u32::from(seen != [2; 8]);
            disk.attach().flush().await.expect("flush");
            power.cut(Survival::Nothing);
            power.restore();
            assert_eq!(get(&disk).await, seen);
        });
        ended.expect("event loop");
    }
    assert!((1..20).contains(&lost), "{lost} of 20 lost something");
}
