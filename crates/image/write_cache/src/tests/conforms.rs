//! A cache is a block device, whatever lies where.

use std::sync::Arc;

use block_conformance::{Options as Suite, Subject, SubjectFuture};
use block_device::{Device, MemoryDisk};

use super::{file, run};
use crate::{BLOCK, Budget, Options, WriteCache};

/// Over a base of zeros, which the suite cannot tell from none.
struct Caches {
    block_size: u32,
    ram: u64,
    overflows: bool,
}

impl Subject for Caches {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async {
            let base = Arc::new(MemoryDisk::new(9 << 20, self.block_size));
            let options = if self.overflows {
                Options::overflowing(self.ram, file().await, 1 << 30)
            } else {
                Options::ram(self.ram)
            };
            let device: Device =
                Arc::new(WriteCache::new(base, &Budget::new(self.ram), options).expect("room"));
            device
        })
    }
}

fn conforms(subject: &Caches, seed: u64) {
    run(async { block_conformance::run(subject, Suite::seeded(seed)).await }).expect("conformance");
}

#[test]
fn caches_in_memory_conform() {
    conforms(&Caches { block_size: 512, ram: 8 * BLOCK, overflows: false }, 1);
    conforms(&Caches { block_size: 4096, ram: 8 * BLOCK, overflows: false }, 2);
}

#[test]
fn caches_that_overflow_all_the_time_conform() {
    conforms(&Caches { block_size: 512, ram: 300 << 10, overflows: true }, 3);
    conforms(&Caches { block_size: 4096, ram: BLOCK, overflows: true }, 4);
}
