//! A write log with data, zeroes and voided entries that its back does not have yet; it was there before its back had content.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device, Durability, MemoryDisk};
use shard_runtime::SeededEntropy;
use write_log::{Options, WriteLog};
use write_log_format::{BatchHead, Label, RING_START, Side};

use crate::check::{BLOCK, buffer, content, read, same_bytes};
use crate::{Fallible, Image, ensure};

/// What is looked at of the log's device, in bytes.
const LEN: u64 = 512 << 10;

pub(crate) fn options() -> Options {
    Options { small: 32 << 10, memory: 4 << 20, quiet: Duration::from_secs(3600) }
}

/// What is written, in this order: where and how long, in which round; 0 for zeroes.
const WRITES: &[(u64, u64, u32)] = &[
    (0, 8 * BLOCK, 1),
    // Long: it goes straight to the back, and voids what the log has of it.
    (2 * BLOCK, 64 * BLOCK, 2),
    (100 * BLOCK, 2 * BLOCK, 3),
    (5 * BLOCK, BLOCK, 4),
    (101 * BLOCK, BLOCK, 0),
    (7 * BLOCK, 512, 5),
];

fn expected() -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    for (offset, len, round) in WRITES {
        let place = &mut bytes[*offset as usize..][..*len as usize];
        match round {
            0 => place.fill(0),
            round => place.copy_from_slice(&content("log", *round, *offset, *len)),
        }
    }
    bytes
}

async fn open(devices: &[Device]) -> Fallible<WriteLog> {
    let [front, back] = devices else { return Err("an image of a log has two disks".into()) };
    let entropy = SeededEntropy::new(2);
    Ok(WriteLog::open(Some(Arc::clone(front)), Arc::clone(back), options(), &entropy, false).await?)
}

/// Opens the log, whether everything is there before and after it went to the back, writes, and opens it again.
///
/// # Errors
/// What is not as it was.
pub async fn check(image: &Image) -> Fallible {
    // The back of an image has blocks of 4096 bytes here: what the log wants of it are whole sectors.
    let devices = devices(image).await?;
    let log = open(&devices).await?;
    let status = log.status();
    ensure(status.replayed_batches >= 5 && status.waiting_bytes > 0, || {
        format!("too little is replayed: {status:?}")
    })?;
    same_bytes("what the log shows", &read(&log, LEN).await?, &expected())?;
    log.drain().await?;
    same_bytes("what the log shows when its back has it", &read(&log, LEN).await?, &expected())?;
    log.write(BLOCK, buffer("log", 9, BLOCK, BLOCK), Durability::Durable).await?;
    log.close().await?;
    drop(log);
    let log = open(&devices).await?;
    let mut expected = expected();
    expected[BLOCK as usize..][..BLOCK as usize].copy_from_slice(&content("log", 9, BLOCK, BLOCK));
    same_bytes("what the log shows after a write", &read(&log, LEN).await?, &expected)
}

/// Disks that hold the image; the back's sectors have 512 bytes, as it was made.
pub(crate) async fn devices(image: &Image) -> Fallible<Vec<Device>> {
    let mut devices: Vec<Device> = Vec::new();
    for ((_, bytes), block_size) in image.disks.iter().zip([4096, 512]) {
        let disk = MemoryDisk::new(bytes.len(), block_size);
        disk.write(0, IoBuf::copy_from(bytes).freeze(), Durability::Durable).await?;
        devices.push(Arc::new(disk));
    }
    Ok(devices)
}

/// Labels and batches, read and written anew; how many.
///
/// # Errors
/// Where other bytes come out.
pub fn rewrite(image: &Image) -> Fallible<usize> {
    let mut structures = 0;
    for ((name, bytes), side) in image.disks.iter().zip([Side::Front, Side::Back]) {
        for (slot, block) in bytes.chunks(BLOCK as usize).take(2).enumerate() {
            if let Ok(label) = Label::decode(side, block) {
                same_bytes(&format!("label {slot} of the {name}"), &label.encode(side), block)?;
                structures += 1;
            }
        }
    }
    let (_, front) = image.disks.first().ok_or("an image of a log has two disks")?;
    for at in (RING_START as usize..front.len()).step_by(BLOCK as usize) {
        let block = &front[at..at + BLOCK as usize];
        if let Ok(head) = BatchHead::decode(block) {
            same_bytes(&format!("the batch at {at}"), &head.encode(), block)?;
            structures += 1;
        }
    }
    Ok(structures)
}
