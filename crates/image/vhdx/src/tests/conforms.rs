//! Images are block devices: the suite of the contract over each kind.

use std::sync::Arc;

use block_conformance::{Options, Subject, SubjectFuture};
use block_device::Device;
use file_store::MemoryStore;
use shard_runtime::SeededEntropy;

use super::{dynamic, entropy, image, memory_file, run};
use crate::{CreateOptions, Kind, Mode, Opening, ParentLocator, create};

struct Images(CreateOptions);

impl Subject for Images {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            let device: Device = Arc::new(image(&self.0).await.0);
            device
        })
    }
}

/// Over a parent of zeros, which the suite cannot tell from none.
struct Differencing;

impl Subject for Differencing {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            let (parent, parent_file) = image(&dynamic(8 << 20, 1 << 20)).await;
            let locator = ParentLocator::new(parent.data_write_guid().await, "parent", None);
            let options = CreateOptions {
                block_size: Some(1 << 20),
                ..CreateOptions::new(8 << 20, Kind::Differencing(locator))
            };
            let file = memory_file(&MemoryStore::new(1 << 50), "child").await;
            create(&file, &options, &SeededEntropy::new(4)).await.expect("made");
            let parent = super::open(&parent_file, Mode::Read).await.expect("opened");
            let opening = Opening::read(file, Mode::Write, &entropy()).await.expect("read");
            let device: Device = Arc::new(opening.finish(Some(parent)).await.expect("opened"));
            device
        })
    }
}

fn conforms(subject: &impl Subject, seed: u64) {
    run(async { block_conformance::run(subject, Options::seeded(seed)).await }).expect("conformance");
}

#[test]
fn dynamic_disks_conform() {
    conforms(&Images(dynamic(8 << 20, 1 << 20)), 1);
    conforms(&Images(CreateOptions { logical_sector: 4096, ..dynamic(9 << 20, 2 << 20) }), 2);
}

#[test]
fn fixed_disks_conform() {
    conforms(&Images(CreateOptions { kind: Kind::Fixed, ..dynamic(8 << 20, 4 << 20) }), 3);
}

#[test]
fn differencing_disks_conform() {
    conforms(&Differencing, 4);
}
