//! The feature that keeps older releases away from a volume with a log, and the place that the volume leaves to its labels.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::FileStore;
use volume_format::{BLOCK, FEATURE_LOG, FEATURE_METADATA_LOG, Superblock, USUAL_FEATURES};

use super::{environment, file, fresh, on_shard, open, reopen, write};
use crate::{CheckOptions, Repair, Volume};

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
fn a_volume_says_whether_a_log_may_stand_before_it() {
    on_shard(async {
        let (device, volume) = fresh().await;
        assert!(!Volume::expects_log(&device).await.expect("read"));
        let with = NEW | FEATURE_LOG;
        volume.set_logged(true).await.expect("set");
        assert_eq!(features(&device).await, [with, with]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        let volume = reopen(&device, volume).await;
        assert!(Volume::expects_log(&device).await.expect("read"));
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        volume.set_logged(false).await.expect("clear");
        assert_eq!(features(&device).await, [NEW; 2]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
        assert!(volume.set_logged(true).await.is_err(), "the device may be another's");
        // Power went between the two copies, while it was set or cleared.
        for (place, one) in [(0, with), (1, with)] {
            let block =
                device.read(Superblock::OFFSETS[place], IoBuf::new(BLOCK as usize)).await.expect("read");
            let superblock = Superblock::decode(&block).expect("a superblock");
            let changed = Superblock { features: one, ..superblock }.encode();
            let changed = IoBuf::copy_from(&changed).freeze();
            device.write(Superblock::OFFSETS[place], changed, Durability::Durable).await.expect("write");
            assert!(Volume::expects_log(&device).await.expect("read"));
            let options = CheckOptions { deep: false, repair: Repair::No };
            let found = crate::verify(Arc::clone(&device), environment(), options).await.expect("verify");
            assert!(found.iter().all(|found| found.repair.is_some()), "{found:?}");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            assert_eq!(features(&device).await, [with, with]);
            assert_eq!(volume.check().await.expect("check"), Vec::new());
            volume.set_logged(false).await.expect("clear");
            volume.close().await.expect("close");
        }
    });
}

/// Labels of a log lie between the copies of the superblock.
#[test]
fn nothing_lies_between_the_copies_of_the_superblock() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let id = volume.create(volume.root(), "f", file()).await.expect("file");
        let handle = open(&volume, id).await;
        for offset in 0..40 {
            write(&handle, offset << 17, &[7; 8192], Durability::Durable).await;
        }
        drop(handle);
        let volume = reopen(&device, volume).await;
        volume.close().await.expect("close");
        let [first, second] = Superblock::OFFSETS.map(|offset| offset as usize);
        let between = IoBuf::new(second - first - BLOCK as usize);
        let between = device.read(BLOCK, between).await.expect("read");
        assert!(between.iter().all(|byte| *byte == 0));
    });
}
