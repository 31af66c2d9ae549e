//! The feature of several names, damage to them, and power cuts while they change.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::{FileStore, StoreErrorKind};
use volume_format::{BLOCK, FEATURE_METADATA_LOG, FEATURE_NAMES, Superblock, USUAL_FEATURES};

use super::{environment, file, fresh, on_shard, open, reopen, write};
use crate::Volume;

/// Features of a volume that nothing was done to.
const NEW: u32 = USUAL_FEATURES | FEATURE_METADATA_LOG;

async fn features(device: &Device) -> Vec<u32> {
    let mut found = Vec::new();
    for offset in Superblock::OFFSETS {
        let block = device.read(offset, IoBuf::new(BLOCK as usize)).await.expect("read");
        found.push(Superblock::decode(&block).expect("a superblock").features);
    }
    found
}

#[test]
fn a_volume_gets_the_feature_with_its_first_link() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let id = volume.create(root, "f", file()).await.expect("file");
        let refused = volume.link(id, (root, "F"), false).await.expect_err("its own name");
        assert_eq!(refused.kind(), StoreErrorKind::AlreadyExists);
        assert_eq!(features(&device).await, [NEW; 2], "nothing was linked yet");
        volume.link(id, (root, "g"), false).await.expect("link");
        let with = NEW | FEATURE_NAMES;
        assert_eq!(features(&device).await, [with; 2]);
        // It goes with neither the name nor another feature that comes and goes.
        volume.remove(root, "g").await.expect("remove");
        volume.set_logged(true).await.expect("set");
        volume.set_logged(false).await.expect("clear");
        let volume = reopen(&device, volume).await;
        assert_eq!(features(&device).await, [with; 2]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
        // Power went between the two copies.
        let block = device.read(Superblock::OFFSETS[1], IoBuf::new(BLOCK as usize)).await.expect("read");
        let superblock = Superblock::decode(&block).expect("a superblock");
        let changed = Superblock { features: NEW, ..superblock }.encode();
        let changed = IoBuf::copy_from(&changed).freeze();
        device.write(Superblock::OFFSETS[1], changed, Durability::Durable).await.expect("write");
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        assert_eq!(features(&device).await, [with; 2]);
        volume.link(id, (root, "g"), false).await.expect("link");
        volume.close().await.expect("close");
    });
}

/// What is written by one name and lost by another: space comes back with the last name only.
#[test]
fn space_comes_back_with_the_last_name() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let id = volume.create(root, "f", file()).await.expect("file");
        volume.link(id, (root, "g"), false).await.expect("link");
        let handle = open(&volume, id).await;
        write(&handle, 0, &[7; 1 << 20], Durability::Durable).await;
        drop(handle);
        let volume = reopen(&device, volume).await;
        let before = volume.usage().await.expect("usage");
        volume.remove(root, "f").await.expect("remove");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.usage().await.expect("usage").referenced, before.referenced);
        let handle = open(&volume, id).await;
        let read = handle.read(0, IoBuf::new(1 << 20)).await.expect("read");
        assert!(read.iter().all(|byte| *byte == 7));
        drop(handle);
        volume.remove(root, "g").await.expect("remove");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.usage().await.expect("usage").referenced, 0);
        assert_eq!(volume.info(id).await.expect_err("gone").kind(), StoreErrorKind::NotFound);
        volume.close().await.expect("close");
    });
}
