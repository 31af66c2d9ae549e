//! The disk keeps its own promises, and breaks them when told to.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::{Options, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, UnmapBehavior};

use crate::{Dice, Full, Lie, Pace, Power, SECTOR, SimDisk, SimSpec, Survival, on_shard};

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

#[test]
fn a_disk_goes_back_to_what_it_was() {
    let (power, disk) = disk(7);
    let ended = on_shard(async {
        put(&*disk.attach(), 1, Durability::Volatile).await.expect("write");
        let image = disk.image();
        let device = disk.attach();
        put(&*device, 2, Durability::Durable).await.expect("write");
        let data = IoBuf::copy_from(&[3; SECTOR]).freeze();
        device.write(1 << 20, data, Durability::Durable).await.expect("a write to a place that was empty");
        disk.roll_back(&image);
        assert_eq!(put(&*device, 4, Durability::Durable).await, Err(BlockErrorKind::Gone), "an old device");
        power.cut(Survival::Newest);
        power.restore();
        assert_eq!(get(&disk).await, [1; 8]);
        let empty = disk.attach().read(1 << 20, IoBuf::new(SECTOR)).await.expect("read");
        assert!(empty.iter().all(|byte| *byte == 0), "what was not there is not there");
        disk.roll_back(&image);
        assert_eq!(get(&disk).await, [1; 8], "again and again");
    });
    ended.expect("event loop");
}

#[test]
fn lost_writes_are_acknowledged_and_known_until_they_are_made_up_for() {
    let (power, disk) = disk(8);
    let ended = on_shard(async {
        let device = disk.attach();
        put(&*device, 1, Durability::Durable).await.expect("write");
        disk.lose_writes(&[512..1024, 4096..8192]);
        put(&*device, 1, Durability::Durable).await.expect("write");
        assert!(disk.lost().is_empty(), "the same as before is no loss");
        put(&*device, 2, Durability::Durable).await.expect("write");
        assert_eq!(get(&disk).await, [2, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(disk.lost(), [512]);
        disk.keep_writes();
        assert!(!disk.is_losing());
        // A later write makes up for it when it is durable, and not before.
        put(&*device, 3, Durability::Volatile).await.expect("write");
        assert_eq!(disk.lost(), [512]);
        power.cut(Survival::Nothing);
        power.restore();
        assert_eq!(get(&disk).await, [2, 1, 2, 2, 2, 2, 2, 2]);
        disk.put_back(512);
        assert_eq!(get(&disk).await, [2; 8]);
        assert!(disk.lost().is_empty());
        disk.lose_writes(std::slice::from_ref(&(0..512)));
        put(&*disk.attach(), 4, Durability::Volatile).await.expect("write");
        disk.keep_writes();
        assert_eq!(disk.lost(), [0]);
        put(&*disk.attach(), 5, Durability::Volatile).await.expect("write");
        disk.attach().flush().await.expect("flush");
        assert!(disk.lost().is_empty());
        disk.put_back(0);
        assert_eq!(get(&disk).await, [5; 8]);
    });
    ended.expect("event loop");
}

#[test]
fn a_full_disk_takes_nothing_new() {
    let (_power, disk) = disk(9);
    let ended = on_shard(async {
        let device = disk.attach();
        put(&*device, 1, Durability::Durable).await.expect("write");
        disk.set_full(Some(Full::New));
        put(&*device, 2, Durability::Durable).await.expect("what is there can be overwritten");
        let data = IoBuf::copy_from(&[3; SECTOR]).freeze();
        let grown = device.write(1 << 20, data, Durability::Durable).await.map_err(|error| error.kind());
        assert_eq!(grown, Err(BlockErrorKind::NoSpace));
        disk.set_full(Some(Full::Everything));
        assert_eq!(put(&*device, 4, Durability::Durable).await, Err(BlockErrorKind::NoSpace));
        device.unmap(0, 4096).await.expect("space can be given back");
        disk.set_full(None);
        put(&*device, 5, Durability::Durable).await.expect("there is space again");
        assert_eq!(get(&disk).await, [5; 8]);
    });
    ended.expect("event loop");
}
