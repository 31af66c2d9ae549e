//! The mark of a disk that has left its pool, as earlier releases wrote it: the disk is free to be taken, whatever lies behind the mark;
//! and one that a later release wrote, or somebody else has changed, is not.
#![allow(clippy::expect_used, missing_docs, reason = "tests")]

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device, Durability, MemoryDisk};
use byte_codec::crc32c;
use format_images::{Image, kept};
use pool::{
    CreateOptions, DiskDescription, MemoryWitness, NewDisk, Pool, PoolErrorKind, Surroundings, foreign_data,
    probe,
};
use pool_format::{BLOCK, DecodeError, Guid, Released};
use shard_runtime::SeededEntropy;
use sim::{SimClock, on_shard};

const DISK: u64 = 24 << 20;

fn mark() -> Released {
    Released { pool: Guid(*b"pool of earlier!"), pool_name: "früher".into() }
}

fn image() -> Image {
    kept("released-disk", 1, &[("block", mark().encode())]).expect("an image")
}

/// A disk with these bytes at both ends, and what an earlier pool held in between.
async fn disk(ends: &[u8]) -> Device {
    let disk = MemoryDisk::new(DISK as usize, 4096);
    for at in (BLOCK..DISK - BLOCK).step_by(1 << 20) {
        let old = IoBuf::copy_from(&[0x5a; BLOCK as usize]).freeze();
        disk.write(at, old, Durability::Durable).await.expect("written");
    }
    for at in [0, DISK - BLOCK] {
        disk.write(at, IoBuf::copy_from(ends).freeze(), Durability::Durable).await.expect("written");
    }
    Arc::new(disk)
}

async fn take(device: Device) -> Result<(), PoolErrorKind> {
    let clock = SimClock::default();
    clock.begin();
    let surroundings = Surroundings {
        clock: Arc::new(clock),
        entropy: Arc::new(SeededEntropy::new(5)),
        witness: Arc::new(MemoryWitness::default()),
    };
    let disk = NewDisk { device, name: "d".into(), description: DiskDescription::default() };
    let options = CreateOptions { name: "p".into(), slab_size: 512 << 10, overwrite_foreign: false };
    Pool::create(vec![disk], options, surroundings).await.map(drop).map_err(|error| error.kind())
}

#[test]
fn a_disk_that_was_released_is_taken() {
    let image = image();
    let block = image.bytes("block");
    assert_eq!(Released::decode(block), Ok(mark()));
    assert_eq!(mark().encode(), block, "what is written now is another version");
    on_shard(async {
        let device = disk(block).await;
        assert!(probe(&device).await.expect("readable").is_none());
        assert_eq!(foreign_data(&device).await.expect("readable"), None);
        assert_eq!(take(device).await, Ok(()));
    })
    .expect("event loop");
}

#[test]
fn a_disk_whose_mark_is_unknown_or_changed_is_not_taken() {
    let image = image();
    let mut newer = image.bytes("block").to_vec();
    newer[8] = 2;
    let end = newer.len() - 4;
    let crc = crc32c(&newer[..end]).to_le_bytes();
    newer[end..].copy_from_slice(&crc);
    assert_eq!(Released::decode(&newer), Err(DecodeError::Unsupported(2)));
    let mut changed = image.bytes("block").to_vec();
    changed[200] ^= 1;
    for ends in [newer, changed] {
        let taken = on_shard(async { take(disk(&ends).await).await }).expect("event loop");
        assert_eq!(taken, Err(PoolErrorKind::ForeignData));
    }
}
