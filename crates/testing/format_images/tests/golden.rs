//! Every image of every version opens, holds what it held, passes its check and can be written to; and what a later release
//! wrote is refused by name, never overlooked or overwritten.
#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

use std::process::Command;

use block_device::Device;
use byte_codec::crc32c;
use format_images::{Format, Image, diff};
use pool::{CreateOptions, DiskDescription, MemoryWitness, NewDisk, OpenOptions, Pool, Surroundings};
use pool_format::{Checkpoint, LogBatch, Superblock};
use shard_runtime::SeededEntropy;
use sim::{SimClock, on_shard};

const BLOCK: usize = 4096;

fn versions(format: Format) -> impl Iterator<Item = (u32, Image)> {
    (1..=format.current())
        .map(move |version| (version, format.load(version).expect("an image of each version")))
}

fn every(format: Format) {
    for (version, image) in versions(format) {
        format.check(version, &image).unwrap_or_else(|why| panic!("{} {version}: {why}", format.name()));
    }
}

#[test]
fn every_pool_opens() {
    every(Format::Pool);
}

#[test]
fn every_volume_opens() {
    every(Format::Volume);
}

#[test]
fn every_write_log_opens() {
    every(Format::WriteLog);
}

#[test]
fn every_stream_of_differences_is_read() {
    every(Format::Diff);
}

/// The image holds changes that its database does not have.
#[test]
fn a_volume_without_its_metadata_log_is_not_what_it_was() {
    let mut image = Format::Volume.load(4).expect("an image");
    let bytes = &mut image.disks[0].1;
    let superblock = volume_format::Superblock::decode(bytes).expect("a superblock");
    let (start, size) = superblock.metadata_log().expect("a metadata log");
    bytes[start as usize..(start + size) as usize].fill(0);
    assert!(Format::Volume.check(4, &image).is_err());
}

/// A change that readers forgive is a change: it is a new version all the same.
#[test]
fn what_is_written_now_is_written_as_in_the_image() {
    for format in Format::ALL {
        let image = format.load(format.current()).expect("an image");
        let structures = format.rewrite(&image).unwrap_or_else(|why| panic!("{}: {why}", format.name()));
        assert!(structures > 0, "{}", format.name());
    }
}

#[test]
fn an_image_is_never_made_twice() {
    for format in Format::ALL {
        let before = std::fs::read(format.path(format.current())).expect("an image");
        let made =
            Command::new(env!("CARGO_BIN_EXE_format_images")).arg(format.name()).output().expect("it runs");
        assert_eq!(made.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&made.stderr).contains("never changes"), "{made:?}");
        assert_eq!(std::fs::read(format.path(format.current())).expect("an image"), before);
    }
    let wrong = Command::new(env!("CARGO_BIN_EXE_format_images")).arg("tape").output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
}

/// Puts a number of four bytes into a block whose checksum is its last four bytes.
fn patch(disk: &mut [u8], block: usize, at: usize, value: u32) {
    let block = &mut disk[block..block + BLOCK];
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
    let crc = crc32c(&block[..BLOCK - 4]).to_le_bytes();
    block[BLOCK - 4..].copy_from_slice(&crc);
}

fn surroundings() -> Surroundings {
    let clock = SimClock::default();
    clock.begin();
    Surroundings {
        clock: std::sync::Arc::new(clock),
        entropy: std::sync::Arc::new(SeededEntropy::new(5)),
        witness: std::sync::Arc::new(MemoryWitness::default()),
    }
}

/// The pool refuses to open, says why, and changes nothing.
fn pool_refuses(what: &str, image: &Image, told: &str) {
    let guid = Format::Pool.load(2).expect("an image").disks[0].1[24..40].try_into().expect("16 bytes");
    on_shard(async {
        let devices = image.devices().await.expect("disks");
        let opened =
            Pool::open(pool::Guid(guid), devices.clone(), OpenOptions::default(), surroundings()).await;
        let why = opened.map(drop).expect_err(what).to_string();
        assert!(why.contains("needs a newer release") && why.contains(told), "{what}: {why}");
        let accept = OpenOptions { accept_loss: true, ..OpenOptions::default() };
        let opened = Pool::open(pool::Guid(guid), devices.clone(), accept, surroundings()).await;
        assert!(opened.is_err(), "{what}: loss is accepted of what can be read elsewhere");
        let named: Vec<(&str, &Device)> =
            image.disks.iter().zip(&devices).map(|((name, _), device)| (name.as_str(), device)).collect();
        assert!(Image::take(&named).await.expect("disks") == *image, "{what}: something was written");
    })
    .expect("event loop");
}

#[test]
fn a_pool_of_a_later_release_is_refused() {
    let image = Format::Pool.load(2).expect("an image");
    for (at, value, told) in [(16, 3, "0x3"), (20, 0x80, "0x80")] {
        // Of one disk, at one end: it is of the newest state's disks all the same.
        let mut one = image.clone();
        let size = one.disks[2].1.len();
        patch(&mut one.disks[2].1, size - BLOCK, at, value);
        pool_refuses("a superblock", &one, told);
        let mut all = image.clone();
        for (_, disk) in &mut all.disks {
            patch(disk, 0, at, value);
            patch(disk, size - BLOCK, at, value);
        }
        pool_refuses("all superblocks", &all, told);
    }
}

/// Puts something else into the body of a checkpoint or a batch of the log, with a checksum that fits.
fn reseal(bytes: &mut [u8], change: impl FnOnce(&mut [u8])) {
    let length = u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes")) as usize;
    let whole = &mut bytes[..64 + length];
    change(&mut whole[64..]);
    whole[40..44].fill(0);
    let crc = crc32c(whole).to_le_bytes();
    whole[40..44].copy_from_slice(&crc);
}

/// Otherwise the log would seem to end there, and the older of two checkpoints to be the newer one: what was acknowledged
/// since would be given up without a word.
#[test]
fn changes_of_a_later_release_are_not_overlooked() {
    let image = Format::Pool.load(2).expect("an image");
    let layout = Superblock::decode(&image.disks[1].1[..BLOCK]).expect("a superblock");
    let (log, first) = (layout.log_start as usize, layout.checkpoint_start as usize);
    let mut newer = image.clone();
    reseal(&mut newer.disks[1].1[log..], |body| body[0] = 99);
    assert!(
        LogBatch::decode(&newer.disks[1].1[log..]).is_err()
            && LogBatch::origin(&newer.disks[1].1[log..]).is_ok()
    );
    pool_refuses("a change", &newer, "0x63");
    // The name of a space stands before its kind of resiliency.
    for slot in 0..2 {
        let mut newer = image.clone();
        let at = first + slot * layout.checkpoint_size as usize;
        assert!(Checkpoint::decode(&newer.disks[1].1[at..]).is_ok());
        reseal(&mut newer.disks[1].1[at..], |body| {
            let name = body.windows(7).position(|bytes| bytes == b"parity1").expect("the space's name");
            body[name + 7] = 77;
        });
        pool_refuses("a kind of resiliency", &newer, "0x4d");
    }
}

/// A disk that only a later release can read is not an empty one.
#[test]
fn a_disk_of_a_later_release_is_not_taken_for_another_pool() {
    let mut image = Format::Pool.load(2).expect("an image");
    image.disks.truncate(1);
    let size = image.disks[0].1.len();
    let mut damaged = image.clone();
    for at in [0, size - BLOCK] {
        patch(&mut image.disks[0].1, at, 16, 3);
        damaged.disks[0].1[at + 100] ^= 1;
    }
    for (image, told) in [(image, "needs a newer release"), (damaged, "fails its checksum")] {
        let refused = on_shard(async {
            let device = image.devices().await.expect("a disk").remove(0);
            let disk = NewDisk { device, name: "d".into(), description: DiskDescription::default() };
            let options = CreateOptions { name: "p".into(), slab_size: 512 << 10, overwrite_foreign: false };
            Pool::create(vec![disk], options, surroundings()).await.map(drop)
        });
        let why = refused.expect("event loop").expect_err("it is taken").to_string();
        assert!(why.contains("Holdfast pool") && why.contains(told), "{why}");
    }
}

#[test]
fn a_volume_of_a_later_release_is_refused() {
    for (at, value, told) in [(16, 2, "0x2"), (20, 0x81, "0x81")] {
        for copies in [&[0, 32 << 10][..], &[0], &[32 << 10]] {
            let mut image = Format::Volume.load(2).expect("an image");
            copies.iter().for_each(|copy| patch(&mut image.disks[0].1, *copy, at, value));
            let refused = Format::Volume.check(2, &image).expect_err("it opens").to_string();
            assert!(
                refused.contains("needs a newer release") && refused.contains(told),
                "{copies:?}: {refused}"
            );
        }
    }
}

#[test]
fn a_write_log_of_a_later_release_is_refused() {
    for disk in 0..2 {
        let mut image = Format::WriteLog.load(1).expect("an image");
        for slot in 0..2 {
            let label = &mut image.disks[disk].1[slot * BLOCK..][..120];
            if label.iter().all(|byte| *byte == 0) {
                continue;
            }
            label[4] = 9;
            label[8..12].fill(0);
            let crc = crc32c(label).to_le_bytes();
            label[8..12].copy_from_slice(&crc);
        }
        let refused = Format::WriteLog.check(1, &image).expect_err("it opens");
        let cause = refused.source().map(ToString::to_string).unwrap_or_default();
        assert!(cause.contains("version 9") && cause.contains("later release"), "{refused}: {cause}");
    }
}

#[test]
fn a_stream_of_a_later_release_is_refused() {
    let mut stream = Format::Diff.load(1).expect("an image").disks.remove(0).1;
    stream[16] = 2;
    let crc = crc32c(&stream[..24]).to_le_bytes();
    stream[24..28].copy_from_slice(&crc);
    let refused = diff::read(&stream).expect_err("it is read").to_string();
    assert!(refused.contains("newer release") && refused.contains('2'), "{refused}");
}

/// The images show damage, and the tests of them notice it: one byte of what a client wrote.
#[test]
fn a_changed_byte_is_noticed() {
    for (format, text) in [(Format::Volume, "main.1"), (Format::WriteLog, "log.2"), (Format::Diff, "diff.1")]
    {
        let mut image = format.load(format.current()).expect("an image");
        let disk = image.disks.iter_mut().find_map(|(_, disk)| {
            let at = disk.windows(text.len()).position(|bytes| bytes == text.as_bytes())?;
            Some(&mut disk[at])
        });
        *disk.expect("what was written is in it") ^= 1;
        assert!(format.check(format.current(), &image).is_err(), "{}", format.name());
    }
    let unused = Image { disks: vec![("a".into(), vec![0; BLOCK])] };
    assert!(Format::Pool.check(2, &unused).is_err());
}
